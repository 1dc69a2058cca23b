//! Lets the host compute what hot functions of NumPy and its BLAS compute, with wider vectors and
//! better algorithms than the build has.
//!
//! Each of these functions begins with a call of the host (`host/kernels.rs`). The host either does
//! all of the work, and the function returns. Or it does nothing, and the function goes on as its
//! author wrote it. Small operands never leave the guest. The results are the same, bit for bit.
//!
//! The functions are found by name, in the default build alone (`module.rs`): results are only
//! equal for the order of additions that it was compiled with.

use wasmer::sys::wasmparser::{BlockType, MemArg, Operator};
use wasmer_types::{ImportIndex, ModuleInfo, Type};

use super::beginnings::{Begin, Beginning, find};
use super::imports::{HOST, HOST_CALL};

/// Calls of `host.call` whose length is at least this, and below those of threads, are of kernels.
/// No frame is that long.
pub(crate) const LEAST_KERNEL_CALL: u32 = 0xffff_fe00;
/// What such a call returns if the host has done the work. Otherwise it returns 0.
pub(crate) const IS_DONE: i32 = 1;

/// The version of what kernels compute and of how they are called; a part of the key of compiled
/// modules.
pub(super) const KERNELS_VERSION: u32 = 2;

/// What the host computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Adds the product of two packed blocks of doubles to a matrix: OpenBLAS's `dgemm_kernel`.
    Gemm,
    /// Adds the products of a matrix's columns and a vector to another one: its `dgemv_t`.
    GemvT,
    /// Sorts numbers in ascending order: NumPy's `quicksort_`.
    Sort(NumberType),
    /// Computes the exponential of each double: NumPy's `DOUBLE_exp`.
    Exp,
}

/// The numbers that are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberType {
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

/// Each kernel with the function that it stands in for. The number of a call is the place here.
pub(crate) const KERNELS: [(Kernel, &str); 11] = [
    (Kernel::Gemm, "dgemm_kernel"),
    (Kernel::GemvT, "dgemv_t"),
    (
        Kernel::Sort(NumberType::I32),
        "int quicksort_<npy::integral_type<int, (NPY_TYPES)5>, int, false>(int*, long)",
    ),
    (
        Kernel::Sort(NumberType::U32),
        "int quicksort_<npy::integral_type<unsigned int, (NPY_TYPES)6>, unsigned int, false>\
         (unsigned int*, long)",
    ),
    (
        Kernel::Sort(NumberType::I32),
        "int quicksort_<npy::integral_type<long, (NPY_TYPES)7>, long, false>(long*, long)",
    ),
    (
        Kernel::Sort(NumberType::U32),
        "int quicksort_<npy::integral_type<unsigned long, (NPY_TYPES)8>, unsigned long, false>\
         (unsigned long*, long)",
    ),
    (
        Kernel::Sort(NumberType::I64),
        "int quicksort_<npy::integral_type<long long, (NPY_TYPES)9>, long long, false>\
         (long long*, long)",
    ),
    (
        Kernel::Sort(NumberType::U64),
        "int quicksort_<npy::integral_type<unsigned long long, (NPY_TYPES)10>, unsigned long long, \
         false>(unsigned long long*, long)",
    ),
    (
        Kernel::Sort(NumberType::F32),
        "int quicksort_<npy::floating_point_type<float, (NPY_TYPES)11>, float, false>\
         (float*, long)",
    ),
    (
        Kernel::Sort(NumberType::F64),
        "int quicksort_<npy::floating_point_type<double, (NPY_TYPES)12>, double, false>\
         (double*, long)",
    ),
    (Kernel::Exp, "DOUBLE_exp"),
];

/// Returns the kernel that a call of `host.call` with this length is of.
pub(crate) fn kernel_of(call: u32) -> Option<Kernel> {
    let place = call.checked_sub(LEAST_KERNEL_CALL)? as usize;
    Some(KERNELS.get(place)?.0)
}

