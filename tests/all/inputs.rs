//! What a job is given and what it returns: variables, arrays, calls, scripts, directories.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::fs;
use std::time::Duration;

use hatchery::tool;
use hatchery::value::{Column, Frame, Tagged};
use hatchery::wire::{Problem, ProblemKind};
use hatchery::{
    Array, Call, Error, Job, LimitKind, Limits, Outcome, SandboxFailure, Value, Verdict,
};
use serde_json::{Value as Json, json};

use crate::support::{calm, exception, run_job, value, with_pool, with_preloaded_pool};

fn run_preloaded(job: Job) -> Outcome {
    with_preloaded_pool(|pool| async { pool.run(job).await.unwrap() })
}

#[track_caller]
fn data(outcome: &Outcome) -> Value {
    match &outcome.verdict {
        Verdict::Completed { data: Some(data), .. } => data.clone(),
        verdict => panic!("{verdict:?}\n{}", outcome.stderr_text()),
    }
}

#[test]
fn variables_have_the_expected_python_types() {
    let given = json!({"a": [1, -2.5, null, true], "ä": "\u{1f600}", "big": u64::MAX});
    let job = Job::code("[x, type(b).__name__, list(b), n + 1, s]")
        .variable("x", given.clone())
        .variable("b", vec![0, 255])
        .variable("n", 41)
        .variable("s", "text");
    assert_eq!(value(&run_job(job)), json!([given, "bytes", [0, 255], 42, "text"]));
}

#[test]
fn invalid_variable_names_are_refused() {
    with_pool(|pool| async {
        for name in ["", "a b", "1a", "for", "a.b"] {
            let refused = pool.run(Job::code("1").variable(name, 1)).await;
            assert!(matches!(refused, Err(Error::Program(_))), "{name}");
        }
        let refused = pool.run(Job::from(Call::new("json.dumps"))).await;
        assert!(matches!(refused, Err(Error::Program(_))));
    });
}

#[test]
fn variables_stay_in_a_session_and_go_after_a_job() {
    with_pool(|pool| async {
        let session = pool.session("variables").await.unwrap();
        session.run(Job::code("").variable("x", 1)).await.unwrap();
        assert_eq!(value(&session.run(Job::code("x")).await.unwrap()), 1);
        pool.run(Job::code("x").variable("x", 1)).await.unwrap();
        let outcome = pool.run(Job::code("x")).await.unwrap();
        assert_eq!(exception(&outcome).type_name, "NameError");
    });
}

#[test]
fn arrays_and_frames_go_in_and_out_byte_by_byte() {
    let numbers = [1.5, -0.0, f64::INFINITY, 1e-300];
    let square = Array::from_slice(&numbers).reshape([2, 2]).unwrap();
    let outcome = run_preloaded(Job::code("a[0, 0] += 1\na.T").variable("a", square));
    let expected = Array::from_slice(&[2.5, f64::INFINITY, -0.0, 1e-300]).reshape([2, 2]);
    assert_eq!(data(&outcome), Value::Array(expected.unwrap()));

    let texts: Column = [Some("ä"), None, Some("")].into_iter().collect();
    let frame = Frame::new([
        ("t", texts.clone()),
        ("n", Array::from_slice(&[1_i64, 2, 3]).into()),
        ("d", Array::new("<M8[ns]", [3], [0; 24]).unwrap().into()),
    ]);
    let index = Array::from_slice(&[7_i64, 8, 9]).into();
    let frame = frame.unwrap().with_index(Some("i".to_owned()), index).unwrap();
    let source = "f['n'] *= 2\nassert f.d.iloc[0].year == 1970 and f.t.isna().sum() == 1\nf";
    let Value::Frame(frame) = data(&run_preloaded(Job::code(source).variable("f", frame))) else {
        panic!("that is a frame");
    };
    assert_eq!(frame.column("t"), Some(&texts));
    assert_eq!(frame.column("n").unwrap().to_vec::<i64>(), Some(vec![2, 4, 6]));
    assert_eq!(frame.index().unwrap().to_vec::<i64>(), Some(vec![7, 8, 9]));
    assert_eq!(frame.index_name(), Some("i"));
}

