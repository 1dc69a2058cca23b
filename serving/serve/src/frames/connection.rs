//! One connection: takes its requests in order.

use std::time::Duration;

use hatchery::decision::NextDecision;
use hatchery::error::chain;
use hatchery::value::Attached;
use hatchery::{Interface, Ticket, WorkerId};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::time::timeout;
use wire::message::{ClientKind, ClientMessage, Event, RequestId, ServerMessage};
use wire::{Problem, ProblemKind, VERSION};

use super::client::FramesClient;
use super::outbox::{Frame, FrameError, Outbox, read_frame};
use super::{ConnectionError, run};
use crate::caller::Caller;
use crate::service::Service;

/// How long a client that has ended its side may take to read what is left.
const LAST_WRITES: Duration = Duration::from_secs(5);
/// Requests of one connection at once, jobs included.
const MOST_REQUESTS: usize = 16_384;

/// Serves one connection until the client ends it.
///
/// # Errors
/// The client sent an invalid frame, or the connection failed. The client was notified, if that was
/// possible.
pub async fn serve(
    service: Service,
    caller: Caller,
    reader: impl AsyncRead + Unpin + Send,
    writer: impl AsyncWrite + Unpin + Send + 'static,
) -> Result<(), ConnectionError> {
    let connected = service.connect();
    let (outbox, mut writing) = Outbox::new(writer);
    let mut client = FramesClient::new(service.clone(), caller, outbox.clone());
    let ended = tokio::select! {
        ended = client.take_all(BufReader::with_capacity(64 << 10, reader)) => ended,
        // The client doesn't read any more, so nothing that it still asks for reaches it.
        _ = &mut writing => Ok(()),
        // Its jobs have ended. What it asked for before is answered.
        () = service.ended() => {
            let answers = async { while client.tasks.join_next().await.is_some() {} };
            let _ = timeout(LAST_WRITES, answers).await;
            Ok(())
        }
    };
    if let Err(error) = &ended {
        let problem = Problem::new(ProblemKind::Usage, chain(error).to_string());
        let _ = outbox.send(&ServerMessage::Refused { id: None, problem }, &[]).await;
    }
    drop((client, outbox));
    if !writing.is_finished() && timeout(LAST_WRITES, &mut writing).await.is_err() {
        writing.abort();
    }
    drop(connected);
    ended.map_err(ConnectionError)
}

