//! Many short jobs at once, of all kinds.

use std::collections::VecDeque;
use std::time::Duration;

use hatchery::{Hatchery, HostError, HostFunction, Job, Ticket, Verdict};
use serde_json::json;

use crate::dice::Dice;
use crate::support::{builder, value, with_own_pool};

/// The jobs of the random crowd, and how many of them are in the pool at once.
const JOBS: u64 = 8_000;
const AT_ONCE: usize = 150;

/// Has the pool know that jobs are short.
async fn run_short_ones(pool: &Hatchery) {
    for _ in 0..40 {
        assert!(pool.run(Job::code("x = 1")).await.expect("it is admitted").is_success());
    }
}

/// What a job of the random crowd does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Value,
    Raise,
    TakesLong,
    EndsInterpreter,
    Dropped,
    Cancelled,
    Deadline,
    /// Such jobs go to a worker alone.
    Calls,
}

impl Kind {
    fn any(dice: &mut Dice) -> Self {
        match dice.below(1_000) {
            0..4 => Self::EndsInterpreter,
            4..30 => Self::TakesLong,
            30..60 => Self::Dropped,
            60..90 => Self::Cancelled,
            90..130 => Self::Deadline,
            130..200 => Self::Raise,
            200..230 => Self::Calls,
            _ => Self::Value,
        }
    }

    fn job(self, number: u64) -> Job {
        let source = match self {
            Self::Raise => format!("print({number})\nraise ValueError({number})"),
            Self::TakesLong => {
                format!("print({number})\nfor _ in range(200_000): pass\n{number}")
            }
            Self::EndsInterpreter => format!("print({number})\nimport os; os._exit(7)"),
            Self::Calls => format!("print({number})\nfrom hatchery import host\nhost.number()"),
            _ => format!("print({number})\n{number}"),
        };
        let answer = move |()| Ok::<_, HostError>(number);
        match self {
            Self::Calls => {
                Job::code(source).function(HostFunction::sync("number", answer).no_parameters())
            }
            Self::Deadline => Job::code(source).deadline(Duration::from_secs(60)),
            _ => Job::code(source),
        }
    }

    async fn ends_right(self, number: u64, ticket: Ticket) {
        let outcome = ticket.await;
        if self == Self::Cancelled && outcome.verdict == Verdict::Cancelled {
            return;
        }
        assert_eq!(outcome.stdout_text(), format!("{number}\n"), "{self:?}: {outcome:?}");
        match (self, &outcome.verdict) {
            (Self::Raise, Verdict::Raised(exception)) => {
                assert_eq!(exception.message, number.to_string());
            }
            (Self::EndsInterpreter, Verdict::Exited { code, .. }) => assert_eq!(*code, 7),
            _ => assert_eq!(value(&outcome), json!(number), "{self:?}"),
        }
    }
}

#[test]
fn each_job_of_a_crowd_has_its_own_outcome_whatever_the_others_do() {
    with_own_pool(builder(), |pool| async move {
        run_short_ones(&pool).await;
        let (mut dice, mut waiting) = (Dice(0xc20d), VecDeque::new());
        for number in 0..JOBS {
            if waiting.len() == AT_ONCE {
                let (kind, number, ticket): (Kind, u64, Ticket) =
                    waiting.pop_front().expect("it is full");
                kind.ends_right(number, ticket).await;
            }
            let kind = Kind::any(&mut dice);
            let ticket = pool.submit(kind.job(number)).await.expect("it is admitted");
            match kind {
                Kind::Dropped => drop(ticket),
                Kind::Cancelled => {
                    ticket.cancel();
                    waiting.push_back((kind, number, ticket));
                }
                _ => waiting.push_back((kind, number, ticket)),
            }
        }
        for (kind, number, ticket) in waiting {
            kind.ends_right(number, ticket).await;
        }
        let status = pool.status();
        let totals = status.totals;
        assert_eq!((status.queue_depth, totals.sandbox_failed, totals.limited), (0, 0, 0));
        pool.drain().await;
        let totals = pool.status().totals;
        let ended = totals.succeeded + totals.failed + totals.cancelled;
        assert_eq!(ended, JOBS + 40, "{totals:?}");
    });
}

#[test]
fn a_short_job_never_waits_behind_a_long_one() {
    with_own_pool(builder(), |pool| async move {
        for round in 0..10 {
            run_short_ones(&pool).await;
            // The place of the long one differs, in the queue and on its worker.
            let mut before = Vec::new();
            for _ in 0..30 + 3 * round {
                before.push(pool.submit(Job::code("x = 1")).await.expect("it is admitted"));
            }
            let long = pool
                .submit(Job::code("print('on')\nwhile True: pass"))
                .await
                .expect("it is admitted");
            let mut after = Vec::new();
            for _ in 0..40 {
                after.push(pool.submit(Job::code("x = 1")).await.expect("it is admitted"));
            }
            for ticket in before.into_iter().chain(after) {
                assert!(ticket.await.is_success());
            }
            long.cancel();
            let outcome = long.await;
            assert_eq!(outcome.verdict, Verdict::Cancelled);
        }
    });
}
