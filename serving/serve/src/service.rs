//! A pool and the sessions that its callers have opened.

use std::collections::HashMap;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hatchery::error::Cause;
use hatchery::files::Workspace;
use hatchery::python::PackageInfo;
use hatchery::record::RecordFolder;
use hatchery::{
    Checkpoint, DEFAULT_PYTHON, Error, Hatchery, Job, Outcome, Session, Ticket, Verdict,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use wire::message::Grade;
use wire::{Problem, ProblemKind};

use crate::caller::Caller;

/// A pool, and the sessions and checkpoints that callers have opened. Cheap to clone; clones are the
/// same service.
///
/// Sessions and checkpoints belong to the tenant of the caller who opened them; to other tenants
/// they don't exist.
#[derive(Clone, derive_more::Debug)]
pub struct Service {
    pool: Hatchery,
    #[debug(skip)]
    pub(crate) kernels: Option<Kernels>,
    #[debug(skip)]
    pub(crate) grading: Option<Grading>,
    /// Where sessions are recorded, if they are.
    recordings: Option<RecordFolder>,
    /// Held while a session that is recorded is opened.
    opening: Arc<tokio::sync::Mutex<()>>,
    /// A job whose folders all others get.
    folders: Arc<Job>,
    /// From where sessions for cells continue.
    prepared: notebook::Prepared,
    kept: Arc<Mutex<OpenSessions>>,
    /// Whether `drain` or `abort` has ended the pool.
    is_ended: Arc<watch::Sender<bool>>,
    /// Has a receiver for each open connection.
    connections: Arc<watch::Sender<()>>,
}

/// Serves a Jupyter kernel in a pool until a front end ends it. Dropping the future ends it as well.
/// The arguments are the contents of the connection file and the options. It fails if one of them
/// is invalid, or if the kernel fails.
pub type Kernels = Arc<dyn Fn(Hatchery, Value, Vec<String>) -> Answering + Send + Sync>;

/// Grades a sample of generated code; the answer is its line of results. It fails if the task, the
/// sample or a limit is invalid, or if the sample can't be graded.
pub type Grading = Arc<dyn Fn(Grade) -> Answering + Send + Sync>;

/// A request that will be answered.
pub type Answering = Pin<Box<dyn Future<Output = Result<Value, Problem>> + Send>>;

#[derive(Debug, Default)]
struct OpenSessions {
    /// By their names in the pool.
    sessions: HashMap<String, Session>,
    /// By the pool's name of the session, and their own.
    checkpoints: HashMap<(String, String), Checkpoint>,
}

/// Ends a job early, such as [`Ticket::interrupt`].
pub(crate) type EarlyEnd = fn(&Ticket);

/// The most checkpoints of one service: they are never offloaded.
const MOST_CHECKPOINTS: usize = 1024;

impl Service {
    /// Serves this pool.
    pub fn new(pool: Hatchery) -> Self {
        let (folders, prepared, kept, is_ended, connections) = Default::default();
        let (kernels, grading, recordings, opening) = Default::default();
        Self {
            pool,
            kernels,
            grading,
            recordings,
            opening,
            folders,
            prepared,
            kept,
            is_ended,
            connections,
        }
    }

    /// Lets clients of frames have Jupyter kernels.
    pub fn with_kernels(self, kernels: Kernels) -> Self {
        Self { kernels: Some(kernels), ..self }
    }

    /// Lets clients of frames have samples graded.
    pub fn with_grading(self, grading: Grading) -> Self {
        Self { grading: Some(grading), ..self }
    }

    /// Records each session in a file of this folder.
    pub fn with_recordings(self, folder: RecordFolder) -> Self {
        Self { recordings: Some(folder), ..self }
    }

    /// Records sessions that were opened, if sessions are recorded. Closes them all if one can't be.
    async fn recorded(&self, sessions: Vec<Session>) -> Result<Vec<Session>, Problem> {
        let Some(folder) = &self.recordings else { return Ok(sessions) };
        for session in &sessions {
            if let Err(error) = folder.record(session).await {
                sessions.into_iter().for_each(Session::close);
                return Err(error.problem());
            }
        }
        Ok(sessions)
    }

    /// Gives every job the input files and folders of this one.
    pub fn with_files_of(self, job: Job) -> Self {
        Self { folders: Arc::new(job), ..self }
    }

    /// Returns a job with the input files and folders of all jobs.
    pub(crate) fn with_folders(&self, job: Job) -> Job {
        job.with_files_of(&self.folders)
    }

    /// Returns the pool, as one whose sessions are the caller's.
    fn pool_of(&self, caller: &Caller) -> Hatchery {
        caller.tenant().map_or_else(|| self.pool.clone(), |tenant| self.pool.of_tenant(tenant))
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Hatchery {
        &self.pool
    }

    /// Shuts the pool down: it accepts no more jobs, and jobs that take longer than `time` are
    /// cancelled. Returns when it has ended.
    pub async fn drain(&self, time: Option<Duration>) {
        match time {
            Some(time) => self.pool.drain_for(time).await,
            None => self.pool.drain().await,
        }
        self.is_ended.send_replace(true);
    }

    /// Shuts the pool down and cancels its jobs. Returns when it has ended.
    pub async fn abort(&self) {
        self.pool.abort().await;
        self.is_ended.send_replace(true);
    }

    /// Waits until every connection has its answers. After the pool has ended, each has 5 s to read
    /// them.
    pub async fn closed(&self) {
        self.connections.closed().await;
    }

    /// Counts a connection, until the receiver is dropped.
    pub(crate) fn connect(&self) -> watch::Receiver<()> {
        self.connections.subscribe()
    }

    /// Waits until [`Self::drain`] or [`Self::abort`] has ended the pool.
    pub async fn ended(&self) {
        let mut is_ended = self.is_ended.subscribe();
        is_ended.wait_for(|is_ended| *is_ended).await.expect("the sender is in `self`");
    }

    /// Returns what programs of this Python build, by default the default one, can import beyond the
    /// standard library.
    ///
    /// # Errors
    /// The pool has no such build, or it doesn't say what it has.
    pub async fn packages(&self, python: Option<String>) -> Result<Vec<PackageInfo>, Problem> {
        let pool = self.pool.clone();
        let python = python.unwrap_or_else(|| DEFAULT_PYTHON.to_owned());
        let listing = tokio::task::spawn_blocking(move || pool.packages(&python));
        let listed = listing.await.unwrap_or_else(|died| Err(Error::Load(Cause::new(died))));
        listed.map_err(|error| error.problem())
    }

    /// Submits a job, to a session of the caller or to a fresh interpreter.
    ///
    /// # Errors
    /// There is no such session, or the pool refuses the job.
    pub async fn submit(
        &self,
        caller: &Caller,
        job: Job,
        session: Option<&str>,
    ) -> Result<Ticket, Problem> {
        let job = self.with_folders(job);
        let submitted = match session {
            Some(name) => self.session(caller, name)?.submit(job).await,
            None => self.pool.submit(job).await,
        };
        submitted.map_err(|error| error.problem())
    }

    /// Submits a job, again and again while the pool refuses it for a reason that passes.
    ///
    /// # Errors
    /// It was refused for another reason.
    #[expect(clippy::disallowed_methods, reason = "the load that it waits out is measured in time")]
    pub(crate) async fn submit_patiently(
        &self,
        caller: &Caller,
        job: &Job,
        session: Option<&str>,
        is_passing: impl Fn(&Problem) -> bool,
    ) -> Result<Ticket, Problem> {
        loop {
            match self.submit(caller, job.clone(), session).await {
                Err(problem) if is_passing(&problem) => tokio::time::sleep(pause(&problem)).await,
                submitted => return submitted,
            }
        }
    }

    /// Opens a session under a new name, on this Python build; `None` is the default one.
    ///
    /// # Errors
    /// The name is taken or invalid, the pool has no such build, or it refuses.
    pub async fn open(
        &self,
        caller: &Caller,
        name: &str,
        python: Option<&str>,
    ) -> Result<(), Problem> {
        let own = caller.session_name(name)?;
        let pool = self.pool_of(caller);
        let opened = pool.session_on(&own, python.unwrap_or(DEFAULT_PYTHON)).await;
        let session = opened.map_err(|error| error.problem())?;
        // The pool closes sessions, too: then it has opened another one under this name.
        let is_known = |kept: &OpenSessions| {
            kept.sessions.get(&own).is_some_and(|known| known.is_same(&session))
        };
        // A session is recorded before anybody can use it.
        let _opening = match self.recordings {
            Some(_) => Some(self.opening.lock().await),
            None => None,
        };
        if self.recordings.is_some() && !is_known(&self.kept.lock()) {
            self.recorded(vec![session.clone()]).await?;
        }
        let mut kept = self.kept.lock();
        if is_known(&kept) {
            return Err(exists(name));
        }
        kept.sessions.insert(own, session);
        Ok(())
    }

    /// Keeps sessions that were opened for a caller, by their names in the pool, and records them if
    /// sessions are recorded.
    ///
    /// # Errors
    /// One can't be recorded. All are closed then.
    pub(crate) async fn keep_all(&self, sessions: Vec<Session>) -> Result<(), Problem> {
        if self.recordings.is_none() {
            self.insert_all(sessions);
            return Ok(());
        }
        let service = self.clone();
        // A task of its own, so that a caller who leaves loses no session.
        let keeping = tokio::spawn(async move {
            service.insert_all(service.recorded(sessions).await?);
            Ok(())
        });
        let died =
            |error| Err(Problem::new(ProblemKind::Sandbox, format!("recording it died: {error}")));
        keeping.await.unwrap_or_else(died)
    }

    fn insert_all(&self, sessions: Vec<Session>) {
        let named = sessions.into_iter().map(|session| (session.name().to_owned(), session));
        self.kept.lock().sessions.extend(named);
    }

    /// Returns a session of the caller.
    ///
    /// # Errors
    /// There is no session of this name.
    pub fn session(&self, caller: &Caller, name: &str) -> Result<Session, Problem> {
        let own = caller.session_name(name)?;
        self.kept.lock().sessions.get(&own).cloned().ok_or_else(|| missing("session", name))
    }

    /// Returns the job that prepares a fresh session of the caller for the cells of a notebook.
    ///
    /// # Errors
    /// There is no session of this name.
    pub(crate) async fn notebook_job(&self, caller: &Caller, name: &str) -> Result<Job, Problem> {
        let session = self.session(caller, name)?;
        let limits = self.pool.limits();
        Ok(caller.own(self.prepared.first_job(&self.pool, &session, limits).await))
    }

    /// Checks the outcome of [`Self::notebook_job`].
    pub(crate) fn begun(outcome: &Outcome) -> Result<(), Problem> {
        let why = notebook::Problem::of(outcome);
        let message = |why| format!("the session can't be prepared for cells: {why}");
        why.map_or(Ok(()), |why| Err(Problem::new(ProblemKind::Sandbox, message(why))))
    }

    /// Returns the names of the caller's sessions, in order.
    pub fn sessions(&self, caller: &Caller) -> Vec<String> {
        let prefix = caller.tenant().map(|tenant| format!("{tenant}/"));
        let kept = self.kept.lock();
        let names = kept.sessions.keys().filter_map(|name| match &prefix {
            Some(prefix) => name.strip_prefix(prefix.as_str()),
            None => Some(name.as_str()),
        });
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort_unstable();
        names
    }

    /// Captures a session's state under a name, in place of an earlier one of this name.
    ///
    /// # Errors
    /// There is no such session, it is busy, or there are too many checkpoints.
    pub async fn checkpoint(&self, caller: &Caller, name: &str, as_: &str) -> Result<(), Problem> {
        let key = (caller.session_name(name)?, as_.to_owned());
        let session = self.session(caller, name)?;
        let full = |kept: &OpenSessions| {
            kept.checkpoints.len() >= MOST_CHECKPOINTS && !kept.checkpoints.contains_key(&key)
        };
        let refused = || {
            let message = format!(
                "there are {MOST_CHECKPOINTS} checkpoints, the maximum: close sessions, or reuse \
                 names"
            );
            Problem::new(ProblemKind::Refused, message).with_reason("checkpoints")
        };
        if full(&self.kept.lock()) {
            return Err(refused());
        }
        let checkpoint = session.checkpoint().await.map_err(|error| error.problem())?;
        let mut kept = self.kept.lock();
        if full(&kept) {
            return Err(refused());
        }
        kept.checkpoints.insert(key, checkpoint);
        Ok(())
    }

    /// Restores a checkpoint of the session.
    ///
    /// # Errors
    /// There is no such session or checkpoint, or the session is busy.
    pub async fn restore(&self, caller: &Caller, name: &str, from: &str) -> Result<(), Problem> {
        let key = (caller.session_name(name)?, from.to_owned());
        let session = self.session(caller, name)?;
        let checkpoint = self.kept.lock().checkpoints.get(&key).cloned();
        let checkpoint = checkpoint.ok_or_else(|| missing("checkpoint", from))?;
        session.restore(&checkpoint).await.map_err(|error| error.problem())
    }

    /// Resets a session to the state of a fresh one.
    ///
    /// # Errors
    /// There is no such session, or it is busy.
    pub async fn reset(&self, caller: &Caller, name: &str) -> Result<(), Problem> {
        self.session(caller, name)?.reset().await.map_err(|error| error.problem())
    }

    /// Returns the files of a session.
    ///
    /// # Errors
    /// There is no such session, or it is busy.
    pub async fn workspace(&self, caller: &Caller, name: &str) -> Result<Workspace, Problem> {
        self.session(caller, name)?.workspace().await.map_err(|error| error.problem())
    }

    /// Writes a session's state to a file.
    ///
    /// # Errors
    /// There is no such session, it is busy, or the file can't be written.
    pub async fn save(&self, caller: &Caller, name: &str, path: &Path) -> Result<u64, Problem> {
        self.session(caller, name)?.save(path).await.map_err(|error| error.problem())
    }

    /// Opens a session from a file that `save` wrote.
    ///
    /// # Errors
    /// The name is taken or invalid, or the file isn't a session of this pool's image.
    pub async fn revive(&self, caller: &Caller, name: &str, path: &Path) -> Result<(), Problem> {
        let own = caller.session_name(name)?;
        let revived = self.pool_of(caller).revive(&own, path).await;
        let revived = revived.map_err(|error| match error {
            Error::Refused(hatchery::Refusal::SessionExists(..)) => exists(name),
            error => error.problem(),
        })?;
        self.keep_all(vec![revived]).await
    }

    /// Closes a session once its jobs have ended, and drops its state and its checkpoints.
    ///
    /// # Errors
    /// There is no such session.
    pub fn close(&self, caller: &Caller, name: &str) -> Result<(), Problem> {
        let own = caller.session_name(name)?;
        let mut kept = self.kept.lock();
        let session = kept.sessions.remove(&own).ok_or_else(|| missing("session", name))?;
        kept.checkpoints.retain(|(session, _), _| *session != own);
        session.close();
        Ok(())
    }
}

/// The shortest and the longest pause before a refused job is submitted again.
const PAUSES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_secs(1);

/// Returns how long to wait before a refused job is submitted again.
pub(crate) fn pause(problem: &Problem) -> Duration {
    let asked = problem.retry_after.and_then(|time| Duration::try_from_secs_f64(time).ok());
    asked.unwrap_or(*PAUSES.start()).clamp(*PAUSES.start(), *PAUSES.end())
}

fn missing(what: &str, name: &str) -> Problem {
    let message = format!("there is no {what} `{name}`");
    Problem::new(ProblemKind::Usage, message).with_reason(format!("no_{what}"))
}

pub(crate) fn exists(name: &str) -> Problem {
    let message = format!("there is a session `{name}`; close it, or use another name");
    Problem::new(ProblemKind::Refused, message).with_reason("session_exists")
}

// Shares of the bytes that requests and answers of all callers may take.
//
// A tenant may hold as much as it leaves free. So one alone gets half, and there is always room for
// others.

/// The bytes of all callers. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Shares {
    most: usize,
    held: Arc<Mutex<Amounts>>,
}

#[derive(Debug, Default)]
struct Amounts {
    all: usize,
    by_tenant: HashMap<Option<String>, usize>,
}

/// What one tenant holds, until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Shares,
    tenant: Option<String>,
    amount: usize,
}

