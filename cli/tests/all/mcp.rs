//! `hatchery mcp`: an agent's side of the protocol, by hand and by the official client.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Map, Value, json};
use test_support::mcp;

use crate::{hatchery, interrupt};

/// How long an answer may take; the first start on a machine compiles the build.
const PATIENCE: Duration = Duration::from_secs(400);

/// An agent's side of a running server.
struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// Messages that weren't the one that was waited for.
    notes: Vec<Value>,
    sent: u64,
}

impl Agent {
    /// Starts a server with these options, and begins by this version of the protocol.
    fn of(version: &str, options: &[&str]) -> Self {
        let mut agent = Self::silent(options);
        let begun = agent.request(
            "initialize",
            json!({
                "protocolVersion": version, "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" },
            }),
        );
        assert_eq!(begun["result"]["protocolVersion"], version, "{begun}");
        agent.notify("notifications/initialized", json!({}));
        agent
    }

    fn start() -> Self {
        Self::of("2025-11-25", &["--workers", "2"])
    }

    fn silent(options: &[&str]) -> Self {
        let mut child = hatchery()
            .arg("mcp")
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = sync_channel(1000);
        std::thread::spawn(move || {
            // Nothing but messages comes there.
            let messages = stdout.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap());
            for message in messages {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, notes: Vec::new(), sent: 0 }
    }

    fn write(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn notify(&mut self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.write(&message.to_string());
    }

    /// Sends a request, and returns its id.
    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.sent += 1;
        let id = self.sent;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(&message.to_string());
        id
    }

    /// Waits for the answer to a request.
    fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.lines.recv_timeout(PATIENCE).unwrap();
            if message["id"] == id {
                return message;
            }
            self.notes.push(message);
        }
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// Calls a tool, and returns its result.
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    fn run(&mut self, arguments: Value) -> Value {
        self.call("run_python", arguments)
    }

    /// Closes standard input, and returns the exit code.
    fn end(mut self) -> Option<i32> {
        drop(self.stdin.take());
        self.child.wait().unwrap().code()
    }
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

fn is_refused(result: &Value, said: &str) -> bool {
    result["isError"] == true && text(result).contains(said)
}

#[test]
fn versions_are_agreed_on_and_tools_have_schemas() {
    for version in ["2025-06-18", "2025-11-25"] {
        let mut agent = Agent::of(version, &["--workers", "1"]);
        let tools = agent.request("tools/list", json!({}))["result"]["tools"].clone();
        let names: Vec<&str> =
            tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        let expected =
            ["run_python", "fork_session", "reset_session", "list_packages", "read_file"];
        assert_eq!(names, expected);
        let run = &tools[0];
        let fields = run["inputSchema"]["properties"].as_object().unwrap();
        assert!(fields.contains_key("session") && fields.contains_key("code"), "{run}");
        assert_eq!(run["inputSchema"]["required"], json!(["code"]));
        let output = run["outputSchema"]["properties"].as_object().unwrap();
        // What a result has is what the schema says.
        let result = agent.run(json!({ "code": "1" }));
        let given = result["structuredContent"].as_object().unwrap();
        let names = |fields: &Map<String, Value>| fields.keys().cloned().collect::<BTreeSet<_>>();
        assert!(names(given).is_subset(&names(output)), "{result}");
        let required = run["outputSchema"]["required"].as_array().unwrap();
        assert!(required.iter().all(|name| given.contains_key(name.as_str().unwrap())));
        // Some hosts give their model the object and not the text.
        let result = agent.run(json!({ "code": "print('a'); 6 * 7" }));
        let given = &result["structuredContent"];
        assert_eq!((&given["value"], given["stdout"].as_str()), (&json!(42), Some("a\n")));
        assert!(given.to_string().len() < 12 * text(&result).len(), "{given}");
        let code = "import pandas as pd\npd.DataFrame({'a': range(50), 'b': 'x'})";
        let result = agent.run(json!({ "code": code }));
        let given = result["structuredContent"].to_string();
        assert!(given.len() < 2 * text(&result).len(), "{given}");
        assert_eq!(agent.end(), Some(0));
    }
}

