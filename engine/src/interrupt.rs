//! Ending a run: everything between the request to end it and the guest that stops.
//!
//! The life of an interrupt, from a ticket to `KeyboardInterrupt`:
//!
//! 1. A ticket's holder asks the run's [`StopHandle`](stop::StopHandle), with a
//!    [`StopReason`](reason::StopReason). Before the run begins, the handle keeps the request.
//! 2. The handle asks the watchdog (`watchdog.rs`). So do the run's host functions at the limits on
//!    output or host calls. The watchdog does so at limits on time. The grace period begins.
//! 3. The gate (`gate.rs`) checks that this run hasn't ended, keeps the first reason, and wakes a
//!    guest that sleeps.
//! 4. As soon as the guest runs the program's own code, the raiser (`raise.rs`) writes a
//!    `KeyboardInterrupt` into CPython's thread state. It sets the flag that the evaluation loop
//!    polls. The watchdog has the flag set again until CPython has noticed.
//! 5. The program ends with that exception, or handles it, until the grace period is over.
//! 6. Then the gate stops the run: it revokes the guest's memory, and the next access to it traps.
//!    `StopHandle::stop` begins here.
//! 7. A thread that doesn't come back even then is overdue, and is left behind.
//!
//! May use `memory/` and the files beside it.

pub(crate) mod futex;
pub(crate) mod gate;
pub(crate) mod here;
pub(crate) mod raise;
pub(crate) mod reason;
pub(crate) mod stop;
pub(crate) mod watchdog;
