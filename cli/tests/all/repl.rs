//! The prompt, without a terminal: state from input to input, commands, and errors.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::{hatchery, images, interrupt, run_with_stdin, text};

fn typed(input: &str) -> Output {
    run_with_stdin(&["repl"], input)
}

/// Returns what a prompt printed that ended successfully.
fn printed(input: &str) -> String {
    let output = typed(input);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    text(&output.stdout)
}

/// Starts a prompt without a terminal, for input that depends on its output.
fn spawned() -> Child {
    let mut command = hatchery();
    command.arg("repl").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn inputs_see_what_earlier_ones_left() {
    let input =
        "x = 40\nprint('a')\nx + 2\nNone\n'text'\nopen('f', 'w').write('kept')\nopen('f').read()";
    assert_eq!(printed(input), "a\n42\n'text'\n4\n'kept'\n");
}

#[test]
fn advice_is_in_the_words_of_the_prompt() {
    let output = typed("open('a.csv')\nopen('nodir/x', 'w')\nimport nowhere\ninput()");
    let said = text(&output.stderr);
    assert!(said.contains("`:put a.csv` gives it a copy"), "{said}");
    assert!(said.contains("`:put FILE` copies your own module"), "{said}");
    assert!(said.contains("reads the line that is typed next, and there is none"), "{said}");
    assert!(!said.contains("--input") && !said.contains("If `nodir/x`"), "{said}");
}

#[test]
fn the_last_value_is_the_underscore() {
    let input = "40\n_ + 2\nNone\nx = 1\n:files\nimport json\n[_]\n";
    assert_eq!(printed(input), "40\n42\n[42]\n");
}

#[test]
fn inputs_of_several_lines_are_run_as_one() {
    let input = "def double(x):\n    # why\n    return '''\n\n'''.strip() or (\n        x * 2\n    )\n\n\
                 double(21)\nfor i in range(2):\n    print(i)\nelse:\n    print('over')\n\n\
                 if 0: 1\nelif 1: print('inline')\n\n@str\ndef f(): pass\n\nlen(f) > 5\n\
                 1 + \\\n2";
    assert_eq!(printed(input), "42\n0\n1\nover\ninline\nTrue\n3\n");
}

/// Windows line ends, a line without an end, and empty input.
#[test]
fn inputs_end_with_standard_input() {
    assert_eq!(printed("x = 1\r\nif x:\r\n    print(x + 1)\r\n"), "2\n");
    assert_eq!(printed("while True:\n    break"), "");
    assert_eq!(printed("\n  \n"), "");
    let output = typed("print(1)\nprint((2\n");
    assert_eq!(text(&output.stdout), "1\n");
    assert!(text(&output.stderr).contains("SyntaxError"), "{output:?}");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn an_exception_ends_its_input_alone() {
    let output = typed("def f():\n    return 1/0\n\nx = 1\nx = 2; f()\nprint(x)\n)\nx");
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "2\n2\n");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for expected in [
        "File \"<input-3>\", line 1, in <module>",
        "File \"<input-1>\", line 2, in f\n    return 1/0",
        "ZeroDivisionError",
        "SyntaxError",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn a_limit_ends_its_input_alone() {
    let input = "x = 7\nwhile True: pass\n\nx\n";
    let output = run_with_stdin(&["repl", "--timeout", "300ms"], input);
    assert_eq!(text(&output.stdout), "7\n", "{output:?}");
    assert!(text(&output.stderr).contains("stopped, the wall limit of 300 ms"), "{output:?}");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn an_input_that_is_stopped_by_force_is_undone() {
    let input = "x = 7\nwhile True:\n    try:\n        while True: pass\n\
                 \x20   except BaseException: x = 8\n\nx\n'goes on'\n";
    let output = run_with_stdin(&["repl", "--timeout", "300ms", "--grace", "100ms"], input);
    assert_eq!(text(&output.stdout), "7\n'goes on'\n", "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("back in its state before this input"), "{said}");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn what_an_input_sets_stays() {
    assert_eq!(printed("import sys\nsys.argv\nsys.argv = [1, 2]\nsys.argv"), "['']\n[1, 2]\n");
    assert_eq!(printed("import os\nos.environ['A'] = '1'\nos.environ['A']"), "'1'\n");
    let input = "import io, sys\nsys.stdin = io.StringIO('a\\nb\\n')\ninput()\ninput()";
    assert_eq!(printed(input), "'a'\n'b'\n");
    let input =
        "import sys\nsys.excepthook = lambda kind, error, trace: print('hook', error)\n1 / 0\n2";
    let output = typed(input);
    assert_eq!(text(&output.stdout), "hook division by zero\n2\n", "{output:?}");
    assert!(!text(&output.stderr).contains("Traceback"), "{output:?}");
}

#[test]
fn a_program_that_leaves_ends_the_prompt() {
    let output = typed("import sys\nsys.exit(7)\nprint('not reached')");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(7), String::new()));
    assert_eq!(printed(":quit\nprint('not reached')"), "");
}

#[test]
fn an_interrupt_comes_back_to_the_prompt() {
    let mut child = spawned();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for round in 1..=2 {
        let input = format!("if True:\n    x = {round}\n    print('on')\n    while True: pass\n\n");
        stdin.write_all(input.as_bytes()).unwrap();
        let mut said = String::new();
        stdout.read_line(&mut said).unwrap();
        interrupt(child.id());
        stdin.write_all(b"print('again', x)\n").unwrap();
        stdout.read_line(&mut said).unwrap();
        assert_eq!(said, format!("on\nagain {round}\n"));
    }
    drop(stdin);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said.matches("\nKeyboardInterrupt").count(), 2, "{said}");
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
}

#[test]
fn forks_go_their_own_ways() {
    let input = "x = [1]\n:fork other\nx.append(2)\nx\n:switch repl\nx\nx.append(3)\n\
                 :fork third\n:sessions\n:switch other\nx\n:switch third\nx\n";
    let expected = "[1, 2]\n[1]\n  other\n  repl\n* third\n[1, 2]\n[1, 3]\n";
    assert_eq!(printed(input), expected);
}

#[test]
fn a_session_continues_in_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("work.session");
    let file = file.to_str().unwrap();
    let first = typed(&format!("def f(): return x + 1\n\nx = 41\n:save {file}\nx = 0"));
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    // Saved again at the end of each process.
    for expected in ["42\n", "43\n"] {
        let next = run_with_stdin(&["repl", "--session", file], "f()\nx = f()\n");
        assert_eq!(text(&next.stdout), expected, "{next:?}");
        assert_eq!(next.status.code(), Some(0), "{next:?}");
    }
    let loaded = printed(&format!("x = 'here'\n:load {file}\nx\n:sessions\n:switch repl\nx"));
    assert_eq!(loaded, "43\n  repl\n* work\n'here'\n");
    let names: Vec<_> = folder.path().read_dir().unwrap().flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn a_session_with_threads_is_neither_forked_nor_saved_until_they_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("threads.session");
    let file = file.to_str().unwrap();
    let input = format!(
        "import threading\ngo = threading.Event()\nthread = threading.Thread(target=go.wait)\n\
         thread.start()\n:fork other\n:save {file}\ngo.set()\nthread.join()\n:save {file}\n\
         thread.is_alive()"
    );
    let output = typed(&input);
    assert_eq!(text(&output.stdout), "False\n", "{output:?}");
    assert_eq!(text(&output.stderr).matches("living threads").count(), 2, "{output:?}");
    assert!(std::fs::exists(file).unwrap());
}

#[test]
fn a_session_that_can_not_be_kept_is_no_success() {
    for file in ["/nonexistent/x.session", "examples"] {
        let output = run_with_stdin(&["repl", "--session", file], "print(1)");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(file), "{output:?}");
        assert_eq!(output.stdout, b"");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gone").join("x.session");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    let mut child = hatchery()
        .args(["repl", "--session", file.to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"print('on')\n").unwrap();
    let mut first = [0_u8; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).contains("the session is not saved in"), "{output:?}");
}

/// Ends a prompt by a signal, and not by the end of its input as well.
fn ended_by(signal: &str, mut child: Child) -> Output {
    let _stdin = child.stdin.take();
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    child.wait_with_output().unwrap()
}

/// Runs a program with SIGHUP not ignored, even if the tests run under `nohup`.
const HEARS_HANGUPS: &str = "import os, signal, sys\n\
                             signal.signal(signal.SIGHUP, signal.SIG_DFL)\n\
                             os.execv(sys.argv[1], sys.argv[1:])";

/// Starts a prompt with its session in this file, and waits until it has printed a line.
fn spawned_with_session(file: &Path, input: &str) -> Child {
    let mut command = Command::new("python3");
    command.args(["-c", HEARS_HANGUPS, env!("CARGO_BIN_EXE_hatchery"), "repl", "--session"]);
    spawned_and_on(command.arg(file), input)
}

/// Starts a prompt, and waits until it has printed a line.
fn spawned_and_on(command: &mut Command, input: &str) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(input.as_bytes()).unwrap();
    let mut first = [0_u8; 3];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"on\n");
    child
}

