//! Checks what holds after every decision. The ids are those of `docs/invariants.md`.

use super::*;

impl Workers {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (WorkerId, &Worker)> {
        self.workers.iter().map(|(id, worker)| (*id, worker))
    }

    /// Returns the first broken invariant as an error.
    pub(crate) fn check(&self) -> Result<(), String> {
        let ensure = |holds: bool, text: &str| if holds { Ok(()) } else { Err(text.to_owned()) };
        let mut vacant = BTreeMap::<_, BTreeSet<_>>::new();
        let mut holding = BTreeSet::new();
        for (id, worker) in self.iter().filter(|(_, worker)| worker.activity == Activity::Idle) {
            let list = match worker.resident {
                None => vacant.entry(worker.build).or_default(),
                Some(_) => &mut holding,
            };
            list.insert((worker.used_at, id));
        }
        ensure(
            vacant == self.vacant && holding == self.holding,
            "S-11: idle workers aren't sorted by their build, by their last use and by whether they \
             hold a session",
        )?;
        let bytes: u64 = self.workers.values().map(|worker| worker.slot_bytes).sum();
        let kept: u64 = self.workers.values().map(|worker| worker.kept_bytes).sum();
        let sums = (bytes, kept) == (self.slot_bytes, self.kept_bytes);
        ensure(sums, "S-13: the ledger's slots aren't the sum over the workers")
    }
}