#[test]
fn a_result_is_a_text_and_an_object() {
    let mut agent = Agent::start();
    let result = agent.run(json!({
        "code": "import sys\nprint('out'); print('err', file=sys.stderr); n * 2",
        "variables": { "n": 12_345_678_901_234_567_890_u64 },
    }));
    assert_eq!(text(&result), "out\nstderr: err\nvalue: 24691357802469135780");
    assert_eq!(
        (&result["isError"], result["structuredContent"]["stdout"].as_str()),
        (&json!(false), Some("out\n"),)
    );
    let raised = agent.run(json!({ "code": "def f(): raise ValueError('wrong')\nf()" }));
    assert_eq!(raised["isError"], false);
    assert!(text(&raised).starts_with("Traceback") && text(&raised).ends_with("ValueError: wrong"));
    assert_eq!(raised["structuredContent"]["error"]["type"], "ValueError");
    let stopped = agent.run(json!({ "code": "while True: pass", "timeout": 0.3 }));
    assert_eq!(stopped["isError"], false);
    assert!(text(&stopped).starts_with("Stopped: the wall limit of 300 ms"), "{stopped}");
    assert_eq!(stopped["structuredContent"]["timed_out"], true);
    let left = agent.run(json!({ "code": "import sys; sys.exit('enough')" }));
    assert_eq!(text(&left), "stderr: enough\nThe program exited with code 1");
    let given = json!({
        "code": "import sys; print(sys.argv[1:], input(), open('in').read())",
        "args": ["a"], "stdin": "line\n", "files": { "in": { "base64": "ZmlsZQ==" } },
    });
    assert_eq!(text(&agent.run(given)), "['a'] line file");
}

#[test]
fn figures_and_images_are_images() {
    let mut agent = Agent::start();
    let code = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2]); plt.show()";
    let result = agent.run(json!({ "code": code }));
    let blocks = result["content"].as_array().unwrap();
    let image = blocks.iter().find(|block| block["type"] == "image").unwrap();
    let bytes = BASE64_STANDARD.decode(image["data"].as_str().unwrap()).unwrap();
    assert!(bytes.starts_with(b"\x89PNG") && image["mimeType"] == "image/png");
    // Once is enough.
    assert!(!result["structuredContent"].to_string().contains("image/png"));
    let code = "display({'image/png': b'no image', 'text/plain': 'x'}, raw=True)";
    let fake = agent.run(json!({ "code": code }));
    assert_eq!(fake["content"].as_array().unwrap().len(), 1, "{fake}");
    assert!(text(&fake).contains("not of its stated type"), "{fake}");
}

#[test]
fn sessions_keep_variables_and_files() {
    let mut agent = Agent::start();
    let code = "n = 1; open('dir.csv', 'w').write('1,2')";
    let first = agent.run(json!({ "code": code, "session": "s/1" }));
    let uri = "hatchery://sessions/s%2F1/files/dir.csv";
    assert_eq!(first["content"][1]["uri"], uri, "{first}");
    assert_eq!(first["structuredContent"]["session"], "s/1");
    let read = agent.request("resources/read", json!({ "uri": uri }));
    assert_eq!(read["result"]["contents"][0]["text"], "1,2");
    assert_eq!(read["result"]["contents"][0]["mimeType"], "text/csv");
    let listed = agent.request("resources/list", json!({}));
    assert_eq!(listed["result"]["resources"][0]["uri"], uri);
    let templates = agent.request("resources/templates/list", json!({}));
    let template = &templates["result"]["resourceTemplates"][0]["uriTemplate"];
    assert_eq!(template, "hatchery://sessions/{session}/files/{+path}");
    let missing = agent.request("resources/read", json!({ "uri": format!("{uri}x") }));
    assert!(missing["error"]["message"].as_str().unwrap().contains("`dir.csvx`"), "{missing}");

    let fork = agent.call("fork_session", json!({ "session": "s/1", "name": "t" }));
    assert_eq!(fork["structuredContent"]["session"], "t");
    agent.run(json!({ "code": "n = 2", "session": "t" }));
    let here = agent.run(json!({ "code": "n", "session": "s/1" }));
    assert_eq!(here["structuredContent"]["value"], 1);
    let there = json!({ "session": "s/1", "name": "t" });
    assert!(is_refused(&agent.call("fork_session", there), "there is a session `t`"));
    let file = agent.call("read_file", json!({ "session": "t", "path": "dir.csv" }));
    assert_eq!(text(&file), "1,2");
    let file = agent.call("read_file", json!({ "session": "t", "path": "x" }));
    assert!(is_refused(&file, "there is no file `x`") && text(&file).contains("dir.csv"));

    agent.call("reset_session", json!({ "session": "t" }));
    let reset = agent.run(json!({ "code": "n", "session": "t" }));
    assert_eq!(reset["structuredContent"]["error"]["type"], "NameError");
    let fresh = agent.run(json!({ "code": "n" }));
    assert_eq!(fresh["structuredContent"]["error"]["type"], "NameError");
    let nowhere = agent.call("reset_session", json!({ "session": "nowhere" }));
    assert!(is_refused(&nowhere, "there is no session `nowhere`"), "{nowhere}");
    // Without a session, what a program wrote is gone with it, so it is shown.
    let gone = agent.run(json!({ "code": "open('a.txt', 'w').write('text'); None" }));
    assert_eq!(text(&gone), "File created: a.txt (4 bytes):\ntext");
}

