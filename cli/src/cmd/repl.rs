//! `hatchery repl`: a prompt for Python in a session.
//!
//! Each input is a job in the present session. What ends an input ends nothing else: exceptions,
//! limits and Ctrl-C come back to the prompt, and if a session is lost, a fresh one takes its
//! place. Without a terminal there is no prompt, and the rest is the same.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use hatchery::{Error, Hatchery, Job, Limits, MimeBundle, Outcome, Refusal, Session, Verdict};

use self::assistant::Help;
use self::command::Command;
use self::input::Input;
use self::reader::{Heard, Reader};
use self::session_file::SessionFile;
use self::typed::{Calls, READ_LINE, Typed};
use self::workspace::Outputs;
use crate::args::ReplArguments;
use crate::cmd::guest::own_limits;
use crate::exit::{Exit, UsageError};
use crate::follow::{follow_with, report};
use crate::signals::{self, Interrupts};
use crate::terminal::{self as screen, note, print};
use crate::{inputs, progress};

mod assistant;
mod command;
mod files;
mod guest;
mod history;
pub(super) mod input;
mod reader;
pub(super) mod session_file;
mod terminal;
mod typed;
mod workspace;

/// The session that is there from the start. The prompt doesn't show its name.
const FIRST: &str = "repl";

/// How long keeping the session may take when a signal or a failure ends the prompt, beside the
/// grace period of what runs.
const LAST_SAVE: Duration = Duration::from_secs(10);

pub(crate) async fn run(arguments: ReplArguments) -> anyhow::Result<Exit> {
    screen::set_raw(arguments.raw_output);
    // Before there is work that would be lost.
    let kept = arguments.session.as_deref().map(SessionFile::open).transpose()?;
    let outputs = arguments.output_dir.as_deref().map(Outputs::open).transpose()?;
    if let Some(folder) = &arguments.save_displays {
        fs::create_dir_all(folder)
            .map_err(|error| UsageError(format!("can't make `{}`: {error}", folder.display())))?;
    }
    // The only function is the one that reads lines, of which there may be many.
    let limits = Limits { function_calls: u64::MAX, ..arguments.limits.limits() };
    let begin = Job::code(guest::begin()).named("<begin>").limits(own_limits(&limits));
    let given = Given {
        files: inputs::read_named(&arguments.input)?,
        begin: inputs::add_mounts(begin, &arguments.mount)?,
    };
    let (function, calls) = typed::read_line();
    let builder = Hatchery::builder().workers(1).limits(limits.clone()).progress(progress::sink());
    let hatchery = arguments.image.apply(builder.function(function))?.start().await?;
    let session = open(&hatchery, kept.as_ref().and_then(SessionFile::existing)).await?;
    let mut reader = Reader::open()?;
    let mut repl = Repl {
        hatchery,
        sessions: BTreeMap::from([(FIRST.to_owned(), session)]),
        present: FIRST.to_owned(),
        // The first interrupts an input, the second stops it, the third ends this process.
        interrupts: signals::interrupts(3)?,
        input_count: 0,
        limits,
        given,
        calls,
        kept,
        outputs,
        display_folder: arguments.save_displays,
        shown: Vec::new(),
        has_told_of_files: false,
        is_interactive: reader.is_terminal(),
        exit: Exit::Success,
    };
    let mut endings = signals::endings()?;
    let ended = tokio::select! {
        biased;
        // First, since a terminal that goes ends the input as well, and often at once. An input that
        // runs is cancelled as this drops its ticket.
        exit = endings.first() => Ok(exit),
        ended = repl.converse(&mut reader) => ended,
    };
    let kept = match &ended {
        Ok(Exit::Signal(_)) | Err(_) => {
            reader.give_up();
            let time = repl.limits.grace.saturating_add(LAST_SAVE);
            let keeping = tokio::time::timeout(time, repl.keep_after_all());
            keeping.await.unwrap_or_else(|_| {
                Err(anyhow::anyhow!("that took longer than {} s", time.as_secs()))
            })
        }
        Ok(_) => repl.keep().await,
    };
    if let Err(problem) = kept {
        if let Err(error) = &ended {
            screen::error(format_args!("{error:#}"));
        }
        let file = arguments.session.unwrap_or_default();
        return Err(problem.context(format!("the session is not kept in `{}`", file.display())));
    }
    ended
}

/// The session in the file, if there is one, else a fresh one.
async fn open(hatchery: &Hatchery, file: Option<&Path>) -> anyhow::Result<Session> {
    match file {
        Some(file) => hatchery
            .revive(FIRST, file)
            .await
            .with_context(|| format!("can't go on with the session in `{}`", file.display())),
        None => Ok(hatchery.session(FIRST).await?),
    }
}

/// What each session is given besides what is typed.
struct Given {
    /// Names in the workspace, and contents.
    files: Vec<(String, Vec<u8>)>,
    /// A job that gives it what the prompt has there, and mounts the folders. It changes nothing
    /// where that was done already.
    begin: Job,
}

