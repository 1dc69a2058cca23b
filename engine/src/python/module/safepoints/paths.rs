//! Decides where the safepoints of one function go.
//!
//! Control flow is structured, so one pass over the operators is enough. A path from the head of a
//! loop without an access has passed the heads of all loops inside it. So each place needs one
//! number: the outermost loop from whose head it can be reached without an access.

use std::mem;

use wasmer::sys::MiddlewareError;
use wasmer::sys::wasmparser::{Catch, Operator};

#[derive(Debug)]
pub(super) struct Safepoints {
    /// Whether the function's entry gets one.
    pub(super) at_entry: bool,
    /// Whether the head of each loop gets one, in the order of the loops.
    pub(super) at_loops: Vec<bool>,
}

impl Safepoints {
    /// Finds the safepoints of the function with these operators.
    ///
    /// # Errors
    /// The operators don't form a function, or use the first version of the exceptions proposal.
    pub(super) fn of(operators: &[Operator<'_>]) -> Result<Self, MiddlewareError> {
        let mut paths = Paths::new();
        operators.iter().try_for_each(|operator| paths.follow(operator))?;
        Ok(Self { at_entry: paths.entry_needs_one, at_loops: paths.loops_need_one })
    }
}

/// The outermost of the loops around a place from whose head the place can be reached without an
/// access. The function is loop 0, a loop in it loop 1, and so on inwards. Within `n` loops, `n +
/// 1` is none of them.
type Outermost = usize;

/// No path leads here.
const UNREACHED: Outermost = usize::MAX;

/// Follows the operators of one function.
#[derive(Debug)]
struct Paths {
    /// Open blocks, the function's own first.
    blocks: Vec<Block>,
    /// The number of open loops.
    loops: usize,
    here: Outermost,
    /// Whether the entry reaches this place without an access. Here any load counts, since each
    /// call executes at least its first one.
    is_fresh: bool,
    entry_needs_one: bool,
    loops_need_one: Vec<bool>,
}

#[derive(Debug)]
struct Block {
    kind: BlockKind,
    /// The number of loops around it.
    depth: usize,
    /// Merged from the branches to its end.
    at_end: Outermost,
    is_fresh_at_end: bool,
}

#[derive(Debug, Clone, Copy)]
enum BlockKind {
    /// `block`, `try_table`, the function itself, or the second arm of an `if`.
    Plain,
    /// The first arm of an `if`, with the state where the arms part.
    If(Outermost, bool),
    /// The loop with this number.
    Loop(usize),
}

impl Paths {
    fn new() -> Self {
        let function =
            Block { kind: BlockKind::Plain, depth: 0, at_end: UNREACHED, is_fresh_at_end: false };
        Self {
            blocks: vec![function],
            loops: 0,
            here: 0,
            is_fresh: true,
            entry_needs_one: false,
            loops_need_one: Vec::new(),
        }
    }

    fn follow(&mut self, operator: &Operator<'_>) -> Result<(), MiddlewareError> {
        use Operator as Op;
        match operator {
            Op::Block { .. } => self.open(BlockKind::Plain),
            Op::If { .. } => self.open(BlockKind::If(self.here, self.is_fresh)),
            Op::Loop { .. } => {
                let number = self.loops_need_one.len();
                self.open(BlockKind::Loop(number));
                self.loops += 1;
                self.loops_need_one.push(false);
            }
            Op::TryTable { try_table } => {
                // An exception may come from any place within, and each has at least the accesses
                // before it.
                for catch in &try_table.catches {
                    let (Catch::One { label, .. }
                    | Catch::OneRef { label, .. }
                    | Catch::All { label }
                    | Catch::AllRef { label }) = catch;
                    self.branch(*label)?;
                }
                self.open(BlockKind::Plain);
            }
            Op::Else => self.second_arm(),
            Op::End => self.close(),
            Op::Br { relative_depth } => {
                self.branch(*relative_depth)?;
                self.leave();
            }
            Op::BrTable { targets } => {
                for target in targets.targets() {
                    self.branch(target.map_err(|error| failure(&error.to_string()))?)?;
                }
                self.branch(targets.default())?;
                self.leave();
            }
            Op::BrIf { relative_depth }
            | Op::BrOnNull { relative_depth }
            | Op::BrOnNonNull { relative_depth }
            | Op::BrOnCast { relative_depth, .. }
            | Op::BrOnCastFail { relative_depth, .. } => self.branch(*relative_depth)?,
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
                // Cranelift refuses them too.
                return Err(failure("exceptions of the proposal's first version"));
            }
            _ => match access(operator) {
                Some(MemoryAccess::Store) => self.touch(self.loops),
                // Cranelift may know its result from before the loops.
                Some(MemoryAccess::Load) => self.touch(0),
                None => {}
            },
        }
        Ok(())
    }

    fn open(&mut self, kind: BlockKind) {
        let depth = self.loops;
        self.blocks.push(Block { kind, depth, at_end: UNREACHED, is_fresh_at_end: false });
    }

    /// Merges the state here into the label's.
    fn branch(&mut self, label: u32) -> Result<(), MiddlewareError> {
        let target = self.blocks.len().checked_sub(1 + label as usize);
        let block = target.and_then(|target| self.blocks.get_mut(target));
        let block = block.ok_or_else(|| failure("a branch to no block"))?;
        match block.kind {
            BlockKind::Loop(number) => self.loops_need_one[number] |= self.here <= block.depth + 1,
            BlockKind::Plain | BlockKind::If(..) => {
                block.at_end = block.at_end.min(self.here);
                block.is_fresh_at_end |= self.is_fresh;
            }
        }
        Ok(())
    }

    /// What follows can't be reached from here.
    fn leave(&mut self) {
        self.here = UNREACHED;
        self.is_fresh = false;
    }

    fn second_arm(&mut self) {
        let Some(block) = self.blocks.last_mut() else { return };
        if let BlockKind::If(here, is_fresh) = mem::replace(&mut block.kind, BlockKind::Plain) {
            block.at_end = block.at_end.min(self.here);
            block.is_fresh_at_end |= self.is_fresh;
            (self.here, self.is_fresh) = (here, is_fresh);
        }
    }

    fn close(&mut self) {
        let Some(block) = self.blocks.pop() else { return };
        self.loops = block.depth;
        let mut here = self.here.min(block.at_end);
        self.is_fresh |= block.is_fresh_at_end;
        if let BlockKind::If(before, was_fresh) = block.kind {
            here = here.min(before);
            self.is_fresh |= was_fresh;
        }
        // Leaves the loops that end here.
        self.here = if here == UNREACHED { here } else { here.min(block.depth + 1) };
    }

    fn call(&mut self) {
        self.entry_needs_one |= self.is_fresh;
    }

    /// Notes an access that Cranelift keeps in each round of the `depth` outermost loops.
    fn touch(&mut self, depth: usize) {
        self.is_fresh = false;
        if self.here != UNREACHED {
            self.here = self.here.max(depth + 1);
        }
    }
}

fn failure(reason: &str) -> MiddlewareError {
    MiddlewareError::new("safepoints", reason)
}

/// A plain load or store, the accesses that Cranelift's alias analysis covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryAccess {
    Load,
    Store,
}

/// Returns the access that an operator is sure to make. Operators that may touch no memory, such as
/// a copy of zero bytes, make none.
pub(super) fn access(operator: &Operator<'_>) -> Option<MemoryAccess> {
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
        | Op::V128Store64Lane { .. } => MemoryAccess::Store,
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
        | Op::V128Load64Lane { .. } => MemoryAccess::Load,
        _ => return None,
    })
}
