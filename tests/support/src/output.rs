//! What a job writes while it runs.

use engine::EventKind;
use scheduler::Events;

/// Returns the next piece of output of either stream; `None` once the job has ended and all was read.
pub async fn next_output(events: &mut Events) -> Option<Vec<u8>> {
    loop {
        if let EventKind::Output { bytes, .. } = events.next().await?.kind {
            return Some(bytes);
        }
    }
}