#[test]
fn a_signal_that_ends_the_prompt_does_not_cost_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("work.session");
    for (name, code, input) in [
        ("-TERM", 143, "x = 1\nprint('on')\n"),
        ("-HUP", 129, "if x:\n    x += 1\n    print('on')\n    while True: pass\n\n"),
    ] {
        let output = ended_by(name, spawned_with_session(&file, input));
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
    let output = run_with_stdin(&["repl", "--session", file.to_str().unwrap()], "x");
    assert_eq!(text(&output.stdout), "2\n", "{output:?}");
}

/// The longest grace period that can be given, to which more is added.
#[test]
fn a_grace_period_of_any_length_does_not_cost_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("work.session");
    let mut command = hatchery();
    command.args(["repl", "--grace", "18446744073709551610s", "--session"]).arg(&file);
    let child = spawned_and_on(&mut command, "x = 1\nprint('on')\n");
    let output = ended_by("-TERM", child);
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    let output = run_with_stdin(&["repl", "--session", file.to_str().unwrap()], "x");
    assert_eq!(text(&output.stdout), "1\n", "{output:?}");
}

#[test]
fn a_session_of_another_prompt_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("work.session");
    let name = file.to_str().unwrap();
    assert!(run_with_stdin(&["repl", "--session", name], "x = 1").status.success());
    let mut child = spawned_with_session(&file, "x += 1\nprint('on')\n");
    let second = run_with_stdin(&["repl", "--session", name], "x");
    assert_eq!(second.status.code(), Some(2), "{second:?}");
    assert!(text(&second.stderr).contains("another prompt"), "{second:?}");
    assert_eq!(second.stdout, b"");
    // Neither this session nor the one that another prompt saved meanwhile is lost.
    std::fs::write(&file, "another's").unwrap();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).contains("work.session.1"), "{output:?}");
    assert_eq!(std::fs::read(&file).unwrap(), b"another's");
    let output = run_with_stdin(&["repl", "--session", &format!("{name}.1")], "x");
    assert_eq!(text(&output.stdout), "2\n", "{output:?}");
}

