//! Judges how a run ended. Pure: from what the host knows and what the guest says.

use std::any::Any;

use wasmer::RuntimeError;
use wasmer::sys::vm::TrapCode;

use crate::cause::Cause;
use crate::guest::agent::{self, LeftOutSizes};
use crate::host::env::GuestExit;
use crate::interrupt::gate::{StopCause, Stopped};
use crate::interrupt::reason::StopReason;
use crate::limits::{LimitHit, LimitKind, Limits, milliseconds};
use crate::memory::tunables::GUEST_STACK_BYTES;
use crate::python::module::throws::MOST_THROWS;
use crate::run::outcome::{
    Afterwards, Exception, Outcome, SandboxFailure, Tampering, Usage, Verdict,
};

/// How a run ended, before its usage is known.
#[derive(Debug)]
pub(super) struct Judgement {
    end: RunEnd,
    pub(super) afterwards: Afterwards,
    /// What the reply leaves out.
    pub(super) left_out: LeftOutSizes,
}

#[derive(Debug)]
enum RunEnd {
    Of(Verdict),
    /// It was asked to end, and ended or was stopped. The exception says where it ended.
    Asked(StopReason, Option<Exception>),
}

impl Judgement {
    pub(super) fn is_success(&self) -> bool {
        let is_success = |verdict: &Verdict| {
            matches!(verdict, Verdict::Completed { .. } | Verdict::Exited { code: 0, .. })
        };
        matches!(&self.end, RunEnd::Of(verdict) if is_success(verdict))
    }

    /// Returns the verdict, and where the program was if it was interrupted.
    pub(super) fn verdict(self, limits: &Limits, usage: &Usage) -> (Verdict, Option<Exception>) {
        let (reason, exception) = match self.end {
            RunEnd::Of(verdict) => return (verdict, None),
            RunEnd::Asked(reason, exception) => (reason, exception),
        };
        let limit = match reason {
            StopReason::Interrupted | StopReason::Cancelled => {
                return (Verdict::Cancelled, exception);
            }
            StopReason::WallTime => hit(LimitKind::Wall, limits, milliseconds(usage.wall)),
            StopReason::CpuTime => hit(LimitKind::Cpu, limits, milliseconds(usage.cpu)),
            StopReason::Output => hit(LimitKind::Output, limits, usage.output_bytes),
            StopReason::HostCalls => hit(LimitKind::HostCalls, limits, usage.host_calls),
        };
        (Verdict::Limit(limit), exception)
    }
}

/// Returns the hit of a limit that was reached with `used`.
pub(super) fn hit(limit: LimitKind, limits: &Limits, used: u64) -> LimitHit {
    let allowed = match limit {
        // A deadline ends a run through its wall time; the caller who set it can tell them apart.
        LimitKind::Wall | LimitKind::Deadline => milliseconds(limits.wall_time),
        LimitKind::Cpu => milliseconds(limits.cpu_time.unwrap_or(limits.wall_time)),
        LimitKind::Memory | LimitKind::PoolMemory => (limits.memory_bytes as u64).min(4 << 30),
        LimitKind::Output => limits.output_bytes as u64,
        LimitKind::FileBytes => limits.file_bytes,
        LimitKind::FileCount => limits.file_count,
        LimitKind::OpenFiles => limits.open_files,
        LimitKind::Threads => limits.threads as u64,
        LimitKind::NetworkBytes => limits.network_bytes,
        LimitKind::HostCalls => limits.host_calls,
        LimitKind::FunctionCalls => limits.function_calls,
        LimitKind::FunctionsInFlight => limits.functions_in_flight as u64,
        LimitKind::FunctionArguments => limits.function_argument_bytes as u64,
        LimitKind::FunctionResults => limits.function_result_bytes as u64,
        LimitKind::Source => limits.source_bytes as u64,
        LimitKind::DisplayBytes => limits.display_bytes as u64,
        LimitKind::DisplayCount => limits.display_count as u64,
        LimitKind::Result => limits.result_bytes as u64,
        LimitKind::ResultData => limits.result_data_bytes as u64,
        LimitKind::NativeExceptions => u64::from(MOST_THROWS),
        LimitKind::Stack => GUEST_STACK_BYTES as u64,
    };
    LimitHit::new(limit, allowed, used)
}

