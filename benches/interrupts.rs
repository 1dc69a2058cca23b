//! How soon does a program end after a request? Measures the time from a request to the program's
//! `KeyboardInterrupt`, how far a hard stop overshoots its deadline, whether answers are right
//! between many interrupts, and whether a CPU limit is exact on a busy machine. Prints percentiles,
//! and fails if an answer is wrong.
//!
//! Doesn't measure: replacing a stopped interpreter; `benches/start.rs` does.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use hatchery::event::Events;
use hatchery::{Hatchery, Job, LimitKind, Limits, Verdict};
use test_support::output::next_output;
use tokio::runtime::Runtime;

/// Bodies of programs that report an interrupt as the first thing in their handler.
const LISTENERS: [&str; 5] = [
    "while True: pass",
    "while True: [i * i for i in range(100)]",
    "def f(n):\n        return f(n - 1) if n else 0\n    while True: f(50)",
    "import time\n    time.sleep(10**6)",
    "for _ in iter(int, 1): pass",
];

/// Twenty endless programs: in Python, in C, in the host, and ignoring every exception.
const ENDLESS: [&str; 20] = [
    "while True: pass",
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "sum(range(10**18))",
    "9**9**9",
    "import re; re.match('(a+)+$', 'a' * 40 + 'b')",
    "import time; time.sleep(10**6)",
    "import itertools; max(itertools.count())",
    "class A:\n    def __del__(self):\n        while True: pass\ndel [A()][0]",
    "class A:\n    def __repr__(self):\n        while True: pass\nA()",
    "import atexit\n@atexit.register\ndef f():\n    while True: pass",
    "while True: print('flood')",
    "import os\nwhile True: os.write(2, b'x' * 4096)",
    "while True: open('f', 'w').close()",
    "while True: [0] * (1 << 20)",
    "x = []\nwhile True:\n    x.append(bytes(1 << 16))\n    if len(x) > 1000: x.clear()",
    "import os\nwhile True: os.urandom(1 << 10)",
    "import time\nwhile True: time.time()",
    "import hashlib\nwhile True: hashlib.sha256(bytes(1 << 20))",
    "class M(type):\n    def __getattr__(c, n): return getattr(c, n + 'x')\nwhile True:\n    try: M('A', (), {}).a\n    except BaseException: pass",
    "import json\nwhile True: json.loads(json.dumps(list(range(1000))))",
];

fn main() {
    let runtime = Runtime::new().expect("the runtime starts");
    let pool =
        runtime.block_on(Hatchery::builder().workers(2).start()).expect("the build is available");
    runtime.block_on(async {
        soft_interrupts(&pool, 1_000).await;
        alternating(&pool, 10_000).await;
        hard_stops(&pool, 1_000).await;
        busy_machine(&pool, 10).await;
        pool.drain().await;
    });
}

/// From the request to the program's `except KeyboardInterrupt`, both as the caller sees them.
async fn soft_interrupts(pool: &Hatchery, count: usize) {
    let session = pool.session("soft").await.expect("the session opens");
    let mut delays = Vec::new();
    for round in 0..count {
        let body = LISTENERS[round % LISTENERS.len()];
        let source =
            format!("try:\n    print('on')\n    {body}\nexcept KeyboardInterrupt: print('heard')");
        let mut ticket = session.submit(Job::code(source)).await.expect("the job is admitted");
        let mut events = ticket.events();
        assert_eq!(next_line(&mut events).await, "on\n");
        // At an arbitrary moment after the program's first line.
        spin(Duration::from_micros(37 * (round as u64 % 100)));
        let asked = Instant::now();
        ticket.interrupt();
        assert_eq!(next_line(&mut events).await, "heard\n");
        delays.push(asked.elapsed());
        assert!(ticket.outcome().await.is_success());
    }
    session.close();
    report("soft interrupt, request to KeyboardInterrupt", delays);
}

