//! The way of one turn through its owner, in the steps of `sessions.rs`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::message::StreamMessage;
use bytes::Bytes;
use hatchery::error::chain;
use hatchery::{Error, Outcome, Refusal, SandboxFailure, Verdict};
use serde_json::{Value, json};
use tokio::time::Instant;
use wire::{Problem, ProblemKind};

use super::super::job::{self, Claim, Listening, NoJob, Taken};
use super::{NotOpen, SessionOwner, Stop, later, open, saved};
use crate::clock::now;
use crate::connect::Notice;
use crate::payload::{SESSION, SLOWLY};
use crate::policy::Decision;
use crate::policy::session::{PendingResult, SessionRecord, StoredState};
use crate::result;
use crate::sessions::{LARGEST_STATE, RecordError, Revised, SessionKey, Turn};
use crate::worker::shared::is_of_key;

/// The longest result that is kept in a session's record. Others are objects.
const MOST_KEPT: usize = 64 << 10;
/// Before a record of a later version is looked at again.
const FOREIGN: Duration = Duration::from_secs(10);
/// Before a turn is tried again that this worker seems to run already.
const SHORTLY: Duration = Duration::from_millis(200);

/// The result of a turn, and the state that it has left; `None` if the state is that from before.
type TurnEnd = (Value, Option<StoredState>);

/// Why a turn has no result of its own.
#[derive(derive_more::From)]
enum NotRun {
    /// It hasn't ended.
    Stop(Stop),
    /// It never runs.
    Refused(Problem),
}

impl From<NoJob> for NotRun {
    fn from(none: NoJob) -> Self {
        match none {
            NoJob::Bad(problem) => Self::Refused(problem),
            NoJob::NotNow(cause) => Self::Stop(later(cause)),
        }
    }
}

impl From<Error> for NotRun {
    /// The pool has refused it.
    fn from(error: Error) -> Self {
        match job::refusal(&error) {
            Ok(problem) => Self::Refused(problem),
            Err(again) => Self::Stop(Stop::Later(again)),
        }
    }
}

impl SessionOwner {
    /// Brings a turn to its end. It is in the stream as long as it isn't.
    pub(super) async fn turn(&mut self, message: StreamMessage) -> Result<(), Stop> {
        let shared = Arc::clone(&self.shared);
        let sequence = message.sequence;
        let turn = shared.streams.subjects.parse_turn(&message.subject);
        let age = shared.server_clock.since(message.time.unix_timestamp_nanos(), now());
        let message = Message {
            message: async_nats::Message {
                subject: message.subject,
                reply: None,
                length: message.payload.len(),
                payload: message.payload,
                headers: Some(message.headers),
                status: None,
                description: None,
            },
            context: shared.streams.context.clone(),
        };
        let is_sound = |turn: &Turn| {
            turn.session == self.key
                && is_of_key(&message, &turn.lane, &turn.key, Some(&turn.session))
        };
        let Some(turn) = turn.filter(is_sound) else {
            // It isn't from Hatchery. It has no result, since that would be the one of another turn.
            tracing::warn!("a message in the stream of turns isn't a turn: `{}`", message.subject);
            self.sessions.remove(sequence).await;
            shared.tally.lock().refused += 1;
            return Ok(());
        };
        let claim = Claim {
            shared: &shared,
            key: turn.key,
            lane: turn.lane,
            message,
            permit: Weak::new(),
            claims: 1,
            age,
        };
        let name = claim.header(SESSION).unwrap_or_default();
        let found = self.look(&name).await?;
        if found.record.has(&claim.key.to_string()) {
            return self.finish_earlier(&found, &claim, sequence).await;
        }
        if self.sessions.has_result(&claim.key).await.map_err(later)? {
            self.sessions.remove(sequence).await;
            shared.tally.lock().repeats += 1;
            return Ok(());
        }
        match self.end(&claim, &name, found).await {
            Err(NotRun::Stop(stop)) => return Err(stop),
            Err(NotRun::Refused(problem)) => {
                let value = result::refused(&problem);
                // The worker that has taken over may run it after all.
                if let Some(held) = &self.held {
                    let kept = self.kept(&value).await;
                    let next = held.revised.record.refused(&claim.key.to_string(), kept);
                    self.commit(next, None).await?;
                }
                self.finish(&claim, sequence, value).await;
            }
            Ok((mut value, state)) => {
                let Some(held) = &self.held else { return Err(Stop::Fenced) };
                let record = &held.revised.record;
                value["session"] = json!({ "name": record.name, "turn": record.turn + 1 });
                let kept = self.kept(&value).await;
                let next = record.committed(&claim.key.to_string(), kept, state.clone());
                let old = next.old.clone();
                self.commit(next, state).await?;
                self.finish(&claim, sequence, value).await;
                if let Some(old) = old {
                    self.sessions.delete(&old.object, &old.parts).await;
                }
            }
        }
        Ok(())
    }

