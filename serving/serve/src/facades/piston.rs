//! Piston, version 2: `POST /api/v2/execute` and `GET /api/v2/runtimes`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use hatchery::wire::{self, Contents, Problem};
use hatchery::{Interface, Job, LimitKind, Outcome, Verdict};
use semver::{Version, VersionReq};
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

use super::request::{
    Refused, Sender, Sent, body_limit, from_base64, in_form, memory, plain, seconds,
};
use super::run::{Ran, is_time, last_words, run, stderr};
use crate::answer::json as json_answer;
use crate::caller::Caller;
use crate::service::Service;

/// The time of a program without `run_timeout`, in milliseconds.
const RUN_TIMEOUT_MS: f64 = 3000.0;

/// How long a request may wait for its turn, and for failures of the sandbox to pass.
const SPARE: Duration = Duration::from_secs(30);

/// The names of the one language.
const ALIASES: [&str; 3] = ["py", "py3", "python3"];

/// Serves a pool as Piston.
pub fn router(service: Service) -> Router {
    let routes = Router::new()
        .route("/api/v2/execute", post(execute))
        .route("/api/v2/runtimes", get(runtimes));
    in_form(routes, |refused| json_answer(refused.status, &json!({ "message": refused.message })))
        .layer(body_limit())
        .layer(Extension(Interface::Piston))
        .with_state(Piston { service, version: Arc::default() })
}

#[derive(Clone)]
struct Piston {
    service: Service,
    /// Python's, which a program says once.
    version: Arc<OnceCell<String>>,
}

impl Piston {
    async fn version(&self, caller: &Caller) -> Result<&str, Problem> {
        let ask = async || {
            let job = wire::Job::code("import platform; print(platform.python_version())");
            let ran = run(&self.service, caller, &caller.job(job)?, SPARE).await?;
            Ok(ran.outcome.stdout_text().trim().to_owned())
        };
        self.version.get_or_try_init(ask).await.map(String::as_str)
    }
}

type Answered = Result<Response, Refused>;

async fn runtimes(State(piston): State<Piston>, Sender(caller): Sender) -> Answered {
    let version = piston.version(&caller).await?;
    let python = json!({ "language": "python", "version": version, "aliases": ALIASES });
    Ok(json_answer(StatusCode::OK, &json!([python])))
}

async fn execute(State(piston): State<Piston>, Sent(caller, body): Sent<Value>) -> Answered {
    let version = piston.version(&caller).await?;
    let request = PistonRequest::of(&body, version).map_err(Refused::bad)?;
    let run = request.run(&piston.service, &caller).await?;
    let answer = json!({ "language": "python", "version": version, "run": run });
    Ok(json_answer(StatusCode::OK, &answer))
}

/// A request. Its types are checked by hand, as Piston's messages name the field.
struct PistonRequest {
    job: wire::Job,
    /// The path of the program.
    main: String,
    timeout: Duration,
}

