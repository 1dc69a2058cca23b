//! The requests of the lines, in order.
//!
//! Long lines, and those that may name a program, are parsed on another thread: parsing them can take
//! long, or never end if the program is on a hanging file system. The batch still hears Ctrl-C and
//! writes results meanwhile. Other lines are parsed at once, in less time than a hand-over takes.

use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::clock::sleep;
use crate::error::Error;
use crate::line::{BadLine, NoRequest};
use crate::lines::Lines;
use crate::merge::Shard;
use crate::pool_runner::{PAUSE, TRIES_ALONE};

/// The longest line that is parsed at once, in bytes: in some 10 µs.
const SHORT_BYTES: usize = 4 << 10;

pub(crate) type Parsed<T> = Result<Option<T>, NoRequest>;
/// Parses the line of this number; the flag says whether it is ahead of what the workers need.
type Parse<T> = dyn Fn(&[u8], usize, bool) -> Parsed<T> + Send + Sync;

/// Reads lines, and parses them into requests of one kind.
pub(crate) struct Requests<T> {
    lines: Lines,
    parse: Arc<Parse<T>>,
    workers: usize,
    /// The shard whose lines are returned; without one, all are.
    shard: Option<Shard>,
    /// The last line read, until it is returned. Kept here, so that dropping `next` loses nothing.
    present: Option<Arc<[u8]>>,
    parsing: Option<JoinHandle<Parsed<T>>>,
}

impl<T: Send + 'static> Requests<T> {
    /// Parses lines in this way; its flag says whether a line is ahead of what the workers need.
    pub(crate) fn new(
        lines: Lines,
        parse: impl Fn(&[u8], usize, bool) -> Parsed<T> + Send + Sync + 'static,
        workers: usize,
        shard: Option<Shard>,
    ) -> Self {
        Self { lines, parse: Arc::new(parse), workers, shard, present: None, parsing: None }
    }

    /// Returns the number of the last returned line, from 1.
    pub(crate) fn number(&self) -> usize {
        self.lines.number()
    }

    /// Returns the request of the next line that isn't empty; `None` at the end of the input.
    /// `others` is the number of earlier jobs that haven't ended. If this is dropped and called
    /// again after one has ended, a line that waits for descriptors is retried at once. Cancel-safe.
    /// Fails if the input can't be read, or if a line gets no descriptor although no job runs.
    pub(crate) async fn next(
        &mut self,
        others: usize,
    ) -> Result<Option<Result<T, BadLine>>, Error> {
        let mut tries = 0;
        loop {
            let line = match &self.present {
                Some(line) => Arc::clone(line),
                None => match self.lines.next().await.map_err(Error::Read)? {
                    Some(Ok(line)) if self.shard.is_some_and(|shard| !shard.has(&line)) => continue,
                    Some(Ok(line)) => Arc::clone(self.present.insert(line.into())),
                    Some(Err(_)) if self.shard.is_some_and(|shard| self.is_beyond(shard)) => {
                        continue;
                    }
                    Some(Err(too_long)) => {
                        let problem = format!("the line is {too_long}");
                        return Ok(Some(Err(BadLine { id: self.number().into(), problem })));
                    }
                    None => return Ok(None),
                },
            };
            let request = match self.parsed(line, others >= self.workers).await? {
                Err(NoRequest::NoDescriptor(problem)) => {
                    tries += 1;
                    if others == 0 && tries >= TRIES_ALONE {
                        return Err(Error::NoDescriptor { line: self.number(), problem });
                    }
                    // The worker of a job that has ended may still hold some.
                    sleep(PAUSE).await;
                    continue;
                }
                Ok(request) => request.map(Ok),
                Err(NoRequest::Bad(bad)) => Some(Err(bad)),
            };
            self.present = None;
            if request.is_some() {
                return Ok(request);
            }
        }
    }

    /// Returns whether the present line, which is too long, belongs to another shard.
    fn is_beyond(&self, shard: Shard) -> bool {
        Shard::of_too_long(self.number(), shard.count()) != shard
    }

    async fn parsed(&mut self, line: Arc<[u8]>, is_ahead: bool) -> Result<Parsed<T>, Error> {
        if self.parsing.is_none() && is_parsed_at_once(&line) {
            return Ok((self.parse)(&line, self.lines.number(), is_ahead));
        }
        let parsing = self.parsing.get_or_insert_with(|| {
            let (parse, number) = (Arc::clone(&self.parse), self.lines.number());
            tokio::task::spawn_blocking(move || parse(&line, number, is_ahead))
        });
        let parsed = parsing.await;
        self.parsing = None;
        parsed.map_err(Error::Task)
    }
}

