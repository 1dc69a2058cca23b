//! Clients that generators make of `/openapi.json`: they import, type-check and work.
//!
//! pip and npm install the generators into the folder that Cargo gives to tests, once. A machine
//! without a package index can leave these tests out with `HATCHERY_SKIP_STOCK_CLIENTS=1`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::open;

const PYTHON: [&str; 1] = ["openapi-python-client==0.29.1"];
const TYPESCRIPT: [&str; 3] =
    ["openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3"];

/// Returns a folder with packages, which `install` puts there; `None` if the test is to be left out.
fn installed(packages: &[&str], install: impl FnOnce(&Path) -> Command) -> Option<PathBuf> {
    if std::env::var_os("HATCHERY_SKIP_STOCK_CLIENTS").is_some() {
        println!("left out, as HATCHERY_SKIP_STOCK_CLIENTS says");
        return None;
    }
    let name = packages.join("-").replace('=', "");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if !folder.is_dir() {
        let unfinished = tempfile::tempdir_in(folder.parent().unwrap()).unwrap();
        succeed(install(unfinished.path()).args(packages));
        // Another run of the tests may have been faster.
        if std::fs::rename(unfinished.path(), &folder).is_ok() {
            let _ = unfinished.keep();
        }
    }
    Some(folder)
}

#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let [said, complained] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{command:?}: {said}{complained}");
    said + &complained
}

/// Writes the document into a folder, and returns its path.
fn document(folder: &Path) -> PathBuf {
    let path = folder.join("openapi.json");
    std::fs::write(&path, open().get("/openapi.json").bytes()).unwrap();
    path
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http").join(name)
}

#[test]
fn of_openapi_python_client() {
    let Some(packages) = installed(&PYTHON, |folder| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--target"]).arg(folder);
        pip
    }) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let path = [packages.join("bin")].into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).unwrap();
    let said = succeed(
        Command::new("python3")
            .args(["-s", "-m", "openapi_python_client", "generate", "--meta", "none", "--path"])
            .arg(document(folder.path()))
            .arg("--output-path")
            .arg(folder.path().join("hatchery_client"))
            .env("PYTHONPATH", &packages)
            .env("PATH", path),
    );
    // Lines of JSON are no type that it knows.
    let warned: Vec<&str> = said.lines().filter(|line| line.starts_with("WARNING")).collect();
    let is_of_lines =
        |line: &&str| ["/v1/batches", "/explore"].iter().any(|path| line.contains(path));
    assert!(warned.iter().all(is_of_lines), "{said}");
    let paths = std::env::join_paths([folder.path(), &packages]).unwrap();
    succeed(
        Command::new("python3")
            .args(["-s", "-B"])
            .arg(script("generated.py"))
            .arg(format!("http://{}", open().address))
            .env("PYTHONPATH", paths),
    );
}

#[test]
fn of_openapi_typescript() {
    let Some(packages) = installed(&TYPESCRIPT, |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(folder);
        npm
    }) else {
        return;
    };
    let folder = tempfile::tempdir_in(&packages).unwrap();
    let tool = |name: &str| {
        let mut command = Command::new(packages.join("node_modules/.bin").join(name));
        command.current_dir(folder.path());
        command
    };
    let schema = document(folder.path());
    succeed(tool("openapi-typescript").arg(schema).args(["--output", "schema.d.ts"]));
    std::fs::copy(script("generated.ts"), folder.path().join("client.mts")).unwrap();
    succeed(
        tool("tsc")
            .args(["--strict", "--target", "es2022", "--module", "nodenext"])
            .arg("client.mts"),
    );
    let address = format!("http://{}", open().address);
    succeed(Command::new("node").arg("client.mjs").arg(address).current_dir(folder.path()));
}
