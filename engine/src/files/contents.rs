//! The bytes of one file, in chunks that copies share until one of them is written to.
//!
//! A copy costs a reference per chunk, and a write to a copy duplicates the chunks that it touches.
//! A chunk may be shorter than its place. The missing bytes read as zeroes. So growing a file by
//! `truncate` or by writing far past its end allocates nothing in between.

use std::sync::Arc;

/// The size of a chunk's place, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Default)]
pub(crate) struct Contents {
    /// Invariant E-5: there is one chunk for each place below `len`. No chunk extends beyond its
    /// place or `len`.
    chunks: Vec<Arc<Vec<u8>>>,
    len: u64,
}

impl Contents {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the bytes that it takes beside `base`, without the chunks that the two share.
    pub(super) fn bytes_beside(&self, base: Option<&Self>) -> u64 {
        let others = base.map_or(&[][..], |base| &base.chunks);
        let is_shared =
            |at: usize, own| others.get(at).is_some_and(|other| Arc::ptr_eq(own, other));
        let chunks = self.chunks.iter().enumerate();
        chunks.filter(|(at, own)| !is_shared(*at, own)).map(|(_, own)| own.len() as u64).sum()
    }

    /// Reads from `offset` into `buffer`, up to the end; returns the number of bytes read.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let available = self.len.saturating_sub(offset);
        let wanted = buffer.len().min(usize::try_from(available).unwrap_or(usize::MAX));
        for (index, within, span) in places(offset, wanted) {
            let target = &mut buffer[span];
            let chunk = self.chunks[index].get(within..).unwrap_or_default();
            let held = chunk.len().min(target.len());
            target[..held].copy_from_slice(&chunk[..held]);
            target[held..].fill(0);
        }
        wanted
    }

    /// Writes all of `bytes` at `offset`, growing the file if necessary. The caller has bounded the
    /// new length.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        if end > self.len {
            self.set_len(end);
        }
        for (index, within, span) in places(offset, bytes.len()) {
            let source = &bytes[span];
            let chunk = Arc::make_mut(&mut self.chunks[index]);
            if chunk.len() < within + source.len() {
                chunk.resize(within + source.len(), 0);
            }
            chunk[within..within + source.len()].copy_from_slice(source);
        }
    }

    /// Cuts the file, or extends it with zeroes. The caller has bounded the new length.
    pub(crate) fn set_len(&mut self, len: u64) {
        let count = usize::try_from(len.div_ceil(CHUNK_BYTES as u64)).expect("lengths are bounded");
        self.chunks.truncate(count);
        self.chunks.resize_with(count, Arc::default);
        if len < self.len
            && let Some(last) = self.chunks.last_mut()
        {
            let kept = (len - (count as u64 - 1) * CHUNK_BYTES as u64) as usize;
            if last.len() > kept {
                Arc::make_mut(last).truncate(kept);
            }
        }
        self.len = len;
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len).expect("lengths are bounded")];
        self.read(0, &mut bytes);
        bytes
    }

    /// Returns the chunks for saving; [`Self::from_chunks`] takes them back.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks.iter().map(|chunk| chunk.as_slice())
    }

    /// Returns the file of `len` bytes with these chunks; `None` if they violate E-5.
    pub(crate) fn from_chunks(chunks: Vec<Vec<u8>>, len: u64) -> Option<Self> {
        let places = usize::try_from(len.div_ceil(CHUNK_BYTES as u64)).ok()?;
        let room = |index: usize| (len - (index * CHUNK_BYTES) as u64).min(CHUNK_BYTES as u64);
        let is_sound = chunks.len() == places
            && chunks.iter().enumerate().all(|(index, chunk)| chunk.len() as u64 <= room(index));
        let chunks = chunks.into_iter().map(Arc::new).collect();
        is_sound.then_some(Self { chunks, len })
    }

    /// Whether both hold the same bytes. Doesn't read shared chunks.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let same_chunk = |(a, b): (&Arc<Vec<u8>>, &Arc<Vec<u8>>)| {
            if Arc::ptr_eq(a, b) {
                return true;
            }
            let (shorter, longer) = if a.len() <= b.len() { (a, b) } else { (b, a) };
            let (common, rest) = longer.split_at(shorter.len());
            common == shorter.as_slice() && rest.iter().all(|byte| *byte == 0)
        };
        self.len == other.len && self.chunks.iter().zip(&other.chunks).all(same_chunk)
    }
}

/// Splits `len` bytes from `offset` by chunk: index, offset within the chunk, span of the bytes.
fn places(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let index = usize::try_from(at / CHUNK_BYTES as u64).expect("lengths are bounded");
        let within = (at % CHUNK_BYTES as u64) as usize;
        let count = (CHUNK_BYTES - within).min(len - done);
        let span = done..done + count;
        done += count;
        Some((index, within, span))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Write(u64, Vec<u8>),
        SetLen(u64),
        Read(u64, usize),
        Copy,
    }

    fn step() -> impl Strategy<Value = Step> {
        let at = 0..4 * CHUNK_BYTES as u64;
        let bytes = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..20),
            (any::<u8>(), 0..3 * CHUNK_BYTES).prop_map(|(byte, count)| vec![byte; count]),
        ];
        prop_oneof![
            (at.clone(), bytes).prop_map(|(at, bytes)| Step::Write(at, bytes)),
            at.clone().prop_map(Step::SetLen),
            (at, 0..2 * CHUNK_BYTES).prop_map(|(at, count)| Step::Read(at, count)),
            Just(Step::Copy),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Compares with a plain vector. A copy never sees what happens to the original.
        #[test]
        fn it_behaves_like_a_vector_of_bytes(steps in proptest::collection::vec(step(), 1..12)) {
            let (mut contents, mut model) = (Contents::default(), Vec::new());
            let mut copies = Vec::new();
            for step in steps {
                match step {
                    Step::Write(at, bytes) => {
                        let end = at as usize + bytes.len();
                        if model.len() < end {
                            model.resize(end, 0);
                        }
                        model[at as usize..end].copy_from_slice(&bytes);
                        contents.write(at, &bytes);
                    }
                    Step::SetLen(len) => {
                        model.resize(len as usize, 0);
                        contents.set_len(len);
                    }
                    Step::Read(at, count) => {
                        let mut buffer = vec![7; count];
                        let read = contents.read(at, &mut buffer);
                        let expected = model.get(at as usize..).unwrap_or_default();
                        let expected = &expected[..expected.len().min(count)];
                        prop_assert_eq!(&buffer[..read], expected);
                    }
                    Step::Copy => copies.push((contents.clone(), model.clone())),
                }
                prop_assert_eq!(contents.len(), model.len() as u64);
                let mut same = Contents::default();
                same.write(0, &model);
                prop_assert!(contents.is_same(&same));
            }
            for (copy, model) in copies {
                prop_assert_eq!(copy.to_vec(), model);
            }
        }
    }

    #[test]
    fn growing_allocates_nothing() {
        let mut contents = Contents::default();
        contents.set_len(1 << 30);
        assert!(contents.chunks.iter().all(|chunk| chunk.capacity() == 0));
    }
}