#[test]
fn mistakes_are_named() {
    let mut agent = Agent::start();
    for (arguments, said) in [
        (json!({}), "give the program as `code`"),
        (json!({ "code": 1 }), "`code` must be a string"),
        (json!({ "code": "1", "sesion": "a" }), "no field `sesion`"),
        (json!({ "code": "1", "session": 1 }), "`session` must be a string"),
        (json!({ "code": "1", "session": "" }), "a session's name"),
        (json!({ "code": "1", "timeout": -1 }), "`timeout`"),
        (json!({ "code": "1", "memory": 1 }), "no field `memory`"),
        (json!({ "code": "1", "files": { "../a": "" } }), "../a"),
    ] {
        let result = agent.run(arguments);
        assert!(is_refused(&result, said), "{said}: {result}");
        assert_eq!(result["structuredContent"]["status"], "not_run");
        assert_eq!(result["structuredContent"]["error"]["kind"], "usage");
    }
    assert!(is_refused(&agent.call("read_file", json!({ "session": "a" })), "`path`"));
    let unknown = agent.request("tools/call", json!({ "name": "shell", "arguments": {} }));
    assert_eq!(unknown["error"]["code"], -32602);
    assert!(unknown["error"]["message"].as_str().unwrap().contains("`shell`"), "{unknown}");
    let method = agent.request("no/such", json!({}));
    assert_eq!(method["error"]["code"], -32601);
    for line in ["{\"jsonrpc\": ", "no json", "", "[]", "7", "\u{7}\u{0}"] {
        agent.write(line);
    }
    assert_eq!(agent.request("ping", json!({}))["result"], json!({}));
    assert_eq!(text(&agent.run(json!({ "code": "'alive'" }))), "value: 'alive'");
}

#[test]
fn packages_are_listed() {
    let mut agent = Agent::start();
    let packages = agent.call("list_packages", json!({}));
    let listed = packages["structuredContent"]["packages"].as_array().unwrap();
    let numpy = listed.iter().find(|package| package["name"] == "numpy").unwrap();
    let line = format!("numpy {}", numpy["version"].as_str().unwrap());
    assert!(text(&packages).lines().any(|listed| listed == line), "{packages}");
}

#[test]
fn an_agent_chooses_among_several_builds() {
    let argument = format!("--python=3.12={}", test_support::found::wasi().display());
    let mut agent = Agent::of("2025-11-25", &["--workers", "2", &argument]);
    let tools = agent.request("tools/list", json!({}))["result"]["tools"].clone();
    let choice = &tools[0]["inputSchema"]["properties"]["python"];
    assert_eq!(choice["enum"], json!(["default", "3.12"]), "{choice}");
    let version = "import sys; sys.version_info[1]";
    let on = |python| json!({ "code": version, "python": python, "session": python });
    assert_eq!(text(&agent.run(json!({ "code": version }))), "value: 15");
    assert_eq!(text(&agent.run(on("3.12"))), "value: 12");
    assert_eq!(text(&agent.run(on("default"))), "value: 15");
    assert_eq!(text(&agent.run(json!({ "code": version, "session": "3.12" }))), "value: 12");
    let moved = json!({ "code": version, "python": "default", "session": "3.12" });
    assert!(is_refused(&agent.run(moved), "always runs on the Python build"));
    assert!(is_refused(&agent.run(on("2.7")), "it has `default`, `3.12`"));
    let packages = agent.call("list_packages", json!({ "python": "3.12" }));
    assert_eq!(packages["structuredContent"], json!({ "packages": [] }));
    let mut alone = Agent::start();
    assert!(is_refused(&alone.run(on("default")), "the pool's operator decides"));
}

