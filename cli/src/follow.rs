//! Follows one job to its end: forwards its output, handles Ctrl-C, and reports how it ended.

use std::io::Write;

use ::notebook::end_by;
use anyhow::Context;
use hatchery::error::chain;
use hatchery::event::{Event, EventKind, Stream};
use hatchery::terminal::Escapes;
use hatchery::{Outcome, Ticket, Verdict};
use tokio::task::JoinHandle;

use crate::signals::Interrupts;
use crate::{displays, terminal};

/// By their numbers.
const STREAMS: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

/// Provides the lines that a program reads while it runs; by default, it reads none.
pub(crate) trait Lines {
    /// Takes note of output to the user.
    fn shown(&mut self, _bytes: &[u8]) {}

    /// Waits until the program wants a line. Cancel-safe.
    async fn wanted(&mut self) {
        std::future::pending().await
    }

    /// Reads a line and gives it to the program. If dropped earlier, the program gets none.
    async fn give(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// For a program that reads no line.
impl Lines for () {}

/// What came of following a job.
pub(crate) struct Followed {
    pub(crate) outcome: Outcome,
    /// How often Ctrl-C came.
    pub(crate) interrupts: u32,
    /// How many of its displays were drawn as pictures.
    pub(crate) drawn: usize,
}

/// Waits for the outcome, and passes output on as it comes. The program reads these lines, each
/// once all earlier output is written. The first Ctrl-C interrupts the program, the second stops
/// it.
pub(crate) async fn follow(
    ticket: &mut Ticket,
    passes_on: bool,
    interrupts: &mut Interrupts,
    lines: &mut impl Lines,
) -> anyhow::Result<Followed> {
    let (mut heard, mut drawn) = (0, 0);
    let mut events = ticket.events();
    let mut escapes = STREAMS.map(terminal::escapes);
    // On its own thread, since a reader may stall, and Ctrl-C must still work. Says whether it has drawn
    // a picture, which has a line end behind it.
    let mut writing: Option<JoinHandle<std::io::Result<bool>>> = None;
    loop {
        tokio::select! {
            biased;
            count = interrupts.more_than(heard) => {
                heard = count;
                end_by(ticket, heard);
            }
            written = async { writing.as_mut().expect("there is a write").await },
                if writing.is_some() =>
            {
                writing = None;
                if written.context("a write panicked")?? {
                    drawn += 1;
                    lines.shown(b"\n");
                }
            }
            event = events.next(), if writing.is_none() => {
                let Some(Event { kind, .. }) = event else { break };
                let (stream, bytes) = match kind {
                    _ if !passes_on => continue,
                    EventKind::Output { stream, bytes } => (stream, bytes),
                    // Drawn if the terminal can. Its text says little, and is omitted.
                    EventKind::Display(display) if displays::has_image(&display) => {
                        let draw = move || displays::draw(&display);
                        writing = Some(tokio::task::spawn_blocking(draw));
                        continue;
                    }
                    EventKind::Display(display) => match display.text("text/plain") {
                        Some(text) => (Stream::Stdout, format!("{text}\n").into_bytes()),
                        None => continue,
                    },
                    _ => continue,
                };
                let bytes = match &mut escapes[stream as usize] {
                    Some(escapes) => escapes.pass(&bytes),
                    None => bytes,
                };
                lines.shown(&bytes);
                let write = move || pass_on(stream, &bytes).map(|()| false);
                writing = Some(tokio::task::spawn_blocking(write));
            }
            // Last, so that all output is written before the program reads a line.
            () = lines.wanted(), if writing.is_none() => tokio::select! {
                given = lines.give() => given?,
                // The program no longer waits for the line.
                _ = ticket.outcome() => {}
                count = interrupts.more_than(heard) => {
                    heard = count;
                    end_by(ticket, heard);
                }
            }
        }
    }
    for (stream, escapes) in STREAMS.into_iter().zip(&mut escapes) {
        pass_on(stream, &escapes.as_mut().map(Escapes::finish).unwrap_or_default())?;
    }
    Ok(Followed { outcome: ticket.outcome().await, interrupts: heard, drawn })
}

fn pass_on(stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
    match stream {
        Stream::Stdout => terminal::write(bytes),
        Stream::Stderr => std::io::stderr().lock().write_all(bytes),
    }
}

/// Reports on standard error what the program's own output doesn't say.
pub(crate) fn report(outcome: &Outcome) {
    match &outcome.verdict {
        // The program's output already contains a message of `sys.exit`.
        Verdict::Exited { code: Outcome::ABORTED | Outcome::CRASHED, message: Some(message) } => {
            terminal::error(message);
        }
        Verdict::Completed { .. } | Verdict::Exited { .. } => {}
        Verdict::Raised(exception) => {
            terminal::say(&exception.traceback);
        }
        Verdict::Limit(hit) => {
            report_place(outcome);
            terminal::error(format_args!("stopped, {hit}"));
        }
        Verdict::Cancelled => {
            report_place(outcome);
            terminal::error("interrupted");
        }
        Verdict::Tampered(tampering) => terminal::error(tampering),
        // A fault of the user's input, or of a request to a session.
        Verdict::SandboxFailed(failure) if !failure.is_of_interpreter() => {
            terminal::error(chain(failure));
        }
        Verdict::SandboxFailed(failure) => {
            terminal::error(format_args!("the sandbox failed: {}", chain(failure)));
        }
        verdict => terminal::error(format_args!("ended as {}", verdict.name())),
    }
    ::notebook::remarks(outcome).iter().for_each(terminal::note);
}

/// Prints where the program was when it was stopped.
fn report_place(outcome: &Outcome) {
    if let Some(exception) = &outcome.interrupted_at {
        terminal::say(&exception.traceback);
    }
}