    /// Returns the record, as it was lately.
    async fn look(&mut self, name: &str) -> Result<Revised, Stop> {
        let is_late = |seen: Instant| now() - seen >= self.sessions.hand_over / 2;
        if let Some(held) = self.held.as_ref().filter(|held| !is_late(held.seen)) {
            return Ok(held.revised.clone());
        }
        let found = self.sessions.record(&self.key, name).await.map_err(|error| match error {
            RecordError::Server(cause) => later(cause),
            RecordError::Foreign => {
                let text = format!(
                    "the record of the session `{name}` is damaged, or of a later version of \
                     Hatchery; workers of that version can run its turns"
                );
                self.shared.streams.link.tell(Notice::Trouble(text));
                Stop::Later(FOREIGN)
            }
        })?;
        if let Some(held) = self.held.as_mut().filter(|held| held.revised.is_same(&found)) {
            held.seen = now();
        } else {
            // Somebody else may have had the session meanwhile.
            self.drop_copy();
            self.held = None;
        }
        Ok(found)
    }

    /// Runs a turn, unless it can't be one of this session or is given up.
    async fn end(
        &mut self,
        claim: &Claim<'_>,
        name: &str,
        found: Revised,
    ) -> Result<TurnEnd, NotRun> {
        if SessionKey::of(&claim.lane, name).ok().as_ref() != Some(&self.key) {
            let text = "the name of the session isn't that of its subject";
            return Err(Problem::new(ProblemKind::Usage, text).with_reason("session").into());
        }
        if found.is_new() && !self.sessions.has_room().await.map_err(later)? {
            let text = "the pool has as many sessions as it can have; wait until some expire";
            return Err(Problem::new(ProblemKind::Refused, text).with_reason("sessions").into());
        }
        if let Decision::GiveUp(history) = self.own(found).await? {
            claim.bury(&history).await;
            self.shared.tally.lock().dead_letters += 1;
            return Ok((result::dead_letter(&history), None));
        }
        self.run(claim).await
    }

    /// Makes sure that the session is this worker's, and returns what to do with its next turn.
    async fn own(&mut self, found: Revised) -> Result<Decision, Stop> {
        if let Some(held) = &self.held {
            return Ok(if held.is_alone { Decision::RunAlone } else { Decision::Run });
        }
        let record = &found.record;
        let owner = record.owner.iter().map(|owner| owner.instance.clone());
        let starts = record.starts.iter().filter_map(|start| start.instance.clone());
        let mut living = Vec::new();
        for instance in owner.chain(starts) {
            if self.shared.streams.lives(&instance).await {
                living.push(instance);
            }
        }
        let lives = |instance: &str| living.iter().any(|living| living == instance);
        let (decision, taken) = record.taken_over(&self.owner(), lives);
        let old = record.old.clone();
        let taken = self.sessions.replace(&self.key, &found, taken).await;
        self.hold(taken.ok_or(Stop::Fenced)?);
        if let Some(held) = &mut self.held {
            held.is_alone = decision == Decision::RunAlone;
        }
        if let Some(old) = old {
            self.sessions.delete(&old.object, &old.parts).await;
        }
        Ok(decision)
    }

