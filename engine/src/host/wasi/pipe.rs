//! Pipes in memory: a bounded buffer with one end to read and one to write.
//!
//! A pipe is plain data, so a copied guest has separate pipes. It is full at 64 KiB, as on Linux,
//! or when all pipes of the guest reach their common limit.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The most bytes that one pipe holds.
pub(crate) const PIPE_BYTES: usize = 64 << 10;
/// The most bytes that all pipes of a guest hold together.
const MOST_BYTES: usize = 1 << 20;
/// The longest write that is never split (`PIPE_BUF` on Linux). A pipe with less room isn't ready
/// for writing.
pub(crate) const WHOLE_BYTES: usize = 4096;

/// Identifies a pipe of one guest while one of its ends is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PipeId(u32);

/// The bytes on their way, and which ends are open.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pipe {
    bytes: VecDeque<u8>,
    pub(crate) has_reader: bool,
    pub(crate) has_writer: bool,
}

impl Pipe {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Copies bytes from position `at` on, without taking them out. Returns how many.
    pub(crate) fn peek(&self, at: usize, to: &mut [u8]) -> usize {
        let rest = self.len().saturating_sub(at).min(to.len());
        let bytes = self.bytes.range(at.min(self.len())..).take(rest);
        to.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        rest
    }

    /// Drops the first bytes, which were read.
    pub(crate) fn consume(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
        if self.bytes.is_empty() {
            self.bytes = VecDeque::new();
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Pipes {
    pipes: Vec<Option<Pipe>>,
    /// How often something has changed for which a thread may wait.
    changes: u64,
}

impl Pipes {
    /// Creates a pipe with both ends open.
    pub(crate) fn create(&mut self) -> PipeId {
        let free = self.pipes.iter().position(Option::is_none).unwrap_or(self.pipes.len());
        if free == self.pipes.len() {
            self.pipes.push(None);
        }
        self.pipes[free] = Some(Pipe { has_reader: true, has_writer: true, ..Pipe::default() });
        PipeId(u32::try_from(free).expect("descriptors bound the pipes"))
    }

    pub(crate) fn get(&self, id: PipeId) -> &Pipe {
        self.pipes[id.0 as usize].as_ref().expect("an open end keeps its pipe")
    }

    pub(crate) fn get_mut(&mut self, id: PipeId) -> &mut Pipe {
        self.changes += 1;
        self.pipes[id.0 as usize].as_mut().expect("an open end keeps its pipe")
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns how many bytes fit into a pipe now.
    pub(crate) fn room(&self, id: PipeId) -> usize {
        let total: usize = self.pipes.iter().flatten().map(Pipe::len).sum();
        PIPE_BYTES.saturating_sub(self.get(id).len()).min(MOST_BYTES.saturating_sub(total))
    }

    /// Appends as many of the bytes as fit. Returns how many.
    pub(crate) fn push(&mut self, id: PipeId, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room(id));
        self.get_mut(id).bytes.extend(&bytes[..count]);
        count
    }

    /// Closes the end that reads. Nobody can read what the pipe still holds.
    pub(crate) fn close_reader(&mut self, id: PipeId) {
        let pipe = self.get_mut(id);
        pipe.has_reader = false;
        pipe.bytes = VecDeque::new();
        self.drop_if_closed(id);
    }

    /// Closes the end that writes. The other end reads what the pipe still holds, then its end.
    pub(crate) fn close_writer(&mut self, id: PipeId) {
        self.get_mut(id).has_writer = false;
        self.drop_if_closed(id);
    }

    fn drop_if_closed(&mut self, id: PipeId) {
        let pipe = self.get(id);
        if !pipe.has_reader && !pipe.has_writer {
            self.pipes[id.0 as usize] = None;
        }
    }

    pub(crate) fn saved(&self) -> Vec<Vec<u8>> {
        let bytes = |pipe: &Pipe| pipe.bytes.iter().copied().collect();
        self.pipes.iter().map(|pipe| pipe.as_ref().map_or_else(Vec::new, bytes)).collect()
    }

    /// Returns pipes that hold `saved`, without open ends; `None` if they hold too much.
    pub(crate) fn revived(saved: Vec<Vec<u8>>) -> Option<Self> {
        let total: usize = saved.iter().map(Vec::len).sum();
        let fits = saved.iter().all(|bytes| bytes.len() <= PIPE_BYTES) && total <= MOST_BYTES;
        let pipe = |bytes: Vec<u8>| Some(Pipe { bytes: bytes.into(), ..Pipe::default() });
        fits.then(|| Self { pipes: saved.into_iter().map(pipe).collect(), changes: 0 })
    }

    /// Opens the reading end of a revived pipe; `None` if there is none or it is open already.
    pub(crate) fn revive_reader(&mut self, id: PipeId) -> Option<()> {
        let pipe = self.pipes.get_mut(id.0 as usize)?.as_mut()?;
        (!std::mem::replace(&mut pipe.has_reader, true)).then_some(())
    }

    /// As `revive_reader`, for the end that writes.
    pub(crate) fn revive_writer(&mut self, id: PipeId) -> Option<()> {
        let pipe = self.pipes.get_mut(id.0 as usize)?.as_mut()?;
        (!std::mem::replace(&mut pipe.has_writer, true)).then_some(())
    }

    /// Drops revived pipes of which no end was opened; `None` if one without a reader holds bytes.
    pub(crate) fn settled(mut self) -> Option<Self> {
        for pipe in &mut self.pipes {
            if pipe.as_ref().is_some_and(|pipe| !pipe.has_reader && pipe.len() > 0) {
                return None;
            }
            *pipe = pipe.take().filter(|pipe| pipe.has_reader || pipe.has_writer);
        }
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_returns_what_was_written_in_order() {
        let mut pipes = Pipes::default();
        let pipe = pipes.create();
        assert_eq!((pipes.push(pipe, b"one "), pipes.push(pipe, b"two")), (4, 3));
        let mut read = [0; 5];
        assert_eq!(pipes.get(pipe).peek(2, &mut read), 5);
        assert_eq!(&read, b"e two");
        pipes.get_mut(pipe).consume(4);
        assert_eq!(pipes.get(pipe).peek(0, &mut read), 3);
        assert_eq!(&read[..3], b"two");
        assert_eq!(pipes.get(pipe).peek(9, &mut read), 0);
    }

    #[test]
    fn pipes_are_full_at_their_limits() {
        let mut pipes = Pipes::default();
        let many: Vec<PipeId> = (0..20).map(|_| pipes.create()).collect();
        let kept: Vec<usize> =
            many.iter().map(|pipe| pipes.push(*pipe, &[1; PIPE_BYTES + 1])).collect();
        assert_eq!(kept[..16], [PIPE_BYTES; 16]);
        assert_eq!(kept[16..], [0; 4]);
        pipes.get_mut(many[0]).consume(10);
        assert_eq!((pipes.room(many[0]), pipes.room(many[1]), pipes.room(many[17])), (10, 0, 10));
    }

    #[test]
    fn a_pipe_goes_with_its_last_end_and_its_id_is_used_again() {
        let mut pipes = Pipes::default();
        let (first, second) = (pipes.create(), pipes.create());
        pipes.push(first, b"unread");
        pipes.close_reader(first);
        assert_eq!(pipes.get(first).len(), 0);
        pipes.close_writer(first);
        assert_eq!(pipes.create(), first);
        assert_ne!(first, second);
    }
}
