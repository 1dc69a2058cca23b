//! `hatchery repl`: a Python prompt in a session.
//!
//! Each input is a job in the current session. Exceptions, limits and Ctrl-C end an input and
//! return to the prompt. If the session is lost, a fresh one replaces it. Without a terminal there
//! is no prompt; everything else is the same.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::jupyter::assistance::{Input, Judgement};
use ::notebook::guest::own_limits;
use anyhow::Context;
use hatchery::error::{chain, counted};
use hatchery::outcome::MimeBundle;
use hatchery::record::{RecordFolder, RecordingFile};
use hatchery::{
    Builder, Error, Hatchery, Interface, Job, Limits, Outcome, Refusal, Session, Verdict,
};

use crate::args::ReplArguments;
use crate::exit::{Exit, UsageError};
use crate::follow::{Followed, follow, report};
use crate::inputs;
use crate::pool::start_pool;
use crate::signals::{self, Interrupts};
use crate::terminal::{self as screen, note, print};
use assistant::Help;
use command::ReplCommand;
use guest::{Calls, READ_LINE, Typed};
use terminal::{Heard, Reader};
use workspace::{Outputs, SessionFile};

mod assistant;
mod command;
mod files;
mod guest;
mod terminal;
pub(super) mod workspace;

/// How many sessions are opened in place of a lost one, if each of them is lost at once.
const MOST_TRIES: usize = 3;
/// Name of the initial session. The prompt doesn't show it.
const FIRST: &str = "repl";

/// Name of the session that judges inputs. No session of the user can have it.
const JUDGE: &str = "<judge>";

/// How long saving the session may take when a signal or a failure ends the prompt. The grace period of a
/// running input comes before.
const LAST_SAVE: Duration = Duration::from_secs(10);

pub(crate) async fn run(arguments: ReplArguments) -> anyhow::Result<Exit> {
    // One worker for the session and one for the judge: a session with threads can't give way.
    let builder = arguments.programs.image.apply(arguments.programs.builder())?.workers(2);
    converse(arguments, builder, None).await
}

