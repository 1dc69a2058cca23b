//! Finds the loads that Cranelift keeps in each round of a loop.
//!
//! Cranelift removes a load only where an earlier access that dominates it has the same address
//! value and the same constant offset, with no store in between (`alias_analysis.rs` of
//! `cranelift-codegen` 0.135). So a load stays in a loop in two cases:
//!
//! - Its address comes from a variable that each round changes. Compiled C keeps such variables in
//!   locals: `p = p + 8`, `p = load(p)`, and others that are computed from these.
//! - No access before the loop has the same constant offset. This holds for addresses that aren't
//!   constants themselves, because Cranelift adds a constant address and its offset up.
//!
//! An earlier access within the loop does no harm: it dominates the load, so each round makes it. A
//! load that fits neither case evidently doesn't count, which costs at most a needless checkpoint.

use std::collections::{HashMap, HashSet};

use wasmer::sys::wasmparser::Operator;

use super::access::{AccessKind, access};

/// The most operators that may compute an address; longer computations don't count.
const MOST_OPERATORS: usize = 32;

/// The addresses of one function's loads.
#[derive(Debug)]
pub(super) struct Addresses<'a> {
    operators: &'a [Operator<'a>],
    /// For each loop, in the order of loops, the locals that each of its rounds changes.
    changing: Vec<HashSet<u32>>,
    /// For each loop, in the order of loops, the operator at which it begins.
    begins: Vec<usize>,
    /// For each constant offset, the first access with it.
    first_at: HashMap<u64, usize>,
}

/// The locals from which one `local.set` of a loop computes its value; `None` if unknown.
type Sources = Option<Vec<u32>>;

impl<'a> Addresses<'a> {
    pub(super) fn of(operators: &'a [Operator<'a>]) -> Self {
        let changing = sets_by_loop(operators).iter().map(changing).collect();
        let mut begins = Vec::new();
        let mut first_at = HashMap::new();
        for (at, operator) in operators.iter().enumerate() {
            if matches!(operator, Operator::Loop { .. }) {
                begins.push(at);
            }
            if let Some(access) = access(operator) {
                first_at.entry(access.offset).or_insert(at);
            }
        }
        Self { operators, changing, begins, first_at }
    }

    /// Returns the number of loops around the load at `at`, counted from the outermost, that keep
    /// it in each round. If an inner loop keeps it, so do the loops around: an address that changes
    /// in an inner loop is unknown outside of it, and an offset without an access before the inner
    /// loop has none before the outer one.
    pub(super) fn kept_in(&self, at: usize, loops: &[usize]) -> usize {
        let sources = sources_before(self.operators, at);
        let is_constant = sources.as_ref().is_some_and(Vec::is_empty);
        let first_at = access(&self.operators[at])
            .filter(|_| !is_constant)
            .and_then(|access| self.first_at.get(&access.offset));
        let sources = sources.unwrap_or_default();
        let keeps = |number: &usize| {
            sources.iter().any(|local| self.changing[*number].contains(local))
                || first_at.is_some_and(|first_at| self.begins[*number] < *first_at)
        };
        loops.iter().rposition(keeps).map_or(0, |innermost| innermost + 1)
    }
}

/// Returns the locals that each loop sets, each with the sources of its values.
fn sets_by_loop(operators: &[Operator<'_>]) -> Vec<HashMap<u32, Vec<Sources>>> {
    let mut sets: Vec<HashMap<u32, Vec<Sources>>> = Vec::new();
    // For each open block, the number of the loop that it is.
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

/// Returns the locals that each round changes: every value assigned to them comes from themselves
/// or from other changing locals.
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

/// Returns the locals that compute the top operand before the operator at `at`.
fn sources_before(operators: &[Operator<'_>], at: usize) -> Sources {
    let mut sources = Vec::new();
    let first = at.saturating_sub(MOST_OPERATORS);
    // Operands still to be found, going back.
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
            _ if access(operator).is_some_and(|access| access.kind == AccessKind::Load) => {}
            _ => return None,
        }
        if missing == 0 {
            return Some(sources);
        }
    }
    None
}
