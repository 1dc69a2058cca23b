//! Tests in their candidate's interpreter, unguarded: for tasks whose tests need that.
//!
//! The candidate's code runs in a separate turn, before the tests are there. Afterwards, what tests
//! rely on must be unchanged, and the report must have a token that came with the tests. A
//! candidate that searches the interpreter for these can still pass.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use hatchery::{Hatchery, Job, Limits, Outcome, Session, Verdict as End};

use super::guarded;
use super::trial::{TestReport, answer, cpu_ms};
use crate::error::GradeError;
use crate::guest;
use crate::task::Task;
use crate::verdict::{Graded, Verdict};

/// The largest report, with the identities of some thousand names.
const REPORT_BYTES: usize = 8 << 20;

/// What no right candidate changes, nor a library of its tests, by how names begin.
const JUDGING: [&str; 3] = ["unittest.", "the trace", "the profile"];

static SESSIONS: AtomicU64 = AtomicU64::new(0);

type Snapshot = BTreeMap<String, u64>;

/// Runs the tests of a task with a program.
pub(crate) async fn run(
    pool: &Hatchery,
    task: &Task,
    code: &str,
    limits: Limits,
) -> Result<Graded, GradeError> {
    let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
    let session = pool.session(&format!("hatchery-grade-{number}")).await?;
    let limits = Limits { result_bytes: REPORT_BYTES, ..limits };
    let graded = turns(&session, task, code, limits).await;
    session.close();
    graded
}

async fn turns(
    session: &Session,
    task: &Task,
    code: &str,
    limits: Limits,
) -> Result<Graded, GradeError> {
    let job = |source: &str| Job::code(source).limits(limits.clone());
    let begun = session.run(job(guest::SHARED_BEGIN)).await?;
    let at_first = match &begun.verdict {
        End::Completed { value, .. } => value.clone(),
        _ => None,
    };
    let Some(at_first) = at_first.and_then(|value| serde_json::from_value(value).ok()) else {
        return Ok(Graded::ended(&begun));
    };
    let loaded = session
        .run(job(guest::SHARED_LOAD).variable("hatchery_code", &*guest::with_wide_maxsize(code)))
        .await?;
    let spent = loaded.usage.cpu;
    if !loaded.passed() {
        let mut graded = Graded::ended(&loaded).blaming("", &loaded);
        if graded.verdict == Verdict::Failed {
            let message = format!("its code can't be run: {}", graded.message);
            graded = Graded::new(Verdict::Error, message);
        }
        return Ok(Graded { cpu_ms: cpu_ms(&loaded), ..graded });
    }
    if let Some(limit) = answer(&loaded) {
        return Ok(Graded { cpu_ms: cpu_ms(&loaded), ..Graded::of_sandbox(limit) });
    }
    let mut left = limits.clone();
    left.cpu_time = limits.cpu_time.map(|time| time.saturating_sub(spent));
    let token = token()?;
    let tests = Job::code(guest::SHARED_TEST)
        .limits(left)
        .variable("hatchery_task", guarded::message(task, code, None))
        .variable("hatchery_token", token.as_str());
    let tested = session.run(tests).await?;
    let graded = match tested.passed() {
        true => reported(&tested, &token, &at_first),
        false => Graded::ended(&tested).blaming("", &tested),
    };
    let cpu = spent.saturating_add(tested.usage.cpu);
    Ok(Graded { cpu_ms: cpu.as_micros() as f64 / 1e3, ..graded })
}

fn reported(tested: &Outcome, token: &str, at_first: &Snapshot) -> Graded {
    type Answer = (String, String, Snapshot, Snapshot);
    let failed = |message: String| Graded::new(Verdict::Failed, message);
    let parsed = answer(tested).and_then(|text| serde_json::from_str::<Answer>(text).ok());
    let Some((received, report, before, after)) = parsed else {
        return failed("its tests gave no report".to_owned());
    };
    if received != token {
        return failed("its report is forged".to_owned());
    }
    let Ok(report) = serde_json::from_str::<TestReport>(&report) else {
        return failed("its tests gave no report".to_owned());
    };
    let graded = Graded::reported(report);
    for (who, snapshot) in [("its code", &before), ("its functions or its tests", &after)] {
        let changed = at_first.iter().filter(|(name, id)| snapshot.get(*name) != Some(*id));
        let mut changed = changed.map(|(name, _)| name.as_str()).peekable();
        let first = changed.peek().copied();
        if let Some(name) = changed.find(|name| JUDGING.iter().any(|own| name.starts_with(own))) {
            return failed(format!("{who} changed `{name}`"));
        }
        if let (Some(name), true) = (first, graded.passed()) {
            let message = format!("{who} changed `{name}`, so that nothing says whether it passes");
            return Graded { verdict: Verdict::Undecided, message, ..graded };
        }
    }
    graded
}

/// Returns what nobody can guess.
fn token() -> Result<String, GradeError> {
    let half = || getrandom::u64().map_err(|error| GradeError::Random(error.to_string()));
    Ok(format!("{:016x}{:016x}", half()?, half()?))
}
