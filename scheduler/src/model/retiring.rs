//! Retires workers: gives them a new interpreter, or ends them on request.

use pool::WorkerId;

use super::{Effect, EvictionReason, Model, Refusal, RetireReason};
use crate::policy::workers::Activity;
use crate::timer::Time;

impl Model {
    /// Has a worker end after its present job, or says that there is none. The effects follow.
    pub(crate) fn retire(
        &mut self,
        worker: WorkerId,
        now: Time,
    ) -> (Result<(), Refusal>, Vec<Effect>) {
        self.step(now, |model, effects| model.retire_wanted(worker, effects))
    }

    /// Retires a worker that is ready, or has it park its session first.
    pub(super) fn retire_ready(
        &mut self,
        worker: WorkerId,
        reason: RetireReason,
        effects: &mut Vec<Effect>,
    ) {
        match self.resident(worker) {
            _ if reason == RetireReason::Requested => self.retire_idle(worker, effects),
            None => {
                self.workers.renew(worker);
                effects.push(Effect::Renew(worker, reason));
            }
            // The session would keep its memory on a new interpreter, so renew the slot once it is
            // empty.
            Some(_) if matches!(reason, RetireReason::HighWater { .. }) => {}
            // Renew when the worker reports ready again, without the session.
            Some(id) if self.load(id) == 0 => {
                self.vacate(worker, id, EvictionReason::WorkerNeeded { worker }, effects);
            }
            // Renew once no job needs the session's state here.
            Some(_) => {}
        }
    }

    fn retire_wanted(
        &mut self,
        worker: WorkerId,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        match self.workers.retire(worker) {
            None => return Err(Refusal::NoSuchWorker { worker }),
            Some(Activity::Idle) => self.retire_idle(worker, effects),
            // Once it is ready.
            Some(Activity::Busy(_) | Activity::Preparing) => {}
        }
        Ok(())
    }

    /// Ends an idle worker on request. A session that it holds is parked first, whatever waits for
    /// it: then its next job runs elsewhere.
    fn retire_idle(&mut self, worker: WorkerId, effects: &mut Vec<Effect>) {
        match self.resident(worker) {
            None => {
                self.workers.dismiss(worker);
                effects.push(Effect::Retire(worker));
            }
            Some(id) => {
                self.vacate(worker, id, EvictionReason::WorkerNeeded { worker }, effects);
            }
        }
    }
}
