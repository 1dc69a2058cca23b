//! Replaces `process.rs` on other systems.
#![expect(unsafe_code, reason = "the same interface as where it is offered")]

use crate::call::Call;
use crate::confinement::{ConfineError, Confinement, Separation};
use crate::report::{Layer, Report};

/// The system calls that a confined process may make: there is no filter here.
pub const CALLS: &[Call] = &[];

const NOT_HERE: &str = "only Linux on x86-64 with the GNU C library has it";

/// Reports that this system offers nothing.
///
/// # Errors
/// None here.
///
/// # Safety
/// As where it is offered; here it does nothing.
pub unsafe fn confine(_confinement: &Confinement<'_>) -> Result<Report, ConfineError> {
    Ok(report(Layer::ALL))
}

/// Reports that this system offers nothing.
///
/// # Errors
/// None here.
pub fn separate() -> Result<Separation, ConfineError> {
    Ok(Separation { report: report(&Layer::INHERITED), keeper: None })
}

/// Does nothing.
pub fn use_one_heap() {}

/// Does nothing: the other form is for one C library.
pub fn reuse_large_blocks() {}

fn report(layers: &[Layer]) -> Report {
    let mut report = Report::default();
    for layer in layers {
        report.record(*layer, Err(NOT_HERE));
    }
    report
}
