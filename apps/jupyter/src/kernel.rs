//! A kernel: binds its sockets, and serves them by a session of a pool until a front end ends it.

use std::time::Duration;

use hatchery::record::RecordFolder;
use hatchery::{Hatchery, Job, Limits};
use serde_json::Value;
use tokio::sync::watch;

use crate::connection::Connection;
use crate::control::Control;
use crate::error::KernelError;
use crate::execute::Executor;
use crate::guest;
use crate::sessions::Sessions;
use crate::shell::{Questions, Shell};
use crate::sockets::Sockets;

/// How long the last replies may take to leave. Nothing tells when the sockets have sent them; front
/// ends wait some seconds before they end a kernel by force.
const LAST_REPLIES: Duration = Duration::from_millis(200);

/// A kernel whose sockets are bound. It answers heartbeats; requests wait until it is
/// [served](Self::serve).
#[derive(Debug)]
pub struct Kernel {
    sockets: Sockets,
    interrupts: watch::Sender<u64>,
    recordings: Option<RecordFolder>,
}

impl Kernel {
    /// Binds the sockets where a front end expects them.
    ///
    /// # Errors
    /// An address is in use or isn't one of this machine.
    pub async fn bind(connection: &Connection) -> Result<Self, KernelError> {
        let sockets = Sockets::bind(connection).await?;
        let kernel = Self { sockets, interrupts: watch::Sender::new(0), recordings: None };
        kernel.sockets.iopub.announce("starting").await;
        Ok(kernel)
    }

    /// Records each of its sessions in a file of this folder, if there is one.
    pub fn with_recordings(self, recordings: Option<RecordFolder>) -> Self {
        Self { recordings, ..self }
    }

    /// Returns what raises `KeyboardInterrupt` in the running cell, if one runs, as a front end does.
    pub fn interrupter(&self) -> impl Fn() + use<> {
        let interrupts = self.interrupts.clone();
        move || interrupts.send_modify(|count| *count += 1)
    }

    /// Runs the cells that front ends send in a session of the pool, within these limits. Ends when a
    /// front end shuts the kernel down. A cell that runs then, or when the future is dropped, is
    /// cancelled. The session's first job gets the files and folders of `given`.
    ///
    /// # Errors
    /// The session can't begin, or is lost and can't be replaced.
    pub async fn serve(
        self,
        pool: Hatchery,
        limits: Limits,
        given: Job,
    ) -> Result<(), KernelError> {
        let Self { sockets, interrupts, recordings } = self;
        let Sockets { shell, control, stdin, iopub, session, tasks } = sockets;
        let (functions, questions) = Questions::new(stdin);
        let functions = functions.into();
        let sessions = Sessions::open(pool, limits, given, functions, recordings, session).await?;
        let about: Option<Value> = sessions.ask(guest::ABOUT, []).await;
        let version = about.as_ref().and_then(|about| about["version"].as_str());
        let info = guest::info(version.unwrap_or("3"));
        let executor = Executor::new(sessions, questions, interrupts.subscribe());
        let control =
            Control { channels: control, iopub: iopub.clone(), info: info.clone(), interrupts };
        let mut kernel = Shell { executor, iopub, info };
        let served = tokio::select! {
            served = control.serve() => served,
            served = kernel.serve(shell) => served,
        };
        drop(kernel);
        // The sockets' own tasks send what is queued.
        let _ = tokio::time::timeout(LAST_REPLIES, std::future::pending::<()>()).await;
        drop(tasks);
        served
    }
}
