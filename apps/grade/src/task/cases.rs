//! The cases of data sets: a program's input and expected output, or arguments and the expected
//! result. Each data set is read by its own rules.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::forms::from_text;
use super::{Case, Checker, Suite};
use crate::error::InvalidLine;

type Object = Map<String, Value>;

/// The most bytes of a task's cases once they are decompressed.
const MOST_BYTES: u64 = 1 << 30;

/// What LiveCodeBench imports for each program.
const LIVE_CODE_BENCH: &str = "from string import *; from re import *; from datetime import *; \
    from collections import *; from heapq import *; from bisect import *; from copy import *; \
    from math import *; from random import *; from statistics import *; from itertools import *; \
    from functools import *; from operator import *; from io import *; from sys import *; \
    from json import *; from builtins import *; from typing import *; import bisect, collections, \
    copy, datetime, functools, heapq, io, itertools, json, math, operator, random, re, statistics, \
    string, sys; sys.setrecursionlimit(50000)\n";

/// What APPS imports for each program, but NumPy.
const APPS: &str = "import collections, fractions, functools, heapq, itertools, math, random, sys, time; \
    from itertools import accumulate, combinations, permutations, product; \
    from collections import ChainMap, Counter, OrderedDict, defaultdict, deque; \
    from functools import lru_cache; from heapq import *; from typing import List, Tuple; \
    from math import ceil, cos, exp, fabs, floor, gcd, log, log2, sin, sqrt, tan\n";

/// What `input_output` has. The keys of objects keep their order.
#[derive(Deserialize)]
struct InputOutput {
    inputs: Vec<Box<RawValue>>,
    outputs: Vec<Box<RawValue>>,
    fn_name: Option<String>,
}

/// What the cases of a line say.
pub(super) struct Cases {
    pub(super) suite: Suite,
    /// The function that is asked for, if one is.
    pub(super) function: Option<String>,
    pub(super) prelude: &'static str,
}

/// Reads the cases of a line.
pub(super) fn read(object: &Object) -> Result<Cases, InvalidLine> {
    if object.contains_key("public_test_cases") {
        return live_code_bench(object);
    }
    if object.contains_key("public_tests") {
        return code_contests(object);
    }
    apps(object)
}

/// Reads `input_output` of APPS and TACO: an object, or one as text. With a `fn_name` each input is a list
/// of arguments, or, as LiveCodeBench writes it, a text with a line of JSON for each.
fn apps(object: &Object) -> Result<Cases, InvalidLine> {
    let wrong = || {
        let form = "an object with `inputs` and `outputs`, two lists of the same length, not empty";
        InvalidLine::Field("input_output", form)
    };
    let given: InputOutput = object.get("input_output").and_then(from_text).ok_or_else(wrong)?;
    if given.inputs.is_empty() || given.inputs.len() != given.outputs.len() {
        return Err(wrong());
    }
    let named = || object.get("fn_name")?.as_str().map(str::to_owned);
    let Some(function) = given.fn_name.or_else(named) else {
        let pairs = given.inputs.iter().zip(&given.outputs);
        let cases =
            pairs.map(|(stdin, stdout)| Case { stdin: of_lines(stdin), stdout: of_lines(stdout) });
        let suite = Suite::Stdio { cases: cases.collect(), checker: Checker::Apps };
        return Ok(Cases { suite, function: None, prelude: APPS });
    };
    let all =
        |list: &[Box<RawValue>], first: char| list.iter().all(|it| it.get().starts_with(first));
    if all(&given.inputs, '"') && all(&given.outputs, '"') {
        let texts = |list: &[Box<RawValue>]| list.iter().map(|text| of_lines(text)).collect();
        let (inputs, outputs): (Vec<_>, Vec<_>) = (texts(&given.inputs), texts(&given.outputs));
        let pairs = inputs.iter().zip(&outputs);
        let suite = of_texts(pairs).ok_or(InvalidLine::Field(
            "input_output",
            "made of strings with a line of JSON for each argument",
        ))?;
        return Ok(Cases { suite, function: Some(function), prelude: LIVE_CODE_BENCH });
    }
    if !all(&given.inputs, '[') {
        return Err(InvalidLine::Field("inputs", "a list with a list of arguments for each case"));
    }
    let texts = |list: Vec<Box<RawValue>>| list.iter().map(|raw| raw.get().to_owned()).collect();
    let (inputs, outputs) = (texts(given.inputs), texts(given.outputs));
    let suite = Suite::Pairs { inputs, outputs, is_apps: true };
    Ok(Cases { suite, function: Some(function), prelude: APPS })
}

/// Returns the first of the solutions that APPS and TACO have, which are a list or one as text.
pub(super) fn first_solution(object: &Object) -> Option<String> {
    let solutions = object.get("solutions").and_then(parsed)?;
    solutions.as_array()?.first()?.as_str().map(str::to_owned)
}

