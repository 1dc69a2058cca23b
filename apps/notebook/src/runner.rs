//! Runs one notebook: its cells in order in its own session, from the first cell that has no state
//! yet.
//!
//! The session opens before the first cell that runs. After each cell, its state is a checkpoint in
//! memory. Other notebooks may reuse it, and it is written beside the copy if the notebook ends
//! before its last cell.

use std::sync::Arc;
use std::time::Duration;

use hatchery::error::chain;
use hatchery::event::Stream;
use hatchery::{Checkpoint, Outcome, Session, Verdict};
use tokio::task::{JoinHandle, JoinSet};

use crate::document::{CodeCell, Notebook};
use crate::error::Error;
use crate::event::{CellEvent, Interrupts, Progress, end_by};
use crate::guest::{self, Cell};
use crate::outputs::Outputs;
use crate::prefixes::{CheckpointCache, Claim, Key, Next, PrefixCache, PrefixState};
use crate::problem::{Problem, remarks};
use crate::report::{NotebookEnd, Report, Resumption};
use crate::saved::{SavedState, Traces, take_over};
use crate::settings::{Settings, Task};

/// A running notebook.
struct Run<'a> {
    settings: &'a Settings,
    task: Task,
    interrupts: Interrupts,
    /// The keys of the states after the cells, as far as they can be shared.
    keys: Vec<Key>,
    /// What it saw in folders of the host when it began.
    seen: Option<String>,
    total: usize,
    /// `None` until a cell has to run.
    session: Option<Session>,
    /// A state that the session takes before its next cell.
    pending: Option<Arc<PrefixState>>,
    /// The state after the first `done` cells. `None` before the first cell, after the last one, and
    /// if it is on disk alone.
    checkpoint: Option<Checkpoint>,
    done: usize,
    /// Whether its session has started, or outputs were taken over.
    has_begun: bool,
    traces: Traces,
    taken_over: usize,
    /// The write of the copy that runs.
    writing: Option<JoinHandle<Result<(), Error>>>,
    states: StateWriter,
}

/// Runs a notebook and writes its copy after each cell. If it doesn't complete, its session as it
/// was before the cell that ended it is saved beside the copy.
///
/// The first interrupt reaches the running cell as `KeyboardInterrupt`, the second one stops it.
pub async fn run(task: Task, settings: &Settings, interrupts: Interrupts) -> Report {
    let seen = settings.look(&task).await;
    let keys = settings.keys(&task, seen.as_deref());
    let prefixes = settings.prefixes.as_ref();
    if interrupts.count() > 0 {
        if let Some(prefixes) = prefixes {
            prefixes.shared.passed(&keys);
        }
        return Report::not_begun(NotebookEnd::NotStarted, task.notebook, Vec::new());
    }
    let mut run = Run {
        settings,
        interrupts,
        total: task.notebook.code().count(),
        session: None,
        pending: None,
        checkpoint: None,
        done: 0,
        has_begun: false,
        traces: Traces::default(),
        taken_over: 0,
        writing: None,
        states: StateWriter::default(),
        keys,
        seen,
        task,
    };
    let report = run.finish().await;
    if let Some(prefixes) = prefixes {
        prefixes.shared.passed(run.keys_from(run.done));
    }
    // In any case it returns its memory to the notebooks that follow.
    if let Some(session) = run.session.take() {
        session.close();
    }
    report
}

impl<'a> Run<'a> {
    /// Runs the cells, and saves as much as possible, whatever happens.
    async fn finish(&mut self) -> Report {
        let mut errors: Vec<Error> = Vec::new();
        let ended = match self.begin().await {
            Ok(()) => self.cells().await,
            Err(error) => Err(error),
        };
        self.tell(Progress::Ended);
        let end = match ended {
            Ok(end) => end,
            Err(error) => {
                errors.push(error);
                if !self.has_begun {
                    let notebook = self.task.notebook.clone();
                    return Report::not_begun(NotebookEnd::NoSession, notebook, errors);
                }
                NotebookEnd::Broken(self.done + 1)
            }
        };
        let writes = self.settings.writes;
        let mut is_written = writes;
        if writes {
            self.write_copy().await;
            let written = self.copy_written().await;
            is_written = written.map_err(|error| errors.push(error)).is_ok();
        }
        let resumption = if !writes {
            Ok(Resumption::Nothing)
        } else if end.is_success() && is_written {
            let forgotten = self.task.places.forget();
            forgotten.map(|()| Resumption::Nothing)
        } else {
            self.keep_session(end == NotebookEnd::Completed).await
        };
        let resumption = resumption.unwrap_or_else(|error| {
            errors.push(error);
            if end.is_success() && is_written { Resumption::Nothing } else { Resumption::Lost }
        });
        if let Some(cache) = self.cache() {
            self.states.finish(cache).await;
        }
        if let Some(session) = &self.session
            && let Err(error) = session.stop_recording().await
        {
            errors.push(error.into());
        }
        Report {
            end,
            notebook: self.task.notebook.clone(),
            is_written,
            allowed_errors: self.traces.allowed_errors,
            taken_over: self.taken_over,
            files: std::mem::take(&mut self.traces.files).into_values().collect(),
            links: self.traces.links,
            resumption,
            errors,
        }
    }

