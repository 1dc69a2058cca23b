//! Checks a table of descriptors as a whole.

use super::*;

impl Descriptors {
    pub(crate) fn check_invariants(&self) {
        for (index, shared) in self.opens.iter().enumerate() {
            let named =
                self.slots.iter().flatten().filter(|slot| slot.open as usize == index).count();
            assert_eq!(shared.as_ref().map_or(0, |shared| shared.count as usize), named);
            if let Some(SharedOpen { open: Open::Channel(channel), .. }) = shared {
                assert!(channel.receives.is_none_or(|pipe| self.pipes.get(pipe).has_reader));
                assert!(channel.sends.is_none_or(|pipe| self.pipes.get(pipe).has_writer));
            }
        }
    }
}
