//! Asyncio tasks in sessions: they live from job to job, on one loop, wherever the state goes.

use hatchery::{Job, Outcome, Session};
use serde_json::{Value, json};

use crate::support::{exception, run, value, with_pool};

const BEGIN: &str = "import asyncio\n\
                     async def work(seen, seconds):\n    \
                         for step in range(3):\n        \
                             seen.append(step)\n        \
                             await asyncio.sleep(seconds)\n    \
                         return 'done'\n\
                     seen = []\n\
                     task = asyncio.create_task(work(seen, 0.05))\n\
                     loop = asyncio.get_running_loop()";

async fn ask(session: &Session, source: &str) -> Value {
    value(&session.run(Job::code(source)).await.expect("the session is open"))
}

async fn begin(session: &Session, source: &str) {
    let outcome = session.run(Job::code(source)).await.expect("the session is open");
    assert!(outcome.is_success(), "{outcome:?}");
}

fn said(outcome: &Outcome) -> String {
    outcome.stderr_text()
}

#[test]
fn a_task_of_one_job_is_awaited_in_the_next() {
    with_pool(|pool| async {
        let session = pool.session("tasks").await.unwrap();
        begin(&session, BEGIN).await;
        // It had begun by the end of the job that created it.
        assert_eq!(ask(&session, "[seen, task.done()]").await, json!([[0], false]));
        let awaited = "[await task, seen, loop is asyncio.get_running_loop()]";
        assert_eq!(ask(&session, awaited).await, json!(["done", [0, 1, 2], true]));
        session.close();
    });
}

/// Tasks run while a job awaits something else, and before and after each job as far as they can.
#[test]
fn tasks_run_while_others_are_awaited() {
    with_pool(|pool| async {
        let session = pool.session("goes on").await.unwrap();
        begin(&session, BEGIN).await;
        assert_eq!(ask(&session, "await asyncio.sleep(0.4)\ntask.result()").await, json!("done"));
        let due = "seen.clear()\ntask = asyncio.ensure_future(work(seen, 0.001))\n\
                   import time\ntime.sleep(0.01)";
        begin(&session, due).await;
        for _ in 0..3 {
            begin(&session, "time.sleep(0.01)").await;
        }
        assert_eq!(ask(&session, "[seen, task.done()]").await, json!([[0, 1, 2], true]));
        session.close();
    });
}

#[test]
fn tasks_move_with_the_state() {
    with_pool(|pool| async {
        let session = pool.session("trunk of tasks").await.unwrap();
        begin(&session, BEGIN).await;
        let awaited = "[await task, len(seen)]";
        let expected = json!(["done", 3]);

        let checkpoint = session.checkpoint().await.unwrap();
        let fork = session.fork("branch of tasks").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session");
        session.save(&path).await.unwrap();
        assert_eq!(ask(&session, awaited).await, expected);
        assert_eq!(ask(&fork, awaited).await, expected);
        let revived = pool.revive("revived with tasks", &path).await.unwrap();
        assert_eq!(ask(&revived, awaited).await, expected);
        session.restore(&checkpoint).await.unwrap();
        assert_eq!(ask(&session, "task.done()").await, json!(false));
        assert_eq!(ask(&session, awaited).await, expected);
        for one in [session, fork, revived] {
            one.close();
        }
    });
}

#[test]
fn a_separate_loop_runs_in_a_session_as_well() {
    with_pool(|pool| async {
        let session = pool.session("own loop").await.unwrap();
        begin(&session, BEGIN).await;
        let own = "async def main():\n    return asyncio.get_running_loop() is not loop\n\
                   [asyncio.run(main()), asyncio.new_event_loop().run_until_complete(main())]";
        assert_eq!(ask(&session, own).await, json!([true, true]));
        assert_eq!(ask(&session, "await task").await, json!("done"));
        let nested = "async def outer():\n    asyncio.run(main())\nawait outer()";
        let outcome = session.run(Job::code(nested)).await.unwrap();
        let message = &exception(&outcome).message;
        assert!(message.contains("cannot be called from a running event loop"), "{message}");
        session.close();
    });
}

/// In an isolated job asyncio behaves as in CPython; its warnings name none of Hatchery's files.
#[test]
fn an_isolated_job_has_no_loop_before_it_awaits() {
    let outcome = run("import asyncio\nasync def work(): pass\nasyncio.create_task(work())");
    assert_eq!(exception(&outcome).message, "no running event loop");
    let said = said(&outcome);
    assert!(said.contains("RuntimeWarning: coroutine 'work' was never awaited"), "{said}");
    assert!(!said.contains("<hatchery"), "{said}");
    let source = "import warnings\n\
                  with warnings.catch_warnings(record=True) as seen:\n    \
                      warnings.simplefilter('always')\n    \
                      warnings.warn('far', stacklevel=2)\n    \
                      warnings.warn('here')\n\
                  [(one.filename, one.lineno) for one in seen]";
    assert_eq!(value(&run(source)), json!([["<sys>", 0], ["<job>", 5]]));
}
