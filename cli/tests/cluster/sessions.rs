//! Sessions of a cluster: turns in order, none missing, none twice in the state, although workers die,
//! stopped or sent away.
//!
//! `HATCHERY_CLUSTER_SESSIONS=50 HATCHERY_CLUSTER_TURNS=100 HATCHERY_CLUSTER_SESSION_KILLS=30` is the
//! size for the record.

use std::time::{Duration, Instant};

use cluster::{Client, EventKind, JobResult, Session, Ticket, Wants};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::commands::{Files, PATIENCE, Running};
use crate::kills::{dead_letters, pause, size};
use crate::library::{client, runtime};
use crate::server::{ROUND, Server};
use test_support::dice::Dice;

const SESSIONS: usize = 6;
const TURNS: usize = 15;
const KILLS: usize = 4;
const WORKERS: usize = 3;

/// A turn that adds its number to a list, and returns the list.
fn turn(number: usize, then: &str) -> String {
    format!("log = [*globals().get('log', []), {number}]\n{then}\nlog")
}

fn numbers(result: &Value) -> Vec<usize> {
    let log = result["value"].as_array().unwrap_or_else(|| panic!("{result}"));
    log.iter().map(|number| number.as_u64().unwrap() as usize).collect()
}

fn worker(server: &Server, at: usize) -> Running {
    Running::worker(server, &format!("worker-{at}"), &[])
}

#[test]
fn turns_are_in_the_state_once_and_in_order_although_workers_are_killed() {
    let Some(mut server) = Server::start() else { return };
    let sessions = size("HATCHERY_CLUSTER_SESSIONS", SESSIONS);
    let turns = size("HATCHERY_CLUSTER_TURNS", TURNS);
    let kills = size("HATCHERY_CLUSTER_SESSION_KILLS", KILLS);
    let seed = size("HATCHERY_CLUSTER_SEED", 7);
    println!("{sessions} sessions of {turns} turns, {kills} kills, seed {seed}");
    let line = |at: usize| {
        let (session, number) = (at % sessions, at / sessions);
        let code = turn(number, "import time; time.sleep(0.1)");
        json!({ "id": [session, number], "session": format!("s{session}"), "code": code })
            .to_string()
    };
    let lines: Vec<String> = (0..sessions * turns).map(line).collect();
    let files = Files::new(&lines);
    let mut workers: Vec<Running> = (0..WORKERS).map(|at| worker(&server, at)).collect();
    let submit =
        |server: &Server| Running::submit(server, &files.jobs(), &files.out("out"), &["--resume"]);
    let begin = Instant::now();
    let mut submitting = submit(&server);
    let mut dice = Dice(seed as u64);
    let mut next = begin + pause(&mut dice);
    let mut left = kills;
    let (status, said) = loop {
        if left > 0 && Instant::now() >= next {
            left -= 1;
            match dice.below(8) {
                0 => {
                    server.kill();
                    server.restart();
                }
                1 => {
                    submitting.kill();
                    submitting = submit(&server);
                }
                at => {
                    let at = at as usize % WORKERS;
                    workers[at].kill();
                    workers[at] = worker(&server, at);
                }
            }
            next = Instant::now() + pause(&mut dice);
        }
        if !submitting.runs() {
            break submitting.end();
        }
        std::thread::sleep(ROUND);
    };
    println!("{} of {kills} kills; {:.1} s", kills - left, begin.elapsed().as_secs_f64());
    assert!(status.success(), "{said}");
    let results = files.results("out");
    assert_eq!(results.len(), sessions * turns, "{said}");
    for result in &results {
        let number = result["id"][1].as_u64().unwrap() as usize;
        assert_eq!(numbers(result), (0..=number).collect::<Vec<_>>(), "{result}");
        assert_eq!(result["session"]["turn"], number + 1, "{result}");
    }
    // One for each session, and of each kill at most those that its two slots were storing.
    let states = states(&server);
    assert!((sessions..=sessions + 3 * kills).contains(&states), "{states}");
    assert_eq!(server.subjects("hatchery-default-turns", ">"), [""; 0]);
}

