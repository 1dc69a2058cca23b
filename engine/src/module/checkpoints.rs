//! Loads that let a hard stop reach code which touches no memory.
//!
//! A stop takes the guest's memory away and waits for the next access. A loop that keeps its values
//! in registers has none, and would run to its end. So the modules that an engine compiles get a
//! load of the memory's first byte, a checkpoint:
//!
//! - at the head of each loop that can go round without a store;
//! - at the entry of each function that can reach a call without any access, since recursion is a
//!   loop too.
//!
//! Loads of the guest's own don't count in loops: Cranelift removes those that it knows the result
//! of, so a loop may lose them. The checkpoint is an atomic load, which Cranelift never removes
//! (it orders memory), and which is a plain `mov` on x86-64. Calls don't count either: nothing
//! says what the callee does. What a call costs makes the load beside it free.
//!
//! Which loops those are is found in one pass, since control flow is structured. A path from the
//! head of a loop that has had no store has gone through the heads of all loops inside that one, so
//! what a place has to know is one number: the outermost loop, of those around it, from whose head
//! it can be reached without a store.

use std::mem;

use wasmer::sys::wasmparser::{Catch, MemArg, Operator};
use wasmer::sys::{FunctionMiddleware, MiddlewareError, MiddlewareReaderState, ModuleMiddleware};
use wasmer_types::LocalFunctionIndex;

/// The version of the rules above; a part of the key of compiled modules.
pub(super) const CHECKPOINTS_VERSION: u32 = 1;

/// Gives the modules that an engine compiles their checkpoints.
#[derive(Debug, Default)]
pub(super) struct Checkpoints;

impl ModuleMiddleware for Checkpoints {
    fn generate_function_middleware<'a>(
        &self,
        _function: LocalFunctionIndex,
    ) -> Box<dyn FunctionMiddleware<'a> + 'a> {
        Box::new(CheckpointsIn::default())
    }
}

/// Holds one function back until it is known where its checkpoints go.
#[derive(Debug, Default)]
struct CheckpointsIn<'a> {
    operators: Vec<Operator<'a>>,
    paths: Paths,
}

impl<'a> FunctionMiddleware<'a> for CheckpointsIn<'a> {
    fn feed(
        &mut self,
        operator: Operator<'a>,
        state: &mut MiddlewareReaderState<'a>,
    ) -> Result<(), MiddlewareError> {
        self.paths.follow(&operator)?;
        self.operators.push(operator);
        if !self.paths.is_over() {
            return Ok(());
        }
        if self.paths.entry_needs_checkpoint {
            state.extend(checkpoint());
        }
        let mut loops = self.paths.loops_need_checkpoint.iter();
        for operator in mem::take(&mut self.operators) {
            let is_loop = matches!(operator, Operator::Loop { .. });
            state.push_operator(operator);
            if is_loop && loops.next() == Some(&true) {
                state.extend(checkpoint());
            }
        }
        Ok(())
    }
}

/// One byte, since wider atomic loads check their alignment.
fn checkpoint<'a>() -> [Operator<'a>; 3] {
    let memarg = MemArg { align: 0, max_align: 0, offset: 0, memory: 0 };
    [Operator::I32Const { value: 0 }, Operator::I32AtomicLoad8U { memarg }, Operator::Drop]
}

/// The outermost of the loops around a place from whose head the place can be reached without a
/// store. The function is loop 0, a loop in it loop 1, and so on inwards; at a place within `n`
/// loops, `n + 1` is none of them.
type Outermost = usize;

/// No path leads here.
const UNREACHED: Outermost = usize::MAX;

/// Follows the operators of one function, and finds the loops that can go round without a store.
#[derive(Debug)]
struct Paths {
    /// Blocks that are open, the function's own first.
    blocks: Vec<Block>,
    /// Loops that are open.
    depth: usize,
    here: Outermost,
    /// Whether the entry reaches this place without an access of any kind.
    is_fresh: bool,
    entry_needs_checkpoint: bool,
    /// In the order of the loops.
    loops_need_checkpoint: Vec<bool>,
}

#[derive(Debug)]
struct Block {
    kind: Kind,
    /// Loops around it.
    depth: usize,
    /// Merged from the branches to its end.
    at_end: Outermost,
    is_fresh_at_end: bool,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// `block`, `try_table`, the function itself, or the second arm of an `if`.
    Plain,
    /// The first arm of an `if`, with what holds where the arms part.
    If(Outermost, bool),
    /// The loop with this number in the order of loops.
    Loop(usize),
}

impl Default for Paths {
    fn default() -> Self {
        let function =
            Block { kind: Kind::Plain, depth: 0, at_end: UNREACHED, is_fresh_at_end: false };
        Self {
            blocks: vec![function],
            depth: 0,
            here: 0,
            is_fresh: true,
            entry_needs_checkpoint: false,
            loops_need_checkpoint: Vec::new(),
        }
    }
}

