//! The loop of a batch, with a runner that its lines script.

use crate::scripts::NoJob;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::runner::{Parsed, Prepared, RunError};

/// A runner whose jobs end as their programs say.
#[derive(Default)]
struct Scripted {
    has_folders: bool,
    /// Lets each job named here end when the one before it in the list has ended.
    order: Arc<Order>,
    running: Arc<AtomicUsize>,
    most_running: Arc<AtomicUsize>,
}

/// The programs of jobs, in the order in which they end.
#[derive(Default)]
struct Order {
    left: Mutex<VecDeque<&'static str>>,
    changed: tokio::sync::Notify,
}

impl Order {
    async fn turn_of(&self, code: &str) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.left.lock().unwrap().front().is_none_or(|first| *first == code) {
                break;
            }
            changed.await;
        }
        self.left.lock().unwrap().pop_front();
        self.changed.notify_waiters();
    }
}

impl Runner for Scripted {
    type Job = String;

    fn prepare(&self, line: Parsed) -> Result<Prepared<String>, NoJob> {
        assert!(line.script.is_none());
        let job = line.job.code.unwrap_or_default();
        Ok(Prepared { bytes: job.len(), job })
    }

    fn workers(&self) -> usize {
        2
    }

    fn has_room(&self, ahead: Ahead) -> bool {
        assert_eq!(ahead.jobs == 0, ahead.bytes == 0, "{ahead:?}");
        ahead.jobs < 4
    }

    fn names_folders(&self) -> bool {
        self.has_folders
    }

    fn run(
        &self,
        line: Line<String>,
    ) -> impl Future<Output = Result<Ran, RunError>> + Send + 'static + use<> {
        let (order, running) = (Arc::clone(&self.order), Arc::clone(&self.running));
        let now = running.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_running.fetch_max(now, Ordering::Relaxed);
        async move {
            order.turn_of(&line.job).await;
            running.fetch_sub(1, Ordering::Relaxed);
            let result = json!({ "code": line.job, "number": line.number, "folder": line.folder });
            match line.job.as_str() {
                "lost" => Err("the connection is lost".into()),
                "refused" => Ok(Ran::invalid(line.number, "no")),
                "fails" => Ok(Ran::new(result, Ending::Failed)),
                "unkept" => Ok(Ran::new(result, Ending::Failed).not_kept("disk full".to_owned())),
                _ => Ok(Ran::new(result, Ending::Succeeded)),
            }
        }
    }
}

/// What a batch reported, as text.
type Told = Vec<String>;

/// Runs a batch. Returns how it ended, what it wrote and what it reported.
async fn ran(
    batch: Batch<Scripted>,
    text: &'static str,
    before: &str,
) -> (Result<Summary, Error>, Vec<Value>, Told) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    std::fs::write(&path, before).unwrap();
    let mut told = Told::new();
    let output = Output::resume(&path, None).unwrap();
    let ended = batch
        .run(Lines::new(text.as_bytes()), output, |event| {
            told.push(match event {
                Event::Done { id, ending, is_earlier, tally } => {
                    let when = if is_earlier { "earlier" } else { "now" };
                    format!("{id} {} {when} {}", ending.name(), tally.done())
                }
                Event::NotKept { id, problem } => format!("{id} {problem}"),
                Event::AllRead(lines) => format!("{lines} lines"),
            });
        })
        .await;
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(written.is_empty() || written.ends_with('\n'), "{written}");
    let results = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (ended, results, told)
}

