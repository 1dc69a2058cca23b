//! The list against what builds import, and against docs/wasix.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::python::module::new_engine;

fn check_wat(text: &str) -> Result<(), ModuleError> {
    check(&new_engine().module(text))
}

#[test]
fn only_listed_functions_may_be_imported() {
    for listed in [
        r#"(module (import "wasi_snapshot_preview1" "fd_read" (func)))"#,
        r#"(module (import "wasi_snapshot_preview1" "fd_renumber" (func)))"#,
        r#"(module (import "wasix_32v1" "futex_wait" (func)))"#,
        r#"(module (import "wasix_32v1" "proc_fork" (func)))"#,
        r#"(module (import "wasi" "thread-spawn" (func)))"#,
    ] {
        assert!(check_wat(listed).is_ok(), "{listed}");
    }
    for refused in [
        r#"(module (import "wasi_snapshot_preview1" "proc_raise" (func)))"#,
        r#"(module (import "wasi_snapshot_preview1" "futex_wait" (func)))"#,
        r#"(module (import "wasix_32v1" "proc_spawn" (func)))"#,
        r#"(module (import "wasix_32v1" "dlopen" (func)))"#,
        r#"(module (import "wasix_32v1" "fd_read" (func)))"#,
        r#"(module (import "wasix_64v1" "futex_wait" (func)))"#,
        r#"(module (import "host" "other" (func)))"#,
        r#"(module (import "env" "memory" (memory 1)))"#,
        r#"(module (import "host" "call" (global i32)))"#,
    ] {
        let error = check_wat(refused).unwrap_err();
        assert!(matches!(error, ModuleError::ForbiddenImport { .. }), "{refused}");
    }
}

#[test]
fn each_function_is_judged_once() {
    let mut seen = BTreeSet::new();
    for row in JUDGED {
        assert!(!row.why.is_empty());
        for name in row.names() {
            assert!(seen.insert((row.namespace, name)), "{name} is listed twice");
        }
    }
}

/// Returns the folder of the WASIX build, which isn't part of this repository.
pub(crate) fn wasix_build() -> Option<PathBuf> {
    let beside = "../../shared/python-builds/wasix-cpython-3.13.5";
    let folder = std::env::var_os("HATCHERY_TEST_WASIX_PYTHON")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(beside), PathBuf::from);
    let is_there = folder.is_dir();
    if !is_there {
        eprintln!("skipped: no WASIX build at {}", folder.display());
    }
    is_there.then_some(folder)
}

#[test]
fn every_function_of_a_wasix_build_is_judged() {
    let Some(folder) = wasix_build() else { return };
    for file in ["python.imports.txt", "reactor.imports.txt"] {
        let imports = fs::read_to_string(folder.join(file)).unwrap();
        for import in imports.lines().filter(|import| *import != "env.memory") {
            let (namespace, name) = import.split_once('.').unwrap();
            assert!(is_allowed(namespace, name), "{file}: {import}");
        }
    }
}

fn symbol(errno: Errno) -> &'static str {
    match errno {
        Errno::Access => "EACCES",
        Errno::Again => "EAGAIN",
        Errno::Child => "ECHILD",
        Errno::NoFunction => "ENOSYS",
        Errno::NoProtocolOption => "ENOPROTOOPT",
        Errno::NotPermitted => "EPERM",
        Errno::NotSupported => "ENOTSUP",
        errno => panic!("{errno:?} needs a symbol here"),
    }
}

/// Returns the table of docs/wasix.md.
fn documented_table() -> String {
    let mut table = "| functions | judged | what the program gets |\n|---|---|---|\n".to_owned();
    let is_shown = |row: &&Judged| {
        matches!(row.namespace, WASIX | THREADS) || row.names().any(|name| name == "fd_renumber")
    };
    for row in JUDGED.iter().filter(is_shown) {
        let prefix = match row.namespace {
            WASIX => "",
            THREADS => "wasi.",
            other => &format!("{other}."),
        };
        let names: Vec<String> = row.names().map(|name| format!("`{prefix}{name}`")).collect();
        let judged = match row.judgement {
            ImportRule::Served => "served".to_owned(),
            ImportRule::Refused(errno) => format!("`{}`", symbol(errno)),
            ImportRule::RefusedAtLoad => unreachable!("only functions that load are listed"),
        };
        table += &format!("| {} | {judged} | {} |\n", names.join(", "), row.why);
    }
    table
}

#[test]
fn the_documents_have_this_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/wasix.md");
    // A package has no documents.
    let Ok(page) = fs::read_to_string(page) else { return };
    let table = documented_table();
    assert!(page.contains(&table), "docs/wasix.md should have:\n\n{table}");
}
