//! State from job to job, and its end.

use std::time::Duration;

use hatchery::{Error, Job, Limits, Outcome, Refusal, Session, Verdict};
use serde_json::json;

use crate::support::{builder, calm, exception, next_output, value, with_pool};

#[test]
fn a_session_keeps_its_variables_and_its_files() {
    with_pool(|pool| async {
        let session = pool.session("keeps").await.unwrap();
        assert!(session.run(Job::code("x = 42")).await.unwrap().is_success());
        let doubled = session.run(Job::code("print(x * 2)")).await.unwrap();
        assert_eq!(doubled.stdout_text(), "84\n");
        session.run(Job::code("open('a', 'w').write('kept')")).await.unwrap();
        let read = session.run(Job::code("open('a').read()")).await.unwrap();
        assert_eq!(value(&read), json!("kept"));
        assert!(read.files.is_empty(), "only this job's changes are reported");
        session.close();
    });
}

#[test]
fn sessions_and_isolated_jobs_do_not_see_each_other() {
    with_pool(|pool| async {
        let (first, second) =
            (pool.session("one").await.unwrap(), pool.session("two").await.unwrap());
        first.run(Job::code("secret = 1; open('f', 'w').close()")).await.unwrap();
        let probe = "import os\n('secret' in globals(), os.listdir('.'))";
        let seen = second.run(Job::code(probe)).await.unwrap();
        assert_eq!(value(&seen), json!([false, []]));
        let failed = second.run(Job::code("secret")).await.unwrap();
        assert_eq!(exception(&failed).type_name, "NameError");
        let seen = pool.run(Job::code(probe)).await.unwrap();
        assert_eq!(value(&seen), json!([false, []]));
        first.close();
        second.close();
    });
}

#[test]
fn isolated_jobs_start_fresh_every_time() {
    with_pool(|pool| async {
        for _ in 0..4 {
            let source = "import builtins, os\nseen = [hasattr(builtins, 'mark'), os.listdir('/tmp')]\n\
                          builtins.mark = 1; open('/tmp/mark', 'w').close()\nseen";
            let outcome = pool.run(Job::code(source)).await.unwrap();
            assert_eq!(value(&outcome), json!([false, []]));
        }
    });
}

#[test]
fn jobs_of_a_session_run_in_the_order_of_their_submission() {
    with_pool(|pool| async {
        let session = pool.session("order").await.unwrap();
        let mut tickets = vec![session.submit(Job::code("seen = []")).await.unwrap()];
        for number in 0..10 {
            tickets
                .push(session.submit(Job::code(format!("seen.append({number})"))).await.unwrap());
        }
        for ticket in tickets {
            assert!(ticket.await.is_success());
        }
        let seen = session.run(Job::code("seen")).await.unwrap();
        assert_eq!(value(&seen), json!((0..10).collect::<Vec<_>>()));
        session.close();
    });
}

#[test]
fn an_exception_leaves_the_session_usable() {
    with_pool(|pool| async {
        let session = pool.session("raises").await.unwrap();
        session.run(Job::code("x = 1")).await.unwrap();
        let failed = session.run(Job::code("x = 2\n1/0")).await.unwrap();
        assert_eq!(exception(&failed).type_name, "ZeroDivisionError");
        let left = session.run(Job::code("import sys; sys.exit(x)")).await.unwrap();
        assert!(matches!(left.verdict, Verdict::Exited { code: 2, .. }), "{left:?}");
        assert_eq!(value(&session.run(Job::code("x")).await.unwrap()), json!(2));
        session.close();
    });
}

#[test]
fn damage_to_its_environment_costs_a_job_no_session() {
    with_pool(|pool| async {
        let session = pool.session("surroundings").await.unwrap();
        for source in [
            "open(0).read()",
            "import sys; del sys.argv",
            "import sys; sys.setrecursionlimit(8)",
            "import sys; sys.stdout = sys.stderr = None",
        ] {
            let outcome = session.run(Job::code(source)).await.unwrap();
            assert!(!matches!(outcome.verdict, Verdict::SandboxFailed(_)), "{source}: {outcome:?}");
            let next = session.run(Job::code("7")).await.unwrap();
            assert_eq!(value(&next), json!(7), "after {source}");
        }
        session.close();
    });
}

#[test]
fn what_a_turn_sets_of_its_surroundings_stays() {
    with_pool(|pool| async {
        let session = pool.session("settings").await.unwrap();
        let source = "import io, os, sys\nsys.argv = ['x', '-n']\nos.environ['SET'] = '1'\n\
                      sys.stdin = io.StringIO('a\\nb\\n')\ninput()";
        session.run(Job::code(source).named("<input-1>")).await.unwrap();
        let seen = "[sys.argv, os.environ.get('SET'), input()]";
        let kept = session.run(Job::code(seen).named("<input-2>")).await.unwrap();
        assert_eq!(value(&kept), json!([["x", "-n"], "1", "b"]));
        let given = Job::code(seen).args(["y"]).env("SET", "2").stdin("own\n");
        let given = session.run(given).await.unwrap();
        assert_eq!(value(&given), json!([["", "y"], "2", "own"]));
        let after = session.run(Job::code("[sys.argv, os.environ['SET']]")).await.unwrap();
        assert_eq!(value(&after), json!([[""], "1"]));
        session.close();
    });
}

