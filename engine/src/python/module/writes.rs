//! Refuses modules whose instances change state that an image doesn't hold.
//!
//! An image holds memory and globals. A module can't be restored from one if it writes to a table
//! or drops a segment. Nor can one that runs a start function or keeps other state.
//!
//! A module that imports a shared memory has a start function. It fills the memory when the first
//! instance is made, and then drops the segments. It runs in each instance before memory and
//! globals become the image's, so each drops the segments.

use wasmparser::{Operator, Parser, Payload, TypeRef};

use crate::cause::Cause;
use crate::error::ImageError;

/// Refuses a module that has state which an image doesn't hold.
pub(crate) fn check(wasm: &[u8]) -> Result<(), ImageError> {
    let unreadable = |error: wasmparser::BinaryReaderError| ImageError::Unfit(Cause::new(error));
    let (mut functions, mut memories, mut shares, mut start) = (0, 0, false, None);
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(unreadable)? {
            Payload::StartSection { .. } if !shares => return unfit("it has a start function"),
            Payload::StartSection { func, .. } => start = Some(func),
            Payload::GlobalSection(globals) => {
                for global in globals {
                    if global.map_err(unreadable)?.ty.content_type.is_reference_type() {
                        // It is a pointer of this process, which no file may bring back.
                        return unfit("it has a global that refers to something");
                    }
                }
            }
            Payload::MemorySection(section) => memories += section.count(),
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    match import.map_err(unreadable)?.ty {
                        TypeRef::Func(_) => functions += 1,
                        TypeRef::Memory(memory) if memory.shared => {
                            (memories, shares) = (memories + 1, true);
                        }
                        _ => return unfit("it imports more than functions and a shared memory"),
                    }
                }
            }
            Payload::CodeSectionEntry(body) => {
                let is_start = start == Some(functions);
                functions += 1;
                for operator in body.get_operators_reader().map_err(unreadable)? {
                    let operator = operator.map_err(unreadable)?;
                    let is_dropped_at_start =
                        is_start && matches!(operator, Operator::DataDrop { .. });
                    if let Some(what) = state_of(&operator)
                        && !is_dropped_at_start
                    {
                        return unfit(what);
                    }
                }
            }
            _ => {}
        }
    }
    if memories == 1 { Ok(()) } else { unfit("it doesn't have exactly one memory") }
}

fn unfit(what: &str) -> Result<(), ImageError> {
    Err(ImageError::Unfit(what.into()))
}

/// Returns what an operator changes that an image doesn't hold.
fn state_of(operator: &Operator<'_>) -> Option<&'static str> {
    match operator {
        Operator::TableSet { .. }
        | Operator::TableGrow { .. }
        | Operator::TableFill { .. }
        | Operator::TableCopy { .. }
        | Operator::TableInit { .. } => Some("it writes to a table"),
        Operator::DataDrop { .. } | Operator::ElemDrop { .. } => Some("it drops a segment"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::chain;

    fn refusal(text: &str) -> Option<String> {
        check(&wat::parse_str(text).unwrap()).err().map(|error| chain(&error).to_string())
    }

    #[test]
    fn memory_and_globals_may_change_and_nothing_else() {
        let fit = r#"(module (memory 1) (global (mut i32) i32.const 0) (table 1 funcref)
            (elem (i32.const 0) $f) (data (i32.const 0) "x")
            (func $f (global.set 0 (i32.const 1)) (i32.store (i32.const 0) (i32.const 1))
                (drop (table.get 0 (i32.const 0))) (drop (memory.grow (i32.const 1)))))"#;
        assert_eq!(refusal(fit), None);
        let shared = r#"(module (import "env" "memory" (memory 1 2 shared)) (data $d "x")
            (func $start (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1)) (data.drop $d))
            (start $start))"#;
        assert_eq!(refusal(shared), None);
        assert!(refusal(&shared.replace("(start $start)", "")).is_some());
        assert!(refusal(&shared.replace(" shared", "")).is_some());
        for (what, text) in [
            ("start", "(module (memory 1) (func $f) (start $f))"),
            ("memory", "(module (memory 1) (memory 1))"),
            ("global", "(module (memory 1) (global (mut funcref) (ref.null func)))"),
            ("imports", r#"(module (import "a" "b" (global i32)) (memory 1))"#),
            (
                "table",
                "(module (memory 1) (table 1 funcref) (func (table.set 0 (i32.const 0) (ref.null func))))",
            ),
            (
                "table",
                "(module (memory 1) (table 1 funcref) (func (drop (table.grow 0 (ref.null func) (i32.const 1)))))",
            ),
            ("segment", r#"(module (memory 1) (data "x") (func (data.drop 0)))"#),
        ] {
            assert!(refusal(text).is_some_and(|said| said.contains(what)), "{text}");
        }
    }
}
