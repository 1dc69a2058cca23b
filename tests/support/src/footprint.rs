//! What a process, and those that it has started, take of the machine.

use std::fs;

use crate::processes::children;

/// The resources of this process.
#[derive(Debug, Clone, Copy)]
pub struct Footprint {
    pub resident_bytes: u64,
    pub threads: usize,
    pub descriptors: usize,
    /// The helper and the workers.
    pub processes: usize,
    /// What these have for themselves.
    pub private_bytes: u64,
    pub their_descriptors: usize,
}

/// Reads a size from the status of a process, if it is there.
fn bytes_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches(" kB").parse().ok().map(|kibibytes: u64| kibibytes << 10)
}

/// Returns the helpers of this process, and their workers.
fn descendants() -> Vec<u32> {
    let mut found = children(std::process::id());
    found.extend(found.clone().into_iter().flat_map(children));
    found
}

impl Footprint {
    pub fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let count = |folder: &str| fs::read_dir(folder).unwrap().count();
        let processes = descendants();
        let private = |process: &u32| {
            let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
            bytes_of(&status, "RssAnon:")
        };
        // Only root sees those of a confined process.
        let their_descriptors =
            |process: &u32| Some(fs::read_dir(format!("/proc/{process}/fd")).ok()?.count());
        Self {
            resident_bytes: bytes_of(&status, "VmRSS:").unwrap(),
            processes: processes.len(),
            private_bytes: processes.iter().filter_map(private).sum(),
            their_descriptors: processes.iter().filter_map(their_descriptors).sum(),
            threads: count("/proc/self/task"),
            descriptors: count("/proc/self/fd"),
        }
    }

    /// Returns whether nothing grew beyond random variation.
    pub fn is_flat_since(self, before: Self) -> bool {
        let room = (before.resident_bytes / 20).max(32 << 20);
        self.resident_bytes <= before.resident_bytes + room
            && self.threads <= before.threads + 2
            && self.descriptors <= before.descriptors + 2
            // A worker may just be replaced.
            && self.processes <= before.processes + 1
            && self.private_bytes
                <= before.private_bytes + (before.private_bytes / 20).max(32 << 20)
            && self.their_descriptors <= before.their_descriptors + 32
    }
}
