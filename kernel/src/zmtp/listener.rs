//! Listens at an address, over TCP or as a Unix socket.

use std::fmt::{Display, Formatter};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener, UnixStream};

use super::frames::{Reader, Writer};

/// Where a socket listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// A host, by its address or its name, and a port.
    Tcp(String, u16),
    /// A path.
    Ipc(PathBuf),
}

impl Display for Address {
    /// Writes it as ZeroMQ does.
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => {
                write!(formatter, "tcp://[{host}]:{port}")
            }
            Self::Tcp(host, port) => write!(formatter, "tcp://{host}:{port}"),
            Self::Ipc(path) => write!(formatter, "ipc://{}", path.display()),
        }
    }
}

/// Listens until it is dropped.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Ipc(
        UnixListener,
        #[expect(dead_code, reason = "it is removed when this is dropped")] SocketFile,
    ),
}

/// The file of a Unix socket, which goes with it.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Whoever has removed it already meant to.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Begins to listen. A Unix socket at which nobody listens any more is replaced.
    ///
    /// # Errors
    /// The address is in use, or isn't one of this machine.
    pub(crate) async fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(host, port) => {
                Ok(Self::Tcp(TcpListener::bind((host.as_str(), *port)).await?))
            }
            Address::Ipc(path) => {
                let bound = match UnixListener::bind(path) {
                    Err(error)
                        if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path).await =>
                    {
                        std::fs::remove_file(path)?;
                        UnixListener::bind(path)
                    }
                    bound => bound,
                };
                let listener = bound?;
                Ok(Self::Ipc(listener, SocketFile(path.clone())))
            }
        }
    }

    /// Waits for a connection. Cancel-safe.
    ///
    /// # Errors
    /// The connection ended already, or the process has too many files open.
    pub(super) async fn accept(&self) -> io::Result<(Reader, Writer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Replies are single small writes, which wait for nothing.
                stream.set_nodelay(true)?;
                let (reader, writer) = stream.into_split();
                Ok((Box::new(reader), Box::new(writer)))
            }
            Self::Ipc(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let (reader, writer) = stream.into_split();
                Ok((Box::new(reader), Box::new(writer)))
            }
        }
    }
}

/// Returns whether a path is a Unix socket at which nobody listens.
async fn is_abandoned(path: &Path) -> bool {
    let is_socket = path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
    let tried = UnixStream::connect(path).await;
    is_socket && tried.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_at_which_nobody_listens_is_replaced_and_goes_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernel-1");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let address = Address::Ipc(path.clone());
        let listener = Listener::bind(&address).await.unwrap();
        let second = Listener::bind(&address).await;
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert!(Listener::bind(&address).await.is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"a file");
    }
}
