//! Runs cells: `execute_request`.

use std::time::Duration;

use hatchery::error::chain;
use hatchery::event::Stream;
use hatchery::{Error, Outcome, Refusal, Ticket, Verdict};
use notebook::{CellEvent, Problem, remarks};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::commands::{Command, parse};
use crate::error::KernelError;
use crate::guest::{self, Manner};
use crate::history::History;
use crate::message::Message;
use crate::outputs::{Outputs, error_of};
use crate::sessions::Sessions;
use crate::shell::{Questions, READ_LINE};
use crate::sockets::IoPub;

/// How long pieces of output are gathered to one message. The first is published at once.
const GATHERING: Duration = Duration::from_millis(50);

/// What leaves a console, in place of Python's functions of these names, which would end the session.
const LEAVING: [&str; 4] = ["exit", "exit()", "quit", "quit()"];

const LOST: &str = "The session and its variables are lost; the next cell runs in a fresh session.";
const UNDONE: &str = "The cell was stopped and its changes were undone: the session is as it was before the \
                      cell.";

/// Runs the cells of one kernel, one at a time.
#[derive(Debug)]
pub(crate) struct Executor {
    pub(crate) sessions: Sessions,
    pub(crate) history: History,
    questions: Questions,
    /// Changes at every request to interrupt.
    interrupts: watch::Receiver<u64>,
    /// The number of the next cell.
    next: u64,
}

impl Executor {
    pub(crate) fn new(
        sessions: Sessions,
        questions: Questions,
        interrupts: watch::Receiver<u64>,
    ) -> Self {
        Self { sessions, history: History::default(), questions, interrupts, next: 1 }
    }

    /// Runs a cell and publishes its outputs. Returns the reply, and whether the cells that wait
    /// behind it are not to run.
    ///
    /// # Errors
    /// The session is lost, and there is none in its place.
    pub(crate) async fn execute(
        &mut self,
        request: &Message,
        iopub: &IoPub,
    ) -> Result<(Value, bool), KernelError> {
        let source = request.text("code");
        let is_silent = request.flag("silent", false);
        let stores_history = request.flag("store_history", true) && !is_silent;
        let number = self.next;
        if stores_history {
            self.next += 1;
        }
        if !is_silent {
            let content = json!({ "code": source, "execution_count": number });
            iopub.publish(request, "execute_input", &content).await;
        }
        let mut outputs = Outputs::new(iopub, request, number);
        let mut payload = json!([]);
        let problem = if LEAVING.contains(&source.trim()) {
            payload = json!([{ "source": "ask_exit", "keepkernel": false }]);
            None
        } else if let Some(commands) = parse(source) {
            self.obey(commands, &mut outputs).await
        } else {
            let may_ask = request.flag("allow_stdin", false);
            let manner = Manner { number, stores_history, is_silent, may_ask };
            self.run(source, manner, request, &mut outputs).await?
        };
        outputs.finish(problem.as_ref()).await;
        if stores_history {
            self.history.add(number, source, outputs.result.take());
        }
        let mut reply = match &problem {
            None => json!({ "status": "ok" }),
            Some(problem) => error_of(problem),
        };
        let expressions = match (&problem, request.content.get("user_expressions")) {
            (None, Some(Value::Object(expressions))) => self.evaluate(expressions).await,
            _ => json!({}),
        };
        if problem.is_some() {
            reply["status"] = json!("error");
        }
        reply["execution_count"] = json!(number);
        reply["user_expressions"] = expressions;
        reply["payload"] = payload;
        let aborts = problem.is_some() && request.flag("stop_on_error", true);
        Ok((reply, aborts))
    }

    /// Carries out the magics of a cell that consists of them.
    async fn obey(
        &mut self,
        commands: Result<Vec<Command>, String>,
        outputs: &mut Outputs<'_>,
    ) -> Option<Problem> {
        let (said, done) = match commands {
            Ok(commands) => self.sessions.obey(commands).await,
            Err(problem) => (String::new(), Err(problem)),
        };
        if !said.is_empty() {
            outputs.say(Stream::Stdout, &said).await;
        }
        done.err().map(|problem| Problem::new("UsageError", problem))
    }

    /// Runs a cell in the present session, and returns why it didn't complete.
    async fn run(
        &mut self,
        source: &str,
        manner: Manner,
        request: &Message,
        outputs: &mut Outputs<'_>,
    ) -> Result<Option<Problem>, KernelError> {
        let most = self.sessions.limits.source_bytes;
        if source.len() > most {
            let problem = format!("the cell has {} bytes; `--source` allows {most}", source.len());
            return Ok(Some(Problem::new("LimitReached", problem)));
        }
        let job = guest::cell(source, manner, &self.sessions.limits);
        let job = if manner.may_ask { job.stdin_from(READ_LINE) } else { job };
        self.questions.begin();
        // What came before the cell doesn't concern it.
        self.interrupts.mark_unchanged();
        let ticket = match self.sessions.present().submit(job).await {
            Ok(ticket) => ticket,
            Err(Error::Refused(Refusal::SessionGone(..))) => {
                self.sessions.replace_if_lost().await?;
                let text = "the session and its variables were lost before this cell, which \
                            wasn't run; the next cell runs in a fresh session";
                return Ok(Some(Problem::new("SessionLost", text.to_owned())));
            }
            Err(error) => return Ok(Some(Problem::new("Refused", chain(&error).to_string()))),
        };
        let outcome = self.follow(ticket, request, outputs).await;
        for remark in remarks(&outcome) {
            outputs.say(Stream::Stderr, &format!("hatchery: {remark}\n")).await;
        }
        let Some(mut problem) = Problem::of(&outcome) else { return Ok(None) };
        if !matches!(outcome.verdict, Verdict::Raised(_)) {
            if self.sessions.replace_if_lost().await? {
                add(&mut problem, LOST);
            } else if outcome.session_restored {
                add(&mut problem, UNDONE);
            }
        }
        Ok(Some(problem))
    }

    /// Publishes what a cell does until it ends.
    async fn follow(
        &mut self,
        mut ticket: Ticket,
        request: &Message,
        outputs: &mut Outputs<'_>,
    ) -> Outcome {
        let mut events = ticket.events();
        let mut flushes = interval(GATHERING);
        flushes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                Ok(()) = self.interrupts.changed() => ticket.interrupt(),
                event = events.next() => match event.map(|event| CellEvent::of(event.kind)) {
                    Some(Some(event)) => outputs.take(event).await,
                    Some(None) => {}
                    None => break,
                },
                _ = flushes.tick(), if outputs.held.is_some() => outputs.flush().await,
                // Last, so that all output comes before a question.
                step = self.questions.next() => {
                    outputs.flush().await;
                    self.questions.handle(step, request).await;
                }
            }
        }
        ticket.outcome().await
    }

    async fn evaluate(&self, expressions: &Map<String, Value>) -> Value {
        if expressions.is_empty() {
            return json!({});
        }
        let asked = [Value::Object(expressions.clone())];
        self.sessions.ask(guest::EVALUATE, asked).await.unwrap_or_else(|| {
            let problem = Problem::new("LimitReached", "the expressions took too long".to_owned());
            let failed = || {
                let mut failed = error_of(&problem);
                failed["status"] = json!("error");
                failed
            };
            expressions.keys().map(|name| (name.clone(), failed())).collect()
        })
    }
}

/// Adds a sentence to what a front end shows of a problem.
fn add(problem: &mut Problem, sentence: &str) {
    if !problem.traceback.is_empty() && !problem.traceback.ends_with('\n') {
        problem.traceback.push('\n');
    }
    problem.traceback.push_str(sentence);
}