impl FramesClient {
    /// Takes frames until the client ends the stream.
    async fn take_all(&mut self, mut reader: impl AsyncRead + Unpin) -> Result<(), FrameError> {
        let mut is_greeted = false;
        while let Some(Frame { message, attachments }) = read_frame(&mut reader).await? {
            while self.tasks.try_join_next().is_some() {}
            let id = message.get("id").cloned().and_then(|id| serde_json::from_value(id).ok());
            if let Err(problem) = self.take(message, attachments, &mut is_greeted).await
                && self.outbox.send(&ServerMessage::Refused { id, problem }, &[]).await.is_err()
            {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn take(
        &mut self,
        message: Value,
        attachments: Vec<Vec<u8>>,
        is_greeted: &mut bool,
    ) -> Result<(), Problem> {
        let usage = |text: String| Problem::new(ProblemKind::Usage, text);
        // Before the first of its own mistakes, a client of another version learns of that.
        let message =
            parse(message).map_err(|error| usage(format!("the message is invalid: {error}")))?;
        if let ClientMessage::Hello { version, client } = message {
            if version != VERSION {
                return Err(usage(format!(
                    "this server speaks version {VERSION} of the format, not {version}: use a client \
                     of the same release"
                )));
            }
            if client == Some(ClientKind::Python) {
                self.caller = self.caller.clone().by(Interface::Python);
            }
            *is_greeted = true;
            self.greet().await;
            return Ok(());
        }
        if !*is_greeted {
            return Err(usage(format!(
                "the first message must be {{\"type\": \"hello\", \"version\": {VERSION}}}"
            )));
        }
        if self.tasks.len() >= MOST_REQUESTS {
            let text = format!(
                "this connection has {MOST_REQUESTS} requests in progress, the maximum: wait for an answer"
            );
            return Err(Problem::new(ProblemKind::Refused, text).with_reason("requests"));
        }
        self.check_owner(&message)?;
        let mut attached = Attached::new(attachments);
        match message {
            ClientMessage::Hello { .. } => {}
            ClientMessage::Run(run) => run::submit(self, *run, &mut attached).await?,
            ClientMessage::Interrupt { id } => self.command(&id, Ticket::interrupt),
            ClientMessage::Cancel { id } => self.command(&id, Ticket::cancel),
            ClientMessage::Stop { id } => self.command(&id, Ticket::stop),
            ClientMessage::Answer { call, value, error } => self.calls.answer(call, value, error),
            ClientMessage::Session { id, session, action } => {
                run::act(self, id, session, action, attached).await;
            }
            ClientMessage::Explore { id, session, explore } => {
                run::explore(self, id, session, explore);
            }
            ClientMessage::Sessions { id } => {
                let names = self.service.sessions(&self.caller);
                self.done(id, json!(names)).await;
            }
            ClientMessage::Status { id } => {
                let status = self.service.pool().status();
                self.done(id, json!(status)).await;
            }
            ClientMessage::Explain { id, run } => self.explain(id, &run).await,
            ClientMessage::Decisions { id } => self.follow_decisions(id),
            ClientMessage::Retire { id, worker } => {
                let retired = self.service.pool().retire(WorkerId(worker)).await;
                retired.map_err(|error| error.problem())?;
                self.done(id, Value::Null).await;
            }
            ClientMessage::Kernel { id, connection, options } => {
                self.serve_kernel(id, connection, options)?;
            }
            ClientMessage::Grade(grade) => {
                let none = || usage("this server doesn't grade samples".to_owned());
                let grading = self.service.grading.clone().ok_or_else(none)?;
                self.answer(grade.id.clone(), grading(*grade));
            }
            ClientMessage::Drain { id, seconds } => {
                let time = seconds.map(Duration::try_from_secs_f64).transpose();
                let time = time.map_err(|_| usage("`seconds` must be 0 or more".to_owned()))?;
                let service = self.service.clone();
                self.answer(id, async move {
                    service.drain(time).await;
                    Ok(Value::Null)
                });
            }
            _ => return Err(usage("this server doesn't know the message".to_owned())),
        }
        Ok(())
    }

    async fn greet(&self) {
        let image = self.service.pool().image();
        let hello = ServerMessage::Hello {
            version: VERSION,
            server: env!("CARGO_PKG_VERSION").to_owned(),
            preload: image.map(|image| image.preload.clone()).unwrap_or_default(),
            pythons: self.service.pool().pythons().map(str::to_owned).collect(),
        };
        let _ = self.outbox.send(&hello, &[]).await;
    }

    /// Refuses what concerns the whole pool to a caller for one tenant.
    fn check_owner(&self, message: &ClientMessage) -> Result<(), Problem> {
        use ClientMessage::{Decisions, Drain, Grade, Kernel, Retire, Status};
        let is_for_owner = matches!(
            message,
            Status { .. }
                | Decisions { .. }
                | Retire { .. }
                | Kernel { .. }
                | Grade(_)
                | Drain { .. }
        );
        if is_for_owner && self.caller.tenant().is_some() {
            let text = "this concerns the whole pool, so only its owner may ask for it";
            return Err(Problem::new(ProblemKind::Refused, text).with_reason("not_owner"));
        }
        Ok(())
    }

    async fn explain(&mut self, id: RequestId, run: &RequestId) {
        let job = self.running.lock().get(run).map(|running| running.job_id);
        let explanation = match job {
            Some(job) => self.service.pool().explain(job).await,
            None => None,
        };
        self.done(id, json!(explanation)).await;
    }

    fn follow_decisions(&mut self, id: RequestId) {
        let mut decisions = self.service.pool().decisions();
        let outbox = self.outbox.clone();
        self.tasks.spawn(async move {
            let mut sequence = 0;
            while let Some(next) = decisions.next().await {
                let decision = match next {
                    NextDecision::Decision(decision) => json!(decision),
                    NextDecision::Missed(count) => json!({ "missed": count }),
                };
                let event = Event::Decision { decision };
                let message = ServerMessage::Event { id: id.clone(), sequence, event };
                if outbox.send(&message, &[]).await.is_err() {
                    return;
                }
                sequence += 1;
            }
            let _ = outbox.send(&ServerMessage::Done { id, value: Value::Null }, &[]).await;
        });
    }

    /// Serves a kernel for as long as the connection lasts.
    fn serve_kernel(
        &mut self,
        id: RequestId,
        connection: Value,
        options: Vec<String>,
    ) -> Result<(), Problem> {
        let kernels = self.service.kernels.clone().ok_or_else(|| {
            Problem::new(ProblemKind::Usage, "this server runs no Jupyter kernels".to_owned())
        })?;
        let service = self.service.clone();
        self.answer(id, async move {
            tokio::select! {
                served = kernels(service.pool().clone(), connection, options) => served,
                () = service.ended() => Ok(Value::Null),
            }
        });
        Ok(())
    }
}

/// Reads a message. Those with values of programs are read without their tag. For a tag, serde buffers
/// the other fields, and the buffer has no room for integers beyond 64 bits.
fn parse(mut message: Value) -> Result<ClientMessage, serde_json::Error> {
    match message.get("type").and_then(Value::as_str) {
        Some("run") => serde_json::from_value(untagged(message)).map(ClientMessage::Run),
        Some("grade") => serde_json::from_value(untagged(message)).map(ClientMessage::Grade),
        Some("answer") => {
            let value = message.get_mut("value").map(Value::take);
            let mut read = serde_json::from_value(message)?;
            if let (ClientMessage::Answer { value: place, .. }, Some(value)) = (&mut read, value) {
                *place = value;
            }
            Ok(read)
        }
        Some("explore") => {
            let explore = message.get_mut("explore").map(Value::take).unwrap_or_default();
            let explore = serde_json::from_value(explore)?;
            message["explore"] = json!({ "candidates": [] });
            let mut read = serde_json::from_value(message)?;
            if let ClientMessage::Explore { explore: place, .. } = &mut read {
                *place = explore;
            }
            Ok(read)
        }
        _ => serde_json::from_value(message),
    }
}

/// Returns a message without its tag.
fn untagged(mut message: Value) -> Value {
    message.as_object_mut().map(|fields| fields.remove("type"));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_of_any_size_are_read_exactly() {
        let number = "1180591620717411303424";
        let run =
            format!(r#"{{"type":"run","id":1,"job":{{"code":"n","variables":{{"n":{number}}}}}}}"#);
        let answer = format!(r#"{{"type":"answer","call":1,"value":[{number}]}}"#);
        let grade = format!(r#"{{"type":"grade","id":1,"task":{{"n":{number}}},"sample":{{}}}}"#);
        for text in [run, answer, grade] {
            let message = parse(serde_json::from_str(&text).unwrap()).unwrap();
            assert!(json!(message).to_string().contains(number), "{message:?}");
        }
        let unknown = json!({ "type": "run", "id": 1, "job": { "code": "" }, "sesion": "s" });
        assert!(parse(unknown).unwrap_err().to_string().contains("sesion"));
    }
}
