//! What a caller asks for.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::AtomicU32;

use crate::report::Report;

/// How a process is to be confined, written as a literal that ends in `..Confinement::of_child(…)`.
#[derive(Debug, Clone, Copy)]
pub struct Confinement<'a> {
    /// The descriptors that stay open; all others are closed. None may be a folder. Sockets must be
    /// connected Unix sockets of a stream or of packets. Standard streams that aren't listed read
    /// as empty from then on, and can't be written to.
    pub keep: &'a [BorrowedFd<'a>],
    /// How many further descriptors may be open at once, such as those of memory files and files of
    /// its parent.
    pub new_descriptors: u64,
    /// The most bytes of private memory that it may write to, as `RLIMIT_DATA` counts it. `None`
    /// leaves it unlimited. Files in memory don't count.
    pub private_bytes: Option<u64>,
    /// The most bytes of any file that it writes to, memory files included. More ends it with
    /// `SIGXFSZ`.
    pub file_bytes: u64,
    /// The most threads of the process, the first one included. The kernel counts those of a user
    /// in a user namespace. So this holds where the process could get one of its own, and doesn't
    /// hold for root.
    pub threads: u64,
    /// The process id of the parent, as the parent itself reads it. The process is killed when the
    /// parent's thread ends that forked it.
    pub parent: u32,
    /// What the parent shares with its children. With `None` all namespaces of the process are its
    /// own. That takes longer, and leaves out the one of process ids.
    pub separation: Option<&'a Separation>,
    /// Where the process writes the system call that it is killed for, in memory that it shares
    /// with its parent. 0 until then. [`RefusedCall::read`](crate::RefusedCall::read) reads it.
    pub refused: Option<&'static AtomicU32>,
}

impl Confinement<'_> {
    /// Returns what a child of this parent gets unless its fields are changed. It has no
    /// descriptors, no files, and two threads.
    pub fn of_child(parent: u32) -> Self {
        Self {
            keep: &[],
            new_descriptors: 0,
            private_bytes: None,
            file_bytes: 0,
            threads: 2,
            parent,
            separation: None,
            refused: None,
        }
    }
}

/// The namespaces that a process has made for its children.
#[derive(Debug, Clone)]
#[must_use = "a child's confinement needs it"]
#[non_exhaustive]
pub struct Separation {
    /// Which namespaces the kernel granted.
    pub report: Report,
    /// The process id of the child that keeps the namespace of process ids alive, if there is one.
    /// It sleeps, and is killed when its parent ends. If it ends first, the kernel kills all
    /// processes in the namespace, and no further one can be forked.
    pub keeper: Option<u32>,
}

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
