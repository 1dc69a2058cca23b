//! HTTP by allow-list for a program that has no network, with secrets that it never sees.
//!
//! An [`Egress`] says what a pool may reach, and each job has a [`JobNetwork`] of it. The program
//! writes HTTP/1.1 in the clear to streams. The other side of each stream is an HTTP server here. The
//! server checks each request against the [`Rule`]s, replaces placeholders by secrets, and performs
//! it with a client of its own: look-up, check of addresses, TLS. It sends what it has parsed, never
//! the program's bytes.
//!
//! ```text
//! program -- frames --> network.rs, job.rs -- pipe.rs --> HTTP server
//!                                                        exchange.rs: rule, secret, limits
//!                                    <-- response --     upstream.rs: address.rs, TLS, client
//! ```
//!
//! # Frames
//!
//! A frame is a byte for the operation and its fields; integers are little-endian. The answer is
//! `0` and a payload, or `1`, a code ([`FailureReason::code`]), and a text in UTF-8. An operation
//! that waits is [`Served::Pending`]; the channel between program and host gives it a ticket.
//!
//! ```text
//! 1 OPEN            timeout_ms:u32 port:u16 host:utf8   -> stream:u32    may wait
//! 2 START_TLS       stream:u32 server_name:utf8         -> info          may wait
//! 3 WRITE           stream:u32 bytes                    -> count:u32     at least 1, or EAGAIN
//! 4 READ            stream:u32 max:u32                  -> bytes         none at the end, or EAGAIN
//! 5 READY           stream:u32 interest:u8              -> interest:u8   waits; bits 1 read, 2 write
//! 6 SHUTDOWN_WRITE  stream:u32                          -> nothing
//! 7 CLOSE           stream:u32                          -> nothing
//! ```
//!
//! - OPEN takes a name or an address, looks it up and connects. A timeout of 0 leaves the one of
//!   [`EgressLimits`].
//! - START_TLS comes before the first WRITE, with the host of OPEN. Its bytes stay in the clear
//!   between program and host. The info is a length (u8) with the version of TLS, a length (u8) with
//!   the cipher, and the server's certificate in DER.
//! - READ returns at most 64 KiB. After a failure it returns the bytes before it, then the failure.
//! - READY is given up without a trace. OPEN and START_TLS that are given up close what they began.
//! - A refused request isn't a response but a failure of the stream.
//! - If a server ends its connection too early, the stream just ends. After a response that is the
//!   connection's last, so does the stream. Kept connections that a server closes are replaced.
//! - Redirects aren't followed: a program that follows one makes a new request.
//! - Not passed on: interim responses, upgrades, `Expect`, and what `Connection` names.
//! - A host that gets a secret is asked for `Accept-Encoding: identity`, and never for a range, so that
//!   an echo of the secret is found.
//!
//! # What it doesn't stop
//!
//! A program can send what it knows to an allowed host, in the path, the query, the body and the
//! time of its requests, and with `*.example.com` in the names that it looks up. Some servers take
//! another method from a query or a form (`_method`). An echo of a secret that the server changes,
//! such as a part of it or a hash, isn't found. A program can't compute with a secret, as signatures
//! need.

pub use address::{Lookup, Resolver, SystemResolver};
pub use config::{Egress, EgressError, EgressFile};
pub use failure::{Failure, FailureReason};
pub use job::JobOptions;
pub use limits::EgressLimits;
pub use network::{JobNetwork, NetworkOutcome, Served};
pub use peer::JobEgress;
pub use recording::{
    EgressRecording, Exchange, RecordedConnection, RecordedRequest, RecordedResponse,
};
pub use rule::{InvalidRule, Rule};
pub use secret::{InvalidSecret, Secret, SecretSource};

mod address;
mod config;
mod exchange;
mod failure;
mod job;
mod limits;
mod needles;
mod network;
mod origin;
mod peer;
mod pipe;
mod recording;
mod rule;
mod secret;
mod upstream;
