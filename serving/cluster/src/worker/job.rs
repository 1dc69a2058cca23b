//! The way of one job through a worker: claimed, run, its result stored, acknowledged.
//!
//! A worker that dies before the acknowledgement leaves a claim that expires. The next worker
//! either finds the result or runs the job again.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{AckKind, Message};
use hatchery::{Error, Job, Outcome, Refusal, Ticket};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;
use wire::{Field, Intake, Problem, ProblemKind};

use super::lanes::{Claimed, Permit};
use super::shared::{Tally, WorkerShared, forward, is_of_key};
use crate::clock::{now, sleep};
use crate::names::{JobKey, Lane};
use crate::payload::{
    Command, HISTORY, LARGEST_INLINE, NTH, OBJECT, SESSION, Stored, WANTS, WANTS_EVENTS,
    WANTS_FILES, WORKER,
};
use crate::policy::{Decision, JobHistory, SIGNS, Start};
use crate::result;

/// How long a job that was refused stays in the queue before it is offered again.
const AGAIN: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(30);
/// The same if the refusal doesn't say.
const AGAIN_IF_UNKNOWN: Duration = Duration::from_secs(1);
/// Commands to one job that may wait. Further ones would change nothing.
const MOST_COMMANDS: usize = 4;
/// How long a job that was claimed ahead waits for a slot, or for one that runs alone. Then it is
/// given back.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// What is to become of a claim.
enum ClaimEnd {
    /// The job has its result now.
    Result(Value),
    /// It had it before.
    Repeat,
    /// Somebody else may run it, after this time.
    GiveBack(Duration),
    /// Somebody else seems to run it.
    PutOff,
    /// It is given up.
    Dead(Vec<Start>),
}

/// A claimed job.
pub(super) struct Claim<'a> {
    pub(super) shared: &'a WorkerShared,
    pub(super) key: JobKey,
    pub(super) lane: Lane,
    pub(super) message: Message,
    /// What the job's tenant may have at once, if that is limited; gone once the program has ended.
    pub(super) permit: Weak<Permit>,
    /// How often it was claimed, this time included.
    pub(super) claims: u64,
    /// How long it has been in the queue, by the server's clock.
    pub(super) age: Duration,
}

/// Makes room for another claim when the program has ended, here and for its tenant.
pub(super) struct Taken<'a> {
    pub(super) shared: &'a WorkerShared,
    pub(super) _permit: Option<Arc<Permit>>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.shared.budget.free();
    }
}

/// A job that receives commands, until this is dropped.
pub(super) struct Listening<'a> {
    shared: &'a WorkerShared,
    key: &'a JobKey,
    pub(super) commands: mpsc::Receiver<Command>,
}

impl<'a> Listening<'a> {
    /// Returns `None` if another claim of this job is under way here.
    pub(super) fn begin(shared: &'a WorkerShared, lane: &Lane, key: &'a JobKey) -> Option<Self> {
        let (sender, commands) = mpsc::channel(MOST_COMMANDS);
        match shared.running.lock().entry(key.clone()) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(entry) => entry.insert((lane.clone(), sender)),
        };
        Some(Self { shared, key, commands })
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.shared.running.lock().remove(self.key);
    }
}

/// Handles a message of the queue, for which room was taken.
pub(super) async fn handle(shared: &WorkerShared, claimed: Claimed) {
    let Claimed { message, permit } = claimed;
    let permit = permit.map(Arc::new);
    let held = permit.as_ref().map(Arc::downgrade).unwrap_or_default();
    let taken = Taken { shared, _permit: permit };
    // The others aren't from Hatchery.
    let (lane, key) = match shared.streams.subjects.parse_job(&message.subject) {
        Some((lane, key)) if is_of_key(&message, &lane, &key, None) => (lane, key),
        named => {
            let reason = if named.is_some() { "key" } else { "subject" };
            shared.streams.refuse(&message, reason).await;
            shared.tally.lock().refused += 1;
            return;
        }
    };
    let (claims, age) = match message.info() {
        Ok(info) => {
            let age = shared.server_clock.since(info.published.unix_timestamp_nanos(), now());
            (u64::try_from(info.delivered).unwrap_or(1), age)
        }
        Err(_) => (1, Duration::ZERO),
    };
    let claim = Claim { shared, key, lane, message, permit: held, claims, age };
    // The result is stored in here as well: until then the claim must not run out.
    tokio::select! {
        () = claim.work(taken) => {}
        () = claim.show_life() => {}
    }
}

