//! `hatchery top`: shows a batch with `--metrics`, or a server, live in a terminal.
//!
//! A thread fetches the status and sends it here. The screen shows the latest answer, even if the
//! connection is lost.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::TopArguments;
use crate::exit::{Exit, UsageError};
use crate::terminal;

use self::screen::Screen;
use self::source::{Answer, Source};

#[cfg(feature = "nats")]
use super::nats::top as cluster;

#[cfg(not(feature = "nats"))]
mod cluster;
mod draw;
mod numbers;
#[cfg(test)]
mod samples;
mod screen;
mod source;
mod view;

/// The time until a key, a new answer or a signal takes effect.
const TICK: Duration = Duration::from_millis(50);
/// The width of `--once` output without a terminal.
const COLUMNS: u16 = 100;

pub(crate) async fn run(arguments: TopArguments) -> anyhow::Result<Exit> {
    if let Some(url) = &arguments.nats {
        return cluster::run(url, &arguments).await;
    }
    let source = Arc::new(Source::new(&arguments.address)?);
    if arguments.json {
        return print_json(source).await;
    }
    let asked = Arc::clone(&source);
    let first = tokio::task::spawn_blocking(move || asked.ask()).await?;
    let first = first.map_err(|error| UsageError(source.advice(&error)))?;
    let mut screen = Screen::new(&arguments.address);
    screen.take(Ok(first));
    if arguments.once {
        let columns = ratatui::crossterm::terminal::size().map_or(COLUMNS, |(columns, _)| columns);
        let is_terminal = std::io::stdout().is_terminal();
        let text = draw::as_text(&screen, if is_terminal { columns } else { COLUMNS });
        std::io::stdout().lock().write_all(text.as_bytes())?;
        return Ok(Exit::Success);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let text = "this needs a terminal; with --once the status is printed as text";
        return Err(UsageError(text.to_owned()).into());
    }
    watch_until_signal(source, screen, arguments.interval).await
}

/// Prints the status as it is sent.
async fn print_json(source: Arc<Source>) -> anyhow::Result<Exit> {
    let asked = Arc::clone(&source);
    let status = tokio::task::spawn_blocking(move || asked.ask_json()).await?;
    let status = status.and_then(|status| status.ok_or_else(|| "the pool is starting".to_owned()));
    terminal::print(status.map_err(|error| UsageError(source.advice(&error)))?)?;
    Ok(Exit::Success)
}

/// Shows the screen until the user or a signal ends it.
async fn watch_until_signal(
    source: Arc<Source>,
    screen: Screen,
    interval: Duration,
) -> anyhow::Result<Exit> {
    // Ctrl-C is a key here; these signals come from other processes.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let mut watching =
        tokio::task::spawn_blocking(move || watch(source, screen, interval, &is_over));
    let ended = tokio::select! {
        ended = &mut watching => Some(ended),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
        _ = hangup.recv() => None,
    };
    if let Some(ended) = ended {
        ended??;
        return Ok(Exit::Success);
    }
    // The terminal must be restored before the process ends.
    over.store(true, Ordering::Relaxed);
    watching.await??;
    Ok(Exit::Interrupted)
}

fn watch(
    source: Arc<Source>,
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
    ratatui::restore();
    watched
}

fn poll_status(
    source: &Source,
    interval: Duration,
    ends: &Receiver<()>,
    sender: &SyncSender<Result<Answer, String>>,
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
    answers: &Receiver<Result<Answer, String>>,
    is_over: &AtomicBool,
) -> std::io::Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        answers.try_iter().for_each(|answer| screen.take(answer));
        terminal.draw(|frame| draw::draw(&screen, frame.area(), frame.buffer_mut()))?;
        if event::poll(TICK)?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && !handle_key(key, &mut screen)
        {
            return Ok(());
        }
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
