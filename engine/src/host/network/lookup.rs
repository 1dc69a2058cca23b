//! Looks up names with the system's resolver, on a separate thread: the resolver blocks and can't
//! be interrupted.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::errno::{Errno, Result};

/// The most lookups of a process at once. One whose guest was stopped goes on until the system's
/// resolver gives up, so programs could pile them up.
const MOST_LOOKUPS: usize = 16;
/// The most addresses that are taken of a name.
const MOST_ADDRESSES: usize = 32;
const STACK_BYTES: usize = 256 << 10;

static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// Finds the addresses of a name.
pub(crate) type Resolver = fn(&str) -> io::Result<Vec<IpAddr>>;

pub(crate) fn of_system(name: &str) -> io::Result<Vec<IpAddr>> {
    let found = (name, 0_u16).to_socket_addrs()?;
    Ok(found.map(|address| address.ip()).collect())
}

#[derive(Debug)]
pub(crate) struct Lookup {
    name: String,
    resolver: Resolver,
    is_begun: AtomicBool,
    /// The addresses, unless nothing was found.
    found: OnceLock<Option<Vec<IpAddr>>>,
}

impl Lookup {
    pub(crate) fn new(name: String, resolver: Resolver) -> Self {
        Self { name, resolver, is_begun: AtomicBool::new(false), found: OnceLock::new() }
    }

    /// Returns what was found; `None` as long as the lookup goes on.
    pub(crate) fn found(&self) -> Option<Option<Vec<IpAddr>>> {
        self.found.get().cloned()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.found.get().is_some()
    }

    /// Begins the lookup, if nobody has, and calls `wake` when it is done.
    pub(crate) fn begin(self: &Arc<Self>, wake: impl FnOnce() + Send + 'static) -> Result {
        if self.is_begun.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let refused = || {
            self.is_begun.store(false, Ordering::Relaxed);
            Errno::Again
        };
        let permit = Permit::take().ok_or_else(refused)?;
        let lookup = Arc::clone(self);
        let spawned = thread::Builder::new()
            .name("hatchery-lookup".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let _permit = permit;
                let found = (lookup.resolver)(&lookup.name);
                let found =
                    found.map(|found| Vec::from_iter(found.into_iter().take(MOST_ADDRESSES)));
                if let Err(error) = &found {
                    tracing::debug!(name = lookup.name, %error, "a name of a program wasn't found");
                }
                lookup.found.get_or_init(|| found.ok());
                wake();
            });
        spawned.map(drop).map_err(|error| {
            tracing::warn!(%error, "the system refused a thread for a lookup");
            refused()
        })
    }
}

/// The right to one lookup, given back when it is dropped.
struct Permit;

impl Permit {
    fn take() -> Option<Self> {
        let more = |count: usize| (count < MOST_LOOKUPS).then_some(count + 1);
        LOOKUPS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        LOOKUPS.fetch_sub(1, Ordering::Relaxed);
    }
}
