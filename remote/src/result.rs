//! Results that no program made: of jobs that were refused, cancelled or given up.

use hatchery::{Outcome, Verdict};
use serde_json::{Value, json};
use wire::Problem;

use crate::policy::Start;

/// The reason in the error of a dead letter.
pub(crate) const DEAD_LETTER: &str = "dead_letter";

/// Returns the result of a job that a pool didn't take, as in a batch: its error always has a
/// `reason`, which is null if there is none.
pub(crate) fn refused(problem: &Problem) -> Value {
    let mut error = json!(problem);
    error["reason"] = json!(problem.reason);
    json!({ "success": false, "passed": false, "error": error })
}

/// Returns the result of a job that was cancelled before anybody ran it.
pub(crate) fn cancelled() -> Value {
    Outcome::not_run(Verdict::Cancelled).to_tool_json()
}

/// Returns the result of a job that failed through no fault of its program.
pub(crate) fn failed(problem: &Problem) -> Value {
    let mut result = cancelled();
    result["status"] = "sandbox_failed".into();
    result["error"] = json!(problem);
    result
}

/// Returns the result of a job whose starts have all taken their workers down.
pub(crate) fn dead_letter(history: &[Start]) -> Value {
    let message = format!(
        "the job was started {} times, and each time whoever ran it died; the last time it ran alone",
        history.len()
    );
    let problem = Problem::new(wire::ProblemKind::Sandbox, message).with_reason(DEAD_LETTER);
    let mut result = failed(&problem);
    result["error"]["history"] = json!(history);
    result
}
