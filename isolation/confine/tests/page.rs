//! docs/internals.md lists the system calls of the table, in its words.

use confine::{Answer, CALLS, Call};

/// The row of a call.
fn row(call: &Call) -> String {
    let when = match call.answer {
        Answer::Fail(error) => format!("never; it fails with error {error}"),
        _ if call.when.is_empty() => "always".to_owned(),
        _ => call.when.to_owned(),
    };
    format!("| `{}` | {when} | {} |", call.name, call.reason)
}

#[test]
fn the_page_lists_the_table() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = page.split("| call | when | what for |\n|---|---|---|\n").nth(1).unwrap();
    let listed: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    let expected: Vec<String> = CALLS.iter().map(row).collect();
    assert_eq!(listed, expected, "the page should have:\n{}", expected.join("\n"));
}
