//! Answers the requests of the shell socket, one after another.

use std::collections::VecDeque;

use hatchery::{HostError, HostFunction};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::assistance::lexer::is_word;
use crate::assistance::{self, dotted_end};
use crate::error::KernelError;
use crate::execute::Executor;
use crate::message::Message;
use crate::sockets::{Channels, IoPub};

const EXECUTE: &str = "execute_request";
const EXECUTED: &str = "execute_reply";

/// The longest source about which the session is asked, in bytes.
const MOST_BYTES: usize = 1 << 20;

/// The most names that one request asks the session about. The session is asked once for each.
const MOST_NAMES: usize = 8;

/// The shell of one kernel.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) executor: Executor,
    pub(crate) iopub: IoPub,
    /// The reply to requests for information.
    pub(crate) info: Value,
}

impl Shell {
    /// Answers requests until their socket ends.
    ///
    /// # Errors
    /// The session is lost, and there is none in its place.
    pub(crate) async fn serve(&mut self, mut shell: Channels) -> Result<(), KernelError> {
        // Requests that had come when a cell failed: cells among them don't run.
        let mut held = VecDeque::new();
        loop {
            let (request, is_held) = match held.pop_front() {
                Some(request) => (request, true),
                None => (shell.requests.recv().await.ok_or(KernelError::Ended)?, false),
            };
            self.iopub.wait_for_subscriber().await;
            status(&self.iopub, &request, "busy").await;
            let answered = if is_held && request.kind() == EXECUTE {
                shell.replies.send(&request, EXECUTED, &json!({ "status": "aborted" })).await;
                Ok(())
            } else {
                self.answer(&request, &mut shell, &mut held).await
            };
            status(&self.iopub, &request, "idle").await;
            answered?;
        }
    }

    /// Answers a request. If a cell fails, holds the requests that wait behind it.
    async fn answer(
        &mut self,
        request: &Message,
        shell: &mut Channels,
        held: &mut VecDeque<Message>,
    ) -> Result<(), KernelError> {
        let (kind, content) = match request.kind() {
            EXECUTE => {
                let (reply, aborts) = self.executor.execute(request, &self.iopub).await?;
                if aborts {
                    // Before the reply, so that what follows the reply isn't among them.
                    held.extend(std::iter::from_fn(|| shell.requests.try_recv().ok()));
                }
                (EXECUTED, reply)
            }
            "kernel_info_request" => ("kernel_info_reply", self.info.clone()),
            "complete_request" => ("complete_reply", self.complete(request).await),
            "inspect_request" => ("inspect_reply", self.inspect(request).await),
            "is_complete_request" => ("is_complete_reply", self.is_complete(request).await),
            "history_request" => ("history_reply", self.executor.history.reply(request)),
            "comm_info_request" => ("comm_info_reply", json!({ "status": "ok", "comms": {} })),
            "comm_open" => {
                // No widget of the front end has a partner here.
                let content = json!({ "comm_id": request.text("comm_id"), "data": {} });
                self.iopub.publish(request, "comm_close", &content).await;
                return Ok(());
            }
            other => {
                tracing::debug!(kind = other, "a request was left unanswered");
                return Ok(());
            }
        };
        shell.replies.send(request, kind, &content).await;
        Ok(())
    }

    async fn complete(&self, request: &Message) -> Value {
        let code = request.text("code");
        let end = cursor(code, request);
        let (matches, word) = self.matches(code, &code[..end]).await;
        let start = characters(&code[..end - word]);
        json!({
            "status": "ok",
            "matches": matches,
            "cursor_start": start,
            "cursor_end": characters(&code[..end]),
            "metadata": {},
        })
    }

    /// Returns the completions at the end of a part of the code. They replace a word of so many bytes.
    async fn matches(&self, code: &str, before: &str) -> (Vec<String>, usize) {
        if code.len() > MOST_BYTES {
            return (Vec::new(), 0);
        }
        let line = before.rsplit('\n').next().unwrap_or_default();
        let trimmed = line.trim_start();
        let is_first_line = before.len() == line.len();
        let magic =
            |mark| trimmed.strip_prefix(mark).filter(|begun: &&str| begun.chars().all(is_word));
        let (function, arguments, begun): (_, Vec<Value>, _) =
            if let Some(begun) = magic("%%").filter(|_| is_first_line) {
                (assistance::MAGICS, vec![begun.into(), true.into()], begun)
            } else if let Some(begun) = magic("%") {
                (assistance::MAGICS, vec![begun.into(), false.into()], begun)
            } else if let Some(begun) = imported(trimmed) {
                (assistance::MODULES, vec![begun.into()], begun)
            } else if let Some(dotted) = dotted_end(before) {
                let begun = dotted.rsplit('.').next().unwrap_or_default();
                (assistance::COMPLETE, vec![dotted.into()], begun)
            } else {
                return (Vec::new(), 0);
            };
        let found: Option<Vec<String>> = self.executor.sessions.ask(function, arguments).await;
        let mut found = found.unwrap_or_default();
        // A program can make the session answer anything.
        found.retain(|name| name.chars().all(is_word));
        (found, begun.len())
    }

