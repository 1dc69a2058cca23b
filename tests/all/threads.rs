//! Threads of the default build, which run one at a time.

use std::sync::Arc;
use std::time::Duration;

use hatchery::error::chain;
use hatchery::{
    Hatchery, HostError, HostFunction, Job, LimitKind, Limits, SessionsConfig, Verdict,
};
use serde_json::json;
use tokio::sync::Barrier;

use crate::support::{builder, next_output, run, value, with_own_pool, with_pool};

/// What the programs print is below them; it is what CPython 3.13 prints. In which order threads
/// print is nobody's promise.
const PROGRAMS: [&str; 4] = [
    include_str!("threads/first.txt"),
    include_str!("threads/sharing.txt"),
    include_str!("threads/waiting.txt"),
    include_str!("threads/pools.txt"),
];

#[test]
fn programs_print_what_they_print_with_threads() {
    let programs: Vec<_> = PROGRAMS.into_iter().flat_map(|all| all.split("### ").skip(1)).collect();
    assert!(programs.len() >= 150, "{} programs", programs.len());
    let run_all = |pool: &'static Hatchery| async move {
        let mut failures = Vec::new();
        let (mut tickets, mut expected) = (Vec::new(), Vec::new());
        for program in programs {
            let (name, rest) = program.split_once('\n').expect("each begins with its name");
            let (source, prints) = rest.split_once("\n---\n").expect("each has what it prints");
            tickets.push(pool.submit(Job::code(source)).await.expect("the queue isn't full"));
            expected.push((name, prints));
        }
        for (mut ticket, (name, prints)) in tickets.into_iter().zip(expected) {
            let outcome = ticket.outcome().await;
            if lines(&outcome.stdout_text()) != lines(prints) {
                failures.push(format!("{name}: {outcome:?}"));
            }
        }
        failures
    };
    let failures = with_pool(run_all);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.trim().lines().collect();
    lines.sort_unstable();
    lines
}

/// A lock is released, a variable set or a queue filled while another thread computes.
#[test]
fn threads_run_while_others_compute() {
    let outcome = run("import threading, time\n\
                       is_set = False\n\
                       def f():\n\
                       \x20global is_set\n\
                       \x20time.sleep(0.01)\n\
                       \x20is_set = True\n\
                       threading.Thread(target=f).start()\n\
                       while not is_set: pass\n\
                       sorted('ba', key=lambda c: (time.sleep(0.01), c))");
    assert_eq!(value(&outcome), json!(["a", "b"]));
}

/// The main thread computes and waits in C, with no instruction in between. So it is asked for its
/// turn before it waits; and it asks for that of the thread on which its wait depends.
#[test]
fn threads_that_are_asked_for_their_turn_wait_for_nobody() {
    let outcome = run("import _thread, functools, operator\n\
                       lock = _thread.allocate_lock()\n\
                       lock.acquire()\n\
                       acquire = type(lock).acquire\n\
                       names = acquire.__code__.co_freevars\n\
                       take = acquire.__closure__[names.index('take')].cell_contents\n\
                       def f():\n\
                       \x20sum(i for i in range(300_000))\n\
                       \x20lock.release()\n\
                       _thread.start_new_thread(f, ())\n\
                       computes = functools.partial(sum, range(2_000_000))\n\
                       list(map(operator.call, [computes, functools.partial(take, lock)]))[1]");
    assert_eq!(value(&outcome), json!(true));
}

/// Each call of the function returns when there are two: none would if a thread waited alone.
#[test]
fn threads_run_while_a_host_function_waits() {
    let both = Arc::new(Barrier::new(2));
    let meet = HostFunction::future("meet", move |(): ()| {
        let both = Arc::clone(&both);
        async move { Ok::<_, HostError>(both.wait().await.is_leader()) }
    });
    let builder = builder().function(meet.no_parameters());
    with_own_pool(builder, |pool| async move {
        let source = "import threading\nfrom hatchery import host\nsaid = []\n\
                      thread = threading.Thread(target=lambda: said.append(host.meet()))\n\
                      thread.start()\nsaid.append(host.meet())\nthread.join()\nsorted(said)";
        assert_eq!(value(&pool.run(Job::code(source)).await.unwrap()), json!([false, true]));
    });
}

#[test]
fn each_thread_has_a_stack_of_its_own() {
    let source = "import json, threading\n\
                  said = []\n\
                  def deep(n):\n\
                  \x20return 0 if n == 0 else 1 + deep(n - 1)\n\
                  def f():\n\
                  \x20said.append(deep(900))\n\
                  \x20try: json.loads('[' * 100_000)\n\
                  \x20except RecursionError: said.append('RecursionError')\n\
                  threads = [threading.Thread(target=f) for _ in range(3)]\n\
                  for thread in threads: thread.start()\n\
                  for thread in threads: thread.join()\n\
                  sorted(map(str, said))";
    let error = "RecursionError";
    assert_eq!(value(&run(source)), json!(["900", "900", "900", error, error, error]));
}

#[test]
fn more_threads_than_the_limit_are_refused() {
    let job = Job::code(
        "import threading, time\n\
         gate = threading.Event()\n\
         try:\n\
         \x20for count in range(9): threading.Thread(target=gate.wait).start()\n\
         except RuntimeError as error: said = count, str(error)\n\
         gate.set()\n\
         said",
    );
    let limits = Limits { threads: 3, ..Limits::default() };
    with_pool(|pool| async move {
        let outcome = pool.run(job.limits(limits)).await.unwrap();
        assert_eq!(value(&outcome), json!([3, "can't start new thread"]));
        assert_eq!(outcome.limits_met[0].limit, LimitKind::Threads);
    });
}