/// Judges the end of a run. The arms are in order of trust: what the host knows comes before what
/// the guest says.
pub(super) fn judge(
    ended: Result<Result<i32, TurnFailure>, Box<dyn Any + Send>>,
    asked: StopCause,
    reply: Option<Vec<u8>>,
    limits: &Limits,
) -> Judgement {
    let lost = |end| {
        let left_out = LeftOutSizes::default();
        Judgement { end, afterwards: Afterwards::Lost, left_out }
    };
    let failed = |failure| lost(RunEnd::Of(Verdict::SandboxFailed(failure)));
    match (ended, asked.stop) {
        (Err(panic), _) => failed(SandboxFailure::HostPanic(panic_text(&*panic))),
        (Ok(_), Some(reason)) => lost(RunEnd::Asked(reason, None)),
        (Ok(Err(TurnFailure::Trap(error))), None) => lost(judge_end(judge_trap(error), asked)),
        (Ok(Err(TurnFailure::OutOfThrows)), None) => {
            let most = u64::from(MOST_THROWS);
            let verdict = Verdict::Limit(hit(LimitKind::NativeExceptions, limits, most));
            lost(judge_end(verdict, asked))
        }
        (Ok(Err(failure)), None) => failed(SandboxFailure::Trap(Cause::new(failure))),
        (Ok(Ok(status)), None) => match reply.as_deref().map(|r| agent::parse_reply(r, limits)) {
            Some(Ok(agent::ParsedReply { verdict, left_out })) if status == 0 => {
                let afterwards = Afterwards::Usable;
                Judgement { end: judge_end(verdict, asked), afterwards, left_out }
            }
            Some(Err(tampering)) => lost(RunEnd::Of(Verdict::Tampered(tampering))),
            _ => {
                let what = format!("it ended with status {status} and without a reply");
                lost(RunEnd::Of(Verdict::Tampered(Tampering(what))))
            }
        },
    }
}

/// Judges the program's own end if it noticed an interrupt. The program may handle an interrupt
/// from the caller; a limit counts as reached however the program handled it.
fn judge_end(verdict: Verdict, asked: StopCause) -> RunEnd {
    match (asked.interrupt, verdict) {
        (_, verdict @ (Verdict::SandboxFailed(_) | Verdict::Tampered(_))) => RunEnd::Of(verdict),
        (None | Some(StopReason::Interrupted), verdict) => RunEnd::Of(verdict),
        (Some(reason), Verdict::Raised(exception)) => RunEnd::Asked(reason, Some(*exception)),
        (Some(reason), _) => RunEnd::Asked(reason, None),
    }
}

/// Judges a trap that nobody asked for.
fn judge_trap(error: RuntimeError) -> Verdict {
    let error = match error.downcast::<GuestExit>() {
        Ok(GuestExit(code)) => return Verdict::Exited { code: code as u8, message: None },
        Err(error) => error,
    };
    match error.clone().to_trap() {
        // `abort()`; a signal that the program sends to itself ends here too.
        Some(TrapCode::UnreachableCodeReached) => {
            let message = Some("the program aborted its interpreter".to_owned());
            Verdict::Exited { code: Outcome::ABORTED, message }
        }
        Some(TrapCode::StackOverflow) => {
            let bytes = GUEST_STACK_BYTES as u64;
            Verdict::Limit(LimitHit::new(LimitKind::Stack, bytes, bytes))
        }
        // Programs can crash their interpreter, for instance with forged bytecode.
        Some(trap) => {
            let message = Some(format!("the program crashed its interpreter: {trap}"));
            Verdict::Exited { code: Outcome::CRASHED, message }
        }
        None => {
            let cause = Cause::new(TurnFailure::Trap(error));
            Verdict::SandboxFailed(SandboxFailure::Trap(cause))
        }
    }
}

/// Why a turn didn't return by itself.
#[derive(Debug, thiserror::Error)]
pub(super) enum TurnFailure {
    #[error(transparent)]
    Stopped(#[from] Stopped),
    #[error("the guest has no room for the turn")]
    NoRoom,
    #[error("{}", .0.message())]
    Trap(RuntimeError),
    #[error("code in C++ threw too many exceptions")]
    OutOfThrows,
}

/// Returns the message of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETED: &str = r#"{"kind":"completed","has_value":false,"value":null,"repr":null}"#;
    const RAISED: &str = r#"{"kind":"raised","type":"E","message":"","traceback":"t"}"#;

    fn judged(reply: &str, stop: Option<StopReason>, interrupt: Option<StopReason>) -> String {
        let reply = Some(agent::wire::tests::framed(reply));
        let judgement = judge(Ok(Ok(0)), StopCause { stop, interrupt }, reply, &Limits::default());
        let afterwards = judgement.afterwards;
        let (verdict, at) = judgement.verdict(&Limits::default(), &Usage::default());
        let name = match &verdict {
            Verdict::Limit(hit) => hit.limit.name(),
            verdict => verdict.name(),
        };
        format!("{name} {afterwards:?}{}", if at.is_some() { " at" } else { "" })
    }

    #[test]
    fn what_an_interrupt_makes_of_an_end() {
        use StopReason::{Cancelled, CpuTime, Interrupted, WallTime};
        for (reply, stop, interrupt, expected) in [
            (COMPLETED, None, None, "completed Usable"),
            (RAISED, None, None, "raised Usable"),
            (COMPLETED, None, Some(Interrupted), "completed Usable"),
            (RAISED, None, Some(Interrupted), "raised Usable"),
            (COMPLETED, None, Some(WallTime), "wall Usable"),
            (RAISED, None, Some(CpuTime), "cpu Usable at"),
            (RAISED, None, Some(Cancelled), "cancelled Usable at"),
            (COMPLETED, Some(WallTime), Some(WallTime), "wall Lost"),
            (COMPLETED, Some(Interrupted), None, "cancelled Lost"),
            ("{", None, Some(WallTime), "tampered Lost"),
        ] {
            assert_eq!(judged(reply, stop, interrupt), expected);
        }
    }
}
