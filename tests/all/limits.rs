//! What happens at each limit, and that the next job isn't affected.

use std::time::Duration;

use hatchery::{Job, LimitHit, LimitKind, Limits, Outcome, Verdict};
use serde_json::json;

use crate::support::{calm, exception, next_output, run, run_job, value, with_pool};

fn limit_of(outcome: &Outcome) -> LimitKind {
    match &outcome.verdict {
        Verdict::Limit(hit) => hit.limit,
        verdict => panic!("{verdict:?}"),
    }
}

#[test]
fn endless_programs_end_at_the_wall_limit_and_the_next_job_runs() {
    for source in [
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
    ] {
        let limits = Limits {
            wall_time: Duration::from_millis(300),
            grace: Duration::from_millis(100),
            ..calm()
        };
        let outcome = run_job(Job::code(source).limits(limits));
        assert_eq!(limit_of(&outcome), LimitKind::Wall, "{source}");
        assert!(outcome.is_timeout(), "{source}");
        let over = outcome.usage.cpu.saturating_sub(Duration::from_millis(300));
        assert!(over < Duration::from_secs(1), "{source}: {over:?} late");
        assert_eq!(value(&run("1 + 1")), json!(2), "after {source}");
    }
}

/// However a program takes memory, it meets the memory limit, not the time limit.
#[test]
fn memory_that_grows_in_turns_or_between_holes_ends_at_its_limit() {
    for source in [
        "blocks = [bytearray() for _ in range(1000)]\nwhile True:\n for b in blocks: b += bytes(4096)",
        "blocks = [bytearray() for _ in range(10)]\nwhile True:\n for b in blocks: b += bytes(1 << 20)",
        "kept, size = [], 100\nwhile True:\n new = [bytearray(size) for _ in range(10_000)]\n \
         kept += new[::2]; size += size // 10",
        "kept, size = [], 10_000\nwhile True:\n kept += [bytearray(size) for _ in range(100)][::2]\n \
         size += size // 100",
    ] {
        let cpu_time = Some(Duration::from_secs(8));
        let limits = Limits { memory_bytes: 512 << 20, cpu_time, ..calm() };
        let outcome = run_job(Job::code(source).limits(limits));
        assert_eq!(exception(&outcome).type_name, "MemoryError", "{source}");
        let is_memory = |hit: &LimitHit| hit.limit == LimitKind::Memory;
        assert!(outcome.limits_met.iter().any(is_memory), "{source}: {outcome:?}");
    }
}

#[test]
fn output_before_a_limit_is_kept() {
    let source = "print('first')\nprint('second', end='')\nwhile True: pass";
    let outcome = run_job(Job::code(source).timeout(Duration::from_secs(1)));
    assert_eq!(outcome.stdout_text(), "first\nsecond");
}

/// Recursion in C that CPython doesn't count: a Python exception or the stack's limit, nothing
/// else.
#[test]
fn deep_recursion_in_c_is_contained() {
    for source in [
        "import json; json.loads('[' * 10**6)",
        "import ast; ast.parse('(' * 10**5)",
        "x = []\nfor _ in range(10**6): x = [x]\nrepr(x)",
        "x = None\nfor _ in range(10**6): x = (x,)\ndel x",
        "import sys; sys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
        "import re; re.compile('(' * 10**5)",
        "import functools\nf = print\nfor _ in range(10**6): f = functools.partial(f)\nf()",
    ] {
        let outcome = run_job(Job::code(source).timeout(Duration::from_secs(20)));
        let is_contained = match &outcome.verdict {
            Verdict::Raised(_) | Verdict::Completed { .. } => true,
            Verdict::Limit(hit) => hit.limit == LimitKind::Stack,
            _ => false,
        };
        assert!(is_contained, "{source}: {:?}", outcome.verdict);
        assert_eq!(value(&run("1 + 1")), json!(2), "after {source}");
    }
}

