//! Looks names up, and says which addresses are public.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;

/// The addresses of a name, or why there are none.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Looks up the addresses of names.
///
/// Every answer is checked, and the connection goes to an address of just this answer. So a name
/// whose addresses change between look-ups gains nothing.
pub trait Resolver: fmt::Debug + Send + Sync {
    /// Looks up a name in ASCII, without a trailing dot. Dropping the future gives the look-up up.
    fn resolve<'a>(&'a self, name: &'a str) -> Lookup<'a>;
}

/// Looks names up as other programs of this machine do.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Who may reach an address that isn't public.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressClass {
    /// Everyone.
    Public,
    /// Rules with the word `private`, and rules that name the address.
    Private(&'static str),
    /// Rules that name the address.
    Special(&'static str),
}

use AddressClass::{Private, Public, Special};

/// Ranges of IPv4 that aren't public; the first that fits counts.
const RANGES_V4: [(u32, u32, AddressClass); 18] = [
    (v4(0, 0, 0, 0), 8, Special("unspecified")),
    (v4(10, 0, 0, 0), 8, Private("private")),
    (v4(100, 100, 100, 200), 32, Special("metadata")),
    (v4(100, 64, 0, 0), 10, Private("shared by carriers")),
    (v4(127, 0, 0, 0), 8, Private("loopback")),
    (v4(168, 63, 129, 16), 32, Special("metadata")),
    (v4(169, 254, 169, 254), 32, Special("metadata")),
    (v4(169, 254, 0, 0), 16, Special("link-local")),
    (v4(172, 16, 0, 0), 12, Private("private")),
    (v4(192, 0, 0, 0), 24, Special("reserved")),
    (v4(192, 0, 2, 0), 24, Special("for documentation")),
    (v4(192, 88, 99, 0), 24, Special("6to4")),
    (v4(192, 168, 0, 0), 16, Private("private")),
    (v4(198, 18, 0, 0), 15, Special("for benchmarks")),
    (v4(198, 51, 100, 0), 24, Special("for documentation")),
    (v4(203, 0, 113, 0), 24, Special("for documentation")),
    (v4(224, 0, 0, 0), 4, Special("multicast")),
    (v4(240, 0, 0, 0), 4, Special("reserved")),
];

/// Ranges of IPv6 that aren't public; the first that fits counts. Only 2000::/3 has public ones.
const RANGES_V6: [(Ipv6Addr, u32, AddressClass); 17] = [
    (Ipv6Addr::UNSPECIFIED, 128, Special("unspecified")),
    (Ipv6Addr::LOCALHOST, 128, Private("loopback")),
    (Ipv6Addr::UNSPECIFIED, 96, Special("compatible with IPv4")),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, Special("mapped IPv4")),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, Special("NAT64")),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, Special("NAT64")),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, Special("Teredo")),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, Special("reserved")),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Special("for documentation")),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, Special("6to4")),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Special("for documentation")),
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32, Special("metadata")),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Private("private")),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, Special("link-local")),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Special("multicast")),
    (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, Public),
    (Ipv6Addr::UNSPECIFIED, 0, Special("reserved")),
];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> u32 {
    u32::from_be_bytes([a, b, c, d])
}

impl AddressClass {
    /// Returns the class of an address. A mapped IPv4 address is special whatever it maps to.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => {
                let bits = address.to_bits();
                let fits =
                    |(range, length, _): &&(u32, u32, _)| (bits ^ range).leading_zeros() >= *length;
                RANGES_V4.iter().find(fits).map_or(Public, |(.., class)| *class)
            }
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                let fits = |(range, length, _): &&(Ipv6Addr, u32, _)| {
                    (bits ^ range.to_bits()).leading_zeros() >= *length
                };
                RANGES_V6.iter().find(fits).map_or(Public, |(.., class)| *class)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_their_classes() {
        let public = ["1.1.1.1", "100.128.0.1", "172.32.0.1", "192.167.0.1", "198.20.0.1"];
        let public = public.into_iter().chain(["2606:4700::1111", "2a00::1", "2001:4860::8888"]);
        public.for_each(|address| assert_eq!(AddressClass::of(address.parse().unwrap()), Public));
        let private = [
            "127.0.0.1",
            "127.255.255.254",
            "10.0.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "::1",
            "fc00::1",
        ];
        let is_private =
            |address: &str| matches!(AddressClass::of(address.parse().unwrap()), Private(_));
        assert!(private.into_iter().all(is_private));
    }
}
