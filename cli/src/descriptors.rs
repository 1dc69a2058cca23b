//! The number of files and sockets that this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the pool, its cache and the listeners have open beside connections.
const OTHERS: u64 = 256;

/// Raises the limit, as far as this process may, so that so many connections fit. Returns how many
/// do.
pub(crate) fn room_for(connections: usize) -> usize {
    let needed = connections as u64 + OTHERS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = maximum.map_or(needed, |most| most.min(needed));
    let mut current = current.unwrap_or(u64::MAX);
    let limit = Rlimit { current: Some(raised), maximum };
    if current < raised && setrlimit(Resource::Nofile, limit).is_ok() {
        current = raised;
    }
    let room = current.saturating_sub(OTHERS).max(1);
    usize::try_from(room).map_or(connections, |room| room.min(connections))
}