/// Opens a prompt in a pool of this image, after a turn of a recording if one is given.
pub(super) async fn converse(
    arguments: ReplArguments,
    builder: Builder,
    recorded: Option<(&RecordingFile, usize)>,
) -> anyhow::Result<Exit> {
    screen::set_raw(arguments.raw_output);
    // Before there is work that could be lost.
    let kept = arguments.session.as_deref().map(SessionFile::open).transpose()?;
    let outputs = arguments.output_dir.as_deref().map(Outputs::open).transpose()?;
    if let Some(folder) = &arguments.save_displays {
        fs::create_dir_all(folder)
            .with_context(|| UsageError(format!("can't create `{}`", folder.display())))?;
    }
    // The only function reads lines, and there may be many.
    let limits = Limits { function_calls: u64::MAX, ..arguments.programs.limits() };
    let begin = Job::code(guest::begin()).named("<begin>").limits(own_limits(&limits));
    let begin = inputs::add_mounts(begin, &arguments.host.folders)?;
    let files = inputs::read_named(&arguments.host.input)?;
    let (function, calls) = guest::read_line();
    let builder = builder.limits(limits.clone()).function(function);
    let hatchery = start_pool(builder.interface(Interface::Prompt)).await?;
    let session = match (recorded, kept.as_ref().and_then(SessionFile::existing)) {
        (Some((recording, turn)), _) => recording.session_at(&hatchery, FIRST, turn).await?,
        (None, Some(file)) => hatchery
            .revive(FIRST, file)
            .await
            .with_context(|| format!("can't continue the session in `{}`", file.display()))?,
        (None, None) => hatchery.session(FIRST).await?,
    };
    let record = arguments.record.map(RecordFolder::open).transpose()?;
    let judge = hatchery.session(JUDGE).await?;
    let begun = judge.run(Job::code(guest::begin()).limits(own_limits(&limits))).await?;
    if let Verdict::SandboxFailed(failure) = begun.verdict {
        anyhow::bail!("the prompt can't start: {failure}");
    }
    let mut reader = Reader::open()?;
    let mut repl = Repl {
        hatchery,
        sessions: BTreeMap::from([(FIRST.to_owned(), session)]),
        present: FIRST.to_owned(),
        judge,
        // The first interrupts an input, the second stops it, the third ends this process.
        interrupts: signals::interrupts(3)?,
        input_count: 0,
        limits,
        files,
        begin,
        calls,
        kept,
        record,
        outputs,
        display_folder: arguments.save_displays,
        shown: Vec::new(),
        has_noted_files: false,
        is_interactive: reader.is_terminal(),
        exit: Exit::Success,
    };
    let mut endings = signals::endings()?;
    let ended = tokio::select! {
        biased;
        // First, since a terminal that closes ends the input as well, often at once. Dropping the
        // ticket of a running input cancels it.
        exit = endings.first_or_closed() => Ok(exit),
        ended = repl.converse(&mut reader) => ended,
    };
    let recorded = repl.stop_recording(&ended).await;
    let kept = match &ended {
        Ok(Exit::Signal(_)) | Err(_) => {
            reader.give_up();
            let time = repl.limits.grace.saturating_add(LAST_SAVE);
            let keeping = tokio::time::timeout(time, repl.keep_after_cancel());
            keeping.await.unwrap_or_else(|_| {
                Err(anyhow::anyhow!("it took longer than {} s", time.as_secs()))
            })
        }
        Ok(_) => repl.keep().await,
    };
    if let Err(problem) = kept {
        if let Err(error) = &ended {
            screen::error(format_args!("{error:#}"));
        }
        let file = arguments.session.unwrap_or_default();
        return Err(problem.context(format!("the session is not saved in `{}`", file.display())));
    }
    recorded?;
    ended
}

/// A conversation with the user.
struct Repl {
    hatchery: Hatchery,
    /// Invariant: contains the current session.
    sessions: BTreeMap<String, Session>,
    /// The name of the session that gets the inputs.
    present: String,
    /// A session that only says which lines are complete inputs.
    judge: Session,
    interrupts: Interrupts,
    /// Number of inputs so far; it names each input in tracebacks.
    input_count: usize,
    /// The limits of each input.
    limits: Limits,
    /// What each session gets: names in the workspace, and contents.
    files: Vec<(String, Vec<u8>)>,
    /// A job that installs the prompt's helpers and mounts the folders. Repeating it changes
    /// nothing.
    begin: Job,
    /// What running programs read from standard input.
    calls: Calls,
    /// The file for the current session at the end.
    kept: Option<SessionFile>,
    /// Where sessions are recorded (`--record`).
    record: Option<RecordFolder>,
    outputs: Option<Outputs>,
    /// The folder for displays (`--save-displays`).
    display_folder: Option<PathBuf>,
    /// The displays of the last input that had any.
    shown: Vec<(&'static str, MimeBundle)>,
    /// Whether the user has been told how to fetch files.
    has_noted_files: bool,
    is_interactive: bool,
    /// The exit code unless something else decides it. Always success at a terminal, where the user
    /// saw what failed.
    exit: Exit,
}

impl Repl {
    /// Reads and evaluates inputs until the user leaves.
    async fn converse(&mut self, reader: &mut Reader) -> anyhow::Result<Exit> {
        if self.is_interactive {
            let version = env!("CARGO_PKG_VERSION");
            print(format_args!("Hatchery {version}, Python in a sandbox; `:help` shows commands"))?;
        }
        self.give_files().await?;
        let mut input = Input::default();
        loop {
            let prompt = self.prompt(&input);
            let help = self.help(&input);
            match reader.read(&prompt, help, &mut self.interrupts).await? {
                Heard::Discard => {
                    input = Input::default();
                    continue;
                }
                Heard::Interrupt => return Ok(Exit::Interrupted),
                Heard::End if input.is_empty() => return Ok(self.exit),
                // The input ends with what was typed so far.
                Heard::End => {}
                Heard::Line(line) => {
                    let line = line.replace('\r', "");
                    let mut judgement = self.judge(&input, &line).await;
                    if judgement == Judgement::Apart {
                        // Runs on its own: if it fails, the next input still runs.
                        if let ControlFlow::Break(exit) = self.turn(&mut input, reader).await? {
                            return Ok(exit);
                        }
                        judgement = self.judge(&input, &line).await;
                    }
                    if let Some(command) = command::parse(&line).filter(|_| input.is_empty()) {
                        reader.remember(&line);
                        match self.obey(command).await? {
                            ControlFlow::Continue(()) => continue,
                            ControlFlow::Break(exit) => return Ok(exit),
                        }
                    }
                    input.push(&line, judgement);
                    if judgement != Judgement::Whole {
                        continue;
                    }
                }
            }
            if let ControlFlow::Break(exit) = self.turn(&mut input, reader).await? {
                return Ok(exit);
            }
        }
    }

