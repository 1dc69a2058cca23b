//! Sockets of a network: TCP connections to what the run was granted, and the names of those.
//!
//! A function that would have to wait notes what for and fails with `Deadlock`. The binding waits
//! at the guest's gate and calls it again. If an interrupt ends that wait, the function reports
//! success, since a C library would retry after an error. Then the guest's interpreter sees the
//! interrupt. Unsent data is lost with its connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Wasi;
use super::bytes::{Buffer, GuestBytes};
use super::descriptors::Open;
use super::socket::{ADDRESS_BYTES, DONT_WAIT, PEEK, STREAM};
use crate::errno::{Errno, Result};
use crate::host::network::socket::{Connection, NetSocket, errno_of, would_block};
use crate::host::network::watch::Want;
use crate::host::network::{MOST_SOCKETS, Named};
use crate::run::network::MOST_NAME_BYTES;

/// Families of addresses.
const V4: u32 = 1;
const V6: u32 = 2;
/// The protocols of a socket for streams: the only one there is, or its number.
const ANY_PROTOCOL: u32 = 0;
const TCP: u32 = 6;

/// The length of an address without a port: family, padding and 16 bytes.
const NAMED_BYTES: u32 = 18;

/// The most bytes that a call sends or receives; the caller goes on with the next.
const MOST_BYTES: usize = 1 << 20;

/// What a name means to a program that is interrupted while it asks.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

impl Wasi {
    /// Opens a socket for TCP, if the run may reach anything.
    pub(crate) fn sock_open(&mut self, family: u32, kind: u32, protocol: u32, out: u32) -> Result {
        let is_tcp = kind == STREAM && matches!(protocol, ANY_PROTOCOL | TCP);
        if !self.network.is_open() || !is_tcp || !matches!(family, V4 | V6) {
            return Err(Errno::Access);
        }
        self.admit_descriptors(1)?;
        if self.open.sockets() >= MOST_SOCKETS {
            return Err(Errno::TooManyOpen);
        }
        let fd = self.open.insert(Open::Network(NetSocket::new(family == V6)));
        self.guest.write_u32(out, fd)
    }

    pub(crate) fn sock_connect(&mut self, fd: u32, address: u32) -> Result {
        let peer = read_address(&self.guest, address);
        if self.any_socket(fd)?.is_some() {
            return Err(Errno::NotSupported);
        }
        let Open::Network(socket) = self.open.get_mut(fd)? else { return Err(Errno::NotSocket) };
        let (is_new, was_there) = (socket.is_new(), socket.is_connected());
        if is_new {
            let peer = peer?;
            if !self.network.may_reach(peer) {
                return Err(Errno::Access);
            }
            socket.begin(peer)?;
        }
        let is_nonblocking = socket.is_nonblocking;
        match socket.settle()? {
            Some(_) if was_there => Err(Errno::IsConnected),
            Some(_) => Ok(()),
            None if is_nonblocking && is_new => Err(Errno::InProgress),
            None if is_nonblocking => Err(Errno::Already),
            None if self.is_asked => Ok(()),
            None => Err(self.wait_to_connect(fd)),
        }
    }

    /// Looks up a name that the run may reach.
    pub(crate) fn resolve(
        &mut self,
        host: u32,
        len: u32,
        _port: u32,
        addresses: u32,
        count: u32,
        out: u32,
    ) -> Result {
        let name = self.guest.text(Buffer { at: host, len }, MOST_NAME_BYTES + 1)?;
        let found = match self.network.resolve(&name)? {
            Named::Addresses(found) => found,
            Named::Pending(_) if self.is_asked => vec![NOWHERE],
            Named::Pending(lookup) => {
                self.want = Some(Want::Lookup(lookup));
                return Err(Errno::Deadlock);
            }
        };
        let mut written = 0;
        for address in found.into_iter().take(count as usize) {
            let at = addresses.checked_add(written * NAMED_BYTES).ok_or(Errno::Fault)?;
            let (family, bytes) = family_and_bytes(address);
            self.guest.write(at, &[family, 0])?;
            self.guest.write(at.checked_add(2).ok_or(Errno::Fault)?, &bytes)?;
            written += 1;
        }
        self.guest.write_u32(out, written)
    }

