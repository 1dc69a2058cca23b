//! All processes of a pool but the embedding one are killed at random moments, under jobs and sessions:
//! workers, the helper that forks them, also while it starts, and the first process of their namespace.
//! The embedding process lives on, each job ends exactly once and as it must, each death is noticed in
//! time and has its cause in the outcome, and nothing is left. In its own process, since it counts what
//! that has.
//!
//! `HATCHERY_KILLS=1000` is the size for the record. Faults that are sent from outside change
//! nothing, so `SIGSEGV` must be without effect; real ones are in `isolation/process/tests/compromised`.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]
#![expect(
    clippy::disallowed_methods,
    reason = "how long a death goes unnoticed is measured in time"
)]

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hatchery::{Hatchery, Helper, Isolation, Job, JobId, Outcome, SandboxFailure, Ticket, Verdict};
use rustix::process::{Pid, Signal, kill_process};

use test_support::dice::Dice;
use test_support::processes::{children, family};

/// Signals that are sent, unless `HATCHERY_KILLS` says otherwise.
const KILLS: u64 = 60;
const WORKERS: usize = 4;
const CALLERS: u64 = 6;
const SESSIONS: u64 = 3;
/// The jobs of a caller with a crowd that haven't ended.
const CROWD: usize = 60;

/// Within this time a death is noticed, that of a stopped process included, and the worker replaced.
const GRACE: Duration = Duration::from_secs(8);

/// The longest that a job may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a signal does, by how its death is reported; of 20 signals one stops the worker.
const SIGNALS: [(Signal, Option<&str>); 4] = [
    (Signal::KILL, Some("SIGKILL")),
    (Signal::ABORT, Some("SIGABRT")),
    (Signal::SEGV, None),
    (Signal::STOP, Some("stopped responding")),
];

/// A helper or the first process of its namespace is killed at random moments this far apart, in
/// milliseconds. It starts within a third of that.
const APART: u64 = 1_000;

/// Pools that are started while a process of theirs is killed, for each ten signals.
const STARTS: u64 = 2;

/// What callers and the killer count.
#[derive(Debug, Default)]
struct Counts {
    right: AtomicU64,
    /// Jobs and turns that were reported to have failed with their worker.
    died: AtomicU64,
    turns: AtomicU64,
    /// Turns that failed, and left the session as it was before.
    restored: AtomicU64,
    /// Sessions that were reported to be lost with their worker.
    lost_sessions: AtomicU64,
    /// Ends of jobs.
    ended: Mutex<HashSet<JobId>>,
    is_over: AtomicBool,
}

