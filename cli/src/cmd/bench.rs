//! `hatchery bench`: what Hatchery does on this machine, in a minute.
//!
//! [`measure`] fills a [`Report`] in rounds. Each takes a few samples of every figure, so that a
//! busy minute of the machine affects all of them. Nothing is estimated: a figure has the samples
//! of at least five rounds, or isn't reported. Not measured: fetching and compiling the Python
//! build, which happens once on a machine.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use hatchery::Hatchery;
use indicatif::ProgressBar;

use crate::exit::Exit;
use crate::{progress, signals, terminal};
use report::{Report, measure};

mod figures;
mod report;
mod rounds;

pub(crate) async fn run(is_quick: bool, is_json: bool) -> anyhow::Result<Exit> {
    // The first ends the benchmark, the second this process.
    let mut interrupts = signals::interrupts(2)?;
    let program = std::env::current_exe().context("can't find this program's own file")?;
    let mut report = Report::new(is_quick);
    let time = report.rounds_time();
    let builder = || Hatchery::builder().progress(progress::sink());
    let mut shown = None;
    let tell = |elapsed: Duration| {
        if let Some(bar) = shown.get_or_insert_with(|| rounds_bar(time)) {
            bar.set_position(elapsed.as_secs());
        }
    };
    let exit = tokio::select! {
        measured = measure(&mut report, program, builder, tell) => {
            measured?;
            Exit::Success
        }
        exit = interrupts.first() => {
            terminal::note("interrupted; only what was measured in enough rounds is reported");
            exit
        }
    };
    drop(shown);
    report.end();
    match is_json {
        true => terminal::print(report.json())?,
        false => terminal::print(report.text())?,
    }
    Ok(exit)
}

/// Begins to show the progress of the rounds: a bar on a terminal, a note elsewhere.
fn rounds_bar(time: Duration) -> Option<ProgressBar> {
    let is_terminal = std::io::stderr().is_terminal();
    if !is_terminal {
        terminal::note(format_args!("measuring for {} s", time.as_secs()));
    }
    let is_shown = is_terminal && !terminal::is_quiet();
    is_shown.then(|| terminal::bar("measuring {wide_bar} {percent}%", Some(time.as_secs())))
}