    pub(super) fn receive_from_network(
        &mut self,
        fd: u32,
        buffers: &[Buffer],
        flags: u32,
    ) -> Result<u32> {
        let peeks = flags & PEEK != 0;
        let Some(connection) = self.settled(fd)? else {
            return self.wait_in(fd, flags, Self::wait_to_connect);
        };
        let wanted = total(buffers);
        if wanted == 0 {
            return Ok(0);
        }
        let most = self.network.room(wanted)?.min(MOST_BYTES);
        let mut read = 0;
        for buffer in buffers {
            let len = (buffer.len as usize).min(most - read) as u32;
            if len == 0 {
                continue;
            }
            match self.guest.with(Buffer { len, ..*buffer }, |to| connection.receive(to, peeks))? {
                Ok(count) => {
                    read += count;
                    // What was looked at is still there, and would come again.
                    if count < len as usize || peeks {
                        break;
                    }
                }
                Err(_) if read > 0 => break,
                Err(error) if would_block(&error) => {
                    return self.wait_in(fd, flags, |wasi, _| {
                        wasi.want = Some(Want::Readable(connection.clone()));
                        Errno::Deadlock
                    });
                }
                Err(error) => return Err(errno_of(&error)),
            }
        }
        // What was only looked at has come, too.
        self.network.count(read);
        Ok(read as u32)
    }

    /// Sends what the system takes over a connection.
    pub(super) fn send_to_network(&mut self, fd: u32, buffers: &[Buffer]) -> Result<u32> {
        let Some(connection) = self.settled(fd)? else {
            return self.wait_to_send(fd, buffers, Self::wait_to_connect);
        };
        let wanted = total(buffers);
        if wanted == 0 {
            return Ok(0);
        }
        let most = self.network.room(wanted)?.min(MOST_BYTES);
        let mut sent = 0;
        for buffer in buffers {
            let len = (buffer.len as usize).min(most - sent) as u32;
            if len == 0 {
                continue;
            }
            match self.guest.look(Buffer { len, ..*buffer }, |from| connection.send(from))? {
                Ok(count) => {
                    sent += count;
                    if count < len as usize {
                        break;
                    }
                }
                Err(_) if sent > 0 => break,
                Err(error) if would_block(&error) => {
                    return self.wait_to_send(fd, buffers, |wasi, _| {
                        wasi.want = Some(Want::Writable(connection.clone()));
                        Errno::Deadlock
                    });
                }
                Err(error) => return Err(errno_of(&error)),
            }
        }
        self.network.count(sent);
        Ok(sent as u32)
    }

