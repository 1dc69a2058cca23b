//! Tests in their candidate's interpreter, unguarded: for tasks whose tests need that.
//!
//! The candidate's code runs in a separate turn, before the tests are there. Afterwards, what tests
//! rely on must be unchanged, and the report must have a token that came with the tests. A
//! candidate that searches the interpreter for these can still pass.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hatchery::{Hatchery, Job, Limits, Outcome, Session, Verdict as End};
use serde_json::Value;

use super::guarded;
use super::trial::{TestReport, Trial, cpu_ms};
use crate::error::GradeError;
use crate::guest;
use crate::task::Task;
use crate::verdict::Verdict;

/// The largest report, with the identities of some thousand names.
const REPORT_BYTES: usize = 8 << 20;

static SESSIONS: AtomicU64 = AtomicU64::new(0);

type Snapshot = BTreeMap<String, u64>;

/// Runs the tests of a task with a program.
pub(crate) async fn run(
    pool: &Hatchery,
    task: &Task,
    code: &str,
    limits: Limits,
) -> Result<Trial, GradeError> {
    let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
    let session = pool.session(&format!("hatchery-grade-{number}")).await?;
    let limits = Limits { result_bytes: REPORT_BYTES, ..limits };
    let trial = turns(&session, task, code, limits).await;
    session.close();
    trial
}

async fn turns(
    session: &Session,
    task: &Task,
    code: &str,
    limits: Limits,
) -> Result<Trial, GradeError> {
    let job = |source: &str| Job::code(source).limits(limits.clone());
    let begun = session.run(job(guest::SHARED_BEGIN)).await?;
    let Some(at_first) = value(&begun).and_then(|value| serde_json::from_value(value).ok()) else {
        return Ok(Trial::ended(&begun));
    };
    let loaded = session
        .run(job(guest::SHARED_LOAD).variable("hatchery_code", &*guest::with_wide_maxsize(code)))
        .await?;
    let spent = loaded.usage.cpu;
    if !loaded.passed() {
        let trial = Trial::ended(&loaded).blaming(&loaded);
        let trial = match trial.verdict {
            Verdict::Failed => Trial::error(format!("its code can't be run: {}", trial.message)),
            _ => trial,
        };
        return Ok(Trial { cpu_ms: cpu_ms(&loaded), ..trial });
    }
    if let Some(Value::String(limit)) = value(&loaded) {
        return Ok(Trial { cpu_ms: cpu_ms(&loaded), ..Trial::of_sandbox(&limit) });
    }
    let mut left = limits.clone();
    left.cpu_time = limits.cpu_time.map(|time| time.saturating_sub(spent));
    let token = token()?;
    let tests = Job::code(guest::SHARED_TEST)
        .limits(left)
        .variable("hatchery_task", guarded::message(task, code, None))
        .variable("hatchery_token", token.as_str());
    let tested = session.run(tests).await?;
    let trial = match tested.passed() {
        true => reported(&tested, &token, &at_first),
        false => Trial::ended(&tested).blaming(&tested),
    };
    let cpu = spent.saturating_add(tested.usage.cpu).max(Duration::ZERO);
    Ok(Trial { cpu_ms: cpu.as_micros() as f64 / 1e3, ..trial })
}

fn reported(tested: &Outcome, token: &str, at_first: &Snapshot) -> Trial {
    let failed = |message: String| Trial::new(Verdict::Failed, message);
    let parsed = value(tested)
        .and_then(|value| Some(value.as_str()?.to_owned()))
        .and_then(|text| serde_json::from_str::<(String, String, Snapshot, Snapshot)>(&text).ok());
    let Some((received, report, before, after)) = parsed else {
        return failed("its tests gave no report".to_owned());
    };
    if received != token {
        return failed("its report is forged".to_owned());
    }
    for (when, snapshot) in [("its code", &before), ("its functions", &after)] {
        let changed = at_first.iter().find(|(name, id)| snapshot.get(*name) != Some(*id));
        if let Some((name, _)) = changed {
            return failed(format!("{when} changed `{name}`"));
        }
    }
    match serde_json::from_str::<TestReport>(&report) {
        Ok(report) => Trial::reported(report),
        Err(_) => failed("its tests gave no report".to_owned()),
    }
}

fn value(outcome: &Outcome) -> Option<Value> {
    match &outcome.verdict {
        End::Completed { value, .. } => value.clone(),
        _ => None,
    }
}

/// Returns what nobody can guess.
fn token() -> Result<String, GradeError> {
    let half = || getrandom::u64().map_err(|error| GradeError::Random(error.to_string()));
    Ok(format!("{:016x}{:016x}", half()?, half()?))
}