impl Shares {
    /// Lets all hold this much together.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, held: Arc::default() }
    }

    /// Returns the most that one tenant can hold.
    pub(crate) fn largest(&self) -> usize {
        self.most / 2
    }

    /// Holds an amount for the caller.
    pub(crate) fn hold(&self, caller: &Caller, amount: usize) -> Result<Share, Problem> {
        let tenant = caller.tenant().map(str::to_owned);
        let mut share = Share { shares: self.clone(), tenant, amount: 0 };
        share.grow(amount)?;
        Ok(share)
    }

    /// Changes what a tenant holds.
    fn change(&self, tenant: &Option<String>, from: usize, to: usize) -> Result<(), Problem> {
        let mut held = self.held.lock();
        let own = held.by_tenant.get(tenant).copied().unwrap_or_default();
        let (own_then, all_then) = (own - from + to, held.all - from + to);
        if to > from && own_then > self.most.saturating_sub(all_then) {
            let message = format!(
                "your pending requests and answers have {own} bytes, and this server holds {} \
                 bytes for all callers: read the answers, or send fewer or smaller requests at once",
                self.most
            );
            return Err(Problem::new(ProblemKind::Refused, message).with_reason("bodies"));
        }
        held.all = all_then;
        match own_then {
            0 => held.by_tenant.remove(tenant),
            own => held.by_tenant.insert(tenant.clone(), own),
        };
        Ok(())
    }
}

