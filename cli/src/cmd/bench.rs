//! `hatchery bench`: what Hatchery does on this machine, in a minute. The module `bench` measures.

use std::time::Duration;

use anyhow::Context;
use hatchery::Hatchery;
use indicatif::ProgressBar;

use crate::args::BenchArguments;
use crate::bench::{BenchSettings, Report, Sections, measure};
use crate::exit::Exit;
use crate::{progress, signals, terminal};

pub(crate) async fn run(arguments: BenchArguments) -> anyhow::Result<Exit> {
    // The first ends the benchmark, the second this process.
    let mut interrupts = signals::interrupts(2)?;
    let mut settings =
        if arguments.quick { BenchSettings::quick() } else { BenchSettings::default() };
    let program = std::env::current_exe().context("can't find this program's own file")?;
    settings.program = Some(program);
    let mut report = Report::new(&settings);
    let builder = || Hatchery::builder().progress(progress::sink());
    let mut shown = None;
    let tell = |elapsed| {
        shown.get_or_insert_with(|| RoundsProgress::begin(settings.time())).update(elapsed);
    };
    let exit = tokio::select! {
        measured = measure(&mut report, &settings, builder, tell) => {
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
    if arguments.json {
        terminal::print(report.json())?;
    } else {
        terminal::print(text(report.sections()))?;
    }
    Ok(exit)
}

/// Formats a report, its parts apart.
fn text(sections: Sections) -> String {
    let Sections { facts: mut lines, table, ratios, end, .. } = sections;
    for part in [terminal::aligned(&table), ratios] {
        if !part.is_empty() {
            lines.push(String::new());
            lines.extend(part);
        }
    }
    lines.push(end);
    lines.join("\n")
}

/// The progress of the rounds: a bar on a terminal, a note elsewhere.
struct RoundsProgress(Option<ProgressBar>);

impl RoundsProgress {
    fn begin(time: Duration) -> Self {
        use std::io::IsTerminal;
        if terminal::is_quiet() {
            return Self(None);
        }
        if !std::io::stderr().is_terminal() {
            terminal::note(format_args!("measuring for {} s", time.as_secs()));
            return Self(None);
        }
        Self(Some(terminal::bar("measuring {wide_bar} {percent}%", Some(time.as_secs()))))
    }

    fn update(&self, elapsed: Duration) {
        if let Some(bar) = &self.0 {
            bar.set_position(elapsed.as_secs());
        }
    }
}
