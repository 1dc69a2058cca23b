//! Session states that are copied, restored, saved, and moved between workers.

use std::collections::HashSet;
use std::fmt::Debug;

use hatchery::error::SessionError;
use hatchery::{Deterministic, Error, Hatchery, Job, Refusal, Session};
use serde_json::{Value, json};

use crate::support::{exception, next_output, value, with_pool, with_preloaded_pool};

/// Runs a job of a session, which must succeed, and returns the value of its last expression.
async fn ask(session: &Session, source: &str) -> Value {
    let outcome = session.run(Job::code(source)).await.expect("the session accepts jobs");
    match outcome.verdict {
        hatchery::Verdict::Completed { value, .. } => value.unwrap_or_default(),
        verdict => panic!("{source}\n{verdict:?}"),
    }
}

/// Returns why this was refused.
#[track_caller]
fn refusal<T: Debug>(result: Result<T, Error>) -> Refusal {
    match result {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Makes every worker run something else, so that their sessions are suspended.
async fn occupy_workers(pool: &Hatchery) {
    let mut tickets = Vec::new();
    for _ in 0..8 {
        let ticket = pool.submit(Job::code("sum(range(10_000))")).await;
        tickets.push(ticket.expect("the queue isn't full"));
    }
    for ticket in tickets {
        assert!(ticket.await.is_success());
    }
}

#[test]
fn a_fork_continues_from_the_state_and_is_independent() {
    with_pool(|pool| async {
        let trunk = pool.session("trunk").await.unwrap();
        ask(&trunk, "x = [1]; open('f', 'w').write('of the trunk')").await;
        let branch = trunk.fork("branch").await.unwrap();
        assert_eq!((trunk.name(), branch.name()), ("trunk", "branch"));
        ask(&branch, "x.append('branch'); open('f', 'w').write('of the branch')").await;
        ask(&trunk, "x.append('trunk')").await;
        let twig = branch.fork("twig").await.unwrap();
        ask(&twig, "x.append('twig')").await;
        let look = "[x, open('f').read()]";
        assert_eq!(ask(&trunk, look).await, json!([[1, "trunk"], "of the trunk"]));
        assert_eq!(ask(&branch, look).await, json!([[1, "branch"], "of the branch"]));
        assert_eq!(ask(&twig, look).await, json!([[1, "branch", "twig"], "of the branch"]));
        // Each continues without the session that it came from.
        trunk.close();
        branch.close();
        assert_eq!(ask(&twig, "x[-1]").await, json!("twig"));
        twig.close();
    });
}

#[test]
fn what_is_asked_for_right_after_a_turn_is_its_state() {
    with_pool(|pool| async {
        let trunk = pool.session("trunk").await.unwrap();
        ask(&trunk, "x, large = 0, []").await;
        for turn in 1..=30 {
            // Some copies are large.
            ask(&trunk, "x += 1; large.append(bytes([x]) * (x % 3 << 20)); large = large[-3:]")
                .await;
            let branch = trunk.fork("branch").await.unwrap();
            let seen =
                ask(&branch, "[x, [len(part) >> 20 for part in large], large[-1][:1].hex()]");
            let parts: Vec<i32> = ((turn - 2).max(1)..=turn).map(|number| number % 3).collect();
            let first = if turn % 3 == 0 { String::new() } else { format!("{turn:02x}") };
            assert_eq!(seen.await, json!([turn, parts, first]));
            branch.close();
        }
        assert_eq!(ask(&trunk, "x").await, json!(30));
    });
}

#[test]
fn a_session_that_has_run_nothing_can_be_copied_too() {
    with_pool(|pool| async {
        let empty = pool.session("empty").await.unwrap();
        let checkpoint = empty.checkpoint().await.unwrap();
        assert_eq!(checkpoint.bytes(), 0);
        let fork = empty.fork("empty too").await.unwrap();
        ask(&fork, "x = 1").await;
        assert_eq!(ask(&empty, "'x' in globals()").await, json!(false));
        fork.restore(&checkpoint).await.unwrap();
        assert_eq!(ask(&fork, "'x' in globals()").await, json!(false));
        empty.close();
        fork.close();
    });
}

#[test]
fn a_checkpoint_can_be_restored_any_number_of_times() {
    with_pool(|pool| async {
        let session = pool.session("goes back").await.unwrap();
        ask(&session, "x = [1]; open('f', 'w').write('before')").await;
        let checkpoint = session.checkpoint().await.unwrap();
        assert!(checkpoint.bytes() > 0);
        for round in 0..3 {
            ask(&session, "x.append(2); open('f', 'w').write('after'); later = 1").await;
            if round == 1 {
                occupy_workers(pool).await;
            }
            session.restore(&checkpoint.clone()).await.unwrap();
            let look = "[x, open('f').read(), 'later' in globals()]";
            assert_eq!(ask(&session, look).await, json!([[1], "before", false]));
        }
        let other = pool.session("goes there").await.unwrap();
        session.close();
        other.restore(&checkpoint).await.unwrap();
        assert_eq!(ask(&other, "x").await, json!([1]));
        other.close();
    });
}

#[test]
fn a_reset_session_is_fresh() {
    with_pool(|pool| async {
        let session = pool.session("afresh").await.unwrap();
        for _ in 0..3 {
            let seen = ask(&session, "import os; ['x' in globals(), os.listdir('.')]").await;
            assert_eq!(seen, json!([false, []]));
            ask(&session, "x = 1; open('f', 'w').close()").await;
            session.reset().await.unwrap();
        }
        session.close();
    });
}

#[test]
fn a_saved_session_is_revived_under_another_name() {
    with_pool(|pool| async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session");
        let session = pool.session("saved").await.unwrap();
        ask(&session, "x = 1; f = open('f', 'w+'); f.write('abcdef'); f.seek(2)").await;
        let written = session.save(&path).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), written);
        ask(&session, "x = 2; f.read(2)").await;
        let revived = pool.revive("revived", &path).await.unwrap();
        assert_eq!(ask(&revived, "[x, f.read(2)]").await, json!([1, "cd"]));
        assert_eq!(ask(&session, "[x, f.read(2)]").await, json!([2, "ef"]));
        let taken = refusal(pool.revive("saved", &path).await);
        assert!(matches!(taken, Refusal::SessionExists(..)), "{taken}");

        let mut bytes = std::fs::read(&path).unwrap();
        bytes.pop();
        std::fs::write(&path, bytes).unwrap();
        let damaged = pool.revive("damaged", &path).await.unwrap_err();
        let is_said = matches!(damaged, Error::Session(SessionError::NotASession { .. }));
        assert!(is_said, "{damaged}");
        let missing = pool.revive("missing", folder.path().join("no")).await.unwrap_err();
        assert!(matches!(missing, Error::Session(SessionError::File { .. })), "{missing}");
        let nowhere = session.save(folder.path().join("no/where")).await.unwrap_err();
        assert!(matches!(nowhere, Error::Session(SessionError::File { .. })), "{nowhere}");
        session.close();
        revived.close();
    });
}

