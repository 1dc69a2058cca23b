//! What the sessions of each tenant hold, and what forks share.
//!
//! Sessions that were forked from one state share it. It counts once, for the tenant of the session
//! that was forked, until the last of them has ended or has a state of its own. A fork of a fork
//! uses both states, one under the other.

use std::sync::Arc;

use engine::SharedBytes;
use rustc_hash::FxHashMap;

/// What the open sessions of one tenant hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) sessions: usize,
    /// Bytes of their states in memory, on workers as last copied, and on disk.
    pub(crate) bytes: u64,
}

/// A state that forks share.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SharedState {
    bytes: u64,
    /// The sessions and shared states that use it.
    users: usize,
    /// The state that it was forked from.
    under: Option<u64>,
    tenant: Arc<str>,
}

/// What tenants hold, and which states are shared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    tenants: FxHashMap<Arc<str>, Held>,
    shared: FxHashMap<u64, SharedState>,
    /// Bytes of all shared states.
    pub(crate) shared_bytes: u64,
}

impl Holdings {
    /// Returns what the sessions of a tenant hold.
    pub(crate) fn of(&self, tenant: &str) -> Held {
        self.tenants.get(tenant).copied().unwrap_or_default()
    }

    /// Counts one session more.
    pub(super) fn add(&mut self, tenant: &Arc<str>, bytes: u64) {
        let held = self.tenants.entry(Arc::clone(tenant)).or_default();
        held.sessions += 1;
        held.bytes += bytes;
    }

    /// Counts one session less, which held `bytes`.
    pub(super) fn take(&mut self, tenant: &Arc<str>, bytes: u64) {
        let Some(held) = self.tenants.get_mut(tenant) else { return };
        held.sessions -= 1;
        held.bytes -= bytes;
        if *held == Held::default() {
            self.tenants.remove(tenant);
        }
    }

    /// Lets `users` sessions more use a state that was forked from the one `under` it.
    pub(super) fn share(
        &mut self,
        SharedBytes { id, bytes }: SharedBytes,
        under: Option<u64>,
        tenant: &Arc<str>,
        users: usize,
    ) {
        if let Some(shared) = self.shared.get_mut(&id) {
            shared.users += users;
            return;
        }
        let under = under.filter(|under| match self.shared.get_mut(under) {
            Some(under) => {
                under.users += 1;
                true
            }
            None => false,
        });
        self.shared_bytes += bytes;
        self.tenants.entry(Arc::clone(tenant)).or_default().bytes += bytes;
        let tenant = Arc::clone(tenant);
        self.shared.insert(id, SharedState { bytes, users, under, tenant });
    }

    /// Ends one use of a shared state, and with the last one those under it.
    pub(super) fn leave(&mut self, id: Option<u64>) {
        let mut next = id;
        while let Some(id) = next {
            let Some(shared) = self.shared.get_mut(&id) else { return };
            shared.users -= 1;
            if shared.users > 0 {
                return;
            }
            let Some(SharedState { bytes, under, tenant, .. }) = self.shared.remove(&id) else {
                return;
            };
            self.shared_bytes -= bytes;
            if let Some(held) = self.tenants.get_mut(&tenant) {
                held.bytes -= bytes;
                if *held == Held::default() {
                    self.tenants.remove(&tenant);
                }
            }
            next = under;
        }
    }

    /// Returns the bytes of a shared state with those under it.
    pub(crate) fn bytes_with_under(&self, id: Option<u64>) -> u64 {
        let mut bytes = 0_u64;
        let mut next = id;
        while let Some(shared) = next.and_then(|id| self.shared.get(&id)) {
            bytes = bytes.saturating_add(shared.bytes);
            next = shared.under;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Holdings {
        /// Adds to `again` the shared states of this, with as many users as there are.
        pub(in crate::policy) fn count_shared_again(
            &self,
            again: &mut Self,
            used: impl Iterator<Item = u64>,
        ) {
            let unders = self.shared.values().filter_map(|shared| shared.under);
            for id in used.chain(unders) {
                let SharedState { bytes, under, ref tenant, .. } = self.shared[&id];
                if let Some(known) = again.shared.get_mut(&id) {
                    known.users += 1;
                    continue;
                }
                again.shared_bytes += bytes;
                again.tenants.entry(Arc::clone(tenant)).or_default().bytes += bytes;
                let tenant = Arc::clone(tenant);
                again.shared.insert(id, SharedState { bytes, users: 1, under, tenant });
            }
        }
    }

    #[test]
    fn a_shared_state_counts_until_its_last_user_has_left_it() {
        let ada: Arc<str> = "ada".into();
        let mut holdings = Holdings::default();
        holdings.share(SharedBytes { id: 1, bytes: 100 }, None, &ada, 3);
        holdings.share(SharedBytes { id: 2, bytes: 10 }, Some(1), &ada, 1);
        // The same state is forked once more.
        holdings.share(SharedBytes { id: 1, bytes: 100 }, None, &ada, 1);
        assert_eq!((holdings.shared_bytes, holdings.of("ada").bytes), (110, 110));
        assert_eq!(holdings.bytes_with_under(Some(2)), 110);
        (0..4).for_each(|_| holdings.leave(Some(1)));
        assert_eq!(holdings.shared_bytes, 110, "the fork of a fork still uses both");
        holdings.leave(Some(2));
        assert_eq!(holdings, Holdings::default());
    }
}
