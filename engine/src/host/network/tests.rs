//! What a run may reach by name and by address.

impl RunNetwork {
    pub(crate) fn with_resolver(self, resolver: Resolver) -> Self {
        Self { resolver, ..self }
    }
}

use std::io;

use super::*;
use crate::run::network::Destination;

fn resolver(name: &str) -> io::Result<Vec<IpAddr>> {
    let found: &[&str] = match name {
        "public.test" => &["93.184.216.34", "2606:4700::1111"],
        "mixed.test" => &["127.0.0.1", "10.0.0.5", "1.1.1.1", "::ffff:169.254.169.254"],
        "rebound.test" => &["127.0.0.1", "::1", "192.168.0.1", "fd00::1", "169.254.169.254"],
        _ => return Err(io::ErrorKind::NotFound.into()),
    };
    Ok(found.iter().map(|text| text.parse().unwrap()).collect())
}

fn network(list: &[&str]) -> RunNetwork {
    let allowed = list.iter().map(|text| text.parse::<Destination>().unwrap()).collect();
    RunNetwork::new(allowed, 100).with_resolver(resolver)
}

/// Looks a name up to the end.
fn resolve(network: &mut RunNetwork, name: &str) -> Result<Vec<String>, Errno> {
    loop {
        match network.resolve(name)? {
            Named::Addresses(found) => return Ok(found.iter().map(IpAddr::to_string).collect()),
            Named::Pending(lookup) => {
                let (done, is_done) = std::sync::mpsc::channel();
                lookup.begin(move || done.send(()).unwrap()).unwrap();
                is_done.recv().unwrap();
            }
        }
    }
}

fn may_reach(network: &RunNetwork, address: &str) -> bool {
    network.may_reach(address.parse().unwrap())
}

#[test]
fn without_a_grant_nothing_is_reached_and_no_name_is_looked_up() {
    let mut network = RunNetwork::default();
    assert!(!network.is_open());
    assert!(!may_reach(&network, "127.0.0.1:80"));
    assert_eq!(resolve(&mut network, "public.test"), Err(Errno::Access));
    assert_eq!(resolve(&mut network, "127.0.0.1"), Err(Errno::Access));
}

#[test]
fn only_listed_names_are_looked_up() {
    let mut network = network(&["public.test:443", "absent.test:80"]);
    for name in ["rebound.test", "www.public.test", "test", "public.test.evil.test"] {
        assert_eq!(resolve(&mut network, name), Err(Errno::Access), "{name}");
    }
    for name in ["", "a b", "127.1", "absent.test"] {
        assert_eq!(resolve(&mut network, name), Err(Errno::NoEntry), "{name}");
    }
}

#[test]
fn a_names_addresses_are_reached_at_its_ports_once_it_was_looked_up() {
    let mut network = network(&["public.test:443", "public.test:80", "mixed.test:22"]);
    assert!(!may_reach(&network, "93.184.216.34:443"));
    let found = resolve(&mut network, "Public.Test.").unwrap();
    assert_eq!(found, ["93.184.216.34", "2606:4700::1111"]);
    for address in ["93.184.216.34:443", "93.184.216.34:80", "[2606:4700::1111]:80"] {
        assert!(may_reach(&network, address), "{address}");
    }
    assert!(may_reach(&network, "[::ffff:93.184.216.34]:80"));
    for address in ["93.184.216.34:22", "93.184.216.35:80", "1.1.1.1:22", "1.1.1.1:443"] {
        assert!(!may_reach(&network, address), "{address}");
    }
}

#[test]
fn a_name_never_leads_to_the_host_or_the_networks_around_it() {
    let mut network = network(&["mixed.test:80", "rebound.test:80", "192.168.0.1:80"]);
    assert_eq!(resolve(&mut network, "mixed.test").unwrap(), ["1.1.1.1"]);
    assert_eq!(resolve(&mut network, "rebound.test"), Err(Errno::Access));
    for address in ["127.0.0.1:80", "10.0.0.5:80", "[::1]:80", "169.254.169.254:80"] {
        assert!(!may_reach(&network, address), "{address}");
    }
    // Listed as an address.
    assert!(may_reach(&network, "192.168.0.1:80"));
}

#[test]
fn bytes_are_counted_up_to_the_limit() {
    let mut network = network(&["127.0.0.1:80"]);
    assert_eq!(network.room(70), Ok(100));
    network.count(70);
    assert_eq!((network.room(70), network.refusal()), (Ok(30), None));
    network.count(30);
    assert_eq!(network.room(5), Err(Errno::NoBuffers));
    let hit = network.refusal().unwrap();
    assert_eq!((hit.limit, hit.allowed, hit.used), (LimitKind::NetworkBytes, 100, 105));
    assert_eq!(network.used_bytes(), 100);
}
