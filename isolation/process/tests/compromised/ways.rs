//! Workers that end, and what they leave.

use std::fs;
use std::time::Duration;

use engine::{SandboxFailure, Verdict, chain};

use crate::inside::WAYS;
use crate::outside::{Pool, WORKERS};
use test_support::processes::children;

/// The worker that does it may hold the session's state, too, which is then lost. The next turn says so.
pub(crate) fn a_worker_that_wrecks_all_harms_none() {
    let pool = Pool::start();
    for words in ["wreck", "babble"].repeat(8) {
        let session = pool.open_session(words);
        assert!(pool.run("kept = list(range(1000))", Some(session)).is_success());
        // Whether its answer still comes is its own matter.
        let answer = pool.compromise(words);
        pool.check();
        let turn = pool.run("sum(kept)", Some(session));
        println!("{words}: {answer:?}, then {:?}", turn.verdict);
        match &turn.verdict {
            Verdict::Completed { value: Some(value), .. } => {
                assert_eq!(value.as_u64(), Some(499_500))
            }
            Verdict::SandboxFailed(
                SandboxFailure::Start(cause) | SandboxFailure::SessionLost(cause),
            ) => {
                assert!(
                    chain(cause).to_string().contains("the process that kept this state"),
                    "{cause}"
                );
            }
            other => panic!("{words}: {other:?}"),
        }
        pool.close_session(session);
    }
}

pub(crate) fn the_pool_outlives_every_way_to_die() {
    let pool = Pool::start();
    for (how, expected) in WAYS {
        let died = pool.compromise(&format!("die {how}")).expect_err(how);
        println!("{how}: {died}");
        assert!(died.contains(expected), "{how}: {died}");
        pool.check();
    }
}

/// What only the worker had is lost with it, and a copy is moved out of it once the session rests.
#[expect(clippy::disallowed_methods, reason = "a session rests, for longer each time")]
pub(crate) fn a_session_outlives_the_worker_on_which_it_rests() {
    let is_restored = (0..12).any(|doubled| {
        let pool = Pool::start();
        let session = pool.open_session("rests");
        assert!(pool.run("kept = list(range(1000))", Some(session)).is_success());
        std::thread::sleep(Duration::from_millis(10 << doubled));
        for worker in pool.processes().1 {
            // SAFETY: touches no memory of this process.
            unsafe { libc::kill(worker.cast_signed(), libc::SIGKILL) };
        }
        let died = pool.run("kept.append(1)", Some(session));
        println!("after {} ms: {:?}, {}", 10 << doubled, died.verdict, died.session_restored);
        assert!(!died.is_success(), "its worker was killed");
        if died.session_restored {
            // The other worker was killed as well, which a job of its own finds out.
            let goes_on = |_| pool.run("sum(kept)", Some(session)).is_success();
            assert!((0..=WORKERS).any(goes_on), "what it says is so");
        }
        died.session_restored
    });
    assert!(is_restored);
}

/// Counts descriptors and files in memory.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

pub(crate) fn nothing_is_left() {
    // A pool that was dropped closes some when its processes have ended.
    let fewest = || {
        let counts = (0..10_000).map(|_| {
            std::thread::yield_now();
            descriptors()
        });
        counts.min().unwrap()
    };
    // What the first pool leaves open belongs to the process.
    drop(Pool::start());
    let before = fewest();
    let pool = Pool::start();
    let (helper, _) = pool.processes();
    let of_helper = || fs::read_dir(format!("/proc/{helper}/fd")).unwrap().count();
    // The last worker may still start.
    let counts = (0..5_000).map(|_| {
        std::thread::yield_now();
        (descriptors(), of_helper())
    });
    let (open, open_of_helper) = counts.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1))).unwrap();
    for _ in 0..10 {
        for how in ["segv", "sys", "close", "kill"] {
            pool.compromise(&format!("die {how}")).unwrap_err();
            pool.check();
        }
    }
    // One that was killed goes when the system gets to it, and then its descriptors here and in the
    // helper.
    let is_settled = (0..10_000).any(|_| {
        std::thread::yield_now();
        pool.processes().1.len() == WORKERS
            && descriptors() <= open
            && of_helper() <= open_of_helper
    });
    let (ours, of_helper) = (descriptors(), of_helper());
    assert!(
        is_settled,
        "{:?}, {ours} descriptors of {open}, {of_helper} of {open_of_helper} in the helper",
        pool.processes()
    );
    drop(pool);
    assert!(children(std::process::id()).is_empty());
    assert_eq!(fewest(), before);
}
