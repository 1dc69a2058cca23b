//! Which loads go to another address each time a loop goes round.
//!
//! Cranelift leaves a load out whose address, and so whose result, it knows from before the loop.
//! It can't know an address that comes from a variable which each round changes. Compiled C keeps
//! such variables in locals: `p = p + 8`, `p = load(p)`, and others that are computed from these.
//! What isn't plainly of this kind doesn't count, so at worst a checkpoint is one too many.

use std::collections::{HashMap, HashSet};

use wasmer::sys::wasmparser::Operator;

use super::paths::{Access, access};

/// Operators that one address may be computed by; longer computations don't count.
const MOST_OPERATORS: usize = 32;

/// The addresses of one function's loads.
#[derive(Debug)]
pub(super) struct Addresses<'a> {
    operators: &'a [Operator<'a>],
    /// For each loop, in the order of loops, the locals that each of its rounds changes.
    changing: Vec<HashSet<u32>>,
}

/// What one `local.set` of a loop computes its value from; `None` if that isn't plain.
type Sources = Option<Vec<u32>>;

impl<'a> Addresses<'a> {
    pub(super) fn of(operators: &'a [Operator<'a>]) -> Self {
        let changing = sets_by_loop(operators).iter().map(changing).collect();
        Self { operators, changing }
    }

    /// How many of the loops around the load at `at`, the outermost first, it goes to another
    /// address in each round of. An address that changes in an inner loop is unknown outside of it,
    /// so also to the loops around that.
    pub(super) fn changes_in(&self, at: usize, loops: &[usize]) -> usize {
        let Some(sources) = sources_before(self.operators, at) else { return 0 };
        let changes =
            |number: &usize| sources.iter().any(|local| self.changing[*number].contains(local));
        loops.iter().rposition(changes).map_or(0, |innermost| innermost + 1)
    }
}

/// The locals that each loop sets, with what from.
fn sets_by_loop(operators: &[Operator<'_>]) -> Vec<HashMap<u32, Vec<Sources>>> {
    let mut sets: Vec<HashMap<u32, Vec<Sources>>> = Vec::new();
    // Of each block that is open, the number of the loop that it is.
    let mut blocks: Vec<Option<usize>> = vec![None];
    for (at, operator) in operators.iter().enumerate() {
        match operator {
            Operator::Block { .. } | Operator::If { .. } | Operator::TryTable { .. } => {
                blocks.push(None);
            }
            Operator::Loop { .. } => {
                blocks.push(Some(sets.len()));
                sets.push(HashMap::new());
            }
            Operator::End => drop(blocks.pop()),
            Operator::LocalSet { local_index } | Operator::LocalTee { local_index }
                if blocks.iter().any(Option::is_some) =>
            {
                let sources = sources_before(operators, at);
                for number in blocks.iter().flatten() {
                    sets[*number].entry(*local_index).or_default().push(sources.clone());
                }
            }
            _ => {}
        }
    }
    sets
}

/// The locals that each round changes: every value that they are given there comes from themselves
/// or from others that change.
fn changing(sets: &HashMap<u32, Vec<Sources>>) -> HashSet<u32> {
    let mut changing = HashSet::new();
    loop {
        let before = changing.len();
        for (local, values) in sets {
            let changes = |sources: &Sources| {
                let sources = sources.as_deref().unwrap_or_default();
                sources.iter().any(|source| source == local || changing.contains(source))
            };
            if !changing.contains(local) && values.iter().all(changes) {
                changing.insert(*local);
            }
        }
        if changing.len() == before {
            return changing;
        }
    }
}

/// The locals from which the operand on top of the stack before the operator at `at` is computed.
fn sources_before(operators: &[Operator<'_>], at: usize) -> Sources {
    let mut sources = Vec::new();
    let first = at.saturating_sub(MOST_OPERATORS);
    // Operands that have yet to be found, going back.
    let mut missing = 1_usize;
    for operator in operators[first..at].iter().rev() {
        use Operator as Op;
        match operator {
            Op::LocalGet { local_index } => {
                sources.push(*local_index);
                missing -= 1;
            }
            Op::I32Const { .. } | Op::I64Const { .. } | Op::GlobalGet { .. } => missing -= 1,
            Op::LocalTee { .. } | Op::I32WrapI64 | Op::I64ExtendI32S | Op::I64ExtendI32U => {}
            Op::I32Add
            | Op::I32Sub
            | Op::I32Mul
            | Op::I32Shl
            | Op::I32ShrS
            | Op::I32ShrU
            | Op::I32And
            | Op::I32Or
            | Op::I32Xor
            | Op::I64Add
            | Op::I64Sub
            | Op::I64Mul
            | Op::I64Shl
            | Op::I64ShrU => missing += 1,
            _ if access(operator) == Some(Access::Load) => {}
            _ => return None,
        }
        if missing == 0 {
            return Some(sources);
        }
    }
    None
}
