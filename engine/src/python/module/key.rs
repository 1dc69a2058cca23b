//! The name of a compiled module in the cache: everything that its code depends on.

use wasmer::sys::{CpuFeature, Target};
use wasmer_types::target::Triple;

use super::kernels::KERNELS_VERSION;
use super::safepoints::SAFEPOINTS_VERSION;
use super::throws::MOST_THROWS;

/// The version that `Cargo.toml` pins; `tests/layering.rs` compares the two.
pub const WASMER_VERSION: &str = "7.4.2";

/// Changes whenever the compiler settings in `module.rs`, the memory layout, or the form of the two
/// files change. It also changes with the counting of throws and deallocations, the granting of
/// locks, wide integers and the giving of threads and turns.
const SETTINGS: &str = "cranelift exceptions counted-throws counted-deallocations granted-locks \
                        wide-integers given-turns static-memory-8GiB-64KiB linked 4";

/// Returns the key of the module that the bytes with hash `source` compile to: 32 hexadecimal
/// digits. It is the same on all machines with the same target.
pub(crate) fn module_key(source: &str) -> String {
    let settings = format!(
        "{SETTINGS} {MOST_THROWS} safepoints {SAFEPOINTS_VERSION} kernels {KERNELS_VERSION}"
    );
    key_of(source, WASMER_VERSION, &settings, &target_name())
}

fn key_of(source: &str, version: &str, settings: &str, cpu: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [source, version, settings, cpu] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

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

/// Returns what to compile for on this machine. That is level 3 where its CPU has that, else the
/// features that it has.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_changes_the_key() {
        let base = key_of("a", "b", "c", "d");
        for other in [
            key_of("x", "b", "c", "d"),
            key_of("a", "x", "c", "d"),
            key_of("a", "b", "x", "d"),
            key_of("a", "b", "c", "x"),
            key_of("ab", "", "c", "d"),
        ] {
            assert_ne!(base, other);
        }
        assert_eq!(module_key("a"), module_key("a"));
    }
}
