//! Forks by the thousand, their trees and limits, and programs that explore forks.

use std::collections::BTreeSet;

use hatchery::status::SessionPlace;
use hatchery::{
    Error, Hatchery, Job, Keep, Outcome, Refusal, Session, SessionsConfig, TenantConfig, Verdict,
};
use serde_json::json;

use crate::support::{builder, value, with_pool, with_preloaded_pool};

/// 4 MB that differ from page to page.
const LARGE: &str = "data = [bytes([n % 251]) * 4096 + str(n).encode() for n in range(1000)]; 1";

/// Runs a turn that succeeds, and returns its value, null if it has none.
async fn run(session: &Session, source: &str) -> serde_json::Value {
    match session.run(Job::code(source)).await.expect("the job is admitted").verdict {
        Verdict::Completed { value, .. } => value.unwrap_or_default(),
        verdict => panic!("{verdict:?}"),
    }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> Refusal {
    match result.expect_err("it is refused") {
        Error::Refused(refusal) => refusal,
        error => panic!("{error:?}"),
    }
}

#[test]
fn many_forks_continue_from_one_state_and_are_independent() {
    with_pool(|pool| async {
        let root = pool.session("many").await.unwrap();
        run(&root, "x = 40; open('f', 'w').write('kept')").await;
        let forks = root.fork_many(100).await.unwrap();
        for (number, fork) in forks.iter().enumerate() {
            assert_eq!(fork.name(), format!("many~{}", number + 1));
            let source = format!("x += {number}; open('f', 'a').write('!'); x");
            assert_eq!(run(fork, &source).await, json!(40 + number));
        }
        for (number, fork) in forks.iter().enumerate() {
            assert_eq!(run(fork, "[x, open('f').read()]").await, json!([40 + number, "kept!"]));
        }
        assert_eq!(run(&root, "[x, open('f').read()]").await, json!([40, "kept"]));
        forks.into_iter().for_each(Session::close);
        root.close();
    });
}

#[test]
fn a_fork_of_a_fork_has_what_both_left() {
    with_pool(|pool| async {
        let root = pool.session("generations").await.unwrap();
        run(&root, LARGE).await;
        let mut sessions = vec![root];
        for depth in 1..=8 {
            let parent = sessions.last().unwrap();
            let mut forks = parent.fork_many(2).await.unwrap();
            let (fork, other) = (forks.remove(0), forks.remove(0));
            assert_eq!(fork.origin().unwrap().depth, depth);
            run(&fork, &format!("data[{depth}] = {depth}; steps = {depth}")).await;
            run(&other, "data.clear()").await;
            other.close();
            sessions.push(fork);
        }
        let check =
            "[d for d in data[:10] if isinstance(d, int)] + [len(data), data[999][-3:] == b'999']";
        for (depth, session) in sessions.iter().enumerate() {
            let mut expected: Vec<_> = (1..=depth).map(|depth| json!(depth)).collect();
            expected.extend([json!(1000), json!(true)]);
            assert_eq!(run(session, check).await, json!(expected), "{depth}");
        }
        // Without those before it, a session has all of it.
        let last = sessions.pop().unwrap();
        sessions.into_iter().for_each(Session::close);
        assert_eq!(run(&last, "[len(data), data[7]]").await, json!([1000, 7]));
        last.close();
    });
}

#[test]
fn what_forks_share_is_counted_once() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let pool = builder().workers(1).start().await.unwrap();
        let used = |pool: &Hatchery| pool.status().memory.session_bytes;
        let before = used(&pool);
        let root = pool.session("root").await.unwrap();
        run(&root, LARGE).await;
        // Its state goes to the memory of suspended sessions.
        pool.run(Job::code("1")).await.unwrap();
        let with_root = used(&pool);
        assert!(with_root > before + 4_000_000, "{before} {with_root}");
        let forks = root.fork_many(1_000).await.unwrap();
        let with_forks = used(&pool);
        assert!(with_forks < with_root + 200_000, "{with_root} {with_forks}");
        for fork in &forks[..20] {
            run(fork, "y = 1").await;
        }
        pool.run(Job::code("1")).await.unwrap();
        let after_turns = used(&pool);
        assert!(after_turns < with_root + 20 * 200_000, "{with_root} {after_turns}");
        // Those that go on have it, so it stays counted without the session that was forked.
        root.close();
        let fork = &forks[0];
        assert_eq!(run(fork, "len(data)").await, json!(1000));
        pool.run(Job::code("1")).await.unwrap();
        assert!(used(&pool) > before + 4_000_000);
        forks.into_iter().for_each(Session::close);
        pool.run(Job::code("1")).await.unwrap();
        let end = used(&pool);
        assert_eq!(end, before);
        pool.abort().await;
    });
}

