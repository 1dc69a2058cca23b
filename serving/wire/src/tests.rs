//! The type, its checks and its schema say the same.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{Contents, Field, Intake, InvalidJob, Job, Limits, job_schema};

/// A job with every field that can stand beside `code`, and one with each of the other programs.
fn every_field() -> [Value; 5] {
    [
        json!({
            "id": [1, null], "code": "1", "variables": { "x": [1, null] }, "args": ["a"],
            "env": { "A": "b" }, "stdin": "in", "files": { "a": "1", "b": { "base64": "/w==" } },
            "timeout": 0.5, "limits": every_limit(), "deterministic": { "seed": 7, "start": 9 },
            "tenant": "t", "priority": "high", "deadline": 2.5, "python": "3.12",
            "egress": ["GET https://example.com/*"],
        }),
        json!({ "file": "a.py" }),
        json!({ "shell": "ls" }),
        json!({ "call": { "function": "a:b", "args": [1, {}], "keywords": { "k": null } } }),
        json!({ "call": { "function": "a:b", "args": [{ "$set": [1] }], "tagged": true } }),
    ]
}

fn every_limit() -> Value {
    json!({
        "cpu_time": 1.5, "grace": 0.0, "memory": 1 << 30, "output": 1, "stop_at_output_limit": true,
        "file_bytes": 2, "file_count": 3, "open_files": 4, "host_calls": u64::MAX, "source": 5,
        "result": 6, "display_bytes": 7, "display_count": 8, "threads": 9, "network_bytes": 10,
        "function_calls": 11, "functions_in_flight": 12, "function_argument_bytes": 13,
        "function_result_bytes": 14, "result_data": 15,
    })
}

fn problem(intake: Intake, job: &Value) -> String {
    intake.job(job.clone()).unwrap_err().to_string()
}

