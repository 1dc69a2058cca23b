//! `hatchery top`: shows a batch with `--metrics`, or a server, live in a terminal.
//!
//! A [`StatusSource`] fetches the status, and a [`Screen`] shows it: as text, or live.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hatchery::wire::to_line;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
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

/// The width of the output without a terminal.
const COLUMNS: usize = 100;

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
        let columns = terminal::columns().unwrap_or(COLUMNS);
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

/// The height of a terminal that has none.
const ROWS: usize = 24;

/// The terminal of this process while it shows a screen. It is restored when this is dropped.
struct LiveTerminal {
    before: Termios,
    /// Its columns and rows.
    size: (usize, usize),
    shown: Vec<String>,
}

impl LiveTerminal {
    /// Switches to the terminal's other screen, without a cursor, echo and signals of keys.
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let live = Self { before, size: (0, 0), shown: Vec::new() };
        Self::write("\x1b[?1049h\x1b[?25l")?;
        Ok(live)
    }

    /// Shows a screen; writes the lines that differ from those before.
    fn show(&mut self, screen: &Screen) -> io::Result<()> {
        let size = (terminal::columns().unwrap_or(COLUMNS), terminal::rows().unwrap_or(ROWS));
        let mut text = String::new();
        if size != self.size {
            self.size = size;
            self.shown.clear();
            text += "\x1b[2J";
        }
        let lines = draw::draw(screen, size.0, size.1);
        for (row, line) in
            lines.iter().enumerate().filter(|(row, line)| self.shown.get(*row) != Some(*line))
        {
            text += &format!("\x1b[{};1H{line}", row + 1);
        }
        self.shown = lines;
        Self::write(&text)
    }

    fn write(text: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
    }
}

impl Drop for LiveTerminal {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = Self::write("\x1b[?25h\x1b[?1049l");
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Shows a screen in this process's terminal until somebody presses `q`, Esc or Ctrl-C there, or
/// `is_over` is set. Blocks; the terminal is restored at the end. Fails if the terminal can't be
/// used, or has been closed.
fn watch(
    mut screen: Screen,
    mut answers: Receiver<anyhow::Result<Answer>>,
    is_over: &AtomicBool,
) -> io::Result<()> {
    let mut terminal = LiveTerminal::begin()?;
    while !is_over.load(Ordering::Relaxed) {
        while let Ok(answer) = answers.try_recv() {
            screen.take(answer);
        }
        terminal.show(&screen)?;
        let typed = read_keys()?;
        let mut left = typed.as_slice();
        while !left.is_empty() {
            let (key, others) = split_key(left);
            if !handle_key(key, &mut screen) {
                return Ok(());
            }
            left = others;
        }
    }
    Ok(())
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

/// Waits for keys, at most for a tick, and returns what was typed. Fails if the terminal is closed.
fn read_keys() -> io::Result<Vec<u8>> {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    match rustix::event::poll(&mut polled, Some(&TICK)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let (found, closed) = (polled[0].revents(), PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
    let mut typed = [0; 64];
    let count = match found.contains(PollFlags::IN) && !found.intersects(closed) {
        true => rustix::io::read(&stdin, &mut typed)?,
        false if found.is_empty() => return Ok(Vec::new()),
        false => 0,
    };
    if count == 0 {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    Ok(typed[..count].to_vec())
}

/// Splits the first key off what was typed: a byte, or the sequence of a key that isn't a character.
fn split_key(typed: &[u8]) -> (&[u8], &[u8]) {
    let ends = |byte: &u8| (0x40..=0x7e).contains(byte);
    let len = match typed {
        [0x1b, b'[' | b'O', rest @ ..] => {
            rest.iter().position(ends).map_or(rest.len(), |at| at + 1) + 2
        }
        _ => 1,
    };
    typed.split_at(len)
}

/// Handles a key. Returns `false` if it ends the program.
fn handle_key(key: &[u8], screen: &mut Screen) -> bool {
    match key {
        // Esc and Ctrl-C are the last two.
        b"q" | b"\x1b" | b"\x03" => return false,
        b"p" => screen.is_paused = !screen.is_paused,
        b"\x1b[A" | b"\x1bOA" => screen.scroll(-1),
        b"\x1b[B" | b"\x1bOB" => screen.scroll(1),
        b"\x1b[5~" => screen.scroll(-10),
        b"\x1b[6~" => screen.scroll(10),
        b"\x1b[H" | b"\x1bOH" | b"\x1b[1~" => screen.scroll(isize::MIN),
        b"\x1b[F" | b"\x1bOF" | b"\x1b[4~" => screen.scroll(isize::MAX),
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
        let mut press = |key: &[u8]| handle_key(key, &mut screen);
        assert!(!press(b"q") && !press(b"\x1b") && !press(b"\x03"));
        assert!(press(b"c") && press(b"p"));
        assert!(press(b"\x1b[6~") && press(b"\x1b[A"));
        assert!(screen.is_paused);
        assert_eq!(screen.first_worker, 1);
    }

    #[test]
    fn keys_come_one_after_the_other() {
        let mut left = &b"p\x1b[A\x1bOHq\x1b[15~\x1b"[..];
        let mut keys = Vec::new();
        while !left.is_empty() {
            let (key, others) = split_key(left);
            keys.push(key);
            left = others;
        }
        assert_eq!(keys, [&b"p"[..], b"\x1b[A", b"\x1bOH", b"q", b"\x1b[15~", b"\x1b"]);
        assert_eq!(split_key(b"\x1b[1"), (&b"\x1b[1"[..], &b""[..]));
    }
}
