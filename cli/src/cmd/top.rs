//! `hatchery top`: shows a batch with `--metrics`, or a server, live in a terminal.
//!
//! A [`StatusSource`] fetches the status, and a [`Screen`] shows it: as text, or live.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hatchery::wire::to_line;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::timeout;

use super::nats::run_top;
use crate::args::TopArguments;
use crate::exit::{Exit, UsageError};
use crate::{signals, terminal};
use screen::Screen;
use source::{Answer, StatusSource};

mod draw;
mod screen;
mod source;

/// The width of `--once` output without a terminal.
const COLUMNS: u16 = 100;

pub(crate) async fn run(arguments: TopArguments) -> anyhow::Result<Exit> {
    if let Some(url) = &arguments.nats {
        return run_top(url, &arguments).await;
    }
    let source = Arc::new(StatusSource::new(&arguments.address)?);
    let status = source.ask().await.map_err(|error| advice(&source, &error))?;
    if arguments.json {
        let starting = || format!("the pool at `{}` is starting; ask again", source.address);
        terminal::print(to_line(&status.ok_or_else(|| UsageError(starting()))?))?;
        return Ok(Exit::Success);
    }
    let mut screen = Screen::new(&arguments.address);
    screen.take(Ok(status));
    if arguments.once {
        let size = ratatui::crossterm::terminal::size().ok();
        let size = size.filter(|_| std::io::stdout().is_terminal());
        let columns = size.map_or(COLUMNS, |(columns, _)| columns);
        terminal::write(draw::as_text(&screen, columns).as_bytes())?;
        return Ok(Exit::Success);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let text = "this needs a terminal; --once prints the status as text";
        return Err(UsageError(text.to_owned()).into());
    }
    watch_until_signal(source, screen, arguments.interval).await
}

/// How long the screen may take to restore the terminal.
const LONGEST_END: Duration = Duration::from_secs(1);

/// Shows the screen until the user or a signal ends it.
async fn watch_until_signal(
    source: Arc<StatusSource>,
    screen: Screen,
    interval: Duration,
) -> anyhow::Result<Exit> {
    // Ctrl-C is a key here; these signals come from other processes.
    let mut interrupts = signals::interrupts(2)?;
    let mut endings = signals::endings()?;
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let (sender, answers) = mpsc::channel(1);
    tokio::spawn(poll_status(source, interval, sender));
    let mut watching = tokio::task::spawn_blocking(move || watch(screen, answers, &is_over));
    let exit = tokio::select! {
        ended = &mut watching => {
            ended??;
            return Ok(Exit::Success);
        }
        exit = interrupts.first() => exit,
        exit = endings.first_or_closed() => exit,
    };
    over.store(true, Ordering::Relaxed);
    // The terminal is restored before the process ends, unless it is gone and holds up the thread.
    if let Ok(ended) = tokio::time::timeout(LONGEST_END, watching).await {
        ended??;
    }
    Ok(exit)
}

/// Says why a pool can't be watched, and what to do about it.
fn advice(StatusSource { address, .. }: &StatusSource, error: &anyhow::Error) -> UsageError {
    UsageError(format!(
        "can't watch a pool at `{address}`: {error:#}; start one with `hatchery batch JOBS --metrics \
         {address}` or `hatchery serve --http {address}`"
    ))
}

// The screen, live in the terminal.
//
// A task fetches the status and sends it here. The screen shows the latest answer, even if the
// connection is lost.

/// The time until a new answer or the end takes effect: 50 ms.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Shows a screen in this process's terminal until somebody presses `q`, Esc or Ctrl-C there, or
/// `is_over` is set. Blocks; the terminal is restored at the end, also by a panic. Fails if the
/// terminal can't be used, or has been closed.
fn watch(
    screen: Screen,
    answers: Receiver<anyhow::Result<Answer>>,
    is_over: &AtomicBool,
) -> std::io::Result<()> {
    // Also makes panics restore the terminal before their message.
    let mut terminal = ratatui::try_init()?;
    let watched = show(&mut terminal, screen, answers, is_over);
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

/// Fetches the status after each `interval`, until nobody shows it any more.
async fn poll_status(
    source: Arc<StatusSource>,
    interval: Duration,
    sender: Sender<anyhow::Result<Answer>>,
) {
    while timeout(interval, sender.closed()).await.is_err() {
        // An error says that the screen has ended, which the next wait notices.
        let _ = sender.send(source.ask().await).await;
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    mut screen: Screen,
    mut answers: Receiver<anyhow::Result<Answer>>,
    is_over: &AtomicBool,
) -> std::io::Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        while let Ok(answer) = answers.try_recv() {
            screen.take(answer);
        }
        terminal.draw(|frame| draw::draw(&screen, frame.area(), frame.buffer_mut()))?;
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

/// Waits for a key, at most for a tick. Also notices a closed terminal, whose end crossterm would read
/// again and again.
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
        screen.view["workers"] =
            (0..3).map(|worker| serde_json::json!({ "worker": worker })).collect();
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
