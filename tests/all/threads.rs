//! Threads on one stack, with the programs that also the agent's own tests run.

use crate::support::{run, value};

/// What the programs print is below them; it is what CPython prints with threads.
const PROGRAMS: &str = include_str!("../../engine/src/guest/agent/test_threads.txt");

#[test]
fn programs_print_what_they_print_with_threads() {
    let programs = PROGRAMS.split("### ").skip(1);
    for program in programs {
        let (name, rest) = program.split_once('\n').expect("each begins with a line for its name");
        let (source, expected) = rest.split_once("\n---\n").expect("each has what it prints");
        let outcome = run(source);
        assert_eq!(outcome.stdout_text().trim(), expected.trim(), "{name}: {outcome:?}");
    }
}

#[test]
fn a_wait_in_c_code_that_needs_a_thread_below_is_refused() {
    let outcome = run("import queue, threading\n\
                       q, said = queue.Queue(), []\n\
                       def f():\n\
                       \x20try: sorted('ab', key=lambda c: q.get())\n\
                       \x20except RuntimeError as error: said.append(str(error))\n\
                       threading.Thread(target=f).start()\n\
                       said");
    let said = value(&outcome)[0].to_string();
    assert!(said.contains("the sandbox has one stack") && said.contains("builds.md"), "{said}");
}
