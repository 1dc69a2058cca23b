//! Pages that the kernel evicts from workers: none that a session wrote to is missed when its state
//! moves on. A worker itself may not ask for that, so the test does, which takes root's rights.

use std::fs;

use pool::SessionId;

use crate::outside::Pool;
use test_support::raw::raw;

const SESSIONS: usize = 4;
const ROUNDS: usize = 12;

/// Writes to some of 1,024 pages, after it has checked all of them.
const TURN: &str = "
import random
if 'data' not in globals():
    data, marks, dice = bytearray(1024 * 4096), [0] * 1024, random.Random(NUMBER)
wrong = [page for page, mark in enumerate(marks) if data[4096 * page + 7] != mark]
assert not wrong, wrong
for _ in range(40):
    page = dice.randrange(1024)
    marks[page] = data[4096 * page + 7] = dice.randrange(256)
";

/// Sees what a job before it could have left.
const FRESH: &str = "assert 'data' not in globals() and not any(bytearray(8 << 20))";

/// Evicts whatever it can of a process; `None` if this user may not.
fn evict(process: u32) -> Option<()> {
    let handle = raw(libc::SYS_pidfd_open, [process.into(), 0]);
    assert!(handle >= 0, "{handle}");
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let mut is_allowed = true;
    for line in maps.lines() {
        let (start, rest) = line.split_once('-').unwrap();
        let end = rest.split(' ').next().unwrap();
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
        let range =
            libc::iovec { iov_base: std::ptr::without_provenance_mut(start), iov_len: end - start };
        let range = (&raw const range).addr() as i64;
        let advice = i64::from(libc::MADV_PAGEOUT);
        // Some mappings take no advice.
        let advised = raw(libc::SYS_process_madvise, [handle, range, 1, advice, 0]);
        is_allowed &= advised != -i64::from(libc::EPERM);
    }
    raw(libc::SYS_close, [handle]);
    is_allowed.then_some(())
}

/// Returns the bytes of files that a process has in memory.
fn resident_files(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssFile:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

pub(crate) fn evicted_pages_are_not_missed() {
    let pool = Pool::start();
    let sessions: Vec<SessionId> =
        (0..SESSIONS).map(|number| pool.open_session(&number.to_string())).collect();
    let mut evicted = 0;
    for round in 0..ROUNDS {
        for (number, session) in sessions.iter().enumerate() {
            let turn = pool.run(&TURN.replace("NUMBER", &number.to_string()), Some(*session));
            assert!(turn.is_success(), "{round}: {}", turn.stderr_text());
            for worker in pool.processes().1 {
                let before = resident_files(worker);
                if evict(worker).is_none() {
                    println!("this user may evict no pages of others: not tested");
                    return;
                }
                evicted += before.saturating_sub(resident_files(worker));
            }
            let fresh = pool.run(FRESH, None);
            assert!(fresh.is_success(), "{round}: {}", fresh.stderr_text());
        }
    }
    println!("{} MiB of pages of files evicted from workers", evicted >> 20);
    assert!(evicted > 0);
}
