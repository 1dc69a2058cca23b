//! SandboxFusion: `POST /run_code` and `POST /run_jupyter`.
//!
//! Its clients count anything but an answer as a failed program. The client verl retries only after
//! 504, the SDK after everything but 200. So the server first retries overload and sandbox failures, and
//! finally answers 504. A request that can't be run is an answer with the status `SandboxError`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use hatchery::files::ChangeKind;
use hatchery::wire::{self, Contents, Problem, ProblemKind};
use hatchery::{Interface, Job, LimitKind, Outcome, Verdict};
use serde::Deserialize;
use serde_json::{Value, json};

use super::request::{
    Refused, Sent, body_limit, from_base64, in_form, memory, plain, seconds, to_base64,
};
use super::run::{is_ours, is_time, run, stderr};
use crate::answer::json as json_answer;
use crate::caller::Caller;
use crate::service::Service;

mod jupyter;

/// How long a request may take beyond the times that it states. The client of verl adds 10 s, after
/// which it gives up without trying again.
const SPARE: Duration = Duration::from_secs(8);

/// Names of files with this are left out, as SandboxFusion does.
const IGNORED: &str = "IGNORE_THIS_FILE";

/// The file that pytest runs.
const TEST_FILE: &str = "test_submission.py";

/// The file of a program, which its `__file__` names.
const PROGRAM_FILE: &str = "main.py";

/// Runs pytest as `pytest FILE ARGS` does.
const PYTEST: &str = "\
import sys, pytest
sys.exit(int(pytest.main(sys.argv[1:])))
";

/// Serves a pool as SandboxFusion.
pub fn router(service: Service) -> Router {
    let routes = Router::new()
        .route("/run_code", post(run_code))
        .route("/run_jupyter", post(jupyter::run_jupyter));
    in_form(routes, Refused::detail)
        .layer(body_limit())
        .layer(Extension(Interface::SandboxFusion))
        .with_state(service)
}

#[derive(Deserialize)]
struct RunCode {
    code: String,
    language: String,
    stdin: Option<String>,
    #[serde(default = "ten")]
    compile_timeout: f64,
    #[serde(default = "ten")]
    run_timeout: f64,
    #[serde(default, rename = "memory_limit_MB")]
    memory_limit_mb: f64,
    #[serde(default)]
    files: BTreeMap<String, Option<String>>,
    #[serde(default)]
    fetch_files: Vec<String>,
    /// For pytest alone.
    #[serde(default)]
    args: Vec<String>,
}

fn ten() -> f64 {
    10.0
}

impl RunCode {
    /// What to run.
    ///
    /// # Errors
    /// The language is another one, or a file isn't base64.
    fn program(&self) -> Result<wire::Job, Problem> {
        let mut files = inputs(&self.files)?;
        let (code, args) = match self.language.as_str() {
            "python" => {
                let code = Contents::Text(self.code.clone());
                files.entry(PROGRAM_FILE.to_owned()).or_insert(code);
                (self.code.clone(), Vec::new())
            }
            "pytest" => {
                files.insert(TEST_FILE.to_owned(), Contents::Text(self.code.clone()));
                let args = [TEST_FILE.to_owned()].into_iter().chain(self.args.iter().cloned());
                (PYTEST.to_owned(), args.collect())
            }
            other => {
                let message = format!(
                    "the language {other:?} isn't supported: this server runs python, and pytest \
                     if its image has that"
                );
                return Err(Problem::new(ProblemKind::Usage, message));
            }
        };
        let memory = memory(self.memory_limit_mb * f64::from(1 << 20));
        Ok(wire::Job {
            args,
            stdin: self.stdin.clone().unwrap_or_default(),
            files,
            timeout: Some(seconds(self.run_timeout)),
            limits: Some(wire::Limits { memory, ..wire::Limits::default() }),
            ..wire::Job::code(code)
        })
    }

    /// How long to try, time in the queue included.
    fn patience(&self) -> Duration {
        seconds(self.compile_timeout.max(0.0) + self.run_timeout.max(0.0)) + SPARE
    }

    /// The files to fetch that are there after the run, in base64.
    fn fetched(&self, outcome: &Outcome) -> BTreeMap<&str, String> {
        let found = |asked: &str| {
            let changed = outcome.files.iter().find(|file| file.path == plain(asked));
            match changed {
                Some(file) if file.kind == ChangeKind::Deleted => None,
                Some(file) => Some(to_base64(&file.contents)),
                // As it was sent.
                None => sent(&self.files, asked),
            }
        };
        let fetched = self.fetch_files.iter().map(String::as_str);
        fetched.filter_map(|asked| Some((asked, found(asked)?))).collect()
    }
}

/// Returns an input file as it was sent, in base64.
fn sent(files: &BTreeMap<String, Option<String>>, asked: &str) -> Option<String> {
    let (_, sent) = files.iter().find(|(path, _)| plain(path) == plain(asked))?;
    Some(to_base64(&from_base64(sent.as_deref()?)?))
}