#[test]
fn values_without_a_raw_form_have_no_data() {
    for (source, why) in [
        ("import numpy; numpy.array([object()])", Some("its part `[0]` is of the type object")),
        ("import pandas; pandas.DataFrame({'a': [print]})", Some("`['a'][0]`")),
        ("object()", Some("it is of the type object, which can't be passed")),
        ("[1]", None),
    ] {
        let outcome = run_preloaded(Job::code(source));
        let Verdict::Completed { data, repr, missing, .. } = &outcome.verdict else {
            panic!("{outcome:?}")
        };
        assert_eq!((data, repr.is_some()), (&None, true), "{source}");
        let is_told = why.map(|why| missing.as_ref().is_some_and(|text| text.contains(why)));
        assert_eq!(is_told, missing.as_ref().map(|_| true), "{source}: {missing:?}");
        assert_eq!(outcome.to_tool_json()["value_missing"].as_str(), missing.as_deref());
    }
    assert_eq!(data(&run_job(Job::code("b'\\x00\\xff'"))), Value::Bytes(vec![0, 255]));
}

#[test]
fn what_json_cannot_hold_goes_in_and_out_in_the_tagged_form() {
    let tree = r#"{"$dict": [[1, {"$bytes": 0}], [{"$tuple": [2]}, {"$float": "nan"}]]}"#;
    let given = Value::Tagged(Tagged::new(tree, vec![b"raw".to_vec()]));
    let source = "assert x[1] == b'raw' and x[2,] != x[2,]\nx";
    let outcome = run_job(Job::code(source).variable("x", given.clone()));
    assert_eq!(data(&outcome), given);
    let Verdict::Completed { value: None, missing: Some(missing), .. } = &outcome.verdict else {
        panic!("{outcome:?}")
    };
    assert!(missing.contains("it is a dict"), "{missing}");
    // JSON has what there is of these, so nothing is missing.
    let outcome = run_job(Job::code("(1, [2])"));
    assert_eq!(value(&outcome), json!([1, [2]]));
    assert!(matches!(&outcome.verdict, Verdict::Completed { missing: None, .. }));
    let tree = r#"{"$tuple": [1, [2]]}"#;
    assert_eq!(data(&outcome), Value::Tagged(Tagged::new(tree, Vec::new())));
    let wrong = Value::Tagged(Tagged::new(r#"{"$nothing": 1}"#, Vec::new()));
    let outcome = run_job(Job::code("x").variable("x", wrong));
    assert!(exception(&outcome).message.contains("no tag `$nothing`"));
}

#[test]
fn data_that_is_too_large_is_left_out_and_reported() {
    let limits = Limits { result_data_bytes: 1000, ..calm() };
    let outcome = run_job(Job::code("bytes(1001)").limits(limits.clone()));
    assert!(matches!(&outcome.verdict, Verdict::Completed { data: None, repr: Some(_), .. }));
    let [hit] = outcome.limits_met[..] else { panic!("{outcome:?}") };
    assert_eq!((hit.limit, hit.allowed, hit.used), (LimitKind::ResultData, 1000, 1001));
    let outcome = run_job(Job::code("bytes(1000)").limits(limits));
    assert_eq!((data(&outcome), outcome.limits_met.len()), (Value::Bytes(vec![0; 1000]), 0));
    let outcome = run_job(Job::code("bytes(32 << 20)"));
    assert_eq!(data(&outcome).bytes(), 32 << 20);
}

#[test]
fn functions_are_called_in_their_modules() {
    let job = Job::from(Call::new("json:dumps").arg(json!([1])).keyword("indent", 1));
    assert_eq!(value(&run_job(job)), "[\n 1\n]");
    let module = "async def later(x):\n    return x * 2\nclass A:\n    f = staticmethod(len)";
    let job = |target| Job::call(target, ["ab"]).input("helper.py", module).unwrap();
    assert_eq!(value(&run_job(job("helper:A.f"))), 2);
    assert_eq!(value(&run_job(job("helper:later"))), "abab");
    assert_eq!(exception(&run_job(job("helper:g"))).type_name, "AttributeError");
    assert_eq!(exception(&run_job(job("helpers:f"))).type_name, "ModuleNotFoundError");
    let job = Job::call("numpy:sum", [Array::from_slice(&[1.0, 2.0])]);
    assert_eq!(data(&run_preloaded(job)), Value::Array(scalar(3.0)));
    with_pool(|pool| async {
        let session = pool.session("calls").await.unwrap();
        session.run(Job::code("def double(x):\n    return 2 * x")).await.unwrap();
        let outcome = session.run(Job::call("__main__:double", [21])).await.unwrap();
        assert_eq!(value(&outcome), 42);
    });
}

fn scalar(value: f64) -> Array {
    Array::from_slice(&[value]).reshape([]).unwrap()
}

#[test]
fn an_expression_job_takes_only_an_expression() {
    assert_eq!(value(&run_job(Job::expression(" x + 1\n").variable("x", 1))), 2);
    for source in ["x = 1", "1; 2", "import sys", ""] {
        let outcome = run_job(Job::expression(source));
        assert_eq!(exception(&outcome).type_name, "SyntaxError", "{source}");
    }
}

#[test]
fn programs_can_await_at_top_level() {
    let source = "import asyncio\n\
                  async def work(n):\n    await asyncio.sleep(0)\n    return n\n\
                  task = asyncio.create_task(work(1))\n\
                  [await task, await work(2)]";
    assert_eq!(value(&run_job(Job::code(source))), json!([1, 2]));
    assert_eq!(value(&run_job(Job::expression("await __import__('asyncio').sleep(0, 3)"))), 3);
}

#[test]
fn a_script_can_import_from_its_folder_and_read_nothing_else_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("package")).unwrap();
    fs::write(path("beside.py"), "x = 1").unwrap();
    fs::write(path("package/inner.py"), "y = 2").unwrap();
    fs::write(path("secret.txt"), "s").unwrap();
    let source = "import beside, os, package.inner, sys\n\
                  [beside.x, package.inner.y, __file__, sys.path[0], os.getcwd(),\n \
                  open(__file__).read(6), os.path.exists('/script/secret.txt'), sys.argv[0]]";
    fs::write(path("main.py"), source).unwrap();
    let main = path("main.py");
    let argument = main.to_str().unwrap();
    let expected =
        json!([1, 2, "/script/main.py", "/script", "/workspace", "import", false, argument]);
    assert_eq!(value(&run_job(Job::file(&main).unwrap())), expected);
    let outcome = run_job(Job::file(&main).unwrap().alone());
    let exception = exception(&outcome);
    assert_eq!(exception.type_name, "ModuleNotFoundError");
    assert!(exception.traceback.contains(argument), "{}", exception.traceback);
    let outcome = run_job(Job::code("import os; os.path.exists('/script')"));
    assert_eq!(value(&outcome), false);
}