/// File bombs: a Python exception at once, and the next job runs.
#[test]
fn files_are_bounded_before_anything_is_allocated() {
    for source in [
        "f = open('f', 'w+b'); f.truncate(1 << 45)",
        "f = open('f', 'w+b'); f.truncate(10 << 30)",
        "f = open('f', 'w+b'); f.seek(1 << 45); f.write(b'x'); f.flush()",
        "f = open('f', 'w+b', 0)\nfor _ in range(1 << 20): f.seek(1 << 40, 1); f.write(b'x')",
        "f = open('f', 'ab', 0)\nwhile True: f.write(b'x' * (1 << 20))",
        "import os\nfor i in range(10**6): open(f'f{i}', 'w').close()",
        "import os\nfor i in range(10**6): os.mkdir(f'd{i}')",
        "import os\nfor i in range(10**6): os.mkdir('d'); os.chdir('d')",
        "import os\nos.mkdir('d')\nfor i in range(10**6): os.mkdir('e'); os.rename('d', 'e/d'); os.rename('e', 'd')",
        "kept = [open('f', 'w') for _ in range(10**6)]",
        "kept = [open(f'f{i}', 'w') for i in range(10**6)]",
    ] {
        let outcome = run_job(Job::code(source).timeout(Duration::from_secs(20)));
        let exception = crate::support::exception(&outcome);
        let name = exception.type_name.as_str();
        assert!(
            matches!(name, "OSError" | "FileNotFoundError" | "MemoryError"),
            "{source}: {exception:?}"
        );
        assert_eq!(value(&run("1 + 1")), json!(2), "after {source}");
    }
}

/// Only growth counts against the bound.
#[test]
fn a_file_can_be_written_over_and_over() {
    let source = "f = open('f', 'w+b', 0)\n\
                  for _ in range(600): f.seek(0); f.write(b'x' * (1 << 20))\n\
                  import os\nos.path.getsize('f')";
    assert_eq!(value(&run(source)), json!(1 << 20));
}

#[test]
fn a_flood_of_output_is_cut_and_the_program_continues() {
    let limits = Limits { output_bytes: 1000, ..calm() };
    let source = "for _ in range(1000): print('x' * 99)\nprint('end')\n7";
    let outcome = run_job(Job::code(source).limits(limits));
    assert_eq!(value(&outcome), json!(7));
    assert_eq!(outcome.stdout.len(), 1000);
    assert!(outcome.output_truncated);
    assert_eq!(outcome.usage.output_bytes, 100_004);
    let [hit] = outcome.limits_met.as_slice() else { panic!("{outcome:?}") };
    assert_eq!((hit.limit, hit.allowed, hit.used), (LimitKind::Output, 1000, 100_004));
}

#[test]
fn a_flood_of_output_is_a_limit_if_the_job_asks_for_that() {
    let limits = Limits { output_bytes: 1000, stop_at_output_limit: true, ..calm() };
    for source in ["while True: print('x' * 99)", "import sys\nwhile True: sys.stderr.write('x')"] {
        let outcome = run_job(Job::code(source).limits(limits.clone()));
        assert_eq!(limit_of(&outcome), LimitKind::Output, "{source}");
        assert!(outcome.usage.output_bytes < 2000, "{source}: {:?}", outcome.usage);
        assert_eq!(outcome.stdout.len() + outcome.stderr.len(), 1000, "{source}");
    }
}

/// Waiting uses no CPU time.
#[test]
fn cpu_time_is_what_the_guest_computes() {
    let job = |source: &str| Job::code(source).cpu_time(Duration::from_millis(300));
    let outcome = run_job(job("import time; time.sleep(1); 7"));
    assert_eq!(value(&outcome), json!(7));
    assert!(outcome.usage.cpu < Duration::from_millis(300), "{:?}", outcome.usage);
    let outcome = run_job(job("while True: pass"));
    let Verdict::Limit(hit) = &outcome.verdict else { panic!("{outcome:?}") };
    assert_eq!((hit.limit, hit.allowed), (LimitKind::Cpu, 300));
    assert!((300..800).contains(&hit.used), "{hit:?}");
    assert!(outcome.is_timeout());
}

/// Through the door a program can say that it is over, as its agent does, and post a reply.
#[test]
fn time_counts_until_the_program_returns_whatever_it_says() {
    let computes = "for _ in range(10**7): pass";
    let honest = run(computes).usage;
    let exited = r#"b'\x02\x29\0\0\0{"kind":"exited","code":7,"message":null}'"#;
    for frame in [r"b'\x05'", exited] {
        let source = format!("import _host\n_host.call({frame})\n{computes}\n_host.call({frame})");
        let outcome = run(&source);
        assert!(outcome.is_success(), "{outcome:?}");
        let took = outcome.usage.cpu;
        assert!(took > honest.cpu / 2, "{frame}: {took:?} of {:?}", honest.cpu);
        let calm = Limits { grace: Duration::from_secs(60), ..calm() };
        let short = Duration::from_millis(50);
        for (limits, kind) in [
            (Limits { cpu_time: Some(short), ..calm.clone() }, LimitKind::Cpu),
            (Limits { wall_time: short, ..calm }, LimitKind::Wall),
        ] {
            let outcome = run_job(Job::code(&source).limits(limits));
            assert_eq!(limit_of(&outcome), kind, "{frame}");
        }
    }
}

