//! Forks of a session: many at once, their tree, and search by programs that run on forks.

use std::sync::Arc;

use engine::{Cause, Outcome};
use pool::SessionId;
use scheduler::{Branch, ForkNames, ForkOrigin, Refusal, Ticket};
use tokio::task::JoinSet;

use crate::failure::Error;
use crate::job::Job;
use crate::session::Session;

impl Session {
    /// Opens a session under this name that continues from this one's state, with this handle's
    /// [functions](Self::function). The two are independent from then on.
    ///
    /// ```no_run
    /// # async fn example(session: hatchery::Session) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// session.run(Job::code("x = 42")).await?;
    /// let attempt = session.fork("attempt").await?;
    /// attempt.run(Job::code("x = 0")).await?;
    /// assert_eq!(session.run(Job::code("print(x)")).await?.stdout_text(), "42\n");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A job of the session runs or waits, or the session is gone. Or a session with this name is
    /// open, too many are, forks are too deep, or memory is full.
    pub async fn fork(&self, name: &str) -> Result<Self, Error> {
        let mut forks = self.fork_as([name]).await?;
        Ok(forks.pop().expect("a fork for each name"))
    }

    /// Opens so many sessions that continue from this one's state: all of them, or none. They share
    /// its memory, which counts once, and take some hundred bytes each until they run.
    ///
    /// They are named by the session that isn't a fork, a tilde, and the next free numbers:
    /// `root~1`, `root~2`. So are forks of forks.
    ///
    /// ```no_run
    /// # async fn example(session: hatchery::Session) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// session.run(Job::code("x = 42")).await?;
    /// for (number, fork) in session.fork_many(1_000).await?.into_iter().enumerate() {
    ///     fork.run(Job::code(format!("x += {number}"))).await?;
    ///     fork.close();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Self::fork`].
    pub async fn fork_many(&self, count: usize) -> Result<Vec<Self>, Error> {
        self.forks(&self.branch().await?, ForkNames::Numbered(count)).await
    }

    /// Opens a session under each of these names, as [`Self::fork_many`] does.
    ///
    /// # Errors
    /// As for [`Self::fork`].
    pub async fn fork_as(
        &self,
        names: impl IntoIterator<Item = impl Into<Arc<str>>>,
    ) -> Result<Vec<Self>, Error> {
        let names = names.into_iter().map(Into::into).collect();
        self.forks(&self.branch().await?, ForkNames::Given(names)).await
    }

    async fn branch(&self) -> Result<Branch, Error> {
        Ok(self.hatchery.scheduler.branch(self.session).await?)
    }

    async fn forks(&self, branch: &Branch, names: ForkNames) -> Result<Vec<Self>, Error> {
        let (session, branch) = (self.clone(), branch.clone());
        // A task of its own, so that a caller that stops waiting leaves no fork open.
        let opening = tokio::spawn(async move {
            let forks = session.hatchery.scheduler.fork(&branch, names).await?;
            let open = |fork| OpenFork(Some(session.relative(fork)));
            Ok::<_, Refusal>(forks.into_iter().map(open).collect::<Vec<_>>())
        });
        let forks = opening.await.map_err(|error| Error::Load(Cause::new(error)))??;
        Ok(forks.into_iter().filter_map(|mut fork| fork.0.take()).collect())
    }

    /// Returns a handle of another session of the tree, with this handle's functions.
    fn relative(&self, (session, name): (SessionId, Arc<str>)) -> Self {
        Self { name: name.as_ref().to_owned(), session, ..self.clone() }
    }

    /// Returns from which session this one was forked, how deep it is, and after which turn;
    /// `None` if it isn't a fork, or has ended.
    pub fn origin(&self) -> Option<ForkOrigin> {
        self.hatchery.scheduler.origin(self.session)
    }

    /// Returns the session that this one was forked from, with this handle's functions. `None` if
    /// this isn't a fork, or if one of the two has ended.
    pub fn parent(&self) -> Option<Self> {
        let parent = self.origin()?.parent;
        let name = self.hatchery.scheduler.session_name(parent)?;
        Some(self.relative((parent, name)))
    }

