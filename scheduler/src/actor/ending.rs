//! The shell's part about the pool's own life: its health, and its end.

use std::sync::Arc;
use std::time::Duration;

use engine::{Cause, chain};

use super::SchedulerState;
use crate::decision::{DecisionKind, EndReason};
use crate::model::Event;
use crate::policy::health::Change;
use crate::status::Phase;

/// The reason that ractor gives for a cancelled task, which only the end of its runtime causes.
const CANCELLED: &str = "actor_task_cancelled";

/// Clones of [`SchedulerState::unsent`] besides those for outcomes and jobs, when the scheduler ends:
/// its own and that of the task that waits for the others.
const OWN_COUNT: usize = 2;

impl SchedulerState {
    pub(super) fn health_changed(&self, change: Change) {
        match change {
            Change::Ready => {
                let workers = self.model.living();
                self.record(DecisionKind::PoolReady { workers });
            }
            Change::Degraded(reason) => {
                tracing::warn!(parent: None, %reason, "the pool is degraded");
                self.record(DecisionKind::PoolDegraded { reason });
            }
        }
    }

    pub(super) fn drain(&mut self, within: Option<Duration>, reason: EndReason) {
        let until = within.map(|within| self.now.saturating_add(within));
        if self.model.phase() == Phase::Open {
            self.record(DecisionKind::Draining { reason: reason.clone(), within });
        }
        // A drain that is aborted ends as if it had been aborted from the beginning.
        if self.ends.is_none() || reason != EndReason::Drained {
            self.ends = Some(reason);
        }
        self.decide(Event::Draining { until });
    }

    /// If the pool's supervisor ends unasked, its workers end with it, and so does the scheduler.
    pub(super) fn pool_ended(&mut self, ended: Cause) {
        if self.model.phase() == Phase::Drained {
            return;
        }
        let text = chain(&ended).to_string();
        if text == CANCELLED {
            tracing::debug!(parent: None, "the runtime ended before the pool was drained");
        } else {
            tracing::error!(parent: None, reason = text, "the pool's supervisor died");
        }
        let reason = Cause::because("the pool's supervisor died", ended);
        self.settle_everything(&reason);
        self.record(DecisionKind::PoolEnded { reason: EndReason::Died { error: text.clone() } });
        self.has_lost_pool = true;
        self.actor.stop(Some(text));
    }

    /// Once every job has ended: closes the pool, answers the drain calls, and stops this actor.
    pub(super) fn finish_drain(&mut self) {
        if self.model.phase() != Phase::Drained {
            return;
        }
        if std::mem::replace(&mut self.is_closing, true) {
            // Later drain calls are answered by this actor's end.
            return;
        }
        let waiting = std::mem::take(&mut self.draining);
        let (pool, actor) = (self.pool.clone(), self.actor.clone());
        let (unsent, published) = (Arc::clone(&self.unsent), Arc::clone(&self.published));
        let reason = self.ends.clone().unwrap_or(EndReason::Drained);
        // Closing waits for worker threads, whose last messages must still be received here.
        tokio::spawn(async move {
            if let Err(error) = pool.close().await {
                tracing::debug!(%error, "the pool was already closed");
            }
            // A thread may have been interrupted on its way to send an outcome. There will be no
            // new ones.
            while Arc::strong_count(&unsent) > OWN_COUNT {
                tokio::task::yield_now().await;
            }
            let ended = DecisionKind::PoolEnded { reason };
            published.decisions.record(published.clock.now(), ended);
            for reply in waiting {
                let _ = reply.send(());
            }
            actor.stop(None);
        });
    }
}
