//! `hatchery kernel`, as Jupyter's own packages use it: the conformance suite, a client, nbclient, and
//! Jupyter's server.
//!
//! The packages are installed by pip into the folder that Cargo gives to tests, once. A machine
//! without a package index can leave these tests out with `HATCHERY_SKIP_STOCK_CLIENTS=1`.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;

/// The packages, with those that they need.
const PACKAGES: [&str; 6] = [
    "jupyter-client==8.10.0",
    "jupyter-kernel-test==0.7.0",
    "jupyter-server==2.21.1",
    "nbclient==0.11.0",
    "nbformat==5.11.1",
    "pyzmq==27.3.0",
];

/// Where the packages are; `None` if these tests are to be left out.
static INSTALLED: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    if std::env::var_os("HATCHERY_SKIP_STOCK_CLIENTS").is_some() {
        println!("left out, as HATCHERY_SKIP_STOCK_CLIENTS says");
        return None;
    }
    let name = PACKAGES.join("-").replace('=', "");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if !folder.is_dir() {
        install_packages(&folder);
    }
    Some(folder)
});

fn install_packages(folder: &Path) {
    let unfinished = tempfile::tempdir_in(folder.parent().unwrap()).unwrap();
    let output = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--upgrade", "--target"])
        .arg(unfinished.path())
        .args(PACKAGES)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "pip can't install {PACKAGES:?}; set HATCHERY_SKIP_STOCK_CLIENTS=1 to leave out the tests \
         with these packages: {}",
        text(&output.stderr)
    );
    // Another run of the tests may have been faster.
    if std::fs::rename(unfinished.path(), folder).is_ok() {
        let _ = unfinished.keep();
    }
    assert!(folder.is_dir());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn install(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hatchery"));
    command.args(["kernel", "install"]).args(arguments).output().unwrap()
}

/// Runs a script against a kernel that was installed with these options. `None` if the tests are to
/// be left out.
fn run(script: &str, options: &[&str], arguments: &[&Path]) -> Option<Output> {
    let packages = INSTALLED.as_ref()?;
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().to_str().unwrap();
    let installed = install(&[&["--prefix", prefix], options].concat());
    assert!(installed.status.success(), "{}", text(&installed.stderr));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel").join(script);
    let output = Command::new("python3")
        .args(["-s", "-B"])
        .arg(path)
        .args(arguments)
        .env("PYTHONPATH", packages)
        .env("JUPYTER_PATH", folder.path().join("share/jupyter"))
        .env("JUPYTER_RUNTIME_DIR", folder.path().join("runtime"))
        .env("JUPYTER_CONFIG_DIR", folder.path().join("config"))
        .env("NO_PROXY", "*")
        .output()
        .unwrap();
    Some(output)
}

#[track_caller]
fn check(script: &str, options: &[&str], arguments: &[&Path]) {
    let Some(output) = run(script, options, arguments) else { return };
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.ends_with("all as expected\n"), "{stdout}{stderr}");
}

fn conforms(options: &[&str]) {
    let Some(output) = run("conformance.py", options, &[]) else { return };
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    // Of 13 tests, the pager's alone doesn't apply.
    assert!(said.contains("Ran 13 tests") && said.contains("OK (skipped=1)"), "{said}");
}

#[test]
fn the_conformance_suite_of_jupyter() {
    conforms(&[]);
}

#[test]
fn a_kernel_does_what_front_ends_expect() {
    check("behaviour.py", &[], &[]);
}

#[test]
fn a_kernel_on_another_build_conforms_and_does_the_same() {
    let Some(build) = test_support::found::pyodide() else { return };
    let options = ["--python", build.to_str().unwrap()];
    conforms(&options);
    check("behaviour.py", &options, &[]);
}

#[test]
fn a_kernel_that_is_recorded_can_be_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let recordings = folder.path().join("recordings");
    check("recorded.py", &["--record", recordings.to_str().unwrap()], &[]);
    // There is no folder where these tests are left out.
    for file in std::fs::read_dir(&recordings).into_iter().flatten() {
        let replay = |options: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_hatchery"));
            let file = file.as_ref().unwrap().path();
            let output = command.arg("replay").args(options).arg(file).output().unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
            text(&output.stdout)
        };
        let listed = replay(&[]);
        for line in [">>> 1/0", "ZeroDivisionError: division by zero", ">>> 'the last cell'"] {
            assert!(listed.contains(line), "no `{line}` in {listed}");
        }
        let verified = replay(&["--verify"]);
        assert!(verified.contains("8 equal, 0 taken from the recording, 0 differ"), "{verified}");
    }
}

/// A server with a pool that kernels share, until it is dropped.
struct Server {
    child: Child,
    folder: TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_hatchery"));
        let socket = folder.path().join("pool.sock");
        let mut child = command
            .args(["serve", "--unix"])
            .arg(&socket)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("serving at") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "the server has ended");
        }
        // What it says later goes somewhere.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Self { child, folder }
    }

    fn socket(&self) -> String {
        self.folder.path().join("pool.sock").to_str().unwrap().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn kernels_in_a_shared_pool_are_like_others() {
    let server = Server::start();
    let socket = server.socket();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| check("behaviour.py", &["--unix", &socket], &[]));
        }
    });
}

#[test]
fn a_kernel_without_its_pool_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("connection.json");
    let contents = r#"{"ip": "127.0.0.1", "shell_port": 1, "control_port": 2, "iopub_port": 3,
        "stdin_port": 4, "hb_port": 5, "key": "a", "transport": "tcp"}"#;
    std::fs::write(&file, contents).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hatchery"));
    let socket = folder.path().join("pool.sock");
    let output = command.args(["kernel", "-f"]).arg(&file).arg("--unix").arg(socket).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("start one with `hatchery serve --unix"), "{output:?}");
}

/// Through nbclient a kernel gives the same outputs as ipykernel.
#[test]
fn notebooks_run_as_in_jupyter() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let examples = root.join("../examples/data");
    let known = ["asyncio", "display", "errors", "formulas", "magics", "plots", "tables"];
    let known = known.map(|name| root.join(format!("tests/notebooks/{name}.ipynb")));
    let arguments: Vec<&Path> =
        [examples.as_path()].into_iter().chain(known.iter().map(PathBuf::as_path)).collect();
    check("notebooks.py", &["--beside"], &arguments);
}

#[test]
fn a_notebook_on_the_server_of_jupyter() {
    check("server.py", &[], &[]);
}

#[test]
fn an_installation_that_can_not_work_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().to_str().unwrap();
    for (arguments, expected) in [
        (&["--name", "a/b"][..], "`a/b` can't be a kernel's name"),
        (&["--mount", "no-such-folder"], "no-such-folder"),
        (&["--user"], "cannot be used with"),
    ] {
        let output = install(&[&["--prefix", prefix], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {output:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_connection_file_that_can_not_be_used_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("connection.json");
    let open = r#"{"ip": "0.0.0.0", "shell_port": 1, "control_port": 2, "iopub_port": 3,
        "stdin_port": 4, "hb_port": 5, "key": "", "transport": "tcp"}"#;
    for (contents, expected) in [
        (None, "can't read the connection file"),
        (Some("{}"), "isn't one of Jupyter"),
        (Some(open), "has no key"),
    ] {
        if let Some(contents) = contents {
            std::fs::write(&file, contents).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_hatchery"));
        let output = command.args(["kernel", "-f"]).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    }
}
