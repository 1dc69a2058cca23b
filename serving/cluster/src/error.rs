//! What can go wrong between this process and the server.

use std::path::PathBuf;
use std::{fmt, io};

/// The cause of an error of any operation.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The server can't be used, or something can't be sent through it.
///
/// A server that goes away later is no error: whatever needs it waits, and a
/// [`Notice`](crate::Notice) says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address of a server isn't one.
    #[error(
        "`{0}` isn't an address of a NATS server; write it as nats://HOST:4222, or \
         tls://HOST:4222"
    )]
    Url(String, #[source] Cause),
    /// No server answers at the address, which is shown without a password.
    #[error("can't connect to the NATS server at `{0}`; check that it runs there")]
    Connect(String, #[source] Cause),
    /// The server refuses the credentials, or asks for some.
    #[error("the NATS server at `{url}` refuses {what}")]
    Credentials {
        /// The address, without a password.
        url: String,
        /// What was presented.
        what: String,
        /// The server's answer.
        #[source]
        source: Cause,
    },
    /// No encrypted connection can be had.
    #[error(
        "can't have a TLS connection to `{0}`; check the certificate of the server, and the one \
         of its authority that was given"
    )]
    Tls(String, #[source] Cause),
    /// A file with credentials can't be read.
    #[error("can't read `{}`", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// A stream or a bucket of the pool can't be created or used.
    #[error(
        "can't use `{0}` of the pool on the NATS server (the server needs JetStream, and this \
         client the right to use it)"
    )]
    Setup(String, #[source] Cause),
    /// Nobody has set up a pool of this name on the server.
    #[error("the NATS server has no pool `{0}`; start a worker of it, or check the name")]
    NoPool(String),
    /// A name can't be part of a subject.
    #[error(
        "`{name}` can't be the name of a {of}; use 1 to {most} of the characters a-z A-Z 0-9 _ -"
    )]
    Name {
        /// The name, cut if it is long.
        name: String,
        /// What it would be the name of.
        of: &'static str,
        /// Its most characters.
        most: usize,
    },
    /// A session can't have this name.
    #[error(
        "`{name}` can't be the name of a session; use 1 to {most} bytes without control \
         characters, and without blanks at the ends"
    )]
    SessionName {
        /// The name, cut if it is long.
        name: String,
        /// Its most bytes.
        most: usize,
    },
    /// A job of a session names another tenant than the session's.
    #[error("the job's tenant isn't that of its session")]
    SessionTenant,
    /// What is to be a package of a pool's image isn't a wheel.
    #[error(
        "`{}` can't be sent to the workers of a pool: it isn't a wheel; make one with \
         `pip wheel --no-deps`", .0.display()
    )]
    NoWheel(PathBuf),
    /// A pool begins from another image than the others of its name.
    #[error(
        "the image of the pool `{pool}` is {there}, and here it is {here}; use the same Hatchery, \
         Python build and image options, or none, or replace that image with `--publish-image`"
    )]
    OtherImage {
        /// The pool.
        pool: String,
        /// The image of the pool.
        there: String,
        /// The image that is here.
        here: String,
    },
    /// A file can't be written.
    #[error("can't write `{}`", .0.display())]
    Write(PathBuf, #[source] io::Error),
    /// A job, with its program and files, is too large to be sent.
    #[error("the job has {bytes} bytes; at most {most} can be sent")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The most bytes.
        most: usize,
    },
    /// The server is set up for smaller messages.
    #[error("the NATS server refuses messages of this size; raise its `max_payload` to 1 MB")]
    MaxPayload,
    /// A job can't be sent in this form.
    #[error("`file` can't be sent: it is a path of this machine; send the program's text")]
    File,
    /// What the server has as this isn't what a worker or a client of Hatchery has stored there.
    #[error("{0} on the NATS server is damaged, or another program wrote it")]
    Damaged(String),
    /// The server can't do this, for the reason that it gives.
    #[error("the NATS server can't {0}")]
    Server(&'static str, #[source] Cause),
    /// The client was closed while a job waited for its result.
    #[error("the client was closed before the result came")]
    Closed,
}

impl Error {
    /// Returns that the server can't do something. Errors of the client say their causes themselves,
    /// so only their text is kept.
    pub(crate) fn server(what: &'static str, answer: impl fmt::Display) -> Self {
        Self::Server(what, answer.to_string().into())
    }

    /// Returns that a stream or a bucket can't be used, in the same way.
    pub(crate) fn setup(name: String, answer: impl fmt::Display) -> Self {
        Self::Setup(name, answer.to_string().into())
    }
}