#[test]
fn progress_is_reported_to_clients_that_ask() {
    let mut agent = Agent::start();
    let code = "import time\nfor n in range(8): print('step', n); time.sleep(0.15)";
    let params = json!({
        "name": "run_python", "arguments": { "code": code }, "_meta": { "progressToken": "p" },
    });
    assert_eq!(agent.request("tools/call", params)["result"]["isError"], false);
    let told: Vec<(f64, &str)> = agent
        .notes
        .iter()
        .map(|note| {
            let params = &note["params"];
            assert_eq!(
                (&note["method"], &params["progressToken"]),
                (&json!("notifications/progress"), &json!("p"),)
            );
            let message = params["message"].as_str().unwrap_or_default();
            (params["progress"].as_f64().unwrap(), message)
        })
        .collect();
    // 1.2 s, at most four a second.
    assert!((2..=6).contains(&told.len()), "{told:?}");
    assert!(told.is_sorted_by(|one, next| one.0 < next.0), "{told:?}");
    assert!(told.iter().any(|(_, message)| message.starts_with("step ")), "{told:?}");
    agent.notes.clear();
    agent.run(json!({ "code": "import time; time.sleep(0.6)" }));
    assert_eq!(agent.notes, Vec::<Value>::new());
}

#[test]
fn a_cancelled_program_is_interrupted_and_its_session_lives_on() {
    let mut agent = Agent::start();
    agent.run(json!({ "code": "n = 1", "session": "s" }));
    for endless in [
        "n += 1; print('running')\nwhile True: pass",
        // It doesn't listen, and is stopped after its grace: what it did is undone.
        "n = 0; print('running')\nwhile True:\n    try:\n        while True: pass\n    \
         except BaseException: pass",
    ] {
        let id = agent.send(
            "tools/call",
            json!({
                "name": "run_python", "arguments": { "code": endless, "session": "s" },
                "_meta": { "progressToken": 1 },
            }),
        );
        // The program runs once it has said so.
        loop {
            let message = agent.lines.recv_timeout(PATIENCE).unwrap();
            if message["params"]["message"] == "running" {
                break;
            }
        }
        agent.notify("notifications/cancelled", json!({ "requestId": id }));
        let after = agent.run(json!({ "code": "n", "session": "s" }));
        assert_eq!(after["structuredContent"]["value"], 2, "{after}");
        assert!(agent.notes.iter().all(|note| note["id"] != id), "{:?}", agent.notes);
    }
}

#[test]
fn a_closed_input_ends_it_after_the_last_answer() {
    let mut agent = Agent::start();
    let call = json!({ "code": "import time; time.sleep(0.5); 7" });
    let id = agent.send("tools/call", json!({ "name": "run_python", "arguments": call }));
    drop(agent.stdin.take());
    assert_eq!(text(&agent.answer(id)["result"]), "value: 7");
    assert_eq!(agent.child.wait().unwrap().code(), Some(0));
    // Nobody ever came.
    assert_eq!(Agent::silent(&[]).end(), Some(0));
}

#[test]
fn signals_end_it_whatever_runs() {
    for (signal, code) in [("INT", Some(130)), ("TERM", Some(143))] {
        let mut agent = Agent::start();
        agent.run(json!({ "code": "1" }));
        agent.send(
            "tools/call",
            json!({ "name": "run_python", "arguments": { "code": "while True: pass" } }),
        );
        match signal {
            "INT" => interrupt(agent.child.id()),
            _ => {
                let process = agent.child.id().to_string();
                let sent =
                    std::process::Command::new("kill").args(["-TERM", &process]).status().unwrap();
                assert!(sent.success());
            }
        }
        assert_eq!(agent.child.wait().unwrap().code(), code);
    }
}

#[test]
fn a_pool_that_can_not_start_says_why() {
    let mut child = hatchery()
        .args(["mcp", "--package", "nowhere.whl"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("can't read `nowhere.whl`"), "{said}");
}

#[test]
fn the_official_client_finds_what_it_expects() {
    let Some(environment) = mcp::environment() else { return };
    let program = env!("CARGO_BIN_EXE_hatchery");
    mcp::check(environment.path(), &[program, "mcp", "--workers", "2"]);
}