#[test]
fn a_file_that_is_not_there_yet_belongs_to_one_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new.session");
    let name = file.to_str().unwrap();
    let mut first = spawned_with_session(&file, "x = 1\nprint('on')\n");
    let second = run_with_stdin(&["repl", "--session", name], "x = 2");
    assert_eq!(second.status.code(), Some(2), "{second:?}");
    assert!(text(&second.stderr).contains("another prompt"), "{second:?}");
    drop(first.stdin.take());
    assert_eq!(first.wait().unwrap().code(), Some(0));
    assert_eq!(text(&run_with_stdin(&["repl", "--session", name], "x").stdout), "1\n");
    // A refused file leaves nothing behind, and an empty file counts as new.
    let other = folder.path().join("other.session");
    let arguments = ["repl", "--session", other.to_str().unwrap(), "--input", "/nonexistent"];
    assert_eq!(run_with_stdin(&arguments, "x").status.code(), Some(2));
    assert!(!other.exists());
    std::fs::write(&other, "").unwrap();
    assert_eq!(text(&run_with_stdin(&arguments[..3], "3").stdout), "3\n");
    assert!(std::fs::metadata(&other).unwrap().len() > 0);
}

#[test]
fn a_damaged_session_is_a_mistake_of_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("damaged.session");
    let name = file.to_str().unwrap();
    std::fs::write(&file, "HTCHSES and no more").unwrap();
    let output = run_with_stdin(&["repl", "--session", name], "print(1)");
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(2), String::new()),
        "{output:?}"
    );
    assert!(text(&output.stderr).contains("damaged"), "{output:?}");
    assert_eq!(std::fs::read(&file).unwrap(), b"HTCHSES and no more");
    let output = typed(&format!(":load {name}\n'goes on'"));
    assert_eq!(text(&output.stdout), "'goes on'\n", "{output:?}");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// A program can change what the prompt's own jobs use. They don't keep the user for the 30 s that a
/// job has by default.
#[test]
fn a_session_that_keeps_the_prompt_waiting_does_so_for_a_short_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("endless.session");
    let arguments = ["repl", "--session", file.to_str().unwrap(), "--timeout", "1s"];
    let endless =
        "import types\ndef endless(*_):\n    while True: pass\n\ntypes.ModuleType = endless";
    assert!(run_with_stdin(&arguments, endless).status.success());
    let output = run_with_stdin(&arguments, "1");
    assert_eq!(text(&output.stdout), "1\n", "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("Tab and `%time` don't work in this session"), "{said}");
    assert!(said.contains("limit of 2 s"), "{said}");
}

