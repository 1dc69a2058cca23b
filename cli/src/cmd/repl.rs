//! `hatchery repl`: a prompt for Python in a session.
//!
//! Each input is a job in the present session. What ends an input ends nothing else: exceptions,
//! limits and Ctrl-C come back to the prompt, and if a session is lost, a fresh one takes its
//! place. Without a terminal there is no prompt, and the rest is the same.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hatchery::{Error, Hatchery, Job, Outcome, Refusal, Session, Verdict};

use self::command::Command;
use self::input::Input;
use self::reader::{Heard, Reader};
use crate::args::ReplArguments;
use crate::exit::{Exit, UsageError};
use crate::follow::{follow, report};
use crate::progress;
use crate::signals::{self, Interrupts};
use crate::terminal::{note, print};

mod command;
mod history;
pub(super) mod input;
mod reader;
mod terminal;

/// The session that is there from the start. The prompt doesn't show its name.
const FIRST: &str = "repl";

pub(crate) async fn run(arguments: ReplArguments) -> anyhow::Result<Exit> {
    if let Some(file) = &arguments.session {
        // Before there is work that would be lost.
        check_place(file)?;
    }
    let limits = arguments.limits.limits();
    let longest_input_bytes = limits.source_bytes;
    let builder = Hatchery::builder().workers(1).limits(limits).progress(progress::sink());
    let hatchery = arguments.image.apply(builder)?.start().await?;
    let session = open(&hatchery, arguments.session.as_deref()).await?;
    let mut reader = Reader::open()?;
    let mut repl = Repl {
        hatchery,
        sessions: BTreeMap::from([(FIRST.to_owned(), session)]),
        present: FIRST.to_owned(),
        // The first interrupts an input, the second stops it, the third ends this process.
        interrupts: signals::interrupts(3)?,
        input_count: 0,
        longest_input_bytes,
        is_interactive: reader.is_terminal(),
        exit: Exit::Success,
    };
    let ended = repl.converse(&mut reader).await;
    if let Some(file) = &arguments.session
        && let Err(problem) = save(&repl.session(), file).await
    {
        if let Err(error) = &ended {
            note(format_args!("{error:#}"));
        }
        return Err(problem.context(format!("the session is not kept in `{}`", file.display())));
    }
    ended
}

/// Checks that a session can be kept in this file.
fn check_place(file: &Path) -> anyhow::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_place = folder.unwrap_or(Path::new(".")).is_dir() && (!file.exists() || file.is_file());
    if !is_place {
        let text = format!("`{}` can't be a session's file; name one in a folder", file.display());
        return Err(UsageError(text).into());
    }
    Ok(())
}

/// The session in the file, if there is one, else a fresh one.
async fn open(hatchery: &Hatchery, file: Option<&Path>) -> anyhow::Result<Session> {
    match file.filter(|file| file.exists()) {
        Some(file) => hatchery
            .revive(FIRST, file)
            .await
            .with_context(|| format!("can't go on with the session in `{}`", file.display())),
        None => Ok(hatchery.session(FIRST).await?),
    }
}

