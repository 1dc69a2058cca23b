//! The process that owns something.
//!
//! A fork copies a process's memory, but only the thread that forks. So in the child a pool has no
//! threads, and their locks stay locked; its files are still the parent's. Code that could wait for
//! a thread, or change such a file, checks here first.

/// The process in which something was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerProcess {
    id: u32,
}

impl OwnerProcess {
    /// Returns this process.
    pub fn current() -> Self {
        Self { id: std::process::id() }
    }

    /// Returns whether this is still that process, and not a child that was forked from it.
    pub fn is_current(self) -> bool {
        self == Self::current()
    }

    /// Returns the process's id.
    pub fn id(self) -> u32 {
        self.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl OwnerProcess {
        pub(crate) fn other() -> Self {
            Self { id: 0 }
        }
    }

    #[test]
    fn a_process_knows_what_it_owns() {
        let owner = OwnerProcess::current();
        assert_eq!((owner, owner.id()), (OwnerProcess::current(), std::process::id()));
        assert!(owner.is_current() && !OwnerProcess::other().is_current());
    }
}