/// One session, alternately interrupted and queried.
async fn alternating(pool: &Hatchery, count: u64) {
    let session = pool.session("alternating").await.expect("the session opens");
    session.run(Job::code("x = 0")).await.expect("the job is admitted");
    for round in 1..=count {
        let source = "print('on')\nwhile True: pass";
        let mut ticket = session.submit(Job::code(source)).await.expect("the job is admitted");
        assert_eq!(next_line(&mut ticket.events()).await, "on\n");
        ticket.interrupt();
        let verdict = ticket.outcome().await.verdict;
        assert!(matches!(verdict, Verdict::Raised(_)), "{verdict:?}");
        let outcome =
            session.run(Job::code("x += 1; print(x)")).await.expect("the job is admitted");
        assert_eq!(outcome.stdout_text(), format!("{round}\n"));
    }
    session.close();
    println!("{count} interrupts and turns on one session: every answer right");
}

/// Deadlines at various moments, without a grace period.
async fn hard_stops(pool: &Hatchery, count: usize) {
    let mut delays = Vec::new();
    for pair in 0..count / 2 {
        let stop = |round: usize| {
            // From 1 to 60 ms, in steps that don't resonate with those of the programs.
            let wall_time = Duration::from_micros(1_000 + (round as u64 * 7_919) % 59_000);
            let limits = Limits { wall_time, grace: Duration::ZERO, ..Limits::default() };
            let job = Job::code(ENDLESS[round % ENDLESS.len()]).limits(limits);
            async move {
                let outcome = pool.run(job).await.expect("the job is admitted");
                let Verdict::Limit(hit) = outcome.verdict else { panic!("{outcome:?}") };
                assert_eq!(hit.limit, LimitKind::Wall);
                outcome.usage.wall.saturating_sub(wall_time)
            }
        };
        let (first, second) = tokio::join!(stop(2 * pair), stop(2 * pair + 1));
        delays.extend([first, second]);
    }
    let outcome = pool.run(Job::code("print(6 * 7)")).await.expect("the job is admitted");
    assert_eq!(outcome.stdout_text(), "42\n");
    report("hard stop, overshoot of the deadline", delays);
}

/// Computations of one second under a CPU limit of 2 s, against 8 busy processes.
async fn busy_machine(pool: &Hatchery, count: usize) {
    let trial =
        pool.run(Job::code("for _ in range(5_000_000): pass")).await.expect("the job is admitted");
    let rounds = (5e6 / trial.usage.cpu.as_secs_f64()) as u64;
    let source = format!("for _ in range({rounds}): pass");
    let busy: Vec<Busy> = (0..8).map(|_| Busy::start()).collect();
    let (mut walls, mut cpus) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let limits = Limits {
            cpu_time: Some(Duration::from_secs(2)),
            wall_time: Duration::from_secs(60),
            ..Limits::default()
        };
        let outcome =
            pool.run(Job::code(source.as_str()).limits(limits)).await.expect("the job is admitted");
        assert!(outcome.is_success(), "{outcome:?}");
        assert!(outcome.usage.cpu >= Duration::from_millis(500), "{outcome:?}");
        cpus.push(outcome.usage.cpu);
        walls.push(outcome.usage.wall);
    }
    drop(busy);
    println!("{count} computations of 1 s under a CPU limit of 2 s and 8 busy processes: all pass");
    report("their CPU time", cpus);
    report("their wall time", walls);
}

/// A process that spins.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        Self(child.expect("there is a shell"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn next_line(events: &mut Events) -> String {
    let mut line = String::new();
    while !line.ends_with('\n') {
        let bytes = next_output(events).await.expect("the program prints a line");
        line += &String::from_utf8_lossy(&bytes);
    }
    line
}

fn spin(duration: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < duration {
        std::hint::spin_loop();
    }
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let (p50, p99, most) = (at(0.5), at(0.99), at(1.0));
    println!("{what} ({} times): p50 {p50:.1?}, p99 {p99:.1?}, most {most:.1?}", times.len());
}
