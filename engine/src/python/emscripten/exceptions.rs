//! Legacy exceptions of WebAssembly, as those of the standard.
//!
//! Compilers still write `try`, `catch`, `rethrow` and `delegate`. wasmer knows what the standard has
//! instead: `try_table`, which branches to a label with what was thrown, and references to
//! exceptions. A `try` becomes a block for each of its handlers, and one around them:
//!
//! ```text
//! try              block
//!   …                block                        ;; ends where the handler of all begins
//! catch $a             block (result i32 exnref)  ;; ends where the handler of $a begins
//!   …                    try_table (catch_ref $a 0) (catch_all 1)
//!   rethrow 0              …
//! catch_all              end
//!   …                    br 2
//! end                  end
//!                      local.set $thrown
//!                      …
//!                      local.get $thrown
//!                      throw_ref
//!                      br 1
//!                    end
//!                    …
//!                  end
//! ```
//!
//! `delegate` throws what its body throws in the body of an outer `try`, past those between. That
//! outer body gets a block, behind which `throw_ref` throws again.

use std::borrow::Cow;

use wasm_encoder::{BlockType, Catch, Encode, Instruction, RefType, ValType};
use wasmparser::{BinaryReaderError, FunctionBody, Operator};

/// Why a module can't be translated.
#[derive(Debug, thiserror::Error)]
pub(super) enum Untranslatable {
    #[error("its WebAssembly can't be read")]
    Unreadable(#[from] BinaryReaderError),
    #[error("its WebAssembly has an unknown form: {0}")]
    Unknown(&'static str),
}

pub(super) type Result<T, E = Untranslatable> = std::result::Result<T, E>;

pub(super) const EXCEPTION: ValType = ValType::Ref(RefType::EXNREF);

/// The types of the blocks behind which the handlers of a tag begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct TagBlocks {
    /// With what the tag carries.
    pub(super) carried: BlockType,
    /// With a reference to the exception, too.
    pub(super) with_exception: BlockType,
}

/// A `try`, as `survey` finds it.
#[derive(Debug, Default)]
struct LegacyTry {
    handlers: Vec<LegacyHandler>,
    /// The local for the exception of a handler that rethrows it, counted from the first of them.
    thrown: Option<u32>,
    delegates_to: Option<DelegateTarget>,
    is_target: bool,
}

#[derive(Debug)]
struct LegacyHandler {
    /// `None` if it handles all.
    tag: Option<u32>,
    rethrows: bool,
}

/// Where a `delegate` throws.
#[derive(Debug, Clone, Copy)]
enum DelegateTarget {
    /// In the body of the `try` with this number.
    Try(usize),
    /// Out of the function.
    Caller,
}

#[derive(Debug, Default)]
struct TrySurvey {
    tries: Vec<LegacyTry>,
    rethrowing: u32,
    caller_is_target: bool,
}

/// Finds the `try`s of a function, in the order in which they begin.
fn survey(operators: &[(Operator<'_>, u64)]) -> Result<TrySurvey> {
    let mut found = TrySurvey::default();
    // The labels that are open: the number of a `try`, and whether one of its handlers has begun.
    let mut open: Vec<Option<(usize, bool)>> = vec![None];
    for (operator, _) in operators {
        match operator {
            Operator::Block { .. }
            | Operator::Loop { .. }
            | Operator::If { .. }
            | Operator::TryTable { .. } => open.push(None),
            Operator::Try { .. } => {
                open.push(Some((found.tries.len(), false)));
                found.tries.push(LegacyTry::default());
            }
            Operator::Catch { .. } | Operator::CatchAll => {
                let Some(Some((number, is_handled))) = open.last_mut() else {
                    return Err(unknown("a handler without `try`"));
                };
                *is_handled = true;
                let tag = match operator {
                    Operator::Catch { tag_index } => Some(*tag_index),
                    _ => None,
                };
                found.tries[*number].handlers.push(LegacyHandler { tag, rethrows: false });
            }
            Operator::Rethrow { relative_depth } => {
                let Some(Some((number, true))) = outer(&open, *relative_depth) else {
                    return Err(unknown("a `rethrow` outside of a handler"));
                };
                let rethrown = &mut found.tries[*number];
                if let Some(handler) = rethrown.handlers.last_mut() {
                    handler.rethrows = true;
                }
                if rethrown.thrown.is_none() {
                    rethrown.thrown = Some(found.rethrowing);
                    found.rethrowing += 1;
                }
            }
            Operator::Delegate { relative_depth } => {
                let Some(Some((number, false))) = open.pop() else {
                    return Err(unknown("a `delegate` without `try`"));
                };
                let depth = usize::try_from(*relative_depth).unwrap_or(usize::MAX);
                let labels = open.len().checked_sub(depth).filter(|labels| *labels > 0);
                let labels = labels.ok_or(unknown("a `delegate` to no label"))?;
                // The nearest body around that label.
                let body = open[..labels].iter().rev().find_map(|label| label.filter(|one| !one.1));
                found.tries[number].delegates_to = Some(match body {
                    Some((body, _)) => {
                        found.tries[body].is_target = true;
                        DelegateTarget::Try(body)
                    }
                    None => {
                        found.caller_is_target = true;
                        DelegateTarget::Caller
                    }
                });
            }
            Operator::End => _ = open.pop(),
            _ => {}
        }
    }
    Ok(found)
}

/// Translates a function, which has this many `parameters`. `replace` returns what takes the place of
/// an operator that has nothing to do with exceptions.
pub(super) fn translate(
    tags: &[TagBlocks],
    parameters: u32,
    body: &FunctionBody<'_>,
    replace: &dyn Fn(&Operator<'_>) -> Option<Instruction<'static>>,
) -> Result<Vec<u8>> {
    let (first, bytes) = (body.range().start, body.as_bytes());
    let place = |at: u64| usize::try_from(at - first).ok().filter(|at| *at <= bytes.len());
    let place = |at| place(at).ok_or(unknown("a function that is elsewhere"));
    let mut locals = body.get_locals_reader()?;
    let (groups, groups_at) = (locals.get_count(), place(locals.original_position())?);
    let mut count = parameters;
    for _ in 0..groups {
        let (more, _) = locals.read()?;
        count = count.checked_add(more).ok_or(unknown("too many locals"))?;
    }
    let operators_at = place(locals.original_position())?;
    let operators = body.get_operators_reader()?.into_iter_with_offsets();
    let operators = operators.collect::<Result<Vec<_>, _>>()?;
    let survey = survey(&operators)?;
    let mut code = Vec::with_capacity(bytes.len() + 16);
    (groups + u32::from(survey.rethrowing > 0)).encode(&mut code);
    code.extend(&bytes[groups_at..operators_at]);
    if survey.rethrowing > 0 {
        survey.rethrowing.encode(&mut code);
        EXCEPTION.encode(&mut code);
    }
    let mut translation = FunctionTranslation {
        tags,
        survey: &survey,
        first_thrown: count,
        code,
        height: 1,
        labels: vec![OpenLabel { at: 0, open: None }],
        begun: 0,
        delegated: vec![None; survey.tries.len()],
        to_caller: None,
    };
    if survey.caller_is_target {
        let block = Instruction::Block(BlockType::Result(EXCEPTION));
        translation.to_caller = Some(translation.begin(&block));
    }
    let ends = operators.iter().skip(1).map(|(_, at)| *at).chain([body.range().end]);
    for ((operator, at), end) in operators.iter().zip(ends) {
        match replace(operator) {
            Some(instruction) => translation.put(&instruction),
            None => translation.operator(operator, &bytes[place(*at)?..place(end)?])?,
        }
    }
    Ok(translation.code)
}

/// A label of the original.
#[derive(Debug)]
struct OpenLabel {
    /// The number of labels around the one that a branch to it means now.
    at: u32,
    open: Option<OpenTry>,
}

#[derive(Debug, Clone, Copy)]
struct OpenTry {
    number: usize,
    /// The label around its handlers; its own label if it has none.
    around: u32,
    /// How many of its handlers have begun.
    handlers: usize,
}

struct FunctionTranslation<'a> {
    tags: &'a [TagBlocks],
    survey: &'a TrySurvey,
    first_thrown: u32,
    code: Vec<u8>,
    /// The number of labels that are open now.
    height: u32,
    labels: Vec<OpenLabel>,
    /// How many `try`s have begun.
    begun: usize,
    /// The labels that take what is delegated, by the number of a `try`.
    delegated: Vec<Option<u32>>,
    to_caller: Option<u32>,
}

impl FunctionTranslation<'_> {
    /// Translates an operator with these `bytes`.
    fn operator(&mut self, operator: &Operator<'_>, bytes: &[u8]) -> Result<()> {
        match operator {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                self.code.extend(bytes);
                self.labels.push(OpenLabel { at: self.height, open: None });
                self.height += 1;
            }
            Operator::Try { blockty } => self.begin_try(*blockty)?,
            Operator::Catch { .. } | Operator::CatchAll => self.begin_handler()?,
            Operator::Rethrow { relative_depth } => {
                let label = outer(&self.labels, *relative_depth).and_then(|label| label.open);
                let thrown = label.and_then(|open| self.survey.tries[open.number].thrown);
                let thrown = thrown.ok_or(unknown("a `rethrow` outside of a handler"))?;
                self.put(&Instruction::LocalGet(self.first_thrown + thrown));
                self.put(&Instruction::ThrowRef);
            }
            Operator::Delegate { .. } => {
                let label = self.labels.pop();
                let open = label.and_then(|label| label.open).ok_or(unknown("a `delegate`"))?;
                self.end_body(open);
                self.end();
            }
            Operator::End => {
                let label = self.labels.pop().ok_or(unknown("an `end` too many"))?;
                match label.open {
                    Some(open) if open.handlers == 0 => self.end_body(open),
                    None if self.labels.is_empty() && self.to_caller.is_some() => {
                        self.put(&Instruction::Return);
                        self.end();
                        self.put(&Instruction::ThrowRef);
                    }
                    _ => {}
                }
                self.end();
            }
            Operator::Br { relative_depth } => {
                let depth = self.depth(*relative_depth)?;
                self.put(&Instruction::Br(depth));
            }
            Operator::BrIf { relative_depth } => {
                let depth = self.depth(*relative_depth)?;
                self.put(&Instruction::BrIf(depth));
            }
            Operator::BrTable { targets } => {
                let depths = targets.targets().map(|depth| self.depth(depth?));
                let depths = depths.collect::<Result<Vec<_>>>()?;
                let default = self.depth(targets.default())?;
                self.put(&Instruction::BrTable(Cow::Owned(depths), default));
            }
            Operator::TryTable { .. }
            | Operator::BrOnNull { .. }
            | Operator::BrOnNonNull { .. }
            | Operator::BrOnCast { .. }
            | Operator::BrOnCastFail { .. } => return Err(unknown("a branch by reference")),
            _ => self.code.extend(bytes),
        }
        Ok(())
    }

    fn begin_try(&mut self, ty: wasmparser::BlockType) -> Result<()> {
        let ty = match ty {
            wasmparser::BlockType::Empty => BlockType::Empty,
            wasmparser::BlockType::Type(ty) => BlockType::Result(value_type(ty)?),
            wasmparser::BlockType::FuncType(_) => {
                return Err(unknown("a `try` with parameters or several results"));
            }
        };
        let number = self.begun;
        self.begun += 1;
        let survey = self.survey;
        let one = &survey.tries[number];
        let around = self.height;
        let at = if let Some(target) = one.delegates_to {
            let taken = match target {
                DelegateTarget::Try(number) => self.delegated[number],
                DelegateTarget::Caller => self.to_caller,
            };
            let taken = taken.ok_or(unknown("a `delegate` to what isn't open"))?;
            let catches = vec![Catch::AllRef { label: self.height - 1 - taken }];
            self.begin(&Instruction::TryTable(ty, catches.into()))
        } else if one.handlers.is_empty() {
            self.begin(&Instruction::Block(ty))
        } else {
            self.begin(&Instruction::Block(ty));
            for handler in one.handlers.iter().rev() {
                let block = match (handler.tag, handler.rethrows) {
                    (None, false) => BlockType::Empty,
                    (None, true) => BlockType::Result(EXCEPTION),
                    (Some(tag), false) => self.blocks(tag)?.carried,
                    (Some(tag), true) => self.blocks(tag)?.with_exception,
                };
                self.begin(&Instruction::Block(block));
            }
            let catches = (0..).zip(&one.handlers).map(|(label, handler)| match handler {
                LegacyHandler { tag: None, rethrows: false } => Catch::All { label },
                LegacyHandler { tag: None, rethrows: true } => Catch::AllRef { label },
                LegacyHandler { tag: Some(tag), rethrows: false } => {
                    Catch::One { tag: *tag, label }
                }
                LegacyHandler { tag: Some(tag), rethrows: true } => {
                    Catch::OneRef { tag: *tag, label }
                }
            });
            let catches = catches.collect::<Vec<_>>();
            self.begin(&Instruction::TryTable(ty, catches.into()))
        };
        if one.is_target {
            self.delegated[number] =
                Some(self.begin(&Instruction::Block(BlockType::Result(EXCEPTION))));
        }
        self.labels.push(OpenLabel { at, open: Some(OpenTry { number, around, handlers: 0 }) });
        Ok(())
    }

    /// Ends the body or the handler before, and begins the next handler.
    fn begin_handler(&mut self) -> Result<()> {
        let label = self.labels.last().and_then(|label| label.open);
        let open = label.ok_or(unknown("a handler without `try`"))?;
        let one = &self.survey.tries[open.number];
        let handler = one.handlers.get(open.handlers).ok_or(unknown("another handler"))?;
        if open.handlers == 0 {
            self.end_body(open);
            self.end();
        }
        self.put(&Instruction::Br(self.height - 1 - open.around));
        self.end();
        if let (true, Some(thrown)) = (handler.rethrows, one.thrown) {
            self.put(&Instruction::LocalSet(self.first_thrown + thrown));
        }
        if let Some(label) = self.labels.last_mut() {
            let handlers = open.handlers + 1;
            *label = OpenLabel { at: open.around, open: Some(OpenTry { handlers, ..open }) };
        }
        Ok(())
    }

    /// Ends the block of a body to which something delegates.
    fn end_body(&mut self, open: OpenTry) {
        if self.delegated[open.number].take().is_some() {
            self.put(&Instruction::Br(1));
            self.end();
            self.put(&Instruction::ThrowRef);
        }
    }

    /// Returns the depth of what has this depth in the original.
    fn depth(&self, depth: u32) -> Result<u32> {
        let label = outer(&self.labels, depth).ok_or(unknown("a branch to no label"))?;
        Ok(self.height - 1 - label.at)
    }

    fn blocks(&self, tag: u32) -> Result<TagBlocks> {
        let tag = usize::try_from(tag).ok().and_then(|tag| self.tags.get(tag));
        tag.copied().ok_or(unknown("a tag that isn't there"))
    }

    /// Begins something that has a label. Returns the number of labels around it.
    fn begin(&mut self, instruction: &Instruction<'_>) -> u32 {
        self.put(instruction);
        self.height += 1;
        self.height - 1
    }

    fn end(&mut self) {
        self.put(&Instruction::End);
        self.height -= 1;
    }

    fn put(&mut self, instruction: &Instruction<'_>) {
        instruction.encode(&mut self.code);
    }
}

fn outer<T>(labels: &[T], depth: u32) -> Option<&T> {
    labels.iter().nth_back(usize::try_from(depth).ok()?)
}

/// Returns a type in the form in which it is written.
pub(super) fn value_type(ty: wasmparser::ValType) -> Result<ValType> {
    match ty {
        wasmparser::ValType::I32 => Ok(ValType::I32),
        wasmparser::ValType::I64 => Ok(ValType::I64),
        wasmparser::ValType::F32 => Ok(ValType::F32),
        wasmparser::ValType::F64 => Ok(ValType::F64),
        wasmparser::ValType::EXTERNREF => Ok(ValType::EXTERNREF),
        _ => Err(unknown("a type that is no number")),
    }
}

pub(super) fn unknown(what: &'static str) -> Untranslatable {
    Untranslatable::Unknown(what)
}

#[cfg(test)]
pub(super) mod random;
