//! A browser of this machine, driven over the WebDriver protocol (<https://www.w3.org/TR/webdriver2>).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use test_support::http;

/// Tests that run as root, in a container, need the first and the last but one.
const OPTIONS: [&str; 5] = [
    "--no-sandbox",
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
];

/// What scripts of tests can name.
const NAMES: &str = "const pool = document.querySelector('hatchery-pool');\n\
    const root = pool?.shadowRoot;\n\
    const all = (selector) => [...root.querySelectorAll(selector)];\n\
    const text = (selector) => root.querySelector(selector)?.innerText ?? '';\n\
    const button = (name) => all('button').find((button) => button.innerText === name);\n";

/// A browser with one window. Dropping it ends it.
pub(crate) struct Browser {
    /// The address of the session's commands.
    session: String,
    _driver: Driver,
}

/// A key that isn't a character, as the protocol names it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Key {
    Tab = 0xE004,
    Enter = 0xE007,
    Control = 0xE009,
}

impl Key {
    fn name(self) -> char {
        char::from_u32(self as u32).expect("of the private use area")
    }
}

struct Driver {
    process: Child,
    address: String,
    /// It ends when nobody could read what it says.
    _output: BufReader<ChildStdout>,
}

impl Browser {
    /// Starts a browser and loads this page; `None` if there is no browser, which is said.
    pub(crate) fn open(page: &str) -> Option<Self> {
        let Some(driver) = Driver::start() else {
            let missing =
                "no `chromedriver` is installed: apt-get install chromium chromium-driver";
            assert!(std::env::var_os("CI").is_none(), "{missing}");
            // Unlike what macros print, that is shown of tests that pass as well.
            let _ = writeln!(std::io::stderr(), "the page isn't tested: {missing}");
            return None;
        };
        let options = json!({ "goog:chromeOptions": { "args": OPTIONS } });
        let address = format!("{}/session", driver.address);
        let wanted = json!({ "capabilities": { "alwaysMatch": options } });
        let made = ask(&address, &wanted).unwrap();
        let session = format!("{address}/{}", made["sessionId"].as_str().unwrap());
        let browser = Self { session, _driver: driver };
        browser.load(page);
        Some(browser)
    }

    /// Loads a page.
    pub(crate) fn load(&self, page: &str) {
        self.ask("url", &json!({ "url": page })).unwrap();
    }

    /// Runs a script, and returns what it returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        let named = format!("{NAMES}{script}");
        let ran = self.ask("execute/sync", &json!({ "script": named, "args": [] }));
        ran.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits until an expression is true, looking before each frame, and returns its value.
    pub(crate) fn until(&self, expression: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1];
            const check = () => {{
                {NAMES}
                let value = null;
                try {{ value = {expression}; }} catch {{ }}
                if (value) done(value); else requestAnimationFrame(check);
            }};
            check();"
        );
        self.ask("execute/async", &json!({ "script": script, "args": [] })).unwrap_or_else(|_| {
            let page =
                self.run("return root?.querySelector('.pool, .gate')?.parentNode.textContent");
            panic!("`{expression}` isn't true in time: {page}")
        })
    }

    /// Waits until a script calls `done`, and returns what with.
    pub(crate) fn finish(&self, script: &str) -> Value {
        let script = format!("const done = arguments[arguments.length - 1];\n{NAMES}{script}");
        self.ask("execute/async", &json!({ "script": script, "args": [] })).unwrap()
    }

    /// Chooses a file of this machine in an input.
    pub(crate) fn choose(&self, input: &str, file: &Path) {
        let element = self.run(&format!("return root.querySelector('{input}')"));
        let id = element.as_object().and_then(|it| it.values().next()?.as_str()).unwrap();
        self.ask(&format!("element/{id}/value"), &json!({ "text": file })).unwrap();
    }

    /// Presses these keys together.
    pub(crate) fn press(&self, keys: &[Key]) {
        let action = |kind: &str, key: &Key| json!({ "type": kind, "value": key.name() });
        let down = keys.iter().map(|key| action("keyDown", key));
        let up = keys.iter().rev().map(|key| action("keyUp", key));
        let actions: Vec<Value> = down.chain(up).collect();
        let source = json!({ "type": "key", "id": "keys", "actions": actions });
        self.ask("actions", &json!({ "actions": [source] })).unwrap();
    }

    /// Sends a command of the browser's own protocol.
    pub(crate) fn command(&self, name: &str, parameters: &Value) -> Value {
        self.ask("goog/cdp/execute", &json!({ "cmd": name, "params": parameters })).unwrap()
    }

    fn ask(&self, command: &str, parameters: &Value) -> Result<Value, String> {
        ask(&format!("{}/{command}", self.session), parameters)
    }
}

/// Sends a command to the driver, and returns its answer, or its error.
fn ask(address: &str, parameters: &Value) -> Result<Value, String> {
    let headers = [("content-type", "application/json")];
    let answer = http::request("POST", address, &headers, parameters.to_string().as_bytes());
    let answer = answer.map_err(|error| error.to_string())?.json();
    let value = &answer["value"];
    match value["error"].as_str() {
        Some(error) => Err(format!("{error}: {}", value["message"])),
        None => Ok(value.clone()),
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser then; ending the driver alone would leave the browser.
        let _ = http::request("DELETE", &self.session, &[], b"");
    }
}

impl Driver {
    fn start() -> Option<Self> {
        let mut command = Command::new("chromedriver");
        let mut process = command.arg("--port=0").stdout(Stdio::piped()).spawn().ok()?;
        let mut output = BufReader::new(process.stdout.take()?);
        let mut line = String::new();
        loop {
            line.clear();
            let length = output.read_line(&mut line).unwrap();
            assert!(length > 0, "the driver ended");
            if let Some((_, port)) = line.trim_end().split_once("successfully on port ") {
                let address = format!("http://127.0.0.1:{}", port.trim_end_matches('.'));
                return Some(Self { process, address, _output: output });
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