impl Share {
    /// Holds more.
    fn grow(&mut self, more: usize) -> Result<(), Problem> {
        let amount = self.amount.saturating_add(more);
        self.shares.change(&self.tenant, self.amount, amount)?;
        self.amount = amount;
        Ok(())
    }

    /// Holds at least this much.
    pub(crate) fn reach(&mut self, amount: usize) -> Result<(), Problem> {
        self.grow(amount.saturating_sub(self.amount))
    }

    /// Takes a part off, at most all.
    pub(crate) fn split(&mut self, amount: usize) -> Self {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        Self { shares: self.shares.clone(), tenant: self.tenant.clone(), amount }
    }

    /// Returns bytes with which this is dropped.
    pub(crate) fn until_sent(self, bytes: Bytes) -> Bytes {
        struct CountedBytes {
            bytes: Bytes,
            _share: Share,
        }
        impl AsRef<[u8]> for CountedBytes {
            fn as_ref(&self) -> &[u8] {
                &self.bytes
            }
        }
        Bytes::from_owner(CountedBytes { bytes, _share: self })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // Less always has room.
        let _ = self.shares.change(&self.tenant, self.amount, 0);
    }
}

/// Tries the walls: a file of the host, its environment, a socket, a process. Ends in the time.
const WALLS: &str = r#"
import os, socket, time
reached = []
for path in ("/etc/passwd", "/proc/self/environ"):
    try:
        reached.append(open(path).read(1))
    except OSError:
        pass
