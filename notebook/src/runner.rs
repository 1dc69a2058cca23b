//! Runs one notebook: its cells in order in its own session, from the first cell or from where the
//! saved session ends.
//!
//! Before each cell, the session's state is a checkpoint in memory. It is written to disk only if
//! the notebook ends before its last cell.

use std::collections::BTreeMap;

use hatchery::error::chain;
use hatchery::event::Stream;
use hatchery::files::ChangedFile;
use hatchery::{Checkpoint, Session, Ticket, Verdict};

use crate::document::Notebook;
use crate::error::Error;
use crate::event::CellEvent;
use crate::guest::{self, Cell};
use crate::interrupts::Interrupts;
use crate::outputs::Outputs;
use crate::problem::{Problem, remarks};
use crate::progress::Progress;
use crate::record::Record;
use crate::report::{End, Report, Resumption};
use crate::settings::{Settings, Task};

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
    allowed_errors: usize,
}

/// Failures other than the cells' own.
#[derive(Default)]
struct Errors(Vec<Error>);

/// Runs a notebook and writes its copy. If it doesn't complete, its session as it was before the
/// cell that ended it is saved beside the copy.
///
/// The first interrupt reaches the running cell as `KeyboardInterrupt`, the second one stops it.
pub async fn run(mut task: Task, settings: &Settings, interrupts: Interrupts) -> Report {
    if interrupts.count() > 0 {
        return Report::not_begun(End::NotStarted, task.notebook, Vec::new());
    }
    let mut errors = Errors::default();
    let opened = open(&mut task, settings).await;
    let Some((mut session, done)) = errors.note(opened) else {
        return Report::not_begun(End::NoSession, task.notebook, errors.0);
    };
    let begun = Run::begin(&mut task, settings, interrupts, &mut session, done).await;
    let report = match errors.note(begun) {
        Some(run) => run.finish(errors).await,
        None => Report::not_begun(End::NoSession, task.notebook, errors.0),
    };
    // In any case it returns its memory to the notebooks that follow.
    session.close();
    report
}

/// Opens a session for the notebook, the saved one or a fresh one, and returns it with the number
/// of cells that have run in it.
async fn open(task: &mut Task, settings: &Settings) -> Result<(Session, usize), Error> {
    if settings.resumes {
        match revived(task, settings).await {
            Ok(revived) => return Ok(revived),
            Err(why) => settings.observer.progress(task.index, &Progress::NotResumed { why }),
        }
    }
    Ok((settings.pool.session(&session_name(task)).await?, 0))
}

/// Revives the saved session, and returns it with the number of cells that have run in it; or says
/// why not.
async fn revived(task: &mut Task, settings: &Settings) -> Result<(Session, usize), String> {
    let record = task.places.record()?;
    let name = session_name(task);
    let session = settings.pool.revive(&name, &task.places.session).await;
    let session = session.map_err(|error| chain(&error).to_string())?;
    match record.apply(&mut task.notebook, settings.image(), settings.input_digest()) {
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
    fn note<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.0.push(error)).ok()
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
    ) -> Result<Self, Error> {
        let first = if done == 0 { settings.begin(task) } else { settings.resume(task) };
        let outcome = session.run(first).await?;
        if let Some(problem) = Problem::of(&outcome) {
            return Err(Error::Begin { problem });
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
    async fn finish(mut self, mut errors: Errors) -> Report {
        let total = self.task.notebook.code().count();
        self.tell(Progress::Started { total, done: self.done });
        let ended = self.cells(total).await;
        self.tell(Progress::Ended);
        let end = errors.note(ended).unwrap_or(End::Broken { cell: self.done + 1 });
        let written = self.task.places.write_copy(&self.task.notebook);
        let is_written = errors.note(written).is_some();
        let resumption = if end == End::Completed && is_written {
            errors.note(self.task.places.forget());
            Resumption::Nothing
        } else {
            errors.note(self.keep_session().await).unwrap_or(Resumption::Lost)
        };
        Report {
            end,
            notebook: self.task.notebook.clone(),
            is_written,
            allowed_errors: self.allowed_errors,
            files: self.files.into_values().collect(),
            resumption,
            errors: errors.0,
        }
    }

    fn tell(&self, step: Progress) {
        self.settings.observer.progress(self.task.index, &step);
    }

    /// Runs the remaining cells, up to the first that fails.
    async fn cells(&mut self, total: usize) -> Result<End, Error> {
        for number in self.done + 1..=total {
            if self.interrupts.count() > 0 {
                return Ok(End::Interrupted { cell: number });
            }
            self.tell(Progress::Cell { number });
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
        self.settings.allows_errors || cell.is_some_and(|cell| cell.may_raise())
    }

    /// Saves the state of random numbers in the session. Returns whether the session still exists.
    async fn is_alive(&self) -> bool {
        let remember = guest::remember(&self.settings.limits);
        let outcome = self.session.run(remember).await;
        outcome.is_ok_and(|outcome| !matches!(outcome.verdict, Verdict::SandboxFailed(_)))
    }

    /// Runs a cell and records its outputs.
    async fn cell(&mut self, number: usize) -> Result<CellResult, Error> {
        let may_raise = self.may_raise(number - 1);
        let cell = cell_mut(&mut self.task.notebook, number - 1);
        let job = Cell::new(&cell.source, number).job(&self.settings.limits);
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
                    Some(event) => if let Some(event) = CellEvent::of(event.kind) {
                        outputs.take(event);
                    },
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
        cell_mut(&mut self.task.notebook, number - 1).outputs = finished;
        for update in updates {
            let earlier = self.places.iter().filter(|(id, ..)| *id == update.display_id);
            for (_, cell, output) in earlier {
                update.apply(&mut cell_mut(&mut self.task.notebook, *cell).outputs[*output]);
            }
        }
        self.places.extend(places.into_iter().map(|(id, output)| (id, number - 1, output)));
        let is_of_sandbox = matches!(outcome.verdict, Verdict::SandboxFailed(_));
        Ok(CellResult { problem, is_of_sandbox, files: outcome.files })
    }

    /// Saves the session, as it was before the cell at which the notebook ended or before the last
    /// cell, and the record.
    async fn keep_session(&mut self) -> Result<Resumption, Error> {
        let places = &self.task.places;
        if self.done == 0 {
            places.forget()?;
            return Ok(Resumption::Nothing);
        }
        if !self.is_alive().await {
            // The session was lost with the cell; the checkpoint goes into a fresh one.
            *self.session = self.settings.pool.session(&session_name(self.task)).await?;
        }
        self.session.restore(&self.checkpoint).await?;
        self.write_session().await.map_err(|source| Error::NotKept {
            path: places.session.clone(),
            source: Box::new(source),
        })?;
        Ok(Resumption::Saved)
    }

    async fn write_session(&self) -> Result<(), Error> {
        let Self { settings, task, .. } = self;
        task.places.forget_record()?;
        self.session.save(&task.places.session).await?;
        let (image, inputs) = (settings.image(), settings.input_digest());
        task.places.write_record(&Record::of(&task.notebook, self.done, image, inputs))
    }
}

/// Interrupts or stops a cell, depending on how often the user asked.
fn end(ticket: &Ticket, heard: u32) {
    match heard {
        1 => ticket.interrupt(),
        _ => ticket.stop(),
    }
}

fn cell_mut(notebook: &mut Notebook, index: usize) -> &mut crate::document::CodeCell {
    notebook.code_mut().nth(index).expect("the cell exists")
}

/// Returns a name that no other notebook's session has.
fn session_name(task: &Task) -> String {
    task.places.copy.display().to_string()
}
