//! The processes of a pool whose workers are processes, by the system's own list.

use std::fs;

/// Returns the processes that have this parent and aren't dead, sorted. Leaves out the one that keeps
/// the workers' namespace of process ids, in which it is the first.
pub fn children(parent: u32) -> Vec<u32> {
    family(parent).0
}

/// Returns the same, and that one, if there is one.
pub fn family(parent: u32) -> (Vec<u32>, Option<u32>) {
    let names =
        fs::read_dir("/proc").unwrap().filter_map(|it| it.ok()?.file_name().into_string().ok());
    let (mut workers, mut keeper) = (Vec::new(), None);
    for process in names.filter_map(|name| name.parse().ok()) {
        match child_of(parent, process) {
            Some(true) => keeper = Some(process),
            Some(false) => workers.push(process),
            None => {}
        }
    }
    workers.sort_unstable();
    (workers, keeper)
}

/// Returns whether a process is the first one of its namespace; `None` if it has another parent or is
/// dead.
fn child_of(parent: u32, process: u32) -> Option<bool> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let is_its = field("PPid:")?.trim().parse() == Ok(parent);
    let is_alive = !field("State:")?.trim().starts_with('Z');
    let is_first = field("NSpid:")?.split_whitespace().skip(1).last() == Some("1");
    (is_its && is_alive).then_some(is_first)
}
