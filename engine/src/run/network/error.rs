//! What is wrong with a destination.

/// A text names no destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{destination}` is no destination")]
#[non_exhaustive]
pub struct InvalidDestination {
    /// The text.
    pub destination: String,
    #[source]
    why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Why {
    #[error("write a host and a port, as in `api.example.com:443` or `[2001:db8::7]:443`")]
    NoPort,
    #[error("a port is one number from 1 to 65535")]
    Port,
    #[error(
        "the host must be a name in ASCII or an IP address, without a scheme, a path or a `*`; IPv6 \
         needs brackets"
    )]
    Name,
    #[error("a name never leads to this machine: list the address, as in `127.0.0.1:8080`")]
    Localhost,
    #[error("its address isn't that of one host")]
    ManyHosts,
}

impl InvalidDestination {
    pub(super) fn new(destination: String, why: Why) -> Self {
        Self { destination, why }
    }

    /// Returns the same about the text as it was given.
    pub(super) fn said_of(self, destination: &str) -> Self {
        Self { destination: destination.to_owned(), ..self }
    }
}