#[test]
fn a_fork_at_rest_after_a_small_turn_takes_little() {
    with_preloaded_pool(|pool| async {
        let root = pool.session("small").await.unwrap();
        let frame = "import numpy, pandas\ndf = pandas.DataFrame({'a': numpy.arange(100_000)})\n1";
        run(&root, frame).await;
        let forks = root.fork_many(12).await.unwrap();
        for (number, fork) in forks.iter().enumerate() {
            assert_eq!(run(fork, &format!("int(df.a[{number}])")).await, json!(number));
        }
        let status = pool.status();
        let names: BTreeSet<&str> = forks.iter().map(Session::name).collect();
        let rows = status.sessions.iter().filter(|row| names.contains(row.name.as_str()));
        let mut bytes: Vec<u64> = rows
            .filter_map(|row| match row.place {
                SessionPlace::Suspended { bytes } => Some(bytes),
                _ => None,
            })
            .collect();
        bytes.sort_unstable();
        assert!(bytes.len() >= 5, "{bytes:?}");
        assert!(bytes[bytes.len() / 2] <= 32 << 10, "{bytes:?}");
        forks.into_iter().for_each(Session::close);
        root.close();
    });
}

#[test]
fn sessions_know_their_tree() {
    with_pool(|pool| async {
        let root = pool.session("tree").await.unwrap();
        assert!(root.origin().is_none() && root.parent().is_none());
        run(&root, "x = 1").await;
        run(&root, "x = 2").await;
        let forks = root.fork_many(3).await.unwrap();
        run(&root, "x = 3").await;
        let late = root.fork("late").await.unwrap();
        run(&forks[1], "y = 1").await;
        let grandchild = forks[1].fork_many(1).await.unwrap().remove(0);
        assert_eq!(grandchild.name(), "tree~4", "numbers go through the tree");
        let of = |session: &Session| {
            let origin = session.origin().unwrap();
            (origin.depth, origin.turn, session.parent().unwrap().name().to_owned())
        };
        assert_eq!(of(&forks[0]), (1, 2, "tree".to_owned()));
        assert_eq!(of(&late), (1, 3, "tree".to_owned()));
        assert_eq!(of(&grandchild), (2, 1, "tree~2".to_owned()));
        let names = |sessions: Vec<Session>| -> Vec<String> {
            sessions.iter().map(|session| session.name().to_owned()).collect()
        };
        assert_eq!(names(root.children().await), ["tree~1", "tree~2", "tree~3", "late"]);
        let rows = json!(pool.status())["sessions"].clone();
        let row = rows.as_array().unwrap().iter().find(|row| row["name"] == "tree~4").unwrap();
        assert_eq!(row["fork"]["depth"], 2, "{row}");
        assert_eq!((&row["fork"]["turn"], &row["turns"]), (&json!(1), &json!(0)));
        // Closing a parent leaves its children.
        forks[1].clone().close();
        assert_eq!(run(&grandchild, "[x, y]").await, json!([2, 1]));
        assert!(grandchild.parent().is_none());
        for session in forks.into_iter().chain([late, grandchild, root]) {
            session.close();
        }
    });
}

