//! Threads on one stack, with the programs that also the agent's own tests run.

use hatchery::Job;
use serde_json::json;

use crate::support::{exception, run, value, with_pool};

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

#[test]
fn a_thread_waits_between_turns_and_each_fork_has_its_own() {
    with_pool(|pool| async {
        let session = pool.session("waiting threads").await.unwrap();
        let begin = "import queue, threading\nq, said = queue.Queue(), []\n\
                     def f():\n while True: said.append(q.get())\n\
                     threading.Thread(target=f).start()";
        session.run(Job::code(begin)).await.unwrap();
        let fork = session.fork("waiting threads, too").await.unwrap();
        let outcome = session.run(Job::code("q.put(1)\nsaid")).await.unwrap();
        assert_eq!(value(&outcome), json!([1]));
        assert_eq!(value(&fork.run(Job::code("said")).await.unwrap()), json!([]));
        session.close();
        fork.close();
    });
}

#[test]
fn an_interrupt_ends_threads() {
    with_pool(|pool| async {
        let session = pool.session("interrupted threads").await.unwrap();
        for body in
            ["while True: pass", "while True: time.sleep(0.001)", "sum(1 for _ in iter(int, 1))"]
        {
            let source = format!(
                "import threading, time\ndef f():\n print('begun')\n {body}\n\
                 threading.Thread(target=f).start()"
            );
            let mut ticket = session.submit(Job::code(&source)).await.unwrap();
            assert!(ticket.next_output().await.is_some());
            ticket.interrupt();
            let outcome = ticket.outcome().await;
            assert_eq!(exception(&outcome).type_name, "KeyboardInterrupt", "{body}");
            let outcome = session.run(Job::code("threading.active_count()")).await.unwrap();
            assert_eq!(value(&outcome), json!(1), "{body}");
        }
        session.close();
    });
}
