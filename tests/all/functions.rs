//! Host functions as programs call them, and asyncio, which waits for them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use hatchery::recording::Recording;
use hatchery::{Deterministic, HostError, HostFunction, Job, LimitKind, Limits, Outcome, Verdict};
use serde_json::{Value, json};

use crate::support::{Shared, builder, calm, exception, run, run_job, value};

#[derive(serde::Deserialize)]
struct Price {
    item: String,
    count: u32,
}

#[derive(serde::Deserialize)]
struct Wait {
    milliseconds: u64,
}

#[derive(serde::Deserialize)]
struct Fail {
    way: String,
}

#[derive(serde::Deserialize)]
struct Forever {
    key: String,
}

/// The keys of calls of `forever` that have begun, and of calls that were dropped.
static BEGUN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static DROPPED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

impl Drop for Forever {
    fn drop(&mut self) {
        DROPPED.lock().expect("no holder panics").insert(self.key.clone());
    }
}

/// Waits until a key is present.
async fn appears(key: &str, keys: &Mutex<BTreeSet<String>>) {
    while !keys.lock().expect("no holder panics").contains(key) {
        pass(Duration::from_millis(2)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "stands for a slow service")]
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

fn functions() -> [HostFunction; 9] {
    let price = |Price { item, count }: Price| match item.as_str() {
        "chair" => Ok(87.5 * f64::from(count)),
        _ => Err(HostError::new("KeyError", item)),
    };
    let wait = async |Wait { milliseconds }: Wait| {
        pass(Duration::from_millis(milliseconds)).await;
        Ok::<_, HostError>(milliseconds)
    };
    let fail = |Fail { way }: Fail| -> Result<(), HostError> {
        match way.as_str() {
            "named" => Err(HostError::new("OutOfStock", "no chairs")),
            "private" => Err(HostError::private("the password is 1234")),
            "passed on" => Ok(std::fs::read("/no/such/secret").map(drop)?),
            _ => panic!("the password is 1234"),
        }
    };
    [
        HostFunction::sync("price", price)
            .doc("Returns the price of an item.\n\nIn euros.")
            .parameter("item", "str")
            .parameter_with_default("count", "int", 1)
            .returns("float"),
        HostFunction::future("wait", wait).parameter("milliseconds", "int"),
        HostFunction::future("wait_shortly", wait)
            .parameter("milliseconds", "int")
            .timeout(Duration::from_millis(20)),
        HostFunction::sync("fail", fail).parameter("way", "str"),
        HostFunction::future("forever", async |forever: Forever| {
            BEGUN.lock().expect("no holder panics").insert(forever.key.clone());
            std::future::pending::<()>().await;
            Ok::<_, HostError>(forever.key.clone())
        })
        .parameter_with_default("key", "str", "any"),
        HostFunction::future("line", async |(): ()| {
            static READ: AtomicU64 = AtomicU64::new(0);
            pass(Duration::from_millis(300)).await;
            Ok::<_, HostError>(match READ.fetch_add(1, Ordering::SeqCst) {
                0 => Some("first\n"),
                1 => Some(""),
                2 => None,
                _ => Some("later\n"),
            })
        })
        .no_parameters(),
        HostFunction::sync("echo", |value: Value| Ok::<_, HostError>(value)),
        HostFunction::sync("large", |(): ()| Ok::<_, HostError>("x".repeat(100_000)))
            .no_parameters(),
        HostFunction::sync("roll", |(): ()| {
            static ROLLED: AtomicU64 = AtomicU64::new(0);
            Ok::<_, HostError>(ROLLED.fetch_add(1, Ordering::SeqCst))
        })
        .no_parameters(),
    ]
}

static POOL: LazyLock<Shared> = LazyLock::new(|| {
    let builder = builder().preload(["asyncio"]);
    Shared::start(functions().into_iter().fold(builder, hatchery::Builder::function))
});

fn call_job(job: Job) -> Outcome {
    POOL.with(|pool| async { pool.run(job).await.expect("the queue isn't full") })
}

/// Runs a program that has `host`, `hatchery` and `asyncio`.
fn call(source: &str) -> Outcome {
    call_job(job(source))
}

fn job(source: &str) -> Job {
    Job::code(format!("import asyncio, hatchery\nfrom hatchery import host\n{source}"))
}

#[test]
fn a_call_waits_for_its_result() {
    let source = "[host.price('chair'), host.price(item='chair', count=2), host.wait(5)]";
    assert_eq!(value(&call(source)), json!([87.5, 175.0, 5]));
}

#[test]
fn values_round_trip() {
    let source = "v = {'a': [1, -2.5, None, True, 'ä\\n', [], {}], 'b': 2**64 - 1, 'c': -2**63}\n\
                  host.echo(**v) == v";
    assert_eq!(value(&call(source)), json!(true));
    for (argument, error) in [
        ("{1}", "TypeError"),
        ("2**64", "OverflowError"),
        ("float('nan')", "ValueError"),
        ("{1: 2}", "TypeError"),
    ] {
        let outcome = call(&format!("host.echo(x={argument})"));
        assert_eq!(exception(&outcome).type_name, error, "{argument}");
    }
}

#[test]
fn a_host_function_looks_like_a_python_function() {
    let source = "import inspect\nhelp(host.price)\n\
                  [dir(host), str(inspect.signature(host.price)), host.price.__doc__[:8],\n\
                  str(inspect.signature(host.price.aio)), str(inspect.signature(host.echo))]";
    let outcome = call(source);
    let signature = "(item: str, count: int = 1) -> float";
    let names =
        ["echo", "fail", "forever", "large", "line", "price", "roll", "wait", "wait_shortly"];
    let expected = json!([names, signature, "Returns ", signature, "(**arguments)"]);
    assert_eq!(value(&outcome), expected);
    let help = outcome.stdout_text();
    assert!(help.contains("price(item: str, count: int = 1) -> float"), "{help}");
    assert!(help.contains("In euros."), "{help}");
}

#[test]
fn wrong_calls_raise_python_exceptions() {
    for (source, type_name, part) in [
        ("host.price()", "TypeError", "missing 1 required positional argument: 'item'"),
        ("host.price('chair', colour=1)", "TypeError", "unexpected keyword argument 'colour'"),
        ("host.price('chair', count='x')", "TypeError", "invalid type"),
        ("host.prize('chair')", "AttributeError", "wait_shortly"),
        ("from hatchery.host import prize", "ImportError", "prize"),
    ] {
        let outcome = call(source);
        let exception = exception(&outcome);
        assert_eq!(exception.type_name, type_name, "{source}");
        assert!(exception.message.contains(part), "{source}: {}", exception.message);
    }
    assert_eq!(value(&call("from hatchery.host import price\nprice('chair')")), json!(87.5));
}

#[test]
fn errors_have_the_type_that_the_host_gives_and_disclose_nothing_else() {
    let outcome = call("host.price('sofa')");
    assert_eq!(exception(&outcome).type_name, "KeyError");
    let source = "try: host.fail('named')\n\
                  except hatchery.HostFunctionError as e: r = [type(e).__name__, e.type, str(e)]\nr";
    assert_eq!(value(&call(source)), json!(["OutOfStock", "OutOfStock", "no chairs"]));
    for way in ["private", "passed on", "panic"] {
        let outcome = call(&format!("host.fail({way:?})"));
        let exception = exception(&outcome);
        assert_eq!(exception.type_name, "hatchery.HostFunctionError", "{way}");
        assert_eq!(exception.message, "the host function `fail` failed", "{way}");
        assert!(!exception.traceback.contains("1234"), "{way}: {}", exception.traceback);
    }
    let outcome = call("host.wait_shortly(60_000)");
    assert_eq!(exception(&outcome).type_name, "TimeoutError");
}

#[test]
fn many_calls_wait_at_once() {
    let source = "import time\n\
                  async def all(): return await asyncio.gather(*[host.wait.aio(50) for _ in range(100)])\n\
                  begun = time.perf_counter()\n\
                  results = asyncio.run(all())\n\
                  [sum(results), time.perf_counter() - begun]";
    // Other tests run concurrently, so the best of three counts.
    let seconds = (0..3).map(|_| {
        let result = value(&call(source));
        assert_eq!(result[0], json!(5000));
        result[1].as_f64().unwrap()
    });
    let seconds = seconds.fold(f64::INFINITY, f64::min);
    println!("100 calls of 50 ms at once: {:.0} ms", seconds * 1e3);
    assert!((0.05..0.3).contains(&seconds), "{seconds} s");
}

#[test]
fn a_call_that_is_awaited_lets_other_tasks_run() {
    let source = "order = []\n\
                  async def slow(): order.append(await host.wait.aio(60))\n\
                  async def quick():\n\
                  \x20 for i in range(3): await asyncio.sleep(0.001); order.append(i)\n\
                  async def main():\n\
                  \x20 async with asyncio.TaskGroup() as group:\n\
                  \x20  group.create_task(slow()); group.create_task(quick())\n\
                  \x20 try: await asyncio.wait_for(host.forever.aio(), 0.01)\n\
                  \x20 except TimeoutError: order.append('late')\n\
                  \x20 try: await host.fail.aio('named')\n\
                  \x20 except hatchery.HostFunctionError as e: order.append(str(e))\n\
                  asyncio.run(main())\norder";
    assert_eq!(value(&call(source)), json!([0, 1, 2, 60, "late", "no chairs"]));
}

#[test]
fn asyncio_works_without_any_function() {
    let source = "import asyncio\nseen = []\n\
                  async def producer(queue):\n\
                  \x20 for i in range(3): await queue.put(i); await asyncio.sleep(0.001)\n\
                  \x20 await queue.put(None)\n\
                  async def main():\n\
                  \x20 queue = asyncio.Queue(1)\n\
                  \x20 async with asyncio.TaskGroup() as group:\n\
                  \x20  group.create_task(producer(queue))\n\
                  \x20  while (item := await queue.get()) is not None: seen.append(item)\n\
                  \x20 try:\n\
                  \x20  async with asyncio.timeout(0.01): await asyncio.Event().wait()\n\
                  \x20 except TimeoutError: seen.append('timeout')\n\
                  \x20 results = await asyncio.gather(asyncio.sleep(0.01, 'a'), asyncio.sleep(0, 'b'))\n\
                  \x20 done, pending = await asyncio.wait([asyncio.create_task(asyncio.sleep(9))], timeout=0.01)\n\
                  \x20 return seen + results + [len(done), len(pending)]\n\
                  asyncio.run(main())";
    let expected = json!([0, 1, 2, "timeout", "a", "b", 0, 1]);
    assert_eq!(value(&run(source)), expected);
}

#[test]
fn virtual_time_takes_no_real_time() {
    let source = "import asyncio, time\nbegun = time.monotonic()\n\
                  asyncio.run(asyncio.sleep(20))\nround(time.monotonic() - begun)";
    let outcome = run_job(Job::code(source).deterministic(Deterministic::new(1)));
    assert_eq!(value(&outcome), json!(20));
    assert!(outcome.usage.wall < Duration::from_secs(10), "{:?}", outcome.usage);
}

#[test]
fn calls_beyond_a_limit_are_refused() {
    let limits = Limits {
        function_calls: 5,
        function_argument_bytes: 1000,
        function_result_bytes: 1000,
        functions_in_flight: 2,
        ..calm()
    };
    let three = "async def f(): await asyncio.gather(*[host.forever.aio() for _ in range(3)])\n\
                 asyncio.run(f())";
    for (source, kind) in [
        ("for _ in range(6): host.roll()", LimitKind::FunctionCalls),
        ("host.echo(x='x' * 1000)", LimitKind::FunctionArguments),
        ("host.large()", LimitKind::FunctionResults),
        (three, LimitKind::FunctionsInFlight),
    ] {
        let outcome = call_job(job(source).limits(limits.clone()));
        assert_eq!(exception(&outcome).type_name, "hatchery.HostLimitError", "{source}");
        let met: Vec<LimitKind> = outcome.limits_met.iter().map(|hit| hit.limit).collect();
        assert_eq!(met, [kind], "{source}");
    }
    let outcome = call_job(job("host.echo(x='x' * 900)['x']").limits(limits));
    assert_eq!(value(&outcome), json!("x".repeat(900)));
}

/// An interrupt ends a wait for the host, in plain and in awaited calls, and the session continues.
#[test]
fn interrupts_reach_a_program_that_waits_for_the_host() {
    POOL.with(|pool| async move {
        let session = pool.session("waits for the host").await.unwrap();
        session.run(job("seen = []")).await.unwrap();
        let awaited = "async def f():\n\
                       \x20 try: await host.forever.aio('awaited')\n\
                       \x20 finally: seen.append('tidied')\n\
                       asyncio.run(f())";
        for (key, source) in [("plain", "host.forever('plain')"), ("awaited", awaited)] {
            let ticket = session.submit(job(source)).await.unwrap();
            appears(key, &BEGUN).await;
            ticket.interrupt();
            let outcome = ticket.await;
            assert_eq!(exception(&outcome).type_name, "KeyboardInterrupt", "{source}: {outcome:?}");
            appears(key, &DROPPED).await;
        }
        let outcome = session.run(job("[seen, host.price('chair')]")).await.unwrap();
        assert_eq!(value(&outcome), json!([["tidied"], 87.5]));
        session.close();
    });
}

/// The time that somebody takes to type isn't the program's.
#[test]
fn standard_input_can_come_from_a_function() {
    POOL.with(|pool| async move {
        let session = pool.session("reads lines").await.unwrap();
        let reads = |source: &str| {
            let limits = Limits { wall_time: Duration::from_millis(200), ..calm() };
            Job::code(source).stdin_from("line").limits(limits)
        };
        let outcome = session.run(reads("input('? ')")).await.unwrap();
        assert_eq!((value(&outcome), outcome.stdout_text()), (json!("first"), "? ".to_owned()));
        for expected in ["EOFError", "KeyboardInterrupt"] {
            let outcome = session.run(reads("x = 1; input()")).await.unwrap();
            let exception = exception(&outcome);
            assert_eq!((&*exception.type_name, exception.frames.len()), (expected, 1));
        }
        let source = "import sys\n[x, input(), sys.stdin.readline()]";
        let outcome = session.run(reads(source)).await.unwrap();
        assert_eq!(value(&outcome), json!([1, "later", "later\n"]));
        let outcome = session.run(reads("input()\nwhile True: pass")).await.unwrap();
        assert!(matches!(&outcome.verdict, Verdict::Limit(hit) if hit.limit == LimitKind::Wall));
        let outcome = session.run(Job::code("input()").stdin_from("nothing")).await.unwrap();
        assert!(exception(&outcome).message.contains("no function `nothing`"), "{outcome:?}");
        session.close();
    });
}

/// A call ends with its run, however the run ends.
#[test]
fn a_run_that_ends_drops_its_calls() {
    POOL.with(|pool| async move {
        let left = "loop = asyncio.new_event_loop()\n\
                    task = loop.create_task(host.forever.aio('left'))\n\
                    loop.run_until_complete(asyncio.sleep(0.01))";
        let deaf = "while True:\n try: host.forever('deaf')\n except KeyboardInterrupt: pass";
        for (key, source) in [("left", left), ("late", "host.forever('late')"), ("deaf", deaf)] {
            let limits = Limits {
                wall_time: Duration::from_secs(1),
                grace: Duration::from_millis(300),
                ..calm()
            };
            let outcome = pool.run(job(source).limits(limits)).await.unwrap();
            assert_eq!(outcome.is_success(), key == "left", "{key}: {outcome:?}");
            appears(key, &DROPPED).await;
        }
    });
}

#[test]
fn calls_of_an_earlier_run_fail_in_a_session() {
    POOL.with(|pool| async move {
        let session = pool.session("keeps a loop").await.unwrap();
        let first = "loop = asyncio.new_event_loop()\n\
                     task = loop.create_task(host.forever.aio())\n\
                     loop.run_until_complete(asyncio.sleep(0.01))";
        assert!(session.run(job(first)).await.unwrap().is_success());
        let outcome = session.run(job("loop.run_until_complete(task)")).await.unwrap();
        assert_eq!(exception(&outcome).message, "the run that made this call has ended");
        let kept = "import hatchery._loop\nasync def f(): return await host.wait.aio(1)\n\
                    hatchery._loop.run(f())";
        assert_eq!(value(&session.run(job(kept)).await.unwrap()), json!(1));
        assert_eq!(value(&session.run(job(kept)).await.unwrap()), json!(1));
        session.close();
    });
}

#[test]
fn a_deterministic_job_is_repeated_without_the_host() {
    let source = "import random, time\n\
                  async def one(i):\n\
                  \x20 await asyncio.sleep(random.random() / 100)\n\
                  \x20 print(i, await host.roll.aio(), time.time(), random.random())\n\
                  \x20 print(await host.wait.aio(random.randrange(20)), time.time())\n\
                  async def main():\n\
                  \x20 await asyncio.gather(*map(one, range(8)))\n\
                  \x20 try: await asyncio.wait_for(host.forever.aio(), 0.01)\n\
                  \x20 except TimeoutError: print('late', time.time())\n\
                  asyncio.run(main())\n\
                  try: host.fail('private')\n\
                  except Exception as e: print(repr(e))\n\
                  print(host.roll(), time.time())";
    let deterministic = || job(source).deterministic(Deterministic::new(3));
    let first = call_job(deterministic().record_host_calls());
    assert!(first.is_success(), "{first:?}");
    let recording = first.recording.clone().expect("the run was recorded");
    assert_eq!(recording.calls.len(), 19);
    let text = serde_json::to_string(&recording).unwrap();
    assert!(!text.contains("1234"));
    let recording: Recording = serde_json::from_str(&text).unwrap();
    for _ in 0..2 {
        let again = call_job(deterministic().replay_host_calls(recording.clone()));
        assert_eq!(again.stdout_text(), first.stdout_text());
        assert_eq!(again.stderr_text(), "");
    }
    let other = job("host.roll(); host.price('chair')").replay_host_calls(recording);
    let outcome = call_job(other.deterministic(Deterministic::new(3)));
    assert_eq!(exception(&outcome).type_name, "hatchery.ReplayError");
    assert!(matches!(outcome.verdict, Verdict::Raised(_)));
}
