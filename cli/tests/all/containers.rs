//! Programs at their own limits in a control group with a lower one: the process survives, and
//! well-behaved programs get correct results.
//!
//! Needs its own control group, which only root can create; passes without one.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use super::hatchery;

const BOMB: &str = "x = []\nwhile True: x.append(bytearray(b'x' * (1 << 20)))";

/// A control group that limits memory, removed on drop.
pub(crate) struct Group {
    pub(crate) path: PathBuf,
    procs: &'static str,
}

impl Group {
    /// `None` if none can be created.
    pub(crate) fn new(name: &str, bytes: u64) -> Option<Self> {
        for (root, limit) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let path = PathBuf::from(root).join(format!("{name}-{}", std::process::id()));
            if fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Self { path, procs: "cgroup.procs" };
            if fs::write(group.path.join(limit), bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        None
    }

    fn run(&self, command: &Command) -> Output {
        let mut inside = Command::new("sh");
        let enter = format!("echo $$ > '{}' && exec \"$@\"", self.path.join(self.procs).display());
        inside.arg("-c").arg(enter).arg("sh").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside.output().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last process has ended or, as a worker process, is about to; the group follows.
        for _ in 0..1_000_000 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::yield_now();
        }
    }
}

#[test]
fn bombs_end_in_memory_errors_and_good_programs_are_right_however_small_the_group_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for number in 0..8 {
        let bomb = serde_json::json!({ "id": format!("bomb{number}"), "code": BOMB });
        let good =
            serde_json::json!({ "id": format!("good{number}"), "code": format!("{number} * 7") });
        lines.push_str(&format!("{bomb}\n{good}\n"));
    }
    let jobs = folder.path().join("jobs.jsonl");
    fs::write(&jobs, lines).unwrap();
    for mebibytes in [1024, 1536, 2048, 4096] {
        let Some(group) = Group::new("hatchery-test", mebibytes << 20) else { return };
        let mut batch = hatchery();
        batch.arg("batch").arg(&jobs).args(["--workers", "2"]);
        let output = group.run(&batch);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{mebibytes} MiB: {stderr}");
        let results: Vec<serde_json::Value> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(results.len(), 16, "{mebibytes} MiB: {stderr}");
        for result in results {
            let id = result["id"].as_str().unwrap();
            match id.strip_prefix("good") {
                Some(number) => {
                    let number: i64 = number.parse().unwrap();
                    assert_eq!(result["value"], number * 7, "{mebibytes} MiB: {result}");
                }
                None => {
                    assert_eq!(result["error"]["type"], "MemoryError", "{mebibytes} MiB: {result}");
                }
            }
        }
    }
}
