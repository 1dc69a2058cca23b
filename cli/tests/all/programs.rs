//! Programs from files and streams, and what a terminal gets of their output.

use std::io::{Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{hatchery, run, run_with_stdin, said_by_program, text};

#[test]
fn a_program_from_standard_input_may_begin_with_a_mark() {
    let output = run_with_stdin(&["run", "-"], "\u{feff}print('é')");
    assert_eq!(text(&output.stdout), "é\n", "{output:?}");
}

#[test]
fn standard_input_is_the_programs_or_its_input() {
    let output = run_with_stdin(&["run", "-", "--stdin", "-"], "print(input())");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("both read standard input"), "{output:?}");
}

#[test]
fn a_program_may_begin_with_a_minus() {
    let output = run(&["run", "-c", "-print(1)", "--timeout", "20s"]);
    assert_eq!(text(&output.stdout), "1\n", "{output:?}");
    assert!(said_by_program(&output).contains("TypeError"), "{output:?}");
}

#[test]
fn a_script_is_in_the_encoding_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.py");
    let of = |source: &[u8]| {
        std::fs::write(&script, source).unwrap();
        run(&["run", script.to_str().unwrap()])
    };
    let output = of(b"# coding: latin-1\nprint('\xe9')");
    assert_eq!(text(&output.stdout), "é\n", "{output:?}");
    for (source, expected) in [
        (&b"print('\xe9')"[..], "isn't UTF-8"),
        (b"# coding: cp1252\nprint('\xe9')", "`cp1252`"),
        (b"# coding: ascii\nprint('\xe9')", "`ascii`"),
    ] {
        let output = of(source);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    }
}

#[test]
fn a_script_may_come_through_a_pipe() {
    let output = run_with_stdin(&["run", "/dev/stdin"], "print(__file__)");
    assert_eq!(text(&output.stdout), "/dev/stdin\n", "{output:?}");
    // As shells make long here-documents: a file without a name.
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"print(1)").unwrap();
    file.rewind().unwrap();
    let output = hatchery().args(["run", "/dev/stdin"]).stdin(file).output().unwrap();
    assert_eq!(text(&output.stdout), "1\n", "{output:?}");
    let source = "# /// script\n# [tool.hatchery]\n# inputs = [\"null\"]\n# ///\nprint(1)";
    let output = run_with_stdin(&["run", "/dev/stdin"], source);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("comes through a descriptor"), "{output:?}");
}

