//! Grades many samples at once, each only if no earlier result says what became of it.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::error::GradeError;
use crate::grader::Grader;
use crate::results::{Earlier, ResultsFile};
use crate::sample::Sample;
use crate::task::Task;
use crate::verdict::Graded;

/// Grades samples, as many at once as the grader's settings say, and returns the results in the order of
/// the samples. `out` gets each result as it comes, but not those that it has; `tell` is called with
/// each, and whether it was graded now.
///
/// # Errors
/// The pool refuses a job, or the results can't be written. What was written stays.
pub async fn grade_all(
    grader: Arc<Grader>,
    tasks: Arc<[Task]>,
    samples: Vec<Sample>,
    mut out: Option<ResultsFile>,
    mut earlier: Earlier,
    mut tell: impl FnMut(&Graded, bool),
) -> Result<Vec<Graded>, GradeError> {
    let mut results: Vec<Option<Graded>> = vec![None; samples.len()];
    // Samples that are equal to one that is being graded wait for it.
    let mut first_of = std::collections::HashMap::new();
    let mut waiting = Vec::new();
    let mut running = JoinSet::new();
    let most = grader.settings().at_once;
    let mut next = samples.into_iter().enumerate();
    loop {
        while running.len() < most {
            let Some((place, sample)) = next.next() else { break };
            let task_id = &tasks[sample.task].id;
            let digest = grader.digest(&tasks[sample.task], &sample.code);
            if let Some(graded) = earlier.find(&digest, task_id, sample.number) {
                put(&mut out, &earlier, &graded)?;
                tell(&graded, false);
                results[place] = Some(graded);
                continue;
            }
            if first_of.contains_key(&digest) {
                waiting.push((place, sample, digest));
                continue;
            }
            first_of.insert(digest, place);
            let (grader, tasks) = (grader.clone(), tasks.clone());
            running.spawn(async move { (place, grader.grade(&tasks[sample.task], &sample).await) });
        }
        let Some(joined) = running.join_next().await else { break };
        let (place, graded) = joined.map_err(|error| GradeError::Task(error.to_string()))?;
        let graded = graded?;
        put(&mut out, &earlier, &graded)?;
        earlier.add(&graded);
        tell(&graded, true);
        results[place] = Some(graded);
    }
    for (place, sample, digest) in waiting {
        let task_id = &tasks[sample.task].id;
        let first = first_of.get(&digest).and_then(|&first| results[first].clone());
        if let Some(first) = first {
            let graded = Graded { task_id: task_id.clone(), sample: sample.number, ..first };
            put(&mut out, &earlier, &graded)?;
            tell(&graded, false);
            results[place] = Some(graded);
        }
    }
    Ok(results.into_iter().flatten().collect())
}

fn put(
    out: &mut Option<ResultsFile>,
    earlier: &Earlier,
    graded: &Graded,
) -> Result<(), GradeError> {
    match out {
        Some(out) if !earlier.is_written(graded) => out.put(graded),
        _ => Ok(()),
    }
}
