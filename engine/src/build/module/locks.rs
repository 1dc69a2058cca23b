//! Record locks for the one process that a guest is.
//!
//! The build's C library knows no locks on files: its `fcntl` refuses them. So the build's SQLite
//! keeps processes apart by a folder beside the database, and that keeps a program's own connections
//! apart as well: none reads while another writes. POSIX has no lock stand against the process that
//! holds it, and a guest is the only process that sees its files; so here every lock is granted, and
//! SQLite is given the locks of POSIX, with which it tells its connections apart by itself.
//!
//! Both functions are found by their names. Another build without them is compiled as it is.

use parking_lot::Mutex;
use wasmer::sys::wasmparser::{BlockType, MemArg, Operator};
use wasmer::sys::{FunctionMiddleware, MiddlewareError, MiddlewareReaderState, ModuleMiddleware};
use wasmer_types::{FunctionIndex, FunctionType, LocalFunctionIndex, ModuleInfo, Type};

/// `F_GETLK`; `F_SETLK` and `F_SETLKW` come next. From here on `fcntl.h` of wasi-libc.
const GET_LOCK: i32 = 7;
const LOCK_COMMANDS: i32 = 3;
/// What `F_GETLK` says of a lock that could be had, in the first two bytes of a `struct flock`.
const UNLOCKED: i32 = 2;

/// Descriptor, command, and where the further arguments lie.
const FCNTL: &str = "fcntl";
/// What SQLite picks locks by: from a path and a file, the table of functions.
const FOLDER_LOCKS: &str = "dotlockIoFinderImpl";
const POSIX_LOCKS: &str = "posixIoFinderImpl";

/// Has the modules that an engine compiles grant locks, one module at a time.
#[derive(Debug, Default)]
pub(super) struct GrantLocks {
    /// Which functions of the module that is being compiled begin otherwise.
    changed: Mutex<Vec<(LocalFunctionIndex, Change)>>,
}

/// What comes before all else that a function does.
#[derive(Debug, Clone, Copy)]
enum Change {
    GrantLock,
    /// It answers what this function does.
    Become(FunctionIndex),
}

impl ModuleMiddleware for GrantLocks {
    fn transform_module_info(&self, info: &mut ModuleInfo) -> Result<(), MiddlewareError> {
        let mut changed = Vec::new();
        if let Some(fcntl) = find(info, FCNTL, &[Type::I32; 3]) {
            changed.extend(info.local_func_index(fcntl).map(|fcntl| (fcntl, Change::GrantLock)));
            let folder = find(info, FOLDER_LOCKS, &[Type::I32; 2]);
            let folder = folder.and_then(|function| info.local_func_index(function));
            let posix = find(info, POSIX_LOCKS, &[Type::I32; 2]);
            changed.extend(folder.zip(posix.map(Change::Become)));
        }
        *self.changed.lock() = changed;
        Ok(())
    }

    fn generate_function_middleware<'a>(
        &self,
        function: LocalFunctionIndex,
    ) -> Box<dyn FunctionMiddleware<'a> + 'a> {
        let changed = self.changed.lock();
        let change = changed.iter().find(|(index, _)| *index == function);
        Box::new(Beginning(change.map(|(_, change)| *change)))
    }
}

/// The function of this name that takes these parameters and answers an `i32`.
fn find(info: &ModuleInfo, name: &str, parameters: &[Type]) -> Option<FunctionIndex> {
    let wanted = FunctionType::new(parameters, [Type::I32]);
    let named = info.function_names.iter().filter(|(_, known)| *known == name);
    let mut found = named.map(|(index, _)| *index);
    found.find(|index| info.signatures[info.functions[*index]] == wanted)
}

/// What is still to be put at a function's beginning.
#[derive(Debug)]
struct Beginning(Option<Change>);

impl<'a> FunctionMiddleware<'a> for Beginning {
    fn feed(
        &mut self,
        operator: Operator<'a>,
        state: &mut MiddlewareReaderState<'a>,
    ) -> Result<(), MiddlewareError> {
        let at = |max_align| MemArg { align: max_align, max_align, offset: 0, memory: 0 };
        match self.0.take() {
            None => {}
            Some(Change::GrantLock) => state.extend([
                Operator::LocalGet { local_index: 1 },
                Operator::I32Const { value: GET_LOCK },
                Operator::I32Sub,
                Operator::I32Const { value: LOCK_COMMANDS },
                Operator::I32LtU,
                Operator::If { blockty: BlockType::Empty },
                Operator::LocalGet { local_index: 1 },
                Operator::I32Const { value: GET_LOCK },
                Operator::I32Eq,
                Operator::If { blockty: BlockType::Empty },
                Operator::LocalGet { local_index: 2 },
                Operator::I32Load { memarg: at(2) },
                Operator::I32Const { value: UNLOCKED },
                Operator::I32Store16 { memarg: at(1) },
                Operator::End,
                Operator::I32Const { value: 0 },
                Operator::Return,
                Operator::End,
            ]),
            Some(Change::Become(function)) => state.extend([
                Operator::LocalGet { local_index: 0 },
                Operator::LocalGet { local_index: 1 },
                Operator::Call { function_index: function.as_u32() },
                Operator::Return,
            ]),
        }
        state.push_operator(operator);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wasmer::{Instance, Module, Store, TypedFunction, imports};

    use crate::build::module::new_engine;
    use crate::memory::tunables::with_memory;

    #[test]
    fn locks_are_granted_and_sqlite_takes_those_of_posix() {
        // Further arguments at 16: a pointer to what is at 32, which is a lock for writing.
        let text = r#"(module (memory 1)
            (data (i32.const 16) "\20\00\00\00") (data (i32.const 32) "\01\00\77")
            (func $fcntl (param i32 i32 i32) (result i32) (i32.const -1))
            (func $posixIoFinderImpl (param i32 i32) (result i32)
                (i32.sub (local.get 0) (local.get 1)))
            (func $dotlockIoFinderImpl (param i32 i32) (result i32) (i32.const 7))
            (func (export "fcntl") (param i32) (result i32)
                (call $fcntl (i32.const 3) (local.get 0) (i32.const 16)))
            (func (export "find") (result i32)
                (call $dotlockIoFinderImpl (i32.const 100) (i32.const 1)))
            (func (export "lock") (result i32) (i32.load (i32.const 32))))"#;
        let engine = new_engine();
        let module = Module::new(&engine, wat::parse_str(text).unwrap()).unwrap();
        let mut store = Store::new(engine);
        let (instance, _memory) =
            with_memory(None, || Instance::new(&mut store, &module, &imports! {}).unwrap());
        let exports = &instance.exports;
        let fcntl: TypedFunction<i32, i32> = exports.get_typed_function(&store, "fcntl").unwrap();
        let find: TypedFunction<(), i32> = exports.get_typed_function(&store, "find").unwrap();
        let lock: TypedFunction<(), i32> = exports.get_typed_function(&store, "lock").unwrap();
        for (command, answer, held) in [
            (6, -1, 0x77_0001),
            (8, 0, 0x77_0001),
            (9, 0, 0x77_0001),
            (7, 0, 0x77_0002),
            (10, -1, 0x77_0002),
        ] {
            assert_eq!(fcntl.call(&mut store, command).unwrap(), answer, "{command}");
            assert_eq!(lock.call(&mut store).unwrap(), held, "{command}");
        }
        assert_eq!(find.call(&mut store).unwrap(), 99);
    }
}