#[test]
fn missing_dependencies_are_noted() {
    let source = "# /// script\n# dependencies = [\"NumPy>=2\", \"requests<3\"]\n# ///\nprint(1)";
    let output = run_with_stdin(&["run", "-"], source);
    assert_eq!(text(&output.stdout), "1\n", "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("nothing installs them: requests<3; add them with --package"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("requests");
    std::fs::create_dir(&package).unwrap();
    std::fs::write(package.join("__init__.py"), "").unwrap();
    let arguments = ["run", "-", "--package", package.to_str().unwrap()];
    let output = run_with_stdin(&arguments, source);
    assert!(!text(&output.stderr).contains("nothing installs"), "{output:?}");
    crate::images::remove(&arguments[2..]);
}

#[test]
fn a_file_that_is_missed_comes_with_the_option_that_gives_it() {
    for (path, expected) in [
        ("data.csv", "`--input data.csv` gives it a copy, `--beside`"),
        ("d/data 1.csv", "`--input 'd/data 1.csv=d/data 1.csv'` gives"),
        ("../data.csv", "`--input ../data.csv` gives it a copy as `data.csv`"),
        ("/srv/d/data.csv", "`--mount /srv/d=/srv/d` gives"),
    ] {
        let output = run(&["run", "-c", &format!("open({path:?})")]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("sees only the files") && said.contains(expected), "{said}");
    }
    let loads = "import numpy as np\nnp.loadtxt('rates.csv')";
    let said = text(&run(&["run", "-c", loads]).stderr);
    assert!(said.contains("`--input rates.csv` gives"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.py");
    let data = folder.path().join("data.csv");
    std::fs::write(&script, "open('data.csv')").unwrap();
    let said = || text(&hatchery().arg("run").arg(&script).output().unwrap().stderr);
    assert!(!said().contains("exists, but the program doesn't get it"));
    std::fs::write(&data, "a\n1\n").unwrap();
    let expected = format!("add `--input {}`, or `--beside`", data.display());
    assert!(said().contains(&expected), "{}", said());
}

#[test]
fn advice_is_given_on_what_happened_only() {
    for source in [
        "open('nodir/x', 'w')",
        "import os\nos.path.exists('nodir/x') or open('nodir/x', 'a')",
        "import os\nos.remove('x')",
        "import os\nos.path.exists('x') or os.remove('x')",
        "import os\nos.rename('x', 'y')",
        "import os\nos.mkdir('x/y')",
        "raise FileNotFoundError(2, 'no such account', 'savings')",
        "raise FileNotFoundError('data.csv not found.')",
        "raise FileNotFoundError",
        "raise EOFError('Ran out of input')",
    ] {
        let output = run(&["run", "-c", source]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(!said.contains("sees only") && !said.contains("gives"), "{source}: {said}");
    }
    let said = text(&run(&["run", "-c", "input()"]).stderr);
    assert!(said.contains("has no standard input: `--stdin FILE` gives it some."), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let line = folder.path().join("line");
    std::fs::write(&line, "one\n").unwrap();
    let given = ["run", "--stdin", line.to_str().unwrap(), "-c", "input()\ninput()"];
    let said = text(&run(&given).stderr);
    assert!(said.contains("EOFError") && !said.contains("standard input"), "{said}");
}

#[test]
fn a_script_reads_its_folder_if_that_is_granted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::create_dir(path.join("sub")).unwrap();
    std::fs::write(path.join("data.csv"), "a\n1\n").unwrap();
    std::fs::write(path.join("sub/more.txt"), "more").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", path.join("out")).unwrap();
    let source = "import os, pathlib\n\
                  print(open('data.csv').read().split(), open('sub/more.txt').read())\n\
                  print((pathlib.Path(__file__).parent / 'data.csv').exists())\n\
                  print(sorted(os.listdir()), os.path.exists('out'))\n\
                  open('new.txt', 'w').write('new')\n\
                  try: open('data.csv', 'w')\n\
                  except OSError as error: print(error.strerror)\n";
    let script = path.join("script.py");
    std::fs::write(&script, source).unwrap();
    let kept = tempfile::tempdir().unwrap();
    let (script, kept_path) = (script.to_str().unwrap(), kept.path().to_str().unwrap());
    let output = run(&["run", script, "--beside", "--output-dir", kept_path]);
    assert_eq!(
        text(&output.stdout),
        "['a', '1'] more\nTrue\n['data.csv', 'script.py', 'sub'] False\nRead-only file system\n",
        "{output:?}"
    );
    let names: Vec<_> = std::fs::read_dir(kept.path()).unwrap().flatten().collect();
    assert_eq!((names.len(), names[0].file_name().to_str()), (1, Some("new.txt")));
    assert_eq!(std::fs::read(path.join("data.csv")).unwrap(), b"a\n1\n");
    assert!(!path.join("new.txt").exists());

    // An input file takes precedence over the folder, and without a script it is the current
    // folder.
    let input = format!("{}=data.csv", path.join("sub/more.txt").display());
    let mut command = hatchery();
    command.current_dir(path).args(["run", "-c", "print(open('data.csv').read())", "--beside"]);
    assert_eq!(text(&command.output().unwrap().stdout), "a\n1\n\n");
    command.args(["--input", &input]);
    assert_eq!(text(&command.output().unwrap().stdout), "more\n");
    let output = run(&["run", script, "--beside", "--alone"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// Returns what a terminal gets from a program, using `script` of util-linux; `None` without it.
fn on_a_terminal(script: &Path, arguments: &str) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_hatchery");
    let command = format!("'{program}' run '{}' {arguments}", script.display());
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &command, "/dev/null"]).stdin(Stdio::null());
    let output = terminal.output().ok()?;
    Some(text(&output.stdout))
}

#[test]
fn a_terminal_obeys_no_program() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.py");
    let source = "import sys\n\
                  print('\\x1b]0;title\\x07\\x9b2J', end='', flush=True)\n\
                  sys.stdout.write('\\x1b'); sys.stdout.flush()\n\
                  sys.stdout.write('[2J\\x1b[31mred\\x1b[m\\r\\x1b[K!\\n'); sys.stdout.flush()\n\
                  raise ValueError('\\x1b]52;c;aGk=\\x07')";
    std::fs::write(&script, source).unwrap();
    let Some(shown) = on_a_terminal(&script, "") else { return };
    for expected in [
        "\\x1b]0;title\\x07\\x9b2J\\x1b[2J\x1b[31mred\x1b[m\r\x1b[K!\r\n",
        "ValueError: \\x1b]52;c;aGk=\\x07\r\n",
    ] {
        assert!(shown.contains(expected), "{expected:?}: {shown:?}");
    }
    let shown = on_a_terminal(&script, "--raw-output").unwrap();
    assert!(shown.contains("\x1b]0;title\x07\u{9b}2J\x1b[2J"), "{shown:?}");
    // The reader of a pipe gets the exact bytes.
    let output = hatchery().arg("run").arg(&script).output().unwrap();
    assert!(text(&output.stdout).starts_with("\x1b]0;title\x07\u{9b}2J\x1b[2J"), "{output:?}");
}

#[test]
fn a_mounted_folder_keeps_its_name() {
    let source = "import os\nprint('sales.csv' in os.listdir('/data'), 'region' in open('/data/sales.csv').read())";
    let output = run(&["run", "-c", source, "--mount", "examples/data"]);
    assert_eq!(text(&output.stdout), "True True\n", "{output:?}");
    let output = run(&["run", "-c", source, "--mount", "nowhere"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("can't mount `nowhere`"), "{output:?}");
}
