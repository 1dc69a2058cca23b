//! Where a request goes: scheme, host and port, in one normal form.
//!
//! The `url` crate brings hosts into the form of browsers: names in lower case and punycode, IPv4
//! addresses in any notation as four numbers, IPv6 addresses in their shortest form.

use url::{Host, Url};

/// How a request travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{}://{}", scheme.name(), self.authority())]
pub(crate) struct Origin {
    pub(crate) scheme: Scheme,
    pub(crate) host: Host,
    pub(crate) port: u16,
}

impl Origin {
    /// Returns what is probably meant by a host and port: with TLS, except at the port of HTTP.
    pub(crate) fn likely(host: Host, port: u16) -> Self {
        let scheme = if port == Scheme::Http.port() { Scheme::Http } else { Scheme::Https };
        Self { scheme, host, port }
    }

    /// Reads a `host` or `host:port` as in a header `Host`, which has nothing else.
    pub(crate) fn parse(scheme: Scheme, authority: &str) -> Option<Self> {
        if authority.is_empty() || authority.contains(['/', '?', '#', '@', '\\', '%', ' ']) {
            return None;
        }
        let url = Url::parse(&format!("{}://{authority}/", scheme.name())).ok()?;
        let host = parse_host(url.host_str()?)?;
        Some(Self { scheme, host, port: url.port_or_known_default()? })
    }

    /// Returns `host`, or `host:port` if the port isn't the scheme's own.
    pub(crate) fn authority(&self) -> String {
        match self.port == self.scheme.port() {
            true => self.host.to_string(),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Brings a name or an address into its normal form; `None` if it is neither. IPv6 addresses need
/// no brackets. One dot at the end is taken off.
pub(crate) fn parse_host(text: &str) -> Option<Host> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let host = match text.contains(':') && !text.starts_with('[') {
        true => Host::parse(&format!("[{text}]")),
        false => Host::parse(text),
    };
    host.ok().filter(|host| match host {
        Host::Domain(name) => name.split('.').all(|label| (1..=63).contains(&label.len())),
        Host::Ipv4(_) | Host::Ipv6(_) => true,
    })
}

/// The hosts that a rule or a secret is for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    Exact(Host),
    /// The names that end with this, which begins with a dot.
    Below(String),
}

/// The servers that a rule or a secret is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OriginPattern {
    scheme: Scheme,
    host: HostPattern,
    port: u16,
}

impl OriginPattern {
    /// Reads the beginning of `https://host:port/path`, and returns its path: empty if there is
    /// none. The error says what is wrong, and what to write.
    pub(crate) fn parse(text: &str) -> Result<(Self, String), String> {
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(("https", rest)) => (Scheme::Https, rest),
            _ => return Err(format!("`{text}` isn't a URL: begin it with https:// or http://")),
        };
        let (below, rest) = match rest.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err("a name and a password aren't allowed here: use a secret".to_owned());
        }
        if authority.contains('*') {
            return Err(format!(
                "`*` in `{authority}`: it may only be the first label, as in `*.example.com`"
            ));
        }
        if path.contains(['?', '#']) {
            return Err("rules cover paths, with any query: end the URL before `?` or `#`".into());
        }
        let origin = Origin::parse(scheme, authority)
            .ok_or_else(|| format!("`{authority}` isn't a valid host, or host and port"))?;
        let host = match (below, origin.host) {
            (false, host) => HostPattern::Exact(host),
            (true, Host::Domain(name)) if name.contains('.') => {
                HostPattern::Below(format!(".{name}"))
            }
            (true, host) => {
                let text = format!("`*.{host}` is too wide: name at least two labels after `*.`");
                return Err(text);
            }
        };
        Ok((Self { scheme, host, port: origin.port }, path.to_owned()))
    }

    /// Whether this host and port are among them, with either scheme.
    pub(crate) fn reaches(&self, host: &Host, port: u16) -> bool {
        self.port == port
            && match (&self.host, host) {
                (HostPattern::Exact(own), host) => own == host,
                (HostPattern::Below(end), Host::Domain(name)) => name.ends_with(end),
                (HostPattern::Below(_), Host::Ipv4(_) | Host::Ipv6(_)) => false,
            }
    }

    pub(crate) fn matches(&self, origin: &Origin) -> bool {
        self.scheme == origin.scheme && self.reaches(&origin.host, origin.port)
    }
}
