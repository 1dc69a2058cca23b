//! Signals: Ctrl-C, which interrupts a program before it ends this process, SIGTERM and SIGHUP.

use std::io::IsTerminal;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::exit::Exit;
use crate::terminal;

/// Counts Ctrl-C. Clones share the count.
#[derive(Clone)]
pub(crate) struct Interrupts(watch::Sender<u32>);

/// Starts counting Ctrl-C. The `last` one ends the process with 130 at once.
pub(crate) fn interrupts(last: u32) -> anyhow::Result<Interrupts> {
    let interrupts = Interrupts(watch::Sender::new(0));
    // Registered here, so that no Ctrl-C after this call has its default effect.
    let mut signal = signal(SignalKind::interrupt())?;
    tokio::spawn({
        let counter = interrupts.0.clone();
        async move {
            let mut count = 0;
            while count < last && signal.recv().await.is_some() {
                counter.send_modify(|sent| {
                    *sent += 1;
                    count = *sent;
                });
            }
            if count < last {
                return;
            }
            // On another thread: the reader of standard error may have stalled, and the process
            // still exits.
            let (sender, receiver) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                terminal::note(format_args!("interrupted {last} times, exiting at once"));
                let _ = sender.send(());
            });
            let _ = receiver.recv_timeout(LAST_WORDS);
            std::process::exit(INTERRUPTED);
        }
    });
    Ok(interrupts)
}

/// Signals that end the process, after it has saved what it can.
pub(crate) struct Endings {
    terminate: Signal,
    /// `None` if it is ignored, as under `nohup`.
    hangup: Option<Signal>,
}

/// Starts handling SIGTERM and SIGHUP, which then no longer end the process by themselves.
pub(crate) fn endings() -> anyhow::Result<Endings> {
    let hangup = SignalKind::hangup();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let hangup = if is_ignored(&status, hangup) { None } else { Some(signal(hangup)?) };
    Ok(Endings { terminate: signal(SignalKind::terminate())?, hangup })
}

impl Endings {
    /// Waits for the first signal.
    pub(crate) async fn first(&mut self) -> Exit {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        let kind = tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = hangup => SignalKind::hangup(),
        };
        exit_of(kind)
    }

    /// Waits for the first signal, or until the terminal on standard input is closed: a process that
    /// ignores SIGHUP, or runs in the background there, gets no signal of that.
    pub(crate) async fn first_or_closed(&mut self) -> Exit {
        tokio::select! {
            exit = self.first() => exit,
            () = closed_terminal() => exit_of(SignalKind::hangup()),
        }
    }
}

/// How often to look whether the terminal is still there.
const LOOK: Duration = Duration::from_millis(500);

/// Waits until the terminal on standard input is closed; never if there is none.
async fn closed_terminal() {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return std::future::pending().await;
    }
    let mut looks = tokio::time::interval(LOOK);
    loop {
        looks.tick().await;
        let mut polled = [PollFd::new(&stdin, PollFlags::empty())];
        let found = rustix::event::poll(&mut polled, Some(&Timespec::default()));
        if found.is_ok() && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            return;
        }
    }
}

fn exit_of(kind: SignalKind) -> Exit {
    Exit::Signal(u8::try_from(kind.as_raw_value()).unwrap_or(0))
}

/// Returns whether this process was started with the signal ignored, according to Linux.
fn is_ignored(status: &str, kind: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (kind.as_raw_value() - 1) & 1 == 1
}

/// How long the final message may take.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// The code of `Exit::Interrupted`.
const INTERRUPTED: i32 = 130;

impl Interrupts {
    /// Waits until Ctrl-C has come more than `heard` times, and returns the count.
    pub(crate) async fn more_than(&mut self, heard: u32) -> u32 {
        let mut counts = self.0.subscribe();
        *counts.wait_for(|count| *count > heard).await.expect("the sender is in `self`")
    }

    /// Returns the count for notebooks.
    pub(crate) fn counts(&self) -> ::notebook::Interrupts {
        ::notebook::Interrupts(self.0.subscribe())
    }

    /// Resets the count.
    pub(crate) fn forget(&self) {
        self.0.send_replace(0);
    }

    /// Waits for the first Ctrl-C.
    pub(crate) async fn first(&mut self) -> Exit {
        self.more_than(0).await;
        Exit::Interrupted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_recognized() {
        let status = "Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SignalKind::hangup()));
        assert!(!is_ignored(status, SignalKind::terminate()));
        assert!(!is_ignored("", SignalKind::hangup()));
    }
}
