//! Recognises operators that are sure to access memory.

use wasmer::sys::wasmparser::Operator;

/// A plain load or store, the accesses that Cranelift's alias analysis covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) kind: AccessKind,
    /// The constant that the instruction adds to its address operand.
    pub(super) offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessKind {
    Load,
    Store,
}

/// Returns the access that an operator is sure to make. Operators that may touch no memory, such as
/// a copy of zero bytes, make none.
pub(super) fn access(operator: &Operator<'_>) -> Option<Access> {
    use Operator as Op;
    let (kind, memarg) = match operator {
        Op::I32Store { memarg }
        | Op::I64Store { memarg }
        | Op::F32Store { memarg }
        | Op::F64Store { memarg }
        | Op::I32Store8 { memarg }
        | Op::I32Store16 { memarg }
        | Op::I64Store8 { memarg }
        | Op::I64Store16 { memarg }
        | Op::I64Store32 { memarg }
        | Op::V128Store { memarg }
        | Op::V128Store8Lane { memarg, .. }
        | Op::V128Store16Lane { memarg, .. }
        | Op::V128Store32Lane { memarg, .. }
        | Op::V128Store64Lane { memarg, .. } => (AccessKind::Store, memarg),
        Op::I32Load { memarg }
        | Op::I64Load { memarg }
        | Op::F32Load { memarg }
        | Op::F64Load { memarg }
        | Op::I32Load8S { memarg }
        | Op::I32Load8U { memarg }
        | Op::I32Load16S { memarg }
        | Op::I32Load16U { memarg }
        | Op::I64Load8S { memarg }
        | Op::I64Load8U { memarg }
        | Op::I64Load16S { memarg }
        | Op::I64Load16U { memarg }
        | Op::I64Load32S { memarg }
        | Op::I64Load32U { memarg }
        | Op::V128Load { memarg }
        | Op::V128Load8x8S { memarg }
        | Op::V128Load8x8U { memarg }
        | Op::V128Load16x4S { memarg }
        | Op::V128Load16x4U { memarg }
        | Op::V128Load32x2S { memarg }
        | Op::V128Load32x2U { memarg }
        | Op::V128Load8Splat { memarg }
        | Op::V128Load16Splat { memarg }
        | Op::V128Load32Splat { memarg }
        | Op::V128Load64Splat { memarg }
        | Op::V128Load32Zero { memarg }
        | Op::V128Load64Zero { memarg }
        | Op::V128Load8Lane { memarg, .. }
        | Op::V128Load16Lane { memarg, .. }
        | Op::V128Load32Lane { memarg, .. }
        | Op::V128Load64Lane { memarg, .. } => (AccessKind::Load, memarg),
        _ => return None,
    };
    Some(Access { kind, offset: memarg.offset })
}
