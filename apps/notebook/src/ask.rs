//! Asks a fresh interpreter of the pool: it reads and replaces texts as Python does.

use hatchery::{Hatchery, Job, Limits, Verdict};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;
use crate::problem::Problem;

/// The most bytes of a request, and of its answer.
const MOST_BYTES: usize = 64 << 20;

/// What the guest answers.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer<T> {
    Ok(T),
    Unusable(String),
}

/// Runs `source`, whose function `answer` takes a request as JSON and returns an answer as JSON.
/// `unusable` makes the error of a request that can't be answered, and of one that fails.
pub(crate) async fn ask<T: DeserializeOwned>(
    pool: &Hatchery,
    source: &str,
    request: &Value,
    unusable: impl Fn(String) -> Error,
) -> Result<T, Error> {
    // A string of JSON is one of Python.
    let source = format!("{source}\n\nanswer({})\n", Value::from(request.to_string()));
    let (source_bytes, result_bytes) = (MOST_BYTES + source.len(), MOST_BYTES);
    let limits = Limits { source_bytes, result_bytes, ..Limits::default() };
    let outcome = pool.run(Job::code(source).limits(limits)).await?;
    let answer = match &outcome.verdict {
        Verdict::Completed { value: Some(value), .. } => serde_json::to_value(value).ok(),
        _ => None,
    };
    let answer = answer.and_then(|answer| serde_json::from_str(answer.as_str()?).ok());
    match answer {
        Some(Answer::Ok(answer)) => Ok(answer),
        Some(Answer::Unusable(why)) => Err(unusable(why)),
        None => {
            let why = Problem::of(&outcome).map(|problem| problem.to_string());
            Err(unusable(why.unwrap_or_else(|| "it is too large".to_owned())))
        }
    }
}
