//! Which lanes are asked, against queues that the tests fill.

use super::*;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Runs jobs one at a time for a while, `seconds` long for each tenant, from lanes that never end,
/// and returns the time that each tenant had.
fn served(lanes: &mut Lanes, seconds: &[f64], rounds: usize) -> Vec<f64> {
    let mut now = Duration::ZERO;
    let mut had = vec![0.0; seconds.len()];
    for _ in 0..rounds {
        let ask = lanes.next(1, now).unwrap();
        assert_eq!((ask.count, ask.wait, ask.lane.priority), (1, Duration::ZERO, 0));
        lanes.answered(ask, 1, now);
        let index = ask.lane.tenant.0;
        now += Duration::from_secs_f64(seconds[index]);
        had[index] += seconds[index];
        lanes.ended(ask.lane.tenant, Duration::from_secs_f64(seconds[index]));
    }
    had
}

/// Answers every request with nothing until the pool only waits.
fn drained(lanes: &mut Lanes, now: Duration) {
    while let Some(ask) = lanes.next(1, now).filter(|ask| ask.wait.is_zero()) {
        lanes.answered(ask, 0, now);
    }
}

#[test]
fn tenants_share_time_by_weight_whatever_their_jobs_take() {
    let mut lanes = Lanes::default();
    for weight in [1, 1, 2] {
        lanes.add(weight);
    }
    let had = served(&mut lanes, &[0.1, 5.0, 0.5], 10_000);
    let total: f64 = had.iter().sum();
    for (had, share) in had.iter().zip([0.25, 0.25, 0.5]) {
        assert!((had / total - share).abs() < 0.01, "{had} of {total}, expected {share}");
    }
}

#[test]
fn several_free_slots_are_divided_at_once() {
    let mut lanes = Lanes::default();
    let (one, other) = (lanes.add(1), lanes.add(3));
    let mut wanted = 8;
    let mut counts = [0, 0];
    while let Some(ask) = lanes.next(wanted, Duration::ZERO) {
        wanted -= ask.count;
        counts[ask.lane.tenant.0] += ask.count;
        lanes.answered(ask, ask.count, Duration::ZERO);
    }
    assert_eq!((wanted, counts), (0, [2, 6]), "{one:?} {other:?}");
}

#[test]
fn a_tenants_higher_priorities_come_first() {
    let mut lanes = Lanes::default();
    let tenant = lanes.add(1);
    for priority in 0..PRIORITIES {
        let ask = lanes.next(4, MILLISECOND).unwrap();
        assert_eq!(ask.lane, Lane { tenant, priority });
        lanes.answered(ask, 0, MILLISECOND);
    }
    // All were empty: requests wait, one for each slot, on each lane once.
    let waiting: Vec<_> = std::iter::from_fn(|| lanes.next(4, 2 * MILLISECOND)).collect();
    assert_eq!(waiting.len(), PRIORITIES);
    assert!(waiting.iter().all(|ask| ask.count == 1 && ask.wait == LONG_POLL), "{waiting:?}");
    assert_eq!(lanes.next_at(), None);
    // One of them has jobs after all, so it is asked for more without waiting.
    lanes.answered(waiting[1], 1, 3 * MILLISECOND);
    let ask = lanes.next(3, 3 * MILLISECOND).unwrap();
    assert_eq!((ask.lane, ask.count, ask.wait), (waiting[1].lane, 3, Duration::ZERO));
}

#[test]
fn an_empty_lane_is_left_alone_for_ever_longer_while_others_have_jobs() {
    let mut lanes = Lanes::default();
    let (busy, resting) = (lanes.add(1), lanes.add(1));
    let mut asked_at = Vec::new();
    let mut now = Duration::ZERO;
    while now < Duration::from_secs(20) {
        let ask = lanes.next(1, now).unwrap();
        assert!(ask.wait.is_zero(), "{ask:?}");
        if ask.lane == (Lane { tenant: busy, priority: 0 }) {
            lanes.answered(ask, 1, now);
            now += 10 * MILLISECOND;
            lanes.ended(busy, 10 * MILLISECOND);
        } else {
            lanes.answered(ask, 0, now);
            if ask.lane == (Lane { tenant: resting, priority: 0 }) {
                asked_at.push(now.as_millis());
            }
        }
    }
    let gaps: Vec<_> = asked_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps.iter().take(5).copied().collect::<Vec<_>>(), [250, 500, 1000, 2000, 4000]);
    assert!(gaps.iter().all(|gap| *gap <= EMPTY_AT_MOST.as_millis() + 20), "{gaps:?}");
}

#[test]
fn a_tenant_that_rested_saves_nothing_up() {
    let mut lanes = Lanes::default();
    let (busy, resting) = (lanes.add(1), lanes.add(1));
    let mut now = Duration::ZERO;
    let mut run = |lanes: &mut Lanes, rounds: usize, is_back: bool| {
        let mut counts = [0_u32; 2];
        for _ in 0..rounds {
            let Some(ask) = lanes.next(1, now) else { break };
            let has_jobs = ask.lane.priority == 0 && (ask.lane.tenant == busy || is_back);
            lanes.answered(ask, usize::from(has_jobs), now);
            if has_jobs {
                counts[ask.lane.tenant.0] += 1;
                now += 100 * MILLISECOND;
                lanes.ended(ask.lane.tenant, 100 * MILLISECOND);
            }
        }
        counts
    };
    assert_eq!(run(&mut lanes, 1000, false)[resting.0], 0);
    let [of_busy, of_resting] = run(&mut lanes, 1000, true);
    assert!(of_busy.abs_diff(of_resting) < 60, "{of_busy} and {of_resting}");
}

#[test]
fn an_idle_pool_goes_round_the_lanes_it_has_no_slots_for() {
    let mut lanes = Lanes::default();
    for _ in 0..2 {
        lanes.add(1);
    }
    drained(&mut lanes, Duration::ZERO);
    // `drained` left its last request waiting, on one of the lanes.
    let mut now = MILLISECOND;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 1..2 * PRIORITIES {
        let ask = lanes.next(1, now).unwrap();
        assert_eq!((ask.count, ask.wait), (1, LONG_POLL));
        assert!(seen.insert(ask.lane), "{seen:?}");
        now += LONG_POLL;
        lanes.answered(ask, 0, now);
    }
    assert_eq!(seen.len(), 2 * PRIORITIES - 1);
}
