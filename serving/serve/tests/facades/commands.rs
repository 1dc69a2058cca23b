//! `/process.Process`, by which E2B's clients run commands.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use crate::server::Server;

/// What runs until it is stopped.
const ENDLESS: &str = "echo begun; while true; do true; done";

/// A new sandbox of a tenant.
fn sandbox(tenant: &'static str) -> (String, &'static str) {
    let asked = json!({ "templateID": "base", "envVars": { "OWN": "sandbox" }, "timeout": 600 });
    let made = Server::shared().post_as(tenant, "/v2/sandboxes", &asked);
    assert_eq!(made.status, 201, "{}", made.text);
    let made: Value = serde_json::from_str(&made.text).unwrap();
    (made["sandboxID"].as_str().unwrap().to_owned(), tenant)
}

fn bash(line: &str) -> Value {
    json!({ "process": { "cmd": "/bin/bash", "args": ["-l", "-c", line] }, "stdin": false })
}

fn start(to: &(String, &str), message: &Value) -> impl Iterator<Item = Value> + use<> {
    Server::shared().call((&to.0, to.1), "Start", message, &[])
}

fn unary(to: &(String, &str), method: &str, message: &Value) -> (u16, Value) {
    let path = format!("/process.Process/{method}");
    let answer = Server::shared().post_to(&to.0, to.1, &path, message);
    (answer.status, serde_json::from_str(&answer.text).unwrap())
}

/// What a command wrote, and its last two messages.
fn ran(messages: impl Iterator<Item = Value>) -> (String, String, Value, Value) {
    let mut messages: Vec<Value> = messages.collect();
    assert!(messages[0]["start"]["pid"].as_u64().unwrap() > 0, "{messages:?}");
    let (last, end) = (messages.pop().unwrap(), messages.pop().unwrap());
    let text = |stream: &str| {
        let parts = messages.iter().filter_map(|message| message["data"][stream].as_str());
        let bytes = parts.flat_map(|part| BASE64_STANDARD.decode(part).unwrap()).collect();
        String::from_utf8(bytes).unwrap()
    };
    (text("stdout"), text("stderr"), end["end"].clone(), last["last"].clone())
}

#[test]
fn a_command_says_what_it_does_and_how_it_ends() {
    let to = sandbox("commands-red");
    let (stdout, stderr, end, last) = ran(start(&to, &bash("echo out; echo err >&2; exit 3")));
    assert_eq!((stdout.as_str(), stderr.as_str()), ("out\n", "err\n"));
    let status = "exit status 3";
    let expected = json!({ "exitCode": 3, "exited": true, "status": status, "error": status });
    assert_eq!((end, last), (expected, json!({})));
    let (stdout, _, end, _) = ran(start(&to, &bash("printf %s $OWN | tr a-z A-Z")));
    assert_eq!((stdout.as_str(), &end["exitCode"]), ("SANDBOX", &json!(0)));
    let words = json!({ "process": { "cmd": "echo", "args": ["a  b", "$OWN"] } });
    assert_eq!(ran(start(&to, &words)).0, "a  b $OWN\n");
    let missing = ran(start(&to, &bash("nothing-like-that")));
    assert_eq!(missing.2["exitCode"], 127);
    assert!(missing.1.contains("not found"), "{}", missing.1);
}

#[test]
fn commands_and_cells_have_the_same_files_and_folders_of_their_own() {
    let server = Server::shared();
    let to = sandbox("commands-red");
    let cell = |code: &str| {
        let lines = server.post_to(&to.0, to.1, "/execute", &json!({ "code": code })).lines();
        lines.last().unwrap()["text"].as_str().unwrap_or_default().to_owned()
    };
    cell("import os; os.chdir('/tmp'); x = 7; open('/home/user/a.txt', 'w').write('from a cell')");
    assert_eq!(
        ran(start(&to, &bash("pwd; cat a.txt; echo; cd /; MODE=x"))).0,
        "/home/user\nfrom a cell\n"
    );
    let mut there = bash("pwd; echo $MODE $HOME; printf b > b.txt; false");
    there["process"]["cwd"] = json!("/tmp");
    there["process"]["envs"] = json!({ "MODE": "y" });
    let (stdout, _, end, _) = ran(start(&to, &there));
    assert_eq!((stdout.as_str(), &end["exitCode"]), ("/tmp\ny /home/user\n", &json!(1)));
    // What it wrote stays although it failed.
    assert_eq!(
        cell("os.getcwd(), x, open('b.txt').read(), os.environ.get('MODE')"),
        "('/tmp', 7, 'b', None)"
    );
    assert_eq!(ran(start(&to, &bash("python -c 'print(1 + 1)'"))).0, "2\n");
}

