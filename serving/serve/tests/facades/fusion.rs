//! `POST /run_code` and `POST /run_jupyter`.

use serde_json::{Value, json};

use crate::server::Server;

/// The answer to a Python program with more fields.
#[track_caller]
fn run(code: &str, fields: Value) -> Value {
    let mut request = json!({ "code": code, "language": "python" });
    request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let answer = Server::shared().post("/run_code", &request).json();
    assert_eq!(answer["compile_result"], Value::Null);
    assert_eq!(answer["executor_pod_name"], Value::Null);
    answer
}

/// What graders look at.
fn ending(answer: &Value) -> Value {
    let run = &answer["run_result"];
    json!([answer["status"], run["status"], run["return_code"], run["stdout"]])
}

#[test]
fn programs_end_as_graders_expect() {
    let endless = "print(1, flush=True)\nwhile True: pass";
    for (code, expected, in_stderr) in [
        ("print(input())", json!(["Success", "Finished", 0, "hello\n"]), ""),
        ("1 / 0", json!(["Failed", "Finished", 1, ""]), "ZeroDivisionError: division by zero"),
        ("def f(:", json!(["Failed", "Finished", 1, ""]), "SyntaxError"),
        ("import sys; sys.exit(3)", json!(["Failed", "Finished", 3, ""]), ""),
        ("import sys; sys.exit('no')", json!(["Failed", "Finished", 1, ""]), "no\n"),
        ("import sys; sys.exit(0)", json!(["Success", "Finished", 0, ""]), ""),
        ("import os; os._exit(4)", json!(["Failed", "Finished", 4, ""]), ""),
        ("import os; os.abort()", json!(["Failed", "Finished", 134, ""]), ""),
        (endless, json!(["Failed", "TimeLimitExceeded", null, "1\n"]), ""),
    ] {
        // Another load on the machine ends none of the others.
        let limit = if code == endless { 0.7 } else { 600.0 };
        let answer = run(code, json!({ "stdin": "hello\n", "run_timeout": limit, "unknown": [] }));
        assert_eq!(ending(&answer), expected, "{code}: {answer}");
        let stderr = answer["run_result"]["stderr"].as_str().unwrap();
        assert!(stderr.contains(in_stderr), "{code}: {stderr}");
        assert!(answer["run_result"]["execution_time"].as_f64().unwrap() < 5.0);
    }
}

#[test]
fn each_stream_has_a_limit_of_its_own() {
    let code = "import sys\nsys.stderr.write('e' * 600000)\nprint(42)";
    let answer = run(code, json!({}));
    assert_eq!(ending(&answer), json!(["Success", "Finished", 0, "42\n"]));
    assert_eq!(answer["run_result"]["stderr"].as_str().unwrap().len(), 512 << 10);
}

#[test]
fn a_program_is_a_file_and_has_its_own_input() {
    let code = "\u{feff}import os, sys\nhere = os.path.dirname(__file__)\n\
                print(__file__, sys.argv, sys.stdin.name, sys.stdin.mode, os.listdir(here))\n\
                print(open(__file__).read()[1:7], repr(open('/dev/stdin').read()))";
    let seen = "/workspace/main.py ['/workspace/main.py'] <stdin> r ['main.py']\nimport 'a\\nb'\n";
    let answer = run(code, json!({ "stdin": "a\r\nb" }));
    assert_eq!(ending(&answer), json!(["Success", "Finished", 0, seen]), "{answer}");
}

#[test]
fn memory_is_limited_and_never_raised() {
    let code = "print(len(bytearray(200 << 20)) >> 20)";
    let tight = run(code, json!({ "memory_limit_MB": 128 }));
    assert_eq!(ending(&tight), json!(["Failed", "Finished", 1, ""]));
    assert!(tight["run_result"]["stderr"].as_str().unwrap().contains("MemoryError"), "{tight}");
    for megabytes in [-1, 1024, 100_000] {
        let answer = run(code, json!({ "memory_limit_MB": megabytes }));
        assert_eq!(ending(&answer), json!(["Success", "Finished", 0, "200\n"]));
    }
    // More than the pool's own GiB isn't to be had.
    let greedy = run("bytearray(1200 << 20)", json!({ "memory_limit_MB": 100_000 }));
    assert_eq!(ending(&greedy), json!(["Failed", "Finished", 1, ""]));
}

#[test]
fn files_go_both_ways() {
    let code = "
import os, pathlib
data = pathlib.Path('in/data.bin').read_bytes()
pathlib.Path('out.bin').write_bytes(data[::-1])
os.remove('gone.txt')
raise SystemExit(5)
";
    let answer = run(
        code,
        json!({
            "files": { "./in/data.bin": "AP8=", "gone.txt": "QQ==", "null": null },
            "fetch_files": ["out.bin", "./out.bin", "in/data.bin", "gone.txt", "null", "never"],
        }),
    );
    assert_eq!(ending(&answer), json!(["Failed", "Finished", 5, ""]));
    let expected = json!({ "out.bin": "/wA=", "./out.bin": "/wA=", "in/data.bin": "AP8=" });
    assert_eq!(answer["files"], expected);
}

#[test]
fn what_can_not_be_run_is_a_sandbox_error_with_the_reason() {
    for (fields, reason) in [
        (json!({ "language": "cpp" }), "cpp"),
        (json!({ "language": "pytest" }), "no pytest"),
        (json!({ "files": { "a.bin": "Z" } }), "a.bin"),
        (json!({ "files": { "../a": "QQ==" } }), "../a"),
        (json!({ "code": "#".repeat(2 << 20) }), "source"),
    ] {
        let answer = run("def test(): pass", fields);
        assert_eq!(
            [&answer["status"], &answer["run_result"]],
            [&json!("SandboxError"), &Value::Null]
        );
        assert!(answer["message"].as_str().unwrap().contains(reason), "{answer}");
    }
}

