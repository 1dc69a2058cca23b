//! Functions of a module that begin with other operators than its author wrote.

use std::fmt::Debug;

use parking_lot::Mutex;
use wasmer::sys::wasmparser::Operator;
use wasmer::sys::{FunctionMiddleware, MiddlewareError, MiddlewareReaderState, ModuleMiddleware};
use wasmer_types::{FunctionIndex, FunctionType, LocalFunctionIndex, ModuleInfo, Type};

/// A function, and what is inserted at its beginning.
pub(super) type Beginning = (LocalFunctionIndex, Vec<Operator<'static>>);

/// Chooses the functions of a module that begin differently.
pub(super) trait Begin: Debug + Send + Sync {
    /// Returns them. May also change the module's description.
    fn beginnings(&self, info: &mut ModuleInfo) -> Vec<Beginning>;
}

/// Inserts beginnings into the modules that an engine compiles, one module at a time.
#[derive(Debug)]
pub(super) struct Beginnings<B> {
    begin: B,
    /// Those of the module being compiled.
    found: Mutex<Vec<Beginning>>,
}

impl<B> Beginnings<B> {
    pub(super) fn new(begin: B) -> Self {
        Self { begin, found: Mutex::default() }
    }
}

impl<B: Begin> ModuleMiddleware for Beginnings<B> {
    fn transform_module_info(&self, info: &mut ModuleInfo) -> Result<(), MiddlewareError> {
        *self.found.lock() = self.begin.beginnings(info);
        Ok(())
    }

    fn generate_function_middleware<'a>(
        &self,
        function: LocalFunctionIndex,
    ) -> Box<dyn FunctionMiddleware<'a> + 'a> {
        let found = self.found.lock();
        let beginning = found.iter().find(|(index, _)| *index == function);
        Box::new(Inserted(beginning.map(|(_, operators)| operators.clone()).unwrap_or_default()))
    }
}

/// What remains to be inserted.
#[derive(Debug)]
struct Inserted(Vec<Operator<'static>>);

impl<'a> FunctionMiddleware<'a> for Inserted {
    fn feed(
        &mut self,
        operator: Operator<'a>,
        state: &mut MiddlewareReaderState<'a>,
    ) -> Result<(), MiddlewareError> {
        state.extend(self.0.drain(..));
        state.push_operator(operator);
        Ok(())
    }
}

/// Finds the function of this name and type.
pub(super) fn find(
    info: &ModuleInfo,
    name: &str,
    parameters: &[Type],
    results: &[Type],
) -> Option<FunctionIndex> {
    let wanted = FunctionType::new(parameters, results);
    let named = info.function_names.iter().filter(|(_, known)| *known == name);
    let mut found = named.map(|(index, _)| *index);
    found.find(|index| info.signatures[info.functions[*index]] == wanted)
}
