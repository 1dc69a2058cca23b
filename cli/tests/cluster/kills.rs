//! Jobs whose server, workers and submitter are killed at random moments: each has exactly one
//! result, that of an undisturbed run, and only jobs that kill become dead letters.
//!
//! `HATCHERY_CLUSTER_JOBS=100000 HATCHERY_CLUSTER_KILLS=30` is the size for the record;
//! `HATCHERY_CLUSTER_SERVER=oldest` takes the oldest server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cluster::{EventKind, JobKey, Wants};
use parking_lot::Mutex;
use serde_json::json;

use crate::commands::{Files, Running, without_times};
use crate::library::client;
use crate::server::{NEWEST, OLDEST, Server};
use test_support::dice::Dice;
#[cfg(target_os = "linux")]
use test_support::victims::Victim;

const JOBS: usize = 600;
const KILLS: usize = 8;
const POISON: usize = 1;
const WORKERS: usize = 3;

pub(crate) fn size(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).ok().map_or(otherwise, |text| text.parse().unwrap())
}

fn lines(count: usize) -> Vec<String> {
    let line = |id: usize| {
        let code = match id % 7 {
            0 => format!("raise ValueError({id})"),
            1 => format!("print({id})"),
            2 => format!("import hashlib\nhashlib.sha256(b'{id}' * 100_000).hexdigest()"),
            _ => format!("{id} * {id}"),
        };
        json!({ "id": id, "code": code, "tenant": format!("t{}", id % 3) }).to_string()
    };
    (0..count).map(line).collect()
}

