//! A kernel: binds its sockets, and serves them by a session of a pool until a front end ends it.

use std::future::Future;
use std::time::Duration;

use hatchery::{Hatchery, Job, Limits};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::connection::Connection;
use crate::error::KernelError;
use crate::execute::Executor;
use crate::guest;
use crate::guest::Info;
use crate::message::Message;
use crate::sessions::Sessions;
use crate::shell::{Questions, Shell, status};
use crate::sockets::{Channels, IoPub, Sockets};

/// How long the last replies may take to leave. Nothing tells when the sockets have sent them; front
/// ends wait some seconds before they end a kernel by force.
const LAST_REPLIES: Duration = Duration::from_millis(200);

/// A kernel whose sockets are bound. It answers heartbeats; requests wait until it is
/// [served](Self::serve).
#[derive(Debug)]
pub struct Kernel {
    sockets: Sockets,
    interrupts: watch::Sender<u64>,
}

/// Interrupts the cell that runs, as a front end does. Clones interrupt the same kernel.
#[derive(Debug, Clone)]
pub struct Interrupter(watch::Sender<u64>);

impl Interrupter {
    /// Raises `KeyboardInterrupt` in the running cell, if one runs.
    pub fn interrupt(&self) {
        self.0.send_modify(|count| *count += 1);
    }
}

impl Kernel {
    /// Binds the sockets where a front end expects them.
    ///
    /// # Errors
    /// An address is in use or isn't one of this machine.
    pub async fn bind(connection: &Connection) -> Result<Self, KernelError> {
        let sockets = Sockets::bind(connection).await?;
        let kernel = Self { sockets, interrupts: watch::Sender::new(0) };
        kernel.sockets.iopub.announce("starting").await;
        Ok(kernel)
    }

    /// Returns a handle that interrupts its cells.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter(self.interrupts.clone())
    }

    /// Runs the cells that front ends send in a session of the pool, within these limits, until a
    /// front end shuts the kernel down or `ended` completes. A cell that runs then is cancelled. The
    /// session's first job is given the files and folders of `given`.
    ///
    /// # Errors
    /// The session can't begin, or is lost and can't be replaced.
    pub async fn serve(
        self,
        pool: Hatchery,
        limits: Limits,
        given: Job,
        ended: impl Future<Output = ()>,
    ) -> Result<(), KernelError> {
        let Self { sockets, interrupts } = self;
        let Sockets { shell, control, stdin, iopub, session, tasks } = sockets;
        let (functions, questions) = Questions::new(stdin);
        let sessions = Sessions::open(pool, limits, given, functions.into(), session).await?;
        let about: Option<Value> = sessions.ask(guest::ABOUT, []).await;
        let version = about.as_ref().and_then(|about| about["version"].as_str());
        let info = Info::new(version.unwrap_or("3").to_owned());
        let executor = Executor::new(sessions, questions, interrupts.subscribe());
        let control =
            Control { channels: control, iopub: iopub.clone(), info: info.clone(), interrupts };
        let mut kernel = Shell { executor, iopub, info };
        let served = tokio::select! {
            served = control.serve() => served,
            served = kernel.serve(shell) => served,
            () = ended => Ok(()),
        };
        drop(kernel);
        // The sockets' own tasks send what is queued.
        let _ = tokio::time::timeout(LAST_REPLIES, std::future::pending::<()>()).await;
        drop(tasks);
        served
    }
}

// The magics that the kernel carries out itself, since they copy or exchange a session's state,
// which can't be done while a cell runs in it: `%fork`, `%switch`, `%sessions`, `%checkpoint`,
// `%restore`.
//
// They are the only lines of their cell. In other cells the guest refuses them.

/// The checkpoint that has no name.
const DEFAULT_CHECKPOINT: &str = "checkpoint";

/// The longest name of a session or checkpoint, in characters.
const LONGEST_NAME: usize = 100;

/// What a line of such a cell asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Open another session that continues from the present one's state, and go on there.
    Fork(String),
    /// Go on in a session that is open.
    Switch(String),
    /// List the sessions and checkpoints.
    Sessions,
    /// Keep the present state under this name.
    Checkpoint(String),
    /// Return to the state of this name.
    Restore(String),
}

