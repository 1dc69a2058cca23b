//! Grants file locks to the only process that a guest has.
//!
//! The build's C library has no file locks: its `fcntl` refuses them. So the build's SQLite
//! separates processes by a folder beside the database. That also separates the connections of one
//! program: none reads while another writes. Under POSIX a process never conflicts with its own
//! locks. A guest is the only process that sees its files. So here every lock is granted, and
//! SQLite uses POSIX locks, with which it separates its connections itself.
//!
//! Both functions are found by name. A build without them is compiled unchanged.

use wasmer::sys::wasmparser::{BlockType, MemArg, Operator};
use wasmer_types::{ModuleInfo, Type};

use super::beginnings::{Begin, Beginning, find};

/// `F_GETLK`; `F_SETLK` and `F_SETLKW` follow it. The values are those of wasi-libc's `fcntl.h`.
const GET_LOCK: i32 = 7;
const LOCK_COMMANDS: i32 = 3;
/// `F_GETLK` writes this into the first two bytes of a `struct flock` if the lock is free.
const UNLOCKED: i32 = 2;

/// Takes the descriptor, the command, and the address of the other arguments.
const FCNTL: &str = "fcntl";
/// The function by which SQLite chooses locks: from a path and a file, the table of functions.
const FOLDER_LOCKS: &str = "dotlockIoFinderImpl";
const POSIX_LOCKS: &str = "posixIoFinderImpl";

/// Makes the modules that an engine compiles grant locks.
#[derive(Debug)]
pub(super) struct GrantLocks;

impl Begin for GrantLocks {
    fn beginnings(&self, info: &mut ModuleInfo) -> Vec<Beginning> {
        let find =
            |name: &str, count: usize| find(info, name, &[Type::I32; 3][..count], &[Type::I32]);
        let local = |name: &str, count: usize| info.local_func_index(find(name, count)?);
        let Some(fcntl) = local(FCNTL, 3) else { return Vec::new() };
        let at = |max_align| MemArg { align: max_align, max_align, offset: 0, memory: 0 };
        let get = |local_index| Operator::LocalGet { local_index };
        let grant = vec![
            get(1),
            Operator::I32Const { value: GET_LOCK },
            Operator::I32Sub,
            Operator::I32Const { value: LOCK_COMMANDS },
            Operator::I32LtU,
            Operator::If { blockty: BlockType::Empty },
            get(1),
            Operator::I32Const { value: GET_LOCK },
            Operator::I32Eq,
            Operator::If { blockty: BlockType::Empty },
            get(2),
            Operator::I32Load { memarg: at(2) },
            Operator::I32Const { value: UNLOCKED },
            Operator::I32Store16 { memarg: at(1) },
            Operator::End,
            Operator::I32Const { value: 0 },
            Operator::Return,
            Operator::End,
        ];
        let posix = find(POSIX_LOCKS, 2).map(|posix| {
            let function_index = posix.as_u32();
            vec![get(0), get(1), Operator::Call { function_index }, Operator::Return]
        });
        let folder = local(FOLDER_LOCKS, 2).zip(posix);
        [(fcntl, grant)].into_iter().chain(folder).collect()
    }
}

#[cfg(test)]
mod tests {
    use wasmer::{Instance, TypedFunction, imports};

    use crate::memory::tunables::with_memory;
    use crate::python::module::new_engine;

    #[test]
    fn locks_are_granted_and_sqlite_takes_those_of_posix() {
        // The other arguments are at 16: a pointer to 32, where there is a write lock.
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
        let module = engine.module(text);
        let mut store = engine.store();
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
