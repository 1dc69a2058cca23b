//! Shows the progress of notebooks: on a terminal a bar for each running one, elsewhere a line for
//! each as it ends, and with `--verbose` a line for each cell.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

use ::notebook::{Observer, Progress};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::terminal;

/// How often the elapsed time is updated.
const TICK: Duration = Duration::from_millis(200);

/// The bars of all notebooks.
#[derive(Debug)]
pub(super) struct Board {
    /// The notebooks' names.
    names: Vec<String>,
    /// `None` without a terminal, or with `--quiet`.
    lines: Option<&'static MultiProgress>,
    /// The running notebooks.
    running: Mutex<BTreeMap<usize, Line>>,
}

/// A running notebook: the number of its cells, and its bar, which is removed on drop.
#[derive(Debug)]
struct Line {
    total: usize,
    bar: Option<ProgressBar>,
}

impl Board {
    pub(super) fn new(names: Vec<String>) -> Self {
        let is_shown = std::io::stderr().is_terminal() && !terminal::is_quiet();
        let lines = is_shown.then(terminal::bars);
        Self { names, lines, running: Mutex::default() }
    }

    fn begin(&self, name: &str, total: usize) -> Line {
        let bar = self.lines.map(|lines| {
            let style = ProgressStyle::with_template("{msg} {pos}/{len} {wide_bar} {elapsed}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = lines.add(ProgressBar::new(total as u64).with_style(style));
            bar.set_message(name.to_owned());
            bar.enable_steady_tick(TICK);
            bar
        });
        Line { total, bar }
    }
}

impl Observer for Board {
    fn progress(&self, notebook: usize, step: &Progress) {
        let name = &self.names[notebook];
        let mut running = self.running.lock().expect("no holder panics");
        match step {
            Progress::NotResumed { why } => {
                terminal::note(format_args!("{name}: running from its start, since {why}"));
            }
            Progress::Started { total, done } => {
                running.insert(notebook, self.begin(name, *total));
                if *done > 0 {
                    let next = done + 1;
                    terminal::note(format_args!("{name}: resuming at cell {next} of {total}"));
                }
            }
            Progress::Cell { number } => {
                let Some(Line { total, bar }) = running.get(&notebook) else { return };
                if let Some(bar) = bar {
                    bar.set_position(*number as u64 - 1);
                }
                if terminal::is_verbose() {
                    terminal::note(format_args!("{name}: cell {number} of {total}"));
                }
            }
            Progress::Ended => drop(running.remove(&notebook)),
            _ => {}
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
