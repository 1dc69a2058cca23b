//! Random functions with legacy exceptions, and what they do, as the proposal defines it.

use std::borrow::Cow;

use wasm_encoder::{
    BlockType, CodeSection, EntityType, ExportKind, ExportSection, Function, FunctionSection,
    ImportSection, Instruction, Module, RawSection, TagKind, TagSection, TagType, TypeSection,
    ValType,
};
use wasmparser::{FunctionBody, Parser, Payload};

use super::{EXCEPTION, TagBlocks, translate};

/// The functions of one module. Each may call those before it.
pub(crate) const FUNCTIONS: usize = 20;
/// The tag that carries a number, and the one that carries nothing.
const NUMBER: u32 = 0;
/// Calls of a run before it counts as endless; none is, but many are long.
const MOST_STEPS: usize = 10_000;

#[derive(Debug, Clone)]
enum LegacyStep {
    /// Notes a number.
    Note(i32),
    Throw(u32, i32),
    Branch(u32),
    /// Branches if the number isn't zero.
    BranchIf(i32, u32),
    /// Branches to the label with this place among some.
    BranchTable(i32, Vec<u32>),
    Rethrow(u32),
    Call(usize),
    Block(Vec<LegacyStep>),
    Loop(Vec<LegacyStep>),
    If(i32, Vec<LegacyStep>, Vec<LegacyStep>),
    /// With a handler for each of some tags, or for all.
    Try(Vec<LegacyStep>, Vec<(Option<u32>, Vec<LegacyStep>)>),
    Delegate(Vec<LegacyStep>, u32),
}

/// What a label is while steps are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChosenLabel {
    Other,
    /// Nothing branches to it, since nothing would end.
    Loop,
    Handler,
}

/// A stream of numbers that a seed determines.
#[derive(Debug)]
pub(crate) struct RandomNumbers(u64);

impl RandomNumbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    /// Returns the depth of a label that `fits`.
    fn depth(&mut self, labels: &[ChosenLabel], fits: impl Fn(ChosenLabel) -> bool) -> Option<u32> {
        let depths = labels.iter().rev().enumerate().filter(|(_, label)| fits(**label));
        let depths: Vec<_> = depths.map(|(depth, _)| depth as u32).collect();
        (!depths.is_empty()).then(|| depths[self.below(depths.len())])
    }

    fn steps(
        &mut self,
        labels: &mut Vec<ChosenLabel>,
        function: usize,
        room: usize,
    ) -> Vec<LegacyStep> {
        (0..self.below(4)).map(|_| self.step(labels, function, room)).collect()
    }

    fn inner(
        &mut self,
        labels: &mut Vec<ChosenLabel>,
        label: ChosenLabel,
        function: usize,
        room: usize,
    ) -> Vec<LegacyStep> {
        labels.push(label);
        let steps = self.steps(labels, function, room - 1);
        labels.pop();
        steps
    }

    fn step(&mut self, labels: &mut Vec<ChosenLabel>, function: usize, room: usize) -> LegacyStep {
        let note = LegacyStep::Note(self.below(1000) as i32);
        let is_target = |label| label != ChosenLabel::Loop;
        let kind = if room == 0 { self.below(9) } else { self.below(20) };
        match kind {
            0 | 1 => note,
            2 | 3 => LegacyStep::Throw(self.below(2) as u32, self.below(100) as i32),
            4 => self.depth(labels, is_target).map_or(note, LegacyStep::Branch),
            5 => {
                let taken = self.below(2) as i32;
                self.depth(labels, is_target)
                    .map_or(note, |depth| LegacyStep::BranchIf(taken, depth))
            }
            6 => {
                let depths = (0..3).filter_map(|_| self.depth(labels, is_target)).collect();
                LegacyStep::BranchTable(self.below(4) as i32, depths)
            }
            7 => {
                let depth = self.depth(labels, |label| label == ChosenLabel::Handler);
                depth.map_or(note, LegacyStep::Rethrow)
            }
            8 if function > 0 => LegacyStep::Call(self.below(function)),
            8 => note,
            9 => LegacyStep::Block(self.inner(labels, ChosenLabel::Other, function, room)),
            10 => LegacyStep::Loop(self.inner(labels, ChosenLabel::Loop, function, room)),
            11 | 12 => {
                let taken = self.below(2) as i32;
                let mut inner = || self.inner(labels, ChosenLabel::Other, function, room);
                LegacyStep::If(taken, inner(), inner())
            }
            13..=15 => {
                let body = self.inner(labels, ChosenLabel::Other, function, room);
                let depth = self.below(labels.len()) as u32;
                LegacyStep::Delegate(body, depth)
            }
            _ => {
                let body = self.inner(labels, ChosenLabel::Other, function, room);
                let tags: &[&[Option<u32>]] =
                    &[&[], &[None], &[Some(0)], &[Some(1)], &[Some(0), None], &[Some(1), Some(0)]];
                let tags = tags[self.below(tags.len())];
                let handlers = tags
                    .iter()
                    .map(|tag| (*tag, self.inner(labels, ChosenLabel::Handler, function, room)));
                LegacyStep::Try(body, handlers.collect())
            }
        }
    }
}

