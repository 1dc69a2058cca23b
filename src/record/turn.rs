//! A turn as a record: its program, what answered it, and its outcome.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use engine::{
    Call, Callee, Deterministic, HostCall, HostFunctions, InputFile, Interface, LimitKind, Limits,
    Outcome, Program, ProgramEntry, Recording, Signature, Value, Variables, Verdict,
};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use wire::message::Data;

use crate::attached::{Attached, attach, data_of};

/// A turn that has ended.
#[derive(Debug)]
pub(crate) struct EndedTurn {
    pub(crate) program: Program,
    pub(crate) limits: Limits,
    /// The name of its build in the pool, if its job names one.
    pub(crate) python: Option<Arc<str>>,
    pub(crate) outcome: Outcome,
    /// Why it can't be repeated to the same instruction, if so.
    pub(crate) taken: Option<&'static str>,
}

/// Returns why a run can't be repeated to the same instruction; `None` if it can.
pub(crate) fn taken(outcome: &Outcome, was_stopped: bool) -> Option<&'static str> {
    let is_of_pool = |limit| limit == LimitKind::PoolMemory;
    match &outcome.verdict {
        Verdict::SandboxFailed(_) => Some("sandbox"),
        Verdict::Limit(hit) if hit.limit == LimitKind::Cpu => Some("cpu_time"),
        Verdict::Limit(hit) if matches!(hit.limit, LimitKind::Wall | LimitKind::Deadline) => {
            Some("time")
        }
        _ if was_stopped || matches!(outcome.verdict, Verdict::Cancelled) => Some("interrupt"),
        Verdict::Limit(hit) if is_of_pool(hit.limit) => Some("pool_memory"),
        _ if outcome.limits_met.iter().any(|hit| is_of_pool(hit.limit)) => Some("pool_memory"),
        _ => None,
    }
}

/// Returns whether a program can read folders of the host, whose contents aren't recorded.
pub(crate) fn reads_folders(program: &Program) -> bool {
    !program.mounts.is_empty() || program.beside.is_some() || program.script.is_some()
}

impl EndedTurn {
    /// Returns its record, and the blobs to which that refers by number: first the outcome's.
    pub(crate) fn record(&self) -> (Map<String, Json>, Vec<&[u8]>) {
        let mut blobs = Vec::new();
        let (outcome, measured) = outcome_of(&self.outcome, &mut blobs);
        let program = program_json(self, &mut blobs);
        let mut record = Map::new();
        record.insert("type".to_owned(), "turn".into());
        record.insert("program".to_owned(), Json::Object(program));
        if let Some(recording) = &self.outcome.recording
            && *recording != Recording::default()
        {
            let calls = serde_json::to_value(recording).expect("a recording has a JSON form");
            record.insert("host_calls".to_owned(), calls);
        }
        record.insert("outcome".to_owned(), Json::Object(outcome));
        if let Some(taken) = self.taken {
            record.insert("taken".to_owned(), taken.into());
        }
        record.insert("measured".to_owned(), measured);
        (record, blobs)
    }
}

/// Returns an outcome, without what differs from run to run, and what does.
pub(crate) fn outcome_of<'a>(
    outcome: &'a Outcome,
    blobs: &mut Vec<&'a [u8]>,
) -> (Map<String, Json>, Json) {
    let Json::Object(mut result) = outcome.to_tool_json() else { return Default::default() };
    result.insert("stdout".to_owned(), attach(&outcome.stdout, blobs).into());
    result.insert("stderr".to_owned(), attach(&outcome.stderr, blobs).into());
    let files = outcome.files.iter().map(|file| {
        let contents = attach(&file.contents, blobs);
        json!({ "path": file.path, "change": file.kind, "contents": contents })
    });
    result.insert("files".to_owned(), files.collect());
    if let Verdict::Completed { data: Some(value), .. } = &outcome.verdict {
        let first = blobs.len();
        let data = data_of(value, blobs);
        result.insert("data".to_owned(), json!(data));
        result.insert("data_blobs".to_owned(), (first..blobs.len()).collect());
    }
    if outcome.left_out_files != Default::default() {
        result.insert("left_out_files".to_owned(), json!(outcome.left_out_files));
    }
    result.remove("execution_time");
    let measured = json!({
        "usage": result.remove("usage"),
        "requests": result.remove("requests"),
    });
    (result, measured)
}

