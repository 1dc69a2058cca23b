//! Frames between a process and one worker process that it doesn't trust, through shared memory.
//!
//! [`create`] makes a memory file with two rings, one each way, each with one producer and one
//! consumer (`layout.rs`). The process keeps one [`Endpoint`] and hands the file to its worker, which
//! gets the other from [`attach`]. A frame is a message of a caller's type in postcard.
//! [`Descriptors`] pass over a Unix socket beside it.
//!
//! The creating end trusts nothing. A position, length, number or message that an honest worker
//! would never send is [`Error::Lied`]. Changes to the shared bytes have no other effect. The
//! attached end is the same code, but trusts its creator to wake it.
//!
//! A killed worker never rings, so the caller ends waits. The creating process has a thread that
//! waits for the worker's end and calls [`Closer::close`]; waits also take deadlines.
//!
//! The parts, from below: `memory.rs` the mapping, `spin.rs` and `wait.rs` waiting, `ring.rs` positions,
//! `sender.rs` and `receiver.rs` frames.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

pub use descriptors::{Descriptors, MOST_DESCRIPTORS};
pub use error::{Error, Lie};
pub use layout::{ChannelConfig, Direction};
pub use receiver::Receiver;
pub use sender::Sender;
pub use spin::SpinWait;
pub use wait::Closer;

use layout::Places;
use memory::Memory;
use ring::{Consumer, Producer};
use wait::{Gate, SharedMapping, Waiter};

mod descriptors;
mod error;
pub mod layout;
mod memory;
mod receiver;
mod ring;
mod sender;
mod spin;
mod wait;

/// One process's end. Its halves may be used by two threads at once.
#[derive(Debug)]
pub struct Endpoint {
    /// Sends to the other process.
    pub sender: Sender,
    /// Receives from the other process.
    pub receiver: Receiver,
    /// Ends the waits of both.
    pub closer: Closer,
}

/// Creates a channel. The file is for the worker: it is closed on exec, and can be closed once the
/// worker has it.
///
/// # Errors
/// The kernel refuses the memory, or the length of a ring isn't a power of two in its bounds.
pub fn create(config: &ChannelConfig) -> io::Result<(Endpoint, OwnedFd)> {
    config.check()?;
    let (memory, file) = Memory::create(layout::length(config))?;
    Ok((Endpoint::new(memory, config, true), file))
}

/// Attaches to a channel that another process created with the same configuration.
///
/// # Errors
/// The file isn't one that [`create`] made with this configuration.
pub fn attach(file: impl AsFd, config: &ChannelConfig) -> io::Result<Endpoint> {
    config.check()?;
    let memory = Memory::attach(file.as_fd(), layout::length(config))?;
    Ok(Endpoint::new(memory, config, false))
}

impl Endpoint {
    fn new(memory: Memory, config: &ChannelConfig, is_creator: bool) -> Self {
        let shared = Arc::new(SharedMapping { memory, gate: Gate::default() });
        let down = (Places::down(config), config.down.longest_frame);
        let up = (Places::up(config), config.up.longest_frame);
        let ((send, longest_sent), (receive, longest_received)) =
            if is_creator { (down, up) } else { (up, down) };
        let waiter = || Waiter::new(is_creator, config.spin);
        let producer = Producer::new(Arc::clone(&shared), send);
        let consumer = Consumer::new(Arc::clone(&shared), receive);
        let closer = Closer::new(Arc::clone(&shared), &send, &receive);
        Self {
            sender: Sender::new(Arc::clone(&shared), producer, waiter(), longest_sent),
            receiver: Receiver::new(shared, consumer, waiter(), longest_received),
            closer,
        }
    }
}
