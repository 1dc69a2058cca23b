//! A session: one interpreter whose state lives from job to job.

use engine::Outcome;
use scheduler::{SessionRef, Ticket};

use crate::error::Error;
use crate::job::Job;
use crate::runtime::Hatchery;

/// A session: jobs run one after another in one interpreter and see what earlier ones left.
///
/// A job that reaches a limit on time or is cancelled is interrupted by `KeyboardInterrupt`, and
/// the session goes on with its variables; what the job did to files is undone. Only a job that
/// goes on regardless for [`Limits::grace`](crate::Limits::grace), or that traps, takes its
/// interpreter with it. The session is then gone: further jobs are refused with
/// [`Refusal::SessionGone`](crate::Refusal::SessionGone), and [`Hatchery::session`] opens a fresh
/// one under the same name. Clones are the same session.
#[derive(Debug, Clone)]
pub struct Session {
    hatchery: Hatchery,
    name: String,
    session: SessionRef,
}

impl Session {
    pub(crate) fn new(hatchery: Hatchery, name: &str, session: SessionRef) -> Self {
        Self { hatchery, name: name.to_owned(), session }
    }

    /// The name under which it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a job in the session and waits for its outcome.
    ///
    /// # Errors
    /// The job was refused.
    pub async fn run(&self, job: Job) -> Result<Outcome, Error> {
        Ok(self.submit(job).await?.await)
    }

    /// Submits a job to the session.
    ///
    /// # Errors
    /// The job was refused.
    pub async fn submit(&self, job: Job) -> Result<Ticket, Error> {
        self.hatchery.submit_to(job, Some(self.session.session)).await
    }

    /// Ends the session once its jobs have ended. Its state is dropped.
    pub fn close(self) {
        self.hatchery.scheduler().close_session(self.session);
    }
}