/// Functions that note numbers. All notes of a call are one number.
#[derive(Debug)]
pub(crate) struct LegacySample {
    functions: Vec<Vec<LegacyStep>>,
}

/// What was thrown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ThrownTag(u32, i32);

enum LegacyFlow {
    Next,
    /// To the label with this place.
    Branch(usize),
    Throw(ThrownTag),
    /// ThrownTag in the label with this place.
    Delegated(ThrownTag, usize),
}

struct LegacyRun<'a> {
    sample: &'a LegacySample,
    notes: i32,
    steps: usize,
}

impl LegacySample {
    pub(crate) fn new(numbers: &mut RandomNumbers) -> Self {
        let function = |function| numbers.steps(&mut vec![ChosenLabel::Other], function, 6);
        Self { functions: (0..FUNCTIONS).map(function).collect() }
    }

    /// Returns the notes of a function, and whether it throws to its caller; `None` if it takes too
    /// long.
    pub(crate) fn result(&self, function: usize) -> Option<(i32, bool)> {
        let mut run = LegacyRun { sample: self, notes: 0, steps: 0 };
        let thrown = run.call(function);
        (run.steps < MOST_STEPS).then_some((run.notes, thrown.is_some()))
    }

    /// Returns a module with legacy exceptions that exports `0`, `1` and so on. It imports a function
    /// that takes a note.
    pub(crate) fn module(&self) -> Vec<u8> {
        let mut module = Module::new();
        module.section(&types());
        let mut imports = ImportSection::new();
        imports.import("env", "note", EntityType::Function(0));
        module.section(&imports);
        let mut functions = FunctionSection::new();
        self.functions.iter().for_each(|_| _ = functions.function(1));
        module.section(&functions);
        let mut tags = TagSection::new();
        for ty in [0, 1] {
            tags.tag(TagType { kind: TagKind::Exception, func_type_idx: ty });
        }
        module.section(&tags);
        let mut exports = ExportSection::new();
        for number in 0..self.functions.len() {
            exports.export(&number.to_string(), ExportKind::Func, number as u32 + 1);
        }
        module.section(&exports);
        let mut code = CodeSection::new();
        for steps in &self.functions {
            let mut function = Function::new([(1, ValType::I64)]);
            write(steps, &mut function);
            function.instruction(&Instruction::End);
            code.function(&function);
        }
        module.section(&code);
        module.finish()
    }
}

/// Returns the types of all functions and tags.
fn types() -> TypeSection {
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32], []);
    types.ty().function([], []);
    types
}

