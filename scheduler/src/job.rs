//! A job as it is submitted, and as the shell keeps it.

use engine::{Entry, Limits, Outcome, Program, Value, Variables};
use pool::{SessionId, Task};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A job as it is submitted.
#[derive(Debug, Clone)]
pub struct JobRequest {
    /// What to run.
    pub program: Program,
    /// What it may use.
    pub limits: Limits,
    /// The session to run in; without one, a state of its own.
    pub session: Option<SessionId>,
}

impl JobRequest {
    /// What the job holds in memory while it waits, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let Program { source, filename, args, env, stdin, files, variables, entry, .. } =
            &self.program;
        let files: usize = files.iter().map(|file| file.path.len() + file.contents.len()).sum();
        let env: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
        let args: usize = args.iter().map(String::len).sum();
        let filename = filename.as_ref().map_or(0, String::len);
        let named = |values: &Variables| -> usize {
            values.iter().map(|(name, value)| name.len() + value.bytes()).sum()
        };
        let call = match entry {
            Entry::Call(call) => {
                call.args.iter().map(Value::bytes).sum::<usize>() + named(&call.keywords)
            }
            _ => 0,
        };
        source.len() + filename + args + env + stdin.len() + files + named(variables) + call
    }
}

/// A job that has been admitted and has not ended. The shell keeps it whatever becomes of the
/// worker that runs it.
#[derive(Debug)]
pub(crate) struct LiveJob {
    /// Taken when the job is dispatched.
    pub(crate) task: Option<Task>,
    pub(crate) session: Option<SessionId>,
    pub(crate) stop: engine::StopHandle,
    pub(crate) transcript: std::sync::Arc<engine::Transcript>,
    /// Taken when the outcome is sent.
    pub(crate) reply: Option<oneshot::Sender<Outcome>>,
    pub(crate) submitted: Instant,
    pub(crate) dispatched: Option<Instant>,
}

impl Drop for LiveJob {
    fn drop(&mut self) {
        // Also when the scheduler dies: nobody must wait for output that can't come.
        self.transcript.close();
    }
}
