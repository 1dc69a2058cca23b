//! The configuration of a server.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use super::failure::HttpError;
use crate::caller::Caller;

/// How a pool is served over HTTP.
///
/// ```
/// use serve::http::HttpConfig;
///
/// let mut config = HttpConfig::default();
/// config.body_bytes = 1 << 20;
/// ```
#[derive(Clone, derive_more::Debug)]
#[non_exhaustive]
pub struct HttpConfig {
    /// The tokens that callers send. Without any, everybody who can connect is served, which is allowed
    /// on loopback addresses and in a [trusted network](Self::trusts_network). Default: none.
    pub tokens: Vec<Token>,
    /// The most bytes of one body, and of one line of a batch. Fewer refuse jobs with large files;
    /// more hold more memory. Default: 64 MiB.
    pub body_bytes: usize,
    /// The most bytes of all requests that are being received and of all answers that wait to be
    /// read. The pool's memory has so much less. A tenant may hold as much as it leaves free: one
    /// alone half. Beyond it requests are refused with 429. At most a quarter of the pool's memory
    /// applies, and at least twice `body_bytes`. Default: 512 MiB.
    pub bodies_bytes: usize,
    /// The most connections at once; each takes a file descriptor. A further one takes the place of
    /// the connection that has been idle longest, and waits if none is. Default: 1,024.
    pub connections: usize,
    /// The longest time from the start of a connection until its first request is there. Less cuts
    /// off slow networks. Default: 10 s.
    pub header_time: Duration,
    /// The longest wait of a connection for a request, for more of a body, or for the client to read.
    /// Default: 60 s.
    pub idle_time: Duration,
    /// Names by which clients may call this server beside its address and `localhost`, such as those
    /// of a proxy. Without ports. Default: none.
    pub hosts: Vec<String>,
    /// Origins of other web pages whose scripts may call this server, such as
    /// `https://grafana.example`. Default: none.
    pub origins: Vec<String>,
    /// Renders the process's metrics for `/metrics`, in Prometheus's text format. Default: none, and
    /// there is no such page.
    #[debug(skip)]
    pub metrics: Option<Metrics>,
    /// What pools on many machines are doing, for `/v1/cluster` and the page. Default: none is known.
    #[debug(skip)]
    pub cluster: Option<Cluster>,
    /// Whether the pool is ready for jobs. While it isn't, `/healthz` says `starting`. Default:
    /// `None`; it is ready.
    pub ready: Option<watch::Receiver<bool>>,
    /// Serves `/metrics`, `/v1/status`, `/v1/decisions` and `/healthz` alone, by which nothing can be
    /// run or changed. Then other machines may connect without a token, under any host name.
    /// Default: false.
    pub watching_only: bool,
    /// Serves every client that can connect, also on addresses of other networks than loopback, if
    /// there are no [`tokens`](Self::tokens). All of them are one caller: each can run jobs, and see
    /// and change the sessions and sandboxes of the others. Default: false.
    pub trusts_network: bool,
}

/// Renders metrics as text.
pub type Metrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Returns the state of pools on many machines, as in `cluster::Cluster`, with the pool's name as
/// `pool`. Or returns why that isn't known.
pub type Cluster = Arc<dyn Fn() -> ClusterState + Send + Sync>;

/// The state to come.
pub type ClusterState = Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>;

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            body_bytes: 64 << 20,
            bodies_bytes: 512 << 20,
            connections: 1024,
            header_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            hosts: Vec::new(),
            origins: Vec::new(),
            metrics: None,
            cluster: None,
            ready: None,
            watching_only: false,
            trusts_network: false,
        }
    }
}

/// Lengths of a token. Sixteen random letters and digits are 95 bits.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=512;

/// A bearer token, and the tenant that it stands for.
///
/// ```
/// use serve::http::Token;
///
/// let tokens = Token::read("# token tenant\nc2VjcmV0LW9mLWFkYQ== ada\nb3BlcmF0b3Itc2VjcmV0\n")?;
/// assert_eq!(tokens[0].tenant(), Some("ada"));
/// assert!(tokens[1].is_administrator());
/// # Ok::<(), serve::http::HttpError>(())
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Token {{ tenant: {:?}, .. }}", caller.tenant())]
pub struct Token {
    /// Has no tenant if it is an administrator.
    pub(super) caller: Caller,
}

