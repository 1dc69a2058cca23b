//! Forks of sessions, and searches that run programs on forks.

use hatchery::{Exploration, Keep, Outcome, Session};
use wire::message::{Explore, KeepForks};
use wire::{Problem, ProblemKind};

use crate::caller::Caller;
use crate::service::{Service, exists};

impl Service {
    /// Opens a session that continues from another one's state.
    ///
    /// # Errors
    /// There is no such session, it is busy, the new name is taken, or the pool refuses.
    pub async fn fork(&self, caller: &Caller, name: &str, to: &str) -> Result<(), Problem> {
        self.fork_as(caller, name, &[to.to_owned()]).await
    }

    /// Opens sessions under these names that continue from another one's state: all, or none.
    ///
    /// # Errors
    /// As [`Self::fork`].
    pub async fn fork_as(&self, caller: &Caller, name: &str, to: &[String]) -> Result<(), Problem> {
        let own: Result<Vec<String>, Problem> =
            to.iter().map(|to| caller.session_name(to)).collect();
        let forks =
            self.session(caller, name)?.fork_as(own?).await.map_err(|error| match error {
                hatchery::Error::Refused(hatchery::Refusal::SessionExists(taken)) => {
                    exists(caller.visible_name(&taken))
                }
                error => error.problem(),
            })?;
        self.keep_all(forks).await
    }

    /// Opens so many sessions that continue from another one's state: all, or none. Returns their
    /// names, which are that of the first session of the tree with a tilde and a number.
    ///
    /// # Errors
    /// There is no such session, it is busy, `count` is 0, or the pool refuses.
    pub async fn fork_many(
        &self,
        caller: &Caller,
        name: &str,
        count: usize,
    ) -> Result<Vec<String>, Problem> {
        if count == 0 {
            return Err(Problem::new(ProblemKind::Usage, "`count` is 1 or more"));
        }
        let session = self.session(caller, name)?;
        let forks = session.fork_many(count).await.map_err(|error| error.problem())?;
        let names = forks.iter().map(|fork| self.name_of_fork(caller, fork));
        let names: Result<Vec<String>, Problem> = names.collect();
        match names {
            Ok(_) => self.keep_all(forks).await?,
            Err(_) => forks.into_iter().for_each(Session::close),
        }
        names
    }

    /// Returns the name by which a caller knows a fork that the pool has named.
    fn name_of_fork(&self, caller: &Caller, fork: &Session) -> Result<String, Problem> {
        let name = caller.visible_name(fork.name()).to_owned();
        // The number makes it longer.
        caller.session_name(&name).map(|_| name)
    }

    /// Runs each candidate on a fork of a session.
    ///
    /// # Errors
    /// There is no such session, it is busy, or a candidate is invalid.
    pub(crate) async fn explore(
        &self,
        caller: &Caller,
        name: &str,
        explore: Explore,
    ) -> Result<ServedExploration, Problem> {
        let Explore { candidates, keep, most_bytes } = explore;
        let session = self.session(caller, name)?;
        let jobs = candidates.into_iter().enumerate().map(|(number, candidate)| {
            let job = caller.job(candidate).map_err(|mut problem| {
                problem.message = format!("candidate {number}: {}", problem.message);
                problem
            })?;
            Ok(self.with_folders(job))
        });
        let jobs: Vec<_> = jobs.collect::<Result<_, Problem>>()?;
        let keep = match keep {
            KeepForks::All => Keep::all(),
            KeepForks::None => Keep::none(),
            KeepForks::Succeeded => Keep::succeeded(),
            KeepForks::First(count) => Keep::first(count),
            _ => {
                let text = "this server doesn't know which forks to keep";
                return Err(Problem::new(ProblemKind::Usage, text));
            }
        };
        let keep = most_bytes.into_iter().fold(keep, Keep::at_most_bytes);
        let exploration = session.explore(jobs, keep).await.map_err(|error| error.problem())?;
        Ok(ServedExploration { service: self.clone(), caller: caller.clone(), exploration })
    }
}

/// Candidates of a caller that run on forks. Dropping it cancels them.
#[derive(Debug)]
pub(crate) struct ServedExploration {
    service: Service,
    caller: Caller,
    exploration: Exploration,
}

/// How a candidate ended.
#[derive(Debug)]
pub(crate) struct ServedCandidate {
    pub(crate) candidate: usize,
    pub(crate) result: Result<Outcome, Problem>,
    /// The name of its fork, if that stays open.
    pub(crate) survivor: Option<String>,
}

impl ServedExploration {
    /// Waits for the next candidate to end; `None` once all have.
    pub(crate) async fn next(&mut self) -> Option<ServedCandidate> {
        let ended = self.exploration.next().await?;
        let (candidate, mut survivor) = (ended.candidate, None);
        let mut result = ended.result.map_err(|error| error.problem());
        if let Some(session) = ended.survivor {
            match self.service.name_of_fork(&self.caller, &session) {
                Ok(name) => match self.service.keep_all(vec![session]).await {
                    Ok(()) => survivor = Some(name),
                    Err(problem) => result = Err(problem),
                },
                Err(problem) => {
                    session.close();
                    result = Err(problem);
                }
            }
        }
        Some(ServedCandidate { candidate, result, survivor })
    }

    /// Closes the fork of a candidate of whom nobody can be told.
    pub(crate) fn give_up(&self, candidate: &ServedCandidate) {
        if let Some(name) = &candidate.survivor {
            // It may have ended.
            let _ = self.service.close(&self.caller, name);
        }
    }
}