impl Kernel {
    /// The parameters of the function.
    fn parameters(self) -> &'static [Type] {
        use Type::{F64, I32};
        match self {
            // Rows, columns, depth, factor, two blocks, the matrix and the length of its columns.
            Self::Gemm => &[I32, I32, I32, F64, I32, I32, I32, I32],
            // Rows, columns, nothing, factor, the matrix, the length of its columns, and the two
            // vectors, each with its step; a buffer.
            Self::GemvT => &[I32, I32, I32, F64, I32, I32, I32, I32, I32, I32, I32],
            // Where they are, and how many.
            Self::Sort(_) => &[I32, I32],
            // Where the operands' addresses, their number and their steps are; nothing.
            Self::Exp => &[I32, I32, I32, I32],
        }
    }

    fn results(self) -> &'static [Type] {
        match self {
            Self::Gemm | Self::GemvT => &[Type::I32],
            Self::Sort(_) | Self::Exp => &[],
        }
    }

    /// Parameters, each with the least value for which calling the host pays. Of `Exp` it is the value to
    /// which the parameter points.
    fn least(self) -> &'static [(u32, i32)] {
        match self {
            Self::Gemm => &[(0, 6), (1, 6), (2, 16)],
            Self::GemvT => &[(0, 32), (1, 8)],
            Self::Sort(_) | Self::Exp => &[(1, 64)],
        }
    }
}

/// Makes the modules that an engine compiles call the host's kernels.
#[derive(Debug)]
pub(super) struct CallKernels;

impl Begin for CallKernels {
    fn beginnings(&self, info: &mut ModuleInfo) -> Vec<Beginning> {
        let host_call = info.imports.iter().find_map(|(key, import)| match import {
            ImportIndex::Function(index) if (&*key.module, &*key.field) == (HOST, HOST_CALL) => {
                Some(index.as_u32())
            }
            _ => None,
        });
        // The first global is the stack pointer, as for threads.
        let Some(host_call) = host_call.filter(|_| !info.globals.is_empty()) else {
            return Vec::new();
        };
        let kernels = (LEAST_KERNEL_CALL..).zip(KERNELS);
        let begun = kernels.filter_map(|(call, (kernel, name))| {
            let function = find(info, name, kernel.parameters(), kernel.results())?;
            Some((info.local_func_index(function)?, begin(kernel, call, host_call)))
        });
        begun.collect()
    }
}

/// Returns the operators that call the host if the operands are large, and return if it has done
/// the work.
fn begin(kernel: Kernel, call: u32, host_call: u32) -> Vec<Operator<'static>> {
    let get = |local_index| Operator::LocalGet { local_index };
    let value = |value: i32| Operator::I32Const { value };
    let memarg = |align, offset| MemArg { align, max_align: align, offset, memory: 0 };
    let load = || Operator::I32Load { memarg: memarg(2, 0) };
    let mut operators = Vec::new();
    for (place, (parameter, least)) in kernel.least().iter().enumerate() {
        operators.push(get(*parameter));
        operators.extend((kernel == Kernel::Exp).then(load));
        operators.extend([value(*least), Operator::I32GeS]);
        operators.extend((place > 0).then_some(Operator::I32And));
    }
    operators.push(Operator::If { blockty: BlockType::Empty });
    let call = value(call.cast_signed());
    match kernel {
        Kernel::Sort(_) => operators.extend([get(0), call, get(1), value(0)]),
        Kernel::Exp => operators.extend([get(0), call, get(1), get(2)]),
        Kernel::Gemm | Kernel::GemvT => {
            // The arguments go below the stack, where nothing is while a function begins.
            let parameters = kernel.parameters();
            let words = parameters.len() * size_of::<u64>();
            let block = [
                Operator::GlobalGet { global_index: 0 },
                value(i32::try_from(words).unwrap_or(i32::MAX)),
                Operator::I32Sub,
            ];
            for (place, parameter) in (0..).zip(parameters) {
                operators.extend(block.clone());
                operators.push(get(place));
                let offset = u64::from(place) * size_of::<u64>() as u64;
                operators.push(match parameter {
                    Type::F64 => Operator::F64Store { memarg: memarg(3, offset) },
                    _ => Operator::I32Store { memarg: memarg(2, offset) },
                });
            }
            operators.extend(block);
            operators.extend([call, value(0), value(0)]);
        }
    }
    operators.push(Operator::Call { function_index: host_call });
    operators.push(Operator::If { blockty: BlockType::Empty });
    operators.extend((!kernel.results().is_empty()).then_some(value(0)));
    operators.extend([Operator::Return, Operator::End, Operator::End]);
    operators
}