/// As at Python's own prompt, `python -i`.
#[test]
fn an_unclosed_bracket_takes_one_more_line() {
    let output = typed("print((2\nprint(3)\nprint(4)\nx = [1,\n2]\nx\n");
    assert_eq!(text(&output.stdout), "4\n[1, 2]\n", "{output:?}");
    assert!(text(&output.stderr).contains("SyntaxError"), "{output:?}");
}

/// As with `python -i`, standard input is the input itself.
#[test]
fn a_program_reads_the_lines_that_follow_it() {
    let output = "x = input('name? ')\nAda\nx\nimport sys; y = sys.stdin.read()\n1\n\n";
    assert_eq!(printed(output), "name? 'Ada'\n");
    let output = "with open('/dev/stdin') as f: y = f.readline()\n\nBob\ny\n";
    assert_eq!(printed(output), "'Bob\\n'\n");
    let output = typed("x = 1\nx = input()");
    assert!(text(&output.stderr).contains("EOFError"), "{output:?}");
}

#[test]
fn code_is_timed() {
    let output = typed(
        "import random\n%time x = [random.random(),\n0]\nlen(x)\n%time len(x) + 40\n_\n\
         %timeit -n 2 -r 3 len(x)\n%time 1 / 0\n%cd /\n",
    );
    let printed = text(&output.stdout);
    assert_eq!(printed.matches("CPU times: ").count(), 3, "{output:?}");
    assert!(printed.contains("\n2\n") && printed.contains("\n42\n42\n"), "{output:?}");
    assert!(printed.contains("3 runs, 2 loops each"), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("File \"<magic>\", line 1") && !said.contains("hatchery/"), "{said}");
    assert!(said.contains("there is no `%cd` here, only"), "{said}");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// What Tab asks the session, which is the same everywhere.
#[test]
fn names_are_looked_up_without_running_anything() {
    let input = "class P:\n    own = 'text'\n    def __dir__(self): print('called')\n    \
                 def __getattr__(self, name): print('called')\n    @property\n    \
                 def seen(self): print('called')\n\np = P()\np.field = {}\n\
                 look = __import__('hatchery_prompt').complete\n\
                 look('p.')\nlook('p.seen.')\nlook('p.none.')\nlook('p.own.capit')\n\
                 look('p.field.po')\nlook('P.ow')\nlook('loo')\nlook('nowhere.x')\n\
                 look('P.__na')\nglobals()['\\x1b'] = globals()[3] = 1\n'\\x1b' in look('')\n\
                 import json\nlook('json.decoder.JSONDecodeE')\nlook('cont')\n";
    let expected = "['field', 'own', 'seen']\n[]\n[]\n['capitalize']\n['pop', 'popitem']\n\
                    ['own']\n['look']\n[]\n['__name__']\nFalse\n['JSONDecodeError']\n\
                    ['continue']\n";
    assert_eq!(printed(input), expected);
}

#[test]
fn files_go_in_and_come_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("a b.csv"), "1,2\n").unwrap();
    std::fs::write(path("there"), "mine").unwrap();
    let (input, out, there) = (path("a b.csv"), path("out"), path("there"));
    let output = typed(&format!(
        ":files\n:put '{input}' data/\nopen('data/a b.csv').read()\n\
         open('made', 'wb').write(b'\\xff')\nopen('made', 'ab').write(b'')\n:files\n\
         :get made '{out}'\n:get made {there}\n:get missing\n:put '{input}' 'data/a b.csv'\n"
    ));
    let files = "           4  data/a b.csv\n           1  made\n";
    assert_eq!(text(&output.stdout), format!("'1,2\\n'\n1\n0\n{files}"), "{output:?}");
    let said = text(&output.stderr);
    for expected in [
        "has no files",
        "put `data/a b.csv`, 4 bytes",
        "replaced `data/a b.csv`, 4 bytes",
        "exists already; name another file",
        "can't get `missing`: it is not among the session's own files",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert_eq!(said.matches("exists only in the session").count(), 1, "{said}");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(std::fs::read(&out).unwrap(), b"\xff");
    assert_eq!(std::fs::read(&there).unwrap(), b"mine");
}

