//! The forms of tasks and samples, told apart by their fields.

use serde_json::{Map, Value};

use super::{Case, Checker, Suite, Task, TaskOptions};
use crate::error::InvalidLine;

type Object = Map<String, Value>;

/// Returns the task of a line.
pub(crate) fn task(
    object: &Object,
    line: usize,
    options: TaskOptions,
) -> Result<Task, InvalidLine> {
    let id = id(object).unwrap_or_else(|| format!("line {line}"));
    let has = |name: &str| object.contains_key(name);
    if has("base_input") {
        return evalplus(object, id);
    }
    if has("test_list") {
        return mbpp(object, id, options);
    }
    if has("complete_prompt") {
        return bigcodebench(object, id);
    }
    if has("test") && has("prompt") {
        return human_eval(object, id);
    }
    if has("tests") || has("input_output") {
        return plain(object, id);
    }
    Err(InvalidLine::NoTask)
}

/// Returns the id of a line: a text, or a number as text.
pub(crate) fn id(object: &Object) -> Option<String> {
    match object.get("task_id").or_else(|| object.get("id"))? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the first of these fields that is a text.
pub(crate) fn first_text<'object>(object: &'object Object, names: &[&str]) -> Option<&'object str> {
    names.iter().find_map(|name| object.get(*name)?.as_str())
}

fn text(object: &Object, name: &'static str) -> Result<String, InvalidLine> {
    let text = object.get(name).and_then(Value::as_str);
    text.map(str::to_owned).ok_or(InvalidLine::Field(name, "a text"))
}

/// Returns a list of texts; a missing or null field is an empty one.
fn texts(object: &Object, name: &'static str) -> Result<Vec<String>, InvalidLine> {
    let wrong = InvalidLine::Field(name, "a list of texts");
    match object.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => all_texts(items).ok_or(wrong),
        Some(_) => Err(wrong),
    }
}

