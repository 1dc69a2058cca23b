//! What the user sees when a notebook has ended, and when all have.

use std::path::PathBuf;
use std::sync::Arc;

use ::notebook::{Difference, Error, NotebookEnd, Report, Resumption};
use hatchery::error::{chain, counted};
use hatchery::files::OutputFolder;
use hatchery::terminal::harmless;

use crate::exit::{Exit, is_of_input};
use crate::output::{links_left_out, list};
use crate::terminal;

/// What the user knows of a notebook.
#[derive(Debug)]
pub(super) struct Told {
    /// The path as the user typed it.
    pub(super) name: String,
    /// The copy with the outputs.
    pub(super) copy: PathBuf,
    /// The destination of the files from its cells: a subfolder of this name in the folder.
    pub(super) files: Option<(Arc<OutputFolder>, String)>,
}

impl Told {
    /// Reports how the notebook with `total` cells ended, and writes the files of its cells. Returns
    /// the exit.
    pub(super) fn conclude(
        &self,
        report: &Report,
        total: usize,
        differences: Option<&[Difference]>,
    ) -> Exit {
        let name = &self.name;
        for error in &report.errors {
            terminal::error(format_args!("{name}: {}", chain(error)));
        }
        let of_errors = report.errors.first().map(exit_of);
        let is_told = report.is_written || differences.is_some();
        let exit = match &report.end {
            NotebookEnd::NotStarted => {
                terminal::error(format_args!("{name}: not started"));
                return Exit::Interrupted;
            }
            NotebookEnd::NoSession => return of_errors.unwrap_or(Exit::Sandbox),
            end if end.is_success() && is_told => Exit::Success,
            NotebookEnd::Failed { is_of_sandbox: false, .. } => Exit::Failed,
            NotebookEnd::Interrupted(_) => Exit::Interrupted,
            _ => Exit::Sandbox,
        };
        let what = match &report.end {
            NotebookEnd::Completed if is_told => "completed".to_owned(),
            NotebookEnd::Completed => "all cells ran".to_owned(),
            end => harmless(&end.text(total)),
        };
        let are_kept = self.keep_files(report);
        let outputs = match report.is_written {
            false if differences.is_some() => "no outputs are written".to_owned(),
            true => format!("outputs in {}", self.copy.display()),
            false => "its outputs are not written".to_owned(),
        };
        if exit == Exit::Success
            && let Some(differences) = differences
        {
            return self.tell_differences(differences, &what, total);
        }
        if exit == Exit::Success {
            let errors = match report.allowed_errors {
                0 => String::new(),
                errors => format!("{}, ", allowed(errors)),
            };
            terminal::note(format_args!("{name}: {what}, {errors}{outputs}"));
        } else {
            let then = match report.resumption {
                Resumption::Saved if report.end == NotebookEnd::Completed => {
                    "--resume continues at its last cell"
                }
                Resumption::Saved => "--resume continues there",
                Resumption::Nothing => "it will run from its start",
                _ => "it can't be resumed",
            };
            terminal::error(format_args!("{name}: {what}; {outputs}, {then}"));
        }
        match of_errors.unwrap_or(exit) {
            Exit::Success if !are_kept => Exit::Failed,
            exit => exit,
        }
    }

    /// Tells how the outputs differ from those in the file.
    fn tell_differences(&self, differences: &[Difference], what: &str, total: usize) -> Exit {
        let name = &self.name;
        if differences.is_empty() {
            terminal::note(format_args!("{name}: {what}, with the outputs that are in the file"));
            return Exit::Success;
        }
        for difference in differences {
            terminal::error(format_args!("{name}: {}", described(difference)));
        }
        let cells = if differences.len() == 1 { "cell differs" } else { "cells differ" };
        let count = differences.len();
        terminal::error(format_args!("{name}: {count} of {total} {cells} from the file"));
        Exit::Failed
    }

    /// Writes the files that the cells created, or notes that there are some. Returns whether every
    /// file that should be written was.
    fn keep_files(&self, report: &Report) -> bool {
        let (name, files) = (&self.name, &report.files);
        if let Some(links) = links_left_out(report.links)
            && self.files.is_some()
        {
            terminal::note(format_args!("{name}: {links}"));
        }
        let Some(listed) = list(files) else { return true };
        let Some((output, folder)) = &self.files else {
            terminal::note(format_args!(
                "{name}: wrote {listed}; keep such files with --output-dir DIR"
            ));
            return true;
        };
        let problems = match output.folder(folder) {
            Ok(folder) => folder.keep(files),
            Err(error) => vec![format!("can't create `{folder}` for its files: {error}")],
        };
        for problem in &problems {
            terminal::error(format_args!("{name}: {problem}"));
        }
        problems.is_empty()
    }
}