#[test]
fn a_busy_session_is_neither_copied_nor_replaced() {
    with_pool(|pool| async {
        let folder = tempfile::tempdir().unwrap();
        let session = pool.session("busy").await.unwrap();
        ask(&session, "x = 1").await;
        let before = session.checkpoint().await.unwrap();
        let endless = Job::code("print('begun')\nwhile True: pass");
        let mut running = session.submit(endless).await.unwrap();
        assert!(next_output(&mut running.events()).await.is_some());
        for refused in [
            refusal(session.fork("of a busy one").await),
            refusal(session.checkpoint().await),
            refusal(session.restore(&before).await),
            refusal(session.reset().await),
            refusal(session.save(folder.path().join("busy")).await),
        ] {
            assert!(matches!(refused, Refusal::SessionBusy), "{refused}");
        }
        running.interrupt();
        assert_eq!(exception(&running.outcome().await).type_name, "KeyboardInterrupt");
        // The refused operations had no effect, and succeed now.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let fork = session.fork("of a busy one").await.unwrap();
        assert_eq!(ask(&fork, "x").await, json!(1));
        session.restore(&before).await.unwrap();
        assert_eq!(ask(&session, "x").await, json!(1));
        fork.close();
        session.close();
    });
}

#[test]
fn a_name_in_use_is_refused() {
    with_pool(|pool| async {
        let first = pool.session("taken").await.unwrap();
        let second = pool.session("other").await.unwrap();
        ask(&first, "x = 1").await;
        for name in ["taken", "other"] {
            let refused = refusal(first.fork(name).await);
            let expected = Refusal::SessionExists(name.to_owned());
            assert_eq!(refused, expected);
        }
        second.close();
        let third = first.fork("other").await.unwrap();
        assert_eq!(ask(&third, "x").await, json!(1));
        first.close();
        third.close();
    });
}

