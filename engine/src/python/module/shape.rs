//! What kind of Python build a module is: how it is entered, and by which interfaces it is served.

use wasmer::sys::{FunctionMiddleware, MiddlewareError, ModuleMiddleware};
use wasmer::{ExternType, MemoryType, Module};
use wasmer_types::{ExportIndex, LocalFunctionIndex, ModuleInfo, TableIndex};

use super::blocks::Unchanged;
use super::imports::{HOST, HOST_CALL};

/// The name under which command builds export their table of functions.
pub(crate) const TABLE: &str = "hatchery_table";
/// The function that starts a command build.
pub(crate) const START: &str = "_start";

/// The exports of a reactor build: it is initialised, takes memory, and runs a turn.
pub(crate) const INITIALIZE: &str = "_initialize";
pub(crate) const ALLOC: &str = "host_alloc";
pub(crate) const TURN: &str = "turn";

/// The function at which threads begin.
pub(crate) const THREAD_START: &str = "wasi_thread_start";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// It imports `host.call`, and each turn calls its export `turn`.
    Reactor,
    /// It exports `_start`, as ordinary programs do.
    Command,
    /// Neither.
    Other,
}

/// Returns the type of the memory that a module's threads share; `None` if it has no threads.
pub(crate) fn shared_memory(module: &Module) -> Option<MemoryType> {
    module.imports().find_map(|import| match import.ty() {
        ExternType::Memory(memory) if memory.shared => Some(*memory),
        _ => None,
    })
}

impl Shape {
    pub(crate) fn of(module: &Module) -> Self {
        let exports = |name: &str| {
            let mut functions = module.exports().functions();
            functions.any(|export| export.name() == name)
        };
        let calls_host = module.imports().any(|import| {
            (import.module(), import.name()) == (HOST, HOST_CALL)
                && matches!(import.ty(), ExternType::Function(_))
        });
        if calls_host && [INITIALIZE, ALLOC, TURN].into_iter().all(exports) {
            Self::Reactor
        } else if exports(START) && module.exports().any(|export| export.name() == TABLE) {
            Self::Command
        } else {
            Self::Other
        }
    }

    pub(crate) fn is_command(self) -> bool {
        self == Self::Command
    }
}

/// Makes the modules that an engine compiles export their table of functions, if they are commands.
/// They are entered by it for a turn (`interpreter/entry.rs`).
#[derive(Debug)]
pub(super) struct ExportTable;

impl ModuleMiddleware for ExportTable {
    fn transform_module_info(&self, info: &mut ModuleInfo) -> Result<(), MiddlewareError> {
        if info.exports.contains_key(START) && !info.tables.is_empty() {
            info.exports.insert(TABLE.to_owned(), ExportIndex::Table(TableIndex::from_u32(0)));
        }
        Ok(())
    }

    fn generate_function_middleware<'a>(
        &self,
        _function: LocalFunctionIndex,
    ) -> Box<dyn FunctionMiddleware<'a> + 'a> {
        Box::new(Unchanged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::module::new_engine;

    #[test]
    fn exports_and_imports_tell_the_shape() {
        let reactor = r#"(module (import "host" "call" (func)) (memory 1)
            (func (export "_initialize")) (func (export "host_alloc")) (func (export "turn")))"#;
        let command = r#"(module (memory 1) (table 1 funcref) (func (export "_start")))"#;
        for (text, shape) in [
            (reactor, Shape::Reactor),
            (command, Shape::Command),
            (r#"(module (memory 1) (func (export "_start")))"#, Shape::Other),
            (r#"(module (memory 1) (func (export "turn")))"#, Shape::Other),
        ] {
            let module = new_engine().module(text);
            assert_eq!(Shape::of(&module), shape, "{text}");
        }
    }
}