#[test]
fn host_calls_are_counted_and_limited() {
    let limits = Limits { host_calls: 1000, ..calm() };
    let outcome = run_job(Job::code("import time\nwhile True: time.time()").limits(limits));
    let Verdict::Limit(hit) = &outcome.verdict else { panic!("{outcome:?}") };
    assert_eq!((hit.limit, hit.allowed), (LimitKind::HostCalls, 1000));
    assert!((1001..1100).contains(&hit.used), "{hit:?}");
    let few = run("1").usage.host_calls;
    let many = run("import time\nfor _ in range(500): time.time()").usage.host_calls;
    assert!((490..510).contains(&(many - few)), "{few} {many}");
}

#[test]
fn characters_are_whole_however_they_are_written_and_cut() {
    with_pool(|pool| async {
        let source = "import os, time\n\
                      for byte in 'aä€😀'.encode(): os.write(1, bytes([byte])); time.sleep(0.01)";
        let ticket = pool.submit(Job::code(source)).await.unwrap();
        let (mut text, mut events) = (String::new(), ticket.events());
        while let Some(bytes) = next_output(&mut events).await {
            text += std::str::from_utf8(&bytes).expect("no piece splits a character");
        }
        assert_eq!(text, "aä€😀");
    });
    let limits = Limits { output_bytes: 4, ..calm() };
    let outcome = run_job(Job::code("print('aa€')").limits(limits));
    assert_eq!(outcome.stdout, b"aa");
    let outcome = run("import os; os.write(1, b'a\\xff\\xe2\\x82b')");
    assert_eq!(outcome.stdout, b"a\xff\xe2\x82b", "bytes that are not text are unchanged");
}

#[test]
fn a_source_that_is_too_large_never_runs() {
    let limits = Limits { source_bytes: 100, ..calm() };
    let outcome = run_job(Job::code(format!("print(1) #{}", "x".repeat(200))).limits(limits));
    assert_eq!(limit_of(&outcome), LimitKind::Source);
    assert_eq!(outcome.stdout, b"");
}

#[test]
fn memory_beyond_the_limit_is_a_memory_error() {
    let limits = Limits { memory_bytes: 128 << 20, ..calm() };
    for bomb in
        ["bytearray(1 << 29)", "[0] * (1 << 28)", "x = []\nwhile True: x.append(bytes(1 << 20))"]
    {
        let outcome = run_job(Job::code(bomb).limits(limits.clone()));
        assert_eq!(crate::support::exception(&outcome).type_name, "MemoryError", "{bomb}");
        assert!(outcome.usage.peak_memory_bytes <= 128 << 20, "{bomb}");
        let [hit] = outcome.limits_met.as_slice() else { panic!("{bomb}: {outcome:?}") };
        assert_eq!((hit.limit, hit.allowed), (LimitKind::Memory, 128 << 20), "{bomb}");
        assert!(hit.used > 128 << 20, "{bomb}: {hit:?}");
    }
}

/// Built for WASI, CPython by default stops at 46 and 208.
#[test]
fn c_code_recurses_deep_enough_for_programs() {
    let elifs = "compile('if x == 0: pass\\n' + 'elif x == 1: pass\\n' * 150, '', 'exec')";
    assert!(run(elifs).is_success());
    let memoised = "import functools\n\
                    @functools.cache\n\
                    def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\n\
                    fib(800) % 1000";
    assert_eq!(value(&run(memoised)), json!(725));
    let endless = "class A:\n    def __repr__(self): return repr(self)\n\
                   try: repr(A())\n\
                   except RecursionError: print('noticed')";
    assert_eq!(run(endless).stdout_text(), "noticed\n");
}

/// Natively, CPython puts off what is nested too deep, and frees it afterwards.
#[test]
fn objects_free_each_other_however_deep_they_are_nested() {
    let program = "
import functools, itertools
for wrap in (lambda x: [x], lambda x: (x,), lambda x: {1: x}, lambda x: frozenset([x]), lambda x: lambda: x,
             lambda x: iter([x]), lambda x: (y for y in [x]), lambda x: functools.partial(print, x), itertools.chain):
    x = None
    for _ in range(300_000): x = wrap(x)
last = None
for _ in range(300_000):
    error = ValueError()
    error.__context__, last = last, error
del x, error, last
print('freed')";
    assert_eq!(run(program).stdout_text(), "freed\n");
}