    async fn inspect(&self, request: &Message) -> Value {
        let code = request.text("code");
        let nothing = json!({ "status": "ok", "found": false, "data": {}, "metadata": {} });
        if code.len() > MOST_BYTES {
            return nothing;
        }
        let is_detailed = request.number("detail_level").is_some_and(|level| level > 0);
        for name in names_at(code, cursor(code, request)) {
            let arguments = [Value::from(name), Value::from(is_detailed)];
            let found: Option<Option<String>> =
                self.executor.sessions.ask(assistance::DESCRIBE, arguments).await;
            if let Some(text) = found.flatten() {
                let data = json!({ "text/plain": text });
                return json!({ "status": "ok", "found": true, "data": data, "metadata": {} });
            }
        }
        nothing
    }

    async fn is_complete(&self, request: &Message) -> Value {
        let code = request.text("code");
        if code.len() > MOST_BYTES {
            return json!({ "status": "unknown" });
        }
        let asked = self.executor.sessions.ask(assistance::IS_COMPLETE, [Value::from(code)]);
        let judged: Option<(String, String)> = asked.await;
        match judged {
            Some((status, indent)) if status == "incomplete" => {
                json!({ "status": status, "indent": indent })
            }
            Some((status, _)) => json!({ "status": status }),
            None => json!({ "status": "unknown" }),
        }
    }
}

/// Publishes what the kernel is doing about a request.
pub(crate) async fn status(iopub: &IoPub, request: &Message, state: &str) {
    iopub.publish(request, "status", &json!({ "execution_state": state })).await;
}

/// Returns the cursor of a request as an index into the code. Front ends count characters.
fn cursor(code: &str, request: &Message) -> usize {
    let characters = request.number("cursor_pos").and_then(|at| usize::try_from(at).ok());
    let at = characters.and_then(|at| code.char_indices().nth(at));
    at.map_or(code.len(), |(at, _)| at)
}

fn characters(text: &str) -> usize {
    text.chars().count()
}

/// Returns the beginning of a module's name at the end of a line that imports it.
fn imported(line: &str) -> Option<&str> {
    let (word, rest) = line.split_once(' ')?;
    let begun = rest.rsplit([' ', ',']).next().unwrap_or_default();
    let is_from = word == "from" && rest.trim_start() == begun;
    let is_import = word == "import" && !rest.contains(" as ");
    ((is_from || is_import) && begun.chars().all(is_word)).then_some(begun)
}

/// Returns the dotted names that a description at the cursor may be about. The first is the one at the
/// cursor; then come those of the calls around it, from the innermost.
fn names_at(code: &str, at: usize) -> Vec<&str> {
    let is_dotted = |character: char| is_word(character) || character == '.';
    let rest = &code[at..];
    let end = at + rest.len() - rest.trim_start_matches(is_word).len();
    let mut names: Vec<&str> = dotted_end(&code[..end]).into_iter().collect();
    let (mut depth, mut before) = (0_usize, &code[..at]);
    while let Some((index, bracket)) =
        before.char_indices().rev().find(|(_, it)| "()".contains(*it))
    {
        before = &before[..index];
        match (bracket, depth) {
            (')', _) => depth += 1,
            (_, 0) => {
                let name = &before[before.trim_end_matches(is_dotted).len()..];
                names.extend((!name.is_empty()).then_some(name));
            }
            _ => depth -= 1,
        }
    }
    names.retain(|name| !name.ends_with('.'));
    names.truncate(MOST_NAMES);
    names
}

// `input()` and `getpass()` of programs: questions to the front end that runs the cell.
//
// A program's standard input comes from a host function (`Job::stdin_from`), so that its wall time
// stands still while somebody types. What to show, and whether it is a password, the guest says
// beforehand by another function.

/// The function that provides standard input. `guest.py` names neither; the job does.
pub(crate) const READ_LINE: &str = "read_line";

/// The longest prompt that is passed on, in bytes; a longer one is cut.
const LONGEST_PROMPT: usize = 64 << 10;

/// The question that the next call of [`READ_LINE`] asks.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Prompt {
    prompt: String,
    password: bool,
}

/// What running programs want from the user.
#[derive(Debug)]
pub(crate) struct Questions {
    calls: mpsc::Receiver<Call>,
    prompt: Prompt,
    stdin: Channels,
    /// The call that an answer is awaited for.
    asked: Option<oneshot::Sender<String>>,
}

