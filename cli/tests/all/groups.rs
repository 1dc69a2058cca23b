//! Control groups of worker processes: one for each, what their limits do, and that none is left.
//!
//! All but the first test need a group with the memory controller, which only root can make. They
//! pass without one.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::containers::Group;
use crate::web::Server;

const OPTIONS: [&str; 4] = ["--isolation", "process", "--workers", "1"];

/// Starts a server that has this group for its workers.
fn serve_in(group: &Group) -> Server {
    Server::start_with(&[("HATCHERY_CGROUP", group.path.to_str().unwrap())], &OPTIONS)
}

fn status(server: &Server) -> Value {
    server.get("/v1/status").1
}

/// Returns the folder with the groups of the server's workers.
fn folder(server: &Server) -> PathBuf {
    let status = status(server);
    assert!(status["isolation"]["no_cgroup"].is_null(), "{status}");
    PathBuf::from(status["isolation"]["cgroup"].as_str().unwrap())
}

/// Returns the groups in a folder.
fn groups_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.filter(|entry| entry.file_type().unwrap().is_dir()).map(|entry| entry.path()).collect()
}

/// Returns a number that the kernel tells or keeps under one of two names.
fn number(group: &Path, names: [&str; 2]) -> u64 {
    let text = names.into_iter().find_map(|name| fs::read_to_string(group.join(name)).ok());
    text.unwrap().trim().parse().unwrap()
}

#[test]
fn the_status_says_why_there_are_no_groups() {
    let off = [("HATCHERY_CGROUP", "off")];
    let isolation = status(&Server::start_with(&off, &OPTIONS))["isolation"].clone();
    assert!(isolation["cgroup"].is_null(), "{isolation}");
    assert_eq!(isolation["no_cgroup"], "`$HATCHERY_CGROUP` is `off`");
    let folder = tempfile::tempdir().unwrap();
    let wrong = [("HATCHERY_CGROUP", folder.path().to_str().unwrap())];
    let isolation = status(&Server::start_with(&wrong, &OPTIONS))["isolation"].clone();
    assert!(
        isolation["no_cgroup"].as_str().unwrap().contains("isn't a control group"),
        "{isolation}"
    );
}

#[test]
fn each_worker_is_in_a_group_of_its_own_and_nothing_is_left() {
    let Some(group) = Group::new("hatchery-test-groups", 8 << 30) else { return };
    let server = serve_in(&group);
    let folder = folder(&server);
    assert_eq!(folder.parent(), Some(&*group.path));
    let workers = groups_in(&folder);
    let [worker] = &workers[..] else { panic!("{workers:?}") };
    let processes = fs::read_to_string(worker.join("cgroup.procs")).unwrap();
    assert_eq!(processes.lines().count(), 1, "{processes}");
    let limit = number(worker, ["memory.max", "memory.limit_in_bytes"]);
    let pool = status(&server)["memory"]["limit_bytes"].as_u64().unwrap();
    // The kernel counts pages.
    assert_eq!(limit, pool / 4096 * 4096);
    // A worker that ends takes its group along.
    let ends = json!({ "code": "import os; os._exit(3)" });
    assert_eq!(server.post("/v1/run", &ends).0, 200);
    assert_eq!(server.post("/v1/run", &json!({ "code": "1" })).0, 200);
    while worker.exists() {
        std::thread::yield_now();
    }
    assert_eq!(groups_in(&folder).len(), 1);
    server.end();
    assert!(groups_in(&group.path).is_empty());
}

#[test]
fn a_worker_that_the_out_of_memory_killer_ends_is_replaced_and_the_cause_is_told() {
    let Some(group) = Group::new("hatchery-test-oom", 8 << 30) else { return };
    let server = serve_in(&group);
    let worker = groups_in(&folder(&server)).remove(0);
    let used = number(&worker, ["memory.current", "memory.usage_in_bytes"]);
    let names = ["memory.max", "memory.limit_in_bytes"];
    let limit = names.into_iter().map(|name| worker.join(name)).find(|file| file.exists()).unwrap();
    fs::write(limit, (used + (48 << 20)).to_string()).unwrap();
    // It is tried again in a worker whose limit is what it was.
    let (_, result) = server.post("/v1/run", &json!({ "code": "len(b'x' * (256 << 20))" }));
    assert_eq!(result["value"], 256 << 20, "{result}");
    let told = status(&server).to_string();
    assert!(told.contains("SIGKILL by the kernel's out-of-memory killer"), "{told}");
    server.end();
    assert!(groups_in(&group.path).is_empty());
}

#[test]
fn groups_of_a_server_that_was_killed_are_removed_by_the_next_one() {
    let Some(group) = Group::new("hatchery-test-left", 8 << 30) else { return };
    let first = serve_in(&group);
    let left = folder(&first);
    let second = serve_in(&group);
    assert!(left.exists() && folder(&second) != left, "it is in use");
    second.end();
    let worker = groups_in(&left).remove(0);
    first.kill();
    // Its workers end with it.
    while !fs::read_to_string(worker.join("cgroup.procs")).unwrap().is_empty() {
        std::thread::yield_now();
    }
    let third = serve_in(&group);
    assert!(!left.exists());
    third.end();
    assert!(groups_in(&group.path).is_empty());
}
