//! `poll_oneoff`, which is how a guest sleeps.
//!
//! Standard streams and in-memory files are always ready; pipes and sockets in memory change only
//! by the guest itself. So only clocks and connections need a wait. If the guest has other threads,
//! the caller checks again whenever a pipe has changed. The caller waits, and an interrupt ends the
//! wait early.
//!
//! Layouts: WASI preview 1, `subscription` (48 bytes) and `event` (32 bytes).

use std::collections::BTreeSet;
use std::time::Duration;

use super::Wasi;
use super::clock::Clock;
use crate::errno::{Errno, Result};
use crate::host::network::socket::Readiness;
use crate::host::network::watch::Want;

const SUBSCRIPTION_BYTES: u32 = 48;
const EVENT_BYTES: u32 = 32;
/// The most subscriptions in a call. CPython polls one clock and a few descriptors.
const MOST_SUBSCRIPTIONS: u32 = 1024;
const EVENT_CLOCK: u8 = 0;
const EVENT_READ: u8 = 1;
const EVENT_WRITE: u8 = 2;
/// WASIX's event for urgent data, which nothing here ever has.
const EVENT_URGENT: u8 = 3;
const HUNG_UP: u16 = 1;
const ABSOLUTE: u16 = 1;

#[derive(Debug)]
pub(crate) struct Poll {
    subscriptions: Vec<Subscription>,
    /// The time until the first event, on the guest's clock; `None` if none is sure to happen.
    after: Option<Duration>,
    /// What the guest's clock showed when the poll began, in nanoseconds.
    begun: u64,
    /// What the caller must wait; `None` until another thread does something.
    pub(crate) wait: Option<Duration>,
}

impl Wasi {
    /// Reads the guest's subscriptions. `is_alone`: the guest has one thread.
    pub(crate) fn poll_begin(
        &mut self,
        subscriptions: u32,
        count: u32,
        is_alone: bool,
    ) -> Result<Poll> {
        if count == 0 || count > MOST_SUBSCRIPTIONS {
            return Err(Errno::Invalid);
        }
        let mut read = Vec::with_capacity(count as usize);
        for index in 0..count {
            let at = subscriptions.checked_add(index * SUBSCRIPTION_BYTES).ok_or(Errno::Fault)?;
            let bytes = self.guest.read(at)?;
            read.push(match bytes[8] {
                EVENT_CLOCK => Subscription::of_clock(&bytes, &mut self.clock),
                _ => self.subscription_of_descriptor(bytes),
            });
        }
        let after = soonest(&read);
        let has_connection = || !self.awaited(&read).is_empty();
        if after.is_none() && is_alone && !has_connection() {
            // Without a clock and anything ready, it would wait for itself.
            return Err(Errno::Deadlock);
        }
        let begun = self.clock.passed();
        let wait = after.map(|after| self.clock.sleep(after));
        Ok(Poll { subscriptions: read, after, begun, wait })
    }

    pub(crate) fn poll_wants(&self, poll: &Poll) -> Vec<Want> {
        self.awaited(&poll.subscriptions)
    }

    fn awaited(&self, subscriptions: &[Subscription]) -> Vec<Want> {
        let open = subscriptions.iter().filter(|one| one.happens_in.is_none());
        let want = |one: &Subscription| {
            let fd = u32::from_le_bytes(field(one.descriptor.as_ref()?, 16));
            match one.kind {
                EVENT_READ => self.poll_want(fd, false),
                EVENT_WRITE => self.poll_want(fd, true),
                _ => None,
            }
        };
        // A socket that is polled for twice is awaited once.
        let mut seen = BTreeSet::new();
        open.filter(|one| {
            let fd = one.descriptor.as_ref().map(|raw| field::<4>(raw, 16));
            seen.insert((one.kind, fd))
        })
        .filter_map(want)
        .collect()
    }