    /// Runs a turn in this worker's pool, and stores the state that it leaves.
    async fn run(&mut self, claim: &Claim<'_>) -> Result<TurnEnd, NotRun> {
        let shared = Arc::clone(&self.shared);
        shared.budget.take();
        let taken = Taken { shared: &shared, _permit: None };
        let mut messages = self.messages.clone();
        let is_alone = self.held.as_ref().is_some_and(|held| held.is_alone);
        let place = async {
            let slot = shared.slots.acquire().await;
            match is_alone {
                true => (slot, Some(shared.alone.write().await), None),
                false => (slot, None, Some(shared.alone.read().await)),
            }
        };
        let place = tokio::select! {
            place = place => place,
            () = Self::left(&mut messages) => return Err(Stop::Leaving.into()),
        };
        let listening = Listening::begin(&shared, &claim.lane, &claim.key);
        let mut listening = listening.ok_or(Stop::Later(SHORTLY))?;
        let (job, python) = claim.job().await?;
        self.open(python.as_deref()).await?;
        let copy = self.held.as_ref().and_then(|held| held.copy.as_ref());
        let copy = copy.ok_or(Stop::Later(SHORTLY))?;
        let begin = now();
        let submitted = copy.submit(job).await;
        let ticket = match submitted {
            Ok(ticket) => ticket,
            // The pool has closed it. Its state is stored.
            Err(Error::Refused(Refusal::SessionGone(..))) => {
                self.drop_copy();
                return Err(Stop::Later(SHORTLY).into());
            }
            Err(error) => return Err(error.into()),
        };
        let Some(outcome) = claim.follow(ticket, &mut listening.commands).await else {
            self.drop_copy();
            return Err(Stop::Leaving.into());
        };
        shared.budget.ran(now() - begin);
        drop((place, taken));
        let value = claim.told(&outcome);
        Ok(self.after(&outcome, value).await?)
    }

    /// Opens the session in this worker's pool, unless it is open.
    async fn open(&mut self, python: Option<&str>) -> Result<(), NotRun> {
        let Some(held) = self.held.as_mut().filter(|held| held.copy.is_none()) else {
            return Ok(());
        };
        let bytes = match &held.revised.record.state {
            None => None,
            Some(state) => Some(match self.sessions.state(state).await {
                Ok(bytes) => bytes,
                Err(error @ crate::Error::Damaged(..)) => {
                    // Or somebody else has replaced it meanwhile.
                    let found = self.sessions.record(&self.key, "").await;
                    return Err(match found {
                        Ok(found) if held.revised.is_same(&found) => {
                            let problem = Problem::new(ProblemKind::Sandbox, error.to_string());
                            NotRun::Refused(problem.with_reason("state_lost"))
                        }
                        _ => Stop::Fenced.into(),
                    });
                }
                Err(error) => return Err(later(error).into()),
            }),
        };
        let opened = open(&self.shared.pool, self.folder.path(), bytes, python).await;
        held.copy = Some(opened.map_err(|error| match error {
            NotOpen::Pool(error) => NotRun::from(error),
            NotOpen::File(_) => later(chain(&error)).into(),
        })?);
        Ok(())
    }

    /// Stores the state after a turn. If that can't be stored, the turn hasn't happened.
    async fn after(&mut self, outcome: &Outcome, value: Value) -> Result<TurnEnd, Stop> {
        if let Verdict::SandboxFailed(SandboxFailure::SessionLost(_)) = outcome.verdict {
            self.drop_copy();
            return Ok((value, None));
        }
        // The pool has returned to the state from before.
        if outcome.session_restored {
            return Ok((value, None));
        }
        let Some(held) = &self.held else { return Err(Stop::Fenced) };
        let Some(copy) = &held.copy else { return Err(Stop::Fenced) };
        let bytes = match saved(copy, self.folder.path()).await {
            Ok(bytes) if bytes.len() as u64 <= LARGEST_STATE => bytes,
            Ok(bytes) => {
                let text = format!(
                    "the session's state has {} bytes; at most {LARGEST_STATE} can be kept, so the \
                     turn was undone",
                    bytes.len()
                );
                self.drop_copy();
                return Ok(undone(&text, "state_too_large"));
            }
            Err(error) => {
                let text = "the session's state can't be saved, so the turn was undone";
                let text = format!("{text}: {}", chain(&error));
                self.drop_copy();
                return Ok(undone(&text, "state_not_saved"));
            }
        };
        let digest = blake3::hash(&bytes);
        let time = self.shared.server_clock.time(now()).unwrap_or(0) / 1_000_000;
        let time_ms = u64::try_from(time).unwrap_or(0);
        if self.sessions.is_kept(held.revised.record.state.as_ref(), &digest, time_ms) {
            return Ok((value, None));
        }
        let what = "store a session's state on the NATS server";
        let put = || self.sessions.put(&self.key, &digest, &bytes, time_ms);
        let state = self.shared.streams.link.insist(what, SLOWLY, put).await;
        Ok((value, Some(state)))
    }

