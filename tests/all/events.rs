//! The events of a job, in one order, for readers of every kind.

use std::time::Duration;

use hatchery::event::{Event, EventKind, Stream};
use hatchery::files::ChangeKind;
use hatchery::{Job, Limits, Ticket};

use crate::support::{calm, with_pool};

/// Returns every event; consecutive pieces of one stream are joined.
async fn all_events(ticket: &Ticket) -> Vec<EventKind> {
    let mut events = ticket.events();
    let mut kinds = Vec::new();
    let mut count = 0;
    while let Some(Event { sequence, kind, .. }) = events.next().await {
        assert_eq!(sequence, count);
        count += 1;
        match (kinds.last_mut(), kind) {
            (
                Some(EventKind::Output { stream: last, bytes }),
                EventKind::Output { stream, bytes: more },
            ) if *last == stream => bytes.extend(more),
            (_, kind) => kinds.push(kind),
        }
    }
    kinds
}

/// Abbreviates kinds: what was written, shown or changed.
fn short(kinds: &[EventKind]) -> Vec<String> {
    let short = |kind: &EventKind| match kind {
        EventKind::Started => "started".to_owned(),
        EventKind::Output { stream: Stream::Stdout, bytes } => {
            format!("out {}", String::from_utf8_lossy(bytes).trim())
        }
        EventKind::Output { stream: Stream::Stderr, bytes } => {
            format!("err {}", String::from_utf8_lossy(bytes).trim())
        }
        EventKind::Display(display) => {
            format!("show {}", display.text("text/plain").unwrap_or("nothing"))
        }
        EventKind::FileChanged { path, kind: ChangeKind::Created } => format!("made {path}"),
        EventKind::Finished => "finished".to_owned(),
        kind => panic!("{kind:?}"),
    };
    kinds.iter().map(short).collect()
}

#[test]
fn everything_is_in_one_order() {
    with_pool(|pool| async {
        let source = "import sys\nprint('a'); display(1)\nprint('b'); print('c', file=sys.stderr)\n\
                      display(2, 3); open('f', 'w').close(); print('d')";
        let mut ticket = pool.submit(Job::code(source)).await.unwrap();
        let kinds = all_events(&ticket).await;
        let expected =
            ["started", "out a", "show 1", "out b", "err c", "show 2", "show 3", "out d", "made f"];
        let expected: Vec<&str> = expected.into_iter().chain(["finished"]).collect();
        assert_eq!(short(&kinds), expected);
        let outcome = ticket.outcome().await;
        assert_eq!(outcome.displays.len(), 3);
        // A reader that starts after the end finds the same.
        assert_eq!(all_events(&ticket).await, kinds);
    });
}

#[test]
fn a_job_that_never_ran_has_only_its_end() {
    with_pool(|pool| async {
        let first = pool.session("events").await.unwrap();
        let running = first.submit(Job::code("while True: pass")).await.unwrap();
        let waiting = first.submit(Job::code("1")).await.unwrap();
        waiting.cancel();
        assert_eq!(all_events(&waiting).await, [EventKind::Finished]);
        running.stop();
    });
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a slow reader is what is tested")]
fn a_million_lines_reach_a_slow_reader_in_order() {
    with_pool(|pool| async {
        let limits =
            Limits { wall_time: Duration::from_secs(100), output_bytes: 16 << 20, ..calm() };
        let source = "for line in range(1_000_000): print(line)";
        let mut ticket = pool.submit(Job::code(source).limits(limits)).await.unwrap();
        let mut events = ticket.events();
        // One reader is dropped in the middle, and one never reads.
        let mut dropped = Some(ticket.events());
        let never = ticket.events();
        let mut text = Vec::new();
        while let Some(event) = events.next().await {
            if let EventKind::Output { bytes, .. } = event.kind {
                assert!(bytes.len() <= 64 << 10);
                text.extend(bytes);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if let Some(mut reader) = dropped.take_if(|_| event.sequence == 3) {
                assert!(reader.next().await.is_some());
            }
        }
        drop(never);
        let outcome = ticket.outcome().await;
        assert!(outcome.is_success() && !outcome.output_truncated, "{:?}", outcome.verdict);
        let mut lines = 0;
        for (line, number) in std::str::from_utf8(&text).unwrap().lines().zip(0..) {
            assert_eq!(line.parse(), Ok(number));
            lines += 1;
        }
        assert_eq!(lines, 1_000_000);
        assert!(outcome.stdout == text);
    });
}

#[test]
fn what_is_below_the_cap_is_never_lost() {
    with_pool(|pool| async {
        let limits = Limits { output_bytes: 100_000, ..calm() };
        let source = "for line in range(100_000): print(line)";
        let mut ticket = pool.submit(Job::code(source).limits(limits)).await.unwrap();
        let mut text = Vec::new();
        for kind in all_events(&ticket).await {
            if let EventKind::Output { bytes, .. } = kind {
                text.extend(bytes);
            }
        }
        let expected: String = (0..100_000).map(|line| format!("{line}\n")).collect();
        assert!(text == expected.as_bytes()[..100_000]);
        let outcome = ticket.outcome().await;
        assert!(outcome.output_truncated && outcome.stdout == text);
        assert_eq!(outcome.usage.output_bytes, expected.len() as u64);
    });
}
