//! The forms of tasks and samples, told apart by their fields.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{AnswerForm, Case, Checker, Suite, Task, TaskOptions, cases, data_science};
use crate::error::InvalidLine;

type Object = Map<String, Value>;

/// Returns the task of a line.
pub(crate) fn task(object: &Object, id: String, options: TaskOptions) -> Result<Task, InvalidLine> {
    let has = |name: &str| object.contains_key(name);
    let task = if has("base_input") {
        evalplus(object, id)
    } else if has("test_list") {
        mbpp(object, id, options)
    } else if has("complete_prompt") {
        big_code_bench(object, id)
    } else if has("code_context") {
        ds_1000(object, id)
    } else if has("test_start") {
        odex(object, id)
    } else if has("test") && has("prompt") {
        tested(object, id, "prompt", Some("check"))
    } else if has("tests") || has("test") {
        plain(object, id)
    } else if has("public_test_cases") || has("public_tests") || has("input_output") {
        of_cases(object, id)
    } else if has("code") && has("input") && has("output") {
        return crux_eval(object, id);
    } else {
        Err(InvalidLine::NoTask)
    }?;
    let sample = programs(object, &task).and_then(|programs| programs.into_iter().next());
    Ok(Task { sample: sample.or(task.sample.clone()), ..task })
}

/// Returns whether the data set of a line has several tasks of one id: ODEX has two for some questions.
pub(super) fn may_repeat(object: &Object) -> bool {
    object.contains_key("test_start")
}

/// Returns the id of a line: a text, or a number as text.
pub(crate) fn id(object: &Object) -> Option<String> {
    let names = ["task_id", "id", "question_id", "problem_id"];
    let in_metadata = || object.get("metadata")?.get("problem_id");
    match names.iter().find_map(|name| object.get(*name)).or_else(in_metadata)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the programs of a sample: a `completion` stands between prompt and suffix, the others are whole.
pub(crate) fn programs(object: &Object, task: &Task) -> Option<Vec<String>> {
    let completion = first_text(object, &["completion"])
        .map(|text| format!("{}{text}{}", task.prompt, task.suffix));
    let program = completion.or_else(|| first_text(object, &["program", "solution", "code"]));
    let several = || all_texts(object.get("code_list")?.as_array()?);
    program.map(|program| vec![program]).or_else(several).filter(|programs| !programs.is_empty())
}

/// Returns what JSON says that stands in a text, or as a value in its place.
pub(super) fn from_text<T: DeserializeOwned>(given: &Value) -> Option<T> {
    let text = match given {
        Value::String(text) => Cow::Borrowed(text.as_str()),
        other => Cow::Owned(other.to_string()),
    };
    serde_json::from_str(&text).ok()
}

/// Returns the first of these fields that is a text.
fn first_text(object: &Object, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| object.get(*name)?.as_str()).map(str::to_owned)
}

