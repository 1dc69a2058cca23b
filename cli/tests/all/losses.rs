//! Workers that end midway cost nobody else anything: in frames.

use serde_json::{Value, json};

use crate::serving::Server;

fn worker(status: &Value) -> u64 {
    status["value"]["workers"][0]["worker"].as_u64().unwrap_or(0)
}

#[test]
fn a_client_retires_a_worker_and_sessions_go_on() {
    let server = Server::start();
    let mut client = server.connect();
    client.session("a", json!("open"));
    client.value(Some("a"), "x = 1");
    for round in 2..=5 {
        let status = client.ask(json!({ "type": "status", "id": 1 }));
        for listed in status["value"]["workers"].as_array().unwrap() {
            let retire = json!({ "type": "retire", "id": 2, "worker": listed["worker"] });
            let answer = client.ask(retire);
            let is_starting = answer["problem"]["reason"] == "no_such_worker";
            assert!(answer["type"] == "done" || is_starting, "{answer}");
        }
        assert_eq!(client.value(Some("a"), "x += 1; x"), round);
    }
    let answer = client.ask(json!({ "type": "retire", "id": 3, "worker": 999 }));
    assert_eq!(answer["type"], "refused");
    assert_eq!(answer["problem"]["reason"], "no_such_worker", "{answer}");
}

#[test]
fn a_worker_that_ends_midway_loses_nothing_of_other_clients() {
    let server = Server::start();
    let (mut client, mut hostile, mut operator) =
        (server.connect(), server.connect(), server.connect());
    client.session("a", json!("open"));
    let before = worker(&operator.ask(json!({ "type": "status", "id": 1 })));
    for round in 1..=20 {
        let aborting = json!({ "code": "import os; os.abort()" });
        hostile.send(json!({ "type": "run", "id": round, "job": aborting }), &[]);
        let status = operator.ask(json!({ "type": "status", "id": 1 }));
        operator.ask(json!({ "type": "retire", "id": 2, "worker": worker(&status) }));
        assert_eq!(client.value(None, "6 * 7"), 42);
        assert_eq!(client.value(Some("a"), "x = globals().get('x', 0) + 1; x"), round);
        let outcome = hostile.receive().0;
        assert_eq!((&outcome["id"], &outcome["type"]), (&json!(round), &json!("outcome")));
        assert_eq!(outcome["result"]["success"], false, "{outcome}");
    }
    let after = worker(&operator.ask(json!({ "type": "status", "id": 1 })));
    assert!(after > before, "{after} is {before}");
}