    /// Returns the open sessions that were forked from this one, in the order of their forks, with
    /// this handle's functions. Looks through all open sessions.
    pub async fn children(&self) -> Vec<Self> {
        let children = self.hatchery.scheduler.children(self.session).await;
        children.into_iter().map(|child| self.relative(child)).collect()
    }

    /// Runs each candidate on a fork of its own of this session's present state, and yields their
    /// ends as they come. `keep` says which forks stay open; the others are closed at once. Forks
    /// are opened as there is room for them, a few more than there are workers.
    ///
    /// ```no_run
    /// # async fn example(session: hatchery::Session) -> Result<(), hatchery::Error> {
    /// use hatchery::{Job, Keep};
    ///
    /// let moves = ["x = 1 / 0", "x = 2", "x = 3"].map(Job::code);
    /// let mut exploration = session.explore(moves, Keep::first(1)).await?;
    /// while let Some(explored) = exploration.next().await {
    ///     println!("{}: {:?}", explored.candidate, explored.result?.verdict);
    ///     if let Some(survivor) = explored.survivor {
    ///         survivor.run(Job::code("x += 1")).await?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A job of the session runs or waits, or the session is gone. What is refused later is the
    /// result of its candidate.
    pub async fn explore<C>(&self, candidates: C, keep: Keep) -> Result<Exploration, Error>
    where
        C: IntoIterator<Item = Job>,
        C::IntoIter: Send + 'static,
    {
        let branch = self.branch().await?;
        let width = 2 * (self.hatchery.scheduler.worker_count() + 1);
        let candidates = candidates.into_iter().enumerate();
        Ok(Exploration {
            session: self.clone(),
            branch,
            candidates: Box::new(candidates),
            next: None,
            keep,
            width,
            running: JoinSet::new(),
            open: Vec::new(),
            survivors: Vec::new(),
        })
    }
}

/// Which forks of an [exploration](Session::explore) stay open.
#[derive(derive_more::Debug)]
pub struct Keep {
    most: usize,
    most_bytes: u64,
    #[debug(skip)]
    wants: Box<dyn FnMut(&Outcome) -> bool + Send>,
}

impl Keep {
    /// Keeps the forks for whose outcome `wants` is true. It sees each outcome once, as they come.
    pub fn matching(wants: impl FnMut(&Outcome) -> bool + Send + 'static) -> Self {
        Self { most: usize::MAX, most_bytes: u64::MAX, wants: Box::new(wants) }
    }

    /// Keeps every fork.
    pub fn all() -> Self {
        Self::matching(|_| true)
    }

    /// Keeps none.
    pub fn none() -> Self {
        Self::matching(|_| false)
    }

    /// Keeps the forks whose program [succeeded](Outcome::is_success).
    pub fn succeeded() -> Self {
        Self::matching(Outcome::is_success)
    }

    /// Keeps the first `count` forks whose program succeeded. The other candidates run, too.
    pub fn first(count: usize) -> Self {
        Self::succeeded().at_most(count)
    }

    /// Keeps at most the first `count` of these.
    #[must_use]
    pub fn at_most(self, count: usize) -> Self {
        Self { most: count, ..self }
    }

    /// Opens no further fork while the states of those that are open take this many bytes, beside
    /// what they share. Once survivors alone take as many, the remaining candidates are refused with
    /// [`Refusal::ForkBytes`].
    #[must_use]
    pub fn at_most_bytes(self, bytes: u64) -> Self {
        Self { most_bytes: bytes, ..self }
    }
}

/// Candidates that run on forks of one state. Dropping it cancels them and closes their forks;
/// survivors that were returned stay open.
#[derive(derive_more::Debug)]
pub struct Exploration {
    session: Session,
    #[debug(skip)]
    branch: Branch,
    #[debug(skip)]
    candidates: Box<dyn Iterator<Item = (usize, Job)> + Send>,
    /// The candidate that is next, if there was no room for it yet.
    #[debug(skip)]
    next: Option<(usize, Job)>,
    keep: Keep,
    width: usize,
    running: JoinSet<(usize, OpenFork, Outcome)>,
    /// The forks that run.
    open: Vec<SessionId>,
    survivors: Vec<SessionId>,
}