fn text(object: &Object, name: &'static str) -> Result<String, InvalidLine> {
    first_text(object, &[name]).ok_or(InvalidLine::Field(name, "a text"))
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

/// Returns a task with one module of tests, of which a function is given the candidate's, or none.
fn tested(
    object: &Object,
    id: String,
    prompt: &'static str,
    check: Option<&str>,
) -> Result<Task, InvalidLine> {
    let prompt = text(object, prompt)?;
    completed(object, id, prompt, module(text(object, "test")?, check))
}

fn module(tests: String, check: Option<&str>) -> Suite {
    Suite::Code { tests: vec![tests], setup: String::new(), check: check.map(str::to_owned) }
}

/// What a task's `code_prompt` imports and defines stands before each program, as in BigCodeBench's calibrated
/// scores.
fn big_code_bench(object: &Object, id: String) -> Result<Task, InvalidLine> {
    let task = tested(object, id, "complete_prompt", None)?;
    let given = first_text(object, &["code_prompt"]);
    let prelude = given.map(|prompt| format!("{prompt}\n    pass\n")).unwrap_or_default();
    Ok(Task { prelude, ..task })
}

fn ds_1000(object: &Object, id: String) -> Result<Task, InvalidLine> {
    let suite = data_science::suite(&text(object, "code_context")?)?;
    let reference = first_text(object, &["reference_code"]);
    let solution = reference.map(|code| data_science::program(&code));
    Ok(Task { answer: AnswerForm::Snippet, solution, ..bare(id, suite) })
}

/// A program and the imports of its tests share a module in ODEX: what stands before `check` runs after the
/// program.
fn odex(object: &Object, id: String) -> Result<Task, InvalidLine> {
    let start = text(object, "test_start")?;
    let split = start.rsplit_once("def check(");
    let (before, check) =
        split.ok_or(InvalidLine::Field("test_start", "a text that begins `def check(`"))?;
    let tests = texts(object, "test")?;
    if tests.is_empty() {
        return Err(InvalidLine::Field("test", "a list of texts, not empty"));
    }
    let detabbed = |text: String| text.replace('\t', "    ");
    let prompt = detabbed(text(object, "prompt")?);
    let suffix = detabbed(first_text(object, &["suffix"]).unwrap_or_default());
    let epilogue = format!("\n{before}");
    let canonical = first_text(object, &["canonical_solution"]).map(detabbed);
    let solution = canonical.map(|code| format!("{prompt}{code}{suffix}{epilogue}"));
    let tests = format!("{before}\ndef check({check}{}", tests.concat());
    Ok(Task {
        entry_point: Some(text(object, "entry_point")?),
        helpers: solution.clone().unwrap_or_default(),
        answer: AnswerForm::Detabbed,
        prompt,
        suffix,
        epilogue,
        solution,
        ..bare(id, module(tests, Some("check")))
    })
}

/// A sample completes `assert f(…) ==`. After `lambda:`, as there, it is one expression: neither nothing nor a
/// tuple without parentheses.
fn crux_eval(object: &Object, id: String) -> Result<Task, InvalidLine> {
    let (code, input) = (text(object, "code")?, text(object, "input")?);
    let prompt = "output = lambda: ".to_owned();
    let tests = format!("{code}\ndef check(output):\n    assert f({input}) == output()\n");
    let solution = Some(format!("{prompt}{}", text(object, "output")?));
    let entry_point = Some("output".to_owned());
    Ok(Task { prompt, entry_point, solution, ..bare(id, module(tests, Some("check"))) })
}

fn evalplus(object: &Object, id: String) -> Result<Task, InvalidLine> {
    let prompt = text(object, "prompt")?;
    let mut inputs = Vec::new();
    for name in ["base_input", "plus_input"] {
        match object.get(name) {
            None | Some(Value::Null) => {}
            // MBPP+ writes it for a task that has no more inputs.
            Some(Value::String(text)) if text == "{}" => {}
            Some(given) => {
                let items: Option<Vec<Box<RawValue>>> = from_text(given);
                inputs.extend(items.ok_or(InvalidLine::Field(name, "a list of lists"))?);
            }
        }
    }
    let is_given = object.contains_key("expected");
    let outputs = is_given.then(|| texts(object, "expected")).transpose()?;
    let inputs: Vec<String> = match &outputs {
        None if !inputs.iter().all(|input| input.get().starts_with('[')) => {
            return Err(InvalidLine::Field("base_input", "a list of lists"));
        }
        None => {
            text(object, "canonical_solution")?;
            inputs.iter().map(|input| input.get().to_owned()).collect()
        }
        Some(outputs) => {
            let texts = inputs.iter().map(|input| serde_json::from_str(input.get()).ok());
            let texts: Option<Vec<String>> = texts.collect();
            let texts = texts.filter(|texts| texts.len() == outputs.len());
            texts.ok_or(InvalidLine::Field("expected", "one string for each input"))?
        }
    };
    text(object, "entry_point")?;
    let tolerance = object.get("atol").and_then(Value::as_f64).unwrap_or(0.0);
    completed(object, id, prompt, Suite::Calls { inputs, outputs, tolerance })
}

/// Returns a task whose samples complete the prompt.
fn completed(
    object: &Object,
    id: String,
    prompt: String,
    suite: Suite,
) -> Result<Task, InvalidLine> {
    let canonical = first_text(object, &["canonical_solution"]);
    let solution = canonical.map(|canonical| format!("{prompt}{canonical}"));
    Ok(Task {
        entry_point: first_text(object, &["entry_point"]),
        helpers: solution.clone().unwrap_or_else(|| prompt.clone()),
        prompt,
        solution,
        ..bare(id, suite)
    })
}

/// Returns a task whose line can't be used, with a sample that shows it.
pub(super) fn unusable(id: String, problem: &InvalidLine) -> Task {
    Task { sample: Some(String::new()), ..bare(id, Suite::Unusable(problem.to_string())) }
}

/// Returns a task that has nothing but its tests.
fn bare(id: String, suite: Suite) -> Task {
    Task {
        id,
        prompt: String::new(),
        suffix: String::new(),
        prelude: String::new(),
        epilogue: String::new(),
        answer: AnswerForm::Program,
        entry_point: None,
        solution: None,
        sample: None,
        helpers: String::new(),
        suite,
    }
}

/// Returns a task of a data set that has cases.
fn of_cases(object: &Object, id: String) -> Result<Task, InvalidLine> {
    let cases = cases::read(object)?;
    let suite = match cases.suite {
        Suite::Stdio { cases, checker: own } => {
            let checker = checker(object)?.unwrap_or(own);
            Suite::Stdio { cases, checker }
        }
        suite => suite,
    };
    let prelude = cases.prelude.to_owned();
    let sample = cases::first_solution(object);
    Ok(Task { entry_point: cases.function, prelude, sample, ..bare(id, suite) })
}

fn mbpp(object: &Object, id: String, options: TaskOptions) -> Result<Task, InvalidLine> {
    let mut tests = texts(object, "test_list")?;
    if options.challenge {
        tests.extend(texts(object, "challenge_test_list")?);
    }
    // MBPP+ has a module with all inputs beside MBPP's own tests.
    tests = first_text(object, &["test"]).map_or(tests, |module| vec![module]);
    let mut setup = texts(object, "test_imports")?;
    setup.extend(first_text(object, &["test_setup_code"]));
    let solution = first_text(object, &["code"]);
    Ok(Task {
        helpers: solution.clone().unwrap_or_default(),
        solution,
        ..bare(id, Suite::Code { tests, setup: setup.join("\n"), check: None })
    })
}

fn plain(object: &Object, id: String) -> Result<Task, InvalidLine> {
    let solution = first_text(object, &["solution", "canonical_solution", "solution_code"]);
    // ClassEval's, which stand before each program there.
    let imports = texts(object, "import_statement").unwrap_or_default();
    Ok(Task {
        prelude: imports.iter().map(|line| format!("{line}\n")).collect(),
        entry_point: first_text(object, &["entry_point"]),
        helpers: solution.clone().unwrap_or_default(),
        solution,
        ..bare(id, plain_suite(object)?)
    })
}

fn plain_suite(object: &Object) -> Result<Suite, InvalidLine> {
    let wrong = InvalidLine::Field("tests", "a string, a list of strings, or a list of cases");
    let setup = first_text(object, &["setup"]).unwrap_or_default();
    let items = match object.get("tests").or_else(|| object.get("test")) {
        Some(Value::String(text)) => {
            return Ok(Suite::Code { tests: vec![text.clone()], setup, check: None });
        }
        Some(Value::Array(items)) if !items.is_empty() => items,
        _ => return Err(wrong),
    };
    if items.iter().all(Value::is_object) {
        let cases = items.iter().map(case).collect::<Option<_>>().ok_or(wrong)?;
        return Ok(Suite::Stdio { cases, checker: checker(object)?.unwrap_or(Checker::Tokens) });
    }
    Ok(Suite::Code { tests: all_texts(items).ok_or(wrong)?, setup, check: None })
}

fn case(item: &Value) -> Option<Case> {
    let object = item.as_object()?;
    Some(Case {
        stdin: first_text(object, &["stdin", "input"])?,
        stdout: first_text(object, &["stdout", "output"])?,
    })
}

/// Returns the checker that a task names, if it does.
fn checker(object: &Object) -> Result<Option<Checker>, InvalidLine> {
    let checker = match object.get("checker") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(name)) if name == "exact" => Checker::Exact,
        Some(Value::String(name)) if name == "lines" => Checker::Lines,
        Some(Value::String(name)) if name == "apps" => Checker::Apps,
        Some(Value::String(name)) if name == "tokens" => Checker::Tokens,
        Some(Value::Object(given)) => {
            let tolerance = given.get("floats").and_then(Value::as_f64);
            let program = given.get("program").and_then(Value::as_str);
            match (tolerance, program) {
                (Some(tolerance), None) if tolerance >= 0.0 => Checker::Floats(tolerance),
                (None, Some(source)) => Checker::Program(source.to_owned()),
                _ => return Err(InvalidLine::Checker),
            }
        }
        Some(_) => return Err(InvalidLine::Checker),
    };
    Ok(Some(checker))
}
