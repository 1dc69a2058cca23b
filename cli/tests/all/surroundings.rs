//! The environment of a command: closed streams, limits of the system, quiet and verbose.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::{hatchery, json_of, read_results, run, text};

/// Runs a shell script in which `"$0"` is the command line.
fn in_shell(script: &str) -> Output {
    Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_hatchery")]).output().unwrap()
}

#[test]
fn a_closed_standard_output_is_reported_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("jobs"), "{\"code\": \"1\"}\n").unwrap();
    let made = path("made");
    for command in [
        format!("run -c 'open(\"a\", \"w\")' --output-dir {made}"),
        format!("run --json -c 1 --output-dir {made}"),
        format!("batch {} --output-dir {made}", path("jobs")),
        "image list".to_owned(),
        "tool schema".to_owned(),
    ] {
        let output = in_shell(&format!("exec \"$0\" {command} >&-"));
        assert_eq!(output.status.code(), Some(2), "{command}: {output:?}");
        assert!(text(&output.stderr).contains("standard output is closed"), "{output:?}");
        assert!(!folder.path().join("made").exists(), "{command}");
    }
    let output = in_shell(&format!("exec \"$0\" batch {} --out {} >&-", path("jobs"), path("out")));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(read_results(&folder.path().join("out"))[0]["value"], 1);
}

#[test]
fn output_can_be_discarded() {
    for device in [">/dev/null", "1<>/dev/null"] {
        let output = in_shell(&format!("exec \"$0\" run -c 'print(1)' {device}"));
        assert_eq!(output.status.code(), Some(0), "{device}: {output:?}");
    }
    let full = in_shell("exec \"$0\" run -c 'print(1)' >/dev/full");
    assert_eq!(full.status.code(), Some(125), "{full:?}");
    let said = text(&full.stderr);
    assert!(said.contains("hatchery: can't write the output: No space left"), "{full:?}");
}

#[test]
fn too_little_address_space_is_reported() {
    let output = in_shell("ulimit -v 1000000; exec \"$0\" run -c 1");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).contains("ulimit -v unlimited"), "{output:?}");
}

#[test]
fn too_few_threads_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("hatchery");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_hatchery"), &binary).unwrap();
    let mut limited = Command::new("prlimit");
    limited.arg("--nproc=1");
    // The limit doesn't apply to root.
    if text(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0" {
        limited.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    let output = limited.arg(&binary).args(["run", "-c", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("ulimit -u") && !said.contains("panicked"), "{said}");
}

/// Returns the standard error of a command without settings for logs.
fn said(arguments: &[&str]) -> String {
    let mut command = hatchery();
    command.args(arguments).env_remove("RUST_LOG");
    text(&command.output().unwrap().stderr)
}

#[test]
fn quiet_commands_say_what_went_wrong_and_nothing_else() {
    let shows = "display({'image/png': b'x', 'text/plain': 'x'}, raw=True); open('a', 'w')";
    for arguments in [["run", "-c", shows, "-q"], ["-q", "run", "-c", shows]] {
        assert_eq!(said(&arguments), "");
    }
    assert!(said(&["run", "-c", shows]).contains("--save-displays"));
    let stopped = said(&["run", "-q", "-c", "while True: pass", "--timeout", "300ms"]);
    assert!(stopped.contains("stopped"), "{stopped}");
    assert!(said(&["run", "-q", "-c", "1/0"]).contains("ZeroDivisionError"));
    assert!(said(&["run", "-q", "missing.py"]).contains("missing.py"));
    assert_eq!(run(&["run", "-q", "-v", "-c", "1"]).status.code(), Some(2));
}

#[test]
fn verbose_commands_log_their_steps_without_colours_into_pipes() {
    assert_eq!(said(&["run", "-c", "1"]), "");
    let steps = said(&["run", "-v", "-c", "1"]);
    assert!(steps.contains("load_engine") && steps.contains("time.busy"), "{steps}");
    let details = said(&["run", "-vv", "-c", "1"]);
    assert!(details.len() > steps.len(), "{details}");
    let logged = hatchery().args(["run", "-c", "1"]).env("RUST_LOG", "debug").output().unwrap();
    assert!(logged.stderr.len() > 100, "{logged:?}");
    assert!(!logged.stderr.contains(&0x1b) && !details.contains('\x1b'), "{details}");
}

#[test]
fn a_cache_above_its_bound_is_noted_at_the_start() {
    let with_bound = |bound: &str, arguments: &[&str]| {
        hatchery().args(arguments).env("HATCHERY_CACHE_BOUND", bound).output().unwrap()
    };
    let told = with_bound("1KiB", &["run", "-c", "1"]);
    assert!(text(&told.stderr).contains("hatchery cache prune"), "{told:?}");
    for (bound, option) in [("1000TiB", "-c"), ("1", "-qc")] {
        assert_eq!(text(&with_bound(bound, &["run", option, "1"]).stderr), "");
    }
    let wrong = with_bound("much", &["cache", "info", "--json"]);
    assert!(text(&wrong.stderr).contains("HATCHERY_CACHE_BOUND"), "{wrong:?}");
    assert_eq!(json_of(&wrong)["bound_bytes"], 5_u64 << 30);
}

/// Each layer says what it failed at, and the system's error comes last, once.
#[test]
fn an_error_says_its_cause_once() {
    for (arguments, expected) in [
        (&["run", "missing.py"][..], "can't read `missing.py`: "),
        (&["run", "-c", "1", "--input", "missing.csv"], "can't read the input `missing.csv`: "),
        (&["run", "-c", "1", "--stdin", "missing.txt"], "can't read the input `missing.txt`: "),
        (&["run", "-c", "1", "--mount", "missing"], "can't mount `missing`: "),
        (&["run", "-c", "1", "--mount", "missing=/data"], "a folder that exists and that you can "),
        (&["run", "-c", "1", "--setup", "missing.py"], "can't read the setup `missing.py`: "),
        (&["run", "-c", "1", "--package", "missing.whl"], "can't read `missing.whl`: "),
        (&["batch", "missing.ndjson"], "can't read `missing.ndjson`: "),
        (&["notebook", "run", "missing.ipynb"], "can't run `missing.ipynb`: "),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(said.ends_with(": No such file or directory (os error 2)\n"), "{said}");
        assert_eq!(said.matches("os error").count(), 1, "{said}");
    }
    let blocked = hatchery()
        .env("HATCHERY_CACHE_DIR", "/dev/null/cache")
        .args(["run", "-c", "1"])
        .output()
        .unwrap();
    assert_eq!(blocked.status.code(), Some(125), "{blocked:?}");
    let said = text(&blocked.stderr);
    assert!(said.contains("set HATCHERY_CACHE_DIR to another directory): Not a dir"), "{said}");
    assert_eq!(said.matches("os error").count(), 1, "{said}");
}