#[test]
fn all_forks_are_opened_or_none() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let sessions =
            SessionsConfig { open: 6, in_memory: 6, depth: 2, ..SessionsConfig::default() };
        let ada = TenantConfig { sessions: 3, ..TenantConfig::default() };
        let bob = TenantConfig { session_bytes: 1_000_000, ..TenantConfig::default() };
        let pool = builder().workers(1).sessions(sessions).tenant("ada", ada).tenant("bob", bob);
        let pool = pool.start().await.unwrap();
        let open = |pool: &Hatchery| pool.status().sessions.len();
        let root = pool.session("root").await.unwrap();
        assert_eq!(refusal(root.fork_many(6).await), Refusal::TooManySessions(6));
        let taken = root.fork_as(["one", "root"]).await;
        assert_eq!(refusal(taken), Refusal::SessionExists("root".to_owned()));
        let twice = root.fork_as(["one", "one"]).await;
        assert_eq!(refusal(twice), Refusal::SessionExists("one".to_owned()));
        assert_eq!(open(&pool), 1);
        let child = root.fork("child").await.unwrap();
        let grandchild = child.fork("grandchild").await.unwrap();
        let deeper = refusal(grandchild.fork("deeper").await);
        assert_eq!(deeper, Refusal::TooDeep(2));
        assert!(deeper.to_string().contains("--fork-depth"), "{deeper}");
        for session in [root, child, grandchild] {
            session.close();
        }

        // A tenant's forks are the tenant's.
        let of_ada = pool.of_tenant("ada").session("a").await.unwrap();
        let forks = of_ada.fork_many(2).await.unwrap();
        let (tenant, limit) = ("ada".to_owned(), 3);
        let expected = Refusal::TenantSessions { tenant, open: 3, wanted: 1, limit };
        assert_eq!(refusal(forks[0].fork("more").await), expected);
        assert!(expected.to_string().contains("--tenant-sessions"), "{expected}");
        assert!(pool.session("of nobody").await.is_ok());

        let of_bob = pool.of_tenant("bob").session("b").await.unwrap();
        run(&of_bob, "x = 1").await;
        let small = of_bob.fork("b2").await.unwrap();
        run(&of_bob, LARGE).await;
        small.close();
        for _ in 0..2 {
            let refused = refusal(of_bob.fork("b3").await);
            assert!(
                matches!(refused, Refusal::TenantSessionBytes { limit: 1_000_000, .. }),
                "{refused}"
            );
            assert!(refused.to_string().contains("--tenant-session-bytes"), "{refused}");
            // Its state leaves the worker, and takes less then: it compresses well.
            pool.run(Job::code("1")).await.unwrap();
        }
        assert_eq!(run(&of_bob, "len(data)").await, json!(1000));
        pool.abort().await;
    });
}

#[test]
fn candidates_run_on_forks_of_their_own_and_survivors_stay() {
    with_pool(|pool| async {
        let root = pool.session("explores").await.unwrap();
        run(&root, "x = 10").await;
        let programs = || (0..20).map(|n| Job::code(format!("x += {n}\n1 / (x % 2)\nx")));
        for (keep, kept) in [
            (Keep::all(), 20),
            (Keep::none(), 0),
            (Keep::succeeded(), 10),
            (Keep::first(3), 3),
            (Keep::matching(is_fifteen), 1),
            (Keep::succeeded().at_most(2), 2),
        ] {
            let mut exploration = root.explore(programs().collect::<Vec<_>>(), keep).await.unwrap();
            let (mut seen, mut survivors) = (BTreeSet::new(), Vec::new());
            while let Some(explored) = exploration.next().await {
                assert!(seen.insert(explored.candidate));
                let outcome = explored.result.unwrap();
                let is_odd = explored.candidate % 2 == 1;
                assert_eq!(outcome.is_success(), is_odd);
                if is_odd {
                    assert_eq!(value(&outcome), json!(10 + explored.candidate));
                }
                survivors.extend(explored.survivor.map(|fork| (explored.candidate, fork)));
            }
            assert_eq!((seen.len(), survivors.len()), (20, kept));
            for (candidate, survivor) in &survivors {
                assert_eq!(run(survivor, "x").await, json!(10 + candidate));
            }
            // Only survivors are left.
            assert_eq!(root.children().await.len(), kept);
            survivors.into_iter().for_each(|(_, fork)| fork.close());
            assert!(root.children().await.is_empty());
        }
        root.close();
    });
}

