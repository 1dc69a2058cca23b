//! What tests of this wing start with.

use std::sync::Arc;

use crate::interrupt::gate::Gate;
use crate::interrupt::raise::Raiser;
use crate::memory::{GuestMemory, WASM_PAGE_BYTES};

/// Returns a gate that guards one page and could raise, if there were an interpreter.
pub(crate) fn gate() -> Arc<Gate> {
    let gate = Gate::new();
    gate.guard(Arc::new(GuestMemory::new(WASM_PAGE_BYTES).expect("a page can be mapped")));
    gate.raise_with(Raiser::unreachable());
    Arc::new(gate)
}
