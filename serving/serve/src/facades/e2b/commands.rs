//! Commands, as E2B's daemon `envd` runs them: its service `Process`, by the protocol Connect as JSON.
//!
//! A command is a line of the shell in the default context of a sandbox, on its files, and waits for
//! the cells and commands before it. It goes on when its client leaves, until its time is over.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::any;
use axum::{Extension, Router};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use hatchery::event::{EventKind, Events};
use hatchery::wire::Problem;
use hatchery::{HostError, HostFunction, Job, Outcome, Verdict, wire};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::super::request::{Refused, in_form};
use super::contexts::{Contexts, Owner};
use super::files::{call_error, call_form, internal, unsupported};
use super::lines::{MOST_LINES, RunningCell, Telling};
use super::sandboxes::Visit;
use crate::answer;
use crate::facades::run::{fault, is_time, last_words};

/// Where a command begins, unless it says otherwise.
const HOME: &str = "/home/user";

/// The type of a call with many answers.
const STREAM: &str = "application/connect+json";

/// Before each message: flags, and the length in four bytes.
const PREFIX_BYTES: usize = 5;
/// The flag of the last message, which says whether the call failed.
const LAST: u8 = 2;

/// Clients that wait for the beginning of a command; further ones are refused.
const MOST_WAITING: usize = 16;

/// Commands of a sandbox that run or wait; further ones are refused. They go on without their
/// clients, so nothing else bounds them.
const MOST_COMMANDS: usize = 64;

/// Bytes of standard input that wait for a command; more are refused.
const MOST_INPUT: usize = 1 << 20;

/// The function from which a command reads its standard input.
const READ_STDIN: &str = "read_stdin";

pub(super) fn routes() -> Router<Arc<Contexts>> {
    let routes = Router::new().route("/process.Process/{method}", any(call));
    in_form(routes, call_form).layer(Extension(Arc::new(Commands::default())))
}

/// The commands of all sandboxes that run or wait, by their numbers, which are random.
#[derive(Debug, Default)]
struct Commands(Mutex<BTreeMap<u32, Arc<Command>>>);

/// A command that runs or waits.
#[derive(Debug)]
struct Command {
    pid: u32,
    owner: Owner,
    started: StartCommand,
    /// Whether it is to be killed.
    kill: watch::Sender<bool>,
    /// Clients that want to follow it.
    followers: mpsc::Sender<oneshot::Sender<Events>>,
    end: watch::Sender<Option<CommandEnd>>,
    /// If it was started with one.
    input: Option<Arc<CommandInput>>,
}

/// The standard input of a command, which its clients send.
#[derive(Debug, Default)]
struct CommandInput {
    /// What the command hasn't read, and whether more can come.
    sent: Mutex<(String, bool)>,
    is_sent: Notify,
}

impl CommandInput {
    /// Adds a text, or the end.
    fn send(&self, text: Option<&str>) -> Result<(), Refused> {
        let mut sent = self.sent.lock();
        match text {
            None => sent.1 = true,
            Some(_) if sent.1 => return Err(Refused::bad("its standard input is closed")),
            Some(text) if sent.0.len() + text.len() > MOST_INPUT => {
                let message =
                    format!("the command has {MOST_INPUT} bytes of input at most to read");
                return Err(Refused::new(StatusCode::TOO_MANY_REQUESTS, message));
            }
            Some(text) => sent.0.push_str(text),
        }
        self.is_sent.notify_one();
        Ok(())
    }

    /// Waits for a text; an empty one is the end.
    async fn next(&self) -> String {
        loop {
            if let Some(text) = self.take() {
                return text;
            }
            self.is_sent.notified().await;
        }
    }

    fn take(&self) -> Option<String> {
        let (text, is_closed) = &mut *self.sent.lock();
        (*is_closed || !text.is_empty()).then(|| std::mem::take(text))
    }