/// Decodes input files.
///
/// # Errors
/// One isn't base64.
fn inputs(files: &BTreeMap<String, Option<String>>) -> Result<BTreeMap<String, Contents>, Problem> {
    let sent = files.iter().filter(|(path, _)| !path.contains(IGNORED));
    let sent = sent.filter_map(|(path, contents)| Some((path, contents.as_ref()?)));
    sent.map(|(path, contents)| match from_base64(contents) {
        Some(bytes) => Ok((plain(path).to_owned(), Contents::Bytes(bytes))),
        None => {
            let message = format!("the contents of the file {path:?} aren't valid base64");
            Err(Problem::new(ProblemKind::Usage, message))
        }
    })
    .collect()
}

async fn run_code(
    State(service): State<Service>,
    Sent(caller, request): Sent<RunCode>,
) -> Response {
    match ended(&service, &caller, &request).await {
        Ok(outcome) => json_answer(StatusCode::OK, &answer(&request, &outcome)),
        Err(problem) => failed(&problem, json!({ "compile_result": null, "run_result": null })),
    }
}

async fn ended(service: &Service, caller: &Caller, request: &RunCode) -> Result<Outcome, Problem> {
    // Files are fetched from failed programs, too.
    let mut job: Job = caller.job(request.program()?)?.keep_files();
    if request.language == "python" {
        job = job.named(format!("/workspace/{PROGRAM_FILE}"));
    }
    let outcome = run(service, caller, &job, request.patience()).await?.outcome;
    match &outcome.verdict {
        Verdict::Limit(hit) if hit.limit == LimitKind::Source => {
            Err(Problem::new(ProblemKind::Usage, hit.to_string()))
        }
        // An import of the tests fails within pytest, so this is the runner's.
        Verdict::Raised(raised)
            if request.language == "pytest" && raised.type_name == "ModuleNotFoundError" =>
        {
            let message = "this server's image has no pytest; start it with the package";
            Err(Problem::new(ProblemKind::Usage, message))
        }
        _ => Ok(outcome),
    }
}

fn answer(request: &RunCode, outcome: &Outcome) -> Value {
    let (status, return_code) = match &outcome.verdict {
        Verdict::Completed { .. } => ("Finished", Some(0)),
        Verdict::Exited { code, .. } => ("Finished", Some(*code)),
        Verdict::Limit(hit) if is_time(hit.limit) => ("TimeLimitExceeded", None),
        // Programs with a syntax error, too: as a failure to compile, it would be graded otherwise.
        _ => ("Finished", Some(1)),
    };
    let message = match outcome.output_truncated {
        true => "the output was longer than the server's limit, and its end was dropped",
        false => "",
    };
    json!({
        "status": if return_code == Some(0) { "Success" } else { "Failed" },
        "message": message,
        "compile_result": null,
        "run_result": {
            "status": status,
            "execution_time": outcome.usage.wall.as_secs_f64(),
            "return_code": return_code,
            "stdout": outcome.stdout_text(),
            "stderr": stderr(outcome),
        },
        "executor_pod_name": null,
        "files": request.fetched(outcome),
    })
}

/// The answer to a request that wasn't run.
fn failed(problem: &Problem, rest: Value) -> Response {
    if is_ours(problem) {
        let detail = json!({ "detail": problem.message });
        return json_answer(StatusCode::GATEWAY_TIMEOUT, &detail);
    }
    let mut answer = json!({
        "status": "SandboxError",
        "message": problem.message,
        "executor_pod_name": null,
        "files": {},
    });
    if let (Some(answer), Value::Object(mut rest)) = (answer.as_object_mut(), rest) {
        answer.append(&mut rest);
    }
    json_answer(StatusCode::OK, &answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: Value) -> RunCode {
        let mut whole = json!({ "code": "print(1)", "language": "python" });
        whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_request_becomes_a_job() {
        let job = request(json!({
            "stdin": "in", "run_timeout": 2.5, "memory_limit_MB": 256, "unknown": 1,
            "files": { "./a.txt": "QQ==", "b": null, "IGNORE_THIS_FILE": "QQ==" },
        }));
        assert_eq!(job.patience(), Duration::from_millis(20_500));
        let job = job.program().unwrap();
        assert_eq!((job.code.as_deref(), &job.stdin[..]), (Some("print(1)"), "in"));
        assert_eq!(job.timeout, Some(Duration::from_millis(2500)));
        assert_eq!(job.limits.unwrap().memory, Some(256 << 20));
        let files = [
            ("a.txt".to_owned(), Contents::Bytes(b"A".to_vec())),
            ("main.py".to_owned(), Contents::Text("print(1)".to_owned())),
        ];
        assert_eq!(job.files, files.into());
        let unlimited = request(json!({ "memory_limit_MB": -1 })).program().unwrap();
        assert_eq!(unlimited.limits.unwrap().memory, None);
    }

    #[test]
    fn pytest_runs_the_code_as_a_file_and_others_are_refused() {
        let job = request(json!({ "language": "pytest", "args": ["-q"] })).program().unwrap();
        assert_eq!(job.args, [TEST_FILE, "-q"]);
        assert_eq!(job.files[TEST_FILE], Contents::Text("print(1)".to_owned()));
        let refused = request(json!({ "language": "cpp" })).program().unwrap_err();
        assert!(refused.message.contains("\"cpp\"") && !is_ours(&refused));
        let broken = request(json!({ "files": { "a": "Z" } })).program().unwrap_err();
        assert!(broken.message.contains("\"a\"") && !is_ours(&broken));
    }
}
