//! Status, health, refusals for load, and the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hatchery::Limits;
use serde_json::json;
use serve::http::ClusterState;

use crate::client::{Client, Reply};
use crate::server::{OPERATOR, Server, open, serve, start, tokens, wait, with};

#[test]
fn health_needs_no_token_and_metrics_need_a_recorder() {
    let reply = crate::server::without_token().get("/healthz");
    assert_eq!((reply.status, reply.json()), (200, json!({ "status": "ok" })));
    assert_eq!(open().get("/metrics").reason(), "no_metrics");
    let mut config = tokens();
    config.metrics = Some(Arc::new(|| "jobs 1\n".to_owned()));
    let (ready, is_ready) = tokio::sync::watch::channel(false);
    config.ready = Some(is_ready);
    let Server { client, .. } = serve(&crate::server::POOL, config);
    let health = || client.get("/healthz");
    assert_eq!((health().status, health().json()), (503, json!({ "status": "starting" })));
    ready.send_replace(true);
    assert_eq!(health().status, 200);
    let metrics = Client { token: Some(OPERATOR), ..client.clone() }.get("/metrics");
    assert_eq!(metrics.bytes(), b"jobs 1\n");
}

#[test]
fn administrators_see_the_cluster_if_there_is_one() {
    assert_eq!(with(OPERATOR).get("/v1/cluster").json(), json!({ "cluster": null }));
    assert_eq!(with(crate::server::ADA).get("/v1/cluster").status, 403);
    let mut config = tokens();
    let asked = Arc::new(AtomicBool::new(false));
    config.cluster = Some(Arc::new(move || -> ClusterState {
        let is_first = !asked.swap(true, Ordering::Relaxed);
        Box::pin(async move {
            if is_first { Ok(json!({ "jobs": 7 })) } else { Err("the server is gone".to_owned()) }
        })
    }));
    let Server { client, .. } = serve(&crate::server::POOL, config);
    let client = Client { token: Some(OPERATOR), ..client };
    assert_eq!(client.get("/v1/cluster").json(), json!({ "cluster": { "jobs": 7 } }));
    let failed = client.get("/v1/cluster");
    assert_eq!(failed.status, 503);
    let answer = failed.json();
    let error = &answer["error"];
    assert_eq!(
        (&error["reason"], &error["message"]),
        (&json!("cluster"), &json!("the server is gone"))
    );
}

#[test]
fn the_document_describes_the_server() {
    let document = open().get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let fields = &document["components"]["schemas"]["Job"]["properties"];
    assert!(fields["code"].is_object() && fields["timeout"].is_object());
}

#[test]
fn decisions_are_streamed() {
    let mut decisions = with(OPERATOR).get("/v1/decisions").events();
    with(OPERATOR).run("/v1/run", "1");
    assert!(decisions.any(|(name, id, data)| {
        name == "decision" && id.is_some() && data["decision"] == "ended"
    }));
}

#[test]
fn an_overloaded_pool_says_when_to_try_again() {
    let limits = Limits { wall_time: std::time::Duration::from_secs(120), ..Limits::default() };
    let pool = start(|builder| builder.workers(1).queue_limit(1).limits(limits));
    let Server { client, end, ended } = serve(&pool, tokens());
    let client = Client { token: Some(OPERATOR), ..client };
    let body = json!({ "code": "print(1)\nwhile True: pass" }).to_string();
    let events = [("accept", "text/event-stream")];
    let send = || client.send("POST", "/v1/run", &events, body.as_bytes());
    let mut first = send().events();
    assert!(first.any(|(name, _, _)| name == "output"));
    // One runs and one waits.
    let second = send();
    assert_eq!(second.status, 200);
    let refused = client.post("/v1/run", &json!({ "code": "1" }));
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(refused.reason(), "queue_full");

    // The pool ends while both are there; readiness goes first.
    let drained = client.post("/v1/drain", &json!({ "seconds": 0.2 }));
    assert_eq!(drained.status, 202);
    let health = client.get("/healthz");
    assert_eq!((health.status, health.json()), (503, json!({ "status": "draining" })));
    let refused: Reply = client.post("/v1/run", &json!({ "code": "1" }));
    assert_eq!((refused.status, refused.reason().as_str()), (503, "shutting_down"));
    let outcome = first.find(|(name, _, _)| name == "outcome").unwrap().2;
    assert_eq!(outcome["status"], "cancelled");
    assert_eq!(second.events().last().unwrap().2["status"], "cancelled");

    // Idle connections don't hold the server up.
    let idle = client.connect();
    end.send(()).unwrap();
    wait(ended).unwrap();
    drop(idle);
    assert!(std::net::TcpStream::connect(client.address).is_err());
}
