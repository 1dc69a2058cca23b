//! Runs one notebook: its cells in order in a session of its own, from the first or from where the
//! kept session ends.
//!
//! Before each cell the session's state is a checkpoint in memory. It is written to disk only when
//! the notebook ends before its last cell.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use hatchery::{
    ChangeKind, ChangedFile, Checkpoint, Hatchery, Job, Limits, Session, Stream, Verdict,
};

use super::board::{Board, Line};
use super::document::Notebook;
use super::guest;
use super::outputs::{Finished, Outputs, Problem};
use super::resume::Places;
use crate::exit::Exit;
use crate::follow::remarks;
use crate::output::OutputFolder;
use crate::signals::Interrupts;
use crate::terminal;

/// One notebook that is to be run.
#[derive(Debug)]
pub(super) struct Task {
    /// As the user typed it.
    pub(super) name: String,
    pub(super) notebook: Notebook,
    pub(super) places: Places,
    /// Where the files go that its cells make: a folder of this name in that one.
    pub(super) files: Option<(Arc<OutputFolder>, String)>,
    /// A job that is shown the folder that it lies in, if that is wanted, and nothing else.
    pub(super) beside: Job,
}

/// What all notebooks have in common.
pub(super) struct Settings {
    pub(super) pool: Hatchery,
    pub(super) limits: Limits,
    /// The first job of a fresh session, with the input files.
    pub(super) begin: Job,
    /// The first job of one that goes on.
    pub(super) go_on: Job,
    /// The key of the image.
    pub(super) image: String,
    /// A digest of the input files.
    pub(super) inputs: String,
    pub(super) resumes: bool,
    pub(super) allows_errors: bool,
    pub(super) board: Board,
}

/// How a notebook ended.
#[derive(Debug)]
enum End {
    Whole,
    /// A cell failed, counted from 1.
    Failed {
        cell: usize,
        problem: Problem,
        is_of_sandbox: bool,
    },
    /// Ctrl-C came during this cell, or before it.
    Interrupted {
        cell: usize,
    },
    /// An error that was told came during this cell, or after it.
    Broken {
        cell: usize,
    },
}

/// What became of a cell.
struct Ran {
    problem: Option<Problem>,
    is_of_sandbox: bool,
    files: Vec<ChangedFile>,
}

/// A notebook that runs.
struct Run<'a> {
    settings: &'a Settings,
    task: &'a mut Task,
    interrupts: Interrupts,
    session: &'a mut Session,
    /// The state in which the first `done` cells have run. After the last cell there is none.
    checkpoint: Checkpoint,
    done: usize,
    /// What the cells made or changed, by path.
    files: BTreeMap<String, ChangedFile>,
    /// Outputs of cells that can be updated: the id, the cell from 0, and which of its outputs.
    places: Vec<(String, usize, usize)>,
    /// Cells that raised, and were allowed to.
    allowed_errors: usize,
}

/// Errors of one notebook beside what its cells do. Each is told as it occurs, and the first one
/// decides the exit code.
struct Errors {
    name: String,
    first: Option<Exit>,
}

/// What is said of cells that raised and were allowed to.
pub(super) fn allowed(errors: usize) -> String {
    let cells = if errors == 1 { "cell" } else { "cells" };
    let them = if errors == 1 { "an error that was" } else { "errors that were" };
    format!("{errors} {cells} raised {them} allowed")
}