#[test]
fn a_command_that_runs_is_found_followed_and_killed_by_its_owner_alone() {
    let server = Server::shared();
    let (to, other) = (sandbox("commands-red"), sandbox("commands-blue"));
    let mut message = bash(ENDLESS);
    message["tag"] = json!("server");
    let mut first = start(&to, &message);
    let pid = first.next().unwrap()["start"]["pid"].as_u64().unwrap();
    assert_eq!(first.next().unwrap()["data"]["stdout"], BASE64_STANDARD.encode("begun\n"));
    // The command goes on without its first client.
    drop(first);
    let (_, listed) = unary(&to, "List", &json!({}));
    let listed = listed["processes"].as_array().unwrap().clone();
    assert_eq!(listed.len(), 1);
    assert_eq!([&listed[0]["pid"], &listed[0]["tag"]], [&json!(pid), &json!("server")]);
    assert_eq!(listed[0]["config"]["args"][2], ENDLESS);
    // One that waits for it is there as well.
    let mut waiting = start(&to, &bash("echo later"));
    let second = waiting.next().unwrap()["start"]["pid"].as_u64().unwrap();
    assert_ne!(second, pid);

    let by_pid = |pid: u64| json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGKILL" });
    assert_eq!(unary(&other, "List", &json!({})).1, json!({ "processes": [] }));
    for message in
        [by_pid(pid), json!({ "process": { "tag": "server" }, "signal": "SIGNAL_SIGKILL" })]
    {
        let (status, refused) = unary(&other, "SendSignal", &message);
        assert_eq!((status, &refused["code"]), (404, &json!("not_found")));
    }
    let followed = server.call((&to.0, to.1), "Connect", &by_pid(pid), &[]);
    let strange = server.call((&other.0, other.1), "Connect", &by_pid(pid), &[]);
    assert_eq!(strange.last().unwrap()["last"]["error"]["code"], "not_found");

    assert_eq!(unary(&to, "SendSignal", &by_pid(pid)), (200, json!({})));
    let (stdout, _, end, last) = ran(followed);
    assert_eq!(stdout, "begun\n");
    assert_eq!((&end["exitCode"], &end["status"]), (&json!(-1), &json!("signal: killed")));
    assert_eq!(last, json!({}));
    assert_eq!(waiting.last().unwrap(), json!({ "last": {} }));
    assert_eq!(unary(&to, "SendSignal", &by_pid(pid)).0, 404);
    assert_eq!(unary(&to, "List", &json!({})).1, json!({ "processes": [] }));
}

