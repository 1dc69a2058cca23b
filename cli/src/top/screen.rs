//! The state of the screen, updated by answers and keys.

use hatchery::error::chain;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;
use serde_json::Value;

use crate::top::draw;
use crate::top::source::{Answer, SourceError};
use crate::top::view::list;

/// What is shown of a pool: its queue, latencies, memory, sessions, workers and last errors. A
/// reference to it is a widget of ratatui.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(crate) address: String,
    /// The latest status; null before the first.
    pub(crate) view: Value,
    /// Why there is no status, or no newer one.
    pub(crate) problem: Option<String>,
    /// Whether new answers are ignored.
    pub(crate) is_paused: bool,
    /// The index of the first worker on the screen.
    pub(crate) first_worker: usize,
}

impl Screen {
    /// Creates a screen without a status. `address` says in its last line what it shows.
    pub(crate) fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            view: Value::Null,
            problem: None,
            is_paused: false,
            first_worker: 0,
        }
    }

    /// Shows a status, as [`Source::ask`](crate::top::Source::ask) returns it, or that there is none. An
    /// error leaves what was shown, and stands below.
    pub(crate) fn take(&mut self, answer: Result<Answer, SourceError>) {
        if self.is_paused {
            return;
        }
        match answer {
            Ok(Some(view)) => {
                self.view = view;
                self.problem = None;
                self.scroll(0);
            }
            Ok(None) => self.problem = Some("the pool is starting".to_owned()),
            Err(error) => {
                self.problem = Some(format!("connection lost, retrying: {}", chain(&error)));
            }
        }
    }

    /// Returns the whole screen as text, as high as necessary, of this width.
    pub(crate) fn as_text(&self, columns: u16) -> String {
        draw::as_text(self, columns)
    }

    /// Moves the list of workers by so many rows.
    pub(crate) fn scroll(&mut self, by: isize) {
        let last = list(&self.view["workers"]).len().saturating_sub(1);
        self.first_worker = self.first_worker.saturating_add_signed(by).min(last);
    }
}

impl Widget for &Screen {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        draw::draw(self, area, buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lost_connection_keeps_what_was_shown() {
        let mut screen = Screen::new("here");
        screen.take(Ok(None));
        assert_eq!(screen.problem.as_deref(), Some("the pool is starting"));
        screen.take(Ok(Some(json!({ "queue_depth": 7 }))));
        assert_eq!((&screen.view["queue_depth"], &screen.problem), (&json!(7), &None));
        screen.take(Err(SourceError::Io(std::io::Error::other("refused"))));
        assert_eq!(screen.view["queue_depth"], 7);
        assert!(screen.problem.as_ref().is_some_and(|problem| problem.contains("refused")));
        screen.is_paused = true;
        screen.take(Ok(Some(Value::Null)));
        assert_eq!(screen.view["queue_depth"], 7);
    }
}