/// Runs a notebook, writes its copy, and says what became of it. Returns that with the number of its
/// cells that raised and were allowed to.
pub(super) async fn run(
    mut task: Task,
    settings: &Settings,
    interrupts: Interrupts,
) -> (Exit, usize) {
    if interrupts.count() > 0 {
        terminal::error(format_args!("{}: not begun", task.name));
        return (Exit::Interrupted, 0);
    }
    let mut errors = Errors { name: task.name.clone(), first: None };
    let opened = open(&mut task, settings).await;
    let Some((mut session, done)) = errors.tell(opened) else {
        return (errors.exit_or(Exit::Sandbox), 0);
    };
    let begun = Run::begin(&mut task, settings, interrupts, &mut session, done).await;
    let (exit, allowed_errors) = match errors.tell(begun) {
        Some(run) => run.finish(&mut errors).await,
        None => (Exit::Sandbox, 0),
    };
    // Whatever happened, it gives its memory back to the notebooks that follow.
    session.close();
    (errors.exit_or(exit), allowed_errors)
}

/// A session for the notebook, and how many of its cells have run in it: the one that was kept, or a
/// fresh one.
async fn open(task: &mut Task, settings: &Settings) -> anyhow::Result<(Session, usize)> {
    let why = match revived(task, settings).await {
        Ok(revived) => return Ok(revived),
        Err(why) => why,
    };
    if settings.resumes {
        let name = &task.name;
        terminal::note(format_args!("{name}: running from its start, since {why}"));
    }
    Ok((settings.pool.session(&session_name(task)).await?, 0))
}

/// The session that was kept, and how many cells have run in it; or why that isn't used.
async fn revived(task: &mut Task, settings: &Settings) -> Result<(Session, usize), String> {
    if !settings.resumes {
        return Err("that was not asked for".to_owned());
    }
    let record = task.places.record()?;
    let name = session_name(task);
    let session = settings.pool.revive(&name, &task.places.session).await;
    let session = session.map_err(|error| error.to_string())?;
    match record.apply(&mut task.notebook, &settings.image, &settings.inputs) {
        Ok(done) => Ok((session, done)),
        Err(why) => {
            // A fresh one takes its name.
            let reset = session.reset().await;
            reset.map_err(|error| error.to_string())?;
            Err(why)
        }
    }
}

impl Errors {
    fn tell<T>(&mut self, result: anyhow::Result<T>) -> Option<T> {
        let tell = |error: &anyhow::Error| {
            terminal::error(format_args!("{}: {error:#}", self.name));
            self.first.get_or_insert(Exit::of_error(error));
        };
        result.inspect_err(tell).ok()
    }

    fn exit_or(&self, exit: Exit) -> Exit {
        self.first.unwrap_or(exit)
    }
}

impl<'a> Run<'a> {
    /// Has the session run what comes before cells.
    async fn begin(
        task: &'a mut Task,
        settings: &'a Settings,
        interrupts: Interrupts,
        session: &'a mut Session,
        done: usize,
    ) -> anyhow::Result<Self> {
        let first = if done == 0 { &settings.begin } else { &settings.go_on };
        let outcome = session.run(first.clone().with_files_of(&task.beside)).await?;
        if let Some(problem) = Problem::of(&outcome) {
            anyhow::bail!("the session can't begin: {problem}");
        }
        let checkpoint = session.checkpoint().await?;
        Ok(Self {
            settings,
            task,
            interrupts,
            session,
            checkpoint,
            done,
            files: BTreeMap::new(),
            places: Vec::new(),
            allowed_errors: 0,
        })
    }

    /// Runs the cells, and keeps as much as can be, whatever happens.
    async fn finish(mut self, errors: &mut Errors) -> (Exit, usize) {
        let (board, total) = (&self.settings.board, self.task.notebook.code().count());
        let line = board.begin(&self.task.name, total);
        if self.done > 0 {
            let (name, next) = (&self.task.name, self.done + 1);
            terminal::note(format_args!("{name}: going on at cell {next} of {total}"));
        }
        let ended = self.cells(total, &line).await;
        drop(line);
        let end = errors.tell(ended).unwrap_or(End::Broken { cell: self.done + 1 });
        let written = self.task.places.write_copy(&self.task.notebook);
        let is_written = errors.tell(written).is_some();
        let are_kept = self.keep_files();
        let exit = self.conclude(end, total, is_written, errors).await;
        let exit = if exit == Exit::Success && !are_kept { Exit::Failed } else { exit };
        (exit, self.allowed_errors)
    }

