//! What the sessions of each tenant hold, and what forks share.
//!
//! Sessions that were forked from one state share it. It counts once, for the tenant of the session
//! that was forked, until the last of them has ended or has a state of its own. A fork of a fork
//! uses both states, one under the other. Once a forked session alone uses what it shared, that is
//! its own again.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::SharedBytes;
use pool::SessionId;
use rustc_hash::FxHashMap;

/// What the open sessions of one tenant hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) sessions: usize,
    /// Bytes of their states in memory, on idle workers as last copied, and on disk.
    pub(crate) bytes: u64,
}

/// A state that forks share.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SharedState {
    /// What it takes beside the state under it.
    bytes: u64,
    /// What it takes alone.
    whole_bytes: u64,
    /// The sessions that use it.
    sessions: usize,
    /// The one that was forked, while it uses it.
    forked: Option<SessionId>,
    /// The states that were forked from it.
    over: BTreeSet<u64>,
    /// The state that it was forked from.
    under: Option<u64>,
    tenant: Arc<str>,
}

/// A state that the session that was forked uses alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnsharedState {
    pub(super) session: SessionId,
    pub(super) id: u64,
    pub(super) bytes: u64,
    /// The shared state under it, which the session uses now.
    pub(super) under: Option<u64>,
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
        self.change(tenant, |held| {
            held.sessions -= 1;
            held.bytes -= bytes;
        });
    }

    fn change(&mut self, tenant: &Arc<str>, change: impl FnOnce(&mut Held)) {
        let Some(held) = self.tenants.get_mut(tenant) else { return };
        change(held);
        if *held == Held::default() {
            self.tenants.remove(tenant);
        }
    }

    /// Whether sessions share the state with this id.
    pub(super) fn is_shared(&self, id: u64) -> bool {
        self.shared.contains_key(&id)
    }

    /// Lets `sessions` sessions more use a state that was forked from the one `under` it. The one
    /// that was `forked` is among them, if it uses the state only now.
    pub(super) fn share(
        &mut self,
        shared: SharedBytes,
        under: Option<u64>,
        tenant: &Arc<str>,
        sessions: usize,
        forked: Option<SessionId>,
    ) {
        let SharedBytes { id, bytes, whole_bytes } = shared;
        if let Some(known) = self.shared.get_mut(&id) {
            known.sessions += sessions;
            known.forked = known.forked.or(forked);
            return;
        }
        let under = under.filter(|under| match self.shared.get_mut(under) {
            Some(under) => under.over.insert(id),
            None => false,
        });
        self.shared_bytes += bytes;
        self.tenants.entry(Arc::clone(tenant)).or_default().bytes += bytes;
        let (over, tenant) = (BTreeSet::new(), Arc::clone(tenant));
        let shared = SharedState { bytes, whole_bytes, sessions, forked, over, under, tenant };
        self.shared.insert(id, shared);
    }

    /// Ends a session's use of a shared state. Returns states that aren't shared any more.
    #[must_use]
    pub(super) fn leave(&mut self, id: Option<u64>, session: SessionId) -> Vec<UnsharedState> {
        let mut unshared = Vec::new();
        if let Some(id) = id
            && let Some(shared) = self.shared.get_mut(&id)
        {
            shared.sessions -= 1;
            shared.forked.take_if(|forked| *forked == session);
            self.drop_unshared(id, &mut unshared);
        }
        unshared
    }

    /// Drops a shared state that no session uses, or only the one that was forked. If one state lies
    /// over an unused one, that has what is left of it from then on. So a session that is forked
    /// after each of its turns leaves no chain.
    fn drop_unshared(&mut self, id: u64, unshared: &mut Vec<UnsharedState>) {
        let is_unshared = |shared: &&SharedState| match (shared.sessions, shared.over.len()) {
            (0, 0 | 1) => true,
            (1, 0) => shared.forked.is_some(),
            _ => false,
        };
        if self.shared.get(&id).filter(is_unshared).is_none() {
            return;
        }
        let Some(SharedState { bytes, forked, over, under, tenant, .. }) = self.shared.remove(&id)
        else {
            return;
        };
        self.shared_bytes -= bytes;
        self.change(&tenant, |held| held.bytes -= bytes);
        let over = over.first().copied();
        if let Some(session) = forked {
            unshared.push(UnsharedState { session, id, bytes, under });
        }
        if let Some(below) = under.and_then(|under| self.shared.get_mut(&under)) {
            below.over.remove(&id);
            below.over.extend(over);
            below.sessions += usize::from(forked.is_some());
        }
        if let Some(above) = over.and_then(|over| self.shared.get_mut(&over)) {
            let more = bytes.min(above.whole_bytes.saturating_sub(above.bytes));
            (above.bytes, above.under) = (above.bytes + more, under);
            let tenant = Arc::clone(&above.tenant);
            self.shared_bytes += more;
            self.tenants.entry(tenant).or_default().bytes += more;
        }
        if let Some(under) = under {
            self.drop_unshared(under, unshared);
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
        /// Adds to `again` the shared states of this, as their sessions use them.
        pub(in crate::policy) fn count_shared_again(
            &self,
            again: &mut Self,
            used: impl Iterator<Item = u64>,
        ) {
            for (id, shared) in &self.shared {
                again.shared_bytes += shared.bytes;
                again.tenants.entry(Arc::clone(&shared.tenant)).or_default().bytes += shared.bytes;
                let is_over = |(_, other): &(&u64, &SharedState)| other.under == Some(*id);
                let over = self.shared.iter().filter(is_over).map(|(id, _)| *id).collect();
                again.shared.insert(*id, SharedState { sessions: 0, over, ..shared.clone() });
            }
            used.for_each(|id| again.shared.get_mut(&id).expect("it is used").sessions += 1);
            assert!(again.shared.values().all(|it| match it.sessions {
                0 => it.over.len() > 1,
                1 => !it.over.is_empty() || it.forked.is_none(),
                _ => true,
            }));
        }
    }

    /// Ends the use of a state by a fork.
    fn leave(holdings: &mut Holdings, id: u64) {
        assert_eq!(holdings.leave(Some(id), SessionId(9)), []);
    }

    fn shared(id: u64, bytes: u64) -> SharedBytes {
        SharedBytes { id, bytes, whole_bytes: 100 }
    }

    #[test]
    fn a_shared_state_counts_until_its_last_user_has_left_it() {
        let ada: Arc<str> = "ada".into();
        let mut holdings = Holdings::default();
        holdings.share(shared(1, 100), None, &ada, 3, None);
        holdings.share(shared(2, 10), Some(1), &ada, 1, None);
        holdings.share(shared(3, 10), Some(1), &ada, 1, None);
        // The same state is forked once more.
        holdings.share(shared(1, 100), None, &ada, 1, None);
        assert_eq!((holdings.shared_bytes, holdings.of("ada").bytes), (120, 120));
        assert_eq!(holdings.bytes_with_under(Some(2)), 110);
        (0..4).for_each(|_| leave(&mut holdings, 1));
        assert_eq!(holdings.shared_bytes, 120, "two forks of forks still use it");
        leave(&mut holdings, 2);
        assert_eq!(holdings.shared_bytes, 100, "the last one has all of it");
        leave(&mut holdings, 3);
        assert_eq!(holdings, Holdings::default());
    }

    #[test]
    fn a_state_is_its_sessions_own_again_once_all_forks_have_ended() {
        let (ada, parent): (Arc<str>, _) = ("ada".into(), SessionId(1));
        let mut holdings = Holdings::default();
        holdings.share(shared(1, 100), None, &ada, 2, None);
        holdings.share(shared(2, 30), Some(1), &ada, 3, Some(parent));
        leave(&mut holdings, 2);
        let own = UnsharedState { session: parent, id: 2, bytes: 30, under: Some(1) };
        assert_eq!(holdings.leave(Some(2), SessionId(9)), [own]);
        assert_eq!(holdings.shared_bytes, 100);
        // It uses the state under it itself now.
        (0..3).for_each(|_| leave(&mut holdings, 1));
        assert_eq!(holdings, Holdings::default());
    }

    #[test]
    fn a_session_that_is_forked_after_each_turn_leaves_no_chain() {
        let ada: Arc<str> = "ada".into();
        let mut holdings = Holdings::default();
        holdings.share(shared(1, 100), None, &ada, 1, None);
        for id in 2..1_000 {
            holdings.share(shared(id, 30), Some(id - 1), &ada, 1, None);
            leave(&mut holdings, id - 1);
        }
        assert_eq!((holdings.shared.len(), holdings.shared_bytes), (1, 100));
    }
}