/// Returns the parts of a recorded outcome by their names, in bytes. Takes each blob once, since a
/// file may name one often.
pub(crate) fn parts(
    outcome: &Map<String, Json>,
    blobs: &mut [Vec<u8>],
) -> BTreeMap<String, Vec<u8>> {
    let mut blob = |number: &Json| {
        let number = number.as_u64().and_then(|number| usize::try_from(number).ok());
        number.and_then(|number| blobs.get_mut(number)).map(mem::take).unwrap_or_default()
    };
    let mut parts = BTreeMap::new();
    for (name, part) in outcome {
        match name.as_str() {
            "stdout" | "stderr" => {
                parts.insert(name.clone(), blob(part));
            }
            "files" => {
                for file in part.as_array().into_iter().flatten() {
                    let path = file["path"].as_str().unwrap_or_default();
                    let change = file["change"].as_str().unwrap_or_default();
                    parts.insert(format!("{change} file {path}"), blob(&file["contents"]));
                }
            }
            "data_blobs" => {
                let blobs = part.as_array().into_iter().flatten();
                parts.insert("data in bytes".to_owned(), blobs.flat_map(&mut blob).collect());
            }
            _ => {
                parts.insert(name.clone(), part.to_string().into_bytes());
            }
        }
    }
    parts
}

fn program_json<'a>(turn: &'a EndedTurn, blobs: &mut Vec<&'a [u8]>) -> Map<String, Json> {
    let EndedTurn { program, limits, python, .. } = turn;
    let mut fields = Map::new();
    let mut put = |name: &str, is_there: bool, value: Json| {
        if is_there {
            fields.insert(name.to_owned(), value);
        }
    };
    put("code", true, program.source.as_str().into());
    match &program.entry {
        ProgramEntry::Call(call) => put("call", true, call_json(call, blobs)),
        ProgramEntry::Expression => put("expression", true, true.into()),
        ProgramEntry::Shell => put("shell", true, true.into()),
        _ => {}
    }
    let variables = values_json(&program.variables, blobs);
    put("variables", !program.variables.is_empty(), variables);
    put("name", program.filename.is_some(), json!(program.filename));
    put("args", !program.args.is_empty(), json!(program.args));
    put("env", !program.env.is_empty(), json!(program.env));
    put("stdin_function", program.stdin_function.is_some(), json!(program.stdin_function));
    if !program.stdin.is_empty() {
        put("stdin", true, attach(&program.stdin, blobs).into());
    }
    let mut files = Map::new();
    for InputFile { path, contents } in &program.files {
        files.insert(path.clone(), attach(contents, blobs).into());
    }
    put("files", !files.is_empty(), Json::Object(files));
    put("workdir", program.workdir.is_some(), json!(program.workdir));
    put("is_prompt", program.is_prompt, true.into());
    put("is_read_only", program.is_read_only, true.into());
    put("keeps_files", program.keeps_files, true.into());
    put("deterministic", program.deterministic.is_some(), json!(program.deterministic));
    put("interface", program.interface.is_some(), json!(program.interface));
    let functions: Vec<&Signature> = program.functions.signatures().collect();
    put("functions", !functions.is_empty(), json!(functions));
    put("reads_folders", reads_folders(program), true.into());
    put("python", python.is_some(), json!(python.as_deref()));
    put("limits", true, json!(limits));
    fields
}

fn call_json<'a>(call: &'a Call, blobs: &mut Vec<&'a [u8]>) -> Json {
    let args: Vec<Json> = call.args.iter().map(|value| value_json(value, blobs)).collect();
    let keywords = values_json(&call.keywords, blobs);
    json!({
        "module": call.module, "function": call.function, "args": args, "keywords": keywords,
    })
}

fn values_json<'a>(values: &'a Variables, blobs: &mut Vec<&'a [u8]>) -> Json {
    let mut fields = Map::new();
    for (name, value) in values {
        fields.insert(name.clone(), value_json(value, blobs));
    }
    Json::Object(fields)
}

fn value_json<'a>(value: &'a Value, blobs: &mut Vec<&'a [u8]>) -> Json {
    match value {
        Value::Json(value) => json!({ "json": value }),
        value => json!({ "data": data_of(value, blobs) }),
    }
}

