//! Reading from pipes and sockets, and writing to them.
//!
//! A call that would have to wait fails: with `Again` if the descriptor says so, else with
//! `Deadlock`. While a guest has other threads, the binding waits until one of them has changed
//! something, and calls again. A thread that waits for itself would never end.

use mio::Interest;

use super::Wasi;
use super::bytes::Buffer;
use super::descriptors::{Channel, Open};
use super::pipe::WHOLE_BYTES;
use crate::errno::{Errno, Result};
use crate::host::network::socket::{NetSocket, Readiness};

impl Wasi {
    /// Returns how often something has changed for which a thread may wait.
    pub(crate) fn changes(&self) -> u64 {
        self.open.pipes.changes()
    }

    pub(crate) fn fd_pipe(&mut self, reader: u32, writer: u32) -> Result {
        self.admit_descriptors(2)?;
        let (reads, writes) = self.open.open_pipe();
        self.guest.write_u32(reader, reads)?;
        self.guest.write_u32(writer, writes)
    }

    /// Reads what is there. A look that `keeps` takes nothing out.
    pub(super) fn receive(
        &mut self,
        channel: Channel,
        buffers: &[Buffer],
        keeps: bool,
    ) -> Result<u32> {
        let Some(id) = channel.receives else {
            return if channel.is_socket { Ok(0) } else { Err(Errno::BadDescriptor) };
        };
        let pipe = self.open.pipes.get(id);
        if buffers.iter().all(|buffer| buffer.len == 0) {
            return Ok(0);
        }
        if pipe.len() == 0 {
            return if pipe.has_writer { Err(would_wait(channel)) } else { Ok(0) };
        }
        let mut read = 0;
        for buffer in buffers {
            let len = (buffer.len as usize).min(pipe.len() - read) as u32;
            read += self.guest.with(Buffer { len, ..*buffer }, |to| pipe.peek(read, to))?;
        }
        if !keeps {
            self.open.pipes.get_mut(id).consume(read);
        }
        Ok(read as u32)
    }

    /// Writes what fits. A short write to a pipe isn't split, unless that would wait.
    pub(super) fn send(&mut self, channel: Channel, buffers: &[Buffer]) -> Result<u32> {
        let Some(id) = channel.sends else {
            return Err(if channel.is_socket { Errno::BrokenPipe } else { Errno::BadDescriptor });
        };
        let wanted: u64 = buffers.iter().map(|buffer| u64::from(buffer.len)).sum();
        if wanted == 0 {
            return Ok(0);
        }
        if !self.open.pipes.get(id).has_reader {
            return Err(Errno::BrokenPipe);
        }
        let room = self.open.pipes.room(id);
        let stays_whole = !channel.is_socket
            && channel.is_nonblocking
            && wanted <= WHOLE_BYTES as u64
            && (room as u64) < wanted;
        if room == 0 || stays_whole {
            return Err(would_wait(channel));
        }
        let mut written = Vec::with_capacity(room.min(wanted as usize));
        for buffer in buffers {
            let len = (buffer.len as usize).min(room - written.len()) as u32;
            self.guest.look(Buffer { len, ..*buffer }, |from| written.extend_from_slice(from))?;
        }
        Ok(self.open.pipes.push(id, &written) as u32)
    }

    /// Returns what a poll for a descriptor finds. All but pipes and sockets are always ready.
    pub(super) fn readiness(&self, fd: u32, to_write: bool) -> Result<Readiness> {
        let ready = Readiness { is_ready: true, ..Readiness::default() };
        let channel = match self.open.get(fd)? {
            Open::Channel(channel) => channel,
            Open::Network(socket) => return readiness_of(socket, to_write),
            _ => return Ok(ready),
        };
        let hung_up = Readiness { is_hung_up: true, ..ready };
        let pipes = &self.open.pipes;
        let found = match (to_write, channel.receives, channel.sends) {
            (false, Some(id), _) => {
                let (bytes, is_hung_up) = (pipes.get(id).len(), !pipes.get(id).has_writer);
                Readiness { is_ready: bytes > 0 || is_hung_up, bytes: bytes as u64, is_hung_up }
            }
            (true, _, Some(id)) if pipes.get(id).has_reader => {
                let room = pipes.room(id);
                let is_ready = room >= WHOLE_BYTES;
                Readiness { is_ready, bytes: room as u64, is_hung_up: false }
            }
            (true, _, Some(_)) => hung_up,
            // The writing end of a pipe notices only that its reader is gone.
            (false, None, Some(id)) if !channel.is_socket => {
                let is_hung_up = !pipes.get(id).has_reader;
                Readiness { is_ready: is_hung_up, bytes: 0, is_hung_up }
            }
            _ if channel.is_socket => hung_up,
            _ => Readiness::default(),
        };
        Ok(found)
    }
}

fn would_wait(channel: Channel) -> Errno {
    if channel.is_nonblocking { Errno::Again } else { Errno::Deadlock }
}

fn readiness_of(socket: &NetSocket, to_write: bool) -> Result<Readiness> {
    // Without a connection every call fails at once.
    let Some(connection) = socket.connection() else {
        return Ok(Readiness { is_ready: true, bytes: 0, is_hung_up: true });
    };
    let interest = if to_write { Interest::WRITABLE } else { Interest::READABLE };
    connection.look(interest)
}