/// Returns the commands of a cell that consists of them; `None` for any other cell.
pub(crate) fn parse(source: &str) -> Option<Result<Vec<Command>, String>> {
    let lines = source.lines().map(str::trim);
    let lines: Vec<&str> =
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let words = |line: &str| -> Option<(String, String)> {
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let is_known = ["%fork", "%switch", "%sessions", "%checkpoint", "%restore"].contains(&name);
        is_known.then(|| (name.to_owned(), rest.trim().to_owned()))
    };
    let lines: Vec<(String, String)> = lines.into_iter().map(words).collect::<Option<_>>()?;
    let commands = lines.into_iter().map(|(magic, rest)| command(&magic, rest));
    if commands.len() == 0 { None } else { Some(commands.collect()) }
}

fn command(magic: &str, rest: String) -> Result<Command, String> {
    let is_name = |name: &str| {
        name.chars().count() <= LONGEST_NAME
            && name.chars().all(|part| part.is_alphanumeric() || "-_.".contains(part))
    };
    if !is_name(&rest) {
        return Err(format!(
            "`{magic}` takes a name of at most {LONGEST_NAME} letters, digits, `-`, `.` and `_`"
        ));
    }
    match (magic, rest.as_str()) {
        ("%fork" | "%switch", "") => {
            Err(format!("`{magic}` needs a name, as in `{magic} attempt`"))
        }
        ("%sessions", "") => Ok(Command::Sessions),
        ("%sessions", _) => Err("`%sessions` takes no name".to_owned()),
        ("%checkpoint", "") => Ok(Command::Checkpoint(DEFAULT_CHECKPOINT.to_owned())),
        ("%restore", "") => Ok(Command::Restore(DEFAULT_CHECKPOINT.to_owned())),
        ("%fork", _) => Ok(Command::Fork(rest)),
        ("%switch", _) => Ok(Command::Switch(rest)),
        ("%checkpoint", _) => Ok(Command::Checkpoint(rest)),
        _ => Ok(Command::Restore(rest)),
    }
}

/// The control socket of one kernel.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) channels: Channels,
    pub(crate) iopub: IoPub,
    pub(crate) info: Info,
    /// Counts the requests to interrupt.
    pub(crate) interrupts: watch::Sender<u64>,
}

impl Control {
    /// Answers requests until one asks the kernel to end.
    ///
    /// # Errors
    /// The socket ended.
    pub(crate) async fn serve(mut self) -> Result<(), KernelError> {
        while let Some(request) = self.channels.requests.recv().await {
            // First of all: what is published waits behind the outputs of the cell.
            if request.kind() == "interrupt_request" {
                self.interrupts.send_modify(|count| *count += 1);
            }
            status(&self.iopub, &request, "busy").await;
            let ends = self.answer(&request).await;
            status(&self.iopub, &request, "idle").await;
            if ends {
                return Ok(());
            }
        }
        Err(KernelError::Ended)
    }

    /// Answers a request, and returns whether the kernel is to end.
    async fn answer(&mut self, request: &Message) -> bool {
        let (kind, content) = match request.kind() {
            "interrupt_request" => ("interrupt_reply", json!({ "status": "ok" })),
            "shutdown_request" => {
                let restart = request.flag("restart", false);
                let content = json!({ "status": "ok", "restart": restart });
                self.iopub.publish(request, "shutdown_reply", &content).await;
                ("shutdown_reply", content)
            }
            "kernel_info_request" => ("kernel_info_reply", self.info.reply()),
            "debug_request" => {
                let content = json!({
                    "status": "error",
                    "ename": "NotImplementedError",
                    "evalue": "this kernel has no debugger",
                    "traceback": [],
                });
                ("debug_reply", content)
            }
            other => {
                tracing::debug!(kind = other, "a request was left unanswered");
                return false;
            }
        };
        self.channels.replies.send(request, kind, &content).await;
        kind == "shutdown_reply"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_commands_alone_are_commands() {
        let fork = Command::Fork("a-1".to_owned());
        assert_eq!(parse("  %fork a-1 \n"), Some(Ok(vec![fork.clone()])));
        let both = parse("# try it\n%checkpoint\n\n%fork a-1\n");
        let checkpoint = Command::Checkpoint(DEFAULT_CHECKPOINT.to_owned());
        assert_eq!(both, Some(Ok(vec![checkpoint, fork])));
        for source in ["", "# nothing", "x = 1\n%fork a", "%forked a", "%time x", "fork a"] {
            assert_eq!(parse(source), None, "{source}");
        }
        for source in ["%fork", "%switch", "%fork a b", "%sessions a", "%restore ../a"] {
            assert!(matches!(parse(source), Some(Err(_))), "{source}");
        }
    }
}
