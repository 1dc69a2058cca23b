//! The sessions of a kernel: the one that runs its cells, its forks, and checkpoints.

use std::collections::BTreeMap;

use hatchery::error::chain;
use hatchery::record::RecordFolder;
use hatchery::{Checkpoint, Error, Hatchery, HostFunction, Job, Limits, Refusal, Session, Verdict};
use notebook::guest::own_limits;
use notebook::{Prepared, Problem};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::assistance::ask;
use crate::commands::Command;
use crate::error::KernelError;
use crate::guest;

/// The session in which a kernel begins.
const FIRST: &str = "main";

/// The most sessions, and the most checkpoints. Their memory counts against the pool's, too.
const MOST: usize = 100;

/// The sessions of a kernel.
#[derive(Debug)]
pub(crate) struct Sessions {
    pool: Hatchery,
    /// The limits of a cell.
    pub(crate) limits: Limits,
    /// What the first job of a session gets besides, such as mounted folders.
    given: Job,
    functions: Vec<HostFunction>,
    prepared: Prepared,
    recordings: Option<RecordFolder>,
    /// What the names of its sessions in the pool begin with, which no other kernel has.
    prefix: String,
    /// Contains the present one, once that has begun.
    open: BTreeMap<String, Session>,
    present: String,
    checkpoints: BTreeMap<String, Checkpoint>,
}

impl Sessions {
    /// Opens the first session.
    pub(crate) async fn open(
        pool: Hatchery,
        limits: Limits,
        given: Job,
        functions: Vec<HostFunction>,
        recordings: Option<RecordFolder>,
        prefix: String,
    ) -> Result<Self, KernelError> {
        let mut sessions = Self {
            pool,
            limits,
            given,
            functions,
            prepared: Prepared::default(),
            recordings,
            prefix,
            open: BTreeMap::new(),
            present: FIRST.to_owned(),
            checkpoints: BTreeMap::new(),
        };
        sessions.begin().await?;
        Ok(sessions)
    }

    /// Opens the present session, and installs in it what cells need.
    async fn begin(&mut self) -> Result<(), KernelError> {
        let name = self.named(&self.present);
        let session = self.pool.session(&name).await.map_err(KernelError::Session)?;
        let functions = self.functions.iter().cloned();
        let session = session.functions(functions).map_err(KernelError::Session)?;
        self.record(&session).await.map_err(KernelError::Session)?;
        let first = self.prepared.first_job(&self.pool, &session, &self.limits).await;
        for job in [first.with_files_of(&self.given), guest::begin(&self.limits)] {
            let outcome = session.run(job).await.map_err(KernelError::Session)?;
            if let Some(problem) = Problem::of(&outcome) {
                return Err(KernelError::Begin(format!("{}: {}", problem.name, problem.message)));
            }
        }
        self.open.insert(self.present.clone(), session);
        Ok(())
    }

    /// Records a session, if sessions are recorded.
    async fn record(&self, session: &Session) -> Result<(), Error> {
        match &self.recordings {
            Some(folder) => folder.record(session).await,
            None => Ok(()),
        }
    }

    /// Returns the name of a session in the pool.
    fn named(&self, name: &str) -> String {
        format!("<kernel {}>/{name}", self.prefix)
    }

    /// Returns the session that runs the cells.
    pub(crate) fn present(&self) -> &Session {
        self.open.get(&self.present).expect("the present session is open")
    }

    /// Calls a function of the kernel's guest module in the idle session. `None` if there is no answer in time, or not
    /// the right one.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        function: &str,
        arguments: impl IntoIterator<Item = Value>,
    ) -> Option<T> {
        ask(self.present(), &own_limits(&self.limits), function, arguments).await
    }

    /// Replaces the present session by a fresh one if it is lost, and returns whether it was.
    pub(crate) async fn replace_if_lost(&mut self) -> Result<bool, KernelError> {
        // A replaced interpreter has lost its mounts, which this job restores.
        let tried = self.present().run(self.given.clone()).await;
        let is_lost = match tried {
            Ok(outcome) => matches!(outcome.verdict, Verdict::SandboxFailed(_)),
            Err(error) => matches!(error, Error::Refused(Refusal::SessionGone(..))),
        };
        if is_lost {
            self.begin().await?;
        }
        Ok(is_lost)
    }

    /// Carries out commands up to the first that fails, and returns what they say.
    pub(crate) async fn obey(&mut self, commands: Vec<Command>) -> (String, Result<(), String>) {
        let mut said = String::new();
        for command in commands {
            match self.carry_out(command).await {
                Ok(text) => said.push_str(&text),
                Err(problem) => return (said, Err(problem)),
            }
        }
        (said, Ok(()))
    }

    async fn carry_out(&mut self, command: Command) -> Result<String, String> {
        let failed = |error: Error| chain(&error).to_string();
        match command {
            Command::Fork(name) => {
                if self.open.contains_key(&name) {
                    return Err(format!("the session `{name}` exists: use `%switch {name}`"));
                }
                check_room(self.open.len(), "sessions")?;
                let session = self.present().fork(&self.named(&name)).await.map_err(failed)?;
                self.record(&session).await.map_err(failed)?;
                self.open.insert(name.clone(), session);
                let from = std::mem::replace(&mut self.present, name);
                let present = &self.present;
                Ok(format!("The cells now run in `{present}`; `%switch {from}` goes back.\n"))
            }
            Command::Switch(name) => {
                if !self.open.contains_key(&name) {
                    return Err(format!("there is no session `{name}`: `%sessions` lists them"));
                }
                self.present = name;
                Ok(format!("The cells now run in `{}`.\n", self.present))
            }
            Command::Sessions => Ok(self.list()),
            Command::Checkpoint(name) => {
                let is_new = !self.checkpoints.contains_key(&name);
                check_room(self.checkpoints.len() - usize::from(!is_new), "checkpoints")?;
                let checkpoint = self.present().checkpoint().await.map_err(failed)?;
                self.checkpoints.insert(name.clone(), checkpoint);
                Ok(format!("The state is saved as `{name}`; `%restore {name}` returns to it.\n"))
            }
            Command::Restore(name) => {
                let checkpoint = self.checkpoints.get(&name).ok_or_else(|| {
                    format!("there is no checkpoint `{name}`: `%sessions` lists them")
                })?;
                self.present().restore(checkpoint).await.map_err(failed)?;
                Ok(format!("The state of `{name}` is restored.\n"))
            }
        }
    }

    fn list(&self) -> String {
        let mark = |name: &String| if *name == self.present { '*' } else { ' ' };
        let sessions = self.open.keys().map(|name| format!("{} {name}\n", mark(name)));
        let checkpoints = self.checkpoints.keys().map(|name| format!("  {name} (checkpoint)\n"));
        sessions.chain(checkpoints).collect()
    }
}

impl Drop for Sessions {
    /// Closes the sessions, which gives their memory back to the pool.
    fn drop(&mut self) {
        std::mem::take(&mut self.open).into_values().for_each(Session::close);
    }
}

fn check_room(count: usize, what: &str) -> Result<(), String> {
    if count < MOST { Ok(()) } else { Err(format!("a kernel keeps at most {MOST} {what}")) }
}
