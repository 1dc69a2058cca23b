//! The library beside the commands: events, cancelling, priorities and tenants.

use std::time::{Duration, Instant};

use remote::{Batch, Client, Connection, EventKind, PoolName, Settings, Wants};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::commands::{PATIENCE, Running, output};
use crate::server::{ROUND, Server};

/// A client of the server's pool, with the settings of the other tests.
pub(crate) async fn client(url: &str) -> Client {
    let connection = Connection::new(url);
    let settings = Settings { claim_time: Duration::from_secs(4), ..Settings::default() };
    let pool = PoolName::new("default").unwrap();
    Client::open(&connection, pool, &settings, Batch::once()).await.unwrap()
}

pub(crate) fn runtime() -> Runtime {
    Runtime::new().unwrap()
}

/// Waits until this many jobs are claimed.
pub(crate) fn claimed(server: &Server, count: u64) {
    runtime().block_on(async {
        let client = client(&server.url()).await;
        let begin = Instant::now();
        loop {
            let cluster = client.watcher().cluster().await.unwrap();
            if cluster.lanes.iter().map(|lane| lane.claimed).sum::<u64>() >= count {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{cluster:?}");
            tokio::time::sleep(ROUND).await;
        }
    });
}

#[test]
fn events_come_while_a_job_runs_and_it_can_be_cancelled() {
    let Some(server) = Server::start() else { return };
    let _worker = Running::ready_worker(&server, "one", &[]);
    runtime().block_on(async {
        let client = client(&server.url()).await;
        let job = wire::Job::code("print('begun', flush=True)\nwhile True: pass");
        let mut ticket = client.submit_wanting(&job, Wants::default().events()).await.unwrap();
        let mut events = ticket.events().unwrap();
        let mut text = String::new();
        while !text.contains("begun") {
            let event = timeout(PATIENCE, events.next()).await.unwrap().unwrap();
            assert_eq!(event.worker, "one");
            if let EventKind::Output { text: more, .. } = event.kind {
                text += &more;
            }
        }
        assert!(ticket.cancel().await.unwrap());
        let result = timeout(PATIENCE, ticket.result()).await.unwrap().unwrap();
        assert_eq!(result.json()["status"], "cancelled");
        // The slots are free again.
        let ticket = client.submit(&wire::Job::code("6 * 7")).await.unwrap();
        let result = ticket.await.unwrap();
        assert_eq!((&result.json()["value"], result.worker()), (&42.into(), Some("one")));
        assert!(result.is_success() && !result.is_dead_letter());
    });
}

#[test]
fn a_queued_job_can_be_cancelled_and_never_runs() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        let client = client(&server.url()).await;
        let mut ticket = client.submit(&wire::Job::code("1")).await.unwrap();
        assert!(ticket.cancel().await.unwrap());
        let result = ticket.result().await.unwrap();
        assert_eq!((&result.json()["status"], result.worker()), (&"cancelled".into(), None));
        assert_eq!(client.watcher().cluster().await.unwrap().jobs, 0);
        assert!(!ticket.cancel().await.unwrap());
    });
}

#[test]
fn urgent_jobs_come_first_and_a_tenants_limit_holds_in_the_whole_cluster() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        let client = client(&server.url()).await;
        let job = |tenant: &str, priority, code: &str| wire::Job {
            tenant: Some(tenant.to_owned()),
            priority: Some(priority),
            ..wire::Job::code(code)
        };
        let clock = "import time\nbegin = time.time()\ntime.sleep(0.5)\n[begin, time.time()]";
        let mut tickets = Vec::new();
        for _ in 0..6 {
            let limited = job("limited", wire::Priority::Normal, clock);
            tickets.push(client.submit(&limited).await.unwrap());
        }
        let low = client.submit(&job("free", wire::Priority::Low, clock)).await.unwrap();
        let high = client.submit(&job("free", wire::Priority::High, clock)).await.unwrap();
        let limit = ["--tenant-limit", "limited=1"];
        let _workers = ["one", "two"].map(|name| Running::ready_worker(&server, name, &limit));
        let times = |json: &serde_json::Map<String, serde_json::Value>| {
            let times = json["value"].as_array().unwrap();
            (times[0].as_f64().unwrap(), times[1].as_f64().unwrap())
        };
        let mut limited = Vec::new();
        for ticket in tickets {
            limited.push(times(ticket.await.unwrap().json()));
        }
        limited.sort_by(|one, other| one.0.total_cmp(&other.0));
        for pair in limited.windows(2) {
            assert!(pair[1].0 >= pair[0].1 - 0.05, "two at once: {limited:?}");
        }
        let (high, low) = (times(high.await.unwrap().json()), times(low.await.unwrap().json()));
        assert!(high.0 < low.1, "{high:?} {low:?}");
    });
}

#[test]
fn a_cluster_can_be_watched() {
    let Some(server) = Server::start() else { return };
    let url = server.url();
    let missing = output(&["top", "--nats", &url, "--once"]);
    let said = String::from_utf8(missing.stderr).unwrap();
    assert_eq!(missing.status.code(), Some(2), "{said}");
    assert!(said.contains("has no pool `default`"), "{said}");
    let _worker = Running::ready_worker(&server, "one", &[]);
    runtime().block_on(async {
        let client = client(&url).await;
        let tenant = Some("a b".to_owned());
        let job = wire::Job { tenant, ..wire::Job::code("while True: pass") };
        let ticket = client.submit(&job).await.unwrap();
        let key = ticket.key().to_string();
        // The worker has said what it runs.
        let begin = Instant::now();
        while !client
            .watcher()
            .cluster()
            .await
            .unwrap()
            .workers
            .iter()
            .any(|worker| worker.running == 1 && worker.keys == [key.clone()])
        {
            assert!(begin.elapsed() < PATIENCE);
            tokio::time::sleep(ROUND).await;
        }
        let once = output(&["top", "--nats", &url, "--once"]);
        let text = String::from_utf8(once.stdout).unwrap();
        assert!(text.starts_with("pool default: 1 jobs in the queue, 1 of 2 slots run"), "{text}");
        let words: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(words.contains(&vec!["a", "b", "normal", "0", "1"]), "{text}");
        let json = output(&["top", "--nats", &url, "--json"]);
        let state: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(state["workers"][0]["name"], "one");
        assert_eq!(state["lanes"][0]["priority"], "normal");
        assert!(ticket.cancel().await.unwrap());
    });
}
