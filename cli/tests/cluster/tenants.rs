//! Limits of tenants hold in the whole cluster, and urgent jobs overtake.

use std::time::Duration;

use cluster::Ticket;
use tokio::time::timeout;
use wire::Priority;

use crate::commands::{PATIENCE, Running};
use crate::library::{claimed, client, runtime};
use crate::server::{NEWEST, OLDEST, Server, Version};

/// How many jobs of the tenant may run at once.
const LIMIT: usize = 2;
/// Jobs of each priority.
const EACH: usize = 4;

fn job(priority: Priority, seconds: f64) -> wire::Job {
    let code =
        format!("import time\nbegin = time.time()\ntime.sleep({seconds})\n[begin, time.time()]");
    let tenant = Some("limited".to_owned());
    wire::Job { tenant, priority: Some(priority), ..wire::Job::code(code) }
}

/// Returns when a program began and ended, in seconds.
async fn times(ticket: Ticket) -> (f64, f64) {
    let result = timeout(PATIENCE, ticket).await.unwrap().unwrap();
    let times = result.json()["value"].as_array().unwrap_or_else(|| panic!("{result:?}"));
    (times[0].as_f64().unwrap(), times[1].as_f64().unwrap())
}

fn the_limit_is_for_all_priorities_and_workers(version: Version) {
    let Some(server) = Server::start_version(version, "") else { return };
    runtime().block_on(async {
        let client = client(&server.url()).await;
        let mut tickets = Vec::new();
        for priority in [Priority::Low, Priority::Normal, Priority::High] {
            for _ in 0..EACH {
                let ticket = client.submit(&job(priority, 0.3)).await.unwrap();
                tickets.push((priority, ticket));
            }
        }
        let limit = ["--tenant-limit", "limited=2"];
        let _workers = ["one", "two"].map(|name| Running::ready_worker(&server, name, &limit));
        let mut runs = Vec::new();
        for (priority, ticket) in tickets {
            let (begin, end) = times(ticket).await;
            runs.push((priority, begin, end));
        }
        let at_once = |moment| {
            let running = runs.iter().filter(|(_, begin, end)| (*begin..*end).contains(&moment));
            running.count()
        };
        let most = runs.iter().map(|(_, begin, _)| at_once(*begin)).max();
        assert_eq!(most, Some(LIMIT), "{runs:?}");
        let begins = |wanted| {
            let own = runs.iter().filter(move |(priority, _, _)| *priority == wanted);
            own.map(|(_, begin, _)| *begin)
        };
        let last_urgent = begins(Priority::High).fold(f64::MIN, f64::max);
        let first_low = begins(Priority::Low).fold(f64::MAX, f64::min);
        assert!(last_urgent < first_low, "{runs:?}");
    });
}

#[test]
fn a_tenants_limit_is_for_all_priorities_and_workers_and_urgent_jobs_come_first() {
    the_limit_is_for_all_priorities_and_workers(NEWEST);
}

#[test]
fn a_tenants_limit_is_for_all_priorities_with_the_oldest_server() {
    the_limit_is_for_all_priorities_and_workers(OLDEST);
}

#[test]
fn what_a_dead_worker_held_of_a_limit_comes_back() {
    let Some(server) = Server::start() else { return };
    let limit = ["--tenant-limit", "limited=1"];
    let mut first = Running::ready_worker(&server, "first", &limit);
    runtime().block_on(async {
        let client = client(&server.url()).await;
        let priorities = [Priority::High, Priority::Normal];
        let mut tickets = Vec::new();
        for priority in priorities {
            tickets.push(client.submit(&job(priority, 2.0)).await.unwrap());
        }
        tokio::task::block_in_place(|| claimed(&server, 1));
        first.kill();
        let _second = Running::ready_worker(&server, "second", &limit);
        let mut runs = Vec::new();
        for ticket in tickets {
            runs.push(times(ticket).await);
        }
        runs.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(runs[0].1 <= runs[1].0, "two at once: {runs:?}");
    });
}

#[test]
fn a_limit_can_be_changed_and_other_tenants_have_none() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        let client = client(&server.url()).await;
        // The last one that starts decides.
        let first = Running::ready_worker(&server, "first", &["--tenant-limit", "limited=3"]);
        let limit = ["--tenant-limit", "limited=1"];
        let _second = Running::ready_worker(&server, "second", &limit);
        let mut tickets = Vec::new();
        for _ in 0..EACH {
            tickets.push(client.submit(&job(Priority::Normal, 0.2)).await.unwrap());
        }
        let free = wire::Job { tenant: None, ..job(Priority::Low, 0.0) };
        let free = client.submit(&free).await.unwrap();
        let mut runs = Vec::new();
        for ticket in tickets {
            runs.push(times(ticket).await);
        }
        runs.sort_by(|one, other| one.0.total_cmp(&other.0));
        for pair in runs.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "two at once: {runs:?}");
        }
        assert!(timeout(Duration::from_secs(60), free).await.unwrap().unwrap().is_success());
        drop(first);
    });
}
