//! Runs one notebook: its cells in order in its own session, from the first cell or from where the
//! saved session ends.
//!
//! Before each cell, the session's state is a checkpoint in memory. It is written to disk only if
//! the notebook ends before its last cell.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use hatchery::error::chain;
use hatchery::event::Stream;
use hatchery::files::ChangedFile;
use hatchery::{Checkpoint, Hatchery, Job, Limits, Session, Verdict};

use super::board::{Board, Line};
use super::document::Notebook;
use super::guest;
use super::outputs::{Outputs, Problem};
use super::resume::Places;
use crate::exit::Exit;
use crate::follow::{end, remarks};
use crate::output::{OutputFolder, list};
use crate::signals::Interrupts;
use crate::terminal;

/// A notebook to run.
#[derive(Debug)]
pub(super) struct Task {
    /// The path as the user typed it.
    pub(super) name: String,
    pub(super) notebook: Notebook,
    pub(super) places: Places,
    /// The destination of the files from its cells: a subfolder of this name in the folder.
    pub(super) files: Option<(Arc<OutputFolder>, String)>,
    /// A job that mounts the notebook's own folder with `--beside`, and does nothing else.
    pub(super) beside: Job,
}

/// The settings shared by all notebooks.
pub(super) struct Settings {
    pub(super) pool: Hatchery,
    pub(super) limits: Limits,
    /// The first job of a fresh session, with the input files.
    pub(super) begin: Job,
    /// The first job of a resumed session.
    pub(super) resume_job: Job,
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
    Completed,
    /// This cell, counted from 1, failed.
    Failed {
        cell: usize,
        problem: Problem,
        is_of_sandbox: bool,
    },
    /// Ctrl-C came during this cell, or before it.
    Interrupted {
        cell: usize,
    },
    /// A reported error came during this cell, or after it.
    Broken {
        cell: usize,
    },
}

/// The result of a cell.
struct CellResult {
    problem: Option<Problem>,
    is_of_sandbox: bool,
    files: Vec<ChangedFile>,
}

/// A running notebook.
struct Run<'a> {
    settings: &'a Settings,
    task: &'a mut Task,
    interrupts: Interrupts,
    session: &'a mut Session,
    /// The state after the first `done` cells. There is no checkpoint after the last cell.
    checkpoint: Checkpoint,
    done: usize,
    /// Files that the cells created or changed, by path.
    files: BTreeMap<String, ChangedFile>,
    /// Outputs that can be updated: the id, the index of the cell, and the index of the output.
    places: Vec<(String, usize, usize)>,
    /// Number of cells that raised and were allowed to.
    allowed_errors: usize,
}

/// Errors of a notebook other than its cells' own. Each is reported as it occurs; the first one
/// decides the exit code.
struct Errors {
    name: String,
    first: Option<Exit>,
}

/// Describes the cells that raised and were allowed to.
pub(super) fn allowed(errors: usize) -> String {
    let cells = if errors == 1 { "cell" } else { "cells" };
    let them = if errors == 1 { "an error that was" } else { "errors that were" };
    format!("{errors} {cells} raised {them} allowed")
}

/// Runs a notebook, writes its copy and reports the result. Returns the exit and the number of
/// cells that raised and were allowed to.
pub(super) async fn run(
    mut task: Task,
    settings: &Settings,
    interrupts: Interrupts,
) -> (Exit, usize) {
    if interrupts.count() > 0 {
        terminal::error(format_args!("{}: not started", task.name));
        return (Exit::Interrupted, 0);
    }
    let mut errors = Errors { name: task.name.clone(), first: None };
    let opened = open(&mut task, settings).await;
    let Some((mut session, done)) = errors.report(opened) else {
        return (errors.exit_or(Exit::Sandbox), 0);
    };
    let begun = Run::begin(&mut task, settings, interrupts, &mut session, done).await;
    let (exit, allowed_errors) = match errors.report(begun) {
        Some(run) => run.finish(&mut errors).await,
        None => (Exit::Sandbox, 0),
    };
    // In any case it returns its memory to the notebooks that follow.
    session.close();
    (errors.exit_or(exit), allowed_errors)
}

