//! Workers that end, and what they leave.

use std::fs;

use crate::inside::WAYS;
use crate::outside::{Pool, WORKERS, children};

pub(crate) fn a_worker_that_wrecks_all_harms_none() {
    let pool = Pool::start();
    let session = pool.open_session();
    assert!(pool.run("kept = list(range(1000))", Some(session)).is_success());
    for words in ["wreck", "babble"].repeat(4) {
        // Whether its answer still comes is its own matter.
        println!("{words}: {:?}", pool.compromise(words));
        pool.check();
        let turn = pool.run("assert sum(kept) == 499500", Some(session));
        assert!(turn.is_success(), "{words}: {:?}", turn.verdict);
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

/// Counts descriptors and files in memory.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

pub(crate) fn nothing_is_left() {
    let before = descriptors();
    let pool = Pool::start();
    let (helper, _) = pool.processes();
    let (open, of_helper) =
        (descriptors(), fs::read_dir(format!("/proc/{helper}/fd")).unwrap().count());
    for _ in 0..10 {
        for how in ["segv", "sys", "close", "kill"] {
            pool.compromise(&format!("die {how}")).unwrap_err();
            pool.check();
        }
    }
    assert_eq!(descriptors(), open);
    assert_eq!(fs::read_dir(format!("/proc/{helper}/fd")).unwrap().count(), of_helper);
    assert_eq!(pool.processes().1.len(), WORKERS);
    drop(pool);
    assert!(children(std::process::id()).is_empty());
    assert_eq!(descriptors(), before);
}