impl PistonRequest {
    fn of(body: &Value, version: &str) -> Result<Self, String> {
        let empty = Map::new();
        let body = body.as_object().unwrap_or(&empty);
        let text = |name: &str| match body.get(name) {
            Some(Value::String(text)) if !text.is_empty() => Ok(text.as_str()),
            _ => Err(format!("{name} is required as a string")),
        };
        let (language, selector) = (text("language")?, text("version")?);
        let Some(Value::Array(files)) = body.get("files") else {
            return Err("files is required as an array".to_owned());
        };
        let files = files.iter().enumerate().map(|(at, file)| file_of(at, file));
        let files: Vec<_> = files.collect::<Result<_, _>>()?;
        let is_python = language == "python" || ALIASES.contains(&language);
        if !is_python || !is_selected(selector, version) {
            return Err(format!("{language}-{selector} runtime is unknown"));
        }
        let mut texts = files.iter().filter_map(|(name, contents)| match contents {
            Contents::Text(code) => Some((name.clone(), code.clone())),
            _ => None,
        });
        let Some((main, code)) = texts.next() else {
            return Err("files must include at least one utf8 encoded file".to_owned());
        };
        let number = |name: &str| match body.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) if number < 0.0 && name != "run_memory_limit" => {
                    Err(format!("{name} must be non-negative"))
                }
                // Zero is as good as nothing there.
                Some(number) => Ok((number != 0.0).then_some(number)),
                None => Err(format!("If specified, {name} must be a number")),
            },
        };
        for name in ["compile_timeout", "compile_cpu_time"] {
            number(name)?;
        }
        let timeout = seconds(number("run_timeout")?.unwrap_or(RUN_TIMEOUT_MS) / 1e3);
        let limits = wire::Limits {
            cpu_time: number("run_cpu_time")?.map(|time| seconds(time / 1e3)),
            memory: number("run_memory_limit")?.and_then(memory),
            ..wire::Limits::default()
        };
        // Piston's programs always find a last line end.
        let mut stdin = body.get("stdin").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !stdin.ends_with('\n') {
            stdin.push('\n');
        }
        let args = match body.get("args") {
            None | Some(Value::Null) => Vec::new(),
            Some(args) => serde_json::from_value(args.clone())
                .map_err(|_| "args must be an array of strings".to_owned())?,
        };
        let job = wire::Job {
            args,
            stdin,
            files: files.into_iter().collect(),
            timeout: Some(timeout),
            limits: Some(limits),
            ..wire::Job::code(code)
        };
        Ok(Self { job, main, timeout })
    }

    async fn run(self, service: &Service, caller: &Caller) -> Result<Value, Problem> {
        let job: Job = caller.job(self.job)?.named(self.main);
        let ran = run(service, caller, &job, self.timeout + SPARE).await?;
        Ok(stage(ran).await)
    }
}