fn is_fifteen(outcome: &Outcome) -> bool {
    matches!(&outcome.verdict, Verdict::Completed { value: Some(value), .. } if *value == 15)
}

#[test]
fn forks_are_opened_as_there_is_room() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let sessions = SessionsConfig { open: 4, in_memory: 4, ..SessionsConfig::default() };
        let pool = builder().workers(2).sessions(sessions).start().await.unwrap();
        let root = pool.session("root").await.unwrap();
        run(&root, "x = 1").await;
        let programs = || (0..30).map(|n| Job::code(format!("x + {n}"))).collect::<Vec<_>>();
        let mut exploration = root.explore(programs(), Keep::none()).await.unwrap();
        let mut ended = 0;
        while let Some(explored) = exploration.next().await {
            assert_eq!(value(&explored.result.unwrap()), json!(1 + explored.candidate));
            ended += 1;
        }
        assert_eq!(ended, 30);

        // Survivors that take all the room leave none for the rest, which learn why.
        let mut exploration = root.explore(programs(), Keep::all()).await.unwrap();
        let (mut kept, mut refused) = (Vec::new(), 0);
        while let Some(explored) = exploration.next().await {
            match explored.result {
                Ok(_) => kept.extend(explored.survivor),
                Err(Error::Refused(Refusal::TooManySessions(4))) => refused += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert_eq!((kept.len(), refused), (3, 27));
        kept.into_iter().for_each(Session::close);

        let large = (0..20).map(|_| Job::code(LARGE)).collect::<Vec<_>>();
        let keep = Keep::all().at_most_bytes(1_000_000);
        let mut exploration = root.explore(large, keep).await.unwrap();
        let mut refused = 0;
        let mut kept = Vec::new();
        while let Some(explored) = exploration.next().await {
            match explored.result {
                Ok(outcome) => {
                    assert!(outcome.is_success());
                    kept.extend(explored.survivor);
                }
                Err(Error::Refused(Refusal::ForkBytes { limit: 1_000_000, .. })) => refused += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(refused >= 1 && kept.len() + refused == 20, "{refused}");
        pool.abort().await;
    });
}

#[test]
fn dropping_an_exploration_cancels_its_candidates_and_closes_their_forks() {
    with_pool(|pool| async {
        let root = pool.session("dropped").await.unwrap();
        run(&root, "x = 1").await;
        let mut endless = vec![Job::code("x"), Job::code("while True: pass")];
        endless.extend((0..50).map(|_| Job::code("while True: pass")));
        let mut exploration = root.explore(endless, Keep::all()).await.unwrap();
        let first = exploration.next().await.unwrap();
        assert_eq!(value(&first.result.unwrap()), json!(1));
        drop(exploration);
        // The workers take other jobs again, so the endless ones have ended.
        assert_eq!(value(&pool.run(Job::code("6 * 7")).await.unwrap()), json!(42));
        let survivor = first.survivor.unwrap();
        while root.children().await.len() > 1 {
            tokio::task::yield_now().await;
        }
        survivor.close();
        root.close();
    });
}

#[test]
fn a_fork_rolls_back_and_is_restored_as_any_session() {
    with_pool(|pool| async {
        let root = pool.session("rolls").await.unwrap();
        run(&root, LARGE).await;
        let fork = root.fork_many(1).await.unwrap().remove(0);
        run(&fork, "data[1] = 'mine'; 1").await;
        let left = fork.run(Job::code("data[1] = 0; import os; os._exit(3)")).await.unwrap();
        assert!(left.session_restored, "{left:?}");
        assert_eq!(run(&fork, "[data[1], len(data)]").await, json!(["mine", 1000]));
        let checkpoint = fork.checkpoint().await.unwrap();
        assert!(checkpoint.bytes() > 4_000_000, "a checkpoint stands alone");
        run(&fork, "data.clear()").await;
        fork.restore(&checkpoint).await.unwrap();
        assert_eq!(run(&fork, "[data[1], len(data)]").await, json!(["mine", 1000]));
        assert_eq!(run(&root, "data[1][-1:] == b'1'").await, json!(true));
        fork.close();
        root.close();
    });
}