#[test]
fn a_session_can_be_closed_while_it_is_being_suspended() {
    with_pool(|pool| async {
        let session = pool.session("aside").await.unwrap();
        ask(&session, "x = 1").await;
        let fork = session.fork("aside too").await.unwrap();
        let again = session.clone();
        occupy_workers(pool).await;
        session.close();
        for refused in [refusal(again.fork("late").await), refusal(again.checkpoint().await)] {
            assert!(matches!(refused, Refusal::SessionGone(..)), "{refused}");
        }
        assert_eq!(ask(&fork, "x").await, json!(1));
        let fresh = pool.session("aside").await.unwrap();
        assert_eq!(ask(&fresh, "'x' in globals()").await, json!(false));
        fork.close();
        fresh.close();
    });
}

#[test]
fn forks_draw_different_random_numbers_unless_they_are_deterministic() {
    with_pool(|pool| async {
        let draw = "import uuid; [random.random(), str(uuid.uuid4()), time.time()]";
        for (name, deterministic) in [("chance", None), ("fixed", Some(Deterministic::new(5)))] {
            let session = pool.session(name).await.unwrap();
            let begin = Job::code("import random, time; random.seed(1)");
            let begin = match deterministic {
                Some(deterministic) => begin.deterministic(deterministic),
                None => begin,
            };
            assert!(session.run(begin).await.unwrap().is_success());
            let mut forks = Vec::new();
            for number in 0..4 {
                forks.push(session.fork(&format!("{name} {number}")).await.unwrap());
            }
            let mut drawn = HashSet::new();
            for fork in &forks {
                drawn.insert(ask(fork, draw).await.to_string());
            }
            drawn.insert(ask(&session, draw).await.to_string());
            let expected = if deterministic.is_some() { 1 } else { forks.len() + 1 };
            assert_eq!(drawn.len(), expected, "{name}: {drawn:?}");
            forks.into_iter().for_each(Session::close);
            session.close();
        }
    });
}

/// Names in the main module that Python didn't put there.
const NAMES: &str = "sorted(name for name in globals() if not name.startswith('__'))";
/// How many sessions share two workers.
const SESSIONS: u64 = 200;

/// One query of every session: the stride of their order, the source, and the expected answer.
type Step = (u64, fn(u64) -> String, fn(u64) -> Value);

/// Returns every session, in an order that depends on `stride`.
fn shuffled(stride: u64) -> impl Iterator<Item = u64> {
    (0..SESSIONS).map(move |index| index * stride % SESSIONS)
}

#[test]
fn two_hundred_sessions_on_two_workers_keep_their_own_state() {
    with_preloaded_pool(|pool| async {
        let mut sessions = Vec::new();
        for number in 0..SESSIONS {
            sessions.push(pool.session(&format!("frame {number}")).await.unwrap());
        }
        let steps: [Step; 3] = [
            (
                77,
                |own| {
                    let made = format!("pandas.DataFrame({{'own': [{own}, {own} + 1]}})");
                    format!("import pandas\nframe = {made}\n{own}")
                },
                |own| json!(own),
            ),
            (
                133,
                |_| "frame['own'] *= 2\nint(frame.own.sum())".to_owned(),
                |own| json!(4 * own + 2),
            ),
            (
                91,
                |own| format!("frame.loc[2] = {own}\n[len(frame), int(frame.own.sum())]"),
                |own| json!([3, 5 * own + 2]),
            ),
        ];
        for (stride, source, answer) in steps {
            let (mut asked, mut isolated) = (Vec::new(), Vec::new());
            for own in shuffled(stride) {
                let session = &sessions[usize::try_from(own).unwrap()];
                asked.push((own, session.submit(Job::code(source(own))).await.unwrap()));
                if own % 10 == 0 {
                    isolated.push(pool.submit(Job::code(NAMES)).await.unwrap());
                }
            }
            for (own, ticket) in asked {
                assert_eq!(value(&ticket.await), answer(own), "session {own}");
            }
            for ticket in isolated {
                assert_eq!(value(&ticket.await), json!([]), "an isolated job sees no session");
            }
        }
        let open = pool.status().sessions;
        let open = open.iter().filter(|open| open.name.starts_with("frame ")).count();
        assert_eq!(open as u64, SESSIONS);
        sessions.into_iter().for_each(Session::close);
    });
}

#[test]
fn preloaded_modules_take_no_time_to_import() {
    with_preloaded_pool(|pool| async {
        let image = pool.image().expect("our own host has images");
        assert_eq!(image.preload, ["numpy", "pandas", "matplotlib"]);
        let source = "import sys; [name in sys.modules for name in ('numpy', 'pandas')]";
        let outcome = pool.run(Job::code(source)).await.unwrap();
        assert_eq!(value(&outcome), json!([true, true]));
        let outcome = pool.run(Job::code(NAMES)).await.unwrap();
        assert_eq!(value(&outcome), json!([]), "programs still have to import it");
    });
}
