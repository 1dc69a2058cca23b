//! States that the notebooks of one command share: a cell that several begin with runs once, and the
//! others wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use super::key::Key;
use super::state::State;

/// The most states in memory. Above it, the oldest go, and their cells run again where needed.
const MOST_STATES: usize = 64;

/// The states, and who needs them.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// How many notebooks haven't passed this key yet.
    wanted: HashMap<Key, usize>,
    slots: HashMap<Key, Slot>,
    /// Counts states, to know their age.
    clock: u64,
}

#[derive(Debug)]
enum Slot {
    /// A notebook runs the cell. The channel closes when it has ended.
    Running(watch::Receiver<()>),
    Ready {
        state: Arc<State>,
        age: u64,
    },
}

/// What a notebook does next.
#[derive(Debug)]
pub(crate) enum Next<'a> {
    /// It takes over this state, so many cells further.
    Take { steps: usize, state: Arc<State> },
    /// It waits until this channel closes, and asks again.
    Wait(watch::Receiver<()>),
    /// It runs its next cell, and others wait for that if there is a claim.
    Run(Option<Claim<'a>>),
}

/// The right to run a cell for others, who stop waiting when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    shared: &'a Shared,
    key: Key,
    /// Closes the channel of those who wait.
    _waiting: watch::Sender<()>,
}

impl Shared {
    /// Announces a notebook with these keys.
    pub(crate) fn expect(&self, keys: &[Key]) {
        let mut table = self.table();
        for key in keys {
            *table.wanted.entry(*key).or_default() += 1;
        }
    }

    /// Says what to do for the next of these keys.
    pub(crate) fn next(&self, keys: &[Key]) -> Next<'_> {
        let Some(key) = keys.first() else { return Next::Run(None) };
        let mut table = self.table();
        for (place, key) in keys.iter().enumerate().rev() {
            if let Some(Slot::Ready { state, .. }) = table.slots.get(key) {
                return Next::Take { steps: place + 1, state: Arc::clone(state) };
            }
        }
        if let Some(Slot::Running(waiting)) = table.slots.get(key) {
            return Next::Wait(waiting.clone());
        }
        if table.wanted.get(key).is_none_or(|count| *count < 2) {
            return Next::Run(None);
        }
        let (sender, receiver) = watch::channel(());
        table.slots.insert(*key, Slot::Running(receiver));
        Next::Run(Some(Claim { shared: self, key: *key, _waiting: sender }))
    }

    /// Notes that a notebook needs these states no longer.
    pub(crate) fn passed(&self, keys: &[Key]) {
        let mut table = self.table();
        for key in keys {
            let left = table.wanted.get_mut(key).map(|count| {
                *count = count.saturating_sub(1);
                *count
            });
            if left == Some(0) {
                table.wanted.remove(key);
                if matches!(table.slots.get(key), Some(Slot::Ready { .. })) {
                    table.slots.remove(key);
                }
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().expect("no holder panics")
    }
}

impl Claim<'_> {
    /// Hands the state to those who wait, once the notebook that ran the cell has passed it. `before` is the key of the state before the cell: whoever
    /// needs that one needs this one too, unless more notebooks need it.
    pub(crate) fn fulfil(self, state: State, before: Option<Key>) {
        let mut table = self.shared.table();
        table.clock += 1;
        let age = table.clock;
        table.slots.insert(self.key, Slot::Ready { state: Arc::new(state), age });
        let wanted = |key: &Key| table.wanted.get(key).copied().unwrap_or_default();
        if wanted(&self.key) == 0 {
            table.slots.remove(&self.key);
            return;
        }
        if let Some(before) = before
            && wanted(&before) == wanted(&self.key)
        {
            table.slots.remove(&before);
        }
        let ready = |(key, slot): (&Key, &Slot)| match slot {
            Slot::Ready { age, .. } => Some((*age, *key)),
            Slot::Running(_) => None,
        };
        let ready: Vec<(u64, Key)> = table.slots.iter().filter_map(ready).collect();
        if ready.len() > MOST_STATES
            && let Some((_, oldest)) = ready.iter().min_by_key(|(age, _)| *age)
        {
            table.slots.remove(oldest);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        if matches!(table.slots.get(&self.key), Some(Slot::Running(_))) {
            table.slots.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &str) -> Vec<Key> {
        (1..=names.len()).map(|length| Key::named(&names[..length])).collect()
    }

    #[test]
    fn a_cell_of_one_notebook_is_nobody_elses() {
        let shared = Shared::default();
        shared.expect(&keys("ab"));
        assert!(matches!(shared.next(&keys("ab")), Next::Run(None)));
        assert!(matches!(shared.next(&[]), Next::Run(None)));
    }

    #[tokio::test]
    async fn others_wait_until_the_claim_ends_and_one_of_them_claims_again() {
        let shared = Shared::default();
        for names in ["ab", "ac", "ad"] {
            shared.expect(&keys(names));
        }
        let Next::Run(Some(claim)) = shared.next(&keys("ab")) else { panic!("no claim") };
        let Next::Wait(mut waiting) = shared.next(&keys("ac")) else { panic!("doesn't wait") };
        assert!(matches!(shared.next(&keys("ad")), Next::Wait(_)));
        // The cell failed.
        drop(claim);
        assert!(waiting.changed().await.is_err());
        let Next::Run(Some(again)) = shared.next(&keys("ac")) else { panic!("no claim") };
        drop(again);
        // Those that ran the cell themselves no longer need its state.
        for names in ["ab", "ac"] {
            shared.passed(&keys(names));
        }
        assert!(matches!(shared.next(&keys("ad")), Next::Run(None)));
        assert_eq!(shared.table().wanted.len(), 2);
    }
}