fn all_texts(items: &[Value]) -> Option<Vec<String>> {
    items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

fn human_eval(object: &Object, id: String) -> Result<Task, InvalidLine> {
    let prompt = text(object, "prompt")?;
    let suite = Suite::Code {
        tests: vec![text(object, "test")?],
        setup: String::new(),
        check: Some("check".to_owned()),
    };
    completed(object, id, prompt, suite)
}

fn bigcodebench(object: &Object, id: String) -> Result<Task, InvalidLine> {
    let prompt = text(object, "complete_prompt")?;
    let suite =
        Suite::Code { tests: vec![text(object, "test")?], setup: String::new(), check: None };
    completed(object, id, prompt, suite)
}

fn evalplus(object: &Object, id: String) -> Result<Task, InvalidLine> {
    let prompt = text(object, "prompt")?;
    let mut inputs = Vec::new();
    for name in ["base_input", "plus_input"] {
        match object.get(name) {
            Some(Value::Array(items)) => inputs.extend(items.iter().cloned()),
            None | Some(Value::Null) => {}
            Some(_) => return Err(InvalidLine::Field(name, "a list of lists")),
        }
    }
    if !inputs.iter().all(Value::is_array) {
        return Err(InvalidLine::Field("base_input", "a list of lists"));
    }
    text(object, "canonical_solution")?;
    let tolerance = object.get("atol").and_then(Value::as_f64).unwrap_or(0.0);
    completed(object, id, prompt, Suite::Calls { inputs, tolerance })
}

/// Returns a task whose samples complete the prompt.
fn completed(
    object: &Object,
    id: String,
    prompt: String,
    suite: Suite,
) -> Result<Task, InvalidLine> {
    let canonical = object.get("canonical_solution").and_then(Value::as_str);
    let solution = canonical.map(|canonical| format!("{prompt}{canonical}"));
    Ok(Task {
        id,
        entry_point: Some(text(object, "entry_point")?),
        helpers: solution.clone().unwrap_or_else(|| prompt.clone()),
        prompt,
        solution,
        suite,
        in_place: false,
    })
}

fn mbpp(object: &Object, id: String, options: TaskOptions) -> Result<Task, InvalidLine> {
    let mut tests = texts(object, "test_list")?;
    if options.challenge {
        tests.extend(texts(object, "challenge_test_list")?);
    }
    let mut setup = texts(object, "test_imports")?;
    setup.extend(first_text(object, &["test_setup_code"]).map(str::to_owned));
    let solution = first_text(object, &["code"]).map(str::to_owned);
    Ok(Task {
        id,
        prompt: String::new(),
        entry_point: None,
        helpers: solution.clone().unwrap_or_default(),
        solution,
        suite: Suite::Code { tests, setup: setup.join("\n"), check: None },
        in_place: false,
    })
}

fn plain(object: &Object, id: String) -> Result<Task, InvalidLine> {
    let solution = first_text(object, &["solution", "canonical_solution"]).map(str::to_owned);
    Ok(Task {
        id,
        prompt: String::new(),
        entry_point: first_text(object, &["entry_point"]).map(str::to_owned),
        helpers: solution.clone().unwrap_or_default(),
        solution,
        suite: plain_suite(object)?,
        in_place: object.get("in_place").and_then(Value::as_bool).unwrap_or(false),
    })
}

fn plain_suite(object: &Object) -> Result<Suite, InvalidLine> {
    let wrong = InvalidLine::Field("tests", "a text, a list of texts, or a list of cases");
    let setup = first_text(object, &["setup"]).unwrap_or_default().to_owned();
    let items = match object.get("tests") {
        None => {
            let wrong = "an object with `inputs` and `outputs`, lists of texts of one length";
            let cases = apps_cases(object).ok_or(InvalidLine::Field("input_output", wrong))?;
            return Ok(Suite::Stdio { cases, checker: checker(object)? });
        }
        Some(Value::String(text)) => {
            return Ok(Suite::Code { tests: vec![text.clone()], setup, check: None });
        }
        Some(Value::Array(items)) if !items.is_empty() => items,
        Some(_) => return Err(wrong),
    };
    if items.iter().all(Value::is_object) {
        let cases = items.iter().map(case).collect::<Option<_>>().ok_or(wrong)?;
        return Ok(Suite::Stdio { cases, checker: checker(object)? });
    }
    Ok(Suite::Code { tests: all_texts(items).ok_or(wrong)?, setup, check: None })
}

fn case(item: &Value) -> Option<Case> {
    let object = item.as_object()?;
    Some(Case {
        stdin: first_text(object, &["stdin", "input"])?.to_owned(),
        stdout: first_text(object, &["stdout", "output"])?.to_owned(),
    })
}

/// Returns the cases of APPS's `input_output`: an object, or one as text.
fn apps_cases(object: &Object) -> Option<Vec<Case>> {
    let parsed: Value = match object.get("input_output")? {
        Value::String(text) => serde_json::from_str(text).ok()?,
        other => other.clone(),
    };
    let list = |name: &str| parsed.get(name)?.as_array();
    let (inputs, outputs) = (list("inputs")?, list("outputs")?);
    if inputs.len() != outputs.len() || inputs.is_empty() {
        return None;
    }
    let cases = inputs.iter().zip(outputs).map(|(stdin, stdout)| {
        Some(Case { stdin: stdin.as_str()?.to_owned(), stdout: stdout.as_str()?.to_owned() })
    });
    cases.collect()
}

fn checker(object: &Object) -> Result<Checker, InvalidLine> {
    match object.get("checker") {
        None | Some(Value::Null) => Ok(Checker::Tokens),
        Some(Value::String(name)) if name == "exact" => Ok(Checker::Exact),
        Some(Value::String(name)) if name == "tokens" => Ok(Checker::Tokens),
        Some(Value::Object(given)) => {
            let tolerance = given.get("floats").and_then(Value::as_f64);
            let program = given.get("program").and_then(Value::as_str);
            match (tolerance, program) {
                (Some(tolerance), None) if tolerance >= 0.0 => Ok(Checker::Floats(tolerance)),
                (None, Some(source)) => Ok(Checker::Program(source.to_owned())),
                _ => Err(InvalidLine::Checker),
            }
        }
        Some(_) => Err(InvalidLine::Checker),
    }
}
