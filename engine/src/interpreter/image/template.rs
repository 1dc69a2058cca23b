//! Builds an image: an interpreter starts, imports and runs the setup. It is captured between
//! turns, when the guest's stacks are empty.
//!
//! The image's key without hidden modules determines the template's clock and random numbers. So the
//! same image is built on every machine, and sets have the same order with and without these modules.

use super::format::Captured;
use super::{Facts, GeneratorState};
use crate::cause::chain;
use crate::config::{Progress, ProgressSink};
use crate::error::ImageError;
use crate::host::call_channel::GeneratorClaim;
use crate::host::layout::Layout;
use crate::interpreter::engine::Engine;
use crate::memory::GuestMemory;
use crate::python::module::writes;
use crate::python::spec::ImageSpec;
use crate::run::outcome::Verdict;
use crate::run::program::Deterministic;

pub(super) fn capture(
    engine: &Engine,
    layout: &Layout,
    spec: &ImageSpec,
    visible_key: &str,
    progress: &dyn ProgressSink,
) -> Result<Captured, ImageError> {
    progress.report(Progress::BuildingImage("starting Python"));
    writes::check(&engine.inner.build.wasm()?)?;
    let seed = u64::from_str_radix(&visible_key[..16], 16).expect("a key is hexadecimal digits");
    let mut template = engine.start_with(layout, Some(Deterministic::new(seed)))?;
    progress.report(Progress::BuildingImage("importing modules"));
    let before = template.memory().len();
    let prepared = template.prepare(spec);
    match prepared.outcome.verdict {
        Verdict::Completed { .. } => {}
        verdict => {
            let said = String::from_utf8_lossy(&prepared.outcome.stderr).into_owned();
            return Err(ImageError::Prepare { detail: explain(verdict), said });
        }
    }
    let memory = template.memory();
    let generators = prepared.generators.iter().map(|claim| locate(&memory, claim));
    let facts = Facts {
        globals: template.globals(),
        offsets: engine.offsets(&memory),
        exception: template.exception,
        reentry: template.entry.reentry(),
        generators: generators.collect::<Option<_>>().ok_or(ImageError::Generators)?,
        hidden_bytes: if spec.hidden.is_empty() { 0 } else { (memory.len() - before) as u64 },
    };
    let host = template.host.state().ok_or(ImageError::Host)?;
    Ok(Captured { memory, host, facts })
}

fn explain(verdict: Verdict) -> String {
    match verdict {
        Verdict::Raised(exception) => exception.traceback.trim_end().to_owned(),
        Verdict::Limit(hit) => format!("the limit `{}` was reached", hit.limit.name()),
        Verdict::Tampered(tampering) => tampering.to_string(),
        Verdict::SandboxFailed(failure) => chain(&failure).to_string(),
        Verdict::Exited { code, message } => {
            format!(
                "it left with code {code}{}",
                message.map_or(String::new(), |m| format!(": {m}"))
            )
        }
        Verdict::Completed { .. } | Verdict::Cancelled => "it was cancelled".to_owned(),
    }
}

/// Finds the state of a generator in the memory of the object that holds it.
fn locate(memory: &GuestMemory, claim: &GeneratorClaim) -> Option<GeneratorState> {
    let found = memory.look(claim.address, claim.size, |object| {
        let at = object.windows(claim.needle.len()).position(|bytes| bytes == claim.needle)?;
        let state = object.get(at..at + GeneratorState::BYTES as usize)?;
        u32::try_from(at).ok().filter(|_| !state.is_empty())
    });
    let address = claim.address.checked_add(found??)?;
    Some(GeneratorState { address })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::WASM_PAGE_BYTES;

    #[test]
    fn a_generator_is_found_in_its_object_alone() {
        let memory = GuestMemory::new(WASM_PAGE_BYTES).unwrap();
        let put = |at: u32, bytes: &[u8]| {
            memory.with_bytes(at, bytes.len() as u32, |to| to.copy_from_slice(bytes)).unwrap();
        };
        put(1000, b"needle");
        let claim = |address, size| GeneratorClaim { address, size, needle: b"needle".to_vec() };
        let located = |claim| locate(&memory, &claim).map(|state| state.address);
        assert_eq!(located(claim(900, 3000)), Some(1000));
        assert_eq!(located(claim(900, 2500)), None, "the state doesn't fit in");
        assert_eq!(located(claim(1001, 3000)), None);
        assert_eq!(located(claim(u32::MAX, 3000)), None);
    }
}
