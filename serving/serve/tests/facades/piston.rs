//! `/api/v2/execute` and `/api/v2/runtimes`.

use serde_json::{Value, json};

use crate::server::Server;

#[track_caller]
fn run(request: &Value) -> Value {
    let mut whole = json!({ "language": "python", "version": "*" });
    whole.as_object_mut().unwrap().extend(request.as_object().unwrap().clone());
    let answer = Server::shared().post("/api/v2/execute", &whole).json();
    assert_eq!(answer["language"], "python");
    answer["run"].clone()
}

#[test]
fn the_runtime_can_be_asked_for_by_its_version() {
    let runtimes = Server::shared().get("/api/v2/runtimes").json();
    let [python] = &runtimes.as_array().unwrap()[..] else { panic!("{runtimes}") };
    assert_eq!(python["language"], "python");
    let version = python["version"].as_str().unwrap();
    assert!(version.starts_with("3."), "{version}");
    let code = "import platform; print(platform.python_version())";
    let ran = run(&json!({ "version": version, "files": [{ "content": code }] }));
    assert_eq!(ran["stdout"], format!("{version}\n"));
}

#[test]
fn output_is_in_order_and_files_are_there() {
    let code = "
import sys, part
print(part.NAME if open(__file__).readline() == '\\n' else __file__, flush=True)
print('error', file=sys.stderr, flush=True)
print(sys.argv[1:], input())
print(open('raw.bin', 'rb').read(), open('hex.bin', 'rb').read())
raise ValueError('last')
";
    let ran = run(&json!({
        "files": [
            { "name": "main.py", "content": code },
            { "name": "part.py", "content": "NAME = 'part'" },
            { "name": "raw.bin", "content": "AP8=", "encoding": "base64" },
            { "name": "hex.bin", "content": "00ff", "encoding": "hex" },
        ],
        "args": ["a", "b"],
        "stdin": "line",
    }));
    let stdout = "part\n['a', 'b'] line\nb'\\x00\\xff' b'\\x00\\xff'\n";
    assert_eq!(ran["stdout"], stdout);
    let stderr = ran["stderr"].as_str().unwrap();
    assert!(stderr.starts_with("error\nTraceback") && stderr.contains("main.py"), "{stderr}");
    let output = ran["output"].as_str().unwrap();
    assert!(output.starts_with("part\nerror\n['a', 'b'] line\n"), "{output}");
    assert!(output.ends_with("ValueError: last\n"), "{output}");
    assert_eq!(
        [&ran["code"], &ran["signal"], &ran["status"]],
        [&json!(1), &Value::Null, &json!("RE")]
    );
}

#[test]
fn ends_are_those_of_a_process() {
    for (code, expected) in [
        ("print(1)", json!([0, null, null])),
        ("import sys; sys.exit(3)", json!([3, null, "RE"])),
        ("import os; os.abort()", json!([null, "SIGABRT", "SG"])),
        ("while True: pass", json!([null, "SIGKILL", "TO"])),
    ] {
        // Another load on the machine ends none of the others.
        let limit = if code.starts_with("while") { 500 } else { 600_000 };
        let ran = run(&json!({ "files": [{ "content": code }], "run_timeout": limit }));
        assert_eq!(json!([ran["code"], ran["signal"], ran["status"]]), expected, "{ran}");
    }
    let request = json!({
        "files": [{ "content": "bytearray(200 << 20)" }],
        "run_memory_limit": 100_000_000, "run_cpu_time": 2000,
    });
    assert!(run(&request)["stderr"].as_str().unwrap().contains("MemoryError"));
}

#[test]
fn requests_of_another_form_are_refused_with_a_message() {
    let server = Server::shared();
    for (request, message) in [
        (json!({}), "language is required as a string"),
        (json!({ "language": "python", "version": "2", "files": [] }), "runtime is unknown"),
        (
            json!({ "language": "python", "version": "*", "files": [{ "name": "../a", "content": "" }] }),
            "../a",
        ),
    ] {
        let answer = server.post("/api/v2/execute", &request);
        assert_eq!(answer.status, 400, "{}", answer.text);
        let said: Value = serde_json::from_str(&answer.text).unwrap();
        assert!(said["message"].as_str().unwrap().contains(message), "{said}");
    }
    assert_eq!(server.send("/api/v2/execute", "{}".to_owned(), "text/plain", None).status, 415);
    assert_eq!(
        server.send("/api/v2/execute", "{".to_owned(), "application/json", None).status,
        400
    );
}