for attempt in (
    lambda: socket.create_connection(("127.0.0.1", 9), 1),
    lambda: os.posix_spawn("/bin/true", ["true"], {}),
):
    try:
        reached.append(attempt())
    except (AttributeError, OSError):
        pass
assert not reached, reached
assert "PATH" not in os.environ
time.time()
"#;
/// A limit on time that an endless program must meet, and what it may take until it is stopped.
const LIMIT: Duration = Duration::from_millis(50);
/// How far the clocks of guest and host may be apart, on a machine that is busy.
const MOST_DRIFT: f64 = 60.0;

impl Service {
    /// Runs a job that tries the walls and the clock, and one that doesn't end.
    ///
    /// # Errors
    /// The program got out, the guest's clock is wrong, a limit didn't hold, or the pool runs nothing.
    pub async fn test_itself(&self) -> Result<(), Problem> {
        let outcome =
            self.pool().run(Job::code(WALLS).self_test()).await.map_err(|error| error.problem())?;
        let time = match &outcome.verdict {
            Verdict::Completed { value: Some(value), .. } => value.as_f64(),
            verdict => return Err(failed(&format!("a test of the walls ended as {verdict:?}"))),
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.map_or(0.0, |time| time.as_secs_f64());
        if time.is_none_or(|time| (time - now).abs() > MOST_DRIFT) {
            return Err(failed(&format!("the guest's clock says {time:?}, the host's {now}")));
        }
        let endless = Job::code("while True: pass").timeout(LIMIT).self_test();
        let outcome = self.pool().run(endless).await.map_err(|error| error.problem())?;
        match outcome.is_timeout() {
            true => Ok(()),
            false => Err(failed(&format!("an endless program ended as {:?}", outcome.verdict))),
        }
    }
}

fn failed(text: &str) -> Problem {
    Problem::new(ProblemKind::Sandbox, format!("the pool failed its self-test: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_holds_no_more_than_it_leaves_free() {
        let shares = Shares::new(100);
        let [ada, bob] = ["ada", "bob"].map(|name| Caller::of_tenant(name).unwrap());
        let mut of_ada = shares.hold(&ada, 40).unwrap();
        let refused = of_ada.grow(11).unwrap_err();
        assert!(
            refused.message.contains("have 40 bytes, and this server holds 100"),
            "{refused:?}"
        );
        assert!(shares.hold(&ada, 11).is_err());
        of_ada.grow(10).unwrap();
        // Half of what others leave.
        assert!(shares.hold(&bob, 26).is_err());
        let of_bob = shares.hold(&bob, 25).unwrap();
        assert!(shares.hold(&Caller::owner(), 13).is_err());
        assert!(shares.hold(&Caller::owner(), 12).is_ok());
        drop((of_ada, of_bob));
        assert!(shares.held.lock().by_tenant.is_empty() && shares.held.lock().all == 0);
    }

    #[test]
    fn bytes_count_until_they_are_sent() {
        let shares = Shares::new(100);
        let mut share = shares.hold(&Caller::owner(), 50).unwrap();
        let first = share.split(20).until_sent(Bytes::from_static(b"first"));
        drop(share);
        let second = first.clone();
        drop(first);
        assert_eq!((shares.held.lock().all, &second[..]), (20, &b"first"[..]));
        drop(second);
        assert_eq!(shares.held.lock().all, 0);
    }
}