impl Claim<'_> {
    /// Renews the claim until it is dropped.
    async fn show_life(&self) {
        loop {
            sleep(self.shared.streams.claim_time / SIGNS).await;
            let _ = self.message.ack_with(AckKind::Progress).await;
            if let Some(permit) = self.permit.upgrade() {
                permit.show_life().await;
            }
        }
    }

    async fn work(&self, taken: Taken<'_>) {
        let end = self.end(taken).await;
        let count = |count: fn(&mut Tally)| count(&mut self.shared.tally.lock());
        match end {
            ClaimEnd::Result(result) => {
                // One that was claimed before doesn't wait: the death of this worker would count
                // against it.
                if self.claims == 1 {
                    let (longest, is_last) = self.shared.budget.held();
                    self.shared.replies.pass(longest, is_last).await;
                }
                match self.store(result).await {
                    Stored::New => count(|tally| tally.done += 1),
                    Stored::Already => count(|tally| tally.repeats += 1),
                }
            }
            ClaimEnd::Repeat => count(|tally| tally.repeats += 1),
            ClaimEnd::Dead(history) => {
                self.bury(&history).await;
                self.store(result::dead_letter(&history)).await;
                count(|tally| tally.dead_letters += 1);
            }
            ClaimEnd::PutOff => {
                self.change(JobHistory::put_off).await;
                let later = self.shared.streams.life();
                let _ = self.message.ack_with(AckKind::Nak(Some(later))).await;
                return;
            }
            ClaimEnd::GiveBack(later) => {
                let instance = &self.shared.instance;
                self.change(|record| record.give_back(instance)).await;
                let _ = self.message.ack_with(AckKind::Nak(Some(later))).await;
                count(|tally| tally.given_back += 1);
                return;
            }
        }
        // If that gets lost, the next worker to get the job finds its result.
        if let Err(error) = self.message.ack().await {
            tracing::info!("can't take the job `{}` out of the queue: {error}", self.key);
        }
        if self.claims > 1 {
            // What stays is dropped by its age.
            let _ = self.shared.streams.starts.purge(self.key.to_string()).await;
        }
    }

    /// Runs the job, unless there is a reason not to.
    async fn end(&self, taken: Taken<'_>) -> ClaimEnd {
        let shared = self.shared;
        // A command that comes before the program runs waits for it.
        let Some(mut listening) = Listening::begin(shared, &self.lane, &self.key) else {
            return ClaimEnd::PutOff;
        };
        let decision = match self.claims {
            1 => Decision::Run,
            _ if self.has_result().await => return ClaimEnd::Repeat,
            _ => self.decide().await,
        };
        if *shared.is_draining.borrow() {
            return ClaimEnd::GiveBack(Duration::ZERO);
        }
        let Ok(Ok(slot)) = timeout(LONGEST_WAIT, shared.slots.acquire()).await else {
            return ClaimEnd::GiveBack(Duration::ZERO);
        };
        let (alone, beside) = match decision {
            Decision::GiveUp(history) => return ClaimEnd::Dead(history),
            Decision::Wait => return ClaimEnd::PutOff,
            // A job that waits to run alone holds up all others, whose slots must not wait with it.
            Decision::Run => match timeout(LONGEST_WAIT, shared.alone.read()).await {
                Ok(beside) => (None, Some(beside)),
                Err(_) => return ClaimEnd::GiveBack(Duration::ZERO),
            },
            Decision::RunAlone => {
                let mut draining = shared.is_draining.subscribe();
                tokio::select! {
                    alone = shared.alone.write() => (Some(alone), None),
                    // The sender is in `shared`.
                    _ = draining.wait_for(|draining| *draining) => {
                        return ClaimEnd::GiveBack(Duration::ZERO);
                    }
                }
            }
        };
        if *shared.is_draining.borrow() {
            return ClaimEnd::GiveBack(Duration::ZERO);
        }
        if self.claims > 1 {
            let start = Start::new(&shared.config.name, &shared.instance, alone.is_some());
            self.change(|record| record.add(start.clone())).await;
        }
        let begin = now();
        let end = self.run(&mut listening.commands).await;
        shared.budget.ran(now() - begin);
        drop((alone, beside, slot, taken));
        end
    }

    /// Returns whether the job has its result.
    async fn has_result(&self) -> bool {
        let streams = &self.shared.streams;
        let subject = streams.subjects.result(&self.key);
        streams.results.direct_get_last_for_subject(subject).await.is_ok()
    }

    async fn decide(&self) -> Decision {
        let streams = &self.shared.streams;
        let mut record = streams.record(&self.key).await.unwrap_or_default();
        let mut living: Vec<String> = Vec::new();
        for is_second in [false, true] {
            living.clear();
            for instance in record.instances() {
                if streams.lives(instance).await {
                    living.push(instance.to_owned());
                }
            }
            if is_second || living.len() == record.instances().count() {
                break;
            }
            // After the server was gone, nobody has had the time to say that he lives.
            sleep(streams.life()).await;
            record = streams.record(&self.key).await.unwrap_or(record);
        }
        record.decide(self.claims, |instance| living.iter().any(|living| living == instance))
    }

    async fn change(&self, change: impl Fn(&mut JobHistory)) {
        if let Err(error) = self.shared.streams.change_record(&self.key, change).await {
            tracing::info!("can't record a start of the job `{}`: {error}", self.key);
        }
    }

    /// Runs the program.
    async fn run(&self, commands: &mut mpsc::Receiver<Command>) -> ClaimEnd {
        let (job, _) = match self.job().await {
            Ok(job) => job,
            Err(NoJob::Bad(problem)) => return ClaimEnd::Result(result::refused(&problem)),
            Err(NoJob::NotNow(cause)) => {
                tracing::info!("{cause}");
                return ClaimEnd::GiveBack(AGAIN_IF_UNKNOWN);
            }
        };
        let ticket = match self.shared.pool.submit(job).await {
            Ok(ticket) => ticket,
            Err(error) => {
                return match refusal(&error) {
                    Ok(problem) => ClaimEnd::Result(result::refused(&problem)),
                    Err(again) => ClaimEnd::GiveBack(again),
                };
            }
        };
        match self.follow(ticket, commands).await {
            Some(outcome) => ClaimEnd::Result(self.told(&outcome)),
            None => ClaimEnd::GiveBack(Duration::ZERO),
        }
    }

    /// Waits for the end of a job; `None` if this worker has no more time for it.
    pub(super) async fn follow(
        &self,
        mut ticket: Ticket,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Option<Outcome> {
        let mut is_over = self.shared.is_over.subscribe();
        let events = self.wants(WANTS_EVENTS).then(|| ticket.events());
        let forwarding = async {
            if let Some(events) = events {
                forward(self.shared, &self.key, events).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::pin!(forwarding);
        loop {
            tokio::select! {
                biased;
                Some(command) = commands.recv() => match command {
                    Command::Cancel => ticket.cancel(),
                    Command::Interrupt => ticket.interrupt(),
                },
                () = &mut forwarding => {}
                outcome = ticket.outcome() => return Some(outcome),
                // The sender is in `shared`.
                _ = is_over.wait_for(|is_over| *is_over) => {
                    ticket.stop();
                    return None;
                }
            }
        }
    }

    /// Returns what the submitter wants to know of an outcome.
    pub(super) fn told(&self, outcome: &Outcome) -> Value {
        if self.wants(WANTS_FILES) {
            outcome.to_tool_json_with_files()
        } else {
            outcome.to_tool_json()
        }
    }

    fn wants(&self, what: &str) -> bool {
        self.header(WANTS).is_some_and(|wants| wants.split(',').any(|wanted| wanted == what))
    }

    pub(super) fn header(&self, name: &str) -> Option<String> {
        let headers = self.message.headers.as_ref()?;
        headers.get(name).map(|value| value.as_str().to_owned())
    }

    /// Reads the job, and the name of the Python build that it asks for.
    pub(super) async fn job(&self) -> Result<(Job, Option<String>), NoJob> {
        let text = self.shared.streams.text(&self.message.payload, self.message.headers.as_ref());
        let text = match text.await {
            Ok(text) => text,
            Err(error @ crate::Error::Damaged(..)) => {
                let problem = Problem::new(ProblemKind::Usage, error.to_string());
                return Err(NoJob::Bad(problem.with_reason("damaged")));
            }
            Err(error) => return Err(NoJob::NotNow(error)),
        };
        let intake = match self.shared.config.trusts_jobs {
            true => Intake::BATCH.without(Field::File),
            false => Intake::BATCH.without(Field::File).lowering_only(),
        };
        let bad = |error: Error| NoJob::Bad(error.problem());
        let mut job = intake.parse(&text).map_err(|error| bad(error.into()))?;
        // Rights on the server are for subjects, so a job is what its subject says it is.
        if Lane::of(&job).ok().as_ref() != Some(&self.lane) {
            let text = "the job's tenant or priority isn't that of its subject";
            return Err(NoJob::Bad(Problem::new(ProblemKind::Usage, text).with_reason("lane")));
        }
        let (deadline, python) = (job.deadline.take(), job.python.clone());
        let mut job = Job::from_wire(job, &intake).map_err(bad)?;
        if let Some(deadline) = deadline {
            job = job.deadline(deadline.saturating_sub(self.age).max(Duration::from_millis(1)));
        }
        Ok((job, python))
    }

    /// Stores the result, unless there is one.
    pub(super) async fn store(&self, result: Value) -> Stored {
        let streams = &self.shared.streams;
        let mut text = result.to_string();
        loop {
            let payload = match streams.payload(text.clone().into_bytes(), LARGEST_INLINE).await {
                Ok(payload) => payload,
                Err(error) => {
                    text = too_large(&error);
                    continue;
                }
            };
            let mut headers = HeaderMap::new();
            headers.insert(WORKER, self.shared.config.name.as_str());
            payload.add_to(&mut headers);
            // The headers of the message builder are added to these.
            let message = PublishMessage::build()
                .headers(headers)
                .payload(payload.inline)
                .expected_last_subject_sequence(0);
            match streams.store(&streams.subjects.result(&self.key), &message).await {
                Ok(stored) => return stored,
                Err(error) => text = too_large(&error),
            }
        }
    }

    /// Keeps the job among the dead letters.
    pub(super) async fn bury(&self, history: &[Start]) {
        let streams = &self.shared.streams;
        let mut headers = HeaderMap::new();
        // The sender's other headers could keep the server from storing this.
        for name in [OBJECT, NTH, WANTS, SESSION] {
            if let Some(value) = self.header(name) {
                headers.insert(name, value);
            }
        }
        let history_text = serde_json::to_string(history).unwrap_or_default();
        headers.insert(HISTORY, history_text.as_str());
        headers.insert(async_nats::header::NATS_MESSAGE_ID, format!("dead.{}", self.key).as_str());
        let message =
            PublishMessage::build().headers(headers).payload(self.message.payload.clone());
        if let Err(error) = streams.store(&streams.subjects.of("dead", &self.key), &message).await {
            tracing::warn!("can't keep the dead letter `{}`: {error}", self.key);
        }
    }
}

/// Returns the result of a job whose own is too large.
pub(super) fn too_large(error: &crate::Error) -> String {
    let problem = Problem::new(ProblemKind::Sandbox, error.to_string());
    result::failed(&problem.with_reason("result_too_large")).to_string()
}

/// Why there is no job.
pub(super) enum NoJob {
    /// It is invalid, here and everywhere.
    Bad(Problem),
    /// Its text can't be had now.
    NotNow(crate::Error),
}

/// Returns why the pool has refused a job.
///
/// # Errors
/// After this time the worker, or another one, may take it.
pub(super) fn refusal(error: &Error) -> Result<Problem, Duration> {
    if error.is_overloaded() || matches!(error, Error::Refused(Refusal::ShuttingDown)) {
        let again = error.retry_after().unwrap_or(AGAIN_IF_UNKNOWN);
        return Err(again.clamp(*AGAIN.start(), *AGAIN.end()));
    }
    let mut problem = error.problem();
    problem.kind = ProblemKind::Refused;
    Ok(problem)
}
