//! The side of ZMTP 3 (ZeroMQ's protocol) that a kernel needs: sockets that listen as `ROUTER` and
//! `XPUB`, without encryption.
//!
//! Anybody who reaches the address can connect, and only a message's signature tells who may ask. So
//! everything before the signature has a bound: connections, greetings, the length of frames and
//! messages, and the large messages that all sockets of a kernel receive at once. Whoever exceeds one
//! is disconnected, as ZeroMQ's own library does with `ZMQ_MAXMSGSIZE`; clients connect again by
//! themselves.
//!
//! - `listener.rs` listens, over TCP or as a Unix socket.
//! - `greeting.rs` greets a peer, and learns who it is.
//! - `frames.rs` reads and writes messages.
//! - `peer.rs` accepts connections, and serves each from its greeting to its end.
//! - `router.rs`, `publisher.rs` and `echo.rs` are what a kernel's sockets do with messages.

use bytes::Bytes;
use tokio::sync::watch;

pub(crate) use self::echo::echo;
pub(crate) use self::frames::Large;
pub(crate) use self::listener::{Address, Listener};
pub(crate) use self::publisher::Publisher;
pub(crate) use self::router::Router;

mod echo;
mod frames;
mod greeting;
mod listener;
mod peer;
mod publisher;
mod router;
#[cfg(test)]
mod tests;

/// The frames of a message.
pub(crate) type Frames = Vec<Bytes>;

/// What a socket's connections are bound by.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// The most bytes of a message that is received.
    pub(crate) most_bytes: usize,
    /// The turns of large messages, which a kernel's sockets share.
    pub(crate) large: Large,
    /// Becomes true, or loses its sender, when the socket is to end: what is queued is still sent.
    pub(crate) ending: watch::Receiver<bool>,
}
