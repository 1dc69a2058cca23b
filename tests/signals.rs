//! An embedding program with its own signal handlers. In its own process, since handlers are
//! global.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
#![expect(unsafe_code, reason = "installs a handler for SIGSEGV, as embedding programs do")]

use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hatchery::{Hatchery, Job, LimitKind, Limits, Verdict};
use tokio::signal::unix::{SignalKind, signal};

/// Sends signals to this process until it is dropped.
struct Storm(Child);

impl Storm {
    fn start() -> Self {
        let process = std::process::id();
        let script = format!(
            "while kill -USR1 {process}; do for s in USR2 ALRM CHLD WINCH HUP; do kill -$s {process}; done; done"
        );
        Self(Command::new("sh").args(["-c", &script]).spawn().unwrap())
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The handler that was installed before ours, and how often ours was called.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static FAULTS: AtomicUsize = AtomicUsize::new(0);

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Acts as a crash reporter: notes the fault and calls the previous handler.
extern "C" fn note_and_pass_on(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    FAULTS.fetch_add(1, Ordering::SeqCst);
    let previous = PREVIOUS.get().expect("set before this handler").sa_sigaction;
    // SAFETY: the engine installed it with SA_SIGINFO, as the test has checked.
    let previous: Handler = unsafe { std::mem::transmute(previous) };
    previous(signal, info, context);
}

fn install_crash_reporter() {
    // SAFETY: plain data, filled by the call; null means to change nothing.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to locals or null.
    let result = unsafe { libc::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut previous) };
    assert_eq!(result, 0);
    assert_ne!(previous.sa_flags & libc::SA_SIGINFO, 0, "the engine's handler is installed");
    let ours = libc::sigaction { sa_sigaction: note_and_pass_on as *const () as usize, ..previous };
    assert!(PREVIOUS.set(previous).is_ok());
    // SAFETY: the handler only counts and passes on; the flags are those of the previous one.
    let result = unsafe { libc::sigaction(libc::SIGSEGV, &raw const ours, std::ptr::null_mut()) };
    assert_eq!(result, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn stray_signals_and_handlers_of_the_embedding_program_change_nothing() {
    let kinds = [
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
        SignalKind::alarm(),
        SignalKind::child(),
        SignalKind::window_change(),
        SignalKind::hangup(),
    ];
    let mut handled: Vec<_> = kinds.iter().map(|kind| signal(*kind).unwrap()).collect();
    let pool = Hatchery::builder().workers(2).start().await.unwrap();
    assert!(pool.run(Job::code("1")).await.unwrap().is_success());
    install_crash_reporter();
    let storm = Storm::start();
    let limits = Limits {
        wall_time: Duration::from_millis(200),
        grace: Duration::from_millis(50),
        ..Limits::default()
    };
    for _ in 0..5 {
        let jobs = ["sum(range(10**18))", "while True: pass", "import time; time.sleep(10**6)"];
        for source in jobs {
            let outcome = pool.run(Job::code(source).limits(limits.clone())).await.unwrap();
            let Verdict::Limit(hit) = outcome.verdict else { panic!("{source}: {outcome:?}") };
            assert_eq!(hit.limit, LimitKind::Wall, "{source}");
        }
        let deep = "x = ()\nfor _ in range(2 * 10**5): x = (x,)\nhash(x)";
        let outcome = pool.run(Job::code(deep)).await.unwrap();
        let Verdict::Limit(hit) = outcome.verdict else { panic!("{outcome:?}") };
        assert_eq!(hit.limit, LimitKind::Stack);
        let outcome = pool.run(Job::code("import time; time.sleep(0.2); print(7)")).await.unwrap();
        assert_eq!(outcome.stdout_text(), "7\n");
        assert!(outcome.usage.wall >= Duration::from_millis(200), "{:?}", outcome.usage);
    }
    drop(storm);
    assert_eq!(FAULTS.load(Ordering::SeqCst), 0, "no fault of a program is a crash");
    for handled in &mut handled {
        let received = tokio::time::timeout(Duration::from_secs(5), handled.recv()).await;
        assert!(matches!(received, Ok(Some(()))), "the program's own handlers still work");
    }
    pool.drain().await;
}