    /// Looks at the descriptors again, after a connection or another thread has changed something.
    pub(crate) fn poll_again(&mut self, poll: &mut Poll) {
        for one in &mut poll.subscriptions {
            if let Some(raw) = one.descriptor {
                *one = self.subscription_of_descriptor(raw);
            }
        }
        poll.after = soonest(&poll.subscriptions);
        let passed = Duration::from_nanos(self.clock.passed().saturating_sub(poll.begun));
        poll.wait = poll.after.map(|after| after.saturating_sub(passed));
    }

    /// Writes the events that have happened. After an interrupted wait, writes those that would
    /// have happened first: the guest continues and meets the interrupt.
    pub(crate) fn poll_end(&mut self, poll: &Poll, events: u32, out_count: u32) -> Result {
        let mut happened = 0;
        for one in &poll.subscriptions {
            if one.happens_in.is_some_and(|duration| Some(duration) <= poll.after) {
                let at = events.checked_add(happened * EVENT_BYTES).ok_or(Errno::Fault)?;
                self.guest.write(at, &one.event())?;
                happened += 1;
            }
        }
        self.guest.write_u32(out_count, happened)
    }

    fn subscription_of_descriptor(&self, bytes: RawSubscription) -> Subscription {
        let kind = bytes[8];
        let fd = u32::from_le_bytes(field(&bytes, 16));
        let found = match kind {
            EVENT_READ | EVENT_WRITE => self.readiness(fd, kind == EVENT_WRITE),
            EVENT_URGENT => self.readiness(fd, false).map(|_| Readiness::default()),
            _ => Err(Errno::Invalid),
        };
        let (error, found) = match found {
            Ok(found) => (0, found),
            Err(errno) => (errno as u16, Readiness { is_ready: true, ..Readiness::default() }),
        };
        let happens_in = found.is_ready.then_some(Duration::ZERO);
        let userdata = field(&bytes, 0);
        Subscription { userdata, kind, error, happens_in, found, descriptor: Some(bytes) }
    }
}

type RawSubscription = [u8; SUBSCRIPTION_BYTES as usize];

fn soonest(subscriptions: &[Subscription]) -> Option<Duration> {
    subscriptions.iter().filter_map(|one| one.happens_in).min()
}

#[derive(Debug)]
struct Subscription {
    userdata: [u8; 8],
    kind: u8,
    error: u16,
    /// The time until the event; zero if it has happened, `None` if it can't.
    happens_in: Option<Duration>,
    /// Of a descriptor.
    found: Readiness,
    /// What the guest asked for, if it is a descriptor.
    descriptor: Option<RawSubscription>,
}

impl Subscription {
    fn of_clock(bytes: &RawSubscription, clock: &mut Clock) -> Self {
        let id = u32::from_le_bytes(field(bytes, 16));
        let timeout = u64::from_le_bytes(field(bytes, 24));
        let flags = u16::from_le_bytes(field(bytes, 40));
        let wait = match flags & ABSOLUTE {
            0 if Clock::is_clock(id) => Some(timeout),
            0 => None,
            _ => clock.read(id).map(|now| timeout.saturating_sub(now)),
        };
        let error = if wait.is_none() { Errno::Invalid as u16 } else { 0 };
        let happens_in = Some(Duration::from_nanos(wait.unwrap_or_default()));
        let userdata = field(bytes, 0);
        let found = Readiness::default();
        Self { userdata, kind: EVENT_CLOCK, error, happens_in, found, descriptor: None }
    }

    fn event(&self) -> [u8; EVENT_BYTES as usize] {
        let mut event = [0; EVENT_BYTES as usize];
        event[..8].copy_from_slice(&self.userdata);
        event[8..10].copy_from_slice(&self.error.to_le_bytes());
        event[10] = self.kind;
        event[16..24].copy_from_slice(&self.found.bytes.to_le_bytes());
        let flags = if self.found.is_hung_up { HUNG_UP } else { 0 };
        event[24..26].copy_from_slice(&flags.to_le_bytes());
        event
    }
}

fn field<const N: usize>(bytes: &RawSubscription, at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the field is inside the subscription")
}
