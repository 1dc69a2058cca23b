//! Stands in for `faults.rs` where signals aren't Linux's: whoever changes handlers takes wasmer's
//! away, and sent signals count as faults.

pub(crate) fn install_around<T>(begin: impl FnOnce() -> T) -> T {
    begin()
}

pub(crate) fn put_back() {}

/// Says that nobody else changes handlers in this process.
pub fn own_handlers() {}
