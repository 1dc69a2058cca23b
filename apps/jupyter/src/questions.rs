//! `input()` and `getpass()` of programs: questions to the front end that runs the cell.
//!
//! A program's standard input comes from a host function (`Job::stdin_from`), so that its wall time
//! stands still while somebody types. What to show, and whether it is a password, the guest says
//! beforehand by another function.

use hatchery::{HostError, HostFunction};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::message::Message;
use crate::sockets::Channels;

/// The function that provides standard input. `guest.py` names neither; the job does.
pub(crate) const READ_LINE: &str = "read_line";

/// The longest prompt that is passed on, in bytes; a longer one is cut.
const LONGEST_PROMPT: usize = 64 << 10;

/// The question that the next call of [`READ_LINE`] asks.
#[derive(Debug, Default, Deserialize)]
struct Prompt {
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
enum Call {
    Announced(Prompt),
    Wanted(oneshot::Sender<String>),
}

/// What [`Questions::next`] waited for.
#[derive(Debug)]
pub(crate) struct Step(Next);

#[derive(Debug)]
enum Next {
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
            Some(call) = self.calls.recv() => Step(Next::Call(call)),
            Some(reply) = self.stdin.requests.recv() => Step(Next::Reply(reply)),
            else => std::future::pending().await,
        }
    }

    /// Handles it, for the front end that sent this request.
    pub(crate) async fn handle(&mut self, Step(next): Step, request: &Message) {
        match next {
            Next::Call(Call::Announced(prompt)) => self.prompt = prompt,
            Next::Call(Call::Wanted(answer)) => self.ask(request, answer).await,
            Next::Reply(reply) => self.answer(&reply, request),
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