/// The fields of a program that are read as they are.
#[derive(Debug, Deserialize)]
struct RecordedFields {
    code: String,
    call: Option<RecordedCallFields>,
    #[serde(default)]
    expression: bool,
    #[serde(default)]
    shell: bool,
    #[serde(default)]
    variables: BTreeMap<String, RecordedValue>,
    name: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    stdin_function: Option<String>,
    stdin: Option<usize>,
    #[serde(default)]
    files: BTreeMap<String, usize>,
    workdir: Option<String>,
    #[serde(default)]
    is_prompt: bool,
    #[serde(default)]
    is_read_only: bool,
    #[serde(default)]
    keeps_files: bool,
    deterministic: Option<Deterministic>,
    interface: Option<Interface>,
    #[serde(default)]
    functions: Vec<Signature>,
    python: Option<String>,
    limits: Limits,
}

#[derive(Debug, Deserialize)]
struct RecordedCallFields {
    module: String,
    function: String,
    args: Vec<RecordedValue>,
    keywords: BTreeMap<String, RecordedValue>,
}

#[derive(Debug, Deserialize)]
struct RecordedValue {
    json: Option<Json>,
    data: Option<Data>,
}

/// What a recorded turn runs.
#[derive(Debug)]
pub(crate) struct RecordedProgram {
    pub(crate) program: Program,
    pub(crate) limits: Limits,
    pub(crate) python: Option<String>,
}

/// Reads the program of a turn, whose calls the recording answers. An error says what is wrong.
pub(crate) fn program_of(
    record: &Map<String, Json>,
    blobs: Vec<Vec<u8>>,
) -> Result<RecordedProgram, String> {
    let fields = record.get("program").cloned().unwrap_or_default();
    let fields: RecordedFields =
        serde_json::from_value(fields).map_err(|error| error.to_string())?;
    // Without one it would run by the machine's clock, and make requests of its own.
    let deterministic = fields.deterministic.ok_or("it has no seed")?;
    let recording = record.get("host_calls").cloned().map(serde_json::from_value::<Recording>);
    let recording = recording.transpose().map_err(|error| error.to_string())?;
    // A run that could call nothing is repeated as it was.
    let replays = recording.or_else(|| (!fields.functions.is_empty()).then(Recording::default));
    let mut attached = Attached::new(blobs);
    let entry = match fields.call {
        Some(call) => {
            let mut read = Call::new("");
            (read.module, read.function) = (call.module, call.function);
            read.args = call
                .args
                .into_iter()
                .map(|value| value_of(value, &mut attached))
                .collect::<Result<_, _>>()?;
            read.keywords = values_of(call.keywords, &mut attached)?;
            ProgramEntry::Call(read)
        }
        None if fields.expression => ProgramEntry::Expression,
        None if fields.shell => ProgramEntry::Shell,
        None => ProgramEntry::Statements,
    };
    let variables = values_of(fields.variables, &mut attached)?;
    let mut blob = |number| attached.take(number).map_err(|problem| problem.message);
    let stdin = fields.stdin.map(&mut blob).transpose()?.unwrap_or_default();
    let files = fields.files.into_iter().map(|(path, number)| {
        InputFile::new(path, blob(number)?).map_err(|error| error.to_string())
    });
    let files = files.collect::<Result<_, String>>()?;
    let callee: Arc<dyn Callee> = Arc::new(NoCallee);
    let functions = fields.functions.into_iter().map(|function| (function, Arc::clone(&callee)));
    let functions = HostFunctions::new(functions).map_err(|error| error.to_string())?;
    let program = Program {
        source: fields.code,
        entry,
        variables,
        filename: fields.name,
        args: fields.args,
        env: fields.env,
        stdin,
        stdin_function: fields.stdin_function,
        files,
        workdir: fields.workdir,
        is_prompt: fields.is_prompt,
        is_read_only: fields.is_read_only,
        keeps_files: fields.keeps_files,
        deterministic: Some(deterministic),
        interface: fields.interface,
        functions,
        replays: replays.map(Arc::new),
        ..Program::default()
    };
    Ok(RecordedProgram { program, limits: fields.limits, python: fields.python })
}

fn values_of(
    values: BTreeMap<String, RecordedValue>,
    attached: &mut Attached,
) -> Result<Variables, String> {
    values.into_iter().map(|(name, value)| Ok((name, value_of(value, attached)?))).collect()
}

fn value_of(value: RecordedValue, attached: &mut Attached) -> Result<Value, String> {
    match value.data {
        Some(data) => attached.value(data).map_err(|problem| problem.message),
        None => Ok(Value::Json(value.json.unwrap_or_default())),
    }
}

/// Stands in for a function whose calls the recording answers.
struct NoCallee;

impl Callee for NoCallee {
    fn call(&self, _call: HostCall) {}
}
