//! What a job is given, prints and leaves behind.

use hatchery::{Job, Limits, Verdict};
use serde_json::json;

use crate::support::{exception, next_output, run, run_job, value, with_pool};

#[test]
fn the_last_expression_is_the_value() {
    assert_eq!(
        value(&run("x = [1, 2]\n{'sum': sum(x), 'all': x}")),
        json!({"sum": 3, "all": [1, 2]})
    );
    let outcome = run("import datetime\ndatetime.date(2026, 11, 21)");
    let Verdict::Completed { value, repr, .. } = &outcome.verdict else { panic!("{outcome:?}") };
    assert_eq!((value, repr.as_deref()), (&None, Some("datetime.date(2026, 11, 21)")));
}

#[test]
fn output_is_kept_apart_and_in_order() {
    let source = "import sys\nfor i in range(3):\n    print(i)\n    print(-i, file=sys.stderr)";
    let streamed = with_pool(|pool| async {
        let mut ticket = pool.submit(Job::code(source)).await.unwrap();
        let (mut order, mut events) = (String::new(), ticket.events());
        while let Some(bytes) = next_output(&mut events).await {
            order.push_str(&String::from_utf8(bytes).unwrap());
        }
        (order, ticket.outcome().await)
    });
    assert_eq!(streamed.0, "0\n0\n1\n-1\n2\n-2\n");
    assert_eq!(streamed.1.stdout_text(), "0\n1\n2\n");
    assert_eq!(streamed.1.stderr_text(), "0\n-1\n-2\n");
}

#[test]
fn output_that_is_not_text_is_unchanged() {
    let outcome = run("import os\nos.write(1, bytes(range(256)))");
    assert_eq!(outcome.stdout, (0..=255).collect::<Vec<u8>>());
}

#[test]
fn exceptions_are_structured_and_show_the_programs_own_lines() {
    let outcome = run("def f():\n    raise ValueError('test error')\nf()");
    let exception = exception(&outcome);
    assert_eq!(exception.type_name, "ValueError");
    assert_eq!(exception.message, "test error");
    assert!(exception.traceback.contains("    raise ValueError('test error')"));
    assert!(!exception.traceback.contains("hatchery"), "{}", exception.traceback);
}

#[test]
fn a_syntax_error_is_the_programs_own() {
    let outcome = run("x = = 1");
    assert_eq!(exception(&outcome).type_name, "SyntaxError");
}

#[test]
fn endless_recursion_raises() {
    let outcome = run("def f(): f()\nf()");
    assert_eq!(exception(&outcome).type_name, "RecursionError");
}

#[test]
fn exiting_has_the_codes_of_a_process() {
    for (source, code) in [
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('why')", 1),
        ("import os; os._exit(9)", 9),
        ("raise SystemExit(256 + 4)", 4),
        ("import os; os.abort()", 134),
        ("import signal; signal.raise_signal(9)", 137),
    ] {
        let outcome = run(source);
        let Verdict::Exited { code: found, .. } = outcome.verdict else {
            panic!("{source}: {outcome:?}")
        };
        assert_eq!(found, code, "{source}");
    }
}

#[test]
fn argv_environment_stdin_and_name_reach_the_program() {
    let source = "import os, sys\n[sys.argv, os.environ['MODE'], sys.stdin.readlines(), __file__]";
    let job =
        Job::code(source).named("tool.py").args(["--x", "ä"]).env("MODE", "test").stdin("one\ntwo");
    let expected = json!([["tool.py", "--x", "ä"], "test", ["one\n", "two"], "/workspace/tool.py"]);
    assert_eq!(value(&run_job(job)), expected);
}

#[test]
fn standard_input_keeps_its_line_ends_and_has_a_device() {
    let source = "import sys\n[input(), sys.stdin.readline(), open('/dev/stdin').read()]";
    let read = value(&run_job(Job::code(source).stdin("a\r\nb\rc\r\n")));
    assert_eq!(read, json!(["a\r", "b\rc\r\n", ""]));
    let sum = Job::code("sum(map(int, open('/dev/stdin').read().split()))").stdin("1 2\n");
    assert_eq!(value(&run_job(sum)), json!(3));
    // Unbuffered readers share the position, as with a pipe.
    let source = "import os\n[os.read(0, 2), open('/dev/fd/0', 'rb').read()] == [b'ab', b'cd']";
    assert_eq!(value(&run_job(Job::code(source).stdin("abcd"))), json!(true));
}

#[test]
fn a_byte_order_mark_may_begin_a_program() {
    for source in ["\u{feff}x = 1\nx", "\u{feff}1"] {
        assert_eq!(value(&run(source)), json!(1));
    }
}