#[cfg(test)]
mod tests {
    use wasmer::{Function, FunctionEnv, FunctionEnvMut, Instance, TypedFunction, Value, imports};

    use super::*;
    use crate::memory::tunables::with_memory;
    use crate::python::module::new_engine;

    /// A module with some of the functions, each of which stores what it does itself.
    const BUILD: &str = r#"(module
        (import "host" "call" (func $host (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1) (global $stack (mut i32) (i32.const 4096))
        (func $dgemm_kernel (export "gemm") (param i32 i32 i32 f64 i32 i32 i32 i32) (result i32)
            (i32.const 5))
        (func $dgemv_t (export "other type") (param i32) (result i32) (i32.const 5))
        (func $"int quicksort_<npy::integral_type<int, (NPY_TYPES)5>, int, false>(int*, long)"
            (export "sort") (param i32 i32) (i32.store (i32.const 16) (i32.const 5)))
        (func $DOUBLE_exp (export "exp") (param i32 i32 i32 i32)
            (i32.store (i32.const 16) (i32.const 5))))"#;

    #[test]
    fn large_operands_go_to_the_host_and_small_ones_stay() {
        let engine = new_engine();
        let module = engine.module(BUILD);
        let mut store = engine.store();
        // What the host answers, and the calls that it got.
        let calls = FunctionEnv::new(&mut store, (0, Vec::new()));
        let call = |mut env: FunctionEnvMut<'_, (i32, Vec<[u32; 4]>)>,
                    at: u32,
                    call: u32,
                    count: u32,
                    steps: u32| {
            env.data_mut().1.push([at, call, count, steps]);
            env.data().0
        };
        let call = Function::new_typed_with_env(&mut store, &calls, call);
        let imports = imports! { "host" => { "call" => call } };
        let (instance, memory) =
            with_memory(None, || Instance::new(&mut store, &module, &imports).unwrap());
        let memory = memory.unwrap();
        let exports = &instance.exports;
        let gemm = exports.get_function("gemm").unwrap();
        let sort: TypedFunction<(i32, i32), ()> =
            exports.get_typed_function(&store, "sort").unwrap();
        let exp: TypedFunction<(i32, i32, i32, i32), ()> =
            exports.get_typed_function(&store, "exp").unwrap();
        let numbers = [8, 9, 20, 0, 4, 5, 6, 7].map(Value::I32);
        let arguments = |depth| {
            let mut arguments = numbers.clone();
            (arguments[2], arguments[3]) = (Value::I32(depth), Value::F64(0.5));
            arguments
        };
        for (answer, result) in [(0, 5), (IS_DONE, 0)] {
            calls.as_mut(&mut store).0 = answer;
            assert_eq!(*gemm.call(&mut store, &arguments(2)).unwrap(), [Value::I32(5)]);
            assert_eq!(*gemm.call(&mut store, &arguments(20)).unwrap(), [Value::I32(result)]);
            memory.shared().write(16, &[0; 4]).unwrap();
            sort.call(&mut store, 1024, 63).unwrap();
            sort.call(&mut store, 1024, 64).unwrap();
            for count in [63_u32, 64] {
                memory.shared().write(2048, &count.to_le_bytes()).unwrap();
                exp.call(&mut store, 1032, 2048, 3072, 0).unwrap();
            }
        }
        let expected = [
            [4096 - 64, LEAST_KERNEL_CALL, 0, 0],
            [1024, LEAST_KERNEL_CALL + 2, 64, 0],
            [1032, LEAST_KERNEL_CALL + 10, 2048, 3072],
        ];
        assert_eq!(calls.as_ref(&store).1[..], [expected, expected].concat());
        let mut stored = [[0; 8]; 8];
        memory.shared().read(4096 - 64, stored.as_flattened_mut()).unwrap();
        let words = stored.map(u64::from_le_bytes);
        assert_eq!(words, [8, 9, 20, 0.5_f64.to_bits(), 4, 5, 6, 7]);
        assert!(KERNELS.len() <= 0x100, "calls of threads follow");
    }
}
