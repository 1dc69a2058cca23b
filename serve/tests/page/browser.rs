//! A browser of this machine.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

use crate::server::wait;

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
    client: Client,
    session: String,
    driver: Driver,
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
        let Value::Object(capabilities) = json!({ "goog:chromeOptions": { "args": OPTIONS } })
        else {
            return None;
        };
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(capabilities);
        let client = wait(builder.connect(&driver.address)).unwrap();
        let session = wait(client.session_id()).unwrap().unwrap();
        let browser = Self { client, session, driver };
        browser.load(page);
        Some(browser)
    }

    /// Loads a page.
    pub(crate) fn load(&self, page: &str) {
        wait(self.client.goto(page)).unwrap();
    }

    /// Runs a script, and returns what it returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        let ran = wait(self.client.execute(&format!("{NAMES}{script}"), Vec::new()));
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
        wait(self.client.execute_async(&script, Vec::new())).unwrap_or_else(|_| {
            let page =
                self.run("return root?.querySelector('.pool, .gate')?.parentNode.textContent");
            panic!("`{expression}` isn't true in time: {page}")
        })
    }

    /// Waits until a script calls `done`, and returns what with.
    pub(crate) fn finish(&self, script: &str) -> Value {
        let script = format!("const done = arguments[arguments.length - 1];\n{NAMES}{script}");
        wait(self.client.execute_async(&script, Vec::new())).unwrap()
    }

    /// Presses these keys together.
    pub(crate) fn press(&self, keys: &[Key]) {
        let down = keys.iter().map(|key| KeyAction::Down { value: (*key).into() });
        let up = keys.iter().rev().map(|key| KeyAction::Up { value: (*key).into() });
        let actions = KeyActions::new("keys".to_owned());
        let actions = down.chain(up).fold(actions, |actions, action| actions.then(action));
        wait(self.client.perform_actions(actions)).unwrap();
    }

    /// Sends a command of the browser's own protocol.
    pub(crate) fn command(&self, name: &str, parameters: &Value) -> Value {
        let url = format!("{}/session/{}/goog/cdp/execute", self.driver.address, self.session);
        let body = json!({ "cmd": name, "params": parameters }).to_string();
        let mut answer = ureq::post(&url).content_type("application/json").send(&body).unwrap();
        let answer: Value =
            serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
        answer["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser then; ending the driver alone would leave the browser.
        let _ = ureq::delete(format!("{}/session/{}", self.driver.address, self.session)).call();
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