#[derive(Debug)]
pub(crate) enum Call {
    Announced(Prompt),
    Wanted(oneshot::Sender<String>),
}

/// What [`Questions::next`] waited for.
#[derive(Debug)]
pub(crate) enum Step {
    Call(Call),
    Reply(Message),
}

impl Questions {
    /// Returns the functions for programs, and the receiver of their calls.
    pub(crate) fn new(stdin: Channels) -> ([HostFunction; 2], Self) {
        // One for the prompt and one for the line: a program waits for both.
        let (sender, calls) = mpsc::channel::<Call>(2);
        let announcing = sender.clone();
        let announce = HostFunction::future("announce_input", move |prompt: Prompt| {
            let sender = announcing.clone();
            async move {
                let _ = sender.send(Call::Announced(prompt)).await;
                Ok::<_, HostError>(())
            }
        });
        let announce = announce
            .doc("Says what the next line of standard input answers.")
            .parameter("prompt", "str")
            .parameter("password", "bool");
        let read = HostFunction::future(READ_LINE, move |(): ()| {
            let sender = sender.clone();
            async move {
                let (answer, answered) = oneshot::channel();
                let _ = sender.send(Call::Wanted(answer)).await;
                answered.await.map_err(|_| HostError::new("EOFError", "there is no more input"))
            }
        });
        let read = read
            .doc("Asks the front end for a line, for standard input.")
            .no_parameters()
            .returns("str");
        ([announce, read], Self { calls, prompt: Prompt::default(), stdin, asked: None })
    }

    /// Forgets what an earlier program asked, and answers that came too late.
    pub(crate) fn begin(&mut self) {
        self.prompt = Prompt::default();
        self.asked = None;
        while self.calls.try_recv().is_ok() {}
        while self.stdin.requests.try_recv().is_ok() {}
    }

    /// Waits for the next call of a program, or the next answer of the front end. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Step {
        tokio::select! {
            Some(call) = self.calls.recv() => Step::Call(call),
            Some(reply) = self.stdin.requests.recv() => Step::Reply(reply),
            else => std::future::pending().await,
        }
    }

    /// Handles it, for the front end that sent this request.
    pub(crate) async fn handle(&mut self, step: Step, request: &Message) {
        match step {
            Step::Call(Call::Announced(prompt)) => self.prompt = prompt,
            Step::Call(Call::Wanted(answer)) => self.ask(request, answer).await,
            Step::Reply(reply) => self.answer(&reply, request),
        }
    }

    async fn ask(&mut self, request: &Message, answer: oneshot::Sender<String>) {
        let Prompt { mut prompt, password } = std::mem::take(&mut self.prompt);
        prompt.truncate(prompt.floor_char_boundary(LONGEST_PROMPT));
        self.asked = Some(answer);
        let content = json!({ "prompt": prompt, "password": password });
        self.stdin.replies.send(request, "input_request", &content).await;
    }

    /// Passes an answer on, if somebody waits for it and it is from the front end that was asked.
    fn answer(&mut self, reply: &Message, request: &Message) {
        if reply.kind() != "input_reply" || reply.identities != request.identities {
            return;
        }
        let value = reply.content.get("value").and_then(Value::as_str).unwrap_or_default();
        if let Some(asked) = self.asked.take() {
            let _ = asked.send(format!("{value}\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_of_the_name_at_the_cursor_or_of_the_call_around_it() {
        for (code, expected) in [
            ("zip", vec!["zip"]),
            ("zi|p(", vec!["zip"]),
            ("a.b.c(x, |", vec!["a.b.c"]),
            ("f(g(1), y|", vec!["y", "f"]),
            ("f(g(|", vec!["g", "f"]),
            ("a.|", vec![]),
            ("", vec![]),
        ] {
            let at = code.find('|').unwrap_or(code.len());
            assert_eq!(names_at(&code.replace('|', ""), at), expected, "{code}");
        }
    }

    #[test]
    fn imports_are_completed_by_modules() {
        for (line, expected) in [
            ("import nu", Some("nu")),
            ("import os, js", Some("js")),
            ("from nu", Some("nu")),
            ("from numpy import a", None),
            ("import numpy as n", None),
            ("import numpy.li", None),
            ("importer", None),
        ] {
            assert_eq!(imported(line), expected, "{line}");
        }
    }

    #[test]
    fn cursors_count_characters() {
        let request = |at: i64| Message {
            content: [("cursor_pos".to_owned(), json!(at))].into_iter().collect(),
            ..Message::default()
        };
        for (at, expected) in [(0, 0), (1, 2), (2, 3), (9, 3), (-1, 3)] {
            assert_eq!(cursor("éa", &request(at)), expected, "{at}");
        }
    }
}
