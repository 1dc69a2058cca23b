//! A session: a state that lives from job to job.

use std::path::Path;

use engine::{Cause, Outcome, SessionError, SessionState, Workspace};
use pool::{BuildId, SessionId, Suspended};
use scheduler::Ticket;

use crate::failure::Error;
use crate::functions::{ExposedFunctions, HostFunction};
use crate::job::Job;
use crate::pythons::InvalidPython;
use crate::record::recorders::SessionRecorder;
use crate::runtime::Hatchery;

/// A session: jobs run one after another on one state, and each sees what earlier ones left.
///
/// It has no fixed interpreter. Its state stays with its last worker until another job needs that
/// worker, or the session idles for a while. Then the state is suspended in memory. When memory is
/// short, or the session stays idle for longer, the state is compressed or offloaded to disk.
/// [`SessionsConfig`](crate::SessionsConfig) has the times and bounds. So there can be many more
/// sessions than workers. The next job always finds everything as the last one left it, and pays
/// for resuming it. [`Status::sessions`](crate::status::Status::sessions) shows where it is and why
/// it was last evicted, and [`Hatchery::decisions`] reports evictions as they happen.
///
/// Its jobs run in order of submission, one at a time, whatever their priorities.
///
/// Between jobs the state can be copied. [`fork`](Self::fork) opens another session that continues
/// from it, and a [`checkpoint`](Self::checkpoint) can be restored later. While a job of the
/// session runs or waits, both are refused with
/// [`Refusal::SessionBusy`](crate::Refusal::SessionBusy).
///
/// A job that reaches a limit on time or is cancelled gets a `KeyboardInterrupt`. The session keeps
/// its variables; the job's changes to files are undone. A job is undone completely if it ignores
/// the interrupt for [`Limits::grace`](crate::Limits::grace), leaves by `os._exit`, traps, or loses
/// its worker. The session then continues from its state before the job, and
/// [`Outcome::session_restored`] is true.
///
/// That needs a copy of the state, which is made between jobs unless the interpreter's private
/// memory exceeds [`Builder::rollback_bytes`](crate::Builder::rollback_bytes). Without a copy the
/// session is lost. Waiting jobs end with
/// [`SandboxFailure::SessionLost`](crate::SandboxFailure::SessionLost), further ones are refused
/// with [`Refusal::SessionGone`](crate::Refusal::SessionGone), and
/// [`DecisionKind::SessionEnded`](crate::decision::DecisionKind::SessionEnded) has the reason.
/// [`Hatchery::session`] opens a fresh session under the same name. Clones are the same session.
#[derive(Debug, Clone)]
pub struct Session {
    pub(crate) hatchery: Hatchery,
    pub(crate) name: String,
    pub(crate) session: SessionId,
    /// The build of its interpreters.
    pub(crate) build: BuildId,
    /// The functions that this handle lends, and those with the pool's.
    pub(crate) own: Vec<HostFunction>,
    pub(crate) exposed: ExposedFunctions,
}

impl Session {
    pub(crate) fn new(hatchery: Hatchery, name: &str, session: SessionId, build: BuildId) -> Self {
        let exposed = hatchery.functions.clone();
        Self { hatchery, name: name.to_owned(), session, build, own: Vec::new(), exposed }
    }

    /// Returns the name under which it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the Python build on which it always runs. So do its forks and its saved
    /// states.
    pub fn python(&self) -> &str {
        self.hatchery.pythons.name(self.build)
    }

    /// Returns whether both are handles of the same session. A session that was opened again after
    /// it was closed or lost is another one.
    pub fn is_same(&self, other: &Self) -> bool {
        self.session == other.session
    }

    /// Runs a job in the session and waits for its outcome.
    ///
    /// ```no_run
    /// # async fn example(session: hatchery::Session) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// session.run(Job::code("x = 42")).await?;
    /// assert_eq!(session.run(Job::code("print(x)")).await?.stdout_text(), "42\n");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The job was refused.
    pub async fn run(&self, job: Job) -> Result<Outcome, Error> {
        Ok(self.submit(job).await?.await)
    }

    /// Submits a job to the session.
    ///
    /// ```no_run
    /// # async fn example(session: hatchery::Session) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// let ticket = session.submit(Job::code("while True: pass")).await?;
    /// // The program is interrupted as by Ctrl-C, and the session keeps its variables.
    /// ticket.interrupt();
    /// ticket.await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The job was refused.
    pub async fn submit(&self, mut job: Job) -> Result<Ticket, Error> {
        if let Some(recorder) = self.hatchery.recorders.of(self.session) {
            job.turn = Some(recorder.turn(self.state()).await?);
        }
        self.hatchery.submit_to(Some((self.session, self.build)), job, &self.exposed).await
    }

