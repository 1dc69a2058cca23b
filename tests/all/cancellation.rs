//! Tickets that are cancelled, dropped and streamed from.

use hatchery::{Job, Verdict};
use serde_json::json;

use crate::support::{next_output, value, with_pool};

#[test]
fn a_job_that_is_being_read_from_can_be_cancelled() {
    with_pool(|pool| async {
        let mut ticket = pool.submit(Job::code("while True: print('on')")).await.unwrap();
        let mut events = ticket.events();
        assert!(next_output(&mut events).await.is_some());
        ticket.cancel();
        while next_output(&mut events).await.is_some() {}
        let outcome = ticket.outcome().await;
        assert_eq!(outcome.verdict, Verdict::Cancelled);
        assert_eq!(ticket.outcome().await, outcome, "every call returns the same outcome");
        assert!(outcome.stdout_text().starts_with("on"));
    });
}

#[test]
fn dropping_a_ticket_frees_its_worker() {
    with_pool(|pool| async {
        for _ in 0..3 {
            let ticket = pool.submit(Job::code("print(1)\nwhile True: pass")).await.unwrap();
            assert!(next_output(&mut ticket.events()).await.is_some());
            drop(ticket);
        }
        let outcome = pool.run(Job::code("2")).await.unwrap();
        assert_eq!(value(&outcome), json!(2));
    });
}

#[test]
fn a_reader_that_never_reads_blocks_nobody() {
    with_pool(|pool| async {
        let ticket =
            pool.submit(Job::code("for _ in range(20000): print('x' * 80)")).await.unwrap();
        let outcome = ticket.await;
        assert!(outcome.is_success() && outcome.output_truncated);
    });
}