/// Whether a value is valid by the part of JSON schema that ours use. Any other word fails.
fn is_valid(value: &Value, schema: &Value) -> bool {
    let Some(words) = schema.as_object() else { return schema.as_bool().unwrap() };
    words.iter().all(|(word, rule)| match word.as_str() {
        "$schema" | "$id" | "title" | "description" => true,
        "type" => {
            let is_of = |kind: &Value| match kind.as_str().unwrap() {
                "null" => value.is_null(),
                "boolean" => value.is_boolean(),
                "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
                "number" => value.is_number(),
                "string" => value.is_string(),
                "array" => value.is_array(),
                "object" => value.is_object(),
                kind => panic!("{kind} is no type"),
            };
            rule.as_array().map_or_else(|| is_of(rule), |kinds| kinds.iter().any(is_of))
        }
        "enum" => rule.as_array().unwrap().contains(value),
        "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
        "maximum" => match (value.as_u64(), rule.as_u64()) {
            (Some(number), Some(most)) => number <= most,
            (None, Some(u64::MAX)) => value.as_f64().is_none_or(|number| number < 2f64.powi(64)),
            _ => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
        },
        "exclusiveMinimum" => value.as_f64().is_none_or(|number| number > rule.as_f64().unwrap()),
        "items" => value.as_array().is_none_or(|all| all.iter().all(|item| is_valid(item, rule))),
        "required" => value.as_object().is_none_or(|fields| {
            rule.as_array().unwrap().iter().all(|name| fields.contains_key(name.as_str().unwrap()))
        }),
        "properties" => value.as_object().is_none_or(|fields| {
            fields
                .iter()
                .all(|(name, field)| rule.get(name).is_none_or(|rule| is_valid(field, rule)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|fields| {
            let is_named =
                |name: &str| words.get("properties").is_some_and(|it| it.get(name).is_some());
            fields.iter().all(|(name, field)| is_named(name) || is_valid(field, rule))
        }),
        "anyOf" => rule.as_array().unwrap().iter().any(|rule| is_valid(value, rule)),
        "oneOf" => {
            rule.as_array().unwrap().iter().filter(|rule| is_valid(value, rule)).count() == 1
        }
        word => panic!("`{word}` isn't checked"),
    })
}

/// Jobs that are valid or not, by every intake that takes their fields.
fn cases() -> Vec<(bool, Value)> {
    let with = |field: &str, value: Value| {
        let mut job = json!({ "code": "" });
        job[field] = value;
        job
    };
    let limit = |name: &str, value: Value| with("limits", json!({ name: value }));
    let call = |call: Value| json!({ "call": call });
    let mut cases = vec![
        (false, json!([])),
        (false, json!("1")),
        (false, json!({})),
        (false, json!({ "code": null })),
        (true, json!({ "code": null, "file": "a" })),
        (true, json!({ "code": "", "file": null, "call": null })),
        (false, json!({ "code": "", "file": "" })),
        (false, json!({ "code": "", "call": { "function": "a:b" } })),
        (false, json!({ "code": 1 })),
        (false, json!({ "file": 1 })),
        (false, with("cod", json!(""))),
        (false, with("cod", Value::Null)),
        (true, with("variables", json!({}))),
        (false, with("variables", json!([]))),
        (false, with("args", json!("a"))),
        (false, with("args", json!(["a", 1]))),
        (false, with("env", json!({ "A": 1 }))),
        (false, with("env", json!({ "A": null }))),
        (false, with("stdin", json!([]))),
        (false, with("files", json!([]))),
        (false, with("files", json!({ "a": 1 }))),
        (false, with("files", json!({ "a": { "base64": 1 } }))),
        (false, with("files", json!({ "a": {} }))),
        (false, with("files", json!({ "a": { "base64": "", "mode": 1 } }))),
        (false, with("tenant", json!(1))),
        (false, with("priority", json!("urgent"))),
        (false, with("priority", json!(1))),
        (false, with("limits", json!(1))),
        (false, limit("memor", json!(1))),
        (false, limit("wall_time", json!(1))),
        (false, limit("timeout", json!(1))),
        (true, limit("grace", json!(0))),
        (false, limit("grace", json!(-1))),
        (false, limit("stop_at_output_limit", json!(1))),
        (true, limit("memory", json!(32 << 20))),
        (true, limit("memory", json!(4_u64 << 30))),
        (false, limit("memory", json!((32 << 20) - 1))),
        (false, limit("memory", json!((4_u64 << 30) + 1))),
        (false, limit("memory", json!("1GiB"))),
        (true, limit("output", json!(0))),
        (true, limit("output", json!(1e6))),
        (true, limit("output", json!(1e30))),
        (false, limit("output", json!(1.5))),
        (false, limit("output", json!(-1))),
        (false, with("deterministic", json!(7))),
        (false, with("deterministic", json!({}))),
        (false, with("deterministic", json!({ "seed": null }))),
        (false, with("deterministic", json!({ "seed": -1 }))),
        (false, with("deterministic", json!({ "seed": 1.5 }))),
        (false, with("deterministic", json!({ "seed": 1e30 }))),
        (false, with("deterministic", json!({ "seed": 1, "speed": 1 }))),
        (true, with("deterministic", json!({ "seed": u64::MAX }))),
        (true, with("deterministic", json!({ "seed": 2.0, "start": null }))),
        (false, with("deterministic", json!({ "seed": 1, "start": -1 }))),
        (true, call(json!({ "function": "a:b", "args": null, "keywords": null }))),
        (false, call(json!({ "function": 1 }))),
        (false, call(json!({ "function": null }))),
        (false, call(json!({}))),
        (false, call(json!("a:b"))),
        (false, call(json!({ "function": "a:b", "args": {} }))),
        (false, call(json!({ "function": "a:b", "keywords": [] }))),
        (false, call(json!({ "function": "a:b", "arg": 1 }))),
    ];
    for field in ["timeout", "deadline"] {
        cases.extend([0.5, 1e-12, 1e6].map(|seconds| (true, with(field, json!(seconds)))));
        cases.extend([0.0, -1.0, 1e20].map(|seconds| (false, with(field, json!(seconds)))));
        cases.push((false, with(field, json!("1s"))));
    }
    for name in limits() {
        cases.push((true, limit(&name, Value::Null)));
        cases.push((false, limit(&name, json!("1"))));
    }
    for field in Field::ALL {
        cases.push((
            true,
            with(field.name(), json!(if *field == Field::Code { Some("") } else { None })),
        ));
    }
    cases.extend(every_field().map(|job| (true, job)));
    cases
}

/// The names of all limits.
fn limits() -> Vec<String> {
    let schema = job_schema();
    schema["properties"]["limits"]["properties"].as_object().unwrap().keys().cloned().collect()
}

#[test]
fn the_schema_takes_what_the_type_takes() {
    let schema = job_schema();
    for (valid, job) in cases() {
        assert_eq!(Intake::BATCH.job(job.clone()).is_ok(), valid, "the type: {job}");
        assert_eq!(is_valid(&job, &schema), valid, "the schema: {job}");
    }
    let properties: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    let mut fields: Vec<&str> = Field::ALL.iter().map(|field| field.name()).collect();
    fields.sort_unstable();
    assert_eq!(properties, fields);
}

#[test]
fn the_schema_of_an_intake_takes_what_the_intake_takes() {
    let server = Intake::BATCH.without(Field::File).without(Field::Limits).lowering_only();
    for intake in [Intake::TOOL, server, Intake::BATCH.without(Field::Call)] {
        let (schema, plain) = (intake.schema(), intake.plain_schema());
        for (_, job) in cases() {
            let is_taken = intake.job(job.clone()).is_ok();
            let has_null = |fields: &Map<String, Value>| fields.values().any(Value::is_null);
            let is_odd = job.as_object().is_some_and(has_null);
            // A field that isn't taken may be null, which its schema doesn't say.
            if !is_odd {
                assert_eq!(is_valid(&job, &schema), is_taken, "{job} {schema:#}");
            }
            assert!(is_taken || !is_valid(&job, &plain), "{job}");
        }
    }
    assert!(!Intake::TOOL.plain_schema().to_string().contains("null"));
}

#[test]
fn every_field_says_what_it_is_and_in_which_unit() {
    let schema = job_schema();
    for (name, field) in schema["properties"].as_object().unwrap() {
        assert!(field["description"].as_str().is_some_and(|text| text.ends_with('.')), "{name}");
    }
    for (name, limit) in schema["properties"]["limits"]["properties"].as_object().unwrap() {
        let description = limit["description"].as_str().unwrap();
        let units = ["Bytes", "Seconds", "Number", "Whether"];
        assert!(units.iter().any(|unit| description.starts_with(unit)), "{name}: {description}");
    }
}

#[test]
fn a_field_that_is_not_taken_is_refused_with_the_reason() {
    let whole = every_field();
    for &field in Field::ALL {
        let job = whole.iter().find(|job| job.get(field.name()).is_some()).unwrap();
        let intake = Intake::BATCH.without(field);
        let refusal = problem(intake, job);
        let start = format!("`{field}` can't be used here: ");
        assert!(refusal.strip_prefix(&start).is_some_and(|why| why.len() > 20), "{refusal}");
        // Also one that was read elsewhere.
        let job = Intake::BATCH.job(job.clone()).unwrap();
        assert_eq!(intake.check(&job).unwrap_err().to_string(), refusal);
        assert!(Intake::BATCH.check(&job).is_ok());
    }
    let taken: Vec<&str> = Intake::TOOL.fields().map(Field::name).collect();
    assert_eq!(taken, ["code", "variables", "args", "env", "stdin", "files", "timeout"]);
    assert!(Intake::TOOL.lowers_only() && !Intake::BATCH.lowers_only());
}

#[test]
fn a_field_that_is_there_twice_is_refused() {
    for (text, expected) in [
        (r#"{ "code": "1", "code": "2" }"#, "`code` occurs twice"),
        (r#"{ "code": "1", "cod\u0065": "2" }"#, "`code` occurs twice"),
        (r#" [{ "code": "1" }]"#, "a job is a JSON object"),
        ("", "this is not valid JSON"),
    ] {
        let error = Intake::TOOL.parse(text.as_bytes()).unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let shown = format!("{error}: {}", cause.unwrap_or_default());
        assert!(shown.contains(expected), "{shown}");
    }
}

#[test]
fn an_unknown_field_is_named_with_those_that_are_known() {
    let job = json!({ "args": 5, "code": "", "cod": null });
    assert_eq!(
        problem(Intake::TOOL, &job),
        "there is no field `cod`; use code, variables, args, env, stdin, files, timeout"
    );
    let all = problem(Intake::BATCH, &job);
    assert!(Field::ALL.iter().all(|field| all.contains(field.name())), "{all}");
    let limits = json!({ "code": "", "limits": { "wall_time": 1 } });
    let nested = problem(Intake::BATCH, &limits);
    assert!(nested.starts_with("there is no field `limits.wall_time`; use cpu_time"), "{nested}");
    let long = json!({ "x".repeat(1 << 20): 1 });
    assert!(problem(Intake::BATCH, &long).len() < 300);
}

#[test]
fn errors_show_what_was_found_if_it_is_short() {
    for (job, expected) in [
        (json!({ "code": 1 }), "`code` must be a string, not 1"),
        (json!({ "code": ["x"] }), "`code` must be a string, not an array"),
        (
            json!({ "code": "", "args": ["a".repeat(1 << 20), { "b": 1 }] }),
            "`args` must be an array of strings, not one with an object",
        ),
        (
            json!({ "code": "", "timeout": "1".repeat(1 << 20) }),
            "`timeout` must be a number of seconds, such as 1.5, not a long string",
        ),
        (
            json!({ "code": "", "timeout": 1e9 }),
            "`timeout` is 1000000000; give seconds above 0, at most 86400",
        ),
        (json!({}), "give the program as `code`"),
    ] {
        assert_eq!(problem(Intake::TOOL, &job), expected);
    }
    for (job, expected) in [
        (json!({}), "give the program as `code`, `file`, `shell` or `call`"),
        (json!({ "code": "", "file": "" }), "give only one of `code` and `file`"),
        (
            json!({ "code": "", "limits": { "memory": 1 } }),
            "`limits.memory` is 1; give bytes from 33554432 (32 MiB) to 4294967296 (4 GiB)",
        ),
        (
            json!({ "code": "", "limits": { "output": "1MiB" } }),
            "`limits.output` must be a whole number of bytes, not \"1MiB\"",
        ),
        (
            json!({ "code": "", "limits": { "grace": -1 } }),
            "`limits.grace` is -1; give seconds from 0",
        ),
        (json!({ "code": "", "timeout": -1 }), "`timeout` is -1; give seconds above 0"),
        (json!({ "code": "", "timeout": 1e20 }), "`timeout` is 1e20; give fewer seconds"),
        (
            json!({ "code": "", "deterministic": {} }),
            "`deterministic.seed` must be a whole number from 0 to 18446744073709551615, not null",
        ),
    ] {
        assert_eq!(problem(Intake::BATCH, &job), expected);
    }
    let server = Intake::BATCH.without(Field::File);
    assert_eq!(problem(server, &json!({})), "give the program as `code`, `shell` or `call`");
}

#[test]
fn text_that_is_no_json_has_its_cause() {
    let error = Intake::BATCH.parse(b"{").unwrap_err();
    assert!(matches!(error, InvalidJob::Json(_)));
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.starts_with("EOF"), "{cause}");
    assert!(Intake::BATCH.parse(b"{\"code\": \"\xff\"}").is_err());
}

#[test]
fn a_job_that_is_written_is_read_again() {
    for json in every_field() {
        let job: Job = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&job).unwrap(), json);
    }
    let invalid = serde_json::from_str::<Job>("{\"cod\": 1}").unwrap_err().to_string();
    assert!(invalid.starts_with("there is no field `cod`"), "{invalid}");
    assert_eq!(serde_json::to_string(&Job::file("a")).unwrap(), "{\"file\":\"a\"}");
    let call = serde_json::to_string(&Job::call("a:b", vec![])).unwrap();
    assert_eq!(call, "{\"call\":{\"function\":\"a:b\"}}");
}

/// Any JSON, often with the names and values of fields.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::sample::select(vec!["", "high", "a:b", "/w==", "Zg="]).prop_map(Value::from),
        prop::sample::select(vec![0_u64, 1, 32 << 20, 1 << 40, u64::MAX]).prop_map(Value::from),
    ];
    let nested = ["function", "keywords", "seed", "start", "base64"];
    let fields = Field::ALL.iter().map(|field| field.name());
    let names: Vec<String> = fields.chain(nested).map(str::to_owned).chain(limits()).collect();
    leaf.prop_recursive(4, 64, 8, move |inner| {
        let name = prop_oneof![
            4 => prop::sample::select(names.clone()),
            1 => any::<String>(),
        ];
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            3 => prop::collection::btree_map(name, inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_job() -> impl Strategy<Value = Job> {
    let time = || prop::option::of((1_u64..1 << 50).prop_map(Duration::from_nanos));
    let inputs = (
        any::<String>(),
        any::<Vec<String>>(),
        prop::collection::btree_map(any::<String>(), any_json(), 0..3),
        prop::collection::btree_map(any::<String>(), any::<Vec<u8>>(), 0..3),
        prop::option::of(any_json().prop_filter("null is not given", |id| !id.is_null())),
    );
    let limits = (time(), prop::option::of(any::<u64>()), prop::option::of(any::<bool>()));
    (inputs, time(), time(), limits, any::<u64>()).prop_map(
        |((code, args, variables, files, id), timeout, deadline, limits, seed)| Job {
            id,
            args,
            variables,
            files: files.into_iter().map(|(path, it)| (path, Contents::Bytes(it))).collect(),
            timeout,
            deadline,
            limits: Some(Limits {
                cpu_time: limits.0,
                host_calls: limits.1,
                stop_at_output_limit: limits.2,
                ..Limits::default()
            }),
            deterministic: Some(crate::Deterministic { seed, start: None }),
            ..Job::code(code)
        },
    )
}

proptest! {
    #[test]
    fn no_json_makes_it_panic_and_the_schema_agrees(value in any_json()) {
        for intake in [Intake::BATCH, Intake::TOOL] {
            let read = intake.job(value.clone());
            if let Ok(job) = &read {
                prop_assert!(intake.check(job).is_ok());
                prop_assert!(is_valid(&value, &Intake::BATCH.schema()), "{value}");
            }
            let error = read.map_or_else(|error| error.to_string(), |_| String::new());
            prop_assert!(error.len() < 1000);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<Vec<u8>>()) {
        prop_assert!(Intake::BATCH.parse(&text).is_err());
    }

    #[test]
    fn any_job_is_read_as_it_was_written(job in any_job()) {
        let text = serde_json::to_vec(&job).unwrap();
        prop_assert!(is_valid(&serde_json::from_slice(&text).unwrap(), &job_schema()));
        prop_assert_eq!(Intake::BATCH.parse(&text).unwrap(), job);
    }
}
