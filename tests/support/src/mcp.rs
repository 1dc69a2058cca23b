//! The official Python client of MCP, in an environment of its own.

use std::path::Path;
use std::process::{Command, Output};

/// The client, as pip takes it.
const CLIENT: &str = "mcp==2.3.0";

/// A folder with the client; `None` if pip can't fetch it, which is printed.
pub fn environment() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("python3").args(["-m", "venv"]).arg(folder.path()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let fetched = python(folder.path())
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", CLIENT])
        .output()
        .unwrap();
    if !fetched.status.success() {
        println!("skipped: pip can't fetch {CLIENT}: {}", String::from_utf8_lossy(&fetched.stderr));
        return None;
    }
    Some(folder)
}

/// Runs the client's program against a server, in each of the protocol's lifecycles.
pub fn check(environment: &Path, server: &[&str]) {
    for (lifecycle, version) in [("legacy", "2025-11-25"), ("auto", "2026-07-28")] {
        let Output { status, stdout, stderr } = python(environment)
            .args(["-c", include_str!("mcp_client.py"), lifecycle])
            .args(server)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&stdout);
        assert!(status.success(), "{lifecycle}: {said}{}", String::from_utf8_lossy(&stderr));
        assert_eq!(said, format!("{version}\ndone\n"), "{lifecycle}");
    }
}

fn python(environment: &Path) -> Command {
    Command::new(environment.join("bin/python3"))
}
