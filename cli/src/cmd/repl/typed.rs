//! Standard input of programs at the prompt: the lines that the user types while they run.
//!
//! The programs' standard input comes from a host function (`Job::stdin_from`). Each call of it
//! waits here until the reader has a line.

use hatchery::{HostError, HostFunction};
use tokio::sync::{mpsc, oneshot};

use super::reader::Reader;
use super::terminal::Heard;
use crate::follow::Lines;

/// The function that provides standard input.
pub(super) const READ_LINE: &str = "read_line";

/// A line with its end; empty at the end of input, `None` at Ctrl-C.
type Answer = Option<String>;

/// Calls of the function that wait for a line.
pub(super) struct Calls {
    received: mpsc::Receiver<oneshot::Sender<Answer>>,
    /// The latest call. It gets no answer if its line is given up, since its program is being
    /// interrupted.
    last: Option<oneshot::Sender<Answer>>,
}

/// Returns the function, and the receiver of its calls.
pub(super) fn read_line() -> (HostFunction, Calls) {
    let (sender, received) = mpsc::channel::<oneshot::Sender<Answer>>(1);
    let function = HostFunction::future(READ_LINE, move |(): ()| {
        let sender = sender.clone();
        async move {
            let (answer, answered) = oneshot::channel();
            let _ = sender.send(answer).await;
            answered.await.map_err(|_| HostError::new("EOFError", "standard input has ended"))
        }
    });
    let function = function
        .doc("Reads a typed line, for standard input.")
        .no_parameters()
        .returns("str | None");
    (function, Calls { received, last: None })
}

/// Reads lines for a program while it runs.
pub(super) struct Typed<'a> {
    pub(super) calls: &'a mut Calls,
    pub(super) reader: &'a mut Reader,
    /// Output since the last line end, which precedes the next typed line on the screen.
    pub(super) unfinished: Vec<u8>,
}

impl Lines for Typed<'_> {
    fn shown(&mut self, bytes: &[u8]) {
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => self.unfinished = bytes[end + 1..].to_vec(),
            None => self.unfinished.extend_from_slice(bytes),
        }
    }

    async fn wanted(&mut self) {
        match self.calls.received.recv().await {
            Some(call) => self.calls.last = Some(call),
            None => std::future::pending().await,
        }
    }

    async fn give(&mut self) -> anyhow::Result<()> {
        if self.calls.last.as_ref().is_none_or(oneshot::Sender::is_closed) {
            // Its program has ended meanwhile.
            return Ok(());
        }
        let shown = String::from_utf8_lossy(&self.unfinished);
        let shown = shown.rsplit('\r').next().unwrap_or_default().to_owned();
        let heard = self.reader.read_for_program(&shown).await?;
        if self.reader.is_terminal() {
            // Enter ends the row on the screen.
            self.unfinished.clear();
        }
        if let Some(call) = self.calls.last.take() {
            let _ = call.send(match heard {
                Heard::Line(line) => Some(line + "\n"),
                Heard::End => Some(String::new()),
                Heard::Discard | Heard::Interrupt => None,
            });
        }
        Ok(())
    }
}