/// Interrupts a turn when it has printed.
async fn interrupted(session: &Session, source: &str) -> Outcome {
    let mut ticket = session.submit(Job::code(source)).await.expect("the job is admitted");
    assert!(next_output(&mut ticket.events()).await.is_some());
    ticket.interrupt();
    ticket.outcome().await
}

#[test]
fn a_session_lives_on_after_an_interrupt() {
    with_pool(|pool| async {
        let session = pool.session("interrupted").await.unwrap();
        session.run(Job::code("x = 1")).await.unwrap();
        for source in [
            "print('begun')\nwhile True: pass",
            "import time\nprint('begun')\ntime.sleep(10**6)",
            "print('begun')\nsum(1 for _ in iter(int, 1))",
            "import select\nprint('begun')\nselect.select([], [], [], 10**6)",
            "import threading\nprint('begun')\nthreading.Event().wait(10**6)",
            "import queue\nprint('begun')\nqueue.SimpleQueue().get(timeout=10**6)",
        ] {
            let mut outcome = interrupted(&session, source).await;
            // In any CPython, an interrupt within `Condition.wait` that comes before its `try` makes
            // the `with` around it release a lock that isn't held.
            while source.contains("Event") && exception(&outcome).type_name == "RuntimeError" {
                assert!(exception(&outcome).traceback.contains("KeyboardInterrupt"), "{outcome:?}");
                outcome = interrupted(&session, source).await;
            }
            assert_eq!(exception(&outcome).type_name, "KeyboardInterrupt", "{source}");
            let seen = session.run(Job::code("print(x)")).await.unwrap();
            assert_eq!(seen.stdout_text(), "1\n", "after {source}");
        }
        session.close();
    });
}

#[test]
fn a_program_may_catch_its_interrupt_and_finish() {
    with_pool(|pool| async {
        let session = pool.session("catches").await.unwrap();
        let source = "try:\n    print('begun')\n    while True: pass\n\
                      except KeyboardInterrupt:\n    result = 'saved'\nresult";
        let mut ticket = session.submit(Job::code(source)).await.unwrap();
        assert!(next_output(&mut ticket.events()).await.is_some());
        ticket.interrupt();
        assert_eq!(value(&ticket.outcome().await), json!("saved"));
        assert_eq!(value(&session.run(Job::code("result")).await.unwrap()), json!("saved"));
        session.close();
    });
}

#[test]
fn a_job_that_waits_is_cancelled_by_an_interrupt() {
    with_pool(|pool| async {
        let session = pool.session("queued").await.unwrap();
        let mut first =
            session.submit(Job::code("print('begun')\nwhile True: pass")).await.unwrap();
        let second = session.submit(Job::code("x = 2")).await.unwrap();
        assert!(next_output(&mut first.events()).await.is_some());
        second.interrupt();
        assert_eq!(second.await.verdict, Verdict::Cancelled);
        first.cancel();
        let outcome = first.outcome().await;
        assert_eq!(outcome.verdict, Verdict::Cancelled);
        assert_eq!(outcome.interrupted_at.unwrap().type_name, "KeyboardInterrupt");
        assert_eq!(value(&session.run(Job::code("'x' in globals()")).await.unwrap()), json!(false));
        session.close();
    });
}

#[test]
fn a_limit_on_time_costs_no_session() {
    with_pool(|pool| async {
        let session = pool.session("loops").await.unwrap();
        session.run(Job::code("x = 1")).await.unwrap();
        let endless = Job::code("while True: pass").timeout(Duration::from_millis(200));
        let ended = session.run(endless).await.unwrap();
        assert!(ended.is_timeout(), "{ended:?}");
        let place = ended.interrupted_at.unwrap();
        assert!(place.traceback.contains("line 1, in <module>"), "{place:?}");
        assert_eq!(value(&session.run(Job::code("x")).await.unwrap()), json!(1));
        session.close();
    });
}