/// Describes a difference, harmless for a terminal also from a file.
pub(super) fn described(difference: &Difference) -> String {
    let Difference { cell, field, lines, .. } = difference;
    let (field, lines) = (harmless(field), harmless(&lines.join("\n")));
    format!("cell {cell} differs in {field}; - is the file, + this run:\n{lines}")
}

/// Returns the exit that an error alone would cause.
fn exit_of(error: &Error) -> Exit {
    match error {
        Error::Pool(error) if is_of_input(error) => Exit::Usage,
        _ => Exit::Sandbox,
    }
}

/// Describes the cells that raised and were allowed to.
fn allowed(errors: usize) -> String {
    let cells = if errors == 1 { "cell" } else { "cells" };
    let them = if errors == 1 { "an error that was" } else { "errors that were" };
    format!("{errors} {cells} raised {them} allowed")
}

/// Counts of how the notebooks ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    completed: usize,
    failed: usize,
    interrupted: usize,
    /// Cells that raised and were allowed to.
    allowed_errors: usize,
    /// Cells that were taken over.
    taken_over: usize,
    /// The exit of a notebook that failed because of the sandbox or the machine.
    broken: Option<Exit>,
}

impl Tally {
    pub(super) fn add(&mut self, exit: Exit, report: &Report) {
        self.allowed_errors += report.allowed_errors;
        self.taken_over += report.taken_over;
        self.count_exit(exit);
    }

    fn count_exit(&mut self, exit: Exit) {
        match exit {
            Exit::Success => self.completed += 1,
            Exit::Interrupted => self.interrupted += 1,
            Exit::Failed => self.failed += 1,
            exit => {
                self.failed += 1;
                self.broken = Some(exit);
            }
        }
    }

    pub(super) fn count(&self) -> usize {
        self.completed + self.failed + self.interrupted
    }

    pub(super) fn exit(&self) -> Exit {
        match self {
            Self { interrupted: 1.., .. } => Exit::Interrupted,
            Self { broken: Some(exit), .. } => *exit,
            Self { failed: 1.., .. } => Exit::Failed,
            Self { .. } => Exit::Success,
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} of {} completed", self.completed, counted(self.count(), "notebook"))?;
        for (count, what) in [(self.failed, "failed"), (self.interrupted, "interrupted")] {
            if count > 0 {
                write!(formatter, ", {count} {what}")?;
            }
        }
        if self.allowed_errors > 0 {
            write!(formatter, "; {}", allowed(self.allowed_errors))?;
        }
        if self.taken_over > 0 {
            let cells = if self.taken_over == 1 { "cell was" } else { "cells were" };
            write!(formatter, "; {} {cells} taken over", self.taken_over)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ::notebook::Problem;

    use super::*;

    #[test]
    fn the_exit_code_is_the_worst_of_all() {
        for (exits, expected) in [
            (&[Exit::Success, Exit::Success][..], Exit::Success),
            (&[Exit::Success, Exit::Failed], Exit::Failed),
            (&[Exit::Sandbox, Exit::Failed], Exit::Sandbox),
            (&[Exit::Sandbox, Exit::Interrupted], Exit::Interrupted),
        ] {
            let mut tally = Tally::default();
            exits.iter().for_each(|exit| tally.count_exit(*exit));
            assert_eq!((tally.exit(), tally.count()), (expected, exits.len()));
        }
        let tally = Tally { completed: 2, failed: 1, ..Tally::default() };
        assert_eq!(tally.to_string(), "2 of 3 notebooks completed, 1 failed");
        let tally = Tally { completed: 2, allowed_errors: 3, ..Tally::default() };
        let expected = "2 of 2 notebooks completed; 3 cells raised errors that were allowed";
        assert_eq!(tally.to_string(), expected);
    }

    #[test]
    fn problems_obey_no_program() {
        let problem = Problem::new("E", "\x1b[2Jx".to_owned());
        let end = NotebookEnd::Failed { cell: 1, problem, is_of_sandbox: false };
        assert_eq!(harmless(&end.text(2)), "cell 1 of 2 failed: E: \\x1b[2Jx");
    }
}