impl Counts {
    fn one(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn end(&self, job: JobId) {
        assert!(self.ended.lock().unwrap().insert(job), "{job} ended twice");
    }
}

/// Returns an error with its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Returns whether a failure is that of a worker that was killed, with its cause.
fn is_death(outcome: &Outcome) -> bool {
    let Verdict::SandboxFailed(failure) = &outcome.verdict else { return false };
    let cause = match failure {
        SandboxFailure::WorkerDied(cause)
        | SandboxFailure::Start(cause)
        | SandboxFailure::SessionLost(cause) => cause,
        _ => return false,
    };
    let said = chain(cause);
    let causes = SIGNALS.iter().filter_map(|(_, cause)| *cause);
    let is_known = causes
        .chain(["the process that kept this state has ended"])
        .chain(["the process that kept its state has ended"])
        .any(|cause| said.contains(cause));
    assert!(is_known, "a death without its cause: {failure}: {said}");
    true
}

/// Submits jobs one after the other. Every other one may be retried.
async fn call(pool: Hatchery, counts: Arc<Counts>, caller: u64) {
    let mut number = caller << 32;
    while counts.goes_on() {
        number += 1;
        let source = format!(
            "print({number})\nx = {number}\nfor _ in range({}): x += 1\nx",
            1 + number % 7 * 9_000
        );
        let ticket =
            pool.submit(Job::code(source).idempotent(number.is_multiple_of(2))).await.unwrap();
        ends_right(ticket, number, 1 + number % 7 * 9_000, &counts).await;
    }
}

/// Submits many short jobs, so that workers get them ahead, with one among them now and then that is
/// long, and one that nobody waits for.
async fn crowd(pool: Hatchery, counts: Arc<Counts>, caller: u64) {
    let mut number = (CALLERS + caller) << 32;
    let mut waiting = VecDeque::new();
    while counts.goes_on() || !waiting.is_empty() {
        if counts.goes_on() && waiting.len() < CROWD {
            number += 1;
            let more = if number.is_multiple_of(97) { 100_000 } else { number % 7 * 100 };
            let source =
                format!("print({number})\nx = {number}\nfor _ in range({more}): x += 1\nx");
            let job = Job::code(source).idempotent(number.is_multiple_of(2));
            let ticket = pool.submit(job).await.unwrap();
            if !number.is_multiple_of(41) {
                waiting.push_back((ticket, number, more));
            }
        } else if let Some((ticket, number, more)) = waiting.pop_front() {
            ends_right(ticket, number, more, &counts).await;
        }
    }
}

/// Waits for the outcome of a job that prints its number and adds to it.
async fn ends_right(ticket: Ticket, number: u64, more: u64, counts: &Counts) {
    let job = ticket.job_id();
    let ended = tokio::time::timeout(PATIENCE, ticket.into_future()).await;
    let outcome = ended.unwrap_or_else(|_| panic!("job {number} is lost"));
    counts.end(job);
    if is_death(&outcome) {
        Counts::one(&counts.died);
        return;
    }
    let Verdict::Completed { value: Some(value), .. } = &outcome.verdict else {
        panic!("{number}: {:?}", outcome.verdict)
    };
    assert_eq!(value.as_u64(), Some(number + more));
    assert_eq!(outcome.stdout_text(), format!("{number}\n"));
    Counts::one(&counts.right);
}

/// Takes turns in sessions one after the other: each takes effect once or not at all.
async fn converse(pool: Hatchery, counts: Arc<Counts>, number: u64) {
    let mut dice = Dice(0x7eed + number);
    while counts.goes_on() {
        let name = format!("session {number} of {}", dice.below(u64::MAX));
        let session = pool.session(&name).await.unwrap();
        let mut turns = 0;
        while counts.goes_on() {
            let source = format!(
                "turns = globals().get('turns', 0) + 1\nfor _ in range({}): pass\nturns",
                1 + dice.below(60_000)
            );
            let ran = tokio::time::timeout(PATIENCE, session.run(Job::code(source))).await;
            let outcome = match ran.unwrap_or_else(|_| panic!("a turn is lost")) {
                Ok(outcome) => outcome,
                Err(error) => panic!("{name}: {error}"),
            };
            if is_death(&outcome) {
                Counts::one(&counts.died);
                if outcome.session_restored {
                    Counts::one(&counts.restored);
                    continue;
                }
                Counts::one(&counts.lost_sessions);
                break;
            }
            let Verdict::Completed { value: Some(value), .. } = &outcome.verdict else {
                panic!("{name}: {:?}", outcome.verdict)
            };
            assert!(!outcome.session_restored);
            turns += 1;
            assert_eq!(value.as_u64(), Some(turns), "{name}");
            Counts::one(&counts.turns);
        }
        session.close();
    }
}

fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// Counts mappings of files in memory, such as those of channels.
fn mapped_memory_files() -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().matches("/memfd:").count()
}

/// Returns what the process has open, once that has been the same for a while: threads of a dropped pool
/// close their part as they end.
async fn left_open() -> (usize, usize) {
    let look = || (descriptors(std::process::id()), mapped_memory_files());
    let (mut found, mut since, began) = (look(), Instant::now(), Instant::now());
    while since.elapsed() < Duration::from_millis(200) && began.elapsed() < GRACE {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = look();
        if now != found {
            (found, since) = (now, Instant::now());
        }
    }
    found
}

/// Sends a signal to a process, which may have ended meanwhile. Returns whether it hadn't.
fn send(process: u32, signal: Signal) -> bool {
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), signal).is_ok()
}

fn is_alive(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat"));
    status.is_ok_and(|status| !status.rsplit(')').next().unwrap().trim().starts_with('Z'))
}

/// What a killer has sent.
#[derive(Debug, Default)]
struct Sent {
    /// To workers, by signal.
    workers: [u64; SIGNALS.len()],
    helpers: u64,
    /// To the first process of a namespace.
    keepers: u64,
    /// The longest time until one of them was gone.
    slowest: Duration,
}

