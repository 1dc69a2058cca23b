//! A session: a state that lives from job to job.

use std::path::Path;

use engine::{Outcome, SessionError, SessionState, Workspace};
use pool::{Parked, SessionId};
use scheduler::Ticket;

use crate::checkpoint::Checkpoint;
use crate::error::Error;
use crate::job::Job;
use crate::runtime::Hatchery;

/// A session: jobs run one after another on one state and see what earlier ones left.
///
/// It has no interpreter of its own: its state stays with the worker that ran its last job until
/// that worker is needed for something else, or the session has rested for a while, and is then put
/// aside in memory. When memory is short, or the session rests for longer, it is compressed there
/// or written to disk; [`SessionsConfig`](crate::SessionsConfig) has the times and bounds. So there
/// can be many more sessions than workers. Wherever its state is, the next job finds everything as
/// the last one left it, and pays for bringing it. [`Status::sessions`](crate::Status::sessions)
/// says where it is and why it last had to make room, and [`Hatchery::decisions`] tells of it.
///
/// Its jobs run in the order in which they were submitted, one at a time, whatever their
/// priorities.
///
/// Between jobs the state can be copied: [`fork`](Self::fork) gives another session that goes on
/// from it, and a [`checkpoint`](Self::checkpoint) is there to go back to. While a job of the
/// session runs or waits, that is refused with
/// [`Refusal::SessionBusy`](crate::Refusal::SessionBusy).
///
/// A job that reaches a limit on time or is cancelled is interrupted by `KeyboardInterrupt`, and
/// the session goes on with its variables; what the job did to files is undone. A job that goes on
/// regardless for [`Limits::grace`](crate::Limits::grace), that leaves by `os._exit` or traps, or
/// whose worker dies is undone altogether: the session goes on from where it was before, and
/// [`Outcome::session_restored`] says so.
///
/// That takes a copy of the state, which is made between jobs unless its interpreter has more
/// memory of its own than [`Builder::rollback_bytes`](crate::Builder::rollback_bytes). Without one
/// the session is gone: jobs that wait end with
/// [`SandboxFailure::SessionLost`](crate::SandboxFailure::SessionLost), further ones are refused
/// with [`Refusal::SessionGone`](crate::Refusal::SessionGone),
/// [`DecisionKind::SessionEnded`](crate::DecisionKind::SessionEnded) has the reason, and
/// [`Hatchery::session`] opens a fresh one under the same name. Clones are the same session.
#[derive(Debug, Clone)]
pub struct Session {
    hatchery: Hatchery,
    name: String,
    session: SessionId,
}

impl Session {
    pub(crate) fn new(hatchery: Hatchery, name: &str, session: SessionId) -> Self {
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
        self.hatchery.submit_to(job, Some(self.session)).await
    }

    /// Opens a session under this name that goes on from this one's state. From then on each goes
    /// its own way.
    ///
    /// # Errors
    /// A job of the session runs or waits, the session is gone, a session with this name is open,
    /// too many are, or there is no memory for another one.
    pub async fn fork(&self, name: &str) -> Result<Self, Error> {
        let state = self.hatchery.scheduler().capture(self.session).await?;
        let state = state.as_ref().map(Parked::fork);
        let session = self.hatchery.scheduler().adopt(name, state).await?;
        Ok(Self::new(self.hatchery.clone(), name, session))
    }

    /// The session's state as it is now, to go back to.
    ///
    /// # Errors
    /// A job of the session runs or waits, or the session is gone.
    pub async fn checkpoint(&self) -> Result<Checkpoint, Error> {
        Ok(Checkpoint::new(self.hatchery.scheduler().capture(self.session).await?))
    }

    /// Goes back to a checkpoint, of this session or another one of the same pool. What happened
    /// since is dropped; random numbers are others than after the checkpoint, unless the session is
    /// deterministic.
    ///
    /// # Errors
    /// A job of the session runs or waits, or the session is gone.
    pub async fn restore(&self, checkpoint: &Checkpoint) -> Result<(), Error> {
        let state = checkpoint.state().as_ref().map(Parked::fork);
        Ok(self.hatchery.scheduler().replace(self.session, state).await?)
    }

    /// The files of the session's workspace as they are now: which there are, and what is in them.
    /// A job with [inputs](crate::Job::input) puts files there. Like [`fork`](Self::fork) it has the
    /// session's state copied, unless that was done since its last job.
    ///
    /// # Errors
    /// A job of the session runs or waits, or the session is gone.
    pub async fn workspace(&self) -> Result<Workspace, Error> {
        Ok(self.state().await?.workspace())
    }

    /// Writes the session's state to a file, in one step, for [`Hatchery::revive`] in this process
    /// or another one with the same image. Variables, modules, files, what is open and where it
    /// was read to, and a deterministic clock go along; mounted folders don't, and are mounted
    /// again by the jobs that want them. Returns the bytes written.
    ///
    /// # Errors
    /// A job of the session runs or waits, the session is gone, or the file can't be written.
    pub async fn save(&self, path: impl AsRef<Path>) -> Result<u64, Error> {
        let state = self.state().await?;
        let path = path.as_ref().to_owned();
        let writing = tokio::task::spawn_blocking(move || state.save(&path));
        Ok(writing.await.map_err(|error| Error::Load(error.to_string()))??)
    }

    /// Goes back to where a fresh session starts.
    ///
    /// # Errors
    /// A job of the session runs or waits, or the session is gone.
    pub async fn reset(&self) -> Result<(), Error> {
        Ok(self.hatchery.scheduler().replace(self.session, None).await?)
    }

    /// Ends the session once its jobs have ended. Its state is dropped.
    pub fn close(self) {
        self.hatchery.scheduler().close_session(self.session);
    }

    async fn state(&self) -> Result<SessionState, Error> {
        match self.hatchery.scheduler().capture(self.session).await? {
            Some(parked) => Ok(state_of(&parked)?.clone()),
            None => Ok(SessionState::fresh(self.hatchery.session_image()?)),
        }
    }
}

impl Hatchery {
    /// The session with this name, opened if it isn't open.
    ///
    /// # Errors
    /// Too many sessions are open, no memory is left and no session at rest could give some back,
    /// or the pool is shutting down.
    pub async fn session(&self, name: &str) -> Result<Session, Error> {
        let session = self.scheduler().open_session(name).await?;
        Ok(Session::new(self.clone(), name, session))
    }

    /// Opens a session that [`Session::save`] wrote, here or in another process, under a new name.
    ///
    /// # Errors
    /// The file can't be read, is damaged, or began from another image; a session with this name
    /// is open, or too many are.
    pub async fn revive(&self, name: &str, path: impl AsRef<Path>) -> Result<Session, Error> {
        let image = self.session_image()?.clone();
        let path = path.as_ref().to_owned();
        let reading = tokio::task::spawn_blocking(move || SessionState::revive(&image, &path));
        let state = reading.await.map_err(|error| Error::Load(error.to_string()))??;
        let session = self.scheduler().adopt(name, Some(Parked::new(state))).await?;
        Ok(Session::new(self.clone(), name, session))
    }
}

fn state_of(parked: &Parked) -> Result<&SessionState, SessionError> {
    parked.downcast_ref().ok_or(SessionError::NotParkable)
}
