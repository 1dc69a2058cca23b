//! Makes NumPy's default integer 64 bits wide, as on other systems.
//!
//! NumPy takes the integer of a pointer's width. On this build, programs that are right elsewhere
//! would overflow silently. A few functions of NumPy's core name the type by its number; here they
//! name the one with 64 bits. Indices keep the width of pointers, in which NumPy's code stores
//! them. Where it wants indices of exactly this type, it then converts wider ones.
//!
//! The functions are found by name. They are changed in the default build alone (`module.rs`), and
//! only if all are there.

use std::collections::HashMap;

use parking_lot::Mutex;
use wasmer::sys::wasmparser::{MemArg, Operator};
use wasmer::sys::{FunctionMiddleware, MiddlewareError, MiddlewareReaderState, ModuleMiddleware};
use wasmer_types::{LocalFunctionIndex, ModuleInfo};

/// The numbers of C's `long` and `long long` in NumPy's ABI. Those of unsigned ones follow.
const LONG: i32 = 7;
const LONG_LONG: i32 = 9;
/// The largest width of what sums and products widen, in bytes.
const NARROWER: i32 = 7;
/// `NPY_ARRAY_DEFAULT`, `NPY_ARRAY_ALIGNED` and `NPY_ARRAY_SAME_KIND_CASTING`.
const DEFAULT_FLAGS: i32 = 0x501;
const ALIGNED: i32 = 0x100;
const SAME_KIND: i32 = 0x0400_0000;
/// From `Intp` back to `Int64` in NumPy's table of pointers to its types.
const TO_INT64: u64 = 2 * 4;
/// Constant addresses are above this, and fields of structures below.
const FIRST_ADDRESS: u64 = 1 << 16;

/// Converts an argument of a ufunc to C's `long`, and tells whether it is too large for that.
const TO_LONG: &str = "PyLong_AsLongAndOverflow";
/// Converts to an array of a type, with flags.
const TO_ARRAY: &str = "PyArray_FromAny";

static CHANGES: [(&str, Change); 12] = [
    ("discover_descriptor_from_pylong", Change::Default),
    ("int_default_descriptor", Change::Default),
    ("_convert_from_any", Change::Default),
    ("PyArray_ArangeObj", Change::Default),
    ("reducelike_promote_and_resolve", Change::Reduction),
    ("int_common_dtype", Change::Common),
    ("ufunc_generic_fastcall", Change::Scalar),
    ("PyArray_Repeat", Change::Indices),
    ("PyArray_PutTo", Change::Indices),
    ("PyArray_Choose", Change::Indices),
    ("PyUFunc_GenericReduction", Change::Indices),
    ("__pyx_pw_5numpy_6random_6mtrand_11RandomState_87binomial", Change::Counts),
];

/// How a function uses the type.
#[derive(Debug, Clone, Copy)]
enum Change {
    /// It names the default integer by number.
    Default,
    /// It also compares a width, and looks up the number for others in a table.
    Reduction,
    /// It takes the type's address from a table of all types.
    Common,
    /// It calculates with a `long`, unless the integer is too large for that.
    Scalar,
    /// It converts indices.
    Indices,
    /// It converts numbers of trials, by flags alone.
    Counts,
}

/// Makes the modules that an engine compiles have wide integers, one module at a time.
#[derive(Debug, Default)]
pub(super) struct WidenIntegers {
    module: Mutex<Functions>,
}

/// Functions of the module being compiled.
#[derive(Debug, Default)]
struct Functions {
    changed: HashMap<LocalFunctionIndex, Change>,
    to_long: u32,
    to_array: u32,
}

impl Functions {
    /// Returns nothing if one is missing.
    fn of(info: &ModuleInfo) -> Option<Self> {
        let names = CHANGES.iter().map(|(name, _)| *name).chain([TO_LONG, TO_ARRAY]);
        let mut found: HashMap<&str, _> = names.map(|name| (name, None)).collect();
        for (index, name) in &info.function_names {
            if let Some(place) = found.get_mut(name.as_str()) {
                *place = info.local_func_index(*index).map(|local| (*index, local));
            }
        }
        let changed = CHANGES.iter().map(|(name, change)| Some((found[name]?.1, *change)));
        Some(Self {
            changed: changed.collect::<Option<_>>()?,
            to_long: found[TO_LONG]?.0.as_u32(),
            to_array: found[TO_ARRAY]?.0.as_u32(),
        })
    }
}

impl ModuleMiddleware for WidenIntegers {
    fn transform_module_info(&self, info: &mut ModuleInfo) -> Result<(), MiddlewareError> {
        *self.module.lock() = Functions::of(info).unwrap_or_default();
        Ok(())
    }

    fn generate_function_middleware<'a>(
        &self,
        function: LocalFunctionIndex,
    ) -> Box<dyn FunctionMiddleware<'a> + 'a> {
        let module = self.module.lock();
        Box::new(WidenIn {
            change: module.changed.get(&function).copied(),
            to_long: module.to_long,
            to_array: module.to_array,
            converts: false,
            intp: None,
        })
    }
}

#[derive(Debug)]
struct WidenIn {
    change: Option<Change>,
    to_long: u32,
    to_array: u32,
    /// Whether the next conversion is to the type of indices.
    converts: bool,
    /// Where the table of types has that of indices.
    intp: Option<u64>,
}