    /// Runs the cells that are left, up to one that fails.
    async fn cells(&mut self, total: usize, line: &Line) -> anyhow::Result<End> {
        for number in self.done + 1..=total {
            if self.interrupts.count() > 0 {
                return Ok(End::Interrupted { cell: number });
            }
            line.cell(number);
            let ran = self.cell(number).await?;
            let is_interrupted = self.interrupts.count() > 0;
            let may_raise = self.may_raise(number - 1);
            if let Some(problem) = ran.problem {
                let Ran { is_of_sandbox, .. } = ran;
                if is_interrupted {
                    return Ok(End::Interrupted { cell: number });
                }
                if !may_raise || is_of_sandbox || !self.is_alive().await {
                    return Ok(End::Failed { cell: number, problem, is_of_sandbox });
                }
                self.allowed_errors += 1;
            } else if number < total && !self.is_alive().await {
                let problem = Problem::new("SessionLost", "the cell took its session".to_owned());
                return Ok(End::Failed { cell: number, problem, is_of_sandbox: false });
            }
            self.files.extend(ran.files.into_iter().map(|file| (file.path.clone(), file)));
            if number < total {
                self.checkpoint = self.session.checkpoint().await?;
                self.done = number;
            }
        }
        Ok(End::Whole)
    }

    fn may_raise(&self, index: usize) -> bool {
        let cell = self.task.notebook.code().nth(index);
        self.settings.allows_errors || cell.is_some_and(|cell| cell.may_raise)
    }

    /// Has the session remember where its random numbers are; whether it could.
    async fn is_alive(&self) -> bool {
        let remember = guest::remember(&self.settings.limits);
        let outcome = self.session.run(remember).await;
        outcome.is_ok_and(|outcome| !matches!(outcome.verdict, Verdict::SandboxFailed(_)))
    }

    /// Runs a cell and keeps its outputs. The first Ctrl-C interrupts it, the second one stops it.
    async fn cell(&mut self, number: usize) -> anyhow::Result<Ran> {
        let may_raise = self.may_raise(number - 1);
        let cell = self.task.notebook.code_mut().nth(number - 1).expect("there are so many cells");
        let job = guest::cell(&cell.source, number, &self.settings.limits);
        // As in a notebook, a cell that raised has still done to files what it did.
        let job = if may_raise { job.keep_files() } else { job };
        cell.execution_count = Some(number);
        let mut outputs = Outputs::of_cell(number);
        let mut ticket = self.session.submit(job).await?;
        let mut events = ticket.events();
        let mut heard = 0;
        loop {
            tokio::select! {
                count = self.interrupts.more_than(heard) => {
                    heard = count;
                    match heard {
                        1 => ticket.interrupt(),
                        _ => ticket.stop(),
                    }
                }
                event = events.next() => match event {
                    Some(event) => outputs.take(event.kind),
                    None => break,
                },
            }
        }
        let outcome = ticket.outcome().await;
        for remark in remarks(&outcome) {
            outputs.say(Stream::Stderr, format!("hatchery: {remark}\n").as_bytes());
        }
        let problem = Problem::of(&outcome);
        if let Some(problem) = &problem {
            outputs.take_problem(problem);
        }
        let Finished { outputs, places, updates } = outputs.finish();
        cell.outputs = outputs;
        for update in updates {
            let earlier = self.places.iter().filter(|(id, ..)| *id == update.display_id);
            for (_, cell, output) in earlier {
                let cell = self.task.notebook.code_mut().nth(*cell).expect("it has run");
                update.apply(&mut cell.outputs[*output]);
            }
        }
        self.places.extend(places.into_iter().map(|(id, output)| (id, number - 1, output)));
        let is_of_sandbox = matches!(outcome.verdict, Verdict::SandboxFailed(_));
        Ok(Ran { problem, is_of_sandbox, files: outcome.files })
    }

