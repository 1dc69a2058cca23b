//! The CPU that modules are compiled for.
//!
//! Nearly every x86-64 server since 2015 has the features that the x86-64 psABI calls level 3.
//! Modules are compiled for that level and not for what else this CPU has, so that a module which
//! one machine compiled runs on others. AVX-512 gains nothing that the benches show.

use wasmer::sys::{CpuFeature, Target};
use wasmer_types::target::Triple;

/// Level 3 of the x86-64 psABI, as far as Cranelift makes use of it.
const X86_64_V3: [CpuFeature; 11] = [
    CpuFeature::SSE2,
    CpuFeature::SSE3,
    CpuFeature::SSSE3,
    CpuFeature::SSE41,
    CpuFeature::SSE42,
    CpuFeature::POPCNT,
    CpuFeature::AVX,
    CpuFeature::AVX2,
    CpuFeature::BMI1,
    CpuFeature::BMI2,
    CpuFeature::LZCNT,
];

/// Returns what to compile for on this machine: level 3 where its CPU has that, else the features
/// that it has.
pub(super) fn target() -> Target {
    let host = CpuFeature::for_host();
    let level = X86_64_V3.into_iter().fold(CpuFeature::set(), |set, feature| set | feature);
    let features = if level.is_subset(host) { level } else { host };
    Target::new(Triple::host(), features)
}

/// Returns the name of the target on this machine, such as `x86-64-v3`; the name of another one
/// lists its features.
pub(crate) fn target_name() -> String {
    let features = *target().cpu_features();
    let architecture = std::env::consts::ARCH;
    if X86_64_V3.into_iter().all(|feature| features.contains(feature)) {
        return "x86-64-v3".to_owned();
    }
    let features: Vec<String> = features.iter().map(|feature| feature.to_string()).collect();
    format!("{architecture} with {}", features.join(" "))
}