    /// Returns the session with a host function that its jobs can call. It comes before a function
    /// of the same name of the pool, and a [job's](Job::function) comes before it.
    ///
    /// The function belongs to this handle, not to the session's state. Clones of the handle and
    /// [forked](Self::fork) sessions have it. A session that [`Hatchery::session`] or
    /// [`Hatchery::revive`] returns has only the pool's functions, so add its functions again. A
    /// restored checkpoint changes nothing about them. In jobs that can't call the function, a
    /// reference that an earlier job kept raises `AttributeError`.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::{HostError, HostFunction, Job};
    ///
    /// let user = "ada".to_owned();
    /// let name = HostFunction::sync("user", move |()| Ok::<_, HostError>(user.clone()));
    /// let session = pool.session("ada").await?.function(name.no_parameters())?;
    /// session.run(Job::code("from hatchery import host")).await?;
    /// assert_eq!(session.run(Job::code("print(host.user())")).await?.stdout_text(), "ada\n");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Python doesn't allow the name, or the handle has a function of this name.
    pub fn function(self, function: HostFunction) -> Result<Self, Error> {
        self.functions([function])
    }

    /// Returns the session with host functions that its jobs can call, as [`Self::function`] does.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::{HostError, HostFunction};
    ///
    /// let constants = [("e", 2.718), ("pi", 3.142)].map(|(name, value)| {
    ///     HostFunction::sync(name, move |()| Ok::<_, HostError>(value)).no_parameters()
    /// });
    /// let session = pool.session("analysis").await?.functions(constants)?;
    /// # drop(session);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::function`]; no function is added then.
    pub fn functions(
        mut self,
        functions: impl IntoIterator<Item = HostFunction>,
    ) -> Result<Self, Error> {
        self.own.extend(functions);
        // From the pool's, so that all functions of the handle are on one layer.
        self.exposed = self.hatchery.functions.with(self.own.iter().cloned())?;
        Ok(self)
    }

    /// Captures the session's present state, to return to it later.
    ///
    /// ```no_run
    /// # async fn example(session: hatchery::Session) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// let checkpoint = session.checkpoint().await?;
    /// session.run(Job::code("del x")).await?;
    /// session.restore(&checkpoint).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A job of the session runs or waits, or the session is gone.
    pub async fn checkpoint(&self) -> Result<Checkpoint, Error> {
        let state = self.hatchery.scheduler.capture(self.session).await?;
        // It counts all its bytes, also those that forks share.
        let state = state.as_ref().map(Suspended::fork);
        Ok(Checkpoint { state, build: self.build })
    }

    /// Restores a checkpoint of this session or of another one of the same pool, dropping what
    /// happened since. Random numbers drawn from then on differ from those drawn after the
    /// checkpoint, unless the session is deterministic.
    ///
    /// # Errors
    /// A job of the session runs or waits, the session is gone, or the checkpoint is from another
    /// Python build. Or the session is [recorded](Self::record), and the checkpoint's jobs weren't
    /// deterministic.
    pub async fn restore(&self, checkpoint: &Checkpoint) -> Result<(), Error> {
        if checkpoint.build != self.build {
            let name = self.hatchery.pythons.name(checkpoint.build).to_owned();
            return Err(
                InvalidPython::OfCheckpoint { name, session: self.python().to_owned() }.into()
            );
        }
        let state = checkpoint.state.as_ref().map(Suspended::fork);
        self.replace(state).await
    }

    /// Replaces the session's state; `None` is that of a fresh one.
    async fn replace(&self, state: Option<Suspended>) -> Result<(), Error> {
        let recorder = self.hatchery.recorders.of(self.session);
        if let (Some(_), Some(state)) = (&recorder, &state) {
            SessionRecorder::check(state_of(state)?)?;
        }
        let replace = self.hatchery.scheduler.replace(self.session, state);
        match recorder {
            Some(recorder) => Ok(recorder.replace(replace).await?),
            None => Ok(replace.await?),
        }
    }

    /// Returns the files of the session's workspace as they are now, with their contents. A job
    /// with [inputs](crate::Job::input) puts files there. Like [`fork`](Self::fork) this copies the
    /// session's state, unless it was copied since the last job.
    ///
    /// ```no_run
    /// # async fn example(session: hatchery::Session) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// session.run(Job::code("open('a.csv', 'w').write('1,2')")).await?;
    /// let workspace = session.workspace().await?;
    /// assert_eq!(workspace.read("a.csv").as_deref(), Some(b"1,2".as_slice()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A job of the session runs or waits, or the session is gone.
    pub async fn workspace(&self) -> Result<Workspace, Error> {
        Ok(self.state().await?.workspace())
    }

    /// Writes the session's state to a file, atomically, for [`Hatchery::revive`] in this process
    /// or another one with the same image. The file has variables, modules, files, open files with
    /// their positions, and a deterministic clock. Mounted folders aren't saved; later jobs must
    /// mount them again. Returns the bytes written.
    ///
    /// ```no_run
    /// # async fn example(
    /// #     pool: hatchery::Hatchery,
    /// #     session: hatchery::Session,
    /// # ) -> Result<(), hatchery::Error> {
    /// session.save("analysis.session").await?;
    /// let revived = pool.revive("revived", "analysis.session").await?;
    /// # drop(revived);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A job of the session runs or waits, the session is gone, or the file can't be written.
    pub async fn save(&self, path: impl AsRef<Path>) -> Result<u64, Error> {
        let state = self.state().await?;
        let path = path.as_ref().to_owned();
        let writing = tokio::task::spawn_blocking(move || state.save(&path));
        Ok(writing.await.map_err(|error| Error::Load(Cause::new(error)))??)
    }

