//! Every gate at every step while jobs are stopped: each order is settled exactly once, and closing
//! the pool terminates.

use std::collections::{BTreeMap, VecDeque};

use super::*;

const STEPS: [Step; 7] =
    [Step::Start, Step::Run, Step::Reset, Step::Suspend, Step::Resume, Step::Pack, Step::Unpack];
const GATES: [Gate; 4] = [Gate::Ok, Gate::Err, Gate::Slow, Gate::Never];
const JOBS: u64 = 24;

/// Orders that workers have and that aren't settled.
#[derive(Default)]
struct Ledger {
    taken: BTreeMap<WorkerId, JobId>,
    settled: BTreeMap<JobId, u32>,
}

impl Ledger {
    fn take(&mut self, worker: WorkerId, job: JobId) {
        let before = self.taken.insert(worker, job);
        assert_eq!(before, None, "{worker} already had an order");
    }

    fn settle(&mut self, worker: WorkerId, job: JobId) {
        assert_eq!(self.taken.remove(&worker), Some(job), "{worker} did not have {job:?}");
        *self.settled.entry(job).or_default() += 1;
    }

    fn gone(&mut self, worker: WorkerId) {
        if let Some(job) = self.taken.remove(&worker) {
            *self.settled.entry(job).or_default() += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_gate_at_every_step_settles_every_order_once() {
    for step in STEPS {
        for gate in GATES {
            settles(step, gate, false).await;
            settles(step, gate, true).await;
        }
    }
}

async fn settles(step: Step, gate: Gate, is_ready_soon: bool) {
    let mut rig = rig().await;
    if is_ready_soon {
        rig.source.be_ready_soon();
    }
    let cells = [1, 2].map(|id| Arc::new(SessionCell::new(SessionId(id), None)));
    let mut ledger = Ledger::default();
    let mut next = 1;
    rig.pool.add_worker();
    rig.pool.add_worker();
    rig.source.gate(step, [Gate::Ok, gate, Gate::Ok, gate]);
    let mut dismissed = 0;
    let mut offers = VecDeque::new();
    while next <= JOBS || !ledger.taken.is_empty() {
        // A step that waits at a gate continues when no event comes.
        let wait = tokio::time::timeout(Duration::from_millis(10), rig.events.recv());
        let mut event = match offers.pop_front() {
            Some(offer) => PoolEvent::Ready(offer),
            None => match wait.await {
                Ok(Some(event)) => event,
                _ => {
                    rig.source.release();
                    continue;
                }
            },
        };
        if let PoolEvent::Finished { offer, .. } = &mut event {
            offers.extend(offer.take());
        }
        match event {
            // Other workers may wait for a session that is here.
            PoolEvent::Ready(Offer { permit, .. }) if next > JOBS => {
                let here = SessionPlace::OnWorker { worker: permit.worker() };
                if cells.iter().any(|cell| cell.place() == here) {
                    permit.send(Command::Vacate);
                }
            }
            PoolEvent::Ready(Offer { permit, .. }) => {
                let (worker, job) = (permit.worker(), JobId(next));
                let cell = &cells[usize::from(next % 2 == 0)];
                next += 1;
                match next % 8 {
                    0 => permit.send(Command::Vacate),
                    1 => permit.send(Command::Renew),
                    2 if dismissed == 0 => {
                        dismissed += 1;
                        permit.send(Command::Dismiss);
                        rig.pool.add_worker();
                    }
                    3 => {
                        ledger.take(worker, job);
                        permit.send(Command::Suspend { job, session: Arc::clone(cell) });
                    }
                    shape => {
                        let isolated = shape == 6;
                        let task = task(job.0, "ok", (!isolated).then_some(cell));
                        let stop = task.stop.clone();
                        ledger.take(worker, job);
                        permit.send(Command::Run(task));
                        if shape == 5 {
                            stop.stop(StopReason::Cancelled);
                        }
                    }
                }
                rig.pool.offload(Arc::clone(cell), Tier::Disk);
            }
            PoolEvent::Finished { worker, job, .. } | PoolEvent::Suspended { worker, job, .. } => {
                ledger.settle(worker, job);
                for cell in &cells {
                    if cell.place() == SessionPlace::Lost {
                        drop(cell.replace(None));
                    }
                }
            }
            PoolEvent::Gone { worker, is_replaced, .. } => {
                ledger.gone(worker);
                if !is_replaced {
                    rig.pool.add_worker();
                }
            }
            PoolEvent::SessionSuspended { .. } | PoolEvent::Offloaded { .. } => {}
        }
    }
    assert!(ledger.settled.values().all(|times| *times == 1), "{step:?} {gate:?}");
    let source = rig.source.clone();
    let last = rig.close().await;
    let finished = |event: &PoolEvent| matches!(event, PoolEvent::Finished { .. });
    assert!(!last.iter().any(finished), "{step:?} {gate:?}: {last:?}");
    assert!(source.running().is_empty());
}
