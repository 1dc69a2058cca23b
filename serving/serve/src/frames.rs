//! The protocol of frames: standard streams and Unix sockets. `wire::message` has the
//! messages.
//!
//! A connection's requests are taken in their order. Those that run jobs are submitted in that order
//! too, so the turns of a session run as they were sent; answers come as they are ready. When a
//! connection ends, its jobs are cancelled and its calls fail; sessions stay, and another connection
//! of the same caller finds them by name.

pub use unix::{BindError, UnixServer};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::caller::Caller;
use crate::service::Service;

mod calls;
mod client;
mod codec;
mod connection;
mod data;
mod outbox;
mod run;
mod session;
mod stdio;
mod unix;

/// Serves one connection until the client ends it.
///
/// # Errors
/// The client sent what is no frame, or the connection failed. The client was told, if that was
/// possible.
pub async fn serve(
    service: Service,
    caller: Caller,
    reader: impl AsyncRead + Unpin + Send,
    writer: impl AsyncWrite + Unpin + Send + 'static,
) -> Result<(), ConnectionError> {
    connection::serve(service, caller, reader, writer).await
}

/// Serves the process that started this one, over standard input and output, until it closes the
/// input.
///
/// # Errors
/// As [`serve`].
pub async fn serve_stdio(service: Service) -> Result<(), ConnectionError> {
    let (reader, writer) = stdio::streams();
    serve(service, Caller::owner(), reader, writer).await
}

/// A connection ended because of an error.
#[derive(Debug, thiserror::Error)]
#[error("a connection of frames failed")]
pub struct ConnectionError(#[source] codec::FrameError);