impl Token {
    /// Creates a token that stands for a tenant, who sees own sessions and jobs alone and can only
    /// lower limits.
    ///
    /// # Errors
    /// The token isn't 16 to 512 characters of a bearer token, or the name can't be a
    /// [tenant's](Caller::of_tenant).
    pub fn of_tenant(secret: &str, tenant: &str) -> Result<Self, HttpError> {
        Ok(Self { caller: Caller::of_tenant(tenant)?.with_token(digest(secret)?) })
    }

    /// Creates a token of an administrator, who sees everything, sets tenants and limits of jobs,
    /// and drains the pool.
    ///
    /// # Errors
    /// The token doesn't have 16 to 512 characters of those that bearer tokens have.
    pub fn of_administrator(secret: &str) -> Result<Self, HttpError> {
        Ok(Self { caller: Caller::owner().with_token(digest(secret)?) })
    }

    /// Reads tokens, one in each line: the token, a blank and its tenant, or the token of an
    /// administrator alone. Empty lines and those that begin with `#` are left out.
    ///
    /// # Errors
    /// A line is invalid. The error has its number, and nothing of the token.
    pub fn read(text: &str) -> Result<Vec<Self>, HttpError> {
        let lines = text.lines().map(str::trim).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|(index, line)| {
                let mut words = line.split_whitespace();
                let token = match (words.next(), words.next(), words.next()) {
                    (Some(secret), Some(tenant), None) => Self::of_tenant(secret, tenant),
                    (Some(secret), None, _) => Self::of_administrator(secret),
                    _ => Err(HttpError::Words),
                };
                token.map_err(|cause| HttpError::Line(index + 1, Box::new(cause)))
            })
            .collect()
    }

    /// Returns the tenant; `None` for an administrator.
    pub fn tenant(&self) -> Option<&str> {
        self.caller.tenant()
    }

    /// Returns whether it is an administrator's.
    pub fn is_administrator(&self) -> bool {
        self.tenant().is_none()
    }
}

/// Returns the token that was sent. Takes the same time for every token, also for none.
pub(super) fn find<'a>(tokens: &'a [Token], sent: &[u8]) -> Option<&'a Token> {
    let sent = blake3::hash(sent);
    // Digests are compared in constant time.
    let is_sent = |token: &Token| token.caller.identity() == sent;
    tokens.iter().fold(None, |found, token| if is_sent(token) { Some(token) } else { found })
}

/// Checks that no two tokens are the same.
pub(super) fn check(tokens: &[Token]) -> Result<(), HttpError> {
    let digests: HashSet<_> = tokens.iter().map(|token| token.caller.identity()).collect();
    if digests.len() < tokens.len() { Err(HttpError::TokenTwice) } else { Ok(()) }
}

fn digest(secret: &str) -> Result<blake3::Hash, HttpError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if LENGTHS.contains(&secret.len()) && secret.bytes().all(is_part) {
        Ok(blake3::hash(secret.as_bytes()))
    } else {
        Err(HttpError::InvalidToken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: &str = "secret-of-ada-0123";

    #[test]
    fn a_token_is_found_whole_and_shown_nowhere() {
        let tokens =
            Token::read(&format!("{ADA} ada\n# none\n\nsecret-of-the-operator\n")).unwrap();
        assert_eq!(find(&tokens, ADA.as_bytes()).unwrap().tenant(), Some("ada"));
        assert!(find(&tokens, b"secret-of-the-operator").unwrap().is_administrator());
        for sent in [&b""[..], b"secret-of-ada-012", b"secret-of-ada-01234", b"SECRET-OF-ADA-0123"]
        {
            assert!(find(&tokens, sent).is_none());
        }
        assert_eq!(format!("{:?}", tokens[0]), r#"Token { tenant: Some("ada"), .. }"#);
    }

    #[test]
    fn invalid_lines_are_named_without_their_token() {
        for (text, expected) in [
            ("short ada", "a token has 16 to 512 characters"),
            ("secret-of-ada-012\"", "a token has 16 to 512 characters"),
            ("secret-of-ada-0123 a/b", "can't be a tenant's name"),
            ("secret-of-ada-0123 default", "stands for jobs without a tenant"),
            ("secret-of-ada-0123 ada weight", "a line is a token"),
        ] {
            let error = Token::read(&format!("\n{text}")).unwrap_err();
            assert_eq!(error.to_string(), "line 2 of the tokens is invalid");
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains(expected) && !cause.contains("secret-of"), "{cause}");
        }
        let twice = Token::read(&format!("{ADA} a\n{ADA} b")).unwrap();
        assert!(matches!(check(&twice), Err(HttpError::TokenTwice)));
    }
}
