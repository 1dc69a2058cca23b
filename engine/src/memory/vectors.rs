//! Loops over the bytes of pages, compiled for the vectors that this CPU has.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls AVX2 code on such CPUs"))]

/// Returns what `work` returns, with 256-bit vectors if the CPU has them. Comparing a page then
/// takes two thirds of the time.
///
/// `work` should be inlined here, and the functions that it calls have to be marked so.
#[inline(always)]
pub(super) fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        return unsafe { with_avx2(work) };
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}