/// Opens a session for the notebook, the saved one or a fresh one, and returns it with the number
/// of cells that have run in it.
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

/// Revives the saved session, and returns it with the number of cells that have run in it; or says
/// why not.
async fn revived(task: &mut Task, settings: &Settings) -> Result<(Session, usize), String> {
    if !settings.resumes {
        return Err("--resume is not given".to_owned());
    }
    let record = task.places.record()?;
    let name = session_name(task);
    let session = settings.pool.revive(&name, &task.places.session).await;
    let session = session.map_err(|error| chain(&error).to_string())?;
    match record.apply(&mut task.notebook, &settings.image, &settings.inputs) {
        Ok(done) => Ok((session, done)),
        Err(why) => {
            // A fresh session takes its name.
            let reset = session.reset().await;
            reset.map_err(|error| chain(&error).to_string())?;
            Err(why)
        }
    }
}

impl Errors {
    fn report<T>(&mut self, result: anyhow::Result<T>) -> Option<T> {
        let report = |error: &anyhow::Error| {
            terminal::error(format_args!("{}: {error:#}", self.name));
            self.first.get_or_insert(Exit::of_error(error));
        };
        result.inspect_err(report).ok()
    }

    fn exit_or(&self, exit: Exit) -> Exit {
        self.first.unwrap_or(exit)
    }
}

