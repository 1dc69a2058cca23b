//! Why a process couldn't be confined at all. What the kernel doesn't offer is no error, but part of
//! the report.

use std::io;
use std::os::fd::RawFd;

/// A process isn't confined, and must not run a guest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// Only the calling thread would be confined.
    #[error("the process has more than one thread, and only the calling one would be confined")]
    Threads,
    /// The parent ended before it was sure that this process ends with it.
    #[error("the parent process has ended")]
    ParentGone,
    /// A descriptor that the process may not keep.
    #[error("descriptor {descriptor} can't be kept: {reason}")]
    Descriptor {
        /// Its number.
        descriptor: RawFd,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A descriptor that the process can't ask about.
    #[error("descriptor {descriptor} can't be examined")]
    Unknown {
        /// Its number.
        descriptor: RawFd,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// The table of system calls makes no filter.
    #[error("the filter of system calls can't be built")]
    Filter(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A step failed that every supported kernel can do.
    #[error("can't {step}")]
    Step {
        /// What the process was to do.
        step: &'static str,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
}