/// How one candidate ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Explored {
    /// Its place among the candidates, from 0.
    pub candidate: usize,
    /// Its outcome, or why it wasn't run.
    pub result: Result<Outcome, Error>,
    /// Its fork, if that stays open.
    pub survivor: Option<Session>,
}

/// A fork that is closed unless it is taken.
#[derive(Debug)]
struct OpenFork(Option<Session>);

impl Drop for OpenFork {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            session.close();
        }
    }
}

impl Exploration {
    /// Waits for the next candidate to end; `None` once all have. Nothing is lost if the caller
    /// stops waiting.
    pub async fn next(&mut self) -> Option<Explored> {
        while self.next.is_some() || self.running.len() < self.width {
            let Some((candidate, job)) = self.next.take().or_else(|| self.candidates.next()) else {
                break;
            };
            self.next = Some((candidate, job.clone()));
            let begun = self.begin(candidate, job).await;
            if let Err(error) = begun {
                if is_for_want_of_room(&error) && !self.running.is_empty() {
                    break;
                }
                self.next = None;
                return Some(Explored { candidate, result: Err(error), survivor: None });
            }
            self.next = None;
        }
        let (candidate, fork, outcome) = match self.running.join_next().await? {
            Ok(ended) => ended,
            // Without a panic, the runtime is ending.
            Err(error) => std::panic::resume_unwind(error.try_into_panic().ok()?),
        };
        Some(self.judge(candidate, fork, outcome))
    }

    /// Opens a fork for a candidate, and submits it.
    async fn begin(&mut self, candidate: usize, mut job: Job) -> Result<(), Error> {
        let limit = self.keep.most_bytes;
        if limit < u64::MAX {
            let open = self.open.iter().chain(&self.survivors).copied();
            let used = self.session.hatchery.scheduler.state_bytes(open);
            if used >= limit {
                return Err(Refusal::ForkBytes { used, limit }.into());
            }
        }
        let mut forks = self.session.forks(&self.branch, ForkNames::Numbered(1)).await?;
        let fork = OpenFork(forks.pop());
        let Some(session) = &fork.0 else { return Err(Refusal::ShuttingDown.into()) };
        // A fork of a recorded session can be recorded, too.
        if let Some(recorder) = self.session.hatchery.recorders.of(self.session.session) {
            job.request.program.deterministic.get_or_insert(recorder.deterministic());
        }
        let ticket: Ticket = session.submit(job).await?;
        self.open.push(session.session);
        self.running.spawn(async move { (candidate, fork, ticket.await) });
        Ok(())
    }

    /// Decides whether a fork stays open.
    fn judge(&mut self, candidate: usize, mut fork: OpenFork, outcome: Outcome) -> Explored {
        let ended = fork.0.as_ref().map(|session| session.session);
        self.open.retain(|open| Some(*open) != ended);
        let is_wanted = (self.keep.wants)(&outcome) && self.survivors.len() < self.keep.most;
        let survivor = if is_wanted { fork.0.take() } else { None };
        self.survivors.extend(survivor.as_ref().map(|session| session.session));
        Explored { candidate, result: Ok(outcome), survivor }
    }
}

/// Whether there may be room once a candidate that runs has ended.
fn is_for_want_of_room(error: &Error) -> bool {
    use Refusal::{ForkBytes, TenantSessionBytes, TenantSessions, TooManySessions};
    let is_for_sessions = |refusal: &Refusal| {
        matches!(
            refusal,
            ForkBytes { .. }
                | TenantSessionBytes { .. }
                | TenantSessions { .. }
                | TooManySessions(_)
        )
    };
    error.is_overloaded() || matches!(error, Error::Refused(refusal) if is_for_sessions(refusal))
}
