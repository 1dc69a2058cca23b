//! What tests of this wing begin with.

use std::sync::Arc;

use crate::interrupt::gate::Gate;
use crate::memory::{GuestMemory, WASM_PAGE_BYTES};

/// Returns a gate that guards one page.
pub(super) fn gate() -> Arc<Gate> {
    let gate = Gate::new();
    gate.guard(Arc::new(GuestMemory::new(WASM_PAGE_BYTES).expect("a page can be mapped")));
    Arc::new(gate)
}
