//! Shows the progress of notebooks. On a terminal it is a bar for each running one, elsewhere a
//! line for each as it ends. On request it is a line for each cell, or JSON.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

use ::notebook::{NotebookEnd, Observer, Progress, Report};
use hatchery::wire::to_line;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::args::NotebookProgress;
use crate::terminal;

/// How often the elapsed time is updated.
const TICK: Duration = Duration::from_millis(200);

/// The bars of all notebooks.
#[derive(Debug)]
pub(super) struct Board {
    /// The notebooks' names.
    names: Vec<String>,
    /// Not without a terminal, or with `--quiet`.
    has_bars: bool,
    tells_cells: bool,
    is_json: bool,
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
    pub(super) fn new(names: Vec<String>, form: Option<NotebookProgress>) -> Self {
        let has_bars = match form {
            Some(form) => form == NotebookProgress::Bars,
            None => std::io::stderr().is_terminal() && !terminal::is_quiet(),
        };
        Self {
            names,
            has_bars,
            tells_cells: form == Some(NotebookProgress::Lines) || terminal::is_verbose(),
            is_json: form == Some(NotebookProgress::Json),
            running: Mutex::default(),
        }
    }

    /// Tells that a notebook has ended.
    pub(super) fn ended(&self, notebook: usize, report: &Report) {
        let (end, cell) = match &report.end {
            NotebookEnd::Completed => ("completed", None),
            NotebookEnd::Exited(cell) => ("exited", Some(*cell)),
            NotebookEnd::Failed { cell, .. } => ("failed", Some(*cell)),
            NotebookEnd::Interrupted(cell) => ("interrupted", Some(*cell)),
            NotebookEnd::Broken(cell) => ("broken", Some(*cell)),
            NotebookEnd::NotStarted => ("not_started", None),
            _ => ("no_session", None),
        };
        self.tell_json(json!({
            "event": "ended", "notebook": self.names[notebook], "end": end, "cell": cell,
            "taken_over": report.taken_over, "allowed_errors": report.allowed_errors,
            "is_written": report.is_written,
        }));
    }

    fn tell_json(&self, event: Value) {
        if self.is_json {
            // A reader that is gone is no reason to stop the notebooks.
            let _ = terminal::print(to_line(&event));
        }
    }

    fn begin(&self, name: &str, total: usize) -> Line {
        let bar = self.has_bars.then(|| {
            let template = "{msg} {pos}/{len} {wide_bar} {elapsed}";
            let bar = terminal::bar(template, Some(total as u64));
            bar.set_message(name.to_owned());
            bar.enable_steady_tick(TICK);
            bar
        });
        Line { total, bar }
    }

    /// Tells users what they can't see otherwise.
    fn tell(&self, notebook: usize, step: &Progress) {
        let name = &self.names[notebook];
        let mut running = self.running.lock().expect("no holder panics");
        let total = running.get(&notebook).map_or(0, |line| line.total);
        let reach = |position: usize| {
            if let Some(Line { bar: Some(bar), .. }) = running.get(&notebook) {
                bar.set_position(position as u64);
            }
        };
        match step {
            Progress::NotResumed(why) => {
                terminal::note(format_args!("{name}: running from its start, since {why}"));
            }
            Progress::Started { cells: total } => {
                running.insert(notebook, self.begin(name, *total));
            }
            Progress::Resumed { done } => {
                reach(*done);
                let next = done + 1;
                terminal::note(format_args!("{name}: resuming at cell {next} of {total}"));
            }
            Progress::TakenOver { first, last, of_this_command } => {
                reach(*last);
                let cells = match (first, last) {
                    (1, last) if *last == total => format!("all {total} cells"),
                    (first, last) if first == last => format!("cell {first} of {total}"),
                    (first, last) => format!("cells {first} to {last} of {total}"),
                };
                match of_this_command {
                    true if self.tells_cells => {
                        terminal::note(format_args!("{name}: {cells} as in another notebook"));
                    }
                    true => {}
                    false => terminal::note(format_args!(
                        "{name}: {cells} taken over from an earlier run; --fresh runs them again"
                    )),
                }
            }
            Progress::CellStarted { cell: number } => {
                reach(number - 1);
                if self.tells_cells {
                    terminal::note(format_args!("{name}: cell {number} of {total}"));
                }
            }
            Progress::Ended => drop(running.remove(&notebook)),
            _ => {}
        }
    }
}

impl Observer for Board {
    fn progress(&self, notebook: usize, step: &Progress) {
        self.tell(notebook, step);
        // Those without a form as JSON are no events.
        let Ok(mut event) = serde_json::to_value(step) else { return };
        event["notebook"] = Value::from(self.names[notebook].as_str());
        self.tell_json(event);
    }
}
