//! How much memory this process may use on this machine.

use std::fs;
use std::path::Path;

/// What is assumed where the system doesn't say.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// Four fifths of what the control group allows, or of the machine's memory if that is less.
pub(super) fn memory_bytes() -> u64 {
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| group_limit(&text));
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let bytes = group.into_iter().chain(machine).min().unwrap_or(UNKNOWN_BYTES);
    bytes / 5 * 4
}

/// Returns the tightest limit of this process's control groups and their ancestors: `memory.max` of
/// version 2 and `memory.limit_in_bytes` of version 1.
fn group_limit(cgroup: &str) -> Option<u64> {
    let mut limits = Vec::new();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let text = fs::read_to_string(Path::new(root).join(group).join(file));
            limits.extend(text.ok().and_then(|text| text.trim().parse::<u64>().ok()));
        }
    }
    limits.into_iter().min()
}

/// Parses `MemTotal` of `/proc/meminfo`, which is in KiB.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_how_much_it_has() {
        assert_eq!(total("MemFree: 3 kB\nMemTotal:       2048 kB\n"), None.or(Some(2 << 20)));
        assert_eq!(total("nothing"), None);
        assert!(memory_bytes() > 0);
    }

    #[test]
    fn groups_without_a_limit_have_none() {
        assert_eq!(group_limit("0::/there-is-no-such-group\n3:cpu:/\n"), group_limit("0::/\n"));
        assert_eq!(group_limit("nothing"), None);
    }
}
