//! Computes for the guest what the functions in `python/module/kernels.rs` compute.
//!
//! Every argument may be forged. A kernel checks once that all operands are in the guest's memory,
//! and that what it writes doesn't overlap what it reads. Otherwise, and beyond bounds on the work,
//! it does nothing, and the guest's own function goes on. It allocates nothing. It works in pieces
//! of a few milliseconds, between which a stop ends it.
//!
//! Results are those of the guest's functions, bit for bit, on every machine: sums add in the same
//! order, and no product is fused with a sum. Only the sign and payload of a NaN may differ, which
//! WebAssembly leaves open.

use std::cmp::Ordering;

use crate::host::env::{Caller, HostResult, unwind};
use crate::interrupt::gate::{Stopped, ThreadGate};
use crate::memory::GuestMemory;
use crate::python::module::kernels::{IS_DONE, Kernel, NumberType, kernel_of};
use blas::{Gemm, GemvT};
use exp::ExpLoop;

mod blas;
mod exp;
mod operands;
#[cfg(test)]
mod tests;

/// Sorting this many numbers takes 20 ms. The guest sorts more itself.
const MOST_SORTED: u32 = 1 << 20;

/// Serves a call of `host.call` with this length.
pub(super) fn kernel_call(caller: &Caller<'_>, call: u32, operands: [u32; 3]) -> HostResult {
    let env = caller.data();
    if !env.has_kernels {
        return Ok(0);
    }
    let Some((kernel, memory)) = kernel_of(call).zip(env.guest.memory().ok()) else {
        return Ok(0);
    };
    let is_done = run(kernel, memory, &env.gate, operands).map_err(unwind)?;
    Ok(if is_done { IS_DONE } else { 0 })
}

/// Returns whether a kernel has done the work. Of a run that was stopped, it may have done a part.
fn run(
    kernel: Kernel,
    memory: &GuestMemory,
    gate: &ThreadGate,
    [at, count, steps]: [u32; 3],
) -> Result<bool, Stopped> {
    // What is lent of a memory that threads share would be a copy.
    if memory.is_shared() {
        return Ok(false);
    }
    match kernel {
        Kernel::Sort(numbers) => gate.host(|| sort(memory, numbers, at, count).is_some()),
        Kernel::Gemm => {
            let Some(gemm) = gate.host(|| Gemm::read(memory, at))? else { return Ok(false) };
            gemm.pieces().try_for_each(|piece| gate.host(|| gemm.add(memory, piece)))?;
            Ok(true)
        }
        Kernel::GemvT => {
            let Some(gemv) = gate.host(|| GemvT::read(memory, at))? else { return Ok(false) };
            gemv.pieces().try_for_each(|piece| gate.host(|| gemv.add(memory, piece)))?;
            Ok(true)
        }
        Kernel::Exp => {
            let read = gate.host(|| ExpLoop::read(memory, [at, count, steps]))?;
            let Some(powers) = read else { return Ok(false) };
            powers.pieces().try_for_each(|piece| gate.host(|| powers.compute(memory, &piece)))?;
            Ok(true)
        }
    }
}

/// Sorts numbers in ascending order. Does nothing if there are floats whose order depends on the
/// algorithm: NaNs, and zeroes of both signs.
fn sort(memory: &GuestMemory, numbers: NumberType, at: u32, count: u32) -> Option<()> {
    if count > MOST_SORTED {
        return None;
    }
    let bytes_each = match numbers {
        NumberType::I32 | NumberType::U32 | NumberType::F32 => 4,
        NumberType::I64 | NumberType::U64 | NumberType::F64 => 8,
    };
    let sort = |bytes: &mut [u8]| {
        match numbers {
            NumberType::I32 => sort_integers(bytes, i32::from_le_bytes),
            NumberType::U32 => sort_integers(bytes, u32::from_le_bytes),
            NumberType::I64 => sort_integers(bytes, i64::from_le_bytes),
            NumberType::U64 => sort_integers(bytes, u64::from_le_bytes),
            NumberType::F32 => {
                let is_plain = |number: f32| number > 0.0 || number.to_bits() == 0 || number < 0.0;
                return sort_floats(bytes, f32::from_le_bytes, is_plain);
            }
            NumberType::F64 => {
                let is_plain = |number: f64| number > 0.0 || number.to_bits() == 0 || number < 0.0;
                return sort_floats(bytes, f64::from_le_bytes, is_plain);
            }
        }
        Some(())
    };
    memory.with_bytes(at, count * bytes_each, sort)?
}

fn sort_integers<const N: usize, T: Ord>(bytes: &mut [u8], number: impl Fn([u8; N]) -> T) {
    bytes.as_chunks_mut().0.sort_unstable_by_key(|bytes| number(*bytes));
}

fn sort_floats<const N: usize, T: PartialOrd>(
    bytes: &mut [u8],
    number: impl Fn([u8; N]) -> T,
    is_plain: impl Fn(T) -> bool,
) -> Option<()> {
    let (numbers, _) = bytes.as_chunks_mut();
    if !numbers.iter().all(|bytes| is_plain(number(*bytes))) {
        return None;
    }
    let compared = |one: &[u8; N], other: &[u8; N]| {
        number(*one).partial_cmp(&number(*other)).unwrap_or(Ordering::Equal)
    };
    numbers.sort_unstable_by(compared);
    Some(())
}