/// Reads `public_test_cases`, `private_test_cases` and `metadata` of LiveCodeBench.
fn live_code_bench(object: &Object) -> Result<Cases, InvalidLine> {
    let mut cases = Vec::new();
    for name in ["public_test_cases", "private_test_cases"] {
        let wrong = || InvalidLine::Field(name, "a list of cases with `input` and `output`");
        let list = match object.get(name) {
            None | Some(Value::Null) => continue,
            Some(value) => parsed(value).or_else(|| unpacked(value.as_str()?)).ok_or_else(wrong)?,
        };
        for case in list.as_array().ok_or_else(wrong)? {
            let text = |name: &str| Some(case.get(name)?.as_str()?.to_owned());
            let (stdin, stdout) = text("input").zip(text("output")).ok_or_else(wrong)?;
            let is_call = text("testtype").is_some_and(|kind| kind == "functional");
            cases.push((is_call, Case { stdin, stdout }));
        }
    }
    if cases.is_empty() {
        return Err(InvalidLine::Field("public_test_cases", "a list that has cases"));
    }
    if !cases.iter().any(|(is_call, _)| *is_call) {
        let cases = cases.into_iter().map(|(_, case)| case).collect();
        let suite = Suite::Stdio { cases, checker: Checker::Lines };
        return Ok(Cases { suite, function: None, prelude: LIVE_CODE_BENCH });
    }
    let metadata = object.get("metadata").and_then(parsed);
    let function = metadata.as_ref().and_then(|metadata| metadata.get("func_name")?.as_str());
    let function = function.ok_or(InvalidLine::Field("metadata", "an object with `func_name`"))?;
    let pairs = cases.iter().map(|(_, case)| (&case.stdin, &case.stdout));
    let suite = of_texts(pairs).ok_or(InvalidLine::Field(
        "public_test_cases",
        "made of inputs with a line of JSON for each argument, and of outputs that are JSON",
    ))?;
    Ok(Cases { suite, function: Some(function.to_owned()), prelude: LIVE_CODE_BENCH })
}

/// Reads `public_tests`, `private_tests` and `generated_tests` of CodeContests.
fn code_contests(object: &Object) -> Result<Cases, InvalidLine> {
    let mut cases = Vec::new();
    for name in ["public_tests", "private_tests", "generated_tests"] {
        let Some(given) = object.get(name).and_then(parsed) else { continue };
        let list = |part: &str| given.get(part)?.as_array().cloned();
        let wrong = InvalidLine::Field(
            name,
            "an object with `input` and `output`, two lists of the same length",
        );
        match list("input").zip(list("output")) {
            Some((inputs, outputs)) if inputs.len() == outputs.len() => {
                let pairs = inputs.iter().zip(&outputs);
                cases.extend(
                    pairs.map(|(one, other)| Case { stdin: text(one), stdout: text(other) }),
                );
            }
            _ => return Err(wrong),
        }
    }
    if cases.is_empty() {
        return Err(InvalidLine::Field("public_tests", "an object that has cases"));
    }
    let suite = Suite::Stdio { cases, checker: Checker::Tokens };
    Ok(Cases { suite, function: None, prelude: "" })
}

/// Returns the pairs of texts that have a line of JSON for each argument, and one of what to return.
fn of_texts<'text>(pairs: impl Iterator<Item = (&'text String, &'text String)>) -> Option<Suite> {
    let is_json = |text: &&str| serde_json::from_str::<IgnoredAny>(text).is_ok();
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for (input, output) in pairs {
        let lines: Vec<&str> = input.trim_end().lines().collect();
        if !lines.iter().all(is_json) || !is_json(&output.as_str()) {
            return None;
        }
        inputs.push(format!("[{}]", lines.join(",")));
        outputs.push(output.clone());
    }
    Some(Suite::Pairs { inputs, outputs, is_apps: false })
}

/// Returns a value that may stand as JSON in a text.
fn parsed(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => serde_json::from_str(text).ok(),
        Value::Array(_) | Value::Object(_) => Some(value.clone()),
        _ => None,
    }
}

/// Returns what a program reads or writes, from JSON.
fn of_lines(raw: &RawValue) -> String {
    serde_json::from_str(raw.get()).map_or_else(|_| raw.get().to_owned(), |value| text(&value))
}

/// Returns what a program reads or writes: a text, or a list of its lines.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().map(text).collect::<Vec<_>>().join("\n"),
        other => other.to_string(),
    }
}

/// Returns the JSON of a text in base64: a pickled text, compressed by zlib. Nothing is unpickled.
fn unpacked(text: &str) -> Option<Value> {
    let packed = STANDARD.decode(text.trim()).ok()?;
    let mut pickle = Vec::new();
    ZlibDecoder::new(packed.as_slice()).take(MOST_BYTES).read_to_end(&mut pickle).ok()?;
    serde_json::from_slice(pickled_text(&pickle)?).ok()
}

