//! Plain host functions that block: the threads that they take, also when abandoned, and what
//! remains for other calls.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use hatchery::{HostError, HostFunction, Job, LimitKind, Limits, Outcome};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::support::{Shared, builder, calm, next_output, value};

#[derive(serde::Deserialize)]
struct Block {
    key: String,
}

/// What happened to the calls of `block` with one key.
#[derive(Default)]
struct Blocked {
    running: usize,
    most: usize,
    is_open: bool,
}

static BLOCKED: LazyLock<watch::Sender<BTreeMap<String, Blocked>>> =
    LazyLock::new(|| watch::Sender::new(BTreeMap::new()));

/// Blocks its thread until the test opens it.
fn block(Block { key }: Block) -> Result<(), HostError> {
    BLOCKED.send_modify(|all| {
        let blocked = all.entry(key.clone()).or_default();
        blocked.running += 1;
        blocked.most = blocked.most.max(blocked.running);
    });
    Handle::current().block_on(blocked(&key, |blocked| blocked.is_open));
    BLOCKED.send_modify(|all| {
        let blocked = all.entry(key).or_default();
        blocked.running -= 1;
    });
    Ok(())
}

/// Waits for a condition on the calls of `block` with a key.
async fn blocked(key: &str, is_so: impl Fn(&Blocked) -> bool) {
    let mut changes = BLOCKED.subscribe();
    let found = changes.wait_for(|all| all.get(key).is_some_and(&is_so)).await;
    drop(found.expect("the entry is never removed"));
}

/// Returns how many calls of `block` with a key run, and the most that ran at once.
fn running_and_most(key: &str) -> (usize, usize) {
    BLOCKED.borrow().get(key).map_or((0, 0), |blocked| (blocked.running, blocked.most))
}

/// Lets the calls of `block` with a key end, and waits until they have.
async fn open(key: &str) {
    BLOCKED.send_modify(|all| all.entry(key.to_owned()).or_default().is_open = true);
    blocked(key, |blocked| blocked.running == 0).await;
}

static POOL: LazyLock<Shared> = LazyLock::new(|| {
    let functions = [
        HostFunction::sync("block", block).parameter("key", "str"),
        HostFunction::sync("block_shortly", block)
            .parameter("key", "str")
            .timeout(Duration::from_millis(20)),
        HostFunction::future("begun", async |Block { key }: Block| {
            blocked(&key, |blocked| blocked.running == 1).await;
            Ok::<_, HostError>(())
        })
        .parameter("key", "str"),
        HostFunction::sync("answer", |(): ()| Ok::<_, HostError>(42)).no_parameters(),
        HostFunction::future("never", async |(): ()| {
            std::future::pending::<()>().await;
            Ok::<_, HostError>(())
        })
        .no_parameters(),
    ];
    let builder = builder().preload(["asyncio"]);
    Shared::start(functions.into_iter().fold(builder, hatchery::Builder::function))
});

fn run(job: Job) -> Outcome {
    POOL.with(|pool| async { pool.run(job).await.expect("the queue isn't full") })
}

/// Returns a job whose program has `host`, `hatchery` and `asyncio`.
fn job(source: &str) -> Job {
    Job::code(format!("import asyncio, hatchery\nfrom hatchery import host\n{source}"))
}

