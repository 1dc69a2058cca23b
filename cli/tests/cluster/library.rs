//! The library beside the commands: events, cancelling, and watching.

use std::time::{Duration, Instant};

use cluster::{Batch, Client, Connection, EventKind, PoolName, Settings, Wants, Watcher};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::commands::{PATIENCE, Running, get, output};
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

pub(crate) async fn watcher(url: &str) -> Watcher {
    let pool = PoolName::new("default").unwrap();
    Watcher::connect(&Connection::new(url), pool).await.unwrap()
}

/// Waits until this many jobs are claimed.
pub(crate) fn claimed(server: &Server, count: u64) {
    runtime().block_on(async {
        // It makes the pool if no worker or submitter has done so yet.
        client(&server.url()).await;
        let watcher = watcher(&server.url()).await;
        let begin = Instant::now();
        loop {
            let cluster = watcher.cluster().await.unwrap();
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
        assert_eq!(watcher(&server.url()).await.cluster().await.unwrap().jobs, 0);
        assert!(!ticket.cancel().await.unwrap());
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
        let (begin, watcher) = (Instant::now(), watcher(&url).await);
        while !watcher
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
        assert!(text.starts_with("pool default: 1 job in the queue, 1 of 2 slots run"), "{text}");
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

#[test]
fn a_cluster_is_on_the_page_of_a_server_and_metrics_have_the_name_of_the_pool() {
    let Some(server) = Server::start() else { return };
    let mut worker = Running::ready_worker(&server, "one", &["--metrics", "127.0.0.1:0"]);
    let address = |line: String| line[line.find("http://").unwrap()..].to_owned();
    let metrics = address(worker.says("metrics at"));
    let (metrics, path) = metrics.split_at(metrics.rfind('/').unwrap());
    let metrics = get(metrics, path);
    assert!(metrics.contains("hatchery_slots{pool=\"default\","), "{metrics}");
    let mut page = Running::page(&server);
    let address = address(page.says("serving HTTP at"));
    let answer = get(&address, "/v1/cluster");
    let cluster: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let cluster = &cluster["cluster"];
    assert_eq!((&cluster["pool"], &cluster["jobs"]), (&"default".into(), &0.into()), "{cluster}");
    assert_eq!(cluster["workers"][0]["name"], "one", "{cluster}");
}
