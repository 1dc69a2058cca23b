//! Ctrl-C: the first one asks, the second one ends the process.

use tokio::sync::watch;

use crate::exit::Exit;
use crate::terminal;

/// Becomes true at the first Ctrl-C. The second one ends the process with 130 at once.
pub(crate) fn interrupts() -> anyhow::Result<watch::Receiver<bool>> {
    let (sender, receiver) = watch::channel(false);
    // Registered here, so that no Ctrl-C after this call has its default effect.
    let mut signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
    tokio::spawn(async move {
        if signal.recv().await.is_none() {
            return;
        }
        let _ = sender.send(true);
        if signal.recv().await.is_some() {
            terminal::note("interrupted twice, leaving at once");
            let code = i32::from(INTERRUPTED);
            std::process::exit(code);
        }
    });
    Ok(receiver)
}

/// The code of `Exit::Interrupted`.
const INTERRUPTED: u8 = 130;

/// Waits for the first Ctrl-C.
pub(crate) async fn interrupted(receiver: &mut watch::Receiver<bool>) -> Exit {
    if receiver.wait_for(|interrupted| *interrupted).await.is_err() {
        // The watching task never ends before the process does.
        std::future::pending::<()>().await;
    }
    Exit::Interrupted
}
