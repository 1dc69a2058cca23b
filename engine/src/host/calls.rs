//! Host function calls: the guest begins calls, waits for them to end, and cancels them.
//!
//! A wait is the only request that takes time. Like a sleep, it ends early when the run is
//! interrupted. While the guest waits for a line of standard input, the run's wall time is paused.
//! A virtual clock stands still during a wait and advances by the whole timeout when the wait times
//! out. With no call in flight, it advances at once.

use std::sync::Arc;
use std::time::Duration;

use super::call_channel::Ask;
use super::env::GuestEnv;
use crate::interrupt::gate::Woken;
use crate::run::egress;
use crate::run::functions::calls::{Calls, WaitResult, encode, encode_begun, nothing_to_call};

/// Serves one request on the host's side of the gate; `calls` is `None` if the run has no host
/// functions.
pub(super) fn serve(env: &GuestEnv, calls: Option<&Arc<Calls>>, ask: Ask) -> Vec<u8> {
    match (ask, calls) {
        (Ask::Call(call), Some(calls)) => encode_begun(calls.begin(&call)),
        (Ask::CallTooLong(length), Some(calls)) => {
            encode_begun(Err(calls.refuse_arguments(length)))
        }
        (Ask::Call(_) | Ask::CallTooLong(_), None) => encode_begun(Err(nothing_to_call())),
        (Ask::Wait { time, ticket }, _) => wait(env, calls.map(Arc::as_ref), time, ticket),
        (Ask::Cancel(ticket), calls) => {
            if let Some(calls) = calls {
                calls.cancel(ticket);
            }
            Vec::new()
        }
        (Ask::Wake, _) => {
            env.channel.lock().is_woken = true;
            env.gate.gate().wake();
            Vec::new()
        }
        (Ask::Net(frame), calls) => egress::encode(match calls {
            Some(calls) => calls.operate(&frame),
            None => Ok(egress::no_network()),
        }),
        (Ask::Functions, Some(calls)) => calls.table(),
        (Ask::Functions, None) => crate::run::functions::HostFunctions::default().table(),
    }
}

/// Waits for a call to end; the answer is empty if none has.
fn wait(
    env: &GuestEnv,
    calls: Option<&Calls>,
    time: Option<Duration>,
    ticket: Option<u32>,
) -> Vec<u8> {
    let found = calls.map_or(WaitResult::Idle, |calls| calls.look(ticket));
    match (found, calls) {
        (WaitResult::Ended(ended), _) => return encode(&ended),
        (WaitResult::Pending, Some(calls)) => {
            let is_reading = ticket.is_some_and(|ticket| calls.is_reading(ticket));
            let _pause = if is_reading { env.control.pause() } else { None };
            let is_woken = || ticket.is_none() && env.channel.lock().is_woken;
            match env.gate.wait(time, || calls.has_ended(ticket) || is_woken()) {
                Woken::Ready => {
                    if ticket.is_none() {
                        env.channel.lock().is_woken = false;
                    }
                    if let WaitResult::Ended(ended) = calls.look(ticket) {
                        return encode(&ended);
                    }
                }
                Woken::TimeOver => {
                    calls.waited_in_vain();
                    // A real clock has advanced by itself.
                    env.wasi.lock().clock.sleep(time.unwrap_or_default());
                }
                Woken::Asked => calls.waited_in_vain(),
            }
        }
        (WaitResult::NotNow, Some(calls)) if time.is_none() => {
            return encode(&calls.fail_in_replay(ticket));
        }
        // The call's end was already delivered, or the call never began.
        (WaitResult::Idle, _) if ticket.is_some() => {}
        (WaitResult::Idle | WaitResult::NotNow | WaitResult::Pending, _) => match time {
            Some(time) => {
                let rest = env.wasi.lock().clock.sleep(time);
                if !rest.is_zero() {
                    wait_to_be_woken(env, Some(rest), ticket);
                }
            }
            // Nothing can happen until another thread does something, or the run is asked to end.
            None => wait_to_be_woken(env, None, ticket),
        },
    }
    Vec::new()
}

/// Waits for time, or until another thread wakes the one that waits for any call.
fn wait_to_be_woken(env: &GuestEnv, time: Option<Duration>, ticket: Option<u32>) {
    env.gate.wait(time, || ticket.is_none() && env.channel.lock().is_woken);
    if ticket.is_none() {
        env.channel.lock().is_woken = false;
    }
}
