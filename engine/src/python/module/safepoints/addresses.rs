//! Finds the loads that Cranelift keeps in each round of a loop.
//!
//! Cranelift removes a load only where an earlier access that dominates it has the same address
//! value and the same constant offset, with no store in between (`alias_analysis.rs` of
//! `cranelift-codegen` 0.135). So a load stays in a loop in two cases:
//!
//! - Its address comes from a variable that rounds change. Compiled C keeps such variables in
//!   locals: `p = p + 8`, `p = load(p)`, and others that are computed from these. What counts is
//!   whether Cranelift can take the address for a value from before the loop, so a local that only
//!   some rounds change is enough. One that changes only on the way out of the loop isn't.
//! - No access before the loop has the same constant offset. This holds for addresses that aren't
//!   constants themselves, because Cranelift adds a constant address and its offset up.
//!
//! An earlier access within the loop does no harm: it dominates the load, so each round makes it. A
//! load that fits neither case evidently doesn't count, which costs at most a needless safepoint.

use std::collections::{HashMap, HashSet};

use wasmer::sys::wasmparser::Operator;

use super::access::{AccessKind, access};
use super::rounds::rounds;

/// The most operators that may compute an address; longer computations don't count.
const MOST_OPERATORS: usize = 32;

/// The addresses of one function's loads.
#[derive(Debug)]
pub(super) struct Addresses<'a> {
    operators: &'a [Operator<'a>],
    /// For each loop, in the order of loops, the locals that its rounds change.
    changing: Vec<HashSet<u32>>,
    /// For each loop, in the order of loops, the operator at which it begins.
    begins: Vec<usize>,
    /// For each constant offset, the first access with it.
    first_at: HashMap<u64, usize>,
}

/// What a `local.set` computes its value from.
#[derive(Debug, Clone, Default)]
struct Origin {
    locals: Vec<u32>,
    /// Whether the value is more than a copy of a local.
    is_computed: bool,
}

/// What one loop assigns to one local.
#[derive(Debug, Default)]
struct Assigned {
    /// The origins of the values; `None` if unknown.
    values: Vec<Option<Origin>>,
    /// Whether the next round can follow one of the assignments.
    goes_round: bool,
}

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
        let origin = origin_before(self.operators, at);
        let is_constant = origin.as_ref().is_some_and(|origin| origin.locals.is_empty());
        let first_at = access(&self.operators[at])
            .filter(|_| !is_constant)
            .and_then(|access| self.first_at.get(&access.offset));
        let origin = origin.unwrap_or_default();
        let keeps = |number: &usize| {
            origin.locals.iter().any(|local| self.changing[*number].contains(local))
                || first_at.is_some_and(|first_at| self.begins[*number] < *first_at)
        };
        loops.iter().rposition(keeps).map_or(0, |innermost| innermost + 1)
    }
}

/// Returns the locals that each loop assigns to.
fn sets_by_loop(operators: &[Operator<'_>]) -> Vec<HashMap<u32, Assigned>> {
    let rounds = rounds(operators);
    let mut sets: Vec<HashMap<u32, Assigned>> = Vec::new();
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
                let origin = origin_before(operators, at);
                for (depth, number) in blocks.iter().flatten().enumerate() {
                    let assigned = sets[*number].entry(*local_index).or_default();
                    assigned.values.push(origin.clone());
                    assigned.goes_round |=
                        rounds[at].checked_shr(depth as u32).unwrap_or(0) & 1 == 1;
                }
            }
            _ => {}
        }
    }
    sets
}

