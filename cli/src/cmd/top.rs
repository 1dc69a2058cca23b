//! `hatchery top`: shows a batch with `--metrics`, or a server, live in a terminal.
//! `top.rs` beside `cmd` has the screen.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hatchery::error::chain;

use super::nats::run_top;
use crate::args::TopArguments;
use crate::exit::{Exit, UsageError};
use crate::top::{Screen, SourceError, StatusSource, screen_width, watch};
use crate::{signals, terminal};

/// The width of `--once` output without a terminal.
const COLUMNS: u16 = 100;

pub(crate) async fn run(arguments: TopArguments) -> anyhow::Result<Exit> {
    if let Some(url) = &arguments.nats {
        return run_top(url, &arguments).await;
    }
    let source =
        StatusSource::new(&arguments.address).map_err(|error| UsageError(error.to_string()))?;
    let source = Arc::new(source);
    if arguments.json {
        return print_json(source).await;
    }
    let asked = Arc::clone(&source);
    let first = tokio::task::spawn_blocking(move || asked.ask()).await?;
    let first = first.map_err(|error| advice(&source, &error))?;
    let mut screen = Screen::new(&arguments.address);
    screen.take(Ok(first));
    if arguments.once {
        let is_terminal = std::io::stdout().is_terminal();
        let columns = screen_width().filter(|_| is_terminal).unwrap_or(COLUMNS);
        terminal::write(screen.as_text(columns).as_bytes())?;
        return Ok(Exit::Success);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let text = "this needs a terminal; --once prints the status as text";
        return Err(UsageError(text.to_owned()).into());
    }
    watch_until_signal(source, screen, arguments.interval).await
}

/// Prints the status as it is sent.
async fn print_json(source: Arc<StatusSource>) -> anyhow::Result<Exit> {
    let asked = Arc::clone(&source);
    let status = tokio::task::spawn_blocking(move || asked.ask_json()).await?;
    let status = status.map_err(|error| advice(&source, &error))?;
    let starting = || format!("the pool at `{}` is starting; ask again", source.address());
    terminal::print(status.ok_or_else(|| UsageError(starting()))?)?;
    Ok(Exit::Success)
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
    let mut watching =
        tokio::task::spawn_blocking(move || watch(source, screen, interval, &is_over));
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
fn advice(source: &StatusSource, error: &SourceError) -> UsageError {
    let (address, error) = (source.address(), chain(error));
    UsageError(format!(
        "can't watch a pool at `{address}`: {error}; start one with `hatchery batch JOBS --metrics \
         {address}` or `hatchery serve --http {address}`"
    ))
}
