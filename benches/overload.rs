//! What happens at twice the capacity? Measures the latency of admitted jobs while twice as many
//! are offered as two workers can run, what happens to the others, and how much a noisy tenant
//! affects a quiet one's tail. The interpreters are scripted and busy for 1 or 10 ms of real time
//! per job.
//!
//! Doesn't measure: Python. The load is open-loop, so slow answers don't reduce it, and evenly
//! spaced. The quiet tenant never needs more than one worker at once. Fails if a bound is exceeded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Program;
use hatchery::{LimitKind, Verdict};
use pool::{Builds, PoolConfig};
use scheduler::{JobRequest, Scheduler, SchedulerConfig, TenantConfig, WorkersConfig};
use test_support::fake::FakeSource;
use test_support::percentiles::{at, is_wanted, print};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

const WORKERS: usize = 2;
/// The work of a job where many are offered.
const SHORT: Duration = Duration::from_millis(1);
/// The work of a job where two tenants are compared: long enough that the result reflects the
/// scheduler rather than the system, which on two busy cores can take a millisecond to run a thread
/// that it has woken.
const LONG: Duration = Duration::from_millis(10);
/// The deadline of each job.
const DEADLINE: Duration = Duration::from_millis(50);
/// Tolerance: a timer with a tick of 1 ms reports a job that ends at its deadline, after a job of 1
/// ms. On two cores the threads of workers and scheduler also compete.
const SLACK: Duration = Duration::from_millis(5);
/// The largest allowed ratio of a quiet tenant's p99 next to a noisy one to its p99 alone.
const MOST: f64 = 1.5;

/// The result of one load.
#[derive(Default)]
struct Record {
    offered: usize,
    /// From submission to outcome, for admitted jobs.
    admitted: Vec<Duration>,
    /// How many of these their deadline stopped.
    late: usize,
    /// Refusals by the name of their reason.
    refused: BTreeMap<&'static str, usize>,
    retry_after: Vec<Duration>,
}

/// The fate of one job.
enum Fate {
    Ended { took: Duration, is_late: bool },
    Refused { reason: &'static str, retry_after: Option<Duration> },
}

fn clock() -> Instant {
    Instant::now()
}

/// How long each load is offered: `HATCHERY_OVERLOAD_SECONDS`, else 30 s.
fn length() -> Duration {
    let seconds = std::env::var("HATCHERY_OVERLOAD_SECONDS").ok();
    Duration::from_secs_f64(seconds.and_then(|text| text.parse().ok()).unwrap_or(30.0))
}

fn request(tenant: &str, work: Duration, deadline: Option<Duration>) -> JobRequest {
    let source = format!("spin {}", work.as_micros());
    let program = Program { source, ..Program::default() };
    JobRequest { program, tenant: Some(Arc::from(tenant)), deadline, ..JobRequest::default() }
}

async fn start(tenants: BTreeMap<String, TenantConfig>) -> Scheduler {
    let config = SchedulerConfig {
        concurrent: WORKERS,
        workers: WorkersConfig::fixed(WORKERS),
        tenants,
        ..SchedulerConfig::default()
    };
    let source = Builds::new(Arc::new(FakeSource::default()));
    let scheduler = Scheduler::start(config, PoolConfig::default(), source).await;
    scheduler.expect("the configuration is valid")
}

/// Returns the jobs per second when there is always another job.
async fn capacity(scheduler: &Scheduler, work: Duration) -> f64 {
    let jobs = (3.0 / work.as_secs_f64()) as usize;
    let started = clock();
    let mut waiting = std::collections::VecDeque::new();
    for _ in 0..jobs {
        let ticket =
            scheduler.submit(request("measured", work, None)).await.expect("the job is admitted");
        waiting.push_back(ticket);
        if waiting.len() == 4 * WORKERS
            && let Some(oldest) = waiting.pop_front()
        {
            assert!(oldest.await.is_success());
        }
    }
    for ticket in waiting {
        assert!(ticket.await.is_success());
    }
    jobs as f64 / started.elapsed().as_secs_f64()
}

/// Offers `rate` jobs per second for a time, whatever happens to them, and waits for all of them.
async fn offer(
    scheduler: &Scheduler,
    tenant: &str,
    rate: f64,
    length: Duration,
    work: Duration,
    deadline: Option<Duration>,
) -> Record {
    let mut jobs = JoinSet::new();
    let mut record = Record::default();
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let started = clock();
    loop {
        tick.tick().await;
        let elapsed = started.elapsed();
        if elapsed >= length {
            break;
        }
        let due = (elapsed.as_secs_f64() * rate) as usize;
        while record.offered < due {
            record.offered += 1;
            jobs.spawn(attempt(scheduler.clone(), request(tenant, work, deadline)));
        }
        while let Some(fate) = jobs.try_join_next() {
            record.note(fate.expect("no attempt panics"));
        }
    }
    while let Some(fate) = jobs.join_next().await {
        record.note(fate.expect("no attempt panics"));
    }
    record
}

async fn attempt(scheduler: Scheduler, request: JobRequest) -> Fate {
    let submitted = clock();
    let ticket = match scheduler.submit(request).await {
        Ok(ticket) => ticket,
        Err(refusal) => {
            assert!(refusal.is_overload(), "{refusal}");
            return Fate::Refused { reason: refusal.name(), retry_after: refusal.retry_after() };
        }
    };
    let outcome = ticket.await;
    let took = submitted.elapsed();
    let is_late = match &outcome.verdict {
        Verdict::Limit(hit) => {
            assert_eq!(hit.limit, LimitKind::Deadline);
            true
        }
        _ => {
            assert!(outcome.is_success(), "{outcome:?}");
            false
        }
    };
    Fate::Ended { took, is_late }
}

impl Record {
    fn note(&mut self, fate: Fate) {
        match fate {
            Fate::Ended { took, is_late } => {
                self.admitted.push(took);
                self.late += usize::from(is_late);
            }
            Fate::Refused { reason, retry_after } => {
                *self.refused.entry(reason).or_default() += 1;
                self.retry_after.extend(retry_after);
            }
        }
    }

