//! A submitter that knows the key of another tenant's job has no part in its result.

use cluster::{EventKind, Wants};
use serde_json::json;
use tokio::time::timeout;
use wire::Priority;

use crate::commands::{PATIENCE, Running};
use crate::library::{client, runtime, watcher};
use crate::server::Server;

fn job(tenant: &str, priority: Priority, code: &str) -> wire::Job {
    let (tenant, priority) = (Some(tenant.to_owned()), Some(priority));
    wire::Job { tenant, priority, ..wire::Job::code(code) }
}

#[test]
fn a_job_under_the_key_of_another_one_is_dropped() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        let client = client(&server.url()).await;
        let honest = job("honest", Priority::Low, "'true'");
        let ticket = client.submit(&honest).await.unwrap();
        let own = client.submit(&job("evil", Priority::High, "'own'")).await.unwrap();
        let key = ticket.key().to_string();
        // Urgent, so that workers get these first.
        let subject = format!("hatchery.jobs.default.evil.high.{key}");
        let forged = job("evil", Priority::High, "'forged'");
        let forged = serde_json::to_string(&forged).unwrap();
        server.publish(&subject, &[("Hatchery-Nth", "0")], &forged);
        // The very job, in a lane where it would be refused; and what isn't any job.
        let (batch, digest) = key.split_once('.').unwrap();
        let subject = format!("hatchery.jobs.default.evil.normal.{key}");
        let same = serde_json::to_string(&honest).unwrap();
        server.publish(&subject, &[("Hatchery-Nth", "0")], &same);
        server.publish(&format!("hatchery.jobs.default.evil.high.{batch}.x{digest}"), &[], "1");
        let waiting = client.submit(&job("evil", Priority::Normal, "'own'")).await.unwrap();
        assert_eq!(watcher(&server.url()).await.cluster().await.unwrap().jobs, 6);
        let mut worker = Running::ready_worker(&server, "one", &[]);
        let result = timeout(PATIENCE, ticket).await.unwrap().unwrap();
        assert_eq!(result.json()["value"], "true", "{result:?}");
        for ticket in [own, waiting] {
            let result = timeout(PATIENCE, ticket).await.unwrap().unwrap();
            assert_eq!(result.json()["value"], "own", "{result:?}");
        }
        worker.says("isn't a job (`key`)");
        worker.says("isn't a job (`subject`)");
        worker.terminate();
        worker.says("3 done, 0 given back, 0 dead letters, 3 refused");
    });
}

#[test]
fn a_job_is_ended_only_by_those_who_may_submit_to_its_lane() {
    let Some(server) = Server::start() else { return };
    let _worker = Running::ready_worker(&server, "one", &[]);
    runtime().block_on(async {
        let client = client(&server.url()).await;
        let code = "print('begun', flush=True)\nwhile True: pass";
        let honest = job("honest", Priority::Normal, code);
        let mut ticket = client.submit_wanting(&honest, Wants::default().events()).await.unwrap();
        let mut events = ticket.events().unwrap();
        while !matches!(
            timeout(PATIENCE, events.next()).await.unwrap().unwrap().kind,
            EventKind::Output { .. }
        ) {}
        let key = ticket.key().to_string();
        let cancel = json!({ "do": "cancel", "key": key }).to_string();
        let interrupt = json!({ "do": "interrupt", "key": key }).to_string();
        server.publish("hatchery.control.default.evil.normal", &[], &cancel);
        server.publish("hatchery.control.default.honest.normal", &[], &interrupt);
        let result = timeout(PATIENCE, ticket).await.unwrap().unwrap();
        assert_eq!(result.json()["error"]["type"], "KeyboardInterrupt", "{result:?}");
    });
}