impl<'a> FunctionMiddleware<'a> for WidenIn {
    fn feed(
        &mut self,
        mut operator: Operator<'a>,
        state: &mut MiddlewareReaderState<'a>,
    ) -> Result<(), MiddlewareError> {
        match (self.change, &mut operator) {
            (Some(Change::Default | Change::Reduction), Operator::I32Const { value })
                if *value == LONG =>
            {
                *value = LONG_LONG;
            }
            (Some(Change::Reduction), Operator::I32LeU) => {
                state.extend([Operator::Drop, Operator::I32Const { value: NARROWER }]);
            }
            (Some(Change::Reduction), Operator::I32Load8U { memarg })
                if memarg.offset >= FIRST_ADDRESS =>
            {
                state.push_operator(operator);
                state.push_operator(Operator::I32Const { value: LONG_LONG - LONG });
                operator = Operator::I32Add;
            }
            (Some(Change::Common), Operator::I32Load { memarg })
                if memarg.offset >= FIRST_ADDRESS =>
            {
                let offset = memarg.offset;
                if offset == *self.intp.get_or_insert(offset) {
                    memarg.offset -= TO_INT64;
                }
            }
            // It takes the integer and the address of the overflow.
            (Some(Change::Scalar), Operator::Call { function_index })
                if *function_index == self.to_long =>
            {
                let memarg = MemArg { align: 2, max_align: 2, offset: 0, memory: 0 };
                state.extend([
                    Operator::I32Const { value: 1 },
                    Operator::I32Store { memarg },
                    Operator::Drop,
                ]);
                operator = Operator::I32Const { value: -1 };
            }
            (Some(Change::Indices), Operator::I32Const { value }) if *value == LONG => {
                self.converts = true;
            }
            // Its last arguments are the flags and a null pointer.
            (Some(Change::Indices), Operator::Call { function_index })
                if *function_index == self.to_array && self.converts =>
            {
                self.converts = false;
                state.extend([
                    Operator::Drop,
                    Operator::Drop,
                    Operator::I32Const { value: DEFAULT_FLAGS | SAME_KIND },
                    Operator::I32Const { value: 0 },
                ]);
            }
            (Some(Change::Counts), Operator::I32Const { value }) if *value == ALIGNED => {
                *value |= SAME_KIND;
            }
            _ => {}
        }
        state.push_operator(operator);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wasmer::{Instance, TypedFunction, imports};

    use super::CHANGES;
    use crate::memory::tunables::with_memory;
    use crate::python::module::new_engine;

    /// A module with all functions but one, each of which returns what would be used.
    fn text(missing: &str) -> String {
        let functions = CHANGES.map(|(name, _)| match name {
            _ if name == missing => String::new(),
            "reducelike_promote_and_resolve" => format!(
                "(func ${name} (export \"{name}\") (result i32) (i32.add
                    (i32.mul (i32.const 100) (i32.le_u (i32.const 4) (i32.const 3)))
                    (i32.load8_u offset=70000 (i32.const 0))))"
            ),
            "int_common_dtype" => format!(
                "(func ${name} (export \"{name}\") (result i32) (i32.sub
                    (i32.load offset=80008 (i32.const 0)) (i32.load offset=80004 (i32.const 0))))"
            ),
            "ufunc_generic_fastcall" => format!(
                "(func ${name} (export \"{name}\") (result i32) (i32.sub
                    (call $PyLong_AsLongAndOverflow (i32.const 5) (i32.const 16))
                    (i32.load (i32.const 16))))"
            ),
            "PyArray_Repeat" | "PyArray_PutTo" | "PyArray_Choose" | "PyUFunc_GenericReduction" => {
                format!(
                    "(func ${name} (export \"{name}\") (result i32)
                        (call $PyArray_FromAny (i32.const 7) (i32.const 1) (i32.const 0)))"
                )
            }
            _ if name.ends_with("binomial") => {
                format!("(func ${name} (export \"{name}\") (result i32) (i32.const 256))")
            }
            _ => format!("(func ${name} (export \"{name}\") (result i32) (i32.const 7))"),
        });
        format!(
            "(module (memory 2)
                (data (i32.const 70000) \"\\08\")
                (data (i32.const 80000) \"\\01\\00\\00\\00\\02\\00\\00\\00\\04\")
                (func $PyLong_AsLongAndOverflow (param i32 i32) (result i32) (local.get 0))
                (func $PyArray_FromAny (param i32 i32 i32) (result i32) (local.get 1))
                {})",
            functions.concat()
        )
    }

    fn results(text: &str) -> Vec<i32> {
        let engine = new_engine();
        let module = engine.module(text);
        let mut store = engine.store();
        let (instance, _memory) =
            with_memory(None, || Instance::new(&mut store, &module, &imports! {}).unwrap());
        let called = CHANGES.iter().filter_map(|(name, _)| {
            let function: TypedFunction<(), i32> =
                instance.exports.get_typed_function(&store, name).ok()?;
            Some(function.call(&mut store).unwrap())
        });
        called.collect()
    }

    #[test]
    fn functions_of_numpy_get_the_integer_with_64_bits() {
        let wide = [9, 9, 9, 9, 110, -1, -2];
        let flags = [0x0400_0501, 0x0400_0501, 0x0400_0501, 0x0400_0501, 0x0400_0100];
        assert_eq!(results(&text("")), [&wide[..], &flags].concat());
    }

    #[test]
    fn a_build_that_lacks_one_of_them_is_unchanged() {
        assert_eq!(results(&text("PyArray_Choose")), [7, 7, 7, 7, 8, 2, 5, 1, 1, 1, 256]);
    }
}
