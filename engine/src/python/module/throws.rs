//! A bound on the exceptions that guest code throws.
//!
//! wasmer keeps the object of each WebAssembly exception, 2 KB with its backtrace, until its store
//! is dropped. C++ code in a guest can throw thousands a second. So modules count their throws in a
//! global: each throw decrements it, and traps when it is 0. Python's own exceptions don't count.

use std::sync::atomic::{AtomicU32, Ordering};

use wasmer::sys::wasmparser::{BlockType, Operator};
use wasmer::sys::{FunctionMiddleware, MiddlewareError, MiddlewareReaderState, ModuleMiddleware};
use wasmer::{ExportError, Global, Instance, Store, Value};
use wasmer_types::{
    ExportIndex, GlobalInit, GlobalType, LocalFunctionIndex, ModuleInfo, Mutability, Type,
};

/// Throws that a run may make: some seconds of nothing but throws, and 128 MiB of host memory.
pub(crate) const MOST_THROWS: u32 = 65_536;
/// The approximate size of what wasmer keeps of one throw.
pub(crate) const THROWN_BYTES: u64 = 2 << 10;

/// The name of the exported global.
const NAME: &str = "hatchery_throws_left";

/// Makes the modules that an engine compiles count throws, one module at a time.
#[derive(Debug, Default)]
pub(super) struct CountThrows {
    /// The global of the module being compiled.
    global: AtomicU32,
}

impl ModuleMiddleware for CountThrows {
    fn transform_module_info(&self, info: &mut ModuleInfo) -> Result<(), MiddlewareError> {
        let global = info.globals.push(GlobalType::new(Type::I32, Mutability::Var));
        info.global_initializers.push(GlobalInit::I32Const(MOST_THROWS.cast_signed()));
        self.global.store(global.as_u32(), Ordering::Release);
        match info.exports.insert(NAME.to_owned(), ExportIndex::Global(global)) {
            None => Ok(()),
            Some(_) => Err(MiddlewareError::new("throws", format!("`{NAME}` is exported already"))),
        }
    }

    fn generate_function_middleware<'a>(
        &self,
        _function: LocalFunctionIndex,
    ) -> Box<dyn FunctionMiddleware<'a> + 'a> {
        Box::new(CountThrowsIn { global: self.global.load(Ordering::Acquire) })
    }
}

#[derive(Debug)]
struct CountThrowsIn {
    global: u32,
}

impl<'a> FunctionMiddleware<'a> for CountThrowsIn {
    fn feed(
        &mut self,
        operator: Operator<'a>,
        state: &mut MiddlewareReaderState<'a>,
    ) -> Result<(), MiddlewareError> {
        let global_index = self.global;
        if matches!(operator, Operator::Throw { .. }) {
            state.extend([
                Operator::GlobalGet { global_index },
                Operator::I32Eqz,
                Operator::If { blockty: BlockType::Empty },
                Operator::Unreachable,
                Operator::End,
                Operator::GlobalGet { global_index },
                Operator::I32Const { value: 1 },
                Operator::I32Sub,
                Operator::GlobalSet { global_index },
            ]);
        }
        state.push_operator(operator);
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct ThrowsLeft {
    global: Global,
}

impl ThrowsLeft {
    /// Finds the counter of an instance whose module was compiled here.
    pub(crate) fn of(instance: &Instance) -> Result<Self, ExportError> {
        Ok(Self { global: instance.exports.get_global(NAME)?.clone() })
    }

    /// Allows the next run the full number of throws.
    pub(crate) fn allow(&self, store: &mut Store) {
        let most = Value::I32(MOST_THROWS.cast_signed());
        self.global.set(store, most).expect("it is a variable of this type and store");
    }

    /// Returns the number of throws since `allow`.
    pub(crate) fn thrown(&self, store: &mut Store) -> u32 {
        let left = self.global.get(store).i32().map_or(0, i32::cast_unsigned);
        MOST_THROWS.saturating_sub(left)
    }
}

#[cfg(test)]
mod tests {
    use wasmer::sys::vm::TrapCode;
    use wasmer::{TypedFunction, imports};

    use super::*;
    use crate::memory::tunables::with_memory;
    use crate::python::module::new_engine;

    #[test]
    fn throws_are_counted_and_the_last_one_traps() {
        let text = r#"(module (memory 1) (tag $e (param i32))
            (func (export "throw_and_catch") (param i32)
                (block $caught (result i32)
                    (try_table (catch $e $caught) (throw $e (local.get 0)))
                    (unreachable))
                (drop)))"#;
        let engine = new_engine();
        let module = engine.module(text);
        let mut store = engine.store();
        let (instance, _memory) =
            with_memory(None, || Instance::new(&mut store, &module, &imports! {}).unwrap());
        let throw: TypedFunction<i32, ()> =
            instance.exports.get_typed_function(&store, "throw_and_catch").unwrap();
        let left = ThrowsLeft::of(&instance).unwrap();
        assert_eq!(left.thrown(&mut store), 0);
        for _ in 0..MOST_THROWS {
            throw.call(&mut store, 7).unwrap();
        }
        assert_eq!(left.thrown(&mut store), MOST_THROWS);
        let trap = throw.call(&mut store, 7).unwrap_err().to_trap();
        assert_eq!(trap, Some(TrapCode::UnreachableCodeReached));
        left.allow(&mut store);
        throw.call(&mut store, 7).unwrap();
        assert_eq!(left.thrown(&mut store), 1);
    }
}
