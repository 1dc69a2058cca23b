//! What a compromised worker tries and is refused.

use std::collections::BTreeSet;

use crate::outside::Pool;
use test_support::attempts::{Listeners, Targets, attempts, state};

pub(crate) fn every_attempt_is_refused() {
    let pool = Pool::start();
    let listeners = Listeners::open();
    let (port, path) = (listeners.port(), listeners.path());
    let here = std::process::id();
    let list = attempts(&Targets::new(here, port, path));
    assert!(list.len() >= 80, "{} attempts", list.len());
    let before = state();
    let mut made = 0;
    let mut refuse = |number: usize, process: u32| {
        let attempt = &list[number];
        let what = attempt.what;
        let words = format!("attempt {number} {process} {port} {}", path.display());
        let died = pool.compromise(&words).expect_err(what);
        let expected = if attempt.is_missing() {
            format!("code {}", libc::ENOSYS)
        } else {
            format!("SIGSYS ({})", attempt.name)
        };
        assert!(died.contains(&expected), "{what}: {died}");
        pool.check();
        made += 1;
    };
    for number in 0..list.len() {
        refuse(number, here);
    }
    // What names the parent is tried on the helper, and on the neighbour, too.
    let aimed = (0..list.len()).filter(|number| list[*number].what.contains("parent"));
    for number in aimed {
        let (helper, workers) = pool.processes();
        refuse(number, helper);
        // One of these makes the attempt, the other one is its neighbour.
        for worker in workers {
            refuse(number, worker);
        }
    }
    assert_eq!(state(), before, "the embedding process has changed");
    let harmless = list.iter().filter(|attempt| attempt.is_harmless).count();
    println!(
        "{made} attempts of {} kinds in workers; {harmless} kinds succeed elsewhere",
        list.len()
    );
}

/// Otherwise one worker could change the state of another, or the image of all.
pub(crate) fn workers_share_no_file_that_they_can_write() {
    let pool = Pool::start();
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        let files = pool.compromise("writable").unwrap();
        let files: Vec<(u64, u64, i64)> = serde_json::from_str(&files).unwrap();
        println!("device, number and length of files that a worker can write: {files:?}");
        assert!(!files.is_empty(), "at least the memory of its channel");
        for (device, number, _) in files {
            assert!(seen.insert((device, number)), "two workers have {device}:{number}");
        }
        // The next one to be asked is another worker.
        for _ in 0..2 {
            let died = pool.compromise("die exit").unwrap_err();
            assert!(died.contains("code 7"), "{died}");
            pool.check();
        }
    }
}

/// Otherwise two of them could talk to each other, or one could change what another says.
pub(crate) fn workers_share_no_memory_that_they_can_write() {
    let pool = Pool::start();
    let (_, workers) = pool.processes();
    let mut seen = BTreeSet::new();
    for worker in workers {
        // Only root may look at a process that isn't dumpable.
        let Ok(maps) = std::fs::read_to_string(format!("/proc/{worker}/maps")) else { return };
        let mut its = BTreeSet::new();
        for line in maps.lines() {
            let [_, access, _, device, number, ..] = *Vec::from_iter(line.split_whitespace())
            else {
                panic!("{line}")
            };
            // A private mapping of a file changes nothing for others.
            if access.contains('w') && access.ends_with('s') {
                its.insert(format!("{device} {number}"));
            }
        }
        println!("memory that a worker can write and others could map: {its:?}");
        assert!(!its.is_empty(), "at least its channel");
        for memory in its {
            assert!(seen.insert(memory.clone()), "two workers have {memory}");
        }
    }
}
