//! Which loops an operator can lead round again.
//!
//! Control flow is structured, so two passes from the end of a function to its beginning find this.
//! The second knows from the first what the heads of loops lead to. What both miss, such as rounds of
//! loops in more than 64 others, counts as no round.

use std::collections::HashMap;

use wasmer::sys::wasmparser::Operator;

/// A set of loops, by how many loops are around each.
pub(super) type Depths = u64;

/// A block that is open at some operator, seen from its end.
struct Block {
    begin: usize,
    /// What is reachable at its end.
    at_end: Depths,
    /// What is reachable at the beginning of its second arm, for an `if` that has one.
    at_else: Option<Depths>,
}

/// Returns, for each operator of a function, the loops around it whose next round can follow it.
pub(super) fn rounds(operators: &[Operator<'_>]) -> Vec<Depths> {
    let blocks = Blocks::of(operators);
    let first = blocks.pass(operators, &HashMap::new());
    blocks.pass(operators, &first.heads).after
}

/// Where blocks begin.
struct Blocks {
    /// For each operator that ends a block, where that begins; `None` for the function itself.
    begin_of: HashMap<usize, Option<usize>>,
    /// For each operator that begins a loop, the number of loops around that.
    depth_of: HashMap<usize, u32>,
}

struct Pass {
    after: Vec<Depths>,
    /// For each operator that begins a loop, what is reachable there.
    heads: HashMap<usize, Depths>,
}

impl Blocks {
    fn of(operators: &[Operator<'_>]) -> Self {
        let mut blocks = Self { begin_of: HashMap::new(), depth_of: HashMap::new() };
        let mut open: Vec<Option<usize>> = vec![None];
        let mut depth = 0;
        for (at, operator) in operators.iter().enumerate() {
            match operator {
                Operator::Loop { .. } => {
                    open.push(Some(at));
                    blocks.depth_of.insert(at, depth);
                    depth += 1;
                }
                Operator::Block { .. } | Operator::If { .. } | Operator::TryTable { .. } => {
                    open.push(Some(at));
                }
                Operator::End => {
                    let begin = open.pop().flatten();
                    if begin.is_some_and(|begin| blocks.depth_of.contains_key(&begin)) {
                        depth -= 1;
                    }
                    blocks.begin_of.insert(at, begin);
                }
                _ => {}
            }
        }
        blocks
    }

    fn pass(&self, operators: &[Operator<'_>], known: &HashMap<usize, Depths>) -> Pass {
        use Operator as Op;
        let mut pass = Pass { after: vec![0; operators.len()], heads: HashMap::new() };
        let mut open: Vec<Block> = Vec::new();
        let mut here: Depths = 0;
        for (at, operator) in operators.iter().enumerate().rev() {
            pass.after[at] = here;
            let target = |label: u32| {
                let block = open.len().checked_sub(1 + label as usize).map(|index| &open[index]);
                block.map_or(0, |block| match self.depth_of.get(&block.begin) {
                    Some(depth) => bit(*depth) | known.get(&block.begin).unwrap_or(&0),
                    None => block.at_end,
                })
            };
            here = match operator {
                Op::End => {
                    let begin = self.begin_of.get(&at).copied().flatten().unwrap_or(usize::MAX);
                    open.push(Block { begin, at_end: here, at_else: None });
                    here
                }
                Op::Else => {
                    let Some(block) = open.last_mut() else { continue };
                    block.at_else = Some(here);
                    block.at_end
                }
                Op::If { .. } => {
                    let block = open.pop();
                    here | block.map_or(0, |block| block.at_else.unwrap_or(block.at_end))
                }
                Op::Block { .. } | Op::TryTable { .. } => {
                    open.pop();
                    here
                }
                Op::Loop { .. } => {
                    open.pop();
                    pass.heads.insert(at, here);
                    // Only the loops around this one are left.
                    here & bit(self.depth_of[&at]).wrapping_sub(1)
                }
                Op::Br { relative_depth } => target(*relative_depth),
                Op::BrIf { relative_depth }
                | Op::BrOnNull { relative_depth }
                | Op::BrOnNonNull { relative_depth }
                | Op::BrOnCast { relative_depth, .. }
                | Op::BrOnCastFail { relative_depth, .. } => here | target(*relative_depth),
                Op::BrTable { targets } => {
                    let listed = targets.targets().flatten().map(&target);
                    listed.fold(target(targets.default()), |all, one| all | one)
                }
                Op::Return
                | Op::Unreachable
                | Op::Throw { .. }
                | Op::ThrowRef
                | Op::ReturnCall { .. }
                | Op::ReturnCallIndirect { .. }
                | Op::ReturnCallRef { .. } => 0,
                _ => here,
            };
        }
        pass
    }
}

/// The set of one loop; empty for a loop in too many others.
fn bit(depth: u32) -> Depths {
    1_u64.checked_shl(depth).unwrap_or(0)
}