/// Returns whether a line is short and doesn't name a program, whose key may be written with escapes.
fn is_parsed_at_once(line: &[u8]) -> bool {
    let has = |text: &[u8]| line.windows(text.len()).any(|part| part == text);
    line.len() <= SHORT_BYTES && !has(b"file") && !has(b"\\u")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::io::BufReader;

    use super::*;
    use crate::line::{self, Request};
    use crate::pool_runner::{LineJob, prepare};

    fn requests(
        text: &'static str,
        parse: impl Fn(&[u8], usize, bool) -> Parsed<Request<LineJob>> + Send + Sync + 'static,
    ) -> Requests<Request<LineJob>> {
        Requests::new(Lines::new(BufReader::new(text.as_bytes())), parse, 2, None)
    }

    fn parse(line: &[u8], number: usize) -> Parsed<Request<LineJob>> {
        line::parse(line, number, false, &[], |line| prepare(line, |job| job))
    }

    /// Finds no descriptor `of` times, then parses.
    fn short(
        of: u32,
    ) -> impl Fn(&[u8], usize, bool) -> Parsed<Request<LineJob>> + Send + Sync + 'static {
        let tries = AtomicU32::new(0);
        move |line, number, _| match tries.fetch_add(1, Ordering::Relaxed) {
            tried if tried < of => Err(NoRequest::NoDescriptor("none is left".to_owned())),
            _ => parse(line, number),
        }
    }

    #[test]
    fn only_short_lines_without_programs_are_parsed_at_once() {
        assert!(is_parsed_at_once(br#"{"code": "x = 1\n"}"#));
        assert!(!is_parsed_at_once(br#"{"file": "x.py"}"#));
        assert!(!is_parsed_at_once(br#"{"\u0066ile": "x.py"}"#));
        assert!(!is_parsed_at_once(&[b' '; SHORT_BYTES + 1]));
    }

    #[tokio::test]
    async fn lines_come_in_their_order_with_their_numbers() {
        let text = "{\"code\": \"1\"}\n\n{}\n{\"code\": \"2\"}";
        let mut requests = requests(text, |line, number, _| parse(line, number));
        let mut come = Vec::new();
        while let Some(request) = requests.next(0).await.unwrap() {
            let source = request.map(|request| request.job.job.source().to_owned());
            come.push((requests.number(), source.map_err(|bad| bad.id)));
        }
        let source = |text: &str| Ok(text.to_owned());
        assert_eq!(come, [(1, source("1")), (3, Err(3.into())), (4, source("2"))]);
    }

    #[tokio::test]
    async fn dropping_a_wait_for_a_line_loses_none() {
        let (goes_on, waits) = std::sync::mpsc::channel();
        let waits = Mutex::new(waits);
        let line = "{\"code\": \"'may name a file'\"}\n";
        let mut requests = requests(line, move |line, number, _| {
            waits.lock().unwrap().recv().unwrap();
            parse(line, number)
        });
        // Parsing doesn't block the task.
        for _ in 0..3 {
            tokio::select! {
                biased;
                _ = requests.next(0) => panic!("nothing let it go on"),
                () = tokio::task::yield_now() => {}
            }
        }
        goes_on.send(()).unwrap();
        assert!(requests.next(0).await.unwrap().unwrap().is_ok());
        assert!(requests.next(0).await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_waits_for_descriptors_as_long_as_jobs_run() {
        let line = "{\"code\": \"1\"}\n";
        let mut many = requests(line, short(3 * TRIES_ALONE));
        assert!(many.next(1).await.unwrap().unwrap().is_ok());
        let mut few = requests(line, short(TRIES_ALONE - 1));
        assert!(few.next(0).await.unwrap().unwrap().is_ok());
        let mut alone = requests(line, short(TRIES_ALONE));
        let problem = alone.next(0).await.unwrap_err().to_string();
        assert!(problem.starts_with("line 1: none is left"), "{problem}");
        assert!(problem.contains("ulimit -n"), "{problem}");
    }

    #[tokio::test]
    async fn lines_are_ahead_once_each_worker_has_a_job() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sees = Arc::clone(&seen);
        let text = "{\"code\": \"\"}\n{\"code\": \"\"}\n";
        let mut requests = requests(text, move |line, number, is_ahead| {
            sees.lock().unwrap().push(is_ahead);
            parse(line, number)
        });
        for others in [1, 2] {
            assert!(requests.next(others).await.unwrap().is_some());
        }
        assert_eq!(*seen.lock().unwrap(), [false, true]);
    }
}
