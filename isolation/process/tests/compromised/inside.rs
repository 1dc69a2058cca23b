//! What runs in a worker, natively and confined. A few words control it. It answers by an
//! expression that the interpreter then runs, or by how the process ends.

use std::path::Path;

use test_support::attempts::{Targets, attempts};
use test_support::raw::raw;

/// Descriptors that a worker can have.
const DESCRIPTORS: std::ops::Range<i64> = 3..1100;

/// Carries out what the words after the mark say.
pub(crate) fn carry_out(words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    match words[..] {
        ["attempt", number, process, port, path] => {
            let targets =
                Targets::new(process.parse().unwrap(), port.parse().unwrap(), Path::new(path));
            let result = attempts(&targets)[number.parse::<usize>().unwrap()].make();
            // The number of the error; 0 if it succeeded.
            end((-result.min(0)) as i32)
        }
        ["writable"] => {
            format!("{:?}", writable().iter().map(|it| identity(*it)).collect::<Vec<_>>())
        }
        ["wreck"] => wreck(),
        ["babble"] => babble(),
        ["die", how] => die(how),
        _ => end(99),
    }
}

fn end(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Returns the status of a descriptor, if it is open.
fn status(descriptor: i64) -> Option<libc::stat> {
    // SAFETY: all zeroes are a value of this plain structure.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    let found = raw(libc::SYS_fstat, [descriptor, (&raw mut status).addr() as i64]);
    (found == 0).then_some(status)
}

fn identity(descriptor: i64) -> (u64, u64, i64) {
    status(descriptor).map_or((0, 0, 0), |it| (it.st_dev, it.st_ino, it.st_size))
}

fn is_file(status: &libc::stat) -> bool {
    status.st_mode & libc::S_IFMT == libc::S_IFREG
}

/// Returns the descriptors of files to which the worker can write. No byte is written.
fn writable() -> Vec<i64> {
    DESCRIPTORS
        .filter(|one| status(*one).is_some_and(|status| is_file(&status)))
        .filter(|one| raw(libc::SYS_pwrite64, [*one, 0, 0, 0]) == 0)
        .collect()
}

/// Overwrites, empties and lengthens every file that it can write to, the shared memory of the
/// channel included.
fn wreck() -> String {
    let garbage = [0xa5_u8; 4096];
    let from = garbage.as_ptr().addr() as i64;
    for file in writable() {
        let length = identity(file).2.min(64 << 20);
        // The first page last, since the channel's counters are there.
        for page in (0..length / 4096).rev() {
            raw(libc::SYS_pwrite64, [file, from, 4096, page * 4096]);
        }
        raw(libc::SYS_fallocate, [file, 3, 0, 1 << 30]);
        raw(libc::SYS_ftruncate, [file, 1 << 36]);
        raw(libc::SYS_ftruncate, [file, 0]);
    }
    "'wrecked'".to_owned()
}

/// Writes garbage to every socket, until none takes more. They aren't closed.
fn babble() -> String {
    let garbage = [0xff_u8; 4096];
    let from = garbage.as_ptr().addr() as i64;
    let no_wait = i64::from(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    for socket in DESCRIPTORS {
        while raw(libc::SYS_sendto, [socket, from, 4096, no_wait, 0, 0]) > 0 {}
    }
    "'babbled'".to_owned()
}

/// The ways to die, and what the parent says of each.
pub(crate) const WAYS: &[(&str, &str)] = &[
    ("segv", "SIGSEGV"),
    ("ill", "SIGILL"),
    ("trap", "signal 5"),
    ("fpe", "SIGFPE"),
    ("abort", "SIGABRT"),
    ("bus", "SIGBUS"),
    ("kill", "SIGKILL"),
    ("usr1", "signal 10"),
    ("xfsz", "SIGXFSZ"),
    ("sys", "SIGSYS (getppid)"),
    ("overflow", "SIGABRT"),
    ("panic", "code 8"),
    ("exit", "code 7"),
    ("exit-well", "code 0"),
    ("close", "code 0"),
    ("stop", "stopped responding"),
    ("spin", "limit of wall time"),
];

fn die(how: &str) -> String {
    let signal = |signal: i32| {
        let own = [raw(libc::SYS_getpid, []), raw(libc::SYS_gettid, []), signal.into()];
        raw(libc::SYS_tgkill, own);
    };
    // SAFETY: each of these ends the process, which is what it's for.
    unsafe {
        match how {
            "segv" => std::ptr::without_provenance_mut::<u8>(8).write_volatile(1),
            "ill" => std::arch::asm!("ud2"),
            "trap" => std::arch::asm!("int3"),
            "fpe" => {
                std::arch::asm!("div {0:e}", in(reg) 0, inout("eax") 1 => _, inout("edx") 0 => _)
            }
            "abort" => libc::abort(),
            "bus" => {
                // A page beyond the end of its file.
                let file = raw(libc::SYS_memfd_create, [c"a".as_ptr().addr() as i64, 1]);
                let page = [0, 4096, libc::PROT_READ.into(), libc::MAP_SHARED.into(), file, 0];
                let page = raw(libc::SYS_mmap, page);
                std::ptr::with_exposed_provenance::<u8>(page as usize).read_volatile();
            }
            "kill" => signal(libc::SIGKILL),
            "usr1" => signal(libc::SIGUSR1),
            "xfsz" => {
                let file = raw(libc::SYS_memfd_create, [c"a".as_ptr().addr() as i64, 1]);
                raw(libc::SYS_ftruncate, [file, 1 << 40]);
            }
            "sys" => {
                raw(libc::SYS_getppid, []);
            }
            "overflow" => {
                overflow(1);
            }
            "exit" => end(7),
            "exit-well" => end(0),
            "close" => {
                for descriptor in 0..1100 {
                    raw(libc::SYS_close, [descriptor]);
                }
                end(0)
            }
            "stop" => signal(libc::SIGSTOP),
            "spin" => loop {
                std::hint::spin_loop();
            },
            _ => panic!("a panic outside of the guest's imports"),
        }
    }
    "'alive'".to_owned()
}

#[expect(unconditional_recursion, reason = "uses up the stack")]
fn overflow(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 512]);
    overflow(frame[7] + 1) + frame[9]
}
