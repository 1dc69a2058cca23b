//! `poll_oneoff`, which is how a guest sleeps.
//!
//! Standard streams and in-memory files are always ready, so only clocks need a wait. The caller
//! does the waiting, which ends early when the run is interrupted.
//!
//! Layouts: WASI preview 1, `subscription` (48 bytes) and `event` (32 bytes).

use std::time::Duration;

use super::Wasi;
use super::bytes::GuestBytes;
use super::clock::Clock;
use crate::errno::Errno;

const SUBSCRIPTION_BYTES: u32 = 48;
const EVENT_BYTES: u32 = 32;
/// The most subscriptions in a call. CPython polls one clock and a few descriptors.
const MOST_SUBSCRIPTIONS: u32 = 1024;
const EVENT_CLOCK: u8 = 0;
const ABSOLUTE: u16 = 1;

/// What a guest polls for.
#[derive(Debug)]
pub(crate) struct Poll {
    subscriptions: Vec<Subscription>,
    /// The time until the first event, on the guest's clock.
    after: Duration,
    /// The part of it that the caller must wait.
    pub(crate) wait: Duration,
}

impl Wasi {
    /// Reads the guest's subscriptions.
    pub(crate) fn poll_begin(
        &mut self,
        guest: GuestBytes<'_>,
        subscriptions: u32,
        count: u32,
    ) -> Result<Poll, Errno> {
        if count == 0 || count > MOST_SUBSCRIPTIONS {
            return Err(Errno::Invalid);
        }
        let mut read = Vec::with_capacity(count as usize);
        for index in 0..count {
            let at = subscriptions.checked_add(index * SUBSCRIPTION_BYTES).ok_or(Errno::Fault)?;
            let mut one = Subscription::parse(&guest.read(at)?, &mut self.clock);
            if one.fd.is_some_and(|fd| self.open.get(fd).is_err()) {
                one.error = Errno::BadDescriptor as u16;
            }
            read.push(one);
        }
        let has_ready = read.iter().any(|one| one.ready_in.is_none());
        let shortest = read.iter().filter_map(|one| one.ready_in).min();
        let after = shortest.filter(|_| !has_ready).unwrap_or_default();
        let wait = self.clock.sleep(after);
        Ok(Poll { subscriptions: read, after, wait })
    }

    /// Writes the events that have happened. After an interrupted wait, writes those that would
    /// have happened first: the guest continues and meets the interrupt.
    pub(crate) fn poll_end(
        &mut self,
        guest: GuestBytes<'_>,
        poll: &Poll,
        events: u32,
        out_count: u32,
    ) -> Result<(), Errno> {
        let mut happened = 0;
        for one in &poll.subscriptions {
            if one.ready_in.is_none_or(|duration| duration <= poll.after) {
                let at = events.checked_add(happened * EVENT_BYTES).ok_or(Errno::Fault)?;
                guest.write(at, &one.event())?;
                happened += 1;
            }
        }
        guest.write_u32(out_count, happened)
    }
}

/// One subscription of the guest.
#[derive(Debug)]
struct Subscription {
    userdata: [u8; 8],
    kind: u8,
    /// The descriptor, if the subscription isn't for a clock.
    fd: Option<u32>,
    error: u16,
    /// The time until the event; `None` if it has happened.
    ready_in: Option<Duration>,
}

impl Subscription {
    fn parse(bytes: &[u8; SUBSCRIPTION_BYTES as usize], clock: &mut Clock) -> Self {
        let (userdata, kind) = (field(bytes, 0), bytes[8]);
        let ready = Self { userdata, kind, fd: None, error: 0, ready_in: None };
        if kind != EVENT_CLOCK {
            return Self { fd: Some(u32::from_le_bytes(field(bytes, 16))), ..ready };
        }
        let id = u32::from_le_bytes(field(bytes, 16));
        let timeout = u64::from_le_bytes(field(bytes, 24));
        let flags = u16::from_le_bytes(field(bytes, 40));
        let wait = match flags & ABSOLUTE {
            0 if Clock::is_clock(id) => Some(timeout),
            0 => None,
            _ => clock.read(id).map(|now| timeout.saturating_sub(now)),
        };
        match wait {
            Some(wait) => Self { ready_in: Some(Duration::from_nanos(wait)), ..ready },
            None => Self { error: Errno::Invalid as u16, ..ready },
        }
    }

    fn event(&self) -> [u8; EVENT_BYTES as usize] {
        let mut event = [0; EVENT_BYTES as usize];
        event[..8].copy_from_slice(&self.userdata);
        event[8..10].copy_from_slice(&self.error.to_le_bytes());
        event[10] = self.kind;
        event
    }
}

fn field<const N: usize>(bytes: &[u8; SUBSCRIPTION_BYTES as usize], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the field is inside the subscription")
}