/// Translates a module that `LegacySample::module` has made.
pub(crate) fn translated(wasm: &[u8]) -> Option<Vec<u8>> {
    let blocks = |carried, with_exception| TagBlocks { carried, with_exception };
    let tags = [
        blocks(BlockType::Result(ValType::I32), BlockType::FunctionType(2)),
        blocks(BlockType::Empty, BlockType::Result(EXCEPTION)),
    ];
    let (mut module, mut code) = (Module::new(), CodeSection::new());
    let one = |body: &FunctionBody<'_>| translate(&tags, 0, body, &|_| None).ok();
    let mut left = 0;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.ok()? {
            Payload::TypeSection(_) => {
                let mut types = types();
                types.ty().function([], [ValType::I32, EXCEPTION]);
                module.section(&types);
            }
            Payload::CodeSectionStart { count, .. } => left = count,
            Payload::CodeSectionEntry(body) => {
                code.raw(&one(&body)?);
                left = u32::checked_sub(left, 1)?;
                if left == 0 {
                    module.section(&code);
                }
            }
            payload => {
                if let Some((id, range)) = payload.as_section() {
                    let data = &wasm[range.start as usize..range.end as usize];
                    module.section(&RawSection { id, data });
                }
            }
        }
    }
    Some(module.finish())
}

fn write(steps: &[LegacyStep], function: &mut Function) {
    let block = BlockType::Empty;
    for step in steps {
        match step {
            LegacyStep::Note(note) => {
                function.instruction(&Instruction::I32Const(*note));
                function.instruction(&Instruction::Call(0));
            }
            LegacyStep::Throw(tag, value) => {
                if *tag == NUMBER {
                    function.instruction(&Instruction::I32Const(*value));
                }
                function.instruction(&Instruction::Throw(*tag));
            }
            LegacyStep::Branch(depth) => _ = function.instruction(&Instruction::Br(*depth)),
            LegacyStep::BranchIf(taken, depth) => {
                function.instruction(&Instruction::I32Const(*taken));
                function.instruction(&Instruction::BrIf(*depth));
            }
            LegacyStep::BranchTable(place, depths) => {
                let (last, others) = depths.split_last().expect("the function is a target");
                function.instruction(&Instruction::I32Const(*place));
                function.instruction(&Instruction::BrTable(Cow::Borrowed(others), *last));
            }
            LegacyStep::Rethrow(depth) => _ = function.instruction(&Instruction::Rethrow(*depth)),
            LegacyStep::Call(called) => {
                function.instruction(&Instruction::Call(*called as u32 + 1));
            }
            LegacyStep::Block(body) | LegacyStep::Loop(body) => {
                function.instruction(&match step {
                    LegacyStep::Block(_) => Instruction::Block(block),
                    _ => Instruction::Loop(block),
                });
                write(body, function);
                function.instruction(&Instruction::End);
            }
            LegacyStep::If(taken, then, other) => {
                function.instruction(&Instruction::I32Const(*taken));
                function.instruction(&Instruction::If(block));
                write(then, function);
                function.instruction(&Instruction::Else);
                write(other, function);
                function.instruction(&Instruction::End);
            }
            LegacyStep::Try(body, handlers) => {
                function.instruction(&Instruction::Try(block));
                write(body, function);
                for (tag, steps) in handlers {
                    function.instruction(&tag.map_or(Instruction::CatchAll, Instruction::Catch));
                    if *tag == Some(NUMBER) {
                        function.instruction(&Instruction::Call(0));
                    }
                    write(steps, function);
                }
                function.instruction(&Instruction::End);
            }
            LegacyStep::Delegate(body, depth) => {
                function.instruction(&Instruction::Try(block));
                write(body, function);
                function.instruction(&Instruction::Delegate(*depth));
            }
        }
    }
}

