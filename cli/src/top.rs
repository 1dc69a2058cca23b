//! What `hatchery top` shows.
//!
//! A [`StatusSource`] fetches the status from a batch with `--metrics` or from a server, and a [`Screen`]
//! shows a status: as text, as a widget of ratatui, or live in the terminal ([`watch`]).

pub(crate) use screen::Screen;
pub(crate) use source::{SourceError, StatusSource};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use source::Answer;

mod draw;
#[cfg(test)]
mod samples;
mod screen;
mod source;

// Shows a screen live in the terminal.
//
// A thread fetches the status and sends it here. The screen shows the latest answer, even if the
// connection is lost.

/// The time until a new answer or the end takes effect: 50 ms.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Shows a screen in this process's terminal until somebody presses `q`, Esc or Ctrl-C there, or
/// `is_over` is set. A thread fetches the status again after each `interval`. Blocks; the terminal is
/// restored at the end, also by a panic.
///
/// # Errors
/// The terminal can't be used, or has been closed, which is `BrokenPipe`.
pub(crate) fn watch(
    source: Arc<StatusSource>,
    screen: Screen,
    interval: Duration,
    is_over: &AtomicBool,
) -> std::io::Result<()> {
    // Also makes panics restore the terminal before their message.
    let mut terminal = ratatui::try_init()?;
    let (sender, answers) = mpsc::sync_channel(1);
    // Dropped at the end, which the thread notices between two requests.
    let (_running, ends) = mpsc::sync_channel(0);
    std::thread::spawn(move || poll_status(&source, interval, &ends, &sender));
    let watched = show(&mut terminal, screen, &answers, is_over);
    match &watched {
        // It would complain on the terminal that it can't use any more, and panic.
        Err(error) if is_gone(error) => std::mem::forget(terminal),
        _ => drop(terminal),
    }
    let restored = ratatui::try_restore();
    watched.and(restored)
}

/// Returns whether an error says that the terminal has been closed.
fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::BrokenPipe
        || error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// Returns how many columns this process's terminal has; `None` without one.
pub(crate) fn screen_width() -> Option<u16> {
    ratatui::crossterm::terminal::size().ok().map(|(columns, _)| columns)
}

fn poll_status(
    source: &StatusSource,
    interval: Duration,
    ends: &Receiver<()>,
    sender: &SyncSender<Result<Answer, SourceError>>,
) {
    while ends.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        if sender.send(source.ask()).is_err() {
            return;
        }
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    mut screen: Screen,
    answers: &Receiver<Result<Answer, SourceError>>,
    is_over: &AtomicBool,
) -> std::io::Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        answers.try_iter().for_each(|answer| screen.take(answer));
        terminal.draw(|frame| frame.render_widget(&screen, frame.area()))?;
        wait_for_key()?;
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && !handle_key(key, &mut screen)
            {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Waits for a key, at most for a tick. crossterm would read the end of a closed terminal again and
/// again, so that is noticed here.
fn wait_for_key() -> std::io::Result<()> {
    let stdin = std::io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    match rustix::event::poll(&mut polled, Some(&TICK)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let closed = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    if polled[0].revents().intersects(closed) {
        return Err(std::io::ErrorKind::BrokenPipe.into());
    }
    Ok(())
}

/// Handles a key. Returns `false` if it ends the program.
fn handle_key(key: KeyEvent, screen: &mut Screen) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('p') => screen.is_paused = !screen.is_paused,
        KeyCode::Up => screen.scroll(-1),
        KeyCode::Down => screen.scroll(1),
        KeyCode::PageUp => screen.scroll(-10),
        KeyCode::PageDown => screen.scroll(10),
        KeyCode::Home => screen.scroll(isize::MIN),
        KeyCode::End => screen.scroll(isize::MAX),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_pause_and_scroll() {
        let mut screen = Screen::new("here");
        screen.view["workers"] = (0..3).map(samples::worker).collect();
        let mut press = |code, modifiers| handle_key(KeyEvent::new(code, modifiers), &mut screen);
        assert!(!press(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(!press(KeyCode::Esc, KeyModifiers::NONE));
        assert!(!press(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(press(KeyCode::Char('c'), KeyModifiers::NONE));
        assert!(press(KeyCode::Char('p'), KeyModifiers::NONE));
        assert!(press(KeyCode::PageDown, KeyModifiers::NONE));
        assert!(press(KeyCode::Up, KeyModifiers::NONE));
        assert!(screen.is_paused);
        assert_eq!(screen.first_worker, 1);
    }
}