#[test]
fn a_command_reads_what_its_owner_sends() {
    let (to, other) = (sandbox("commands-red"), sandbox("commands-blue"));
    let mut message = bash("read line; echo $line; wc -c; python -c 'print(len(input()))'");
    message["stdin"] = json!(true);
    let mut running = start(&to, &message);
    let first = running.next().unwrap();
    let pid = &first["start"]["pid"];
    let input = |bytes: &[u8]| json!({ "process": { "pid": pid }, "input": { "stdin": BASE64_STANDARD.encode(bytes) } });
    assert_eq!(unary(&other, "SendInput", &input(b"x")).0, 404);
    for (method, wrong) in [
        ("SendInput", json!({ "process": { "pid": pid }, "input": { "pty": "eA==" } })),
        ("SendInput", json!({ "process": { "pid": pid }, "input": { "stdin": "?" } })),
        ("SendInput", input(b"\xff")),
        ("SendInput", input(&vec![b'x'; 2 << 20])),
    ] {
        let (status, refused) = unary(&to, method, &wrong);
        assert!([400, 429, 501].contains(&status), "{status} {refused}");
    }
    for part in [&b"one li"[..], b"ne\nma", b"ny\n"] {
        assert_eq!(unary(&to, "SendInput", &input(part)), (200, json!({})));
    }
    let close = json!({ "process": { "pid": pid } });
    assert_eq!(unary(&to, "CloseStdin", &close), (200, json!({})));
    let (stdout, stderr, end, _) = ran(std::iter::once(first.clone()).chain(running));
    assert_eq!((stdout.as_str(), &end["exitCode"]), ("one line\n5\n", &json!(1)));
    assert!(stderr.contains("EOFError"), "{stderr}");
    assert_eq!(unary(&to, "CloseStdin", &close).0, 404);
    // What waits for input ends when it is killed.
    let waiting = start(&to, &json!({ "process": { "cmd": "cat" }, "stdin": true, "tag": "cat" }));
    let kill = json!({ "process": { "tag": "cat" }, "signal": "SIGNAL_SIGTERM" });
    assert_eq!(unary(&to, "SendSignal", &kill).0, 200);
    assert_eq!(ran(waiting).2["status"], "signal: killed");
    let mut plain = start(&to, &bash(ENDLESS));
    let pid = plain.next().unwrap()["start"]["pid"].clone();
    let sent = json!({ "process": { "pid": pid }, "input": { "stdin": "eA==" } });
    assert_eq!(unary(&to, "SendInput", &sent).1["code"], "invalid_argument");
    assert_eq!(Server::shared().delete_as(to.1, &format!("/sandboxes/{}", to.0)).status, 204);
}

#[test]
fn a_command_ends_with_its_time_or_its_sandbox() {
    let server = Server::shared();
    let to = sandbox("commands-red");
    let timed = [("connect-timeout-ms", "500")];
    let late = server.call((&to.0, to.1), "Start", &bash(ENDLESS), &timed).last().unwrap();
    assert_eq!(late["last"]["error"]["code"], "deadline_exceeded", "{late}");
    let mut running = start(&to, &bash(ENDLESS));
    running.next().unwrap();
    assert_eq!(server.delete_as(to.1, &format!("/sandboxes/{}", to.0)).status, 204);
    let gone = running.last().unwrap();
    assert_eq!(gone["last"]["error"]["code"], "unavailable", "{gone}");
    assert!(gone["last"]["error"]["message"].as_str().unwrap().contains("was not found"));
}

#[test]
fn what_commands_do_not_have_is_refused() {
    let server = Server::shared();
    let to = sandbox("commands-red");
    let refused = |message: &Value| start(&to, message).last().unwrap()["last"]["error"].clone();
    let with = |name: &str, value: Value| {
        let mut message = bash("true");
        message[name] = value;
        message
    };
    let pty = with("pty", json!({ "size": { "cols": 80, "rows": 24 } }));
    assert_eq!(refused(&pty)["code"], "unimplemented");
    let mut nowhere = bash("echo here");
    nowhere["process"]["cwd"] = json!("/nowhere");
    let (stdout, stderr, end, _) = ran(start(&to, &nowhere));
    assert_eq!((stdout.as_str(), &end["exited"]), ("", &json!(true)));
    assert!(end["exitCode"] != 0 && stderr.contains("/nowhere"), "{stderr}");
    assert_eq!(refused(&json!({ "process": 1 }))["code"], "invalid_argument");
    for method in ["StreamInput", "Update", "Nothing"] {
        let (status, refused) = unary(&to, method, &json!({}));
        assert_eq!((status, &refused["code"]), (501, &json!("unimplemented")), "{method}");
    }
    // A page of another site could send texts.
    for (method, kind) in
        [("Start", "text/plain"), ("Start", "application/json"), ("List", "text/plain")]
    {
        let path = format!("/process.Process/{method}");
        let answer = server.send(&path, bash("true").to_string(), kind, None);
        assert_eq!(answer.status, 415, "{method} {kind} {}", answer.text);
    }
}