/// Returns how many states the server keeps.
fn states(server: &Server) -> usize {
    server.subjects("OBJ_hatchery-default-states", "$O.hatchery-default-states.M.>").len()
}

/// Submits a turn, and returns it with the name of the worker that has begun to run it.
async fn begun(session: &Session, code: String) -> (Ticket, String) {
    let wants = Wants::default().events();
    let mut ticket = session.submit_wanting(job(&code), wants).await.unwrap();
    let mut events = ticket.events().unwrap();
    loop {
        let event = timeout(PATIENCE, events.next()).await.unwrap().unwrap();
        if let EventKind::Output { .. } = event.kind {
            return (ticket, event.worker);
        }
    }
}

fn job(code: &str) -> wire::Job {
    wire::Job { timeout: Some(Duration::from_secs(600)), ..wire::Job::code(code) }
}

async fn ended(ticket: Ticket) -> JobResult {
    timeout(PATIENCE, ticket.into_future()).await.unwrap().unwrap()
}

async fn ran(session: &Session, code: &str) -> JobResult {
    timeout(PATIENCE, session.run(&job(code))).await.unwrap().unwrap()
}

async fn session_of(client: &Client) -> Session {
    client.session("s").unwrap()
}

#[test]
fn an_owner_that_was_stopped_for_too_long_is_fenced() {
    let Some(server) = Server::start() else { return };
    let mut workers = ["one", "two"].map(|name| Running::ready_worker(&server, name, &[]));
    runtime().block_on(async {
        let client = client(&server.url()).await;
        let session = session_of(&client).await;
        let first = ran(&session, &turn(1, "")).await;
        assert_eq!(first.json()["session"], json!({ "name": "s", "turn": 1 }));
        let slow = "print('begun', flush=True)\nimport time; time.sleep(2)";
        let (ticket, owner) = begun(&session, turn(2, slow)).await;
        let at = usize::from(owner == "two");
        workers[at].pause();
        // The other one takes over and runs the turn again, from the state before it.
        let result = ended(ticket).await;
        assert_ne!(result.worker(), Some(owner.as_str()));
        assert_eq!(numbers(&Value::Object(result.json().clone())), [1, 2]);
        // It ends the turn that it began, and finds that nobody waits for it.
        workers[at].resume();
        for number in 3..8 {
            let result = ran(&session, &turn(number, "")).await;
            let expected: Vec<usize> = (1..=number).collect();
            assert_eq!(numbers(&Value::Object(result.json().clone())), expected);
            assert_eq!(result.json()["session"]["turn"], number);
        }
        // It is none the worse for it.
        workers[1 - at].kill();
        let result = ran(&session, &turn(8, "")).await;
        assert_eq!(result.worker(), Some(owner.as_str()));
        assert_eq!(numbers(&Value::Object(result.json().clone())), (1..=8).collect::<Vec<_>>());
    });
}

#[test]
fn a_session_goes_on_where_its_worker_has_left_it() {
    let Some(server) = Server::start() else { return };
    let mut first = Running::ready_worker(&server, "first", &[]);
    runtime().block_on(async {
        let client = client(&server.url()).await;
        let session = session_of(&client).await;
        let set = "import numpy\nx = numpy.arange(5)\nopen('f', 'w').write('text')";
        assert!(ran(&session, set).await.is_success());
        let others = client.session("s").unwrap().tenant("t").unwrap();
        assert!(!ran(&others, "x").await.is_success());
        first.terminate();
        first.says("2 done, 0 given back");
        let _second = Running::ready_worker(&server, "second", &[]);
        let read = ran(&session, "int(x.sum()), open('f').read()").await;
        assert_eq!((&read.json()["value"], read.worker()), (&json!([10, "text"]), Some("second")));
        // A turn that fails has happened, one that is stopped by force hasn't.
        assert!(!ran(&session, "x = 7\n1 / 0").await.is_success());
        let left = ran(&session, "x = 8\nimport os; os._exit(3)").await;
        assert_eq!(left.json()["session_restored"], true, "{:?}", left.json());
        let read = ran(&session, "x").await;
        assert_eq!(
            (&read.json()["value"], &read.json()["session"]["turn"]),
            (&7.into(), &5.into())
        );
        session.forget().await.unwrap();
        let fresh = ran(&session, "'x' in globals()").await;
        assert_eq!(
            (&fresh.json()["value"], &fresh.json()["session"]["turn"]),
            (&false.into(), &1.into())
        );
        assert_eq!(states(&server), 2);
    });
}

