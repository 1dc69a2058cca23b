//! One socket of a network: a TCP connection of a program.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::errno::{Errno, Result};

/// A socket, as the descriptors of a guest name it. Copies are the same connection.
#[derive(Debug, Clone)]
pub(crate) struct NetSocket {
    state: SocketState,
    /// A call that would wait fails with `Again` instead.
    pub(crate) is_nonblocking: bool,
    pub(crate) is_v6: bool,
}

#[derive(Debug, Clone)]
enum SocketState {
    New,
    Connecting(Connection),
    Connected(Connection),
    /// The run that had it is over, or an interrupt came in the middle of sending.
    Lost,
}

/// A connection, which closes with its last copy.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    stream: Arc<TcpStream>,
    pub(crate) peer: SocketAddr,
}

/// What a poll for a descriptor finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Readiness {
    pub(crate) is_ready: bool,
    /// The bytes that can be read or written.
    pub(crate) bytes: u64,
    /// Whether the other end is closed.
    pub(crate) is_hung_up: bool,
}

impl NetSocket {
    pub(crate) fn new(is_v6: bool) -> Self {
        Self { state: SocketState::New, is_nonblocking: false, is_v6 }
    }

    /// Returns a socket whose connection is gone.
    pub(crate) fn lost(is_nonblocking: bool) -> Self {
        Self { state: SocketState::Lost, is_nonblocking, is_v6: false }
    }

    pub(crate) fn is_new(&self) -> bool {
        matches!(self.state, SocketState::New)
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.state, SocketState::Connected(_))
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.state, SocketState::Lost)
    }

    pub(crate) fn begin(&mut self, peer: SocketAddr) -> Result {
        let address = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let stream = TcpStream::connect(address).map_err(|error| errno_of(&error))?;
        self.state = SocketState::Connecting(Connection { stream: Arc::new(stream), peer });
        Ok(())
    }

    pub(crate) fn connection(&self) -> Option<&Connection> {
        match &self.state {
            SocketState::Connecting(connection) | SocketState::Connected(connection) => {
                Some(connection)
            }
            SocketState::New | SocketState::Lost => None,
        }
    }

    /// Returns the connection if it is there; `None` while it is being made.
    ///
    /// # Errors
    /// Nothing was begun, the connection is gone, or it failed: then the socket is as new.
    pub(crate) fn settle(&mut self) -> Result<Option<Connection>> {
        let connection = match &self.state {
            SocketState::New => return Err(Errno::NotConnected),
            SocketState::Lost => return Err(Errno::ConnectionReset),
            SocketState::Connected(connection) => return Ok(Some(connection.clone())),
            SocketState::Connecting(connection) => connection.clone(),
        };
        let failed = match connection.stream.take_error() {
            Ok(None) => match connection.stream.peer_addr() {
                Ok(_) => {
                    self.state = SocketState::Connected(connection.clone());
                    return Ok(Some(connection));
                }
                Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(None),
                Err(error) => error,
            },
            Ok(Some(error)) | Err(error) => error,
        };
        self.state = SocketState::New;
        Err(errno_of(&failed))
    }

    /// Ends the connection, for all copies of the socket and all waits for it.
    pub(crate) fn lose(&mut self) {
        if let Some(connection) = self.connection() {
            // One that isn't there yet, or no more, has nothing to shut down.
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
        self.state = SocketState::Lost;
    }
}

impl Connection {
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads what is there, and keeps it there if `peeks`.
    pub(crate) fn receive(&self, to: &mut [u8], peeks: bool) -> io::Result<usize> {
        if peeks { self.stream.peek(to) } else { (&*self.stream).read(to) }
    }

    /// Writes what fits into the system's buffer.
    pub(crate) fn send(&self, from: &[u8]) -> io::Result<usize> {
        (&*self.stream).write(from)
    }

    pub(crate) fn shut_down(&self, reading: bool, writing: bool) -> Result {
        let how = match (reading, writing) {
            (true, true) => Shutdown::Both,
            (true, false) => Shutdown::Read,
            (false, true) => Shutdown::Write,
            (false, false) => return Err(Errno::Invalid),
        };
        self.stream.shutdown(how).map_err(|error| errno_of(&error))
    }

    /// Looks whether a call would not have to wait now.
    pub(crate) fn look(&self, interest: Interest) -> Result<Readiness> {
        let mut events = Events::with_capacity(1);
        let polled = Poll::new().and_then(|mut poll| {
            let fd = self.stream.as_raw_fd();
            poll.registry().register(&mut SourceFd(&fd), Token(0), interest)?;
            poll.poll(&mut events, Some(Duration::ZERO))
        });
        polled.map_err(|error| errno_of(&error))?;
        let event = events.iter().next();
        let is_closed = |event: &mio::event::Event| match interest.is_writable() {
            true => event.is_write_closed(),
            false => event.is_read_closed(),
        };
        let (is_ready, is_hung_up) = (event.is_some(), event.is_some_and(is_closed));
        Ok(Readiness { is_ready, bytes: u64::from(is_ready && !is_hung_up), is_hung_up })
    }
}

/// Whether a call has to wait, and didn't fail.
pub(crate) fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

pub(crate) fn errno_of(error: &io::Error) -> Errno {
    match error.kind() {
        ErrorKind::AddrNotAvailable => Errno::NoAddress,
        ErrorKind::BrokenPipe => Errno::BrokenPipe,
        ErrorKind::ConnectionAborted => Errno::ConnectionAborted,
        ErrorKind::ConnectionRefused => Errno::ConnectionRefused,
        ErrorKind::ConnectionReset => Errno::ConnectionReset,
        ErrorKind::HostUnreachable => Errno::HostUnreachable,
        ErrorKind::NetworkUnreachable => Errno::NetworkUnreachable,
        ErrorKind::NotConnected => Errno::NotConnected,
        ErrorKind::PermissionDenied => Errno::Access,
        ErrorKind::TimedOut => Errno::TimedOut,
        ErrorKind::WouldBlock => Errno::Again,
        _ => Errno::InputOutput,
    }
}
