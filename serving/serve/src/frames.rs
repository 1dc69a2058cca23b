//! The protocol of frames: standard streams and Unix sockets. `wire::message` has the
//! messages.
//!
//! A connection's requests are handled and submitted in order, so the turns of a session run as
//! they were sent. Answers come as they are ready. When a connection ends, its jobs are cancelled
//! and its calls fail. Sessions stay, and another connection of the same caller finds them by name.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::caller::Caller;
use crate::service::Service;

pub use connection::serve;

mod client;
mod connection;
mod outbox;
mod run;

/// Serves the process that started this one, over standard input and output, until it closes the
/// input.
///
/// # Errors
/// As [`serve`].
pub async fn serve_stdio(service: Service) -> Result<(), ConnectionError> {
    let (reader, writer) = streams();
    serve(service, Caller::owner(), reader, writer).await
}

/// A connection ended because of an error.
#[derive(Debug, thiserror::Error)]
#[error("a connection of frames failed")]
pub struct ConnectionError(#[source] outbox::FrameError);

/// Returns standard input and output, on pipes without a thread in between.
fn streams() -> (Box<dyn AsyncRead + Unpin + Send>, Box<dyn AsyncWrite + Unpin + Send>) {
    let reader = copy_of(std::io::stdin().as_fd())
        .and_then(|file| pipe::Receiver::from_file(file).ok())
        .map_or_else(|| Box::new(tokio::io::stdin()) as Box<_>, |pipe| Box::new(pipe) as Box<_>);
    let writer = copy_of(std::io::stdout().as_fd())
        .and_then(|file| pipe::Sender::from_file(file).ok())
        .map_or_else(|| Box::new(tokio::io::stdout()) as Box<_>, |pipe| Box::new(pipe) as Box<_>);
    (reader, writer)
}

fn copy_of(stream: BorrowedFd<'_>) -> Option<File> {
    stream.try_clone_to_owned().ok().map(File::from)
}

/// Connections at once; further ones wait to be accepted.
const MOST_CONNECTIONS: usize = 4096;
/// How long to wait before accepting again when the process has no descriptor left.
const PAUSE: Duration = Duration::from_millis(50);

/// A socket that listens. Dropped, it is removed.
#[derive(Debug)]
pub struct UnixServer {
    listener: UnixListener,
    path: PathBuf,
}

/// No socket can listen at a path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another process listens there.
    #[error(
        "another process listens at `{}`: connect to it, or give another path",
        .0.display()
    )]
    InUse(PathBuf),
    /// There is something else than a socket.
    #[error("`{}` is not a socket: give another path", .0.display())]
    Occupied(PathBuf),
    /// The system refuses.
    #[error(
        "can't listen at `{}`: give a path of at most 107 bytes in a folder that you can write to",
        .0.display()
    )]
    Io(PathBuf, #[source] io::Error),
}

impl UnixServer {
    /// Listens at a path, which only this user's processes can connect to. Replaces a socket that a
    /// process has left behind which no longer runs.
    ///
    /// # Errors
    /// There is something else at the path, or the system refuses.
    pub async fn bind(path: impl Into<PathBuf>) -> Result<Self, BindError> {
        let path = path.into();
        match path.symlink_metadata() {
            Err(_) => {}
            Ok(found) if !found.file_type().is_socket() => {
                return Err(BindError::Occupied(path));
            }
            Ok(_) if UnixStream::connect(&path).await.is_ok() => {
                return Err(BindError::InUse(path));
            }
            Ok(_) => {}
        }
        match listen(&path) {
            Ok(listener) => Ok(Self { listener, path }),
            Err(source) => Err(BindError::Io(path, source)),
        }
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Serves every process of this user that connects, until it is dropped.
    #[expect(clippy::disallowed_methods, reason = "nothing tells when a descriptor is free again")]
    pub async fn serve(self, service: Service) {
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let place = Arc::clone(&room).acquire_owned().await.expect("nobody closes it");
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            if !is_own(&stream) {
                tracing::warn!("a process of another user was refused");
                continue;
            }
            let service = service.clone();
            tokio::spawn(async move {
                let (reader, writer) = stream.into_split();
                let served = serve(service, Caller::owner(), reader, writer).await;
                if let Err(error) = served {
                    tracing::info!(error = %hatchery::error::chain(&error), "a connection failed");
                }
                drop(place);
            });
        }
    }
}

impl Drop for UnixServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Listens under another name first, so that nobody else can connect before the rights are set.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let hidden = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let _ = std::fs::remove_file(&hidden);
    let listener = UnixListener::bind(&hidden)?;
    let moved = std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| std::fs::rename(&hidden, path));
    if let Err(error) = moved {
        let _ = std::fs::remove_file(&hidden);
        return Err(error);
    }
    Ok(listener)
}

fn is_own(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}