    fn reader(self: &Arc<Self>) -> HostFunction {
        let input = Arc::clone(self);
        let read = move |(): ()| {
            let input = Arc::clone(&input);
            async move { Ok::<_, HostError>(input.next().await) }
        };
        let read = HostFunction::future(READ_STDIN, read).no_parameters().returns("str");
        read.doc("Reads what clients send to the command.")
    }
}

/// How a command ended: its last words, and then its end, or the error of the call.
#[derive(Debug, Clone)]
struct CommandEnd {
    words: String,
    end: Result<Value, Value>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct ProcessConfig {
    cmd: String,
    args: Vec<String>,
    envs: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StartCommand {
    process: ProcessConfig,
    pty: Option<Value>,
    tag: Option<String>,
    stdin: bool,
}

/// A call about a command that is there.
#[derive(Default, Deserialize)]
#[serde(default)]
struct CommandCall {
    process: Selector,
    signal: Value,
    input: SentInput,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SentInput {
    stdin: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Selector {
    pid: Option<u32>,
    tag: Option<String>,
}

impl ProcessConfig {
    /// Returns the line for the shell: that of `bash -c LINE`, or the words as they are. It begins in
    /// its own folder, and a cell after it in that of the cells.
    fn line(&self) -> String {
        let is_shell = matches!(self.cmd.rsplit('/').next(), Some("bash" | "sh"));
        let is_last = |option: &String| option.starts_with('-') && option.ends_with('c');
        let line = match self.args.as_slice() {
            [.., option, line] if is_shell && is_last(option) => line.clone(),
            args => {
                let words = std::iter::once(&self.cmd).chain(args).map(|word| quoted(word));
                words.collect::<Vec<_>>().join(" ")
            }
        };
        let cwd = self.cwd.as_deref().unwrap_or_default();
        let folder = match cwd.strip_prefix('~').unwrap_or(cwd) {
            below if below == cwd && cwd.starts_with('/') => cwd.to_owned(),
            below => format!("{HOME}/{below}"),
        };
        format!("cd {} || exit\n{line}", quoted(&folder))
    }
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Answers a call. Reads the body also of one that fails, so that the connection can be used again.
async fn call(
    State(contexts): State<Arc<Contexts>>,
    Extension(commands): Extension<Arc<Commands>>,
    Path(method): Path<String>,
    visit: Visit,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let body = body.map_err(|lost| Refused::new(lost.status(), lost.body_text()))?;
    // A page of another site can't send these types without asking first.
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes()).unwrap_or_default();
    let wanted = match method.as_str() {
        "Start" | "Connect" => STREAM,
        _ => "application/json",
    };
    if !kind.eq_ignore_ascii_case(wanted.as_bytes()) {
        let message = format!("`Process/{method}` takes requests of the type {wanted}");
        return Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    match method.as_str() {
        "Start" => Ok(start(contexts, &commands, visit, &headers, &body).unwrap_or_else(failed)),
        "Connect" => Ok(connect(&commands, &visit, &body).unwrap_or_else(failed)),
        "List" => Ok(answer::json(StatusCode::OK, &commands.list(&visit.owner))),
        "SendSignal" => {
            let call: CommandCall = read(&body)?;
            if !["SIGNAL_SIGKILL", "SIGNAL_SIGTERM"].iter().any(|name| call.signal == *name) {
                return Err(Refused::bad("a command takes SIGKILL and SIGTERM"));
            }
            commands.find(&visit.owner, &call.process)?.kill.send_replace(true);
            Ok(answer::json(StatusCode::OK, &json!({})))
        }
        "SendInput" | "CloseStdin" => {
            let call: CommandCall = read(&body)?;
            let command = commands.find(&visit.owner, &call.process)?;
            let closed = "the command has no standard input: start it with `stdin`";
            let input = command.input.as_ref().ok_or_else(|| Refused::bad(closed))?;
            let text = call.input.stdin.as_deref().map(decoded).transpose()?;
            if text.is_none() && method == "SendInput" {
                return Err(unsupported("a command takes `stdin`, and has no terminal".to_owned()));
            }
            input.send(text.as_deref())?;
            Ok(answer::json(StatusCode::OK, &json!({})))
        }
        _ => Err(unsupported(format!(
            "this server has no `Process/{method}`: its commands have no terminal; `send_stdin` \
             sends them input"
        ))),
    }
}

fn read<T: for<'a> Deserialize<'a>>(message: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(message).map_err(|error| Refused::bad(error.to_string()))
}

/// Returns the text of bytes that a message has.
fn decoded(encoded: &str) -> Result<String, Refused> {
    let bytes = BASE64_STANDARD.decode(encoded).map_err(|error| Refused::bad(error.to_string()))?;
    let refused = |_| Refused::bad("standard input takes whole characters of UTF-8");
    String::from_utf8(bytes).map_err(refused)
}

/// Reads the one message of a call with many answers.
fn only<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, Refused> {
    match body.split_at_checked(PREFIX_BYTES) {
        Some(([0, length @ ..], message)) if length == length_of(message) => read(message),
        _ => Err(Refused::bad("send one message that isn't compressed")),
    }
}

fn message(flags: u8, value: &Value) -> Bytes {
    let text = value.to_string();
    [[flags].as_slice(), &length_of(text.as_bytes()), text.as_bytes()].concat().into()
}

/// Returns the length of a message, which is far below 4 GiB: bodies have limits, and output comes in
/// pieces.
fn length_of(message: &[u8]) -> [u8; PREFIX_BYTES - 1] {
    u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes()
}

fn event(event: &Value) -> Bytes {
    message(0, &json!({ "event": event }))
}

fn failed(refused: Refused) -> Response {
    let last = message(LAST, &json!({ "error": call_error(&refused) }));
    answer::of(StatusCode::OK, STREAM, last)
}

fn start(
    contexts: Arc<Contexts>,
    commands: &Arc<Commands>,
    visit: Visit,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, Refused> {
    let started: StartCommand = only(body)?;
    if started.pty.is_some() {
        let message = "commands have no terminal: use `commands.run`, and `send_stdin` for input";
        return Err(unsupported(message.to_owned()));
    }
    let mut envs = started.process.envs.clone();
    let of_sandbox = visit.sandbox.as_ref().map(|sandbox| &sandbox.envs);
    if !of_sandbox.is_some_and(|own| own.contains_key("HOME")) {
        envs.entry("HOME".to_owned()).or_insert_with(|| HOME.to_owned());
    }
    let job = visit.job(wire::Job::shell(started.process.line()), envs)?;
    let millis = headers.get("connect-timeout-ms").and_then(|value| value.to_str().ok());
    let millis = millis.and_then(|millis| millis.parse().ok());
    let deadline =
        millis.and_then(|millis| Instant::now().checked_add(Duration::from_millis(millis)));
    let (command, followers) = commands.add(visit.owner.clone(), started)?;
    let job = match &command.input {
        Some(input) => job.function(input.reader()).stdin_from(READ_STDIN),
        None => job,
    };
    let answer = command.follow(&visit)?;
    let commands = Arc::clone(commands);
    tokio::spawn(async move {
        let end = contexts.command(&visit, job, &command, followers, deadline).await;
        commands.0.lock().remove(&command.pid);
        command.end.send_replace(Some(end));
    });
    Ok(answer)
}

fn connect(commands: &Commands, visit: &Visit, body: &[u8]) -> Result<Response, Refused> {
    let call: CommandCall = only(body)?;
    commands.find(&visit.owner, &call.process)?.follow(visit)
}

impl Commands {
    /// Adds a command under a new number, with what receives its followers.
    fn add(
        &self,
        owner: Owner,
        started: StartCommand,
    ) -> Result<(Arc<Command>, mpsc::Receiver<oneshot::Sender<Events>>), Refused> {
        let (followers, received) = mpsc::channel(MOST_WAITING);
        let mut commands = self.0.lock();
        if commands.values().filter(|command| command.owner == owner).count() >= MOST_COMMANDS {
            let message =
                format!("{MOST_COMMANDS} commands run or wait here: wait for one, or kill it");
            return Err(Refused::new(StatusCode::TOO_MANY_REQUESTS, message));
        }
        let pid = loop {
            let mut bytes = [0; 4];
            getrandom::fill(&mut bytes).map_err(|error| internal(error.to_string()))?;
            // Clients may read it as a signed number.
            let pid = u32::from_le_bytes(bytes) >> 1;
            if pid > 0 && !commands.contains_key(&pid) {
                break pid;
            }
        };
        let (kill, end) = (watch::Sender::new(false), watch::Sender::new(None));
        let input = started.stdin.then(Arc::default);
        let command = Arc::new(Command { pid, owner, started, kill, followers, end, input });
        commands.insert(pid, Arc::clone(&command));
        Ok((command, received))
    }

    fn find(&self, owner: &Owner, selector: &Selector) -> Result<Arc<Command>, Refused> {
        let commands = self.0.lock();
        let found = match selector {
            Selector { pid: Some(pid), .. } => commands.get(pid),
            Selector { tag: None, .. } => None,
            Selector { tag, .. } => {
                let is_it = |command: &&Arc<Command>| {
                    command.owner == *owner && command.started.tag == *tag
                };
                commands.values().find(is_it)
            }
        };
        let found = found.filter(|command| command.owner == *owner).cloned();
        found.ok_or_else(|| Refused::new(StatusCode::NOT_FOUND, "there is no such command"))
    }

    fn list(&self, owner: &Owner) -> Value {
        let commands = self.0.lock();
        let own = commands.values().filter(|command| command.owner == *owner);
        let shown = own.map(|command| {
            let mut shown = json!({ "pid": command.pid, "config": command.started.process });
            if let Some(tag) = &command.started.tag {
                shown["tag"] = tag.as_str().into();
            }
            shown
        });
        json!({ "processes": shown.collect::<Vec<_>>() })
    }
}

impl Command {
    /// Answers with what happens in the command, from its beginning.
    fn follow(self: &Arc<Self>, visit: &Visit) -> Result<Response, Refused> {
        let (reply, events) = oneshot::channel();
        self.followers.try_send(reply).map_err(|unsent| match unsent {
            mpsc::error::TrySendError::Closed(_) => {
                Refused::new(StatusCode::NOT_FOUND, "the command has ended")
            }
            mpsc::error::TrySendError::Full(_) => {
                Refused::new(StatusCode::TOO_MANY_REQUESTS, "too many clients wait for the command")
            }
        })?;
        let (lines, body) = mpsc::channel(MOST_LINES);
        let telling = Telling { lines, room: visit.room() };
        tokio::spawn(tell(Arc::clone(self), events, telling));
        Ok(answer::pieces(STREAM, body))
    }
}

/// Tells a client of a command until it ends, or the client leaves.
async fn tell(command: Arc<Command>, begun: oneshot::Receiver<Events>, telling: Telling) {
    let output = |stream: &str, bytes: &[u8]| {
        event(&json!({ "data": { stream: BASE64_STANDARD.encode(bytes) } }))
    };
    let mut is_there = send(&telling, event(&json!({ "start": { "pid": command.pid } }))).await;
    let events = tokio::select! {
        events = begun => events.ok(),
        () = telling.lines.closed() => return,
    };
    if let Some(mut events) = events {
        while is_there && let Some(happened) = events.next().await {
            if let EventKind::Output { stream, bytes } = happened.kind {
                is_there = send(&telling, output(stream.name(), &bytes)).await;
            }
        }
    }
    let mut ends = command.end.subscribe();
    let ended = async { ends.wait_for(Option::is_some).await.ok().and_then(|end| end.clone()) };
    let ended = tokio::select! {
        ended = ended => ended,
        () = telling.lines.closed() => return,
    };
    let Some(CommandEnd { words, end }) = ended.filter(|_| is_there) else { return };
    if !words.is_empty() && !send(&telling, output("stderr", words.as_bytes())).await {
        return;
    }
    let last = match end {
        Ok(end) if send(&telling, event(&json!({ "end": end }))).await => json!({}),
        Ok(_) => return,
        Err(error) => json!({ "error": error }),
    };
    send(&telling, message(LAST, &last)).await;
}

/// Returns whether the client goes on to listen.
async fn send(telling: &Telling, bytes: Bytes) -> bool {
    let refused = |why: &str| {
        let error = json!({ "code": "resource_exhausted", "message": why });
        message(LAST, &json!({ "error": error }))
    };
    telling.send(bytes, refused).await
}

impl Contexts {
    /// Runs the job of a command in the default context, and returns how it ended.
    async fn command(
        &self,
        visit: &Visit,
        job: Job,
        command: &Command,
        mut followers: mpsc::Receiver<oneshot::Sender<Events>>,
        deadline: Option<Instant>,
    ) -> CommandEnd {
        let mut kill = command.kill.subscribe();
        let entered = tokio::select! {
            entered = self.enter_default(visit, job) => entered,
            () = wanted(&mut kill) => return CommandEnd::killed(""),
            () = passed(deadline) => return CommandEnd::late(),
        };
        let RunningCell { mut ticket, turn: _turn, place: _place, mut ended, session: _ } =
            match entered {
                Ok(Some(cell)) => cell,
                Ok(None) => return self.given_up(visit),
                Err(_) if self.is_gone(visit) => return self.given_up(visit),
                Err(problem) => return problem.into(),
            };
        let (mut early, mut is_over) = (None, false);
        let outcome = loop {
            tokio::select! {
                outcome = ticket.outcome() => break outcome,
                Some(follower) = followers.recv() => {
                    // The client may have left.
                    let _ = follower.send(ticket.events());
                }
                () = wanted(&mut kill), if early.is_none() => {
                    early = Some(CommandEnd::killed(""));
                    ticket.cancel();
                }
                () = passed(deadline), if early.is_none() => {
                    early = Some(CommandEnd::late());
                    ticket.cancel();
                }
                _ = ended.changed(), if !is_over => {
                    is_over = true;
                    ticket.stop();
                }
            }
        };
        while let Ok(follower) = followers.try_recv() {
            let _ = follower.send(ticket.events());
        }
        match early {
            _ if is_over || ended.has_changed().unwrap_or(true) => self.given_up(visit),
            Some(early) => early,
            None => CommandEnd::of(&outcome),
        }
    }

    fn is_gone(&self, visit: &Visit) -> bool {
        let sandbox = visit.sandbox.as_ref();
        sandbox.is_some_and(|own| self.sandbox(&visit.caller, own.id()).is_none())
    }

    /// Says why a command was given up: its context is gone, and maybe its sandbox, too.
    fn given_up(&self, visit: &Visit) -> CommandEnd {
        if self.is_gone(visit) {
            let message = "the sandbox was not found: it was killed, or it timed out";
            return Refused::new(StatusCode::BAD_GATEWAY, message).into();
        }
        CommandEnd::killed("the context of the command was restarted or removed\n")
    }
}

/// Waits until a command is to be killed.
async fn wanted(kill: &mut watch::Receiver<bool>) {
    // The sender is in the command.
    let _ = kill.wait_for(|is_wanted| *is_wanted).await;
}

/// Waits for a time, if there is one.
async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => drop(timeout_at(deadline, pending::<()>()).await),
        None => pending().await,
    }
}

impl CommandEnd {
    /// As E2B reports a process that a signal ended.
    fn killed(words: impl Into<String>) -> Self {
        let status = "signal: killed";
        let end = json!({ "exitCode": -1, "exited": false, "status": status, "error": status });
        Self { words: words.into(), end: Ok(end) }
    }

    fn late() -> Self {
        Refused::new(StatusCode::GATEWAY_TIMEOUT, "the command's time is over").into()
    }

    fn exited(code: u8, words: String) -> Self {
        let status = format!("exit status {code}");
        let mut end = json!({ "exitCode": code, "exited": true, "status": status });
        if code != 0 {
            end["error"] = status.into();
        }
        Self { words, end: Ok(end) }
    }

    fn of(outcome: &Outcome) -> Self {
        if let Some(problem) = fault(outcome) {
            return problem.into();
        }
        let words = last_words(outcome);
        match &outcome.verdict {
            Verdict::Completed { .. } => Self::exited(0, words),
            Verdict::Exited { code, .. } => Self::exited(*code, words),
            Verdict::Raised(_) => Self::exited(1, words),
            Verdict::Limit(hit) if is_time(hit.limit) => {
                Refused::new(StatusCode::GATEWAY_TIMEOUT, words.trim_end()).into()
            }
            _ => Self::killed(words),
        }
    }
}

impl From<Refused> for CommandEnd {
    fn from(refused: Refused) -> Self {
        Self { words: String::new(), end: Err(call_error(&refused)) }
    }
}

impl From<Problem> for CommandEnd {
    fn from(problem: Problem) -> Self {
        Refused::from(problem).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_line_of_the_shell_in_its_folder() {
        let line = |cmd: &str, args: &[&str], cwd: Option<&str>| {
            let args = args.iter().map(|&arg| arg.to_owned()).collect();
            let (cmd, cwd) = (cmd.to_owned(), cwd.map(str::to_owned));
            ProcessConfig { cmd, args, cwd, ..ProcessConfig::default() }.line()
        };
        for (cmd, args, expected) in [
            ("/bin/bash", &["-l", "-c", "ls | wc"][..], "ls | wc"),
            ("sh", &["-ec", "a b"], "a b"),
            ("/bin/bash", &["a.sh", "b"], "'/bin/bash' 'a.sh' 'b'"),
            ("cat", &["-c", "it's $HOME"], r"'cat' '-c' 'it'\''s $HOME'"),
            ("pwd", &[], "'pwd'"),
        ] {
            assert_eq!(line(cmd, args, None), format!("cd '/home/user/' || exit\n{expected}"));
        }
        for (cwd, folder) in [
            ("", "/home/user/"),
            ("~", "/home/user/"),
            ("~/a", "/home/user//a"),
            ("a/b", "/home/user/a/b"),
            ("/tmp", "/tmp"),
        ] {
            assert_eq!(line("ls", &[], Some(cwd)), format!("cd '{folder}' || exit\n'ls'"));
        }
    }

    #[test]
    fn a_call_with_many_answers_has_one_message() {
        let sent = message(0, &json!({ "process": { "pid": 7 } }));
        let call: CommandCall = only(&sent).unwrap();
        assert_eq!(call.process.pid, Some(7));
        let compressed = [&[1], &sent[1..]].concat();
        let twice = [&sent[..], &sent[..]].concat();
        for broken in [&sent[..4], &sent[..9], b"", &compressed[..], &twice[..], b"\0\0\0\0\x01{"] {
            assert!(only::<CommandCall>(broken).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn a_sandbox_has_so_many_commands() {
        let commands = Commands::default();
        let of = |sandbox: &str| Owner { tenant: None, sandbox: Some(sandbox.to_owned()) };
        let add = |sandbox| commands.add(of(sandbox), StartCommand::default());
        assert!((0..MOST_COMMANDS).all(|_| add("a").is_ok()));
        assert!(add("a").is_err() && add("b").is_ok());
        let removed = commands.list(&of("a"))["processes"][0]["pid"].as_u64().unwrap();
        commands.0.lock().remove(&u32::try_from(removed).unwrap());
        assert!(add("a").is_ok());
    }

    #[test]
    fn a_limit_of_the_server_is_no_exit_status() {
        let end = |verdict| CommandEnd::of(&Outcome::not_run(verdict));
        let exited = end(Verdict::Exited { code: 3, message: None });
        assert_eq!(exited.end.unwrap()["exitCode"], 3);
        assert_eq!(end(Verdict::Cancelled).end.unwrap_err()["code"], "internal");
    }
}
