//! The functions that the early module lacks: where stubs find them, and how they wait for them.
#![expect(unsafe_code, reason = "called by compiled code, and calls it")]

use std::any::Any;
#[cfg(target_arch = "x86_64")]
use std::arch::naked_asm;
#[cfg(target_arch = "x86_64")]
use std::mem::offset_of;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use wasmer::Module;
use wasmer::sys::vm::raise_user_trap;
use wasmer_types::LocalFunctionIndex;

use crate::cause::Cause;
use crate::interrupt::here;

/// Why a function of the rest can't be called.
#[derive(Debug, thiserror::Error)]
#[error("the rest of the Python build could not be compiled")]
struct NeverCompiled(#[source] Cause);

/// The whole module, with what must live as long as it does.
#[derive(Debug)]
pub(in super::super) struct FullModule {
    pub(in super::super) module: Module,
    pub(in super::super) _kept: Box<dyn Any + Send + Sync>,
}

/// What the stubs of one early module use. It lives as long as the process, since the code does
/// that reads it.
#[repr(C)]
#[derive(Debug)]
pub(in super::super) struct LazyFunctions {
    /// Where each stub jumps.
    enter: unsafe extern "C" fn(),
    /// The first of `count` addresses of functions; 0 for each that hasn't been called yet.
    addresses: AtomicPtr<AtomicUsize>,
    count: usize,
    whole: OnceLock<Result<FullModule, Cause>>,
}

impl LazyFunctions {
    /// Makes room for a module with this many functions.
    pub(in super::super) fn new(count: usize) -> &'static Self {
        let addresses: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        let addresses = addresses.leak().as_mut_ptr();
        Box::leak(Box::new(Self {
            enter,
            addresses: AtomicPtr::new(addresses),
            count,
            whole: OnceLock::new(),
        }))
    }

    /// Says that the whole module is there, or why it never will be.
    pub(in super::super) fn set(&self, whole: Result<FullModule, Cause>) {
        let whole = whole.and_then(|whole| {
            let functions = whole.module.sys_artifact().map(|a| a.finished_functions().len());
            match functions == Some(self.count) {
                true => Ok(whole),
                false => Err("the whole module has other functions than the early one".into()),
            }
        });
        let is_first = self.whole.set(whole).is_ok();
        debug_assert!(is_first, "the rest is compiled once");
    }

    pub(in super::super) fn whole(&self) -> Option<&FullModule> {
        self.whole.get().and_then(|whole| whole.as_ref().ok())
    }

    /// Returns why the whole module will never be there, once that is known.
    pub(super) fn failure(&self) -> Option<&Cause> {
        self.whole.get().and_then(|whole| whole.as_ref().err())
    }

    fn slots(&self) -> &[AtomicUsize] {
        // SAFETY: leaked by `new`, which is the only one to set the pointer and the length.
        unsafe { std::slice::from_raw_parts(self.addresses.load(Ordering::Relaxed), self.count) }
    }

    fn find(&self, function: u32) -> Result<usize, Box<dyn std::error::Error + Send + Sync>> {
        tracing::debug!(function, "the first call of a function that isn't compiled first");
        here::wait(|| self.whole.get().is_some())?;
        if let Some(cause) = self.failure() {
            return Err(NeverCompiled(cause.clone()).into());
        }
        let artifact = self.whole().and_then(|whole| whole.module.sys_artifact());
        let artifact = artifact.expect("its functions were counted when it was set");
        let address = artifact.finished_functions()[LocalFunctionIndex::from_u32(function)];
        let address = (*address).expose_provenance();
        self.slots()[function as usize].store(address, Ordering::Release);
        Ok(address)
    }
}

/// Jumps to the function with the index `r11` of the rest at `r10`, and leaves its arguments as
/// they are. For System V's x86-64, in which wasmer compiles: what may hold an argument is saved.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!(
        "mov rax, [r10 + {addresses}]",
        "mov rax, [rax + r11 * 8]",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, 176",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "movups [rsp + 32], xmm2",
        "movups [rsp + 48], xmm3",
        "movups [rsp + 64], xmm4",
        "movups [rsp + 80], xmm5",
        "movups [rsp + 96], xmm6",
        "movups [rsp + 112], xmm7",
        "mov [rsp + 128], rdi",
        "mov [rsp + 136], rsi",
        "mov [rsp + 144], rdx",
        "mov [rsp + 152], rcx",
        "mov [rsp + 160], r8",
        "mov [rsp + 168], r9",
        "mov rdi, r10",
        "mov esi, r11d",
        "call {find}",
        "movups xmm0, [rsp]",
        "movups xmm1, [rsp + 16]",
        "movups xmm2, [rsp + 32]",
        "movups xmm3, [rsp + 48]",
        "movups xmm4, [rsp + 64]",
        "movups xmm5, [rsp + 80]",
        "movups xmm6, [rsp + 96]",
        "movups xmm7, [rsp + 112]",
        "mov rdi, [rsp + 128]",
        "mov rsi, [rsp + 136]",
        "mov rdx, [rsp + 144]",
        "mov rcx, [rsp + 152]",
        "mov r8, [rsp + 160]",
        "mov r9, [rsp + 168]",
        "leave",
        "jmp rax",
        addresses = const offset_of!(LazyFunctions, addresses),
        find = sym find,
    )
}

/// Nothing starts early elsewhere, since only x86-64 has stubs.
#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" fn enter() {
    unreachable!("no stub calls {:p}", find as *const ());
}

/// Returns the address of a function, or unwinds the guest.
unsafe extern "C" fn find(rest: &'static LazyFunctions, function: u32) -> usize {
    match rest.find(function) {
        Ok(address) => address,
        // SAFETY: a stub has called this, so there is a guest to unwind. Nothing is left here that
        // would have to be dropped.
        Err(ended) => unsafe { raise_user_trap(ended) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl LazyFunctions {
        pub(in crate::python::module) fn called(&self) -> Vec<bool> {
            let is_called = |slot: &AtomicUsize| slot.load(Ordering::Relaxed) != 0;
            self.slots().iter().map(is_called).collect()
        }
    }
}