/// A session with a thread that waits stays on its worker, and goes on there. Its pool has no other
/// sessions, for which it could lose the worker.
#[test]
fn a_thread_waits_between_turns() {
    with_own_pool(builder(), |pool| async move {
        let session = pool.session("waiting threads").await.unwrap();
        let begin = "import queue, threading\nq, said = queue.Queue(), queue.Queue()\n\
                     def f():\n while (one := q.get()) is not None: said.put(one)\n\
                     thread = threading.Thread(target=f)\nthread.start()";
        session.run(Job::code(begin)).await.unwrap();
        let outcome = session.run(Job::code("q.put(1)\nsaid.get()")).await.unwrap();
        assert_eq!(value(&outcome), json!(1));
        for refused in [
            session.fork("with its threads").await.map(drop),
            session.checkpoint().await.map(drop),
            session.save(std::env::temp_dir().join("none.session")).await.map(drop),
        ] {
            let error = refused.unwrap_err();
            let said = chain(&error).to_string();
            assert!(said.contains("living threads"), "{said}");
        }
        session.run(Job::code("q.put(None)\nthread.join()")).await.unwrap();
        let fork = session.fork("after its threads").await.unwrap();
        assert_eq!(value(&fork.run(Job::code("said.qsize()")).await.unwrap()), json!(0));
        session.close();
        fork.close();
    });
}

/// Another session that is idle for less long is suspended meanwhile. The second job waits for the
/// second worker, even if that one is still starting.
#[test]
fn an_idle_session_with_a_thread_is_not_lost() {
    let suspend_after = Duration::from_millis(1);
    let sessions = SessionsConfig { suspend_after, ..SessionsConfig::default() };
    with_own_pool(builder().sessions(sessions), |pool| async move {
        let [session, other] = ["with a thread", "without"].map(|name| pool.session(name));
        let (session, other) = (session.await.unwrap(), other.await.unwrap());
        let begin = "import threading\nthread = threading.Thread(target=threading.Event().wait)\n\
                     thread.daemon = True\nthread.start()";
        session.run(Job::code(begin)).await.unwrap();
        other.run(Job::code("1")).await.unwrap();
        while pool.status().places.suspended == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.status().places.on_workers, 1);
        let alive = session.run(Job::code("thread.is_alive()")).await.unwrap();
        assert_eq!(value(&alive), json!(true));
    });
}

/// A grace period that no wait uses up.
const CALM: Duration = Duration::from_secs(60);

/// What a session's main thread waits for, with a thread that waits for `go`.
const WAITS: [&str; 11] = [
    "lock.acquire()",
    "with lock: pass",
    "lock.acquire(timeout=10**6)",
    "owned.acquire()",
    "thread.join()",
    "thread.join(10**6)",
    "queue.Queue().get()",
    "queue.SimpleQueue().get()",
    "threading.Event().wait()",
    "with condition: condition.wait()",
    "pool.submit(go.wait).result()",
];

#[test]
fn limits_and_interrupts_end_the_main_threads_waits_and_the_session_lives_on() {
    let begin = "import queue, threading\nfrom concurrent.futures import ThreadPoolExecutor\n\
                 lock, owned, condition = threading.Lock(), threading.RLock(), threading.Condition()\n\
                 go, pool = threading.Event(), ThreadPoolExecutor(1)\nlock.acquire()\n\
                 def f():\n with owned: go.wait()\n\
                 thread = threading.Thread(target=f)\nthread.start()";
    with_own_pool(builder(), |pool| async move {
        let session = pool.session("interrupted waits").await.unwrap();
        session.run(Job::code(begin)).await.unwrap();
        for wait in WAITS {
            let limits =
                Limits { wall_time: Duration::from_millis(50), grace: CALM, ..Limits::default() };
            let job = Job::code(wait).limits(limits);
            let outcome = session.run(job).await.unwrap();
            assert!(outcome.is_timeout(), "{wait}: {outcome:?}");
            let job = Job::code(format!("print('begun')\n{wait}"));
            let mut ticket = session.submit(job).await.unwrap();
            assert!(next_output(&mut ticket.events()).await.is_some());
            ticket.interrupt();
            let outcome = ticket.outcome().await;
            assert!(matches!(outcome.verdict, Verdict::Raised(_)), "{wait}: {outcome:?}");
            let alive = session.run(Job::code("thread.is_alive()")).await.unwrap();
            assert_eq!(value(&alive), json!(true), "{wait}");
        }
        let end = session.run(Job::code("go.set()\nthread.join()\npool.shutdown()\n7")).await;
        assert_eq!(value(&end.unwrap()), json!(7));
        session.close();
    });
}

#[test]
fn a_time_limit_ends_threads() {
    for wait in ["while True: pass", "while True: time.sleep(0.001)", "threading.Event().wait()"] {
        for end in ["thread.join()", "", "while True: pass"] {
            let source = format!(
                "import threading, time\ndef f():\n {wait}\n\
             thread = threading.Thread(target=f)\nthread.start()\n{end}"
            );
            let limits = Limits { wall_time: Duration::from_millis(300), ..Limits::default() };
            with_pool(|pool| async move {
                let outcome = pool.run(Job::code(&source).limits(limits)).await.unwrap();
                assert!(outcome.is_timeout(), "{source}: {outcome:?}");
                assert_eq!(value(&pool.run(Job::code("6 * 7")).await.unwrap()), json!(42));
            });
        }
    }
}
