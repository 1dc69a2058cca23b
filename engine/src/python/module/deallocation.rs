//! Lets CPython see how deep objects free each other.
//!
//! An object that is freed may free the next one, and so on through a chain of any length. CPython
//! puts objects off when little is left of its stack in linear memory (`_Py_Dealloc` in
//! `Objects/object.c`, since 3.14). But the functions that free lists, tuples and dictionaries
//! keep nothing there. A chain of 200,000 lists would exhaust the native stack. So here
//! `_Py_Dealloc` takes some bytes of the stack in linear memory while it frees an object that may
//! hold others, as the garbage collector's flag in the object's type tells.
//!
//! The function is found by name. The first global that it reads is the stack pointer, and it keeps
//! the flag in a variable. A build whose function does otherwise is compiled unchanged.

use parking_lot::Mutex;
use wasmer::sys::wasmparser::{BlockType, Operator};
use wasmer::sys::{FunctionMiddleware, MiddlewareError, MiddlewareReaderState, ModuleMiddleware};
use wasmer_types::{GlobalType, LocalFunctionIndex, ModuleInfo, Mutability, Type};

use super::beginnings::find;

/// Frees the object at this address.
pub(crate) const FREE: &str = "_Py_Dealloc";
/// `Py_TPFLAGS_HAVE_GC`.
const MAY_HOLD_OTHERS: i32 = 1 << 14;
/// What a call takes of the stack in linear memory, which stays aligned to 16 bytes. With the bounds
/// of [`crate::guest::recursion`] that allows 16,000 calls within each other.
const CALL_BYTES: i32 = 32;

/// Makes the modules that an engine compiles count nested calls, one module at a time.
#[derive(Debug, Default)]
pub(super) struct CountDeallocations {
    module: Mutex<Found>,
}

/// What the module being compiled has.
#[derive(Debug, Default)]
struct Found {
    free: Option<LocalFunctionIndex>,
    /// The globals that may be the stack pointer.
    pointers: Vec<u32>,
}

impl ModuleMiddleware for CountDeallocations {
    fn transform_module_info(&self, info: &mut ModuleInfo) -> Result<(), MiddlewareError> {
        let free = find(info, FREE, &[Type::I32], &[]);
        let pointer = GlobalType::new(Type::I32, Mutability::Var);
        let pointers = info.globals.iter().filter(|(_, ty)| **ty == pointer);
        *self.module.lock() = Found {
            free: free.and_then(|free| info.local_func_index(free)),
            pointers: pointers.map(|(index, _)| index.as_u32()).collect(),
        };
        Ok(())
    }

    fn generate_function_middleware<'a>(
        &self,
        function: LocalFunctionIndex,
    ) -> Box<dyn FunctionMiddleware<'a> + 'a> {
        let module = self.module.lock();
        let is_wanted = module.free == Some(function);
        let pointers = if is_wanted { module.pointers.clone() } else { Vec::new() };
        Box::new(CountIn { pointers, pointer: None, flag: FlagSeen::No })
    }
}

#[derive(Debug)]
struct CountIn {
    /// The globals that may be the stack pointer; none in other functions.
    pointers: Vec<u32>,
    pointer: Option<u32>,
    flag: FlagSeen,
}

/// How far the operators were seen that keep the flag in a variable.
#[derive(Debug, Clone, Copy)]
enum FlagSeen {
    No,
    Constant,
    Masked,
    In(u32),
}

impl FlagSeen {
    fn after(self, operator: &Operator<'_>) -> Self {
        match (self, operator) {
            (Self::In(_), _) => self,
            (_, Operator::I32Const { value: MAY_HOLD_OTHERS }) => Self::Constant,
            (Self::Constant, Operator::I32And) => Self::Masked,
            (Self::Masked, Operator::LocalSet { local_index }) => Self::In(*local_index),
            _ => Self::No,
        }
    }
}

impl<'a> FunctionMiddleware<'a> for CountIn {
    fn feed(
        &mut self,
        operator: Operator<'a>,
        state: &mut MiddlewareReaderState<'a>,
    ) -> Result<(), MiddlewareError> {
        self.flag = self.flag.after(&operator);
        if let Operator::GlobalGet { global_index } = operator
            && self.pointers.contains(&global_index)
        {
            self.pointer.get_or_insert(global_index);
        }
        match (&operator, self.pointer, self.flag) {
            (Operator::CallIndirect { .. }, Some(global_index), FlagSeen::In(local_index)) => {
                let moved = |by: Operator<'static>| {
                    [
                        Operator::LocalGet { local_index },
                        Operator::If { blockty: BlockType::Empty },
                        Operator::GlobalGet { global_index },
                        Operator::I32Const { value: CALL_BYTES },
                        by,
                        Operator::GlobalSet { global_index },
                        Operator::End,
                    ]
                };
                state.extend(moved(Operator::I32Sub));
                state.push_operator(operator);
                state.extend(moved(Operator::I32Add));
            }
            _ => state.push_operator(operator),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wasmer::{Instance, TypedFunction, imports};

    use super::MAY_HOLD_OTHERS;
    use crate::memory::tunables::with_memory;
    use crate::python::module::new_engine;

    /// Returns the stack pointer where `_Py_Dealloc`, which calls itself while this holds, stops, and
    /// after that. Its flag is that of its argument.
    fn freed(goes_on: &str, argument: i32) -> (i32, i32) {
        let text = format!(
            r#"(module (memory 1) (type $free (func (param i32)))
                (table funcref (elem $_Py_Dealloc))
                (global $pointer (export "pointer") (mut i32) (i32.const 4096))
                (global $lowest (export "lowest") (mut i32) (i32.const 0))
                (func $_Py_Dealloc (export "free") (type $free) (local $flag i32)
                    (local.set $flag (i32.and (local.get 0) (i32.const 16384)))
                    (if {goes_on}
                        (then (call_indirect (type $free)
                            (i32.sub (local.get 0) (i32.const 1)) (i32.const 0)))
                        (else (global.set $lowest (global.get $pointer))))))"#
        );
        let engine = new_engine();
        let module = engine.module(&text);
        let mut store = engine.store();
        let (instance, _memory) =
            with_memory(None, || Instance::new(&mut store, &module, &imports! {}).unwrap());
        let exports = &instance.exports;
        let free: TypedFunction<i32, ()> = exports.get_typed_function(&store, "free").unwrap();
        free.call(&mut store, argument).unwrap();
        let mut global = |name| exports.get_global(name).unwrap().get(&mut store).unwrap_i32();
        (global("lowest"), global("pointer"))
    }

    #[test]
    fn objects_that_free_each_other_take_stack_and_give_it_back() {
        let while_there_is_room = "(i32.gt_s (global.get $pointer) (i32.const 1024))";
        assert_eq!(freed(while_there_is_room, MAY_HOLD_OTHERS + 96), (1024, 4096));
        // The last 50 hold no others.
        let ends = "(i32.and (i32.ne (global.get $pointer) (i32.const 1024)) \
                    (i32.gt_s (local.get 0) (i32.const 16334)))";
        assert_eq!(freed(ends, MAY_HOLD_OTHERS + 9), (4096 - 10 * 32, 4096));
    }

    #[test]
    fn a_function_that_does_not_look_at_its_stack_is_unchanged() {
        assert_eq!(freed("(i32.gt_s (local.get 0) (i32.const 16384))", 16390), (4096, 4096));
    }
}
