//! Shards of a batch: which lines one of several processes takes.
//!
//! A digest of a line's text decides its shard. So lines can be added, removed and reordered
//! without moving others, and no process needs to know of another.

use std::str::FromStr;

/// The most shards of a batch. Each reads all lines, so more only cost.
const MOST_SHARDS: u32 = 100_000;

/// One of several shards, such as shard 2 of 8. It is written `2/8`.
///
/// ```
/// let shard: batch::Shard = "2/8".parse()?;
/// assert_eq!(shard.to_string(), "2/8");
/// # Ok::<(), batch::InvalidShard>(())
/// ```
#[derive(Debug, derive_more::Display, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[display("{index}/{count}")]
pub struct Shard {
    /// From 1.
    index: u32,
    count: u32,
}

/// A text is no shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidShard {
    /// It has another form, or its numbers are out of range.
    #[error("write K/N, such as 2/8: shard K of N, counted from 1, N up to {MOST_SHARDS}")]
    Form,
    /// It counts from 0.
    #[error("shards count from 1: add 1 to an index that counts from 0")]
    Zero,
}

impl Shard {
    /// Returns how many shards there are.
    pub fn count(self) -> u32 {
        self.count
    }

    /// Returns the shard of a line, of `count`, which is at least 1.
    pub(crate) fn of(line: &[u8], count: u32) -> Self {
        let hash = blake3::hash(line.trim_ascii());
        let mut digits = [0; 8];
        digits.copy_from_slice(&hash.as_bytes()[..8]);
        let index = u64::from_le_bytes(digits) % u64::from(count);
        // Below `count`, which fits.
        Self { index: index as u32 + 1, count }
    }

    /// Returns the shard of a line that is too long to be kept, by its number.
    pub(crate) fn of_too_long(number: usize, count: u32) -> Self {
        Self::of(number.to_string().as_bytes(), count)
    }

    /// Returns whether a line belongs to this shard.
    pub fn has(self, line: &[u8]) -> bool {
        Self::of(line, self.count) == self
    }
}

impl FromStr for Shard {
    type Err = InvalidShard;

    fn from_str(text: &str) -> Result<Self, InvalidShard> {
        let (index, count) = text.split_once('/').ok_or(InvalidShard::Form)?;
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse::<u32>().ok()).flatten().ok_or(InvalidShard::Form)
        };
        let (index, count) = (number(index)?, number(count)?);
        if index == 0 {
            return Err(InvalidShard::Zero);
        }
        if index > count || count > MOST_SHARDS {
            return Err(InvalidShard::Form);
        }
        Ok(Self { index, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_written_as_it_is_read() {
        for text in ["1/1", "2/8", "100000/100000"] {
            assert_eq!(text.parse::<Shard>().unwrap().to_string(), text);
        }
        for wrong in ["", "1", "/", "1/", "/2", "3/2", "+1/2", "-1/2", "1/100001", "1/2/3", "1/x"] {
            assert_eq!(wrong.parse::<Shard>(), Err(InvalidShard::Form), "{wrong}");
        }
        assert_eq!("0/4".parse::<Shard>(), Err(InvalidShard::Zero));
    }

    #[test]
    fn each_line_is_in_one_shard_and_shards_are_about_as_large() {
        let mut sizes = [0; 7];
        for number in 0..7000 {
            let line = format!("{{\"code\": \"{number}\"}}");
            let shards: Vec<Shard> = (1..=7)
                .map(|index| Shard { index, count: 7 })
                .filter(|s| s.has(line.as_bytes()))
                .collect();
            let [shard] = shards[..] else { panic!("{line} is in {shards:?}") };
            assert_eq!(shard, Shard::of(format!(" {line}\r\n").as_bytes(), 7), "white space");
            sizes[shard.index as usize - 1] += 1;
        }
        assert!(sizes.iter().all(|size| (900..1100).contains(size)), "{sizes:?}");
        assert_eq!(Shard::of_too_long(3, 7), Shard::of(b"3", 7));
    }
}