#[test]
fn a_working_directory_is_made_where_programs_can_write() {
    let here = |path: &str| Job::code("import os; os.getcwd()").workdir(path).unwrap();
    for (path, expected) in
        [("a/b", "/workspace/a/b"), ("/tmp/x", "/tmp/x"), ("/usr/local", "/usr/local")]
    {
        let outcome = run_job(here(path));
        assert_eq!((value(&outcome), outcome.files.len()), (json!(expected), 0));
    }
    assert_eq!(value(&run_job(Job::code("import os; os.getcwd()"))), "/workspace");
    let outcome = run_job(here("/nothing/there"));
    let Verdict::SandboxFailed(SandboxFailure::Workspace { path, .. }) = &outcome.verdict else {
        panic!("{outcome:?}")
    };
    assert_eq!(path, "/nothing/there");
    for path in ["", "../x", "a//b", "/"] {
        assert!(matches!(Job::code("1").workdir(path), Err(Error::Path(_))), "{path}");
    }
    with_pool(|pool| async {
        let session = pool.session("workdir").await.unwrap();
        session.run(here("a").read_only()).await.unwrap();
        let outcome = session.run(Job::code("import os; os.getcwd()")).await.unwrap();
        assert_eq!(value(&outcome), "/workspace/a");
    });
}