/// Sends signals to random processes: this many deadly ones to workers.
async fn kill(kills: u64, dice: &mut Dice, sent: &mut Sent) {
    let mut dying: Vec<(u32, Signal, Instant)> = Vec::new();
    let mut next_helper = Instant::now();
    // A signal of which no worker dies is sent as well, and isn't counted.
    let deadly = |sent: &Sent| -> u64 {
        let counts = std::iter::zip(SIGNALS, sent.workers);
        counts.map(|((_, cause), sent)| cause.map_or(0, |_| sent)).sum()
    };
    let most = deadly(sent) + kills;
    while deadly(sent) < most || !dying.is_empty() {
        let pause = Duration::from_micros(500 + dice.below(15_000));
        tokio::time::sleep(pause).await;
        dying.retain(|(process, signal, since)| {
            let (waited, is_alive) = (since.elapsed(), is_alive(*process));
            if !is_alive {
                sent.slowest = sent.slowest.max(waited);
            }
            assert!(!is_alive || waited < GRACE, "{process} outlived {signal:?}");
            is_alive
        });
        // There is none for a moment, between two.
        let Some(helper) = children(std::process::id()).first().copied() else { continue };
        let (workers, keeper) = family(helper);
        if Instant::now() >= next_helper && deadly(sent) < most {
            next_helper = Instant::now() + Duration::from_millis(dice.below(APART));
            let (victim, signal) = match keeper {
                // The first process of a namespace dies of no other signal.
                Some(keeper) if dice.below(2) == 0 => {
                    sent.keepers += 1;
                    (keeper, Signal::KILL)
                }
                _ => {
                    sent.helpers += 1;
                    (helper, [Signal::KILL, Signal::ABORT][dice.below(2) as usize])
                }
            };
            if send(victim, signal) {
                dying.push((victim, signal, Instant::now()));
            }
            continue;
        }
        // One always works, so that jobs go on.
        let others: Vec<u32> = workers
            .into_iter()
            .filter(|one| dying.iter().all(|(dying, ..)| dying != one))
            .collect();
        if deadly(sent) == most || others.len() < 2 {
            continue;
        }
        let worker = others[dice.below(others.len() as u64) as usize];
        let signal = match dice.below(20) {
            0 => 3,
            1..5 => 2,
            5..10 => 1,
            _ => 0,
        };
        if send(worker, SIGNALS[signal].0) {
            sent.workers[signal] += 1;
            if SIGNALS[signal].1.is_some() {
                dying.push((worker, SIGNALS[signal].0, Instant::now()));
            }
        }
    }
}

/// Returns a pool's builder with this helper.
fn builder(helper: impl Into<std::path::PathBuf>) -> hatchery::Builder {
    let isolation = Isolation::Process { helper: Helper::Program(helper.into()) };
    Hatchery::builder().isolation(isolation).workers(WORKERS)
}

async fn start() -> Hatchery {
    let pool = builder(env!("CARGO_BIN_EXE_hatchery")).start().await.unwrap();
    let jobs: Vec<_> = (0..WORKERS).map(|_| pool.run(Job::code("sum(range(10**6))"))).collect();
    for job in jobs {
        assert!(job.await.unwrap().is_success());
    }
    pool
}

/// The size of a test by default, or as it was asked for.
fn kills() -> u64 {
    std::env::var("HATCHERY_KILLS").map_or(KILLS, |text| text.parse().unwrap())
}