    /// Resets the session to the state of a fresh one.
    ///
    /// ```no_run
    /// # async fn example(session: hatchery::Session) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// session.run(Job::code("x = 42")).await?;
    /// session.reset().await?;
    /// assert!(!session.run(Job::code("x")).await?.is_success());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A job of the session runs or waits, or the session is gone.
    pub async fn reset(&self) -> Result<(), Error> {
        self.replace(None).await
    }

    /// Closes the session once its jobs have ended, and drops its state.
    pub fn close(self) {
        self.hatchery.recorders.close(self.session);
        self.hatchery.scheduler.close_session(self.session);
    }

    pub(crate) async fn state(&self) -> Result<SessionState, Error> {
        match self.hatchery.scheduler.capture(self.session).await? {
            Some(suspended) => Ok(state_of(&suspended)?.clone()),
            None => {
                let image = self.hatchery.pythons.image(self.build);
                Ok(SessionState::fresh(image.ok_or(SessionError::NotSuspendable)?))
            }
        }
    }
}

impl Hatchery {
    /// Returns the session with this name, on any Python build. Opens it on the default build if it
    /// isn't open.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// let session = pool.session("analysis").await?;
    /// session.run(Job::code("x = 42")).await?;
    /// // The same session again, by its name.
    /// let same = pool.session("analysis").await?;
    /// assert_eq!(same.run(Job::code("print(x)")).await?.stdout_text(), "42\n");
    /// session.close();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Too many sessions are open, memory is full and no session can be evicted, or the pool is
    /// shutting down.
    pub async fn session(&self, name: &str) -> Result<Session, Error> {
        let default = BuildId::default();
        let (session, build) = self.scheduler.open_session(name, default).await?;
        Ok(Session::new(self.clone(), name, session, build))
    }

    /// Returns the session with this name, which always runs on this Python build. Opens it if it
    /// isn't open.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// let session = pool.session_on("analysis", "3.12").await?;
    /// session.run(Job::code("x = 42")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The pool has no build of this name, the session is open on another one, or as for
    /// [`Self::session`].
    pub async fn session_on(&self, name: &str, python: &str) -> Result<Session, Error> {
        let wanted = self.pythons.find(python)?;
        let (session, build) = self.scheduler.open_session(name, wanted).await?;
        self.pythons.of_job(Some(python), Some(build))?;
        Ok(Session::new(self.clone(), name, session, build))
    }

    /// Opens a session from a file written by [`Session::save`], here or in another process, under
    /// a new name. It runs on the Python build on which it was saved, whatever its name was there.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// let session = pool.revive("analysis", "analysis.session").await?;
    /// println!("{}", session.run(Job::code("print(x)")).await?.stdout_text());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The file can't be read, is damaged, or needs an image or a Python build that this pool
    /// doesn't have. Or a session with this name is open, or too many are.
    pub async fn revive(&self, name: &str, path: impl AsRef<Path>) -> Result<Session, Error> {
        // Reading the file would wait for a thread of the runtime.
        self.scheduler.check_process()?;
        let (builds, images) = self.pythons.images();
        let path = path.as_ref().to_owned();
        let reading = tokio::task::spawn_blocking(move || SessionState::revive(&images, &path));
        let (place, state) = reading.await.map_err(|error| Error::Load(Cause::new(error)))??;
        let build = builds[place];
        let session = self.scheduler.adopt(name, build, Some(Suspended::new(state))).await?;
        Ok(Session::new(self.clone(), name, session, build))
    }
}

fn state_of(suspended: &Suspended) -> Result<&SessionState, SessionError> {
    suspended.downcast_ref().ok_or(SessionError::NotSuspendable)
}

/// The state of a session at one moment. Cheap to clone; clones share it.
///
/// It holds the variables, the files and everything else that the session's jobs left in the
/// interpreter. It is independent of the session: see
/// [`Session::checkpoint`](crate::Session::checkpoint).
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// `None` is the state of a fresh interpreter.
    state: Option<Suspended>,
    /// The build of that interpreter.
    build: BuildId,
}

impl Checkpoint {
    /// Returns the memory that it takes, in bytes: what the session's jobs changed. It is freed
    /// when the last clone is dropped and no session continues from it unchanged. A checkpoint is
    /// never offloaded, and doesn't count towards
    /// [`Builder::memory_limit_bytes`](crate::Builder::memory_limit_bytes).
    pub fn bytes(&self) -> u64 {
        self.state.as_ref().map_or(0, Suspended::bytes)
    }
}
