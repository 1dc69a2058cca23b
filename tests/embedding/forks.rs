//! Forks: what a child process can do with the pool of its parent, and with one of its own.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hatchery::status::Phase;
use hatchery::{Error, Job, Refusal, Verdict};
use test_support::output::next_output;

use crate::{Host, in_a_process};

/// Does something in the child of a fork, which must succeed within 20 s.
#[track_caller]
fn in_a_fork(work: impl FnOnce()) {
    // SAFETY: the child touches no lock that another thread may have held, as is to be shown.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(20) };
        let done = catch_unwind(AssertUnwindSafe(work));
        // SAFETY: ends the child, and nothing that is the parent's.
        unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) };
    }
    let mut status = 0;
    // SAFETY: waits for that child; the pointer is to a local.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed, or hung");
}

#[track_caller]
fn assert_foreign<T: std::fmt::Debug>(result: Result<T, Error>, process: u32) {
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::Refused(Refusal::OtherProcess(it)) if *it == process));
    let text = format!("this pool belongs to process {process}: start one in this process");
    assert_eq!(error.to_string(), text);
    assert!(!error.is_overloaded() && error.retry_after().is_none());
}

#[test]
fn a_pool_in_the_child_of_a_fork_says_whose_it_is() {
    let test = "forks::a_pool_in_the_child_of_a_fork_says_whose_it_is";
    let ended = in_a_process(test, || {
        let host = Host::start();
        let process = std::process::id();
        let pool = &host.pool;
        let session = host.runtime.block_on(pool.session("kept")).unwrap();
        let fill = "data = bytes(range(256)) * (8 << 12)\nimport hashlib\n\
                    digest = lambda: hashlib.sha256(data).hexdigest()\ndigest()";
        let filled = host.runtime.block_on(session.run(Job::code(fill))).unwrap();
        let checkpoint = host.runtime.block_on(session.checkpoint()).unwrap();
        host.runtime.block_on(session.reset()).unwrap();
        let mut running = host.runtime.block_on(async {
            let endless = Job::code("print('begun', flush=True)\nwhile True: pass");
            let ticket = pool.submit(endless).await.unwrap();
            assert!(next_output(&mut ticket.events()).await.is_some());
            ticket
        });
        let mut decisions = pool.decisions();
        in_a_fork(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                assert_foreign(pool.run(Job::code("1")).await, process);
                assert_foreign(pool.submit(Job::code("1")).await, process);
                assert_foreign(pool.session("other").await, process);
                assert_foreign(pool.revive("other", "no-such-file").await, process);
                assert_foreign(session.run(Job::code("1")).await, process);
                assert_foreign(session.fork("other").await, process);
                assert_foreign(session.checkpoint().await, process);
                assert_foreign(session.restore(&checkpoint).await, process);
                assert_foreign(session.workspace().await, process);
                assert_foreign(session.save("no-such-file").await, process);
                assert_foreign(session.reset().await, process);
                assert!(pool.explain(running.job_id()).await.is_none());
                assert_eq!(pool.status().phase, Phase::Drained);
                assert!(pool.decisions().next().await.is_none());
                assert!(decisions.next().await.is_none());
                assert!(running.events().next().await.is_none());
                running.interrupt();
                running.cancel();
                let Verdict::SandboxFailed(failure) = running.outcome().await.verdict else {
                    panic!("it has no outcome here");
                };
                let text = hatchery::error::chain(&failure).to_string();
                assert!(text.contains(&format!("belongs to process {process}")), "{text}");
                pool.drain().await;
                pool.drain_for(Duration::ZERO).await;
                pool.abort().await;
            });
            in_a_fork(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(async {
                    assert_foreign(pool.run(Job::code("1")).await, process);
                });
            });
            drop((checkpoint.clone(), session.clone(), pool.clone()));
            // The last ones, as far as this process knows.
            // SAFETY: copies of values that are never used or dropped here again.
            unsafe {
                drop(std::ptr::read(&raw const checkpoint));
                drop(std::ptr::read(&raw const session));
                drop(std::ptr::read(pool));
                drop(std::ptr::read(&raw const running));
            }
        });
        // Nothing of that has reached the parent.
        running.interrupt();
        let outcome = host.runtime.block_on(running.outcome());
        assert!(matches!(&outcome.verdict, Verdict::Raised(_)), "{outcome:?}");
        host.runtime.block_on(session.restore(&checkpoint)).unwrap();
        let digest = host.runtime.block_on(session.run(Job::code("digest()"))).unwrap();
        assert_eq!(digest.verdict, filled.verdict);
        host.stops_hard();
    });
    ended.assert_exit(0);
}

/// With the parent's pool at its end: a fork while its threads work copies locks that they hold,
/// also those of libraries.
#[test]
fn a_pool_that_is_started_in_the_child_of_a_fork_works() {
    let test = "forks::a_pool_that_is_started_in_the_child_of_a_fork_works";
    let ended = in_a_process(test, || {
        let host = Host::start();
        host.stops_hard();
        host.runtime.block_on(host.pool.drain());
        in_a_fork(|| {
            let own = Host::start();
            // By the watchdog, which is a thread, too.
            own.stops_hard();
            own.survives_faults_of_programs();
        });
    });
    ended.assert_exit(0);
}

/// Whatever the other threads are doing at that moment.
#[test]
fn a_fork_of_a_busy_pool_does_not_hang() {
    let test = "forks::a_fork_of_a_busy_pool_does_not_hang";
    let ended = in_a_process(test, || {
        let host = Host::start();
        let process = std::process::id();
        let submit = |pool: hatchery::Hatchery| async move {
            loop {
                let outcome = pool.run(Job::code("6 * 7")).await.unwrap();
                assert_eq!(outcome.verdict.name(), "completed", "{outcome:?}");
            }
        };
        let busy: Vec<_> = (0..4).map(|_| host.runtime.spawn(submit(host.pool.clone()))).collect();
        for _ in 0..100 {
            host.answers();
            in_a_fork(|| {
                // Without a runtime, whose own locks another thread may have held.
                let mut run = pin!(host.pool.run(Job::code("1")));
                match run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(result) => assert_foreign(result, process),
                    Poll::Pending => panic!("it waits for threads that aren't there"),
                }
                assert_eq!(host.pool.status().phase, Phase::Drained);
                drop(host.pool.clone());
            });
        }
        for task in busy {
            assert!(!task.is_finished());
            task.abort();
        }
        let status = host.pool.status();
        assert_eq!(status.totals.sandbox_failed, 0, "{status:?}");
    });
    ended.assert_exit(0);
}
