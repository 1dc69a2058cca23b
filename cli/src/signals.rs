//! Ctrl-C: the first ones ask, the last one ends the process. And signals that ask for the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::exit::Exit;
use crate::terminal;

/// How often Ctrl-C has come. Clones count the same.
#[derive(Clone)]
pub(crate) struct Interrupts {
    count: watch::Receiver<u32>,
    counter: Arc<watch::Sender<u32>>,
}

/// Counts Ctrl-C from now on. The `last` one ends the process with 130 at once.
pub(crate) fn interrupts(last: u32) -> anyhow::Result<Interrupts> {
    let (counter, count) = watch::channel(0);
    let counter = Arc::new(counter);
    // Registered here, so that no Ctrl-C after this call has its default effect.
    let mut signal = signal(SignalKind::interrupt())?;
    tokio::spawn({
        let counter = Arc::clone(&counter);
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
            // Whoever should read this may have stopped reading, and the process leaves all the same.
            let (said, hears) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                terminal::note(format_args!("interrupted {last} times, leaving at once"));
                let _ = said.send(());
            });
            let _ = hears.recv_timeout(LAST_WORDS);
            std::process::exit(INTERRUPTED);
        }
    });
    Ok(Interrupts { count, counter })
}

/// Signals that end a process, and leave it time to keep what it has.
pub(crate) struct Endings {
    terminate: Signal,
    /// `None` if it is ignored, as `nohup` has it.
    hangup: Option<Signal>,
}

/// Hears SIGTERM and SIGHUP from now on, which no longer end the process by themselves.
pub(crate) fn endings() -> anyhow::Result<Endings> {
    let hangup = SignalKind::hangup();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let hangup = if is_ignored(&status, hangup) { None } else { Some(signal(hangup)?) };
    Ok(Endings { terminate: signal(SignalKind::terminate())?, hangup })
}

impl Endings {
    /// Waits for the first one.
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
        Exit::Signal(u8::try_from(kind.as_raw_value()).unwrap_or(0))
    }
}

/// Whether this process was started with the signal ignored, by what Linux says of it.
fn is_ignored(status: &str, kind: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (kind.as_raw_value() - 1) & 1 == 1
}

/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// The code of `Exit::Interrupted`.
const INTERRUPTED: i32 = 130;

impl Interrupts {
    /// Waits until Ctrl-C has come more than `heard` times, and says how often.
    pub(crate) async fn more_than(&mut self, heard: u32) -> u32 {
        let count = self.count.wait_for(|count| *count > heard).await.map(|count| *count);
        match count {
            Ok(count) => count,
            // The counting task never ends before the last one that counts.
            Err(_) => std::future::pending().await,
        }
    }

    /// How often it has come so far.
    pub(crate) fn count(&self) -> u32 {
        *self.count.borrow()
    }

    /// Counts from zero again.
    pub(crate) fn forget(&self) {
        self.counter.send_replace(0);
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
    fn what_is_ignored_is_read() {
        let status = "Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SignalKind::hangup()));
        assert!(!is_ignored(status, SignalKind::terminate()));
        assert!(!is_ignored("", SignalKind::hangup()));
    }
}
