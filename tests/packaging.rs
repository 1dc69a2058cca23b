//! What each crate ships, as `cargo package --list` says: licences, a README, everything that its
//! source includes, and no tests that need the rest of the repository.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::Table;

/// What a crate never ships: these need folders outside of it, or are for those who work on it.
const NEVER: [&str; 5] = [".ci/", ".github/", "benches/", "tests/", "target/"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn manifest(folder: &Path) -> Table {
    fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap()
}

/// The folders of the workspace's crates that are published.
fn members() -> Vec<PathBuf> {
    let members = manifest(root())["workspace"]["members"].as_array().unwrap().clone();
    let folders = members.iter().map(|member| root().join(member.as_str().unwrap()));
    folders.filter(|folder| manifest(folder)["package"].get("publish").is_none()).collect()
}

/// The files that this crate ships, with their paths in it.
fn packaged(folder: &Path) -> BTreeSet<PathBuf> {
    let manifest = manifest(folder);
    let name = manifest["package"]["name"].as_str().unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["package", "--list", "--locked", "--offline", "--allow-dirty", "--quiet"])
        .args(["--package", name])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(PathBuf::from).collect()
}

/// The path without `..`; `None` if it leads out of the crate.
fn resolved(path: &Path) -> Option<PathBuf> {
    let mut resolved = PathBuf::new();
    for part in path {
        if part == ".." {
            resolved.pop().then_some(())?;
        } else {
            resolved.push(part);
        }
    }
    Some(resolved)
}

/// What `include_str!` and `include_bytes!` name in this source.
fn included(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for call in ["include_str!(\"", "include_bytes!(\""] {
        names.extend(text.split(call).skip(1).filter_map(|rest| rest.split('"').next()));
    }
    names
}

#[test]
fn every_crate_ships_what_it_needs_and_no_more() {
    for folder in members() {
        let packaged = packaged(&folder);
        let name = folder.display();
        for file in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "Cargo.toml"] {
            let is_shipped = packaged.contains(Path::new(file)) && folder.join(file).is_file();
            assert!(is_shipped, "{name} doesn't ship {file}");
        }
        for file in packaged.iter().filter_map(|file| file.to_str()) {
            let is_surplus = NEVER.iter().any(|never| file.starts_with(never))
                || file
                    .rsplit('/')
                    .next()
                    .is_some_and(|name| name.starts_with("test_") && name.ends_with(".py"));
            assert!(!is_surplus, "{name} ships {file}");
        }
        for file in packaged.iter().filter(|file| file.extension().is_some_and(|it| it == "rs")) {
            for included in included(&fs::read_to_string(folder.join(file)).unwrap()) {
                let path = resolved(&file.parent().unwrap().join(included));
                let is_there = path.is_some_and(|path| packaged.contains(&path));
                assert!(is_there, "{name} doesn't ship {included}, which {} needs", file.display());
            }
        }
    }
}

#[test]
fn every_crate_can_be_found() {
    for folder in members() {
        let manifest = manifest(&folder);
        let package = manifest["package"].as_table().unwrap();
        for key in ["description", "keywords", "categories", "license", "rust-version", "include"] {
            assert!(package.contains_key(key), "{} has no {key}", folder.display());
        }
        let keywords = package["keywords"].as_array().unwrap();
        assert!(keywords.len() <= 5, "the registry takes 5 keywords: {keywords:?}");
    }
}

/// Everything that a release makes has one version: crates, wheels, and what the client says of itself.
#[test]
fn a_release_has_one_version() {
    let workspace = manifest(root());
    let version = workspace["workspace"]["package"]["version"].as_str().unwrap();
    let read = |name: &str| fs::read_to_string(root().join(name)).unwrap();
    for wheel in ["python/module", "python/runtime"] {
        let project: Table = read(&format!("{wheel}/pyproject.toml")).parse().unwrap();
        assert_eq!(project["project"]["version"].as_str(), Some(version), "{wheel}");
    }
    let client = read("python/src/hatchery_sandbox/__init__.py");
    assert!(client.contains(&format!("__version__ = \"{version}\"")), "the client isn't {version}");
    for member in members() {
        let package = &manifest(&member)["package"];
        for key in ["version", "repository"] {
            let inherits = package[key].get("workspace").and_then(toml::Value::as_bool);
            assert_eq!(inherits, Some(true), "{} has {key} of its own", member.display());
        }
    }
}

/// cargo-binstall finds the archive, and the binary in it, by what the manifest says.
#[test]
fn binstall_looks_for_the_archive_that_is_made() {
    let script = fs::read_to_string(root().join(".github/dist.py")).unwrap();
    assert!(script.contains(r#"write_archive(f"hatchery-{target}-v{VERSION}", files)"#));
    assert!(script.contains(r#"files = {"bin/hatchery": "#));
    let binstall = &manifest(&root().join("cli"))["package"]["metadata"]["binstall"];
    let name = "hatchery-{ target }-v{ version }";
    let expected = [
        ("pkg-url", format!("{{ repo }}/releases/download/v{{ version }}/{name}.tar.zst")),
        ("pkg-fmt", "tzstd".to_owned()),
        ("bin-dir", format!("{name}/bin/{{ bin }}{{ binary-ext }}")),
    ];
    for (key, value) in expected {
        assert_eq!(binstall[key].as_str(), Some(value.as_str()));
    }
}

/// A worker with a test hook is for the test of the crate that has it, which names the feature on its
/// command line.
#[test]
fn no_manifest_opens_the_test_hook() {
    for folder in members() {
        let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let named = text.matches("test-hook").count();
        if !folder.ends_with("process") {
            assert_eq!(named, 0, "{} names the feature `test-hook`", folder.display());
            continue;
        }
        let features = &manifest(&folder)["features"];
        assert!(features.get("default").is_none());
        assert_eq!(features["test-hook"].as_array().map(Vec::len), Some(0));
        assert_eq!(named, 2, "the feature, and the test that needs it");
    }
}