    async fn judge(&self, input: &Input, line: &str) -> Judgement {
        // An input that is too long is submitted as it is, and refused as too long.
        if input.text().len() + line.len() > self.limits.source_bytes {
            return Judgement::Whole;
        }
        input.judge(line, &self.judge, &own_limits(&self.limits)).await
    }

    /// Runs the complete input, and begins the next one.
    async fn turn(
        &mut self,
        input: &mut Input,
        reader: &mut Reader,
    ) -> anyhow::Result<ControlFlow<Exit>> {
        let source = input.take();
        if source.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        reader.remember(&source);
        match guest::magic(&source).unwrap_or(Ok(source)) {
            Ok(source) => self.evaluate(source, reader).await,
            Err(problem) => {
                self.complain(Exit::Usage, problem);
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    /// Collects what completion and colours need for the next line.
    fn help(&self, input: &Input) -> Help {
        Help {
            before: input.text().to_owned(),
            session: self.session(),
            limits: own_limits(&self.limits),
            sessions: self.sessions.keys().cloned().collect(),
        }
    }

    fn prompt(&self, input: &Input) -> String {
        let marks = if input.is_empty() { ">>> " } else { "... " };
        if self.present == FIRST { marks.to_owned() } else { format!("{}{marks}", self.present) }
    }

    fn session(&self) -> Session {
        self.sessions.get(&self.present).expect("the current session is open").clone()
    }

    /// Runs an input and shows the outcome.
    async fn evaluate(
        &mut self,
        source: String,
        reader: &mut Reader,
    ) -> anyhow::Result<ControlFlow<Exit>> {
        self.input_count += 1;
        // As at Python's own prompt, an input that raises keeps its changes to files.
        let name = format!("<input-{}>", self.input_count);
        let job = Job::code(source).named(name).keep_files().prompt().stdin_from(READ_LINE);
        let mut ticket = match self.session().submit(job).await {
            Ok(ticket) => ticket,
            Err(Error::Refused(Refusal::SessionGone(..))) => {
                self.replace_lost().await?;
                note("the input was not run");
                return Ok(ControlFlow::Continue(()));
            }
            Err(error) => {
                self.complain(Exit::Sandbox, chain(&error));
                return Ok(ControlFlow::Continue(()));
            }
        };
        let mut typed = Typed { calls: &mut self.calls, reader, unfinished: Vec::new() };
        let followed = follow(&mut ticket, true, &mut self.interrupts, &mut typed).await;
        let is_unfinished = !typed.unfinished.is_empty();
        let Followed { outcome, drawn, .. } = followed?;
        self.interrupts.forget();
        if self.is_interactive && is_unfinished {
            // Otherwise the prompt would overwrite it.
            print("")?;
        }
        report(&outcome);
        if outcome.session_restored {
            note("the session is back in its state before this input");
        }
        let flow = self.conclude(&outcome).await?;
        self.keep_results(&outcome, drawn);
        Ok(flow)
    }

    /// Decides what an outcome means for the conversation.
    async fn conclude(&mut self, outcome: &Outcome) -> anyhow::Result<ControlFlow<Exit>> {
        match &outcome.verdict {
            Verdict::Completed { repr, .. } => {
                if let Some(repr) = repr {
                    print(repr)?;
                }
                return Ok(ControlFlow::Continue(()));
            }
            Verdict::Raised(_) => return Ok(ControlFlow::Continue(())),
            // The program crashed; the user didn't leave.
            Verdict::Exited { code: Outcome::ABORTED | Outcome::CRASHED, message: Some(_) } => {}
            Verdict::Exited { code, .. } => return Ok(ControlFlow::Break(Exit::Program(*code))),
            Verdict::SandboxFailed(_) => self.fail_with(Exit::Sandbox),
            // A limit or the user ended it, perhaps by force.
            _ => {}
        }
        if self.is_lost().await {
            self.replace_lost().await?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns whether the current session is gone. Only running something in it can tell.
    async fn is_lost(&self) -> bool {
        // A replaced interpreter has lost its mounts, which this job restores.
        match self.session().run(self.begin.clone()).await {
            Ok(outcome) => matches!(outcome.verdict, Verdict::SandboxFailed(_)),
            Err(error) => matches!(error, Error::Refused(Refusal::SessionGone(..))),
        }
    }

    /// Opens a session in place of one that is lost. What ended its worker may end the next one, too.
    async fn replace_lost(&mut self) -> anyhow::Result<()> {
        screen::error("the session and its variables are lost; continuing in a fresh session");
        let mut tries = 1;
        loop {
            let fresh = self.hatchery.session(&self.present).await?;
            self.sessions.insert(self.present.clone(), fresh);
            match self.give_files().await {
                Err(_) if tries < MOST_TRIES => tries += 1,
                given => return given,
            }
        }
    }

    /// Executes a command.
    async fn obey(
        &mut self,
        command: Result<ReplCommand, String>,
    ) -> anyhow::Result<ControlFlow<Exit>> {
        let command = match command {
            Ok(command) => command,
            Err(problem) => {
                self.complain(Exit::Usage, problem);
                return Ok(ControlFlow::Continue(()));
            }
        };
        match command {
            ReplCommand::Quit => return Ok(ControlFlow::Break(self.exit)),
            ReplCommand::Help => print(command::HELP)?,
            ReplCommand::Sessions => {
                for name in self.sessions.keys() {
                    let mark = if *name == self.present { '*' } else { ' ' };
                    print(format_args!("{mark} {name}"))?;
                }
            }
            ReplCommand::Switch(name) if self.sessions.contains_key(&name) => self.present = name,
            ReplCommand::Switch(name) => {
                let problem = format!("there is no session `{name}`; `:sessions` lists them");
                self.complain(Exit::Usage, problem);
            }
            ReplCommand::Fork(name) if self.sessions.contains_key(&name) => {
                let problem = format!("the session `{name}` exists already; use `:switch {name}`");
                self.complain(Exit::Usage, problem);
            }
            ReplCommand::Fork(name) => match self.session().fork(&name).await {
                Ok(session) => self.go_to(name, session).await?,
                Err(error) => self.fail("fork the session", error.into()),
            },
            ReplCommand::Save(file) => match self.save(&file).await {
                Ok(bytes) => {
                    note(format_args!("saved {} in `{}`", counted(bytes, "byte"), file.display()))
                }
                Err(error) => {
                    self.fail(&format!("save the session in `{}`", file.display()), error)
                }
            },
            ReplCommand::Load(file) => self.load(&file).await?,
            ReplCommand::Put(file, path) => {
                let put = self.put(&file, path.as_deref()).await;
                put.unwrap_or_else(|error| self.fail(&format!("put `{}`", file.display()), error));
            }
            ReplCommand::Get(path, file) => {
                let got = self.get(&path, file.as_deref()).await;
                got.unwrap_or_else(|error| self.fail(&format!("get `{path}`"), error));
            }
            ReplCommand::Files => self.list_files().await?,
            ReplCommand::Displays(folder) => self.keep_displays(&folder),
            ReplCommand::Reset => match self.session().reset().await {
                Ok(()) => {
                    note("the session is reset");
                    self.give_files().await?;
                }
                Err(error) => self.fail("reset the session", error.into()),
            },
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Opens the session in a file beside those that are open, so that none is lost.
    async fn load(&mut self, file: &Path) -> anyhow::Result<()> {
        let name = self.free_name(&command::name_of_file(file));
        match self.hatchery.revive(&name, file).await {
            Ok(session) => self.go_to(name, session).await?,
            Err(error) => {
                self.fail(&format!("load the session in `{}`", file.display()), error.into());
            }
        }
        Ok(())
    }

    /// Writes the current session to a file.
    async fn save(&mut self, file: &Path) -> anyhow::Result<u64> {
        let session = self.session();
        match &mut self.kept {
            Some(kept) if kept.is_at(file) => kept.save(&session).await,
            _ => workspace::save(&session, file).await,
        }
    }

    /// Ends the recordings, once the jobs that were cancelled have ended.
    async fn stop_recording(&self, ended: &anyhow::Result<Exit>) -> anyhow::Result<()> {
        let is_recorded = self.record.is_some();
        for session in self.sessions.values().filter(|_| is_recorded) {
            let stopping = session.stop_recording();
            let time = self.limits.grace.saturating_add(LAST_SAVE);
            let stopped = match ended {
                Ok(Exit::Signal(_)) | Err(_) => tokio::time::timeout(time, stopping).await,
                Ok(_) => Ok(stopping.await),
            };
            stopped.context("the recording took too long to end")??;
        }
        Ok(())
    }

    /// Saves the current session to the file of `--session`, if given.
    async fn keep(&mut self) -> anyhow::Result<()> {
        let session = self.session();
        match &mut self.kept {
            Some(kept) => kept.save(&session).await.map(drop),
            None => Ok(()),
        }
    }

    /// Saves the session once the job that was cancelled in it has ended.
    async fn keep_after_cancel(&mut self) -> anyhow::Result<()> {
        if self.kept.is_some() {
            let _ = self.session().run(Job::code("")).await;
        }
        self.keep().await
    }

    /// Returns this name, or the first free one with a number appended.
    fn free_name(&self, name: &str) -> String {
        let numbered = (2..).map(|number: usize| format!("{name}-{number}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        names.find(|name| !self.sessions.contains_key(name)).expect("numbers go on")
    }

    async fn go_to(&mut self, name: String, session: Session) -> anyhow::Result<()> {
        note(format_args!("switched to the session `{name}`"));
        self.sessions.insert(name.clone(), session);
        self.present = name;
        self.begin().await
    }

    /// Reports that something failed.
    fn fail(&mut self, what: &str, error: anyhow::Error) {
        self.complain(Exit::of_error(&error), format_args!("can't {what}: {error:#}"));
    }

    /// Reports a problem that doesn't end the conversation.
    fn complain(&mut self, exit: Exit, problem: impl std::fmt::Display) {
        screen::error(problem);
        self.fail_with(exit);
    }

    /// Remembers a failure for the exit code, unless a user at the terminal saw it.
    fn fail_with(&mut self, exit: Exit) {
        if !self.is_interactive && self.exit != Exit::Sandbox {
            self.exit = exit;
        }
    }
}