#[test]
fn options_of_the_prompt_give_files_and_keep_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let (out, shown) = (folder.path().join("out"), folder.path().join("shown"));
    let arguments = [
        "repl",
        "--input",
        "Cargo.toml=given",
        "--mount",
        "examples/data",
        "--output-dir",
        out.to_str().unwrap(),
        "--save-displays",
        shown.to_str().unwrap(),
    ];
    let output = run_with_stdin(
        &arguments,
        "import os\n'members' in open('given').read()\nopen('new', 'w').write('12')\n\
         display({'image/png': b'1', 'text/plain': 'x'}, raw=True)\n\
         display({'image/png': b'2', 'text/plain': 'x'}, raw=True)\n\
         open('new', 'w').write('345')\nos.remove('given')\n:reset\nimport os\n\
         os.path.exists('given'), os.path.exists('new')\n:fork other\nos.listdir('/data')\n",
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let printed = text(&output.stdout);
    assert!(printed.starts_with("True\n2\n3\n(True, False)\n["), "{printed}");
    assert!(printed.contains("'sales.csv'"), "{printed}");
    assert_eq!(std::fs::read(out.join("new")).unwrap(), b"345");
    assert_eq!(out.read_dir().unwrap().count(), 1);
    for (name, contents) in [("display-1.png", b"1"), ("display-2.png", b"2")] {
        assert_eq!(std::fs::read(shown.join(name)).unwrap(), contents);
    }
}

#[test]
fn a_figure_is_mentioned_and_can_be_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shown");
    let output = typed(&format!(
        ":displays {0}\ndisplay({{'image/png': b'1', 'text/plain': 'x'}}, raw=True)\n1\n\
         :displays {0}\n",
        path.display()
    ));
    assert_eq!(text(&output.stdout), "1\n", "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("no input has displayed anything"), "{said}");
    assert!(said.contains("save it with `:displays DIR`"), "{said}");
    assert_eq!(std::fs::read(path.join("display-1.png")).unwrap(), b"1");
}

/// As at Python's own prompt nothing is left out, and as in a file no empty line is needed.
#[test]
fn a_line_after_a_block_runs_even_if_the_block_raised() {
    let output =
        typed("\u{feff}if 1: 1/0\n'goes on'\ndef f(): return 2\nf()\nif 1: print(3)\n:quit\n");
    assert_eq!(text(&output.stdout), "'goes on'\n2\n3\n", "{output:?}");
    assert!(text(&output.stderr).contains("ZeroDivisionError"), "{output:?}");
}

#[test]
fn a_reset_forgets_what_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let setup = folder.path().join("setup.py");
    std::fs::write(&setup, "given = 'given'").unwrap();
    let arguments = ["repl", "--setup", setup.to_str().unwrap()];
    let output = run_with_stdin(&arguments, "given\nx = 1\ngiven = 2\n:reset\ngiven\nx");
    assert_eq!(text(&output.stdout), "'given'\n'given'\n", "{output:?}");
    assert!(text(&output.stderr).contains("NameError: name 'x'"), "{output:?}");
    images::remove(&arguments[1..]);
}

#[test]
fn mistakes_in_commands_say_what_to_do_and_end_nothing() {
    let input = ":nonsense\n:fork\n:switch nowhere\n:fork repl\n'goes on'\n";
    let output = typed(input);
    assert_eq!(text(&output.stdout), "'goes on'\n", "{output:?}");
    for expected in ["`:help` lists them", ":fork NAME", "`:sessions`", "`:switch repl`"] {
        assert!(text(&output.stderr).contains(expected), "{expected}: {output:?}");
    }
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let output = typed(":load /nonexistent\n:save /nonexistent/x\n1");
    assert_eq!(text(&output.stdout), "1\n", "{output:?}");
    for expected in ["can't load the session in `/nonexistent`", "can't save the session in"] {
        assert!(text(&output.stderr).contains(expected), "{expected}: {output:?}");
    }
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(printed(":help").contains(":switch NAME"));
}

#[test]
fn input_that_is_no_text_is_a_mistake() {
    let mut child = spawned();
    child.stdin.take().unwrap().write_all(b"x = '\xff'\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("UTF-8"), "{output:?}");
}

#[test]
fn a_session_is_saved_over_nothing_but_a_session() {
    let folder = tempfile::tempdir().unwrap();
    let (notes, session) = (folder.path().join("notes"), folder.path().join("session"));
    std::fs::write(&notes, "important").unwrap();
    let (to_notes, to_session) = (notes.display(), session.display());
    let input = format!(":save {to_notes}\nx = 7\n:save {to_session}\n:save {to_session}\n");
    let output = typed(&input);
    assert!(text(&output.stderr).contains("is not a session"), "{output:?}");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "important");
    assert_eq!(printed(&format!(":load {to_session}\nx")), "7\n");
    // Through a link, which stays one.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&session, &link).unwrap();
    assert_eq!(printed(&format!("x = 8\n:save {}\n:load {to_session}\nx", link.display())), "8\n");
    assert!(link.is_symlink());
    assert_eq!(folder.path().read_dir().unwrap().count(), 3);
}