#[test]
fn a_turn_that_is_stopped_by_force_is_undone_and_costs_no_session() {
    let limits = Limits {
        wall_time: Duration::from_millis(300),
        grace: Duration::from_millis(100),
        ..calm()
    };
    let ends = [
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "sum(range(10**13))",
        "import os; os._exit(3)",
        "import os; os.abort()",
    ];
    with_pool(|pool| async {
        let session = pool.session("ends").await.unwrap();
        session.run(Job::code("x = 1; open('kept', 'w').write('1')")).await.unwrap();
        for (turn, end) in ends.iter().enumerate() {
            let changes = "x = 2; y = 3; open('kept', 'w').write('2'); open('new', 'w').close()";
            let job = Job::code(format!("{changes}\n{end}")).limits(limits.clone());
            let ended = session.run(job).await.unwrap();
            assert!(ended.session_restored, "{end}: {ended:?}");
            let seen =
                "x += 1; import os; [x, 'y' in globals(), open('kept').read(), os.listdir()]";
            let seen = value(&session.run(Job::code(seen)).await.unwrap());
            assert_eq!(seen, json!([turn + 2, false, "1", ["kept"]]), "{end}");
        }
        let failed = session.run(Job::code("x = 0\n1 / 0")).await.unwrap();
        assert!(!failed.session_restored, "the program ended by itself: {failed:?}");
        assert_eq!(value(&session.run(Job::code("x")).await.unwrap()), json!(0));
        session.close();
    });
}

/// Otherwise earlier random numbers would be drawn again: names, tokens, samples.
#[test]
fn a_session_that_rolls_back_draws_different_random_numbers() {
    with_pool(|pool| async {
        let session = pool.session("draws").await.unwrap();
        session.run(Job::code("import random; random.seed()")).await.unwrap();
        let draw = "print(random.getrandbits(64), flush=True)";
        let undone =
            session.run(Job::code(format!("{draw}; import os; os._exit(0)"))).await.unwrap();
        assert!(undone.session_restored && !undone.is_success(), "{undone:?}");
        let again = session.run(Job::code(draw)).await.unwrap();
        assert!(again.is_success() && again.stdout != undone.stdout, "{again:?}");
        session.close();
    });
}

#[test]
fn without_copies_a_session_is_lost_when_its_turn_is_stopped_by_force() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let pool = builder().workers(1).rollback_bytes(0).start().await.unwrap();
        let session = pool.session("ends").await.unwrap();
        session.run(Job::code("x = 1")).await.unwrap();
        let ended = session.run(Job::code("import os; os._exit(3)")).await.unwrap();
        assert!(!ended.session_restored, "{ended:?}");
        let refused = session.run(Job::code("x")).await.unwrap_err();
        assert!(matches!(refused, Error::Refused(Refusal::SessionGone(..))), "{refused}");
        let fresh = pool.session("ends").await.unwrap();
        let seen = fresh.run(Job::code("'x' in globals()")).await.unwrap();
        assert_eq!(value(&seen), json!(false));
        pool.abort().await;
    });
}

#[test]
fn an_interrupt_ends_a_sleep_that_begins_after_it() {
    with_pool(|pool| async {
        let session = pool.session("sleeps").await.unwrap();
        let source = "import time\nprint('begun')\nlist(map(time.sleep, [0] * 200_000 + [10**6]))";
        let limits = Limits { grace: Duration::from_secs(60), ..calm() };
        let mut ticket = session.submit(Job::code(source).limits(limits)).await.unwrap();
        assert!(next_output(&mut ticket.events()).await.is_some());
        ticket.interrupt();
        assert_eq!(exception(&ticket.outcome().await).type_name, "KeyboardInterrupt");
        session.close();
    });
}

#[test]
fn a_session_without_memory_says_so_and_is_not_blamed_on_the_sandbox() {
    with_pool(|pool| async {
        let session = pool.session("full").await.unwrap();
        let limits = Limits { memory_bytes: 128 << 20, ..calm() };
        let fill = "kept = []\nsize = 1 << 20\nwhile size:\n    try: kept.append(bytes(size))\n\
                    \x20   except MemoryError: size >>= 1";
        // The build's own C code may crash without memory; that also ends the program.
        for source in [fill, "7"] {
            let Ok(outcome) = session.run(Job::code(source).limits(limits.clone())).await else {
                break;
            };
            let is_ours = matches!(outcome.verdict, Verdict::SandboxFailed(_));
            assert!(!is_ours, "{source}: {outcome:?}");
        }
        session.close();
    });
}

/// Right answers between interrupts, many times on one interpreter.
#[test]
fn interrupts_and_turns_alternate() {
    with_pool(|pool| async {
        let session = pool.session("alternates").await.unwrap();
        session.run(Job::code("x = 0")).await.unwrap();
        for round in 1..=200 {
            let mut ticket = session.submit(Job::code("print(x)\nwhile True: pass")).await.unwrap();
            assert!(next_output(&mut ticket.events()).await.is_some());
            ticket.interrupt();
            let outcome = ticket.outcome().await;
            assert_eq!(exception(&outcome).type_name, "KeyboardInterrupt");
            let next = session.run(Job::code("x += 1; x")).await.unwrap();
            assert_eq!(value(&next), json!(round));
        }
        session.close();
    });
}
