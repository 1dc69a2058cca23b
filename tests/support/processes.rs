//! The processes of a pool whose workers are processes, by the system's own list.

use std::fs;

/// Returns the processes that have this parent and aren't dead, sorted. Leaves out the one that keeps
/// the workers' namespace of process ids, in which it is the first.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let is_child = |process: u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let is_its = field("PPid:")?.trim().parse() == Ok(parent);
        let is_alive = !field("State:")?.trim().starts_with('Z');
        let is_keeper = field("NSpid:")?.split_whitespace().skip(1).last() == Some("1");
        (is_its && is_alive && !is_keeper).then_some(process)
    };
    let names =
        fs::read_dir("/proc").unwrap().filter_map(|it| it.ok()?.file_name().into_string().ok());
    let mut found: Vec<u32> =
        names.filter_map(|name| name.parse().ok()).filter_map(is_child).collect();
    found.sort_unstable();
    found
}