#[test]
fn each_job_has_one_result_although_workers_are_killed() {
    let is_oldest = std::env::var("HATCHERY_CLUSTER_SERVER").is_ok_and(|which| which == "oldest");
    let version = if is_oldest { OLDEST } else { NEWEST };
    let Some(server) = Server::start_version(version, "") else { return };
    let jobs = size("HATCHERY_CLUSTER_JOBS", JOBS);
    let kills = size("HATCHERY_CLUSTER_KILLS", KILLS);
    let poison = size("HATCHERY_CLUSTER_POISON", POISON);
    let seed = size("HATCHERY_CLUSTER_SEED", 7);
    println!("{jobs} jobs, {kills} kills, {poison} jobs that kill, seed {seed}");
    let files = Files::new(&lines(jobs));
    let local_begin = Instant::now();
    let local = without_times(&files.locally(&[]));
    let local_time = local_begin.elapsed();

    let server = Arc::new(Mutex::new(server));
    let workers: Arc<Vec<Mutex<Running>>> =
        Arc::new((0..WORKERS).map(|at| Mutex::new(worker(&server.lock(), at))).collect());
    let begin = Instant::now();
    let deaths = Arc::new(AtomicUsize::new(0));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let poisoned = {
        let (server, workers, deaths) =
            (Arc::clone(&server), Arc::clone(&workers), Arc::clone(&deaths));
        runtime.spawn(async move { kill_its_workers(poison, &server, &workers, &deaths).await })
    };
    let mut submit = submit(&server.lock(), &files);
    let mut dice = Dice(seed as u64);
    let mut next = Instant::now() + pause(&mut dice);
    let mut left = kills;
    // The submitter ends by itself when it has everything.
    let (status, said) = loop {
        if left > 0 && Instant::now() >= next {
            left -= 1;
            match dice.below(5) {
                0 => {
                    let mut server = server.lock();
                    server.kill();
                    server.restart();
                }
                1 => {
                    submit.kill();
                    submit = self::submit(&server.lock(), &files);
                }
                at => {
                    let at = (at - 2) as usize;
                    let mut dead = workers[at].lock();
                    dead.kill();
                    *dead = worker(&server.lock(), at);
                }
            }
            next = Instant::now() + pause(&mut dice);
        }
        if !submit.runs() {
            break submit.end();
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    println!(
        "{} of {kills} kills; {:.1} s, and {:.1} s for the local run",
        kills - left,
        begin.elapsed().as_secs_f64(),
        local_time.as_secs_f64()
    );
    assert_eq!(status.code(), Some(1), "{said}");
    let remote = without_times(&files.results("out"));
    assert_eq!(remote.len(), jobs, "{said}");
    for (remote, local) in remote.iter().zip(&local) {
        assert_eq!(remote, local);
    }
    let poisoned = runtime.block_on(poisoned).unwrap();
    assert_eq!(dead_letters(&server.lock()), sorted(&poisoned));
    assert!(deaths.load(Ordering::Relaxed) >= 3 * poison);
}

/// The worker itself lives on, and what is below it is started again.
#[test]
#[cfg(target_os = "linux")]
fn each_job_has_one_result_whichever_process_below_a_worker_is_killed() {
    const SLOW_JOBS: usize = 80;
    let Some(server) = Server::start() else { return };
    let line = |id: usize| {
        let code = format!("import time; time.sleep(0.1); {id} * {id}");
        json!({ "id": id, "code": code }).to_string()
    };
    let files = Files::new(&(0..SLOW_JOBS).map(line).collect::<Vec<_>>());
    let worker = Running::ready_worker(&server, "worker", &["--isolation", "process"]);
    let mut submit = submit(&server, &files);
    let mut dice = Dice(9);
    for victim in [Victim::ALL, Victim::ALL].concat() {
        if submit.runs() {
            victim.kill(worker.id());
            std::thread::sleep(Duration::from_millis(300 + dice.below(200)));
        }
    }
    let (status, said) = submit.end();
    assert!(status.success(), "{said}");
    let mut values: Vec<u64> =
        files.results("out").iter().map(|result| result["value"].as_u64().unwrap()).collect();
    values.sort_unstable();
    assert_eq!(values, (0..SLOW_JOBS as u64).map(|id| id * id).collect::<Vec<_>>());
}

/// Returns the keys of the dead letters, in order.
pub(crate) fn dead_letters(server: &Server) -> Vec<String> {
    let subjects = server.subjects("hatchery-default-dead", ">").into_iter();
    let mut keys: Vec<String> =
        subjects.map(|subject| subject.replace("hatchery.dead.default.", "")).collect();
    keys.sort_unstable();
    keys
}

fn sorted(keys: &[JobKey]) -> Vec<String> {
    let mut keys: Vec<String> = keys.iter().map(JobKey::to_string).collect();
    keys.sort_unstable();
    keys
}

fn worker(server: &Server, at: usize) -> Running {
    Running::worker(server, &format!("worker-{at}"), &[])
}

fn submit(server: &Server, files: &Files) -> Running {
    Running::submit(server, &files.jobs(), &files.out("out"), &["--resume"])
}

pub(crate) fn pause(dice: &mut Dice) -> Duration {
    Duration::from_millis(500 + dice.below(2_000))
}

/// Submits jobs whose workers are killed. Returns their keys.
async fn kill_its_workers(
    count: usize,
    server: &Mutex<Server>,
    workers: &[Mutex<Running>],
    deaths: &AtomicUsize,
) -> Vec<JobKey> {
    let url = server.lock().url();
    let client = client(&url).await;
    let mut keys = Vec::new();
    for number in 0..count {
        let code = format!("print('poison', flush=True)\nwhile True: pass\n{number}");
        let timeout = Some(Duration::from_secs(600));
        let job = wire::Job { timeout, ..wire::Job::code(code) };
        let mut ticket = client.submit_wanting(&job, Wants::default().events()).await.unwrap();
        let mut events = ticket.events().unwrap();
        let result = loop {
            tokio::select! {
                result = ticket.result() => break result.unwrap(),
                Some(event) = events.next() => {
                    if let EventKind::Output { .. } = event.kind {
                        let at: usize = event.worker.rsplit('-').next().unwrap().parse().unwrap();
                        let mut dead = workers[at].lock();
                        dead.kill();
                        *dead = worker(&server.lock(), at);
                        deaths.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        };
        assert!(result.is_dead_letter(), "{:?}", result.json());
        let error = &result.json()["error"];
        // A server that is killed may forget a claim that no record of a start stands for. The job is
        // then started once more before it runs alone, and never after.
        let history = error["history"].as_array().unwrap();
        assert!((3..=4).contains(&history.len()), "{error}");
        assert_eq!(history.last().unwrap()["alone"], true, "{error}");
        assert_eq!(history.iter().filter(|start| start["alone"] == true).count(), 1, "{error}");
        keys.push(ticket.key().clone());
    }
    keys
}
