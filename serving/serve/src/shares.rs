//! Shares of what all callers have together: room for bytes, for checkpoints, for connections.
//!
//! A tenant may hold as much as it leaves free. So one alone gets half, and there is always room for
//! others.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::caller::Caller;

/// What all callers have together. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Shares {
    most: usize,
    held: Arc<Mutex<Amounts>>,
}

#[derive(Debug, Default)]
struct Amounts {
    all: usize,
    by_tenant: HashMap<Option<String>, usize>,
}

/// What one tenant holds, until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Shares,
    tenant: Option<String>,
    amount: usize,
}

/// Why a tenant can't hold more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full {
    /// What the tenant holds.
    pub(crate) own: usize,
    /// What all can hold together.
    pub(crate) most: usize,
}

impl Shares {
    /// Lets all hold this much together.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, held: Arc::default() }
    }

    /// Returns the most that one tenant can hold.
    pub(crate) fn largest(&self) -> usize {
        self.most / 2
    }

    /// Holds an amount for the caller.
    pub(crate) fn hold(&self, caller: &Caller, amount: usize) -> Result<Share, Full> {
        let tenant = caller.tenant().map(str::to_owned);
        let mut share = Share { shares: self.clone(), tenant, amount: 0 };
        share.grow(amount)?;
        Ok(share)
    }

    /// Changes what a tenant holds.
    fn change(&self, tenant: &Option<String>, from: usize, to: usize) -> Result<(), Full> {
        let mut held = self.held.lock();
        let own = held.by_tenant.get(tenant).copied().unwrap_or_default();
        let (own_then, all_then) = (own - from + to, held.all - from + to);
        if to > from && own_then > self.most.saturating_sub(all_then) {
            return Err(Full { own, most: self.most });
        }
        held.all = all_then;
        match own_then {
            0 => held.by_tenant.remove(tenant),
            own => held.by_tenant.insert(tenant.clone(), own),
        };
        Ok(())
    }
}

impl Share {
    /// Holds more.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), Full> {
        let amount = self.amount.saturating_add(more);
        self.shares.change(&self.tenant, self.amount, amount)?;
        self.amount = amount;
        Ok(())
    }

    /// Holds at least this much.
    pub(crate) fn reach(&mut self, amount: usize) -> Result<(), Full> {
        self.grow(amount.saturating_sub(self.amount))
    }

    /// Takes a part off, at most all.
    pub(crate) fn split(&mut self, amount: usize) -> Self {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        Self { shares: self.shares.clone(), tenant: self.tenant.clone(), amount }
    }

    /// Returns bytes with which this is dropped.
    pub(crate) fn until_sent(self, bytes: Bytes) -> Bytes {
        struct Sent {
            bytes: Bytes,
            _share: Share,
        }
        impl AsRef<[u8]> for Sent {
            fn as_ref(&self) -> &[u8] {
                &self.bytes
            }
        }
        Bytes::from_owner(Sent { bytes, _share: self })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // Less always has room.
        let _ = self.shares.change(&self.tenant, self.amount, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_holds_no_more_than_it_leaves_free() {
        let shares = Shares::new(100);
        let [ada, bob] = ["ada", "bob"].map(|name| Caller::of_tenant(name).unwrap());
        let mut of_ada = shares.hold(&ada, 40).unwrap();
        assert_eq!(of_ada.grow(11), Err(Full { own: 40, most: 100 }));
        assert!(shares.hold(&ada, 11).is_err());
        of_ada.grow(10).unwrap();
        // Half of what others leave.
        assert!(shares.hold(&bob, 26).is_err());
        let of_bob = shares.hold(&bob, 25).unwrap();
        assert!(shares.hold(&Caller::owner(), 13).is_err());
        assert!(shares.hold(&Caller::owner(), 12).is_ok());
        drop((of_ada, of_bob));
        assert!(shares.held.lock().by_tenant.is_empty() && shares.held.lock().all == 0);
    }

    #[test]
    fn bytes_count_until_they_are_sent() {
        let shares = Shares::new(100);
        let mut share = shares.hold(&Caller::owner(), 50).unwrap();
        let first = share.split(20).until_sent(Bytes::from_static(b"first"));
        drop(share);
        let second = first.clone();
        drop(first);
        assert_eq!((shares.held.lock().all, &second[..]), (20, &b"first"[..]));
        drop(second);
        assert_eq!(shares.held.lock().all, 0);
    }
}