#[test]
fn the_last_expression_is_the_value_however_it_is_written() {
    for (source, expected) in [
        ("x = 1\nx", json!(1)),
        ("'doc'", json!("doc")),
        ("f = lambda *a, **k: len(k)\nf(\na = 1)", json!(1)),
        ("f = lambda *a, **k: len(k)\nf(\na = \")\", b = \"(\" )", json!(2)),
        ("x = 5\nx + \\\n1", json!(6)),
        ("'''a\nb'''", json!("a\nb")),
        ("1; 2", json!(2)),
        ("{\n'a': 1}", json!({"a": 1})),
        ("from __future__ import annotations\n7", json!(7)),
    ] {
        assert_eq!(value(&run_job(Job::code(source))), expected, "{source}");
    }
    for source in ["x = 1", "if True:\n    1", "x = '''\n1'''", "for x in ():\n    x", "", "# 1"] {
        let outcome = run_job(Job::code(source));
        assert!(matches!(outcome.verdict, Verdict::Completed { value: None, repr: None, .. }));
    }
}

#[test]
fn a_tool_call_runs_and_its_result_matches_the_schema() {
    let schema = tool::result_schema();
    for (call, success) in [
        (json!({"code": "n * 2", "variables": {"n": 21}}), true),
        (json!({"code": "open('a').read()", "files": {"a": "text"}}), true),
        (
            json!({"code": "import sys; sys.stdin.read(), sys.argv", "stdin": "i", "args": ["a"]}),
            true,
        ),
        (
            json!({"code": "import os; open('b', 'w').write(os.environ['E'])", "env": {"E": "e"}}),
            true,
        ),
        (json!({"code": "1/0"}), false),
        (json!({"code": "import sys; sys.exit('why')"}), false),
        (json!({"code": "while True: pass", "timeout": 0.5}), false),
        (json!({"code": "bytearray(2 << 30)"}), false),
    ] {
        let result = run_job(Job::from_tool_call(&call).unwrap()).to_tool_json();
        assert_eq!(result["success"], success, "{call} {result}");
        check(&result, &schema, "result");
    }
    let call = json!({
        "code": "open('b', 'wb').write(open('a', 'rb').read() * 2)",
        "files": {"a": {"base64": "/w=="}},
    });
    let result = run_job(Job::from_tool_call(&call).unwrap()).to_tool_json_with_files();
    assert_eq!(result["files"][0]["path"], "b");
    assert_eq!(result["files"][0]["data"], "//8=");
    check(&result, &schema, "result");
    let refused = Outcome::not_run(Verdict::SandboxFailed(SandboxFailure::NotDeterministic));
    check(&refused.to_tool_json(), &schema, "result");
    check(&Outcome::not_run(Verdict::Cancelled).to_tool_json(), &schema, "result");
    for kind in [ProblemKind::Usage, ProblemKind::Refused, ProblemKind::Sandbox] {
        check(&tool::refusal(&Problem::new(kind, "why")), &schema, "result");
    }
    let long = json!({"code": "while True: pass", "timeout": 3600});
    let limits = Limits { wall_time: Duration::from_millis(500), ..calm() };
    let outcome = run_job(Job::from_tool_call(&long).unwrap().limits(limits));
    assert!(outcome.is_timeout());
}

/// Checks a value against the part of JSON schema that ours use. An object has only the fields that
/// its schema names.
fn check(value: &Json, schema: &Json, at: &str) {
    let is_of = |kind: &str| match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        kind => panic!("{kind} is no type"),
    };
    match &schema["type"] {
        Json::Null => {}
        Json::String(kind) => assert!(is_of(kind), "{at}: {value} is no {kind}"),
        kinds => {
            let mut kinds = kinds.as_array().unwrap().iter();
            assert!(kinds.any(|kind| is_of(kind.as_str().unwrap())), "{at}: {value}");
        }
    }
    if let Some(allowed) = schema["enum"].as_array() {
        assert!(allowed.contains(value), "{at}: {value}");
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(item, &schema["items"], &format!("{at}[{index}]"));
    }
    let Some(fields) = value.as_object() else { return };
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(fields.contains_key(name.as_str().unwrap()), "{at} has no {name}");
    }
    let Some(properties) = schema["properties"].as_object() else { return };
    let is_open = at.ends_with(".error");
    for (name, field) in fields {
        let known = properties.get(name);
        assert!(is_open || known.is_some(), "{at}.{name} isn't in the schema");
        if let Some(known) = known {
            check(field, known, &format!("{at}.{name}"));
        }
    }
}