#[test]
fn requests_of_another_form_are_refused() {
    let server = Server::shared();
    for request in [
        json!({ "code": "1" }),
        json!({ "code": 1, "language": "python" }),
        json!({ "code": "1", "language": "python", "files": [] }),
        json!([]),
    ] {
        let answer = server.post("/run_code", &request);
        assert!(answer.status == 422 && answer.text.contains("detail"), "{}", answer.text);
    }
    let program = r#"{"code": "1", "language": "python"}"#;
    assert_eq!(server.send("/run_code", program.to_owned(), "text/plain", None).status, 422);
    let deep = "[".repeat(100_000);
    assert_eq!(server.send("/run_code", deep, "application/json", None).status, 422);
    let kernel = json!({ "cells": [], "kernel": "julia" });
    assert_eq!(server.post("/run_jupyter", &kernel).status, 422);
}

#[test]
fn cells_share_a_session() {
    let request = json!({
        "cells": [
            "a = 123", "a", "print(a)\n'text'", "import sys; sys.stderr.write('said'); None",
            "raise RuntimeError('why')", "import pandas; display(pandas.DataFrame({'n': [1]}))",
            "open('out.txt', 'w').write(open('in.txt').read()); None",
        ],
        "files": { "in.txt": "QQ==" },
        "fetch_files": ["out.txt", "in.txt", "never"],
    });
    let answer = Server::shared().post("/run_jupyter", &request).json();
    assert_eq!([&answer["status"], &answer["driver"]["status"]], ["Success", "Finished"]);
    let cells = answer["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 7);
    let empty = json!({ "stdout": "", "stderr": "", "display": [], "error": [] });
    assert_eq!(cells[0], empty);
    assert_eq!(cells[1]["display"], json!([{ "text/plain": "123" }]));
    assert_eq!(cells[2]["stdout"], "123\n");
    assert_eq!(cells[2]["display"], json!([{ "text/plain": "'text'" }]));
    assert_eq!(cells[3]["stderr"], "said");
    let error = &cells[4]["error"][0];
    assert_eq!([&error["ename"], &error["evalue"]], ["RuntimeError", "why"]);
    assert!(error["traceback"].as_array().unwrap().len() > 1, "{error}");
    assert!(cells[5]["display"][0]["text/html"].as_str().unwrap().contains("<table"));
    assert_eq!(answer["files"], json!({ "out.txt": "QQ==", "in.txt": "QQ==" }));
}

#[test]
fn cells_have_what_ipython_gives_them() {
    let cells = [
        "%matplotlib inline",
        "from IPython.display import Markdown\nMarkdown('*m*')",
        "41;",
        "Out, get_ipython().__class__.__name__",
        "!echo said",
        "open('a.csv')",
    ];
    let answer = Server::shared().post("/run_jupyter", &json!({ "cells": cells })).json();
    let cells = answer["cells"].as_array().unwrap();
    assert_eq!(cells[0], json!({ "stdout": "", "stderr": "", "display": [], "error": [] }));
    assert_eq!(cells[1]["display"][0]["text/markdown"], "*m*");
    assert_eq!(cells[2]["display"], json!([]));
    let shown = cells[3]["display"][0]["text/plain"].as_str().unwrap();
    assert!(shown.contains("Markdown object") && shown.contains("ZMQInteractiveShell"), "{shown}");
    assert_eq!(cells[4]["stdout"], "said\n");
    assert!(cells[5]["error"][0]["traceback"].to_string().contains("the request's `files`"));
}

#[test]
fn cells_have_a_time_each_and_together() {
    let cells = ["x = 1", "while True: pass", "x"];
    let each = json!({ "cells": cells, "cell_timeout": 0.5 });
    let answer = Server::shared().post("/run_jupyter", &each).json();
    assert_eq!(answer["status"], "Success");
    assert_eq!(answer["cells"][1]["error"][0]["ename"], "TimeoutError");
    assert_eq!(answer["cells"][2]["display"], json!([{ "text/plain": "1" }]));

    let together = json!({ "cells": cells, "total_timeout": 0.5 });
    let answer = Server::shared().post("/run_jupyter", &together).json();
    assert_eq!([&answer["status"], &answer["driver"]["status"]], ["Failed", "TimeLimitExceeded"]);
    assert_eq!(answer["cells"].as_array().unwrap().len(), 2);
}

#[test]
fn failures_that_are_not_the_programs_ask_to_try_again() {
    let server = Server::drained();
    let answer = server.post("/run_code", &json!({ "code": "1", "language": "python" }));
    assert_eq!(answer.status, 504, "{}", answer.text);
    let answer = server.post("/run_jupyter", &json!({ "cells": ["1"] }));
    assert_eq!(answer.status, 504, "{}", answer.text);
    let files = json!([{ "content": "1" }]);
    let request = json!({ "language": "python", "version": "*", "files": files });
    let answer = server.post("/api/v2/execute", &request);
    assert_eq!((answer.status, answer.retry_after.as_deref()), (429, Some("1")), "{}", answer.text);
    let answer = server.post("/execute", &json!({ "code": "1" }));
    assert_eq!((answer.status, answer.retry_after.as_deref()), (429, Some("1")), "{}", answer.text);
}

#[test]
fn bodies_have_a_largest_size() {
    let server = Server::shared();
    // So little too large that the client has sent all of it when it is refused.
    let large = format!(r#"{{"code": "{}", "language": "python"}}"#, "#".repeat(64 << 20));
    for path in ["/run_code", "/execute", "/api/v2/execute"] {
        assert_eq!(
            server.send(path, large.clone(), "application/json", None).status,
            413,
            "{path}"
        );
    }
}