/// Writes a session to a file, which then has all of it, or what it had before.
async fn save(session: &Session, file: &Path) -> anyhow::Result<u64> {
    let mut unfinished = file.as_os_str().to_owned();
    unfinished.push(format!(".unfinished-{}", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    let saved = match session.save(&unfinished).await {
        Ok(bytes) => fs::rename(&unfinished, file).map(|()| bytes).map_err(anyhow::Error::from),
        Err(error) => Err(error.into()),
    };
    if saved.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    saved
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
    /// An input that is longer is submitted as it is, which says that it is too long.
    longest_input_bytes: usize,
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
        let mut input = Input::default();
        loop {
            let prompt = self.prompt(&input);
            match reader.read(&prompt, &mut self.interrupts).await? {
                Heard::Discard => {
                    input = Input::default();
                    continue;
                }
                Heard::Interrupt => return Ok(Exit::Interrupted),
                Heard::End if input.is_empty() => return Ok(self.exit),
                // What was typed so far is all that there is of it.
                Heard::End => {}
                Heard::Line(line) => {
                    if let Some(command) = command::parse(&line).filter(|_| input.is_empty()) {
                        reader.remember(&line);
                        match self.obey(command).await? {
                            ControlFlow::Continue(()) => continue,
                            ControlFlow::Break(exit) => return Ok(exit),
                        }
                    }
                    if !input.push(&line) && input.len() <= self.longest_input_bytes {
                        continue;
                    }
                }
            }
            let source = input.take();
            if source.is_empty() {
                continue;
            }
            reader.remember(&source);
            if let ControlFlow::Break(exit) = self.evaluate(source).await? {
                return Ok(exit);
            }
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
    async fn evaluate(&mut self, source: String) -> anyhow::Result<ControlFlow<Exit>> {
        self.input_count += 1;
        // As at Python's own prompt, an input that raised has still done to files what it did.
        let job = Job::code(source).named(format!("<input-{}>", self.input_count)).keep_files();
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
        let (outcome, _) = follow(&mut ticket, true, &mut self.interrupts).await?;
        self.interrupts.forget();
        if self.is_interactive && outcome.stdout.last().is_some_and(|byte| *byte != b'\n') {
            // Else the prompt would be drawn over it.
            print("")?;
        }
        report(&outcome);
        self.conclude(&outcome).await
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
        match self.session().run(Job::code("")).await {
            Ok(outcome) => matches!(outcome.verdict, Verdict::SandboxFailed(_)),
            Err(error) => matches!(error, Error::Refused(Refusal::SessionGone { .. })),
        }
    }

    async fn replace_lost(&mut self) -> anyhow::Result<()> {
        let fresh = self.hatchery.session(&self.present).await?;
        self.sessions.insert(self.present.clone(), fresh);
        note("the session is lost, and its variables with it; this is a fresh one");
        Ok(())
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
                Ok(session) => self.go_to(name, session),
                Err(error) => {
                    self.complain(Exit::Sandbox, format_args!("can't fork the session: {error}"));
                }
            },
            Ok(Command::Save(file)) => match save(&self.session(), &file).await {
                Ok(bytes) => note(format_args!("saved {bytes} bytes in `{}`", file.display())),
                Err(error) => self.complain(
                    Exit::Sandbox,
                    format_args!("can't save the session in `{}`: {error:#}", file.display()),
                ),
            },
            Ok(Command::Load(file)) => self.load(&file).await,
            Ok(Command::Reset) => match self.session().reset().await {
                Ok(()) => note("the session is as it was at first"),
                Err(error) => {
                    self.complain(Exit::Sandbox, format_args!("can't reset the session: {error}"));
                }
            },
            Err(problem) => self.complain(Exit::Usage, problem),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Opens the session in a file beside those that are open: nothing that is there is lost.
    async fn load(&mut self, file: &Path) {
        let name = self.free_name(&command::name_of_file(file));
        match self.hatchery.revive(&name, file).await {
            Ok(session) => self.go_to(name, session),
            Err(error) => self.complain(
                Exit::Sandbox,
                format_args!("can't load the session in `{}`: {error}", file.display()),
            ),
        }
    }

    /// This name, or the first with a number that no session has.
    fn free_name(&self, name: &str) -> String {
        let names = std::iter::once(name.to_owned())
            .chain((2..).map(|number: usize| format!("{name}-{number}")));
        names.into_iter().find(|name| !self.sessions.contains_key(name)).expect("numbers go on")
    }

    fn go_to(&mut self, name: String, session: Session) {
        note(format_args!("this is the session `{name}` now"));
        self.sessions.insert(name.clone(), session);
        self.present = name;
    }

    /// Says what went wrong on the way. It ends nothing.
    fn complain(&mut self, exit: Exit, problem: impl std::fmt::Display) {
        note(problem);
        self.fail_with(exit);
    }

    /// Remembers that not everything went well, for who isn't there to see it.
    fn fail_with(&mut self, exit: Exit) {
        if !self.is_interactive && self.exit != Exit::Sandbox {
            self.exit = exit;
        }
    }
}
