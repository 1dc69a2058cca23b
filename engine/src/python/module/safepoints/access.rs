//! Recognises operators that are sure to access memory.

use wasmer::sys::wasmparser::Operator;

/// A plain load or store, the accesses that Cranelift's alias analysis covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Load,
    Store,
}

/// Returns the access that an operator is sure to make. Operators that may touch no memory, such as
/// a copy of zero bytes, make none.
pub(super) fn access(operator: &Operator<'_>) -> Option<Access> {
    use Operator as Op;
    Some(match operator {
        Op::I32Store { .. }
        | Op::I64Store { .. }
        | Op::F32Store { .. }
        | Op::F64Store { .. }
        | Op::I32Store8 { .. }
        | Op::I32Store16 { .. }
        | Op::I64Store8 { .. }
        | Op::I64Store16 { .. }
        | Op::I64Store32 { .. }
        | Op::V128Store { .. }
        | Op::V128Store8Lane { .. }
        | Op::V128Store16Lane { .. }
        | Op::V128Store32Lane { .. }
        | Op::V128Store64Lane { .. } => Access::Store,
        Op::I32Load { .. }
        | Op::I64Load { .. }
        | Op::F32Load { .. }
        | Op::F64Load { .. }
        | Op::I32Load8S { .. }
        | Op::I32Load8U { .. }
        | Op::I32Load16S { .. }
        | Op::I32Load16U { .. }
        | Op::I64Load8S { .. }
        | Op::I64Load8U { .. }
        | Op::I64Load16S { .. }
        | Op::I64Load16U { .. }
        | Op::I64Load32S { .. }
        | Op::I64Load32U { .. }
        | Op::V128Load { .. }
        | Op::V128Load8x8S { .. }
        | Op::V128Load8x8U { .. }
        | Op::V128Load16x4S { .. }
        | Op::V128Load16x4U { .. }
        | Op::V128Load32x2S { .. }
        | Op::V128Load32x2U { .. }
        | Op::V128Load8Splat { .. }
        | Op::V128Load16Splat { .. }
        | Op::V128Load32Splat { .. }
        | Op::V128Load64Splat { .. }
        | Op::V128Load32Zero { .. }
        | Op::V128Load64Zero { .. }
        | Op::V128Load8Lane { .. }
        | Op::V128Load16Lane { .. }
        | Op::V128Load32Lane { .. }
        | Op::V128Load64Lane { .. } => Access::Load,
        _ => return None,
    })
}