/// Reads a file: its path and its contents, a text if it can be the program.
fn file_of(at: usize, file: &Value) -> Result<(String, Contents), String> {
    let Some(content) = file.get("content").and_then(Value::as_str) else {
        return Err(format!("files[{at}].content is required as a string"));
    };
    let name = file.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = name.map_or_else(|| format!("file{at}.code"), |name| plain(name).to_owned());
    let invalid = || format!("files[{at}].content is not valid in its encoding");
    let contents = match file.get("encoding").and_then(Value::as_str) {
        Some("base64") => Contents::Bytes(from_base64(content).ok_or_else(invalid)?),
        Some("hex") => Contents::Bytes(from_hex(content).ok_or_else(invalid)?),
        _ => Contents::Text(content.to_owned()),
    };
    Ok((name, contents))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    let (pairs, rest) = digits.as_deref()?.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// Returns whether a selector of versions, such as `3.x`, `^3.10` or `*`, takes this version.
fn is_selected(selector: &str, version: &str) -> bool {
    let selector = selector.trim().trim_start_matches('v');
    let is_plain = selector.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    // Of plain numbers, Cargo would also take later versions.
    let wanted = VersionReq::parse(&format!("{}{selector}", if is_plain { "=" } else { "" }));
    let version = Version::parse(version);
    wanted.is_ok_and(|wanted| version.is_ok_and(|version| wanted.matches(&version)))
}

/// How the program ended, as the sandbox of Piston says it.
async fn stage(mut ran: Ran) -> Value {
    let mut output = String::from_utf8_lossy(&ran.output().await).into_owned();
    let outcome = &ran.outcome;
    let words = last_words(outcome);
    if !words.is_empty() && !output.is_empty() && !output.ends_with('\n') {
        output.push('\n');
    }
    let StageEnd { code, signal, status, message } = end(outcome);
    json!({
        "stdout": outcome.stdout_text(),
        "stderr": stderr(outcome),
        "output": output + &words,
        "code": code,
        "signal": signal,
        "message": message,
        "status": status,
        "cpu_time": outcome.usage.cpu.as_millis() as u64,
        "wall_time": outcome.usage.wall.as_millis() as u64,
        "memory": outcome.usage.peak_memory_bytes,
    })
}

#[derive(Default)]
struct StageEnd {
    code: Option<u8>,
    signal: Option<&'static str>,
    status: Option<&'static str>,
    message: Option<String>,
}

fn end(outcome: &Outcome) -> StageEnd {
    let signal = |signal, number: u8| StageEnd {
        signal: Some(signal),
        status: Some("SG"),
        message: Some(format!("Caught fatal signal {number}")),
        ..StageEnd::default()
    };
    let exited = |code: u8| StageEnd {
        code: Some(code),
        status: (code != 0).then_some("RE"),
        message: (code != 0).then(|| format!("Exited with error status {code}")),
        ..StageEnd::default()
    };
    match &outcome.verdict {
        Verdict::Completed { .. } => exited(0),
        // `sys.exit` with such a number has no message.
        Verdict::Exited { code: Outcome::ABORTED, message: Some(_) } => signal("SIGABRT", 6),
        Verdict::Exited { code: Outcome::CRASHED, message: Some(_) } => signal("SIGSEGV", 11),
        Verdict::Exited { code, .. } => exited(*code),
        Verdict::Limit(hit) if is_time(hit.limit) => StageEnd {
            signal: Some("SIGKILL"),
            status: Some("TO"),
            message: Some(match hit.limit {
                LimitKind::Cpu => "Time limit exceeded".to_owned(),
                _ => "Time limit exceeded (wall clock)".to_owned(),
            }),
            ..StageEnd::default()
        },
        _ => exited(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_take_versions() {
        for selector in
            ["*", "x", "3", "3.x", "3.15", "3.15.*", "3.15.0", "^3.10.0", ">=3.10", "~3.15"]
        {
            assert!(is_selected(selector, "3.15.0"), "{selector}");
        }
        for selector in ["", "2", "3.10.0", "3.10", "^2.7", "^4", "~3.10.0", ">=4", "3.15.0.0", "a"]
        {
            assert!(!is_selected(selector, "3.15.0"), "{selector}");
        }
    }

    #[test]
    fn requests_are_checked_as_piston_does() {
        let whole = json!({
            "language": "py", "version": "3", "files": [{ "content": "print(1)" }],
            "run_timeout": 1500, "run_memory_limit": -1, "args": ["a"], "stdin": "x",
        });
        let request =
            PistonRequest::of(&whole, "3.15.0").map_err(|error| panic!("{error}")).unwrap();
        assert_eq!(
            (&request.main[..], request.timeout),
            ("file0.code", Duration::from_millis(1500))
        );
        assert_eq!((&request.job.stdin[..], &request.job.args[..]), ("x\n", &["a".to_owned()][..]));
        for (field, value, expected) in [
            ("language", json!(1), "language is required as a string"),
            ("version", json!(""), "version is required as a string"),
            ("files", json!({}), "files is required as an array"),
            ("files", json!([{ "name": "a" }]), "files[0].content is required as a string"),
            (
                "files",
                json!([{ "content": "QQ==", "encoding": "base64" }]),
                "files must include at least one utf8 encoded file",
            ),
            ("language", json!("rust"), "rust-3 runtime is unknown"),
            ("run_timeout", json!("1"), "If specified, run_timeout must be a number"),
            ("run_timeout", json!(-1), "run_timeout must be non-negative"),
        ] {
            let mut body = whole.clone();
            body[field] = value;
            let refused = PistonRequest::of(&body, "3.15.0").err();
            assert_eq!(refused.as_deref(), Some(expected));
        }
    }

    #[test]
    fn hexadecimal_files_are_decoded() {
        assert_eq!(from_hex("00fF").as_deref(), Some([0, 255].as_slice()));
        assert_eq!((from_hex("0"), from_hex("0g")), (None, None));
    }
}