/// Waits until this process has no helper.
async fn is_alone() {
    let dropped = Instant::now();
    while !children(std::process::id()).is_empty() {
        assert!(dropped.elapsed() < GRACE, "the helper is left");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// One test after the other, since each looks at the processes of all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_are_killed_and_nothing_is_lost_wrong_or_left() {
    // What the first pool leaves open belongs to the process.
    let first = start().await;
    first.drain().await;
    drop(first);
    let before = left_open().await;
    under_jobs(kills()).await;
    while_they_start(kills() * STARTS / 10).await;
    for_good().await;
    is_alone().await;
    assert_eq!(left_open().await, before);
}

async fn under_jobs(kills: u64) {
    let pool = start().await;
    let of_helper = descriptors(children(std::process::id())[0]);
    let counts = Arc::<Counts>::default();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        callers.spawn(call(pool.clone(), Arc::clone(&counts), caller));
    }
    for number in 0..SESSIONS {
        callers.spawn(converse(pool.clone(), Arc::clone(&counts), number));
    }
    let (began, mut dice, mut sent) = (Instant::now(), Dice(0xdead), Sent::default());
    kill(kills.div_ceil(2), &mut dice, &mut sent).await;
    counts.is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    counts.is_over.store(false, Ordering::Relaxed);
    let right_before = counts.right.load(Ordering::Relaxed);
    for caller in 0..2 {
        callers.spawn(crowd(pool.clone(), Arc::clone(&counts), caller));
    }
    kill(kills / 2, &mut dice, &mut sent).await;
    counts.is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    let in_crowds = counts.right.load(Ordering::Relaxed) - right_before;
    let took = began.elapsed();
    let failures: u64 = pool.status().workers.iter().map(|worker| worker.failures).sum();
    let Counts { right, died, turns, restored, lost_sessions, .. } = &*counts;
    println!("signals in {took:.1?}: {sent:?}");
    assert!(in_crowds > 0);
    println!(
        "{right:?} jobs ({in_crowds} of them in crowds) and {turns:?} turns right, {died:?} reported to have died, {restored:?} turns undone, {lost_sessions:?} sessions lost"
    );
    println!("{failures} failures of the workers at the end");
    assert!(right.load(Ordering::Relaxed) > 0 && turns.load(Ordering::Relaxed) > 0);
    assert!(sent.helpers > 0);
    assert!(pool.run(Job::code("assert sum(range(10)) == 45")).await.unwrap().is_success());
    let helpers = children(std::process::id());
    assert_eq!((helpers.len(), descriptors(helpers[0])), (1, of_helper), "one helper");
    pool.drain().await;
    drop(pool);
    // The helper is killed by whichever thread drops the last handle.
    let dropped = Instant::now();
    is_alone().await;
    println!("the helper was gone after {:.1?}", dropped.elapsed());
}

/// Kills one process of each pool while that starts, which it does nevertheless.
async fn while_they_start(pools: u64) {
    let mut dice = Dice(0x57a27);
    for _ in 0..pools {
        let starting = tokio::spawn(builder(env!("CARGO_BIN_EXE_hatchery")).start());
        tokio::time::sleep(Duration::from_millis(dice.below(APART / 2))).await;
        if let Some(helper) = children(std::process::id()).first() {
            let (mut all, keeper) = family(*helper);
            all.extend(keeper);
            all.push(*helper);
            send(all[dice.below(all.len() as u64) as usize], Signal::KILL);
        }
        let pool = starting.await.unwrap().unwrap_or_else(|error| panic!("{}", chain(&error)));
        // All workers may have died a moment ago: the job waits before each retry.
        let outcome = pool.run(Job::code("6 * 7").idempotent(true)).await.unwrap();
        assert!(outcome.is_success(), "{:?}", outcome.verdict);
        drop(pool);
        is_alone().await;
    }
}

/// Kills a helper that can't be started again: jobs end with the reason, and others are refused.
async fn for_good() {
    let folder = tempfile::tempdir().unwrap();
    let helper = folder.path().join("helper");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_hatchery"), &helper).unwrap();
    let pool = builder(&helper).start().await.unwrap();
    fs::remove_file(&helper).unwrap();
    send(children(std::process::id())[0], Signal::KILL);
    let mut tickets = Vec::new();
    for number in 0..400 {
        tickets.push(pool.submit(Job::code(number.to_string())).await.unwrap());
    }
    let mut failed = 0;
    for ticket in tickets {
        let ended = tokio::time::timeout(PATIENCE, ticket.into_future()).await;
        match ended.expect("a job hangs").verdict {
            Verdict::Completed { .. } => {}
            Verdict::SandboxFailed(failure) => {
                failed += 1;
                let said = chain(&failure);
                let is_known = ["SIGKILL", "can't start"].iter().any(|cause| said.contains(cause));
                assert!(is_known, "no reason: {said}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(failed > 0);
    let refused = pool.run(Job::code("1")).await.expect_err("nothing can run");
    assert!(chain(&refused).contains("can't start"), "{}", chain(&refused));
}
