//! Values in options, lines and calls, and in results: exact to the last digit, or refused.

use serde_json::{Value, json};

use crate::{json_of, run, run_with_stdin, text};

/// Beyond 64 bits.
const LARGE: &str = "12345678901234567890123";
const NEXT: &str = "12345678901234567890124";

fn value_of(arguments: &[&str]) -> String {
    let output = run(&[&["run", "--json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    json_of(&output)["value"].to_string()
}

#[test]
fn whole_numbers_are_exact_both_ways() {
    let var = format!("n={LARGE}");
    assert_eq!(value_of(&["--var", &var, "-c", "n + 1"]), NEXT);
    let nested = format!("{{\"a\":[-{LARGE},18446744073709551616,1.5,-1]}}");
    assert_eq!(value_of(&["--var", &format!("n={nested}"), "-c", "n"]), nested);
    assert_eq!(value_of(&["--call", "operator:neg", "--arg", LARGE]), format!("-{LARGE}"));
    let output = run(&["run", "--var", &var, "-c", "print(n, type(n).__name__)"]);
    assert_eq!(text(&output.stdout), format!("{LARGE} int\n"));

    let call = format!("{{\"code\": \"n + 1\", \"variables\": {{\"n\": {LARGE}}}}}");
    assert_eq!(json_of(&run_with_stdin(&["tool", "run"], &call))["value"].to_string(), NEXT);

    let line = format!("{{\"id\": {LARGE}, {}", &call[1..]);
    let result = json_of(&run_with_stdin(&["batch", "-"], &line));
    assert_eq!(
        (result["id"].to_string(), result["value"].to_string()),
        (LARGE.into(), NEXT.into())
    );
    let call = format!("{{\"call\": {{\"function\": \"operator:add\", \"args\": [{LARGE}, 1]}}}}");
    let result = json_of(&run_with_stdin(&["batch", "-"], &call));
    assert_eq!(result["value"].to_string(), NEXT);
}

#[test]
fn a_number_that_can_not_be_passed_is_refused() {
    for (number, expected) in [
        ("9".repeat(4301), "the value of `n` has a whole number of 4301 digits"),
        ("1e400".to_owned(), "too large for a float"),
    ] {
        let output = run(&["run", "--var", &format!("n=[{number}]"), "-c", "n"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
        let line = format!("{{\"code\": \"n\", \"variables\": {{\"n\": {number}}}}}");
        let result = json_of(&run_with_stdin(&["batch", "-"], &line));
        let message = result["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{result}");
    }
    let longest = "9".repeat(4300);
    assert_eq!(value_of(&["--var", &format!("n={longest}"), "-c", "n"]), longest);
}

/// What Python can't write as text, and what JSON readers take for their own marks, gives a result
/// without a value, and no failure of the sandbox.
#[test]
fn values_without_json_are_no_failure() {
    for source in [
        "10 ** 5000",
        "[10 ** 5000]",
        "float('inf')",
        "import sys; sys.set_int_max_str_digits(640); 10 ** 1000",
        "{'$serde_json::private::RawValue': 'x'}",
        "{'$serde_json::private::Number': '12'}",
        "class D(dict): pass\nD({'$serde_json::private::Number': 'x'})",
    ] {
        let output = run(&["run", "--json", "-c", source]);
        let result = json_of(&output);
        assert_eq!(output.status.code(), Some(0), "{source}: {result}");
        assert_eq!((&result["status"], &result["value"]), (&"completed".into(), &Value::Null));
    }
    let source = "import sys; sys.set_int_max_str_digits(0); 10 ** 5000";
    assert_eq!(value_of(&["-c", source]), format!("1{}", "0".repeat(5000)));
    assert_eq!(value_of(&["-c", "[1e22, 1e-7, 0.1, -0.0, 2**63]"]), {
        "[1e+22,1e-7,0.1,-0.0,9223372036854775808]"
    });
}

/// A program that exits before its last line has run succeeds, but hasn't passed.
#[test]
fn only_completed_programs_have_passed() {
    for (left, success, passed) in [
        ("", true, true),
        ("import sys; sys.exit(0)", true, false),
        ("import os; os._exit(0)", true, false),
        ("raise SystemExit", true, false),
        ("1/0", false, false),
    ] {
        let source = format!("{left}\nprint('the tests')");
        let result = json_of(&run(&["run", "--json", "-c", &source]));
        let told = (result["success"].as_bool(), result["passed"].as_bool());
        assert_eq!(told, (Some(success), Some(passed)), "{result}");
    }
    let result = json_of(&run_with_stdin(&["batch", "-"], "{\"cod\": 1}"));
    assert_eq!(result["passed"], false);
}

#[test]
fn what_a_called_function_returns_is_printed() {
    for (arguments, expected) in [
        (&["math:sqrt", "--arg", "16"][..], "4.0\n"),
        (&["json:dumps", "--arg", "[1]"], "'[1]'\n"),
        (&["builtins:print", "--arg", "\"said\""], "said\n"),
    ] {
        let output = run(&[&["run", "--call"], arguments].concat());
        assert_eq!(text(&output.stdout), expected, "{output:?}");
    }
    let output = run(&["run", "--call", "os"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("`os` can't be called"), "{output:?}");
}

#[test]
fn what_a_line_says_goes_over_the_options() {
    let time = "import time; time.time()";
    let lines = [
        json!({ "code": time, "deterministic": { "seed": 1, "start": 86400 } }),
        json!({ "code": time }),
        json!({ "code": "bytearray(300 << 20)", "limits": { "memory": 256 << 20 } }),
        json!({ "code": "len(bytearray(300 << 20))", "timeout": null, "limits": null }),
        json!({ "code": "while True: pass", "limits": { "cpu_time": 0.3 } }),
        json!({ "code": "1", "limits": { "wall_time": 1 } }),
        json!({ "code": "1", "variables": { "a b": 1 } }),
    ];
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let options = ["--deterministic", "7", "--start", "100", "--ordered", "--workers", "2"];
    let output = run_with_stdin(&[&["batch", "-"], &options[..]].concat(), &lines);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let stdout = text(&output.stdout);
    let results: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let second = |index: usize| results[index]["value"].as_f64().unwrap().floor();
    assert_eq!((second(0), second(1)), (86400.0, 100.0));
    assert_eq!(results[2]["limits_met"][0]["limit"], "memory");
    assert_eq!(results[3]["value"], 300 << 20);
    assert_eq!(results[4]["error"]["limit"], "cpu");
    for (result, expected) in results[5..].iter().zip(["field `limits.wall_time`", "`a b`"]) {
        assert_eq!(result["error"]["kind"], "usage");
        assert!(result["error"]["message"].as_str().unwrap().contains(expected), "{result}");
    }
}