impl Paths {
    fn is_over(&self) -> bool {
        self.blocks.is_empty()
    }

    fn follow(&mut self, operator: &Operator<'_>) -> Result<(), MiddlewareError> {
        use Operator as Op;
        match operator {
            Op::Block { .. } => self.open(Kind::Plain),
            Op::If { .. } => self.open(Kind::If(self.here, self.is_fresh)),
            Op::Loop { .. } => {
                self.open(Kind::Loop(self.loops_need_checkpoint.len()));
                self.loops_need_checkpoint.push(false);
                self.depth += 1;
            }
            Op::TryTable { try_table } => {
                // An exception may come from any place within, all of which have at least the
                // stores that are before it.
                for catch in &try_table.catches {
                    let (Catch::One { label, .. }
                    | Catch::OneRef { label, .. }
                    | Catch::All { label }
                    | Catch::AllRef { label }) = catch;
                    self.branch(*label);
                }
                self.open(Kind::Plain);
            }
            Op::Else => self.second_arm(),
            Op::End => self.close(),
            Op::Br { relative_depth } => {
                self.branch(*relative_depth);
                self.leave();
            }
            Op::BrTable { targets } => {
                for target in targets.targets() {
                    let target = target
                        .map_err(|error| MiddlewareError::new("checkpoints", error.to_string()))?;
                    self.branch(target);
                }
                self.branch(targets.default());
                self.leave();
            }
            Op::BrIf { relative_depth }
            | Op::BrOnNull { relative_depth }
            | Op::BrOnNonNull { relative_depth }
            | Op::BrOnCast { relative_depth, .. }
            | Op::BrOnCastFail { relative_depth, .. } => self.branch(*relative_depth),
            Op::Call { .. } | Op::CallIndirect { .. } | Op::CallRef { .. } => self.call(),
            Op::ReturnCall { .. } | Op::ReturnCallIndirect { .. } | Op::ReturnCallRef { .. } => {
                self.call();
                self.leave();
            }
            Op::Return | Op::Unreachable | Op::Throw { .. } | Op::ThrowRef => self.leave(),
            Op::Try { .. }
            | Op::Catch { .. }
            | Op::CatchAll
            | Op::Delegate { .. }
            | Op::Rethrow { .. } => {
                // Their paths aren't followed; Cranelift refuses them too.
                return Err(MiddlewareError::new("checkpoints", "legacy exceptions"));
            }
            _ => match access(operator) {
                Some(Access::Store) => self.store(),
                Some(Access::Load) => self.is_fresh = false,
                None => {}
            },
        }
        Ok(())
    }

    fn open(&mut self, kind: Kind) {
        let depth = self.depth;
        self.blocks.push(Block { kind, depth, at_end: UNREACHED, is_fresh_at_end: false });
    }

    /// What holds here holds at the label too.
    fn branch(&mut self, label: u32) {
        let target = self.blocks.len() - 1 - label as usize;
        let block = &mut self.blocks[target];
        match block.kind {
            Kind::Loop(number) => {
                self.loops_need_checkpoint[number] |= self.here <= block.depth + 1;
            }
            Kind::Plain | Kind::If(..) => {
                block.at_end = block.at_end.min(self.here);
                block.is_fresh_at_end |= self.is_fresh;
            }
        }
    }

    /// What follows can't be reached from here.
    fn leave(&mut self) {
        self.here = UNREACHED;
        self.is_fresh = false;
    }

    fn second_arm(&mut self) {
        let Some(block) = self.blocks.last_mut() else { return };
        if let Kind::If(here, is_fresh) = mem::replace(&mut block.kind, Kind::Plain) {
            block.at_end = block.at_end.min(self.here);
            block.is_fresh_at_end |= self.is_fresh;
            (self.here, self.is_fresh) = (here, is_fresh);
        }
    }

    fn close(&mut self) {
        let Some(block) = self.blocks.pop() else { return };
        self.depth = block.depth;
        let mut here = self.here.min(block.at_end);
        self.is_fresh |= block.is_fresh_at_end;
        if let Kind::If(before, was_fresh) = block.kind {
            here = here.min(before);
            self.is_fresh |= was_fresh;
        }
        // Loops that end here are no longer around.
        self.here = if here == UNREACHED { here } else { here.min(self.depth + 1) };
    }

    fn call(&mut self) {
        self.entry_needs_checkpoint |= self.is_fresh;
    }

    fn store(&mut self) {
        self.is_fresh = false;
        if self.here != UNREACHED {
            self.here = self.depth + 1;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Load,
    Store,
}

/// How an operator is sure to touch the memory. What isn't listed may touch none of it, such as a
/// copy of no bytes.
fn access(operator: &Operator<'_>) -> Option<Access> {
    use Operator as Op;
    match operator {
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
        | Op::V128Store64Lane { .. } => Some(Access::Store),
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
        | Op::V128Load64Lane { .. } => Some(Access::Load),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