/// A conversation with the user.
struct Repl {
    hatchery: Hatchery,
    /// Invariant: the present one is among them.
    sessions: BTreeMap<String, Session>,
    /// The name of the session that inputs go to.
    present: String,
    interrupts: Interrupts,
    /// Inputs so far, which tracebacks tell apart by their numbers.
    input_count: usize,
    /// What each input may use.
    limits: Limits,
    given: Given,
    /// What programs read that run.
    calls: Calls,
    /// Where the present session is kept at the end.
    kept: Option<SessionFile>,
    outputs: Option<Outputs>,
    /// Where displays are kept.
    display_folder: Option<PathBuf>,
    /// What the last input that showed something showed.
    shown: Vec<(&'static str, MimeBundle)>,
    /// Whether the user knows how to get at files.
    has_told_of_files: bool,
    is_interactive: bool,
    /// How this ends if nothing else happens. At a prompt always well: the user saw what failed.
    exit: Exit,
}

impl Repl {
    /// Reads and evaluates until the user leaves.
    async fn converse(&mut self, reader: &mut Reader) -> anyhow::Result<Exit> {
        if self.is_interactive {
            let version = env!("CARGO_PKG_VERSION");
            print(format_args!("Hatchery {version}, Python in a sandbox; `:help` shows commands"))?;
        }
        self.give_all().await?;
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
                // What was typed so far is all that there is of it.
                Heard::End => {}
                Heard::Line(line) => {
                    // Run by itself: if it fails, what follows it is run all the same.
                    if input.is_ended_by(&line)
                        && let ControlFlow::Break(exit) = self.turn(&mut input, reader).await?
                    {
                        return Ok(exit);
                    }
                    if let Some(command) = command::parse(&line).filter(|_| input.is_empty()) {
                        reader.remember(&line);
                        match self.obey(command).await? {
                            ControlFlow::Continue(()) => continue,
                            ControlFlow::Break(exit) => return Ok(exit),
                        }
                    }
                    // One that is longer is submitted as it is, which says that it is too long.
                    if !input.push(&line) && input.len() <= self.limits.source_bytes {
                        continue;
                    }
                }
            }
            if let ControlFlow::Break(exit) = self.turn(&mut input, reader).await? {
                return Ok(exit);
            }
        }
    }

    /// Runs the input that was typed, and begins the next one.
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

    /// What helps who types the next line.
    fn help(&self, input: &Input) -> Help {
        Help {
            scanner: input.scanner().clone(),
            is_first: input.is_empty(),
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
        self.sessions.get(&self.present).expect("the present session is open").clone()
    }

    /// Runs an input and shows what comes of it.
    async fn evaluate(
        &mut self,
        source: String,
        reader: &mut Reader,
    ) -> anyhow::Result<ControlFlow<Exit>> {
        self.input_count += 1;
        // As at Python's own prompt, an input that raised has still done to files what it did.
        let name = format!("<input-{}>", self.input_count);
        let job = Job::code(source).named(name).keep_files().prompt().stdin_from(READ_LINE);
        let mut ticket = match self.session().submit(job).await {
            Ok(ticket) => ticket,
            Err(Error::Refused(Refusal::SessionGone { .. })) => {
                self.replace_lost().await?;
                note("the input was not run");
                return Ok(ControlFlow::Continue(()));
            }
            Err(error) => {
                self.complain(Exit::Sandbox, error);
                return Ok(ControlFlow::Continue(()));
            }
        };
        let mut typed = Typed { calls: &mut self.calls, reader, unfinished: Vec::new() };
        let followed = follow_with(&mut ticket, true, &mut self.interrupts, &mut typed).await;
        let is_unfinished = !typed.unfinished.is_empty();
        let (outcome, _) = followed?;
        self.interrupts.forget();
        if self.is_interactive && is_unfinished {
            // Else the prompt would be drawn over it.
            print("")?;
        }
        report(&outcome);
        if outcome.session_restored {
            note("the session is as it was before that");
        }
        let flow = self.conclude(&outcome).await?;
        self.keep_what_it_made(&outcome);
        Ok(flow)
    }

    /// What an outcome means for the conversation.
    async fn conclude(&mut self, outcome: &Outcome) -> anyhow::Result<ControlFlow<Exit>> {
        match &outcome.verdict {
            Verdict::Completed { repr, .. } => {
                if let Some(repr) = repr {
                    print(repr)?;
                }
                return Ok(ControlFlow::Continue(()));
            }
            Verdict::Raised(_) => return Ok(ControlFlow::Continue(())),
            // It did not leave, it crashed.
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

    /// Whether the present session is gone. Only running something in it says so for certain.
    async fn is_lost(&self) -> bool {
        // What it mounts may have gone with the input.
        match self.session().run(self.given.begin.clone()).await {
            Ok(outcome) => matches!(outcome.verdict, Verdict::SandboxFailed(_)),
            Err(error) => matches!(error, Error::Refused(Refusal::SessionGone { .. })),
        }
    }

    async fn replace_lost(&mut self) -> anyhow::Result<()> {
        let fresh = self.hatchery.session(&self.present).await?;
        self.sessions.insert(self.present.clone(), fresh);
        screen::error("the session is lost, and its variables with it; this is a fresh one");
        self.give_all().await
    }

    /// Does what a command says.
    async fn obey(
        &mut self,
        command: Result<Command, String>,
    ) -> anyhow::Result<ControlFlow<Exit>> {
        match command {
            Ok(Command::Quit) => return Ok(ControlFlow::Break(self.exit)),
            Ok(Command::Help) => print(command::HELP)?,
            Ok(Command::Sessions) => {
                for name in self.sessions.keys() {
                    let mark = if *name == self.present { '*' } else { ' ' };
                    print(format_args!("{mark} {name}"))?;
                }
            }
            Ok(Command::Switch(name)) if self.sessions.contains_key(&name) => self.present = name,
            Ok(Command::Switch(name)) => {
                self.complain(
                    Exit::Usage,
                    format_args!("there is no session `{name}`; `:sessions` lists them"),
                );
            }
            Ok(Command::Fork(name)) if self.sessions.contains_key(&name) => {
                self.complain(
                    Exit::Usage,
                    format_args!("there is a session `{name}`; `:switch {name}` goes there"),
                );
            }
            Ok(Command::Fork(name)) => match self.session().fork(&name).await {
                Ok(session) => self.go_to(name, session).await?,
                Err(error) => {
                    self.complain(Exit::Sandbox, format_args!("can't fork the session: {error}"));
                }
            },
            Ok(Command::Save(file)) => match self.save(&file).await {
                Ok(bytes) => note(format_args!("saved {bytes} bytes in `{}`", file.display())),
                Err(error) => self.complain(
                    Exit::Sandbox,
                    format_args!("can't save the session in `{}`: {error:#}", file.display()),
                ),
            },
            Ok(Command::Load(file)) => self.load(&file).await?,
            Ok(Command::Put(file, path)) => self.put(&file, path.as_deref()).await?,
            Ok(Command::Get(path, file)) => self.get(&path, file.as_deref()).await,
            Ok(Command::Files) => self.list_files().await?,
            Ok(Command::Displays(folder)) => self.keep_displays(&folder),
            Ok(Command::Reset) => match self.session().reset().await {
                Ok(()) => {
                    note("the session is as it was at first");
                    self.give_all().await?;
                }
                Err(error) => {
                    self.complain(Exit::Sandbox, format_args!("can't reset the session: {error}"));
                }
            },
            Err(problem) => self.complain(Exit::Usage, problem),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Opens the session in a file beside those that are open: nothing that is there is lost.
    async fn load(&mut self, file: &Path) -> anyhow::Result<()> {
        let name = self.free_name(&command::name_of_file(file));
        match self.hatchery.revive(&name, file).await {
            Ok(session) => self.go_to(name, session).await?,
            Err(error) => {
                let error = anyhow::Error::from(error);
                let exit = Exit::of_error(&error);
                let file = file.display();
                self.complain(exit, format_args!("can't load the session in `{file}`: {error:#}"));
            }
        }
        Ok(())
    }

    /// Writes the present session to a file.
    async fn save(&mut self, file: &Path) -> anyhow::Result<u64> {
        let session = self.session();
        match &mut self.kept {
            Some(kept) if kept.is_at(file) => kept.save(&session).await,
            _ => session_file::save(&session, file).await,
        }
    }

    /// Keeps the present session where it is to be kept.
    async fn keep(&mut self) -> anyhow::Result<()> {
        let session = self.session();
        match &mut self.kept {
            Some(kept) => kept.save(&session).await.map(drop),
            None => Ok(()),
        }
    }

    /// Keeps it once what was cancelled in it has ended.
    async fn keep_after_all(&mut self) -> anyhow::Result<()> {
        if self.kept.is_some() {
            let _ = self.session().run(Job::code("")).await;
        }
        self.keep().await
    }

    /// This name, or the first with a number that no session has.
    fn free_name(&self, name: &str) -> String {
        let names = std::iter::once(name.to_owned())
            .chain((2..).map(|number: usize| format!("{name}-{number}")));
        names.into_iter().find(|name| !self.sessions.contains_key(name)).expect("numbers go on")
    }

    async fn go_to(&mut self, name: String, session: Session) -> anyhow::Result<()> {
        note(format_args!("this is the session `{name}` now"));
        self.sessions.insert(name.clone(), session);
        self.present = name;
        self.begin().await
    }

    /// Says what went wrong on the way. It ends nothing.
    fn complain(&mut self, exit: Exit, problem: impl std::fmt::Display) {
        screen::error(problem);
        self.fail_with(exit);
    }

    /// Remembers that not everything went well, for who isn't there to see it.
    fn fail_with(&mut self, exit: Exit) {
        if !self.is_interactive && self.exit != Exit::Sandbox {
            self.exit = exit;
        }
    }
}