impl<'a> Run<'a> {
    /// Starts a notebook: runs the session's first job.
    async fn begin(
        task: &'a mut Task,
        settings: &'a Settings,
        interrupts: Interrupts,
        session: &'a mut Session,
        done: usize,
    ) -> anyhow::Result<Self> {
        let first = if done == 0 { &settings.begin } else { &settings.resume_job };
        let outcome = session.run(first.clone().with_files_of(&task.beside)).await?;
        if let Some(problem) = Problem::of(&outcome) {
            anyhow::bail!("the session can't start: {problem}");
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

    /// Runs the cells, and saves as much as possible, whatever happens.
    async fn finish(mut self, errors: &mut Errors) -> (Exit, usize) {
        let (board, total) = (&self.settings.board, self.task.notebook.code().count());
        let line = board.begin(&self.task.name, total);
        if self.done > 0 {
            let (name, next) = (&self.task.name, self.done + 1);
            terminal::note(format_args!("{name}: resuming at cell {next} of {total}"));
        }
        let ended = self.cells(total, &line).await;
        drop(line);
        let end = errors.report(ended).unwrap_or(End::Broken { cell: self.done + 1 });
        let written = self.task.places.write_copy(&self.task.notebook);
        let is_written = errors.report(written).is_some();
        let are_kept = self.keep_files();
        let exit = self.conclude(end, total, is_written, errors).await;
        let exit = if exit == Exit::Success && !are_kept { Exit::Failed } else { exit };
        (exit, self.allowed_errors)
    }

    /// Runs the remaining cells, up to the first that fails.
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
                let CellResult { is_of_sandbox, .. } = ran;
                if is_interrupted {
                    return Ok(End::Interrupted { cell: number });
                }
                if !may_raise || is_of_sandbox || !self.is_alive().await {
                    return Ok(End::Failed { cell: number, problem, is_of_sandbox });
                }
                self.allowed_errors += 1;
            } else if number < total && !self.is_alive().await {
                let problem = Problem::new("SessionLost", "the cell lost its session".to_owned());
                return Ok(End::Failed { cell: number, problem, is_of_sandbox: false });
            }
            self.files.extend(ran.files.into_iter().map(|file| (file.path.clone(), file)));
            if number < total {
                self.checkpoint = self.session.checkpoint().await?;
                self.done = number;
            }
        }
        Ok(End::Completed)
    }

    fn may_raise(&self, index: usize) -> bool {
        let cell = self.task.notebook.code().nth(index);
        self.settings.allows_errors || cell.is_some_and(|cell| cell.may_raise)
    }

    /// Saves the state of random numbers in the session. Returns whether the session still exists.
    async fn is_alive(&self) -> bool {
        let remember = guest::remember(&self.settings.limits);
        let outcome = self.session.run(remember).await;
        outcome.is_ok_and(|outcome| !matches!(outcome.verdict, Verdict::SandboxFailed(_)))
    }

    /// Runs a cell and records its outputs. The first Ctrl-C interrupts it, the second stops it.
    async fn cell(&mut self, number: usize) -> anyhow::Result<CellResult> {
        let may_raise = self.may_raise(number - 1);
        let cell = self.task.notebook.code_mut().nth(number - 1).expect("the cell exists");
        let job = guest::cell(&cell.source, number, &self.settings.limits);
        // As in Jupyter, a cell that raises keeps its changes to files.
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
                    end(&ticket, heard);
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
        let Outputs { finished, places, updates, .. } = outputs.finish();
        cell.outputs = finished;
        for update in updates {
            let earlier = self.places.iter().filter(|(id, ..)| *id == update.display_id);
            for (_, cell, output) in earlier {
                let cell = self.task.notebook.code_mut().nth(*cell).expect("the cell has run");
                update.apply(&mut cell.outputs[*output]);
            }
        }
        self.places.extend(places.into_iter().map(|(id, output)| (id, number - 1, output)));
        let is_of_sandbox = matches!(outcome.verdict, Verdict::SandboxFailed(_));
        Ok(CellResult { problem, is_of_sandbox, files: outcome.files })
    }

    /// Writes the files that the cells created, or notes that there are some. Returns whether every
    /// file that should be written was.
    fn keep_files(&self) -> bool {
        let name = &self.task.name;
        let files: Vec<ChangedFile> = self.files.values().cloned().collect();
        let Some(listed) = list(&files) else { return true };
        let Some((output, folder)) = &self.task.files else {
            terminal::note(format_args!(
                "{name}: wrote {listed}; keep such files with --output-dir DIR"
            ));
            return true;
        };
        let problems = match output.folder(folder) {
            Ok(folder) => folder.keep(&files),
            Err(error) => vec![format!("can't create `{folder}` for its files: {error}")],
        };
        for problem in &problems {
            terminal::error(format_args!("{name}: {problem}"));
        }
        problems.is_empty()
    }

    /// Reports how the notebook ended, and saves or removes what it would resume from.
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
        let mut advice = "--resume continues there";
        let (what, exit) = match end {
            End::Completed if is_written => {
                errors.report(self.task.places.forget());
                let errors = match self.allowed_errors {
                    0 => String::new(),
                    errors => format!("{}, ", allowed(errors)),
                };
                terminal::note(format_args!("{name}: completed, {errors}{outputs}"));
                return Exit::Success;
            }
            End::Completed => {
                advice = "--resume continues at its last cell";
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
        let then = match errors.report(self.keep_session().await) {
            Some(true) => advice,
            Some(false) => "it will run from its start",
            None => "it can't be resumed",
        };
        terminal::error(format_args!("{name}: {what}; {outputs}, {then}"));
        exit
    }

    /// Saves the session, as it was before the cell at which the notebook ended or before the last
    /// cell, and the record. Returns whether there is anything to resume from.
    async fn keep_session(&mut self) -> anyhow::Result<bool> {
        let places = &self.task.places;
        if self.done == 0 {
            places.forget()?;
            return Ok(false);
        }
        let Settings { pool, image, inputs, .. } = self.settings;
        if !self.is_alive().await {
            // The session was lost with the cell; the checkpoint goes into a fresh one.
            *self.session = pool.session(&session_name(self.task)).await?;
        }
        self.session.restore(&self.checkpoint).await?;
        let file = &places.session;
        let keep = || format!("the session is not saved in `{}`", file.display());
        places.forget_record().with_context(keep)?;
        self.session.save(file).await.with_context(keep)?;
        places.write_record(&self.task.notebook, self.done, image, inputs).with_context(keep)?;
        Ok(true)
    }
}

/// Returns a name that no other notebook's session has.
fn session_name(task: &Task) -> String {
    task.places.copy.display().to_string()
}
