//! Rules about the text of this repository that no compiler checks.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

/// Production lines that a file may have; longer ones are split by concern.
const MOST_LINES: usize = 500;

/// Modules that hold decisions, and so name neither actors nor clocks.
const PURE: [&str; 17] = [
    "pool/src/supervisor/restart.rs",
    "pool/src/worker/state.rs",
    "scheduler/src/effect.rs",
    "scheduler/src/model.rs",
    "scheduler/src/model/admission.rs",
    "scheduler/src/model/dispatch.rs",
    "scheduler/src/model/ending.rs",
    "scheduler/src/model/explaining.rs",
    "scheduler/src/model/invariants.rs",
    "scheduler/src/model/upkeep.rs",
    "scheduler/src/model/view.rs",
    "scheduler/src/policy.rs",
    "scheduler/src/policy/estimate.rs",
    "scheduler/src/policy/fleet.rs",
    "scheduler/src/policy/ledger.rs",
    "scheduler/src/policy/residency.rs",
    "scheduler/src/policy/shares.rs",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file of the repository, with its path from the root.
fn sources() -> Vec<(String, String)> {
    let mut folders: Vec<PathBuf> =
        ["benches", "cli", "engine", "examples", "pool", "scheduler", "src", "tests"]
            .map(|name| root().join(name))
            .into();
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
                sources.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(sources.len() > 50, "the folders moved");
    sources
}

/// The part of a file before its inline tests.
fn production(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

#[test]
fn every_file_says_what_it_is() {
    for (name, text) in sources() {
        assert!(text.starts_with("//!"), "{name} doesn't start with `//!`");
    }
}

#[test]
fn files_are_short_enough_to_read() {
    for (name, text) in sources() {
        let lines = production(&text).lines().count();
        assert!(lines <= MOST_LINES, "{name} has {lines} production lines");
    }
}

#[test]
fn decisions_name_neither_actors_nor_clocks() {
    for name in PURE {
        let text = fs::read_to_string(root().join(name)).unwrap();
        let code: Vec<&str> =
            production(&text).lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for word in ["ractor", "tokio", "async ", "Instant"] {
            let found = code.iter().find(|line| line.contains(word));
            assert!(found.is_none(), "{name} names `{word}`: {found:?}");
        }
    }
}

#[test]
fn supervisors_write_their_supervision_out_and_nobody_relies_on_post_stop() {
    for (name, text) in sources() {
        if name.starts_with("tests/") {
            continue;
        }
        if text.contains("spawn_linked(") && text.contains("impl Actor for") {
            assert!(text.contains("handle_supervisor_evt"), "{name}");
        }
        assert!(!text.contains("fn post_stop"), "{name}: ractor skips it after a panic");
    }
}

#[test]
fn tests_neither_hide_nor_expect_panics() {
    for (name, text) in sources() {
        for word in ["#[ignore", "#[should_panic"] {
            assert!(name == "tests/tidy.rs" || !text.contains(word), "{name} has `{word}`");
        }
    }
}

#[test]
fn every_invariant_is_documented_and_checked_in_code() {
    let document = fs::read_to_string(root().join("docs/invariants.md")).unwrap();
    let documented: Vec<&str> =
        document.lines().filter_map(|line| line.strip_prefix("- **")?.split("**").next()).collect();
    assert!(documented.len() >= 10, "{documented:?}");
    let sources = sources();
    for id in &documented {
        let mentioned =
            |text: &str| text.contains(&format!("{id}:")) || text.contains(&format!("{id} "));
        let is_checked =
            sources.iter().any(|(name, text)| name != "tests/tidy.rs" && mentioned(text));
        assert!(is_checked, "no code mentions {id}");
    }
}

#[test]
fn every_crate_is_in_the_architecture() {
    let document = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for folder in ["`cli/`", "`engine/`", "`pool/`", "`scheduler/`", "`src/`"] {
        assert!(document.contains(&format!("### {folder}")), "no section on {folder}");
    }
}

#[test]
fn promises_name_what_holds_them() {
    let specification = fs::read_to_string(root().join("SPECIFICATION.md")).unwrap();
    let rows: Vec<&str> = specification.lines().filter(|line| line.starts_with("| ")).collect();
    assert!(rows.len() > 10);
    for row in rows.iter().filter(|row| !row.contains("---") && !row.starts_with("| what")) {
        let held_by = row.trim_end_matches('|').rsplit('|').next().unwrap().trim();
        let file = held_by.trim_start_matches('`').split([':', '`', ' ']).next().unwrap();
        let is_file = !file.is_empty() && root().join(file).exists();
        assert!(held_by == "[pending]" || is_file, "`{held_by}` is no file: {row}");
    }
    for (name, _) in sources() {
        if name.starts_with("benches/") {
            assert!(specification.contains(&name), "SPECIFICATION.md has no row for {name}");
        }
    }
}

#[test]
fn the_changelog_keeps_its_form() {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let sections = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
    for line in changelog.lines() {
        if let Some(section) = line.strip_prefix("### ") {
            assert!(sections.contains(&section), "{section}");
        } else if let Some(version) = line.strip_prefix("## ") {
            assert!(version.starts_with('['), "{version}");
        }
    }
    assert!(changelog.contains("## [Unreleased]"));
}
