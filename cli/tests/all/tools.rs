//! `hatchery tool run`: JSON in and out, calls that can't be run, and sessions.

use serde_json::{Value, json};

use crate::{json_of, run, run_with_stdin, text};

fn call(arguments: &[&str], call: &Value) -> Value {
    let output = run_with_stdin(&[&["tool", "run"], arguments].concat(), &call.to_string());
    json_of(&output)
}

#[test]
fn a_call_that_can_not_be_run_has_a_result_that_says_why() {
    for (arguments, call, expected) in [
        (&[][..], "{\"code\": ", "not valid JSON"),
        (&[], "{\"cod\": \"1\"}", "no field `cod`"),
        (&[], "{\"code\": 1}", "`code` must be a string"),
        (&["--input", "missing.csv"], "{\"code\": \"1\"}", "missing.csv"),
        (&["--session", "Cargo.toml"], "{\"code\": \"1\"}", "isn't a saved session"),
    ] {
        let output = run_with_stdin(&[&["tool", "run"], arguments].concat(), call);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let result = json_of(&output);
        assert_eq!((&result["success"], &result["status"]), (&json!(false), &json!("not_run")));
        assert_eq!(result["error"]["kind"], "usage");
        let message = result["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    }
}

#[test]
fn calls_with_one_session_share_variables_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.session");
    let session = ["--session", path.to_str().unwrap()];
    let first = json!({ "code": "n = 20; open('f', 'w').write('text')" });
    assert_eq!(call(&session, &first)["success"], true);
    assert!(path.is_file());
    let second = json!({ "code": "n += k; n", "variables": { "k": 1 } });
    assert_eq!(call(&session, &second)["value"], 21);
    // A failed call runs in the session too, which continues.
    assert_eq!(call(&session, &json!({ "code": "n = 5; 1/0" }))["success"], false);
    let last = json!({ "code": "n, open('f').read()" });
    assert_eq!(call(&session, &last)["value"], json!([5, "text"]));
    assert_eq!(call(&[], &json!({ "code": "n" }))["error"]["type"], "NameError");

    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let output = run_with_stdin(&["tool", "run", session[0], session[1]], "{\"code\": \"n\"}");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("is damaged"), "{output:?}");
    let output = run_with_stdin(&["repl", session[0], session[1]], "n\n");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_tools_call_is_json_in_and_out() {
    let output = run(&["tool", "schema"]);
    assert_eq!(json_of(&output)["title"], "run_python");
    let call = json!({ "code": "n * 2", "variables": { "n": 21 }, "timeout": 20 });
    let output = run_with_stdin(&["tool", "run"], &call.to_string());
    assert_eq!(json_of(&output)["value"], 42);
    assert_eq!(output.status.code(), Some(0));
    let output = run_with_stdin(&["tool", "run"], r#"{"code": "1", "cwd": "/"}"#);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no field `cwd`"), "{output:?}");
}

#[test]
fn there_is_a_schema_of_calls_of_results_and_of_jobs() {
    let properties = |arguments: &[&str]| {
        let schema = json_of(&run(&[&["tool", "schema"], arguments].concat()));
        schema["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert!(properties(&[]).contains(&"code".to_owned()));
    assert!(properties(&["--result"]).contains(&"status".to_owned()));
    let of_jobs = properties(&["--job"]);
    for field in ["code", "file", "tenant", "priority", "deadline"] {
        assert!(of_jobs.iter().any(|listed| listed == field), "{field}: {of_jobs:?}");
    }
    assert_eq!(run(&["tool", "schema", "--job", "--result"]).status.code(), Some(2));
}
