//! Progress of a call: how long it has taken, and the last line that the program has written.

use std::time::Duration;

use hatchery::event::{Event, EventKind};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// The shortest time between two notifications.
const TICK: Duration = Duration::from_millis(250);

/// After how many ticks without output a notification is sent all the same, so that clients see the
/// call is alive.
const SILENT_TICKS: u32 = 4;

/// The bytes of output in which the last line is sought, and the most characters of it that are
/// sent.
const TAIL_BYTES: usize = 800;
const MOST_CHARACTERS: usize = 200;

/// Notifies a client of a call's progress, if the client asked for it.
pub(super) struct Progress {
    to: Option<(Peer<RoleServer>, ProgressToken)>,
    ticks: Interval,
    began: Option<Instant>,
    silent: u32,
    /// The end of the output.
    tail: Vec<u8>,
    has_news: bool,
}

impl Progress {
    pub(super) fn new(context: &RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let to = token.map(|token| (context.peer.clone(), token));
        Self { to, ticks, began: None, silent: 0, tail: Vec::new(), has_news: false }
    }

    /// Whether the client asked for it.
    pub(super) fn is_wanted(&self) -> bool {
        self.to.is_some()
    }

    /// Notes what has happened in the job.
    pub(super) fn note(&mut self, event: Event) {
        let EventKind::Output { bytes, .. } = event.kind else { return };
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
        self.has_news = true;
    }

    /// Waits for the next moment at which something may be sent, and sends it if there is something
    /// to say. Waits for ever if the client wants nothing.
    pub(super) async fn tick(&mut self) {
        let Some((peer, token)) = &self.to else { return std::future::pending().await };
        let now = self.ticks.tick().await;
        let Some(began) = self.began else {
            self.began = Some(now);
            return;
        };
        self.silent += 1;
        if !self.has_news && self.silent < SILENT_TICKS {
            return;
        }
        self.silent = 0;
        let seconds = now.duration_since(began).as_secs_f64();
        let mut notification = ProgressNotificationParam::new(token.clone(), seconds);
        notification.message = self.has_news.then(|| last_line(&self.tail)).flatten();
        self.has_news = false;
        // A client that is gone ends the call in another way.
        let _ = peer.notify_progress(notification).await;
    }
}

/// Returns the last line that isn't blank, without control characters.
fn last_line(tail: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(tail);
    let line = text.rsplit(['\n', '\r']).find(|line| !line.trim().is_empty())?;
    let line = line.trim_end().chars().filter(|character| !character.is_control());
    Some(line.take(MOST_CHARACTERS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_plain_and_short() {
        assert_eq!(last_line(b"a\n b\x1b[0m \n\n").as_deref(), Some(" b[0m"));
        assert_eq!(last_line(b"1 %\r2 %\r").as_deref(), Some("2 %"));
        assert_eq!(last_line(b" \n"), None);
        assert_eq!(last_line(&[b'x'; TAIL_BYTES]).unwrap().len(), MOST_CHARACTERS);
    }
}
