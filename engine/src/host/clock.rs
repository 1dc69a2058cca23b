//! Guest time: the clocks, and `poll_oneoff`, which is how a guest sleeps.
//!
//! wasmer-wasix's own `poll_oneoff` sleeps for ever on a timeout of zero and compares deadlines of
//! the real-time clock with the monotonic one, so it is replaced whoever hosts the rest. This one
//! knows clocks only: standard streams and files in memory are always ready.
//!
//! Layouts: WASI preview 1, `subscription` (48 bytes) and `event` (32 bytes).

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wasmer::{FunctionEnvMut, MemoryView, RuntimeError};

use super::{GuestEnv, HostFault, errno, with_memory};

const REALTIME: i32 = 0;
const MONOTONIC: i32 = 1;

const SUBSCRIPTION_BYTES: u64 = 48;
const EVENT_BYTES: u64 = 32;
/// CPython waits for one clock and a few descriptors; a guest that sends more is refused.
const MOST_SUBSCRIPTIONS: u32 = 1024;
const EVENT_CLOCK: u8 = 0;
const ABSOLUTE: u16 = 1;

/// The clocks of one guest.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "guest time comes from the real clock")]
    pub(crate) fn new() -> Self {
        Self { started: Instant::now() }
    }

    /// Nanoseconds on clock `id`, if there is such a clock.
    fn now(&self, id: i32) -> Option<u64> {
        match id {
            REALTIME => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Some(nanoseconds(since))
            }
            MONOTONIC => Some(nanoseconds(self.started.elapsed())),
            _ => None,
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// `clock_time_get(id, precision, out) -> errno`.
pub(crate) fn clock_time_get(
    mut context: FunctionEnvMut<'_, GuestEnv>,
    id: i32,
    _precision: i64,
    out: i32,
) -> Result<i32, RuntimeError> {
    with_memory(&mut context, |memory, clock, _| {
        let Some(now) = clock.now(id) else { return Ok(errno::INVALID) };
        memory.write(address(out), &now.to_le_bytes())?;
        Ok(errno::SUCCESS)
    })
}

/// `clock_res_get(id, out) -> errno`.
pub(crate) fn clock_res_get(
    mut context: FunctionEnvMut<'_, GuestEnv>,
    id: i32,
    out: i32,
) -> Result<i32, RuntimeError> {
    with_memory(&mut context, |memory, clock, _| {
        if clock.now(id).is_none() {
            return Ok(errno::INVALID);
        }
        memory.write(address(out), &1_u64.to_le_bytes())?;
        Ok(errno::SUCCESS)
    })
}

/// `poll_oneoff(subscriptions, events, count, out_count) -> errno`.
pub(crate) fn poll_oneoff(
    mut context: FunctionEnvMut<'_, GuestEnv>,
    subscriptions: i32,
    events: i32,
    count: i32,
    out_count: i32,
) -> Result<i32, RuntimeError> {
    with_memory(&mut context, |memory, clock, gate| {
        let count = count.cast_unsigned();
        if count == 0 || count > MOST_SUBSCRIPTIONS {
            return Ok(errno::INVALID);
        }
        let mut subscribed = Vec::with_capacity(count as usize);
        for index in 0..u64::from(count) {
            let at = address(subscriptions) + index * SUBSCRIPTION_BYTES;
            subscribed.push(Subscription::read(memory, at, clock)?);
        }
        let has_ready = subscribed.iter().any(|one| one.ready_in.is_none());
        let shortest = subscribed.iter().filter_map(|one| one.ready_in).min();
        let waited = match (has_ready, shortest) {
            (false, Some(duration)) => {
                gate.sleep(duration)?;
                duration
            }
            _ => Duration::ZERO,
        };
        let mut happened = 0_u32;
        for one in &subscribed {
            if one.ready_in.is_none_or(|duration| duration <= waited) {
                let at = address(events) + u64::from(happened) * EVENT_BYTES;
                memory.write(at, &one.event())?;
                happened += 1;
            }
        }
        memory.write(address(out_count), &happened.to_le_bytes())?;
        Ok(errno::SUCCESS)
    })
}

/// What the guest waits for.
struct Subscription {
    userdata: [u8; 8],
    kind: u8,
    error: u16,
    /// How long from now until it happens; `None` if it has happened.
    ready_in: Option<Duration>,
}

impl Subscription {
    fn read(memory: &MemoryView<'_>, at: u64, clock: &Clock) -> Result<Self, HostFault> {
        let mut bytes = [0_u8; SUBSCRIPTION_BYTES as usize];
        memory.read(at, &mut bytes)?;
        let userdata = field(&bytes, 0);
        let kind = bytes[8];
        let ready = Self { userdata, kind, error: 0, ready_in: None };
        if kind != EVENT_CLOCK {
            return Ok(ready);
        }
        let id = i32::from_le_bytes(field(&bytes, 16));
        let timeout = u64::from_le_bytes(field(&bytes, 24));
        let flags = u16::from_le_bytes(field(&bytes, 40));
        let Some(now) = clock.now(id) else {
            return Ok(Self { error: errno::INVALID as u16, ..ready });
        };
        let wait = if flags & ABSOLUTE != 0 { timeout.saturating_sub(now) } else { timeout };
        Ok(Self { ready_in: Some(Duration::from_nanos(wait)), ..ready })
    }

    fn event(&self) -> [u8; EVENT_BYTES as usize] {
        let mut event = [0_u8; EVENT_BYTES as usize];
        event[..8].copy_from_slice(&self.userdata);
        event[8..10].copy_from_slice(&self.error.to_le_bytes());
        event[10] = self.kind;
        event
    }
}

fn field<const N: usize>(bytes: &[u8; SUBSCRIPTION_BYTES as usize], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the field is inside of the subscription")
}

/// A pointer of the guest: 32 bits without a sign.
pub(crate) fn address(pointer: i32) -> u64 {
    u64::from(pointer.cast_unsigned())
}
