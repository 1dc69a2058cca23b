//! The sessions of a pool that are recorded. Any handle of such a session records its turns.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{Deterministic, SessionState, chain};
use pool::SessionId;
use scheduler::Refusal;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::error::RecordError;
use super::writer::{RecordingWriter, TurnEnd, TurnRecorder};
use crate::failure::Error;

/// Turns after which a recording gets a state, from which a replay can begin.
const STATE_EVERY: u32 = 10;

/// The recordings of a pool. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorders(Arc<RecorderTable>);

#[derive(Debug, Default)]
struct RecorderTable {
    open: Mutex<HashMap<SessionId, Arc<SessionRecorder>>>,
    /// Those of closed sessions, until they have ended.
    closing: Mutex<JoinSet<()>>,
}

impl Recorders {
    /// Returns what records a session, if it is recorded.
    pub(crate) fn of(&self, session: SessionId) -> Option<Arc<SessionRecorder>> {
        locked(&self.0.open).get(&session).cloned()
    }

    /// Records a session from now on.
    pub(crate) fn begin(
        &self,
        session: SessionId,
        writer: RecordingWriter,
    ) -> Result<(), RecordError> {
        let recorder =
            SessionRecorder { writer, gate: tokio::sync::Mutex::default(), was_seen: false.into() };
        let mut recorders = locked(&self.0.open);
        if recorders.contains_key(&session) {
            return Err(RecordError::Twice);
        }
        recorders.insert(session, Arc::new(recorder));
        Ok(())
    }

    /// Takes what records a session.
    pub(crate) fn take(&self, session: SessionId) -> Option<Arc<SessionRecorder>> {
        locked(&self.0.open).remove(&session)
    }

    /// Ends the recording of a session once its turns have ended.
    pub(crate) fn close(&self, session: SessionId) {
        let Some(recorder) = self.take(session) else { return };
        let mut closing = locked(&self.0.closing);
        while closing.try_join_next().is_some() {}
        let runtime = recorder.writer.runtime().clone();
        closing.spawn_on(async move { recorder.end().await }, &runtime);
    }

    /// Ends the recordings of sessions that the pool has closed. `is_open` says what the status does.
    pub(crate) fn close_ended(&self, is_open: impl Fn(SessionId) -> bool) {
        let has_ended = |(session, recorder): (&SessionId, &Arc<SessionRecorder>)| {
            if is_open(*session) {
                recorder.was_seen.store(true, Ordering::Relaxed);
                return None;
            }
            recorder.was_seen.load(Ordering::Relaxed).then_some(*session)
        };
        let ended: Vec<_> = locked(&self.0.open).iter().filter_map(has_ended).collect();
        ended.into_iter().for_each(|session| self.close(session));
    }

    /// Ends all recordings.
    pub(crate) async fn finish(&self) {
        let open = mem::take(&mut *locked(&self.0.open));
        let closing = mem::take(&mut *locked(&self.0.closing));
        for recorder in open.into_values() {
            recorder.end().await;
        }
        closing.join_all().await;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the turns of a session, one after another.
#[derive(Debug)]
pub(crate) struct SessionRecorder {
    writer: RecordingWriter,
    gate: tokio::sync::Mutex<TurnGate>,
    /// Whether the status has shown the session, which may lag behind.
    was_seen: AtomicBool,
}

#[derive(Debug, Default)]
struct TurnGate {
    /// The end of the last turn, until it has come.
    running: Option<oneshot::Receiver<TurnEnd>>,
    turns_without_state: u32,
    /// Why the state has to be recorded before the next turn.
    needs_state: Option<&'static str>,
}

impl TurnGate {
    /// Waits for the turn before the next one. Cancel-safe.
    async fn wait(&mut self) {
        let Some(running) = &mut self.running else { return };
        // A job that was refused is no turn.
        if let Ok(TurnEnd { needs_state }) = running.await {
            self.turns_without_state += 1;
            self.needs_state = needs_state.or(self.needs_state);
        }
        self.running = None;
    }
}

impl SessionRecorder {
    /// Checks that what runs on a state can be repeated.
    pub(crate) fn check(state: &SessionState) -> Result<(), RecordError> {
        match state.has_run() && state.deterministic().is_none() {
            true => Err(RecordError::NotDeterministic),
            false => Ok(()),
        }
    }

    /// Waits until the turns before have ended, and prepares the next one. `capture` returns the
    /// session's state.
    pub(crate) async fn turn(
        &self,
        capture: impl Future<Output = Result<SessionState, Error>>,
    ) -> Result<TurnRecorder, Error> {
        let mut gate = self.gate.lock().await;
        gate.wait().await;
        if gate.turns_without_state >= STATE_EVERY {
            gate.needs_state.get_or_insert("every");
        }
        self.put_state(&mut gate, capture).await?;
        let (turn, end) = self.writer.turn(true).await?;
        gate.running = Some(end);
        Ok(turn)
    }

    async fn put_state(
        &self,
        gate: &mut TurnGate,
        capture: impl Future<Output = Result<SessionState, Error>>,
    ) -> Result<(), Error> {
        if let Some(reason) = gate.needs_state {
            self.writer.state(capture.await?, reason).await?;
            (gate.needs_state, gate.turns_without_state) = (None, 0);
        }
        Ok(())
    }

    /// Ends the recording without a state after its last turn.
    async fn end(&self) {
        if let Err(error) = self.writer.finish().await {
            tracing::error!(error = %chain(&error), "a recording isn't whole");
        }
    }

    /// Replaces the session's state, between two turns.
    pub(crate) async fn replace(
        &self,
        replace: impl Future<Output = Result<(), Refusal>>,
    ) -> Result<(), Refusal> {
        let mut gate = self.gate.lock().await;
        replace.await?;
        gate.needs_state = Some("replaced");
        Ok(())
    }

    /// Returns the seed and the clock of its turns.
    pub(crate) fn deterministic(&self) -> Deterministic {
        self.writer.deterministic()
    }

    /// Ends the recording, with the state after a last turn that can't be repeated.
    pub(crate) async fn finish(
        &self,
        capture: impl Future<Output = Result<SessionState, Error>>,
    ) -> Result<(), Error> {
        let mut gate = self.gate.lock().await;
        gate.wait().await;
        let state = self.put_state(&mut gate, capture).await;
        self.writer.finish().await?;
        state
    }
}