    /// Answers the address of this end. A program doesn't learn the machine's.
    pub(super) fn local_address(&self, fd: u32, out: u32) -> Result {
        let Open::Network(socket) = self.open.get(fd)? else { return Err(Errno::NotSocket) };
        let address: IpAddr = match socket.is_v6 {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        self.guest.write(out, &address_bytes(SocketAddr::new(address, 0)))
    }

    pub(super) fn peer_address(&mut self, fd: u32, out: u32) -> Result {
        let peer = self.connection(fd)?.peer;
        self.guest.write(out, &address_bytes(peer))
    }

    /// Returns the error that ended an attempt to connect, which is then forgotten; 0 if none did.
    pub(super) fn last_error(&mut self, fd: u32) -> u64 {
        match self.open.get_mut(fd) {
            Ok(Open::Network(socket)) if socket.connection().is_some() => {
                socket.settle().map_or_else(|errno| errno as u64, |_| 0)
            }
            _ => 0,
        }
    }

    pub(super) fn sends_at_once(&self, fd: u32) -> bool {
        let Ok(Open::Network(socket)) = self.open.get(fd) else { return false };
        socket.connection().is_some_and(|it| it.stream().nodelay().unwrap_or(false))
    }

    /// Sets whether a connection sends at once. Before there is one this has no effect.
    pub(super) fn send_at_once(&mut self, fd: u32, wanted: bool) -> Result {
        let Open::Network(socket) = self.open.get(fd)? else { return Err(Errno::NotSocket) };
        let set = |it: &Connection| it.stream().set_nodelay(wanted);
        socket.connection().map_or(Ok(()), set).map_err(|error| errno_of(&error))
    }

    pub(super) fn poll_want(&self, fd: u32, to_write: bool) -> Option<Want> {
        let Ok(Open::Network(socket)) = self.open.get(fd) else { return None };
        let connection = socket.connection()?.clone();
        Some(if to_write { Want::Writable(connection) } else { Want::Readable(connection) })
    }

    pub(super) fn connection(&mut self, fd: u32) -> Result<Connection> {
        self.settled(fd)?.ok_or(Errno::NotConnected)
    }

    fn settled(&mut self, fd: u32) -> Result<Option<Connection>> {
        match self.open.get_mut(fd)? {
            Open::Network(socket) => socket.settle(),
            _ => Err(Errno::NotSocket),
        }
    }

    fn wait_to_connect(&mut self, fd: u32) -> Errno {
        self.want = self.poll_want(fd, true);
        Errno::Deadlock
    }

    /// Waits in a call that receives, if it may.
    fn wait_in(
        &mut self,
        fd: u32,
        flags: u32,
        wait: impl FnOnce(&mut Self, u32) -> Errno,
    ) -> Result<u32> {
        match self.open.get(fd)? {
            Open::Network(socket) if socket.is_nonblocking || flags & DONT_WAIT != 0 => {
                Err(Errno::Again)
            }
            _ if self.is_asked => Ok(0),
            _ => Err(wait(self, fd)),
        }
    }

    /// Waits in a call that sends, if it may.
    fn wait_to_send(
        &mut self,
        fd: u32,
        buffers: &[Buffer],
        wait: impl FnOnce(&mut Self, u32) -> Errno,
    ) -> Result<u32> {
        match self.open.get_mut(fd)? {
            Open::Network(socket) if socket.is_nonblocking => Err(Errno::Again),
            Open::Network(socket) if self.is_asked => {
                socket.lose();
                Ok(u32::try_from(total(buffers)).unwrap_or(u32::MAX))
            }
            _ => Err(wait(self, fd)),
        }
    }
}

fn total(buffers: &[Buffer]) -> u64 {
    buffers.iter().map(|buffer| u64::from(buffer.len)).sum()
}

fn read_address(guest: &GuestBytes, at: u32) -> Result<SocketAddr> {
    let bytes: [u8; ADDRESS_BYTES] = guest.read(at)?;
    let port = u16::from_le_bytes([bytes[2], bytes[3]]);
    let ip: IpAddr = match u32::from(bytes[0]) {
        V4 => <[u8; 4]>::try_from(&bytes[4..8]).map_err(|_| Errno::Invalid)?.into(),
        V6 => <[u8; 16]>::try_from(&bytes[4..]).map_err(|_| Errno::Invalid)?.into(),
        _ => return Err(Errno::AddressFamily),
    };
    Ok(SocketAddr::new(ip, port))
}

fn address_bytes(address: SocketAddr) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    let (family, ip) = family_and_bytes(address.ip());
    bytes[0] = family;
    bytes[2..4].copy_from_slice(&address.port().to_le_bytes());
    bytes[4..].copy_from_slice(&ip);
    bytes
}

fn family_and_bytes(address: IpAddr) -> (u8, [u8; 16]) {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(address) => {
            bytes[..4].copy_from_slice(&address.octets());
            (V4 as u8, bytes)
        }
        IpAddr::V6(address) => (V6 as u8, address.octets()),
    }
}