impl LegacyRun<'_> {
    fn call(&mut self, function: usize) -> Option<ThrownTag> {
        // The labels; a handler has what it handles.
        match self.steps(&self.sample.functions[function], &mut vec![None]) {
            LegacyFlow::Throw(thrown) | LegacyFlow::Delegated(thrown, _) => Some(thrown),
            LegacyFlow::Next | LegacyFlow::Branch(_) => None,
        }
    }

    fn note(&mut self, note: i32) {
        self.notes = noted(self.notes, note);
    }

    fn steps(&mut self, steps: &[LegacyStep], labels: &mut Vec<Option<ThrownTag>>) -> LegacyFlow {
        for step in steps {
            self.steps += 1;
            if self.steps >= MOST_STEPS {
                return LegacyFlow::Next;
            }
            match self.step(step, labels) {
                LegacyFlow::Next => {}
                flow => return flow,
            }
        }
        LegacyFlow::Next
    }

    /// Runs what has a label; the flow is the one that leaves it.
    fn inner(
        &mut self,
        steps: &[LegacyStep],
        labels: &mut Vec<Option<ThrownTag>>,
        handled: Option<ThrownTag>,
    ) -> LegacyFlow {
        labels.push(handled);
        let flow = self.steps(steps, labels);
        labels.pop();
        let own = labels.len();
        match flow {
            LegacyFlow::Branch(label) if label == own => LegacyFlow::Next,
            LegacyFlow::Delegated(thrown, label) if label == own => LegacyFlow::Throw(thrown),
            flow => flow,
        }
    }

    fn step(&mut self, step: &LegacyStep, labels: &mut Vec<Option<ThrownTag>>) -> LegacyFlow {
        let label = |depth: u32| labels.len() - 1 - depth as usize;
        match step {
            LegacyStep::Note(note) => self.note(*note),
            LegacyStep::Throw(tag, value) => {
                return LegacyFlow::Throw(ThrownTag(*tag, if *tag == NUMBER { *value } else { 0 }));
            }
            LegacyStep::Branch(depth) => return LegacyFlow::Branch(label(*depth)),
            LegacyStep::BranchIf(0, _) => {}
            LegacyStep::BranchIf(_, depth) => return LegacyFlow::Branch(label(*depth)),
            LegacyStep::BranchTable(place, depths) => {
                let place = (*place as usize).min(depths.len() - 1);
                return LegacyFlow::Branch(label(depths[place]));
            }
            LegacyStep::Rethrow(depth) => {
                return LegacyFlow::Throw(labels[label(*depth)].expect("it is a handler's label"));
            }
            LegacyStep::Call(called) => {
                return self.call(*called).map_or(LegacyFlow::Next, LegacyFlow::Throw);
            }
            LegacyStep::Block(body) | LegacyStep::Loop(body) => {
                return self.inner(body, labels, None);
            }
            LegacyStep::If(taken, then, other) => {
                return self.inner(if *taken == 0 { other } else { then }, labels, None);
            }
            LegacyStep::Try(body, handlers) => {
                return match self.inner(body, labels, None) {
                    LegacyFlow::Throw(thrown) => {
                        let fits = |tag: &Option<u32>| tag.is_none_or(|tag| tag == thrown.0);
                        match handlers.iter().find(|(tag, _)| fits(tag)) {
                            None => LegacyFlow::Throw(thrown),
                            Some((tag, steps)) => {
                                if *tag == Some(NUMBER) {
                                    self.note(thrown.1);
                                }
                                self.inner(steps, labels, Some(thrown))
                            }
                        }
                    }
                    flow => flow,
                };
            }
            LegacyStep::Delegate(body, depth) => {
                let target = label(*depth);
                return match self.inner(body, labels, None) {
                    LegacyFlow::Throw(thrown) => LegacyFlow::Delegated(thrown, target),
                    flow => flow,
                };
            }
        }
        LegacyFlow::Next
    }
}

/// Returns the notes with one more.
pub(crate) fn noted(notes: i32, note: i32) -> i32 {
    notes.wrapping_mul(31).wrapping_add(note).wrapping_add(1)
}
