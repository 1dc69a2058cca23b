//! MCP's conformance suite against `/mcp` of `hatchery serve --http`.
//!
//! npm installs the suite and a Node.js that is new enough for it into the folder that Cargo gives to
//! tests, once. Where npm can't do that, the test is left out and says so.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::crowds::Server;
use crate::text;

/// The suite, and Node.js as a package.
const PACKAGES: [&str; 2] = ["@modelcontextprotocol/conformance@0.1.16", "node@24.21.0"];

/// Scenarios that pass. The others don't apply, and `conformance.yml` says why.
const PASSING: [&str; 7] = [
    "server-initialize",
    "ping",
    "tools-list",
    "server-sse-polling",
    "server-sse-multiple-streams",
    "resources-list",
    "dns-rebinding-protection",
];

/// Returns the folder with the packages; `None` if npm can't fetch them.
fn packages() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-conformance-0.1.16");
    if folder.is_dir() {
        return Some(folder);
    }
    let unfinished = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let installed = Command::new("npm")
        .args(["install", "--no-audit", "--no-fund", "--loglevel=error"])
        .args(PACKAGES)
        .current_dir(unfinished.path())
        .output();
    match installed {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            println!("left out: npm can't install {PACKAGES:?}: {}", text(&output.stderr));
            return None;
        }
        Err(error) => {
            println!("left out: there is no npm: {error}");
            return None;
        }
    }
    // Another run of the tests may have been faster.
    if std::fs::rename(unfinished.path(), &folder).is_ok() {
        let _ = unfinished.keep();
    }
    Some(folder)
}

#[test]
fn the_conformance_suite_of_mcp() {
    let Some(packages) = packages() else { return };
    let server = Server::start(&[]);
    let modules = packages.join("node_modules");
    let expected =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../serving/serve/tests/mcp/conformance.yml");
    let output = Command::new(modules.join("node/bin/node"))
        .arg(modules.join("@modelcontextprotocol/conformance/dist/index.js"))
        .args(["server", "--suite", "all", "--expected-failures", expected, "--url"])
        .arg(format!("http://{}/mcp", server.address))
        .output()
        .unwrap();
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{complained}");
    let mut passed: Vec<&str> = said
        .lines()
        .filter_map(|line| line.strip_prefix("✓ ")?.split_once(':'))
        .map(|(name, _)| name)
        .collect();
    let mut passing = PASSING;
    passed.sort_unstable();
    passing.sort_unstable();
    assert_eq!(passed, passing, "{said}{complained}");
}
