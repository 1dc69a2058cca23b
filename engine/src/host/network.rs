//! The network of one run: its allowed destinations, the addresses of allowed names, and how much
//! it has used.
//!
//! Without a grant nothing here ever touches the machine. With one, programs open TCP connections
//! to what is listed and nothing else: no datagrams, and nothing that listens. Sockets never block.
//! A guest that waits for one waits at its gate, and `watch.rs` wakes it.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::errno::{Errno, Result};
use crate::limits::{LimitHit, LimitKind};
use crate::run::network::{Network, canonical, public};
use lookup::{Lookup, Resolver};

pub(crate) mod lookup;
pub(crate) mod socket;
pub(crate) mod watch;

/// The most sockets of a network that a guest has at once.
pub(crate) const MOST_SOCKETS: usize = 64;

/// What one run may reach, and has used.
#[derive(Debug)]
pub(crate) struct RunNetwork {
    allowed: Network,
    resolver: Resolver,
    /// The lookups of this run, by name: at most as many as there are names in the list.
    lookups: HashMap<String, Arc<Lookup>>,
    /// Public addresses of listed names, with the ports that are listed for the name.
    pins: HashSet<SocketAddr>,
    most_bytes: u64,
    used_bytes: u64,
    /// The most that was asked for and refused.
    wanted_bytes: Option<u64>,
}

pub(crate) enum Named {
    Addresses(Vec<IpAddr>),
    /// The host has yet to find out.
    Pending(Arc<Lookup>),
}

impl Default for RunNetwork {
    fn default() -> Self {
        Self::new(Network::default(), 0)
    }
}

impl RunNetwork {
    pub(crate) fn new(allowed: Network, most_bytes: u64) -> Self {
        Self {
            allowed,
            resolver: lookup::of_system,
            lookups: HashMap::new(),
            pins: HashSet::new(),
            most_bytes,
            used_bytes: 0,
            wanted_bytes: None,
        }
    }

    /// Whether anything can be reached.
    pub(crate) fn is_open(&self) -> bool {
        !self.allowed.is_empty()
    }

    /// Whether the run may connect to this address: it is listed, or the host found it for a listed
    /// name.
    pub(crate) fn may_reach(&self, address: SocketAddr) -> bool {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        self.allowed.lists(address) || self.pins.contains(&address)
    }

    /// Returns what a name means. The host looks up listed names only, each once in a run, and
    /// keeps only public addresses.
    pub(crate) fn resolve(&mut self, name: &str) -> Result<Named> {
        if !self.is_open() {
            return Err(Errno::Access);
        }
        if let Ok(address) = name.parse() {
            return Ok(Named::Addresses(vec![address]));
        }
        let name = canonical(name).ok_or(Errno::NoEntry)?;
        let ports = self.allowed.ports_of(&name);
        if ports.is_empty() {
            return Err(Errno::Access);
        }
        let lookup = match self.lookups.get(&name) {
            Some(lookup) => lookup,
            None => {
                let lookup = Arc::new(Lookup::new(name.clone(), self.resolver));
                self.lookups.entry(name).or_insert(lookup)
            }
        };
        let Some(found) = lookup.found() else { return Ok(Named::Pending(Arc::clone(lookup))) };
        let mut addresses = found.ok_or(Errno::NoEntry)?;
        addresses.retain(|address| public::is_public(*address));
        if addresses.is_empty() {
            return Err(Errno::Access);
        }
        for address in &addresses {
            let address = address.to_canonical();
            self.pins.extend(ports.iter().map(|port| SocketAddr::new(address, *port)));
        }
        Ok(Named::Addresses(addresses))
    }

    /// Returns how many bytes the run may still send and receive, or notes that it wanted more.
    pub(crate) fn room(&mut self, wanted: u64) -> Result<usize> {
        let room = self.most_bytes.saturating_sub(self.used_bytes);
        if room > 0 {
            return Ok(usize::try_from(room).unwrap_or(usize::MAX));
        }
        let wanted = self.used_bytes.saturating_add(wanted);
        self.wanted_bytes = self.wanted_bytes.max(Some(wanted));
        Err(Errno::NoBuffers)
    }

    pub(crate) fn count(&mut self, bytes: usize) {
        self.used_bytes = self.used_bytes.saturating_add(bytes as u64);
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(crate) fn refusal(&self) -> Option<LimitHit> {
        let (limit, allowed) = (LimitKind::NetworkBytes, self.most_bytes);
        self.wanted_bytes.map(|used| LimitHit::new(limit, allowed, used))
    }
}

#[cfg(test)]
mod tests;