#[test]
fn a_turn_that_kills_is_given_up_and_the_next_one_runs() {
    let Some(server) = Server::start() else { return };
    let mut workers: Vec<Running> = (0..WORKERS).map(|at| worker(&server, at)).collect();
    runtime().block_on(async {
        let client = client(&server.url()).await;
        let session = session_of(&client).await;
        ran(&session, &turn(1, "")).await;
        let poison = turn(2, "print('poison', flush=True)\nwhile True: pass");
        let wants = Wants::default().events();
        let mut ticket = session.submit_wanting(job(&poison), wants).await.unwrap();
        let next = session.submit(&job(&turn(3, ""))).await.unwrap();
        let mut events = ticket.events().unwrap();
        let result = loop {
            tokio::select! {
                result = ticket.result() => break result.unwrap(),
                Some(event) = events.next() => {
                    if let EventKind::Output { .. } = event.kind {
                        let at: usize = event.worker.rsplit('-').next().unwrap().parse().unwrap();
                        workers[at].kill();
                        workers[at] = worker(&server, at);
                    }
                }
            }
        };
        assert!(result.is_dead_letter(), "{:?}", result.json());
        assert_eq!(result.json()["error"]["history"][2]["alone"], true);
        let next = ended(next).await;
        assert_eq!(numbers(&Value::Object(next.json().clone())), [1, 3]);
        assert_eq!(dead_letters(&server), [ticket.key().to_string()]);
    });
}

#[test]
fn turns_can_be_cancelled_while_they_wait_and_while_they_run() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        let client = client(&server.url()).await;
        let session = session_of(&client).await;
        let never = session.submit(&job(&turn(1, ""))).await.unwrap();
        let second = session.submit(&job(&turn(2, ""))).await.unwrap();
        assert!(never.cancel().await.unwrap());
        assert_eq!(ended(never).await.json()["status"], "cancelled");
        let _worker = Running::ready_worker(&server, "one", &[]);
        assert_eq!(numbers(&Value::Object(ended(second).await.json().clone())), [2]);
        let endless = turn(3, "print('begun', flush=True)\nwhile True: pass");
        let (ticket, _) = begun(&session, endless).await;
        assert!(ticket.cancel().await.unwrap());
        assert_eq!(ended(ticket).await.json()["status"], "cancelled");
        // The session lives on.
        let log = numbers(&Value::Object(ran(&session, &turn(4, "")).await.json().clone()));
        assert!(log == [2, 3, 4] || log == [2, 4], "{log:?}");
    });
}

#[test]
fn lines_that_cannot_be_turns_say_why() {
    let Some(server) = Server::start() else { return };
    let files = Files::new(&[
        json!({ "id": 1, "code": "x = 1", "session": 5 }).to_string(),
        json!({ "id": 2, "code": "x = 2", "session": "" }).to_string(),
        json!({ "id": 3, "code": "x = 3", "session": "s", "python": "2.7" }).to_string(),
        json!({ "id": 4, "code": "x = 4", "session": "s", "tenant": "a b" }).to_string(),
        json!({ "id": 5, "code": "x", "session": "s", "tenant": "a b" }).to_string(),
    ]);
    let _worker = Running::ready_worker(&server, "one", &[]);
    let (_, said) = Running::submit(&server, &files.jobs(), &files.out("out"), &[]).end();
    let results = files.results("out");
    assert_eq!(results.len(), 5, "{said}");
    let message = |at: usize| results[at]["error"]["message"].as_str().unwrap().to_owned();
    assert!(message(0).contains("`session` must be a text"), "{results:?}");
    assert!(message(1).contains("can't be the name of a session"), "{results:?}");
    assert!(message(2).contains("2.7"), "{results:?}");
    assert_eq!(results[4]["value"], 4, "{results:?}");
    assert_eq!(results[4]["session"], json!({ "name": "s", "turn": 2 }));
}