#[test]
fn a_flood_on_one_stream_leaves_the_other_its_share() {
    let source = "import sys\nsys.stderr.write('e' * 100)\nprint(42)";
    let limits = Limits { output_bytes: 10, ..Limits::default() };
    let outcome = run_job(Job::code(source).limits(limits));
    assert_eq!((outcome.stdout_text().as_str(), outcome.stderr.len()), ("42\n", 10));
    assert!(outcome.output_truncated && outcome.is_success());
}

#[test]
fn standard_input_is_empty_by_default() {
    assert_eq!(value(&run("import sys\nsys.stdin.read()")), json!(""));
    assert_eq!(exception(&run("input()")).type_name, "EOFError");
}

#[test]
fn input_files_are_found_and_changed_ones_come_back() {
    let job = Job::code(
        "import os\nos.makedirs('out', exist_ok=True)\n\
         text = open('in/a.txt').read()\n\
         open('out/b.txt', 'w').write(text[::-1])\nopen('in/c.txt', 'a').write('!')\n\
         sorted(os.listdir('in'))",
    )
    .input("in/a.txt", "abc")
    .unwrap()
    .input("in/c.txt", "c")
    .unwrap();
    let outcome = run_job(job);
    assert_eq!(value(&outcome), json!(["a.txt", "c.txt"]));
    let files: Vec<_> =
        outcome.files.iter().map(|f| (f.path.as_str(), f.contents.as_slice())).collect();
    assert_eq!(files, [("in/c.txt", &b"c!"[..]), ("out/b.txt", &b"cba"[..])]);
}

#[test]
fn a_file_that_is_left_open_is_written() {
    let outcome = run("f = open('out.txt', 'w'); f.write('hello')");
    assert_eq!(outcome.files[0].contents, b"hello");
}

#[test]
fn floats_come_out_to_the_last_bit() {
    let source = "import random\nrandom.seed(3)\nxs = [random.random() * 1000 for _ in range(3000)]\n\
                  [xs, [x.hex() for x in xs]]";
    let value_and_hex = value(&run(source));
    // Rust prints the shortest text that parses to the same float.
    let floats: Vec<f64> = serde_json::from_value(value_and_hex[0].clone()).unwrap();
    let back = value(&run(&format!("[x.hex() for x in {floats:?}]")));
    assert_eq!(back, value_and_hex[1]);
}

#[test]
fn a_failed_program_leaves_no_files() {
    let outcome = run("open('half.txt', 'w').write('x')\n1/0");
    assert!(outcome.files.is_empty(), "{outcome:?}");
}

#[test]
fn exit_functions_run_and_their_output_is_kept() {
    let outcome = run("import atexit\natexit.register(print, 'bye')\nprint('hello')");
    assert_eq!(outcome.stdout_text(), "hello\nbye\n");
}

#[test]
fn a_table_goes_in_and_a_workbook_and_a_plot_come_out() {
    let source = "import pandas\nimport matplotlib\nmatplotlib.use('Agg')\n\
                  import matplotlib.pyplot as plt\n\
                  frame = pandas.read_csv('in.csv')\nframe.plot(); plt.savefig('plot.png')\n\
                  frame.to_excel('out.xlsx')\nint(frame.sum().sum())";
    let outcome = run_job(Job::code(source).input("in.csv", "a,b\n1,2\n3,4\n").unwrap());
    assert_eq!(value(&outcome), json!(10));
    let [workbook, plot] = outcome.files.as_slice() else { panic!("{:?}", outcome.files.len()) };
    assert!(workbook.contents.starts_with(b"PK") && plot.contents.starts_with(b"\x89PNG"));
}

#[test]
fn usage_is_measured() {
    let outcome = run("x = sum(i * i for i in range(200_000))\nprint(x)");
    let usage = &outcome.usage;
    assert!(usage.cpu > std::time::Duration::from_millis(1), "{usage:?}");
    assert!(usage.wall >= usage.cpu / 2, "{usage:?}");
    assert!(usage.peak_memory_bytes > 1 << 20, "{usage:?}");
    assert_eq!(usage.output_bytes, outcome.stdout.len() as u64);
}

#[test]
fn invalid_arguments_and_environments_are_refused() {
    for job in
        [Job::code("1").env("", "x"), Job::code("1").env("A=B", "x"), Job::code("1").args(["a\0"])]
    {
        let refused = with_pool(|pool| async { pool.run(job).await.unwrap_err() });
        assert!(matches!(refused, hatchery::Error::Program(_)), "{refused}");
    }
}

#[test]
fn invalid_paths_are_refused_before_anything_runs() {
    for path in ["/etc/x", "../x", "a/../x", ""] {
        assert!(Job::code("").input(path, "").is_err(), "{path:?}");
    }
}
