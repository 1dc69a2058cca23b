//! Why a server can't start.

use std::net::SocketAddr;

use crate::caller::InvalidTenant;

/// Why a pool can't be served over HTTP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// Other machines could reach the address, and callers need no token.
    #[error(
        "other machines may reach `{address}`, so callers need tokens there: give `--token-file`, \
         or serve on 127.0.0.1"
    )]
    NoTokens {
        /// The address.
        address: SocketAddr,
    },
    /// The listener has no address.
    #[error("the listener has no address")]
    Listener(#[source] std::io::Error),
    /// The token is too short, too long or has other characters.
    #[error("a token has 16 to 512 characters, all of them letters, digits or one of -._~+/=")]
    InvalidToken,
    /// A token can't stand for this tenant.
    #[error(transparent)]
    InvalidTenant(#[from] InvalidTenant),
    /// Two tokens are the same.
    #[error("two tokens are the same")]
    TokenTwice,
    /// A line of a token file is invalid.
    #[error("line {line} of the tokens is invalid")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong.
        #[source]
        cause: Box<HttpError>,
    },
    /// A line of a token file has too many words.
    #[error("a line is a token, and for a token that isn't an administrator's, the tenant")]
    Words,
}
