//! The state of the screen, updated by answers and keys.

use super::source::Answer;
use super::view::View;

pub(super) struct Screen {
    pub(super) address: String,
    /// The latest status.
    pub(super) view: View,
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
            view: View::default(),
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
            Ok(Answer::Status(view)) => {
                self.view = *view;
                self.problem = None;
                self.scroll(0);
            }
            Ok(Answer::Starting) => self.problem = Some("the pool is starting".to_owned()),
            Err(error) => self.problem = Some(format!("connection lost, retrying: {error}")),
        }
    }

    pub(super) fn scroll(&mut self, by: isize) {
        let last = self.view.workers.len().saturating_sub(1);
        self.first_worker = self.first_worker.saturating_add_signed(by).min(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_keeps_what_was_shown() {
        let mut screen = Screen::new("here");
        screen.take(Ok(Answer::Starting));
        assert_eq!(screen.problem.as_deref(), Some("the pool is starting"));
        screen.take(Ok(Answer::Status(Box::new(View { queue_depth: 7, ..View::default() }))));
        assert_eq!((screen.view.queue_depth, &screen.problem), (7, &None));
        screen.take(Err("refused".to_owned()));
        assert_eq!(screen.view.queue_depth, 7);
        assert!(screen.problem.as_ref().is_some_and(|problem| problem.contains("refused")));
        screen.is_paused = true;
        screen.take(Ok(Answer::Status(Box::default())));
        assert_eq!(screen.view.queue_depth, 7);
    }
}
