//! Ending a run: everything between the wish to end it and the guest that stops.
//!
//! The life of an interrupt:
//!
//! 1. A caller holds a ticket and asks its [`StopHandle`](stop::StopHandle) to end the run, or the
//!    watchdog (`watchdog.rs`) finds that the run has used up its time. Both name a
//!    [`StopReason`](reason::StopReason).
//! 2. The gate (`gate.rs`) checks that this run is still the one that runs, and keeps the reason.
//! 3. If the program can hear it, the raiser (`raise.rs`) writes an asynchronous
//!    `KeyboardInterrupt` into CPython's thread state and sets the flag that its evaluation loop
//!    polls; a sleeping guest is woken first.
//! 4. The program ends with that exception, or handles it: until the grace period is over.
//! 5. Then the gate takes the guest's memory away, and the next access to it traps.
//! 6. A thread that doesn't come back even so is reported as overdue, and left behind.
//!
//! May use `memory/` and what is beside it.

pub(crate) mod gate;
pub(crate) mod raise;
pub(crate) mod reason;
pub(crate) mod stop;
pub(crate) mod watchdog;
