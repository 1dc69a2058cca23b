//! Copies of one image share no random number, unless they are to share all.

use std::collections::HashSet;

use engine::{Deterministic, Program, SessionState};
use serde_json::Value;

use crate::support::{both, mapped, program, value, value_of};

/// A list of random numbers and texts, each from another source.
const CHANCE: &str = r"
import os, random, secrets, tempfile, uuid
import numpy
[
    random.random(), random.SystemRandom().random(), float(numpy.random.rand()),
    float(numpy.random.default_rng().random()), str(uuid.uuid4()), str(uuid.uuid1()),
    secrets.token_hex(), os.urandom(16).hex(), os.path.basename(tempfile.mktemp()),
    os.path.basename(tempfile.mkdtemp()),
]
";
/// Like `CHANCE`, from the generators that modules share only.
const SHARED: &str = "[random.random(), random.getrandbits(64), float(numpy.random.rand())]";

/// Asserts that no two of these lists have the same value at the same place.
#[track_caller]
fn assert_all_differ(lists: &[Value]) {
    let places = lists[0].as_array().map_or(0, Vec::len);
    assert!(places > 0);
    for place in 0..places {
        let values: HashSet<String> = lists.iter().map(|list| list[place].to_string()).collect();
        assert_eq!(values.len(), lists.len(), "the same twice at place {place}: {lists:?}");
    }
}

#[test]
fn fifty_jobs_draw_fifty_times_by_chance() {
    for ((kind, image), jobs) in both().into_iter().zip([50, 8]) {
        let mut slot = image.start().unwrap();
        let mut drawn = Vec::new();
        for number in 0..jobs {
            match number % 10 {
                // As after the death of a worker.
                7 => slot = image.start().unwrap(),
                _ => slot.reset().unwrap(),
            }
            drawn.push(value(&mut slot, CHANCE));
        }
        assert_eq!(drawn.len(), jobs, "{kind}");
        assert_all_differ(&drawn);
    }
}

#[test]
fn a_seed_determines_what_is_drawn_whatever_ran_before() {
    let mut slots = [mapped().start().unwrap(), mapped().start().unwrap()];
    value(&mut slots[1], CHANCE);
    let mut drawn = |seed| {
        let wanted = Program { deterministic: Some(Deterministic::new(seed)), ..program(CHANCE) };
        let [first, second] = &mut slots;
        [first, second].map(|slot| {
            slot.reset().unwrap();
            value_of(slot, &wanted)
        })
    };
    let (sevens, eights) = (drawn(7), drawn(8));
    assert_eq!(sevens[0], sevens[1]);
    assert_eq!(eights[0], eights[1]);
    assert_all_differ(&[sevens[0].clone(), eights[0].clone()]);
    assert_eq!(drawn(7)[0], sevens[0]);
}

#[test]
fn a_determined_clock_begins_at_the_same_time_whatever_came_before() {
    let times = "import time\n[time.time_ns(), time.monotonic_ns(), time.perf_counter_ns()]";
    let wanted = Program { deterministic: Some(Deterministic::new(7)), ..program(times) };
    let mut slot = mapped().start().unwrap();
    let first = value_of(&mut slot, &wanted);
    slot.reset().unwrap();
    assert_eq!(value_of(&mut slot, &wanted), first);
    slot.reset().unwrap();
    value(&mut slot, "1");
    slot.reset().unwrap();
    let before_its_first_run = slot.suspend().unwrap();
    slot.resume(&before_its_first_run).unwrap();
    assert_eq!(value_of(&mut slot, &wanted), first);
}

#[test]
fn forks_of_a_session_draw_apart_from_it_and_from_one_another() {
    for (kind, image) in both() {
        let mut slot = image.start().unwrap();
        value(&mut slot, "import random, numpy\nrandom.seed(1); numpy.random.seed(1)");
        let suspended = slot.suspend().unwrap();
        let own = value(&mut slot, SHARED);
        slot.resume(&suspended).unwrap();
        assert_eq!(value(&mut slot, SHARED), own, "{kind}: the state itself goes on as it was");
        let mut drawn = vec![own];
        for state in [suspended.fork(), suspended.fork(), suspended.fork().fork()] {
            slot.resume(&state).unwrap();
            drawn.push(value(&mut slot, SHARED));
        }
        assert_all_differ(&drawn);
        // A fork keeps the seed that it got, like any session.
        let fork = slot.suspend().unwrap();
        let next = value(&mut slot, SHARED);
        slot.resume(&fork).unwrap();
        assert_eq!(value(&mut slot, SHARED), next, "{kind}");
    }
}

#[test]
fn forks_of_a_deterministic_session_draw_the_same() {
    let mut slot = mapped().start().unwrap();
    let deterministic = Some(Deterministic::new(3));
    let begin = Program { deterministic, ..program("import random, time, numpy") };
    value_of(&mut slot, &begin);
    let suspended = slot.suspend().unwrap();
    let mut go_on = |state: &SessionState| {
        slot.resume(state).unwrap();
        value(&mut slot, &format!("[time.time(), *{SHARED}]"))
    };
    let expected = go_on(&suspended);
    assert_eq!(go_on(&suspended.fork()), expected);
    assert_eq!(go_on(&suspended.fork().fork()), expected);
}