    /// Writes the files that the cells made, or says that there are some. Returns whether each one
    /// was written that should have been.
    fn keep_files(&self) -> bool {
        let name = &self.task.name;
        let files: Vec<ChangedFile> =
            self.files.values().filter(|file| file.kind != ChangeKind::Deleted).cloned().collect();
        if files.is_empty() {
            return true;
        }
        let Some((output, folder)) = &self.task.files else {
            let names: Vec<String> = files
                .iter()
                .map(|file| format!("{} ({} bytes)", file.path, file.contents.len()))
                .collect();
            let names = names.join(", ");
            terminal::note(format_args!(
                "{name}: wrote {names}; keep such files with --output-dir DIR"
            ));
            return true;
        };
        let problems = match output.folder(folder) {
            Ok(folder) => folder.keep(&files),
            Err(error) => vec![format!("can't make `{folder}` for its files: {error}")],
        };
        for problem in &problems {
            terminal::error(format_args!("{name}: {problem}"));
        }
        problems.is_empty()
    }

    /// Says how it ended, and keeps or removes what it would go on from.
    async fn conclude(
        &mut self,
        end: End,
        total: usize,
        is_written: bool,
        errors: &mut Errors,
    ) -> Exit {
        let name = self.task.name.clone();
        let outputs = match is_written {
            true => format!("outputs in {}", self.task.places.copy.display()),
            false => "its outputs are not written".to_owned(),
        };
        let mut goes_on = "--resume goes on there";
        let (what, exit) = match end {
            End::Whole if is_written => {
                errors.tell(self.task.places.forget());
                let errors = match self.allowed_errors {
                    0 => String::new(),
                    errors => format!("{}, ", allowed(errors)),
                };
                terminal::note(format_args!("{name}: ran whole, {errors}{outputs}"));
                return Exit::Success;
            }
            End::Whole => {
                goes_on = "--resume goes on at its end";
                ("all cells ran".to_owned(), Exit::Sandbox)
            }
            End::Failed { cell, problem, is_of_sandbox } => {
                let exit = if is_of_sandbox { Exit::Sandbox } else { Exit::Failed };
                (format!("cell {cell} of {total} failed: {problem}"), exit)
            }
            End::Interrupted { cell } => {
                (format!("interrupted at cell {cell} of {total}"), Exit::Interrupted)
            }
            End::Broken { cell } => (format!("ended at cell {cell} of {total}"), Exit::Sandbox),
        };
        let then = match errors.tell(self.keep_session().await) {
            Some(true) => goes_on,
            Some(false) => "it will run from its start",
            None => "it can't be gone on with",
        };
        terminal::error(format_args!("{name}: {what}; {outputs}, {then}"));
        exit
    }

    /// Writes the session as it was before the cell at which the notebook ended, or before the last
    /// one, and the record.
    /// Returns whether there is anything to go on from.
    async fn keep_session(&mut self) -> anyhow::Result<bool> {
        let places = &self.task.places;
        if self.done == 0 {
            places.forget()?;
            return Ok(false);
        }
        let Settings { pool, image, inputs, .. } = self.settings;
        if !self.is_alive().await {
            // The cell took its session; a fresh one takes its place.
            *self.session = pool.session(&session_name(self.task)).await?;
        }
        self.session.restore(&self.checkpoint).await?;
        let file = &places.session;
        let keep = || format!("the session is not kept in `{}`", file.display());
        places.forget_record().with_context(keep)?;
        self.session.save(file).await.with_context(keep)?;
        places.write_record(&self.task.notebook, self.done, image, inputs).with_context(keep)?;
        Ok(true)
    }
}

/// A name that no other notebook's session has.
fn session_name(task: &Task) -> String {
    task.places.copy.display().to_string()
}
