//! The pool of processes, from outside.

use std::sync::Arc;
use std::time::Duration;

use engine::{Limits, Outcome, Program, Verdict, chain};
use pool::{BuildId, Builds, PoolConfig, SessionId};
use process::{Helper, ProcessSource, TEST_HOOK};
use scheduler::{JobRequest, Scheduler, SchedulerConfig, WorkersConfig};
use tokio::runtime::Runtime;

use test_support::processes::children;

/// The workers: one that is compromised, and a neighbour.
pub(crate) const WORKERS: usize = 2;

/// The longest that anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pool of two worker processes.
pub(crate) struct Pool {
    runtime: Runtime,
    scheduler: Option<Scheduler>,
}

impl Pool {
    pub(crate) fn start() -> Self {
        let image = crate::load().unwrap();
        let source =
            ProcessSource::start(&image, &Helper::Itself, Vec::new(), false, 16 << 30).unwrap();
        let source = Builds::new(Arc::new(source));
        let config = SchedulerConfig {
            concurrent: WORKERS,
            workers: WorkersConfig { spares: 0, ..WorkersConfig::fixed(WORKERS) },
            ..SchedulerConfig::default()
        };
        let runtime = Runtime::new().unwrap();
        let scheduler = runtime.block_on(Scheduler::start(config, PoolConfig::default(), source));
        let pool = Self { runtime, scheduler: Some(scheduler.unwrap()) };
        pool.check();
        pool
    }

    fn scheduler(&self) -> &Scheduler {
        self.scheduler.as_ref().unwrap()
    }

    pub(crate) fn open_session(&self, name: &str) -> SessionId {
        self.runtime.block_on(self.scheduler().open_session(name, BuildId::default())).unwrap().0
    }

    pub(crate) fn close_session(&self, session: SessionId) {
        self.scheduler().close_session(session);
    }

    /// Runs a source, once.
    pub(crate) fn run(&self, source: &str, session: Option<SessionId>) -> Outcome {
        let program = Program { source: source.to_owned(), ..Program::default() };
        let limits = Limits { wall_time: Duration::from_secs(5), ..Limits::default() };
        let idempotent = Some(false);
        let request = JobRequest { program, limits, session, idempotent, ..JobRequest::default() };
        self.runtime.block_on(async {
            let ticket = self.scheduler().submit(request).await.unwrap();
            let ended = tokio::time::timeout(PATIENCE, ticket.into_future()).await;
            ended.unwrap_or_else(|_| panic!("no outcome: {source}"))
        })
    }

    /// Has a worker run native code; returns the text of the value, or how the worker died.
    pub(crate) fn compromise(&self, words: &str) -> Result<String, String> {
        let outcome = self.run(&format!("{TEST_HOOK}{words}"), None);
        match &outcome.verdict {
            Verdict::Completed { value: Some(value), .. } => Ok(value.to_string()),
            Verdict::SandboxFailed(failure) => Err(chain(failure).to_string()),
            other => panic!("{words}: {other:?}"),
        }
    }

    /// Runs a job on each worker, at once.
    pub(crate) fn check(&self) {
        self.runtime.block_on(async {
            let mut tickets = Vec::new();
            for number in 0..WORKERS {
                let source = format!("sum(range({number}, 100))");
                let program = Program { source, ..Program::default() };
                let request = JobRequest { program, ..JobRequest::default() };
                tickets.push(self.scheduler().submit(request).await.unwrap());
            }
            for ticket in tickets {
                let ended = tokio::time::timeout(PATIENCE, ticket.into_future()).await;
                let outcome = ended.expect("a job after an attempt ends");
                let Verdict::Completed { value: Some(value), .. } = &outcome.verdict else {
                    panic!("{:?}", outcome.verdict)
                };
                assert_eq!(value.as_u64(), Some(4950));
            }
        });
    }

    /// Returns the helper and the workers that it has forked.
    pub(crate) fn processes(&self) -> (u32, Vec<u32>) {
        let helpers = children(std::process::id());
        let [helper] = helpers[..] else { panic!("one helper: {helpers:?}") };
        (helper, children(helper))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(scheduler) = self.scheduler.take() {
            self.runtime.block_on(scheduler.drain());
        }
    }
}
