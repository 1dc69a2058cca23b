//! Fresh sessions for cells continue from one prepared state.

use hatchery::{Hatchery, Limits, Outcome, Session};
use notebook::Prepared;
use notebook::guest::{self, Cell};
use serde_json::{Value, json};

use crate::server::Server;

/// Returns the text that a cell printed.
async fn printed(session: &Session, source: &str) -> String {
    let cell = Cell::next(source).job(&Limits::default());
    let outcome = session.run(cell).await.unwrap();
    assert!(outcome.is_success(), "{source}: {:?}", outcome.verdict);
    outcome.stdout_text()
}

#[tokio::test]
async fn a_fresh_session_costs_a_fraction_of_installing_everything() {
    let pool = Hatchery::builder().workers(1).start().await.unwrap();
    let (limits, prepared) = (Limits::default(), Prepared::default());
    let first = pool.session("first").await.unwrap();
    let installed: Outcome = first.run(guest::begin(&limits)).await.unwrap();
    for name in ["second", "third"] {
        let session = pool.session(name).await.unwrap();
        let job = prepared.first_job(&pool, &session, &limits).await;
        let started = session.run(job).await.unwrap();
        assert!(started.is_success(), "{:?}", started.verdict);
        let (took, whole) = (started.usage.cpu, installed.usage.cpu);
        assert!(took * 5 < whole, "{took:?} of {whole:?}");
        assert_eq!(printed(&session, "print(get_ipython().execution_count, Out)").await, "1 {}\n");
    }
    let names = pool.status().sessions.into_iter().map(|session| session.name);
    assert_eq!(
        names.filter(|name| name.contains("notebook")).count(),
        0,
        "the prepared one is closed"
    );
    pool.drain().await;
}

#[test]
fn fresh_sessions_share_nothing() {
    let source = "import os, random\nseen = (globals().get('seen', 0), len(In), os.listdir('.'), _dh)\n\
                  seen += (random.random(),); open('left', 'w').close(); print(repr(seen))";
    let seen = || {
        let answer = Server::shared().post("/run_jupyter", &json!({ "cells": [source] })).json();
        assert_eq!(answer["status"], "Success", "{answer}");
        answer["cells"][0]["stdout"].as_str().unwrap().to_owned()
    };
    let all = [seen(), seen(), seen()];
    for one in &all {
        assert!(one.starts_with("(0, 2, [], ['/workspace'], 0."), "{one}");
    }
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
    let made = json!({ "cwd": "/tmp" });
    let context: Value = Server::shared().post("/contexts", &made).json();
    let cell = json!({ "code": "_dh, __import__('os').getcwd()", "context_id": context["id"] });
    let lines = Server::shared().post("/execute", &cell).lines();
    assert_eq!(lines[1]["text"], "(['/tmp'], '/tmp')", "{lines:?}");
}
