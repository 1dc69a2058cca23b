//! The state of the screen, updated by answers and keys.

use serde_json::Value;

use super::source::Answer;
use super::view::list;

pub(super) struct Screen {
    pub(super) address: String,
    /// The latest status; null before the first.
    pub(super) view: Value,
    /// Why there is no status, or no newer one.
    pub(super) problem: Option<String>,
    /// Whether new answers are ignored.
    pub(super) is_paused: bool,
    /// The index of the first worker on the screen.
    pub(super) first_worker: usize,
}

impl Screen {
    pub(super) fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            view: Value::Null,
            problem: None,
            is_paused: false,
            first_worker: 0,
        }
    }

    pub(super) fn take(&mut self, answer: Result<Answer, String>) {
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
            Err(error) => self.problem = Some(format!("connection lost, retrying: {error}")),
        }
    }

    pub(super) fn scroll(&mut self, by: isize) {
        let last = list(&self.view["workers"]).len().saturating_sub(1);
        self.first_worker = self.first_worker.saturating_add_signed(by).min(last);
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
        screen.take(Err("refused".to_owned()));
        assert_eq!(screen.view["queue_depth"], 7);
        assert!(screen.problem.as_ref().is_some_and(|problem| problem.contains("refused")));
        screen.is_paused = true;
        screen.take(Ok(Some(Value::Null)));
        assert_eq!(screen.view["queue_depth"], 7);
    }
}
