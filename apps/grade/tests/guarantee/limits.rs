//! What the sandbox lacks: a sample that meets one of its limits has neither passed nor failed.

use std::time::Duration;

use grade::{Settings, Verdict};
use serde_json::json;

use crate::{grade, grade_one, grader, settings};

/// Bodies of `f` that meet a limit, and what is reported of it.
const LIMITED: [(&str, &str); 15] = [
    (
        "import sys, functools; sys.setrecursionlimit(10**6); g = functools.cache(lambda n: n and g(n - 1)); g(9000)",
        "stack of C",
    ),
    ("import nltk", "the package `nltk`"),
    ("import cv2.data", "the package `cv2`"),
    ("import ssl; ssl.SSLContext(2).wrap_bio(None, None, True).do_handshake()", "no TLS"),
    ("import curses", "`_curses`"),
    ("import subprocess; subprocess.run(['git'])", "program `git`"),
    ("import os; os.system('git')", "program `git`"),
    ("import subprocess; subprocess.getoutput('ls --hyperlink')", "`ls` for this"),
    ("import os; os.fork()", "processes"),
    (
        "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
        "no other thread",
    ),
    ("import urllib.request; urllib.request.urlopen('http://example.com')", "network"),
    ("import signal; signal.setitimer(signal.ITIMER_PROF, 1)", "timers"),
    ("import os; os.mkfifo('a')", "`os.mkfifo`"),
    ("open('/etc/passwd').read()", "`/etc/passwd`"),
    ("len(range(1 << 40))", "32 bits"),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_meets_a_limit_of_the_sandbox_is_undecided() {
    let settings = Settings { cpu_time: Duration::from_secs(10), ..settings() };
    let task = json!({ "task_id": "t", "tests": "assert f(1) == 2" });
    for allow_shared in [false, true] {
        let grader = grader(Settings { allow_shared, ..settings.clone() }).await;
        let (mut samples, mut expected) = (Vec::new(), Vec::new());
        for (body, told) in LIMITED {
            for program in [
                format!("def f(x):\n    {body}\n    return x + 1\n"),
                // Whether what it does then is right isn't known.
                format!(
                    "def f(x):\n    try:\n        {body}\n    except Exception:\n        return x\n"
                ),
                format!(
                    "def f(x):\n    try:\n        {body}\n    except Exception:\n        return x + 1\n"
                ),
                format!("{body}\ndef f(x): return x + 1\n"),
            ] {
                samples.push(json!({ "task_id": "t", "solution": program }));
                expected.push((program, told));
            }
        }
        let results = grade(&grader, std::slice::from_ref(&task), &samples).await;
        for (graded, (program, told)) in results.iter().zip(expected) {
            assert_eq!(graded.verdict, Verdict::Undecided, "{program}: {graded:?}");
            assert!(graded.message.contains(told), "{program}: {graded:?}");
            assert!(graded.guarded && graded.credit().is_none());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_that_the_exchange_takes_is_not_the_samples() {
    let settings = Settings { cpu_time: Duration::from_secs(1), ..settings() };
    let task = json!({ "task_id": "t", "tests": "for n in range(20_000): assert f(n) == n + 1" });
    for (allow_shared, program, verdict) in [
        (false, "def f(x): return x + 1", Verdict::Undecided),
        (true, "def f(x): return x + 1", Verdict::Passed),
        (true, "def f(x): return x + (x < 19_000)", Verdict::Failed),
        (false, "def f(x):\n    while True: pass", Verdict::Limit),
    ] {
        let grader = grader(Settings { allow_shared, ..settings.clone() }).await;
        let graded = grade_one(&grader, task.clone(), program).await;
        assert_eq!(graded.verdict, verdict, "{program}: {graded:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_of_a_machine_that_tests_assert_decide_nothing_here() {
    for allow_shared in [false, true] {
        let grader = grader(Settings { allow_shared, ..settings() }).await;
        for (tests, told) in [
            (
                "import time\nbegan = time.time()\nassert f('') is None\n\
                 exec_time = time.time() - began\nassert round(exec_time) == 5",
                "take longer",
            ),
            ("import sys\nassert f('') is None\nassert sys.getsizeof(f('')) == 1", "smaller"),
            ("assert f('no') == \"[Errno 2] No such file or directory: 'no'\"", "other numbers"),
        ] {
            let task = json!({ "task_id": "t", "tests": tests });
            let program = "def f(x):\n    try:\n        open(x) if x else None\n    \
                           except OSError as error:\n        return str(error)";
            let graded = grade_one(&grader, task.clone(), program).await;
            assert_eq!(graded.verdict, Verdict::Undecided, "{tests}: {graded:?}");
            assert!(graded.message.contains(told), "{tests}: {graded:?}");
            // What failed before that decides.
            let graded = grade_one(&grader, task, "def f(x): return 1 / 0").await;
            assert_eq!(graded.verdict, Verdict::Failed, "{tests}: {graded:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_nowhere_is_the_candidates_own_fault() {
    let grader = grader(Settings { cpu_time: Duration::from_secs(10), ..settings() }).await;
    for (program, verdict) in [
        ("import no_such_module\ndef f(x): return x + 1", Verdict::Error),
        ("def f(x):\n    import no_such_module\n    return x + 1", Verdict::Failed),
        ("def f(x):\n    import os\n    return os.no_such_name", Verdict::Failed),
        ("def f(x): return open('no_such_file')", Verdict::Failed),
        // A library that does without isn't the program's.
        ("import pandas\ndef f(x): return int(pandas.Series([x]).sum()) + 1", Verdict::Passed),
        (
            "try:\n    import no_such_module\nexcept ImportError: pass\ndef f(x): return x + 1",
            Verdict::Passed,
        ),
    ] {
        let task = json!({ "task_id": "t", "tests": "assert f(1) == 2" });
        let graded = grade_one(&grader, task, program).await;
        assert_eq!(graded.verdict, verdict, "{program}: {graded:?}");
    }
    // What failed before decides.
    let task = json!({ "task_id": "t", "tests": "assert f(1) == 2\nassert f(2) == 3" });
    let program = "def f(x):\n    if x == 2:\n        import nltk\n    return x";
    assert_eq!(grade_one(&grader, task, program).await.verdict, Verdict::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_are_undecided_whose_tasks_own_solution_is() {
    for allow_shared in [false, true] {
        let settings = Settings { allow_shared, cpu_time: Duration::from_secs(10), ..settings() };
        let grader = grader(settings).await;
        for solution in ["import nltk\ndef f(x): return x", "import os\ndef f(x): return os.fork()"]
        {
            let task = json!({ "task_id": "t", "solution": solution, "tests": "assert f(1) == 1" });
            let graded = grade_one(&grader, task, "def f(x): return x").await;
            assert_eq!(graded.verdict, Verdict::Undecided, "{graded:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_with_standard_input_meet_limits_too() {
    let grader = grader(Settings { cpu_time: Duration::from_secs(10), ..settings() }).await;
    let case = json!([{ "stdin": "1", "stdout": "2" }]);
    for (program, verdict) in [
        ("import nltk\nprint(2)", Verdict::Undecided),
        ("import os\nos.system('echo 2')", Verdict::Passed),
        ("import os\nos.system('echo 3')", Verdict::Failed),
        (
            "import subprocess as s\nprint(s.check_output('wc -w', shell=True, text=True, input='a b'))",
            Verdict::Passed,
        ),
        ("import os\nos.system('git log || echo 1')", Verdict::Undecided),
        ("import no_such_module\nprint(2)", Verdict::Failed),
        ("raise OSError('no')", Verdict::Failed),
        ("try: import nltk\nexcept ImportError: print(1)", Verdict::Undecided),
        (
            "import sys, os\ntry: os.fork()\n\
             except Exception: sys.exit(1)",
            Verdict::Undecided,
        ),
        ("try: import no_such_module\nexcept ImportError: print(1)", Verdict::Failed),
        ("try: int('x')\nexcept ValueError: print(int(input()))", Verdict::Failed),
        ("import numpy as np\nprint(np.array([2.0**31 + 2]).astype(int)[0])", Verdict::Failed),
        ("for x in {2**61, 2**62, (1, 2)}: print(x)", Verdict::Undecided),
        ("import os\nprint(1, flush=True)\nos._exit(0)", Verdict::Failed),
    ] {
        let graded = grade_one(&grader, json!({ "task_id": "t", "tests": case }), program).await;
        assert_eq!(graded.verdict, verdict, "{program}: {graded:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_index_is_that_of_64_bits() {
    let grader = grader(Settings { cpu_time: Duration::from_secs(10), ..settings() }).await;
    for import in ["import sys", "from sys import maxsize"] {
        let name = import.strip_prefix("import ").map_or("maxsize", |_| "sys.maxsize");
        let task = json!({ "task_id": "t", "tests": "assert f(5_000_000_000) == 5_000_000_000" });
        let program = format!("{import}\ndef f(x): return min({name}, x)");
        assert!(grade_one(&grader, task, &program).await.passed());
        let task =
            json!({ "task_id": "t", "tests": [{ "stdin": "", "stdout": "9223372036854775807" }] });
        assert!(grade_one(&grader, task, &format!("{import}\nprint({name})")).await.passed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checker_has_limits_of_its_own() {
    let checker = |body: &str| json!({ "program": format!("def check(stdin, stdout, expected):\n    {body}\n") });
    let task = |body: &str| {
        let case = json!([{ "stdin": "", "stdout": "1" }]);
        json!({ "task_id": "t", "tests": case, "checker": checker(body) })
    };
    // None of the candidate's is enough for the checker.
    let small =
        Settings { cpu_time: Duration::from_secs(2), memory_bytes: 256 << 20, ..settings() };
    let grader = grader(small).await;
    let graded = grade_one(&grader, task("return len(bytearray(500 << 20)) > 0"), "print(1)").await;
    assert_eq!(graded.verdict, Verdict::Passed, "{graded:?}");
    let graded = grade_one(&grader, task("while True: pass"), "print(1)").await;
    assert_eq!(
        (graded.verdict, graded.limit.as_deref()),
        (Verdict::Limit, Some("tests_cpu")),
        "{graded:?}"
    );
}