/// A closure that has started can't be ended, so it counts until it ends by itself.
#[test]
fn an_abandoned_closure_is_in_flight_until_it_ends() {
    let limits = Limits { functions_in_flight: 1, ..calm() };
    for (key, attempt) in [
        ("cancelled", "await asyncio.wait_for(host.block.aio(key), 0.02)"),
        ("out of the host's time", "await host.block_shortly.aio(key)"),
        ("out of the host's time in a plain call", "host.block_shortly(key)"),
    ] {
        // It abandons calls, and others are refused, until the test opens the function.
        let source = format!(
            "key, refused = {key:?}, None\n\
             async def main():\n\
             \x20 global refused\n\
             \x20 while True:\n\
             \x20  try: return {attempt}\n\
             \x20  except TimeoutError: pass\n\
             \x20  except hatchery.HostLimitError as e:\n\
             \x20   refused = str(e)\n\
             \x20   print('refused', flush=True)\n\
             asyncio.run(main())\n\
             [refused, host.answer()]"
        );
        let job = job(&source).limits(limits.clone());
        POOL.with(|pool| async move {
            let ticket = pool.submit(job).await.unwrap();
            blocked(key, |blocked| blocked.running == 1).await;
            assert!(next_output(&mut ticket.events()).await.is_some(), "{key}");
            open(key).await;
            let outcome = ticket.await;
            let result = value(&outcome);
            let refused = result[0].as_str().unwrap();
            assert!(refused.contains("functions_in_flight limit of 1"), "{key}: {refused}");
            assert!(refused.ends_with("calls that were given up still run"), "{key}: {refused}");
            assert_eq!(result[1], json!(42), "{key}");
            assert_eq!(outcome.limits_met[0].limit, LimitKind::FunctionsInFlight, "{key}");
            blocked(key, |blocked| blocked.running == 0).await;
            assert_eq!(running_and_most(key), (0, 1), "{key}");
        });
    }
}

/// An abandoned future is dropped and makes room for the next one.
#[test]
fn an_abandoned_future_makes_room() {
    let source = "async def main():\n\
                  \x20 for _ in range(20):\n\
                  \x20  try: await asyncio.wait_for(host.never.aio(), 0.001)\n\
                  \x20  except TimeoutError: pass\n\
                  \x20 return await host.answer.aio()\n\
                  asyncio.run(main())";
    let limits = Limits { functions_in_flight: 1, ..calm() };
    // On a busy machine the dropped one may still be in the way, so the best of three counts.
    assert!((0..3).any(|_| {
        let outcome = run(job(source).limits(limits.clone()));
        println!("{:?}: {:?}", outcome.verdict, outcome.limits_met);
        outcome.limits_met.is_empty() && value(&outcome) == json!(42)
    }));
}

#[test]
fn a_run_ends_without_waiting_for_abandoned_closures() {
    let key = "left behind";
    let source = format!(
        "async def main():\n\
         \x20 task = asyncio.ensure_future(host.block.aio({key:?}))\n\
         \x20 await host.begun.aio({key:?})\n\
         \x20 task.cancel()\n\
         \x20 return 'over'\n\
         asyncio.run(main())"
    );
    assert_eq!(value(&run(job(&source))), json!("over"));
    assert_eq!(running_and_most(key), (1, 1));
    // It delays no other run.
    let limits = Limits { functions_in_flight: 1, ..calm() };
    assert_eq!(value(&run(job("host.answer()").limits(limits))), json!(42));
    POOL.with(|_| open(key));
}

/// A job gets at most half of the threads for plain functions, however many it calls.
#[test]
fn a_job_with_many_slow_functions_leaves_threads_to_others() {
    POOL.with(|pool| async move {
        let greedy = pool.session("calls many at once").await.unwrap();
        let modest = pool.session("calls one").await.unwrap();
        let source = "async def all(): return await asyncio.gather(*[host.block.aio('greedy') for _ in range(100)])\n\
                      len(asyncio.run(all()))";
        let ticket = greedy.submit(job(source)).await.unwrap();
        blocked("greedy", |blocked| blocked.running == 32).await;
        let outcome = modest.run(job("host.answer()")).await.unwrap();
        assert_eq!(value(&outcome), json!(42));
        assert_eq!(running_and_most("greedy"), (32, 32));
        open("greedy").await;
        assert_eq!(value(&ticket.await), json!(100));
        assert_eq!(running_and_most("greedy"), (0, 32));
        greedy.close();
        modest.close();
    });
}
