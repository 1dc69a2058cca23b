//! Workers in processes of their own, from the command line.
#![cfg(target_os = "linux")]

use std::process::Output;

use crate::hatchery;

/// Runs a program with these variables set.
fn run(environment: &[(&str, &str)], arguments: &[&str]) -> Output {
    hatchery().args(["run"]).args(arguments).envs(environment.iter().copied()).output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_option_and_the_variable_put_workers_into_processes() {
    let source = "print(6 * 7)";
    let by_option = run(&[], &["--isolation", "process", "-c", source]);
    let by_variable = run(&[("HATCHERY_ISOLATION", "process")], &["-c", source]);
    for output in [by_option, by_variable] {
        assert_eq!(output.status.code(), Some(0), "{}", error(&output));
        assert_eq!(output.stdout, b"42\n");
    }
}

#[test]
fn a_program_that_fails_there_fails_as_elsewhere() {
    let output = run(&[], &["--isolation", "process", "-c", "1 / 0"]);
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    assert!(error(&output).contains("ZeroDivisionError"), "{}", error(&output));
}

#[test]
fn an_isolation_that_does_not_exist_is_an_error() {
    let output = run(&[("HATCHERY_ISOLATION", "fence")], &["-c", "print(1)"]);
    assert_ne!(output.status.code(), Some(0));
    let said = error(&output);
    assert!(said.contains("HATCHERY_ISOLATION") && said.contains("fence"), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_helper_that_is_none_is_an_error() {
    for (program, says) in [("/bin/true", "be_helper"), ("/nowhere/helper", "can't start")] {
        let environment = [("HATCHERY_ISOLATION", "process"), ("HATCHERY_HELPER", program)];
        let output = run(&environment, &["-c", "print(1)"]);
        assert_ne!(output.status.code(), Some(0));
        let said = error(&output);
        assert!(said.contains(program) && said.contains(says), "{said}");
    }
}

/// With the feature `back-door` of the crate `process`, the text is in the program: its test
/// `compromised` finds it in itself.
#[test]
fn the_program_has_no_back_door() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_hatchery")).unwrap();
    let text = b"# hatchery back door";
    assert!(program.windows(text.len()).all(|found| found != text));
}