    fn refusals(&self) -> usize {
        self.refused.values().sum()
    }

    fn print(&self, name: &str) {
        let share = |count: usize| 100.0 * count as f64 / self.offered.max(1) as f64;
        println!(
            "{name}: {} offered, {:.1} % admitted, {:.2} % late",
            self.offered,
            share(self.admitted.len()),
            share(self.late)
        );
        for (reason, count) in &self.refused {
            println!("{name}: {:.1} % refused: {reason}", share(*count));
        }
    }
}

/// Offers twice the capacity, each job with a deadline.
async fn overload() {
    let scheduler = start(BTreeMap::new()).await;
    let capacity = capacity(&scheduler, SHORT).await;
    println!("overload: the capacity is {capacity:.0} jobs per second");
    let record = offer(&scheduler, "one", 2.0 * capacity, length(), SHORT, Some(DEADLINE)).await;
    scheduler.drain().await;
    record.print("overload");
    let answered = record.admitted.len() + record.refusals();
    assert_eq!(answered, record.offered, "each job is admitted or refused");
    assert!(record.refusals() > record.offered / 4, "the load was not an overload");
    let done = (record.admitted.len() - record.late) as f64 / length().as_secs_f64();
    println!(
        "overload: {done:.0} jobs per second done, {:.0} % of capacity",
        100.0 * done / capacity
    );
    let admitted = print("overload/admitted", record.admitted);
    let told = record.retry_after.len();
    let retry_after = print("overload/retry_after", record.retry_after);
    let refused: usize = record.refused.values().sum();
    assert!(told * 100 >= refused * 99, "{told} of {refused} refusals say when to retry");
    let plausible = Duration::from_micros(1)..Duration::from_secs(10);
    assert!(plausible.contains(&at(&retry_after, 500)), "{:?}", at(&retry_after, 500));
    let p99 = at(&admitted, 990);
    assert!(p99 <= DEADLINE + SLACK, "p99 of admitted jobs is {p99:?}, due in {DEADLINE:?}");
}

/// A tenant at a tenth of the capacity, alone, and next to one that offers three times the
/// capacity.
///
/// A run can't be preempted. So it is a cap that protects a quiet tenant's tail: the noisy one may
/// have all workers but one, and its queue is bounded. With shares alone a quiet job waits for the
/// next worker to become free, up to 10 ms here; that is printed as well, without a bound.
async fn noisy_neighbour() {
    let tenants = |concurrent| {
        let noisy = TenantConfig { concurrent, queued_count: 100, ..TenantConfig::default() };
        BTreeMap::from([("noisy".to_owned(), noisy)])
    };
    let mut tails = Vec::new();
    for (name, concurrent, is_noisy) in [
        ("noisy_neighbour/alone", WORKERS - 1, false),
        ("noisy_neighbour/next_to_a_capped_one", WORKERS - 1, true),
        ("noisy_neighbour/next_to_one_without_cap", usize::MAX, true),
    ] {
        let scheduler = start(tenants(concurrent)).await;
        let capacity = capacity(&scheduler, LONG).await;
        let (quiet, noisy) =
            tokio::join!(offer(&scheduler, "quiet", 0.1 * capacity, length(), LONG, None), async {
                match is_noisy {
                    true => offer(&scheduler, "noisy", 3.0 * capacity, length(), LONG, None).await,
                    false => Record::default(),
                }
            });
        scheduler.drain().await;
        quiet.print(name);
        if is_noisy {
            noisy.print(&format!("{name}: the noisy tenant"));
            assert!(noisy.refusals() > noisy.offered / 2, "the noisy tenant was not noisy");
        }
        assert_eq!(quiet.refusals(), 0, "the quiet tenant is never refused");
        tails.push(at(&print(name, quiet.admitted), 990));
    }
    let ratio = |place: usize| tails[place].as_secs_f64() / tails[0].as_secs_f64();
    println!("noisy_neighbour: p99 {:.2} times as long, without a cap {:.2}", ratio(1), ratio(2));
    assert!(ratio(1) <= MOST, "a noisy tenant multiplies a quiet one's p99 by {:.2}", ratio(1));
}

fn main() {
    let runtime = Runtime::new().expect("the runtime starts");
    if is_wanted("overload") {
        runtime.block_on(overload());
    }
    if is_wanted("noisy_neighbour") {
        runtime.block_on(noisy_neighbour());
    }
}