    /// Returns a result as the record has it.
    async fn kept(&self, value: &Value) -> PendingResult {
        let mut text = value.to_string();
        loop {
            let payload = self.shared.streams.payload(text.clone().into_bytes(), MOST_KEPT).await;
            match payload {
                Ok(payload) => {
                    return payload.object.map_or(PendingResult::Text(text), PendingResult::Object);
                }
                Err(error) => text = job::too_large(&error),
            }
        }
    }

    /// Writes what has become of a turn into the record, with this new state if it has left one.
    async fn commit(
        &mut self,
        next: SessionRecord,
        state: Option<StoredState>,
    ) -> Result<(), Stop> {
        let Some(held) = &mut self.held else { return Err(Stop::Fenced) };
        if let Some(revised) = self.sessions.replace(&self.key, &held.revised, next).await {
            held.is_alone = false;
            self.hold(revised);
            return Ok(());
        }
        self.drop_copy();
        self.held = None;
        if let Some(state) = state {
            self.drop_state(&state).await;
        }
        Err(Stop::Fenced)
    }

    /// Deletes a state whose commit has failed, or seems to. The answer may have got lost, and another
    /// owner may have continued from that very state. No commit of this owner can succeed any more, so
    /// the record is final about that.
    async fn drop_state(&self, state: &StoredState) {
        // What remains is dropped by its age.
        let Ok(found) = self.sessions.record(&self.key, "").await else { return };
        if found.record.state.is_none_or(|kept| kept.object != state.object) {
            self.sessions.delete(&state.object, &state.parts).await;
        }
    }

    /// Stores the result of a turn that somebody has committed, and may not have come further.
    async fn finish_earlier(
        &self,
        found: &Revised,
        claim: &Claim<'_>,
        sequence: u64,
    ) -> Result<(), Stop> {
        let kept = found.record.last.as_ref().and_then(|last| last.result.clone());
        let text: Option<Bytes> = match kept {
            None => None,
            Some(PendingResult::Text(text)) => Some(text.into()),
            Some(PendingResult::Object(name)) => match self.shared.streams.object(&name).await {
                Ok(text) => Some(text),
                // Its submitter learns that the result is damaged.
                Err(crate::Error::Damaged(..)) => Some("null".into()),
                Err(error) => return Err(later(error)),
            },
        };
        match text {
            Some(text) => {
                let value = serde_json::from_slice(&text).unwrap_or(Value::Null);
                self.finish(claim, sequence, value).await;
            }
            None => self.sessions.remove(sequence).await,
        }
        Ok(())
    }

    /// Stores the result of a turn, and then takes the turn out of its stream.
    async fn finish(&self, claim: &Claim<'_>, sequence: u64, value: Value) {
        claim.store(value).await;
        self.sessions.remove(sequence).await;
        self.shared.tally.lock().done += 1;
    }
}

/// Returns the end of a turn whose state is lost through no fault of its program.
fn undone(text: &str, reason: &str) -> TurnEnd {
    let problem = Problem::new(ProblemKind::Sandbox, text).with_reason(reason);
    let mut value = result::failed(&problem);
    value["session_restored"] = true.into();
    (value, None)
}
