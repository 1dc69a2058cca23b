//! The socket functions: for two connected sockets in memory, and on to `inet.rs` for those of a
//! network.
#![expect(clippy::too_many_arguments, reason = "the signatures are WASI's and WASIX's")]

use super::Wasi;
use super::descriptors::{Channel, Open};
use super::pipe::PIPE_BYTES;
use crate::errno::{Errno, Result};

/// The type of a socket for a stream of bytes.
pub(super) const STREAM: u32 = 1;

/// Flags of receiving: leaves the bytes where they are.
pub(super) const PEEK: u32 = 1;
/// Fails rather than waits.
pub(super) const DONT_WAIT: u32 = 8;

const SHUT_READING: u32 = 1;
const SHUT_WRITING: u32 = 2;

/// The length of an address: family, padding, port and 16 bytes.
pub(super) const ADDRESS_BYTES: usize = 20;
/// The address of a socket that has none in a network: the family for local sockets.
const UNNAMED: [u8; ADDRESS_BYTES] = {
    let mut address = [0; ADDRESS_BYTES];
    address[0] = 3;
    address
};

// Options of sockets.
const NO_DELAY: u32 = 3;
const LAST_ERROR: u32 = 11;
const RECEIVE_BYTES: u32 = 15;
const SEND_BYTES: u32 = 16;
const PROTOCOL: u32 = 26;

impl Wasi {
    pub(crate) fn sock_accept(&mut self, fd: u32, _flags: u32, _out: u32) -> Result {
        self.any_socket(fd)?;
        Err(Errno::NotSupported)
    }

    /// Opens two connected sockets for streams of bytes.
    pub(crate) fn sock_pair(
        &mut self,
        _family: u32,
        kind: u32,
        _protocol: u32,
        first: u32,
        second: u32,
    ) -> Result {
        if kind != STREAM {
            return Err(Errno::NotSupported);
        }
        self.admit_descriptors(2)?;
        let (one, other) = self.open.open_sockets();
        self.guest.write_u32(first, one)?;
        self.guest.write_u32(second, other)
    }

    pub(crate) fn sock_recv(
        &mut self,
        fd: u32,
        buffers: u32,
        count: u32,
        flags: u32,
        out: u32,
        out_flags: u32,
    ) -> Result {
        let socket = self.any_socket(fd)?;
        let buffers = self.guest.buffers(buffers, count)?;
        self.guest.write(out_flags, &[0; 2])?;
        let read = match socket {
            Some(socket) => self.receive(socket, &buffers, flags & PEEK != 0)?,
            None => self.receive_from_network(fd, &buffers, flags)?,
        };
        self.guest.write_u32(out, read)
    }

    pub(crate) fn sock_recv_from(
        &mut self,
        fd: u32,
        buffers: u32,
        count: u32,
        flags: u32,
        out: u32,
        out_flags: u32,
        out_address: u32,
    ) -> Result {
        self.sock_addr_peer(fd, out_address)?;
        self.sock_recv(fd, buffers, count, flags, out, out_flags)
    }

    pub(crate) fn sock_send(
        &mut self,
        fd: u32,
        buffers: u32,
        count: u32,
        _flags: u32,
        out: u32,
    ) -> Result {
        let socket = self.any_socket(fd)?;
        let buffers = self.guest.buffers(buffers, count)?;
        let written = match socket {
            Some(socket) => self.send(socket, &buffers)?,
            None => self.send_to_network(fd, &buffers)?,
        };
        self.guest.write_u32(out, written)
    }

    pub(crate) fn sock_shutdown(&mut self, fd: u32, how: u32) -> Result {
        let socket = self.any_socket(fd)?;
        if how == 0 || how & !(SHUT_READING | SHUT_WRITING) != 0 {
            return Err(Errno::Invalid);
        }
        let (reading, writing) = (how & SHUT_READING != 0, how & SHUT_WRITING != 0);
        match socket {
            Some(_) => self.open.shut_down(fd, reading, writing),
            None => self.connection(fd)?.shut_down(reading, writing),
        }
    }

    pub(crate) fn sock_addr_local(&mut self, fd: u32, out: u32) -> Result {
        match self.any_socket(fd)? {
            Some(_) => self.guest.write(out, &UNNAMED),
            None => self.local_address(fd, out),
        }
    }

    pub(crate) fn sock_addr_peer(&mut self, fd: u32, out: u32) -> Result {
        match self.any_socket(fd)? {
            Some(_) => self.guest.write(out, &UNNAMED),
            None => self.peer_address(fd, out),
        }
    }

    pub(crate) fn sock_get_opt_flag(&mut self, fd: u32, option: u32, out: u32) -> Result {
        let is_in_network = self.any_socket(fd)?.is_none();
        let is_set = is_in_network && option == NO_DELAY && self.sends_at_once(fd);
        self.guest.write(out, &[u8::from(is_set)])
    }

    /// Sets whether a connection sends without delay. Accepts other flags, which have no effect.
    pub(crate) fn sock_set_opt_flag(&mut self, fd: u32, option: u32, value: u32) -> Result {
        match self.any_socket(fd)? {
            None if option == NO_DELAY => self.send_at_once(fd, value != 0),
            _ => Ok(()),
        }
    }

    pub(crate) fn sock_get_opt_size(&mut self, fd: u32, option: u32, out: u32) -> Result {
        let is_in_network = self.any_socket(fd)?.is_none();
        let size = match option {
            LAST_ERROR if is_in_network => self.last_error(fd),
            LAST_ERROR | PROTOCOL => 0,
            RECEIVE_BYTES | SEND_BYTES => PIPE_BYTES as u64,
            _ => return Err(Errno::NoProtocolOption),
        };
        self.guest.write_u64(out, size)
    }

    /// Accepts the sizes of buffers as the hints that they are.
    pub(crate) fn sock_set_opt_size(&mut self, fd: u32, option: u32, _size: u64) -> Result {
        self.any_socket(fd)?;
        match option {
            RECEIVE_BYTES | SEND_BYTES => Ok(()),
            _ => Err(Errno::NoProtocolOption),
        }
    }

    pub(crate) fn sock_get_opt_time(&mut self, fd: u32, _option: u32, out: u32) -> Result {
        self.any_socket(fd)?;
        self.guest.write(out, &[0; 16])
    }

    /// Returns a socket in memory; `None` if it is one of a network.
    pub(super) fn any_socket(&self, fd: u32) -> Result<Option<Channel>> {
        match self.open.get(fd)? {
            Open::Channel(channel) if channel.is_socket => Ok(Some(*channel)),
            Open::Network(_) => Ok(None),
            _ => Err(Errno::NotSocket),
        }
    }
}
