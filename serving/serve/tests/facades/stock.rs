//! The clients of other products, as the package index has them, pointed at our server.
//!
//! They are installed by pip into the folder that Cargo gives to tests, once. A machine without a
//! package index can leave these tests out with `HATCHERY_SKIP_STOCK_CLIENTS=1`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::server::Server;

/// The packages with those that they need.
const PACKAGES: [&str; 2] = ["e2b-code-interpreter==2.11.5", "sandbox-fusion==0.3.7"];

/// Without what it trains models with.
const ALONE: [&str; 1] = ["verl==0.9.1"];

/// Where the packages are; `None` if these tests are to be left out.
static INSTALLED: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    if std::env::var_os("HATCHERY_SKIP_STOCK_CLIENTS").is_some() {
        println!("left out, as HATCHERY_SKIP_STOCK_CLIENTS says");
        return None;
    }
    let name = [PACKAGES.as_slice(), &ALONE].concat().join("-").replace('=', "");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if !folder.is_dir() {
        install(&folder);
    }
    Some(folder)
});

fn install(folder: &Path) {
    let unfinished = tempfile::tempdir_in(folder.parent().unwrap()).unwrap();
    for (packages, option) in [(PACKAGES.as_slice(), None), (&ALONE, Some("--no-deps"))] {
        let output = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--upgrade", "--target"])
            .arg(unfinished.path())
            .args(option)
            .args(packages)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "pip can't install {packages:?}; set HATCHERY_SKIP_STOCK_CLIENTS=1 to leave out the \
             tests with these clients: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    // Another run of the tests may have been faster.
    if std::fs::rename(unfinished.path(), folder).is_ok() {
        let _ = unfinished.keep();
    }
    assert!(folder.is_dir());
}

/// Runs a script of this folder with the server's address.
#[track_caller]
fn run(script: &str, server: &Server) {
    let Some(packages) = INSTALLED.as_ref() else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/facades").join(script);
    let output = Command::new("python3")
        .args(["-s", "-B"])
        .arg(path)
        .arg(server.url(""))
        .env("PYTHONPATH", packages)
        .env("E2B_API_URL", server.url(""))
        .env("E2B_SANDBOX_URL", server.url(""))
        // Of the right form.
        .env("E2B_API_KEY", format!("e2b_{}", "0".repeat(40)))
        .env("NO_PROXY", "*")
        .output()
        .unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.ends_with("all as expected\n"), "{stdout}{stderr}");
}

#[test]
fn the_sdk_of_e2b() {
    run("e2b_client.py", Server::shared());
}

#[test]
fn the_sdk_of_sandbox_fusion() {
    run("fusion_client.py", Server::shared());
}

#[test]
fn the_rewards_of_verl() {
    run("verl_reward.py", Server::shared());
}
