//! Guest randomness: the system's, or a stream that a seed determines.
//!
//! The stream is BLAKE3's extendable output, keyed by the seed; its whole state is the seed and the
//! position. Everything random in the guest (hash secrets, `random`, numpy, `uuid4`, names of
//! temporary files) is seeded from here.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::errno::{Errno, Result};

/// The context string of BLAKE3's key derivation.
const CONTEXT: &str = "hatchery 2026-11 deterministic guest randomness";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Random {
    System,
    Seeded { key: [u8; 32], position: u64 },
}

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self::Seeded { key: blake3::derive_key(CONTEXT, &seed.to_le_bytes()), position: 0 }
    }

    /// Fills `buffer` with states of generators in the guest, none of which is for secrets. The
    /// system gives 256 bits, and xoshiro256++ makes the rest of them. An interpreter with numpy
    /// draws 5 kB for each job.
    pub(crate) fn fill_states(&mut self, buffer: &mut [u8]) -> Result {
        match self {
            Self::System if buffer.is_empty() => Ok(()),
            Self::System => {
                let mut seed = [0; 32];
                getrandom::fill(&mut seed).map_err(|_| Errno::InputOutput)?;
                SmallRng::from_seed(seed).fill_bytes(buffer);
                Ok(())
            }
            Self::Seeded { .. } => self.fill(buffer),
        }
    }

    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> Result {
        match self {
            Self::System => getrandom::fill(buffer).map_err(|_| Errno::InputOutput),
            Self::Seeded { key, position } => {
                let mut stream = blake3::Hasher::new_keyed(key).finalize_xof();
                stream.set_position(*position);
                stream.fill(buffer);
                *position = position.wrapping_add(buffer.len() as u64);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        random.fill(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_seed_determines_the_stream_however_it_is_read() {
        let whole = bytes(&mut Random::seeded(7), 100);
        let mut again = Random::seeded(7);
        let pieces = [bytes(&mut again, 1), bytes(&mut again, 66), bytes(&mut again, 33)].concat();
        assert_eq!(whole, pieces);
        assert_ne!(whole, bytes(&mut Random::seeded(8), 100));
        assert_ne!(bytes(&mut Random::System, 32), bytes(&mut Random::System, 32));
    }

    #[test]
    fn states_are_the_systems_or_a_part_of_the_stream() {
        let states = |random: &mut Random| {
            let mut states = [0; 64];
            random.fill_states(&mut states).unwrap();
            states
        };
        assert_ne!(states(&mut Random::System), states(&mut Random::System));
        let mut seeded = Random::seeded(7);
        let (first, second) = (states(&mut seeded), states(&mut seeded));
        assert_eq!(bytes(&mut Random::seeded(7), 128), [first, second].concat());
    }
}