/// Returns the text of a pickle that is nothing but a text, of protocol 2 or later.
fn pickled_text(mut pickle: &[u8]) -> Option<&[u8]> {
    loop {
        let (&code, rest) = pickle.split_first()?;
        let width = match code {
            0x80 => {
                pickle = rest.get(1..)?; // the protocol
                continue;
            }
            0x95 => {
                pickle = rest.get(8..)?; // the length of a frame
                continue;
            }
            0x8c => 1,
            b'X' => 4,
            0x8d => 8,
            _ => return None,
        };
        let mut length = [0; 8];
        length[..width].copy_from_slice(rest.get(..width)?);
        let length = usize::try_from(u64::from_le_bytes(length)).ok()?;
        return rest.get(width..)?.get(..length);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `base64(zlib(pickle(json.dumps([{"input": "1\n[2]", "output": "3", "testtype": "functional"}]))))`,
    /// as Python's protocol 4 writes it.
    const PACKED: &str = "eJxrYJnqxAABPXbR1UqZeQWlJUpWCkqGMXnRRrFKOgpK+aUlUDFjELcktbikpLIgFSSQVpqXXJKZn5eYo1QbO0UPABaEFoQ=";

    fn cases(line: &Value) -> Result<Cases, InvalidLine> {
        read(line.as_object().unwrap_or(&Object::new()))
    }

    fn pairs(line: &Value) -> Option<(Vec<Value>, Vec<Value>, Option<String>)> {
        let cases = cases(line).ok()?;
        let Suite::Pairs { inputs, outputs, .. } = cases.suite else { return None };
        let read = |texts: Vec<String>| {
            texts.iter().map(|text| serde_json::from_str(text).ok()).collect::<Option<_>>()
        };
        Some((read(inputs)?, read(outputs)?, cases.function))
    }

    #[test]
    fn calls_are_read_by_the_rules_of_their_data_sets() {
        let public = r#"[{"input": "[1]\n\"a\"", "output": "2.5", "testtype": "functional"}]"#;
        let metadata = r#"{"func_name": "f"}"#;
        let name = Some("f".to_owned());
        for (line, expected) in [
            (
                json!({ "public_test_cases": public, "metadata": metadata, "private_test_cases": PACKED }),
                (vec![json!([[1], "a"]), json!([1, [2]])], vec![json!(2.5), json!(3)]),
            ),
            (
                json!({ "input_output": r#"{"fn_name": "f", "inputs": [[[1], 2]], "outputs": [[3]]}"# }),
                (vec![json!([[1], 2])], vec![json!([3])]),
            ),
            (
                json!({ "input_output": { "fn_name": "f", "inputs": ["[1]\n2"], "outputs": ["3"] } }),
                (vec![json!([[1], 2])], vec![json!(3)]),
            ),
        ] {
            assert_eq!(pairs(&line), Some((expected.0, expected.1, name.clone())), "{line}");
        }
    }

    #[test]
    fn inputs_of_programs_may_be_lists_of_lines() {
        for line in [
            json!({ "input_output": { "inputs": [["1", "2"]], "outputs": [["3"]] } }),
            json!({ "public_tests": { "input": ["1\n2"], "output": ["3"] }, "private_tests": null }),
            json!({ "public_test_cases": [{ "input": "1\n2", "output": "3", "testtype": "stdin" }] }),
        ] {
            let suite = cases(&line).ok().map(|cases| cases.suite);
            let Some(Suite::Stdio { cases, .. }) = suite else { panic!("{line} has no cases") };
            let expected = Case { stdin: "1\n2".to_owned(), stdout: "3".to_owned() };
            assert_eq!(cases, [expected], "{line}");
        }
    }

    #[test]
    fn cases_that_cannot_be_read_say_which_field_is_wrong() {
        for (line, field) in [
            (json!({ "input_output": "{" }), "input_output"),
            (json!({ "input_output": { "inputs": [], "outputs": [] } }), "input_output"),
            (json!({ "input_output": { "inputs": ["1"], "outputs": [] } }), "input_output"),
            (
                json!({ "input_output": { "fn_name": "f", "inputs": [1], "outputs": [1] } }),
                "inputs",
            ),
            (json!({ "public_test_cases": "eJw=" }), "public_test_cases"),
            (
                json!({ "public_test_cases": [{ "input": "1", "output": "2", "testtype": "functional" }] }),
                "metadata",
            ),
            (json!({ "public_tests": { "input": ["1"], "output": [] } }), "public_tests"),
        ] {
            let problem = cases(&line).err().map(|problem| problem.to_string()).unwrap_or_default();
            assert!(problem.starts_with(&format!("`{field}`")), "{line}: {problem}");
        }
    }
}