    fn tell(&self, step: Progress) {
        self.settings.observer.progress(self.task.index, &step);
    }

    fn cache(&self) -> Option<&'a Arc<CheckpointCache>> {
        self.settings.prefixes.as_ref()?.cache.as_ref()
    }

    /// Returns the keys of the states after the cell of this index and later ones.
    fn keys_from(&self, index: usize) -> &[Key] {
        self.keys.get(index..).unwrap_or_default()
    }

    /// Continues from the saved session or from a state of an earlier command, if there is one.
    async fn begin(&mut self) -> Result<(), Error> {
        let mut is_resumed = false;
        if self.settings.resumes {
            match self.resume().await {
                Ok(()) => is_resumed = true,
                Err(why) => self.tell(Progress::NotResumed(why)),
            }
        }
        self.tell(Progress::Started { cells: self.total });
        if is_resumed {
            self.tell(Progress::Resumed { done: self.done });
            return self.start_session(false).await;
        }
        self.take_from_cache().await
    }

    /// Notes that the outputs of cells up to this one were taken over.
    fn skip_to(&mut self, last: usize, of_this_command: bool) {
        let first = self.done + 1;
        self.taken_over += last - self.done;
        if let Some(PrefixCache { shared, .. }) = &self.settings.prefixes {
            shared.passed(&self.keys[self.done..last]);
        }
        (self.done, self.has_begun) = (last, true);
        self.tell(Progress::TakenOver { first, last, of_this_command });
    }

    /// Runs the first job of the session, which is opened if it isn't. A fresh one begins before the
    /// first cell.
    async fn start_session(&mut self, is_fresh: bool) -> Result<(), Error> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.settings.pool.session(&session_name(&self.task)).await?,
        };
        let session = self.session.insert(session);
        if let Some(folder) = &self.settings.record {
            folder.record(session).await?;
        }
        if let Some(state) = &self.pending {
            session.restore(&state.checkpoint).await?;
        }
        let first = match is_fresh {
            true => self.settings.begin(session, &self.task).await,
            false => self.settings.resume(&self.task),
        };
        let outcome = session.run(first).await?;
        if let Some(problem) = Problem::of(&outcome) {
            return Err(Error::Begin(problem));
        }
        self.pending = None;
        self.checkpoint = Some(session.checkpoint().await?);
        self.has_begun = true;
        Ok(())
    }

    /// Runs the remaining cells, up to the first that fails.
    async fn cells(&mut self) -> Result<NotebookEnd, Error> {
        let prefixes = self.settings.prefixes.as_ref();
        while self.done < self.total {
            let number = self.done + 1;
            if self.interrupts.count() > 0 {
                return Ok(NotebookEnd::Interrupted(number));
            }
            let next = prefixes.map(|prefixes| prefixes.shared.next(self.keys_from(self.done)));
            let claim = match next {
                None => None,
                Some(Next::Run(claim)) => claim,
                Some(Next::Take { steps, state }) => {
                    take_over(&mut self.task.notebook, &state.outputs);
                    self.traces = state.traces.clone();
                    self.skip_to(self.done + steps, true);
                    let has_more = self.done < self.total;
                    self.checkpoint = has_more.then(|| state.checkpoint.clone());
                    self.pending = Some(state);
                    continue;
                }
                Some(Next::Wait(mut waiting)) => {
                    tokio::select! {
                        // An error is the end of the wait.
                        _ = waiting.changed() => {}
                        _ = self.interrupts.more_than(0) => {}
                    }
                    continue;
                }
            };
            if self.session.is_none() || self.pending.is_some() {
                self.start_session(self.pending.is_none()).await?;
            }
            if let Some(end) = self.step(number, claim).await? {
                return Ok(end);
            }
        }
        Ok(NotebookEnd::Completed)
    }

    /// Runs a cell, and keeps the state after it. Returns how the notebook ended, if it did.
    async fn step(
        &mut self,
        number: usize,
        claim: Option<Claim<'_>>,
    ) -> Result<Option<NotebookEnd>, Error> {
        self.tell(Progress::CellStarted { cell: number });
        let (outcome, problem) = self.cell(number).await?;
        // A cell that was cut short would do more the next time, even if it caught the interrupt. And
        // one whose folders have changed meanwhile may have read either.
        let is_whole =
            self.interrupts.count() == 0 && !matches!(outcome.verdict, Verdict::Limit(_));
        let is_shared = number <= self.keys.len();
        if is_shared && !(is_whole && self.settings.look(&self.task).await == self.seen) {
            if let Some(prefixes) = &self.settings.prefixes {
                prefixes.shared.passed(self.keys_from(number - 1));
            }
            // The cells that follow see what it has left out.
            self.keys.truncate(number - 1);
        }
        let is_kept = number <= self.keys.len();
        if let Some(problem) = problem {
            if self.interrupts.count() > 0 {
                return Ok(Some(NotebookEnd::Interrupted(number)));
            }
            let may_raise = self.may_raise(number - 1);
            // It left as `sys.exit(0)` does. `os._exit(0)` loses the session or what the cell did to
            // it, which nobody means.
            if outcome.is_success() && !may_raise && self.is_alive().await {
                self.traces.add(outcome.files, outcome.left_out_files.links);
                return Ok(Some(NotebookEnd::Exited(number)));
            }
            let is_of_sandbox = matches!(outcome.verdict, Verdict::SandboxFailed(_));
            if !may_raise || is_of_sandbox || !self.is_alive().await {
                return Ok(Some(NotebookEnd::Failed { cell: number, problem, is_of_sandbox }));
            }
            self.traces.allowed_errors += 1;
        } else if number < self.total || is_kept {
            let is_lost = !self.is_alive().await;
            if is_lost && number < self.total {
                let problem = Problem::new("SessionLost", "the cell lost its session".to_owned());
                let is_of_sandbox = false;
                return Ok(Some(NotebookEnd::Failed { cell: number, problem, is_of_sandbox }));
            }
        }
        let took = outcome.usage.wall;
        self.traces.add(outcome.files, outcome.left_out_files.links);
        if number == self.total && !is_kept {
            self.done = number;
            return Ok(None);
        }
        if self.settings.writes {
            self.write_copy().await;
        }
        let session = self.session.as_ref().expect("the cell ran in it");
        let checkpoint = session.checkpoint().await?;
        if is_kept && let Some(prefixes) = &self.settings.prefixes {
            let key = self.keys[number - 1];
            prefixes.shared.passed(&[key]);
            let (notebook, traces) = (&self.task.notebook, &self.traces);
            if let Some(claim) = claim {
                let before = (number > 1).then(|| self.keys[number - 2]);
                claim
                    .publish(PrefixState::of(checkpoint.clone(), notebook, number, traces), before);
            }
            if let Some(cache) = &prefixes.cache {
                let is_last = number == self.total;
                let kept = || SavedState::of(notebook, number, traces);
                self.states.write(cache, key, session, took, is_last, kept).await;
            }
        }
        if number < self.total {
            self.checkpoint = Some(checkpoint);
        }
        self.done = number;
        Ok(None)
    }

    fn may_raise(&self, index: usize) -> bool {
        let cell = self.task.notebook.code().nth(index);
        self.settings.allows_errors || cell.is_some_and(CodeCell::may_raise)
    }

    /// Saves the state of random numbers in the session. Returns whether the session still exists.
    async fn is_alive(&self) -> bool {
        let Some(session) = &self.session else { return false };
        let outcome = session.run(guest::remember(&self.settings.limits)).await;
        outcome.is_ok_and(|outcome| !matches!(outcome.verdict, Verdict::SandboxFailed(_)))
    }

    /// Runs a cell and records its outputs.
    async fn cell(&mut self, number: usize) -> Result<(Outcome, Option<Problem>), Error> {
        let may_raise = self.may_raise(number - 1);
        let cell = cell_mut(&mut self.task.notebook, number - 1);
        let limits = self.settings.limits_of(cell);
        let job = Cell::new(&cell.source, number).job(&limits);
        // As in Jupyter, a cell that raises keeps its changes to files.
        let job = if may_raise { job.keep_files() } else { job };
        cell.execution_count = Some(number);
        let mut outputs = Outputs::of_cell(number);
        let session = self.session.as_ref().expect("it is open");
        let mut ticket = session.submit(job).await?;
        let mut events = ticket.events();
        let mut heard = 0;
        loop {
            tokio::select! {
                count = self.interrupts.more_than(heard) => {
                    heard = count;
                    end_by(&ticket, heard);
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
            let earlier = self.traces.places.iter().filter(|(id, ..)| *id == update.display_id);
            for (_, cell, output) in earlier {
                update.apply(&mut cell_mut(&mut self.task.notebook, *cell).outputs[*output]);
            }
        }
        self.traces.places.extend(places.into_iter().map(|(id, output)| (id, number - 1, output)));
        let failed = problem.as_ref().map(|problem| problem.name.clone());
        let seconds = outcome.usage.wall.as_secs_f64();
        self.tell(Progress::CellEnded { cell: number, seconds, failed });
        Ok((outcome, problem))
    }

    /// Begins to write the copy once the previous write has ended. The notebook's end writes it again, so
    /// an error may be left to that.
    async fn write_copy(&mut self) {
        let _ = self.copy_written().await;
        let (places, bytes) = (self.task.places.clone(), self.task.notebook.write());
        self.writing = Some(tokio::task::spawn_blocking(move || places.write_copy(&bytes)));
    }

    /// Waits for the write of the copy, if one runs.
    async fn copy_written(&mut self) -> Result<(), Error> {
        match self.writing.take() {
            Some(writing) => writing.await.expect("a write doesn't panic"),
            None => Ok(()),
        }
    }

    /// Saves the session and the record, as before the cell at which the notebook ended, or before
    /// the last cell.
    async fn keep_session(&mut self, has_completed: bool) -> Result<Resumption, Error> {
        let count = if has_completed { self.total.saturating_sub(1) } else { self.done };
        let (Some(checkpoint), 1..) = (&self.checkpoint, count) else {
            self.task.places.forget()?;
            return Ok(Resumption::Nothing);
        };
        if !self.is_alive().await {
            // The session was lost with the cell, or never opened.
            let name = session_name(&self.task);
            self.session = Some(self.settings.pool.session(&name).await?);
        }
        let session = self.session.as_ref().expect("it is open");
        session.restore(checkpoint).await?;
        let written = self.write_session(session, count).await;
        let file = || self.task.places.session.clone();
        written.map_err(|source| Error::NotKept(file(), Box::new(source)))?;
        Ok(Resumption::Saved)
    }

    async fn write_session(&self, session: &Session, count: usize) -> Result<(), Error> {
        let Self { settings, task, .. } = self;
        task.places.forget_record()?;
        session.save(&task.places.session).await?;
        let traces = Traces { places: self.traces.places.clone(), ..Traces::default() };
        let state = SavedState::of(&task.notebook, count, &traces);
        task.places.write_record(&state.with(settings.image(), &settings.input_digest))
    }
}

fn cell_mut(notebook: &mut Notebook, index: usize) -> &mut CodeCell {
    notebook.code_mut().nth(index).expect("the cell exists")
}

/// Returns a name that no other notebook's session has.
fn session_name(task: &Task) -> String {
    task.places.copy.display().to_string()
}

/// How many states are written at once. Each holds a session's memory until it is written.
const AT_ONCE: usize = 2;
/// How many bytes of states a notebook writes whatever they are worth. Those of small sessions are
/// 2 to 3 MB each, so that each of 20 cells has one.
const FREE_BYTES: u64 = 64 << 20;
/// The bytes of states that a second of cells is worth: about what a disk writes in that time.
/// Beyond the free ones, running cells again is cheaper than a state that is larger.
const BYTES_PER_SECOND: f64 = 64e6;

/// Writes states to the cache.
#[derive(Debug, Default)]
struct StateWriter {
    /// The bytes of each state; 0 if it couldn't be written.
    writing: JoinSet<u64>,
    written_bytes: u64,
    last_bytes: u64,
    /// How long the cells took since the last state that was written.
    since: Duration,
}

impl StateWriter {
    /// Begins to write the session's present state, which `kept` describes, if it is worth its place.
    /// The last cell took so long; `is_last` if no cell follows. What can't be kept isn't: the
    /// notebook doesn't depend on it.
    async fn write(
        &mut self,
        cache: &Arc<CheckpointCache>,
        key: Key,
        session: &Session,
        took: Duration,
        is_last: bool,
        kept: impl FnOnce() -> SavedState,
    ) {
        while let Some(written) = self.writing.try_join_next() {
            self.count(written.unwrap_or(0));
        }
        self.since += took;
        let worth = self.since.as_secs_f64() * BYTES_PER_SECOND;
        let is_worth_it = self.written_bytes < FREE_BYTES || self.last_bytes as f64 <= worth;
        if cache.has(key) || !(is_worth_it || is_last) {
            return;
        }
        if self.writing.len() >= AT_ONCE
            && let Some(written) = self.writing.join_next().await
        {
            self.count(written.unwrap_or(0));
        }
        let kept = kept();
        let name = format!("{} after cell {}", session.name(), kept.count());
        let Ok(fork) = session.fork(&name).await else { return };
        let cache = Arc::clone(cache);
        self.since = Duration::ZERO;
        self.writing.spawn(async move {
            let mut bytes = 0;
            if let Ok(place) = cache.place(key)
                && let Ok(saved) = fork.save(&place).await
            {
                bytes = saved;
                let keep = tokio::task::spawn_blocking(move || cache.keep(key, &place, kept));
                let _ = keep.await;
            }
            fork.close();
            bytes
        });
    }

    fn count(&mut self, bytes: u64) {
        self.written_bytes += bytes;
        self.last_bytes = bytes;
    }

    /// Waits until all is written, and brings the cache back to its bound.
    async fn finish(&mut self, cache: &Arc<CheckpointCache>) {
        while let Some(written) = self.writing.join_next().await {
            self.count(written.unwrap_or(0));
        }
        if self.written_bytes > 0 {
            let cache = Arc::clone(cache);
            let _ = tokio::task::spawn_blocking(move || cache.tidy()).await;
        }
    }
}

impl Run<'_> {
    /// Revives the saved session, or says why not.
    async fn resume(&mut self) -> Result<(), String> {
        let record = self.task.places.record()?;
        let name = session_name(&self.task);
        let session = self.settings.pool.revive(&name, &self.task.places.session).await;
        let session = session.map_err(|error| chain(&error).to_string())?;
        let (image, inputs) = (self.settings.image(), &self.settings.input_digest);
        match record.resume(&self.task.notebook, image, inputs) {
            Ok((outputs, traces)) => {
                take_over(&mut self.task.notebook, &outputs);
                (self.done, self.traces) = (outputs.len(), traces);
                self.session = Some(session);
                Ok(())
            }
            Err(why) => {
                // A fresh session takes its name.
                let reset = session.reset().await;
                reset.map_err(|error| chain(&error).to_string())?;
                Err(why)
            }
        }
    }

    /// Takes over the latest state that an earlier command left.
    async fn take_from_cache(&mut self) -> Result<(), Error> {
        let Some(cache) = self.cache() else { return Ok(()) };
        for count in (1..=self.keys.len()).rev() {
            let (key, place) = (self.keys[count - 1], Arc::clone(cache));
            let found = tokio::task::spawn_blocking(move || place.find(key, count)).await;
            let Some((kept, path)) = found.ok().flatten() else { continue };
            let (is_whole, has_files) = (count == self.total, kept.has_files());
            let session = match is_whole && !has_files {
                true => None,
                // Another command may have removed it, and it may be damaged.
                false => match self.settings.pool.revive(&session_name(&self.task), &path).await {
                    Ok(session) => Some(session),
                    Err(_) => {
                        cache.remove(key);
                        continue;
                    }
                },
            };
            let workspace = match &session {
                Some(session) if has_files => Some(session.workspace().await?),
                _ => None,
            };
            let contents = |path: &str| workspace.as_ref()?.read(path);
            let Some((outputs, traces)) = kept.open(contents) else {
                cache.remove(key);
                // An earlier state, or a fresh session, takes its name.
                if let Some(session) = session {
                    session.close();
                }
                continue;
            };
            self.session = session;
            take_over(&mut self.task.notebook, &outputs);
            self.traces = traces;
            self.skip_to(count, false);
            if !is_whole {
                self.start_session(false).await?;
            }
            return Ok(());
        }
        Ok(())
    }
}
