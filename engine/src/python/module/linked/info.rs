//! wasmer's description of a module, without what is stored elsewhere or not needed.

use std::sync::Arc;

use wasmer_compiler::serialize::SerializableModule;
use wasmer_types::{InitExprOp, MemoryIndex, OwnedDataInitializer};

/// Bytes that a memory begins with.
#[derive(Debug)]
pub(super) struct Segment {
    /// The address in the guest.
    pub(super) at: u32,
    pub(super) bytes: Box<[u8]>,
}

/// The custom section with the names of functions, most of what wasmer knows of a module.
const NAMES: &str = "name";

/// Returns the description without the initial contents of the memory, which are returned beside
/// it, and without the names of functions, which only traces would show.
#[expect(unsafe_code, reason = "wasmer's interface for its own format")]
pub(super) fn without_data(description: &[u8]) -> Result<(Vec<u8>, Vec<Segment>), String> {
    // wasmer's format needs an alignment that the section doesn't have in the image.
    let description = description.to_vec();
    // SAFETY: wasmer has just written it, and it is validated.
    let module = unsafe { SerializableModule::deserialize(&description) };
    let mut module = module.map_err(|error| error.to_string())?;
    let info = Arc::get_mut(&mut module.compile_info.module).ok_or("the description is shared")?;
    info.function_names.clear();
    if let Some(names) = info.custom_sections.get(NAMES) {
        info.custom_sections_data[*names] = Box::default();
    }
    // A start function would run before the memory has its contents.
    let data = match info.start_function {
        None => segments(&module.data_initializers),
        Some(_) => None,
    };
    if data.is_some() {
        module.data_initializers = Box::default();
    }
    let description = module.serialize().map_err(|error| error.to_string())?;
    Ok((description, data.unwrap_or_default()))
}

/// Returns what the memory begins with; `None` if that depends on an instance.
fn segments(initializers: &[OwnedDataInitializer]) -> Option<Vec<Segment>> {
    let segment = |initializer: &OwnedDataInitializer| {
        let location = &initializer.location;
        match *location.offset_expr.ops {
            [InitExprOp::I32Const(at)] if location.memory_index == MemoryIndex::from_u32(0) => {
                Some(Segment { at: at.cast_unsigned(), bytes: initializer.data.clone() })
            }
            _ => None,
        }
    };
    initializers.iter().map(segment).collect()
}
