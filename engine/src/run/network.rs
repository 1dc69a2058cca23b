//! What a program may reach of a network: a list of destinations, and which addresses each covers.
//!
//! Only the list counts. A listed address covers itself. A listed name covers the public addresses
//! that the host finds for it. So the name's owner can't point it at loopback or private networks.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

pub(crate) mod public;

/// The longest name of a host, in bytes, as in DNS.
pub(crate) const MOST_NAME_BYTES: usize = 253;
/// The longest part of a name, in bytes, as in DNS.
const MOST_LABEL_BYTES: usize = 63;

/// A host and a port that a program may connect to over TCP: `api.example.com:443`,
/// `192.0.2.7:5432` or `[2001:db8::7]:80`.
///
/// Loopback and private addresses are reached only if they are listed as addresses: a name never
/// leads there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    host: Host,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Host {
    /// In small letters, without a dot at the end.
    Name(String),
    Address(IpAddr),
}

impl Destination {
    /// Returns the destination with this address and port.
    ///
    /// # Errors
    /// The address is one of many hosts or of none, or the port is 0.
    pub fn address(address: SocketAddr) -> Result<Self, InvalidDestination> {
        let ip = address.ip().to_canonical();
        let why = match ip {
            _ if address.port() == 0 => Some(Why::Port),
            _ if ip.is_unspecified() || ip.is_multicast() => Some(Why::ManyHosts),
            IpAddr::V4(ip) if ip.is_broadcast() => Some(Why::ManyHosts),
            _ => None,
        };
        match why {
            Some(why) => Err(InvalidDestination::new(address.to_string(), why)),
            None => Ok(Self { host: Host::Address(ip), port: address.port() }),
        }
    }
}

impl FromStr for Destination {
    type Err = InvalidDestination;

    /// Reads `NAME:PORT`, `ADDRESS:PORT` or `[ADDRESS]:PORT`, the last for IPv6.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Self::address(address).map_err(|error| error.said_of(text));
        }
        let invalid = |why| InvalidDestination::new(text.to_owned(), why);
        let (name, port) = text.rsplit_once(':').ok_or_else(|| invalid(Why::NoPort))?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(|| invalid(Why::Port))?;
        let name = canonical(name).ok_or_else(|| invalid(Why::Name))?;
        if name == "localhost" || name.ends_with(".localhost") {
            return Err(invalid(Why::Localhost));
        }
        Ok(Self { host: Host::Name(name), port })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(formatter, "{name}:{}", self.port),
            Host::Address(address) => SocketAddr::new(*address, self.port).fmt(formatter),
        }
    }
}

/// Returns a name of a host in small letters, without a dot at the end. Returns `None` if it is
/// none, or if a resolver could take it for an address, as `127.1` and `0x7f000001`.
pub(crate) fn canonical(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.len() > MOST_NAME_BYTES {
        return None;
    }
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label = |label: &str| {
        (1..=MOST_LABEL_BYTES).contains(&label.len())
            && label.bytes().all(is_part)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = name.rsplit('.').next()?;
    let is_number = last.starts_with(|first: char| first.is_ascii_digit());
    (name.split('.').all(is_label) && !is_number).then(|| name.to_ascii_lowercase())
}

/// Everything that a program may reach: exactly these destinations. By default nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// `None` if there are none, which takes no memory: most programs reach nothing.
    destinations: Option<Arc<BTreeSet<Destination>>>,
}

impl Network {
    /// Returns whether nothing can be reached.
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Returns the destinations, in order.
    pub fn destinations(&self) -> impl Iterator<Item = &Destination> {
        self.all().iter()
    }

    fn all(&self) -> &BTreeSet<Destination> {
        static NONE: BTreeSet<Destination> = BTreeSet::new();
        self.destinations.as_deref().unwrap_or(&NONE)
    }

    /// Returns the first destination here that `other` doesn't have.
    pub fn beyond<'a>(&'a self, other: &'a Self) -> Option<&'a Destination> {
        self.all().difference(other.all()).next()
    }

    pub(crate) fn lists(&self, address: SocketAddr) -> bool {
        let host = Host::Address(address.ip().to_canonical());
        self.all().contains(&Destination { host, port: address.port() })
    }

    /// Returns the ports that are listed with this name, which is [`canonical`].
    pub(crate) fn ports_of(&self, name: &str) -> Vec<u16> {
        let is_its = |one: &&Destination| matches!(&one.host, Host::Name(other) if other == name);
        self.all().iter().filter(is_its).map(|one| one.port).collect()
    }
}