fn ordered_by(left: &[&'static str]) -> Scripted {
    let runner = Scripted::default();
    runner.order.left.lock().unwrap().extend(left);
    runner
}

const THREE: &str = "{\"id\": \"a\", \"code\": \"a\"}\n\n{\"code\": \"b\"}\nno job\n\
                     {\"id\": \"c\", \"code\": \"c\"}\n";

fn ids(results: &[Value]) -> Vec<Value> {
    results.iter().map(|result| result["id"].clone()).collect()
}

#[tokio::test]
async fn each_line_has_one_result_as_jobs_end_or_in_order() {
    let (ended, results, told) = ran(Batch::new(ordered_by(&["c", "b", "a"])), THREE, "").await;
    let tally = ended.unwrap().tally;
    assert_eq!((tally.succeeded(), tally.malformed(), tally.done()), (3, 1, 4));
    // The line that is no job has its result as soon as it is read.
    assert_eq!(ids(&results), [json!(4), json!("c"), json!(3), json!("a")]);
    assert_eq!(results[2]["number"], 3);
    assert!(results.iter().all(|result| (result["digest"].is_null()) == (result["id"] == 4)));
    assert!(results[0]["error"]["message"].as_str().unwrap().starts_with("line 4: "));
    assert!(told.contains(&"4 lines".to_owned()), "{told:?}");
    assert_eq!(told.last().unwrap(), "\"a\" succeeded now 4");

    let batch = Batch::new(ordered_by(&["c", "b", "a"])).ordered();
    let (_, results, _) = ran(batch, THREE, "").await;
    assert_eq!(ids(&results), [json!("a"), json!(3), json!(4), json!("c")]);
}

#[tokio::test]
async fn lines_with_an_earlier_result_do_not_run_and_keep_their_folders() {
    let (_, results, _) = ran(Batch::new(Scripted::default()), THREE, "").await;
    let result = |id: Value| results.iter().find(|result| result["id"] == id).unwrap().clone();
    let text = "{\"code\": \"1\"}\n{\"id\": 1, \"code\": \"x\"}\n";
    let (mut a, gone) = (result(json!("a")), json!({ "id": 9, "digest": "d", "success": false }));
    // The program's own, which this runner doesn't say.
    a["success"] = true.into();
    let before = format!("{a}\n{gone}\n");
    let (ended, results, told) = ran(Batch::new(Scripted::default()), THREE, &before).await;
    let ended = ended.unwrap();
    assert_eq!((ended.tally.earlier(), ended.tally.done(), ended.unclaimed), (1, 4, 1));
    assert_eq!(results.len(), 5, "{results:?}");
    assert!(told.contains(&"\"a\" succeeded earlier 1".to_owned()), "{told:?}");

    let runner = Scripted { has_folders: true, ..Scripted::default() };
    let (ended, results, _) = ran(Batch::new(runner).ordered(), text, "").await;
    let folders: Vec<&Value> = results.iter().map(|result| &result["folder"]).collect();
    assert_eq!(folders, ["1", "1~2"]);
    let repeated = ended.unwrap().repeated_ids.unwrap();
    assert_eq!((repeated.count, repeated.line), (1, 2));
}

#[tokio::test]
async fn what_is_wrong_with_one_job_does_not_end_the_batch() {
    let text = "{\"code\": \"refused\"}\n{\"code\": \"unkept\"}\n{\"code\": \"fails\"}\n";
    let (ended, results, told) = ran(Batch::new(Scripted::default()).ordered(), text, "").await;
    let tally = ended.unwrap().tally;
    assert_eq!((tally.of(Ending::Refused), tally.of(Ending::Failed)), (1, 2));
    assert_eq!(tally.unsuccessful(), 3);
    assert_eq!(results[0]["error"]["message"], "line 1: no");
    assert!(results[0].get("digest").is_none() && results[1].get("digest").is_some());
    assert!(told.contains(&"2 disk full".to_owned()), "{told:?}");
}

#[tokio::test]
async fn a_runner_that_fails_ends_the_batch_with_its_cause() {
    let text = "{\"code\": \"a\"}\n{\"id\": \"here\", \"code\": \"lost\"}\n";
    let (ended, results, _) = ran(Batch::new(ordered_by(&["a", "lost"])), text, "").await;
    let error = hatchery::error::chain(&ended.unwrap_err()).to_string();
    assert_eq!(error, "can't run the line with id \"here\": the connection is lost");
    assert_eq!(ids(&results), [json!(1)]);
}

#[tokio::test]
async fn no_more_lines_are_read_than_the_runner_has_room_for() {
    let runner = Scripted::default();
    let most = Arc::clone(&runner.most_running);
    let text = "{\"code\": \"a\"}\n".repeat(50);
    let (ended, results, _) = ran(Batch::new(runner), text.leak(), "").await;
    assert_eq!((ended.unwrap().tally.succeeded(), results.len()), (50, 50));
    assert!((1..=4).contains(&most.load(Ordering::Relaxed)));
}

/// Gives its text, and then fails.
struct Breaking(&'static [u8]);

impl tokio::io::AsyncRead for Breaking {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        let text = std::mem::take(&mut self.0);
        buffer.put_slice(text);
        std::task::Poll::Ready(match text {
            [] => Err(std::io::Error::other("the disk is gone")),
            _ => Ok(()),
        })
    }
}

#[tokio::test]
async fn lines_before_one_that_cannot_be_read_have_their_results() {
    let text = b"{\"code\": \"a\"}\n{\"code\": \"b\"}\n";
    let reader = tokio::io::BufReader::new(Breaking(text));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let output = Output::create(&path, Some("1/1".parse().unwrap())).await.unwrap();
    let batch = Batch::new(ordered_by(&["b", "a"]));
    let error = batch.run(Lines::new(reader), output, |_| ()).await.unwrap_err();
    assert!(matches!(error, Error::Read(_)) && !error.is_usage(), "{error:?}");
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written.lines().count(), 2, "{written}");
    assert!(written.contains(r#""shard":"1/1""#), "{written}");
}

#[tokio::test]
async fn a_batch_can_be_a_task_of_its_own() {
    let lines = Lines::new(&b"{\"code\": \"a\"}\n"[..]);
    let output = Output::stream(tokio::io::sink(), None);
    let task = tokio::spawn(Batch::new(Scripted::default()).run(lines, output, |_| ()));
    assert_eq!(task.await.unwrap().unwrap().tally.succeeded(), 1);
}