/// Returns the locals whose values at any place of a loop depend on what an earlier round assigned.
///
/// Such a local goes round, and every value that it is given in the loop comes from locals of this
/// kind. Locals that only copy each other don't count, since Cranelift finds that they never change.
fn changing(sets: &HashMap<u32, Assigned>) -> HashSet<u32> {
    let comes_from = |value: &Option<Origin>, locals: &HashSet<u32>| {
        value
            .as_ref()
            .is_some_and(|origin| origin.locals.iter().any(|local| locals.contains(local)))
    };
    let mut carried: HashSet<u32> =
        sets.iter().filter(|(_, assigned)| assigned.goes_round).map(|(local, _)| *local).collect();
    loop {
        let is_carried =
            |local: &u32| sets[local].values.iter().all(|value| comes_from(value, &carried));
        let fewer: HashSet<u32> = carried.iter().copied().filter(is_carried).collect();
        if fewer.len() == carried.len() {
            break;
        }
        carried = fewer;
    }
    let is_computed = |value: &Option<Origin>| value.as_ref().is_some_and(|o| o.is_computed);
    let mut changing: HashSet<u32> = carried
        .iter()
        .copied()
        .filter(|local| sets[local].values.iter().any(is_computed))
        .collect();
    loop {
        let copies = |local: &&u32| {
            !changing.contains(*local)
                && sets[*local].values.iter().all(|value| comes_from(value, &changing))
        };
        let more: Vec<u32> = carried.iter().filter(copies).copied().collect();
        if more.is_empty() {
            return changing;
        }
        changing.extend(more);
    }
}

/// Returns what computes the top operand before the operator at `at`; `None` if unknown.
fn origin_before(operators: &[Operator<'_>], at: usize) -> Option<Origin> {
    let mut origin = Origin::default();
    let first = at.saturating_sub(MOST_OPERATORS);
    // Operands still to be found, going back.
    let mut missing = 1_usize;
    for operator in operators[first..at].iter().rev() {
        match operator {
            Operator::LocalGet { local_index } => {
                origin.locals.push(*local_index);
                missing -= 1;
            }
            Operator::LocalTee { .. } => {}
            operator => {
                missing = missing + operands(operator)? - 1;
                origin.is_computed = true;
            }
        }
        if missing == 0 {
            return Some(origin);
        }
    }
    None
}

/// Returns how many operands an operator takes that does nothing but compute one value; `None` for
/// all others.
fn operands(operator: &Operator<'_>) -> Option<usize> {
    use Operator as Op;
    Some(match operator {
        Op::I32Const { .. } | Op::I64Const { .. } | Op::GlobalGet { .. } => 0,
        Op::I32WrapI64
        | Op::I64ExtendI32S
        | Op::I64ExtendI32U
        | Op::I32Extend8S
        | Op::I32Extend16S
        | Op::I32Eqz
        | Op::I64Eqz
        | Op::I32Clz
        | Op::I32Ctz
        | Op::I64Clz
        | Op::I64Ctz => 1,
        Op::I32Add
        | Op::I32Sub
        | Op::I32Mul
        | Op::I32DivS
        | Op::I32DivU
        | Op::I32RemS
        | Op::I32RemU
        | Op::I32Shl
        | Op::I32ShrS
        | Op::I32ShrU
        | Op::I32Rotl
        | Op::I32And
        | Op::I32Or
        | Op::I32Xor
        | Op::I32Eq
        | Op::I32Ne
        | Op::I32LtS
        | Op::I32LtU
        | Op::I32GtS
        | Op::I32GtU
        | Op::I32LeS
        | Op::I32LeU
        | Op::I32GeS
        | Op::I32GeU
        | Op::I64Add
        | Op::I64Sub
        | Op::I64Mul
        | Op::I64Shl
        | Op::I64ShrS
        | Op::I64ShrU
        | Op::I64And
        | Op::I64Or
        | Op::I64Xor
        | Op::I64Eq
        | Op::I64Ne
        | Op::F64Eq
        | Op::F64Ne
        | Op::F64Lt
        | Op::F64Gt
        | Op::F64Le
        | Op::F64Ge => 2,
        Op::Select => 3,
        _ if access(operator).is_some_and(|access| access.kind == AccessKind::Load) => 1,
        _ => return None,
    })
}