impl FromIterator<Destination> for Network {
    fn from_iter<T: IntoIterator<Item = Destination>>(destinations: T) -> Self {
        let all: BTreeSet<_> = destinations.into_iter().collect();
        Self { destinations: (!all.is_empty()).then(|| Arc::new(all)) }
    }
}

/// A text names no destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{destination}` isn't a destination")]
#[non_exhaustive]
pub struct InvalidDestination {
    /// The text.
    pub destination: String,
    #[source]
    why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Why {
    #[error("write a host and a port, as in `api.example.com:443` or `[2001:db8::7]:443`")]
    NoPort,
    #[error("a port is one number from 1 to 65535")]
    Port,
    #[error(
        "the host must be a name in ASCII or an IP address, without a scheme, a path or a `*`; IPv6 \
         needs brackets"
    )]
    Name,
    #[error("a name never resolves to this machine: list the address, as in `127.0.0.1:8080`")]
    Localhost,
    #[error("its address isn't that of one host")]
    ManyHosts,
}

impl InvalidDestination {
    fn new(destination: String, why: Why) -> Self {
        Self { destination, why }
    }

    /// Returns the same about the text as it was given.
    fn said_of(self, destination: &str) -> Self {
        Self { destination: destination.to_owned(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(list: &[&str]) -> Network {
        list.iter().map(|text| text.parse::<Destination>().unwrap()).collect()
    }

    #[test]
    fn destinations_are_read_and_printed() {
        for (text, printed) in [
            ("api.example.com:443", "api.example.com:443"),
            ("API.Example.COM.:443", "api.example.com:443"),
            ("db_1:5432", "db_1:5432"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]:80", "[::1]:80"),
            ("[::ffff:10.0.0.1]:80", "10.0.0.1:80"),
        ] {
            assert_eq!(text.parse::<Destination>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn patterns_ranges_and_disguised_addresses_are_no_destinations() {
        for text in [
            "",
            ":80",
            "example.com",
            "example.com:",
            "example.com:0",
            "example.com:80-90",
            "example.com:65536",
            "*.example.com:80",
            "*:80",
            "exa mple.com:80",
            "a..b:80",
            "-a.com:80",
            "https://example.com:443",
            "user@example.com:80",
            "127.1:80",
            "2130706433:80",
            "0x7f000001:80",
            "1.2.3.0x4:80",
            "::1:80",
            "10.0.0.0/8:80",
            "0.0.0.0:80",
            "[::]:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "127.0.0.1:0",
            "localhost:80",
            "app.localhost:80",
        ] {
            assert!(text.parse::<Destination>().is_err(), "{text:?}");
        }
        assert!(format!("{}.com:80", "a".repeat(64)).parse::<Destination>().is_err());
        assert!(format!("{}com:80", "a.".repeat(126)).parse::<Destination>().is_err());
    }

    #[test]
    fn a_listed_address_covers_itself_alone() {
        let network = network(&["127.0.0.1:80", "[2001:db8::7]:443", "example.com:80"]);
        let lists = |text: &str| network.lists(text.parse().unwrap());
        assert!(lists("127.0.0.1:80") && lists("[::ffff:127.0.0.1]:80"));
        assert!(lists("[2001:db8::7]:443"));
        assert!(!lists("127.0.0.1:81") && !lists("127.0.0.2:80") && !lists("[::1]:80"));
        assert!(!lists("93.184.216.34:80"));
    }

    #[test]
    fn a_name_is_listed_with_its_ports() {
        let network = network(&["example.com:443", "EXAMPLE.com:80", "other.com:22"]);
        assert_eq!(network.ports_of("example.com"), [80, 443]);
        assert!(network.ports_of("www.example.com").is_empty());
        assert!(network.ports_of("com").is_empty());
    }

    #[test]
    fn a_part_of_a_network_is_told_from_more_than_it() {
        let whole = network(&["example.com:443", "127.0.0.1:80"]);
        let more = network(&["example.com:443", "example.com:80"]);
        assert_eq!(network(&["127.0.0.1:80"]).beyond(&whole), None);
        assert_eq!(Network::default().beyond(&whole), None);
        assert_eq!(more.beyond(&whole).unwrap().to_string(), "example.com:80");
    }
}
