//! Checks what holds after every decision. The ids are those of `docs/invariants.md`.

use super::*;

impl Residency {
    /// Returns the first broken invariant as an error.
    pub(crate) fn check(&self) -> Result<(), String> {
        let ensure = |holds: bool, text: &str| if holds { Ok(()) } else { Err(text.to_owned()) };
        let mut again = Self { offloading: self.offloading.clone(), ..Self::default() };
        for (id, session) in &self.sessions {
            again.count(*id, session.index_entry(), &session.tenant);
        }
        self.holdings.count_shared_again(
            &mut again.holdings,
            self.sessions.values().filter_map(|session| session.shared),
        );
        ensure(
            again.holdings == self.holdings,
            "S-13: what tenants hold and forks share isn't counted once",
        )?;
        let sums = |of: &Self| (of.in_memory, of.memory_bytes, of.disk_bytes, of.movable_bytes);
        ensure(
            again.lists == self.lists,
            "S-12: idle sessions aren't sorted by how long they have been idle",
        )?;
        ensure(sums(&again) == sums(self), "S-13: the ledger's sessions aren't their sum")?;
        let asked = self.offloading.as_ref().map(|asked| asked.session);
        ensure(
            self.sessions.iter().all(|(id, one)| !one.is_moving() || asked == Some(*id)),
            "S-14: a session is being offloaded that wasn't asked for",
        )
    }
}
