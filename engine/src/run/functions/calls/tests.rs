//! Calls whose answers come in any order, late, or not at all.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::super::{Callee, Signature};
use super::*;
use crate::run::egress::{NetworkAnswer, NetworkEffects};
use crate::run::value::tests::as_python_reads;

/// Keeps the calls for the test to answer.
#[derive(Default)]
struct Kept(Mutex<VecDeque<HostCall>>);

impl Callee for Kept {
    fn call(&self, call: HostCall) {
        self.0.lock().push_back(call);
    }
}

struct Panics;

impl Callee for Panics {
    fn call(&self, _call: HostCall) {
        panic!("on purpose");
    }
}

fn calls(limits: &Limits, records: bool, replays: Option<Recording>) -> (Arc<Calls>, Arc<Kept>) {
    let kept = Arc::<Kept>::default();
    let named = |name: &str| Signature { name: name.to_owned(), ..Signature::default() };
    let functions = HostFunctions::new([
        (named("f"), Arc::clone(&kept) as Arc<dyn Callee>),
        (named("panics"), Arc::new(Panics) as Arc<dyn Callee>),
    ]);
    let (gate, replays) = (Arc::new(Gate::new()), replays.map(Arc::new));
    (
        Arc::new(Calls::new(
            functions.unwrap(),
            None,
            limits,
            gate,
            Arc::default(),
            records,
            replays,
        )),
        kept,
    )
}

fn begin(calls: &Arc<Calls>, name: &str, argument: i64) -> Result<u32, HostError> {
    let call = json!({"name": name, "arguments": {"x": argument}});
    calls.begin(call.to_string().as_bytes())
}

fn answer(kept: &Kept, result: Result<Json, HostError>) {
    kept.0.lock().pop_front().unwrap().reply.answer(result);
}

fn raised(type_name: &str, message: &str) -> WaitAnswer {
    WaitAnswer::Call(RecordedAnswer::Raised(type_name.to_owned(), message.to_owned()))
}

fn returned(value: Json) -> WaitAnswer {
    WaitAnswer::Call(RecordedAnswer::Returned(value))
}

#[test]
fn answers_are_found_in_the_order_in_which_they_come() {
    let (calls, kept) = calls(&Limits::default(), false, None);
    assert_eq!(calls.look(None), WaitResult::Idle);
    assert_eq!([begin(&calls, "f", 1), begin(&calls, "f", 2)], [Ok(1), Ok(2)]);
    assert_eq!(calls.look(None), WaitResult::Pending);
    kept.0.lock().swap(0, 1);
    answer(&kept, Ok(json!({"a": [1, null]})));
    assert!(calls.has_ended(None) && !calls.has_ended(Some(1)));
    assert_eq!(calls.look(Some(1)), WaitResult::Pending);
    answer(&kept, Err(HostError::new("KeyError", "x")));
    let ended = vec![(2, returned(json!({"a": [1, null]}))), (1, raised("KeyError", "x"))];
    let expected = json!([[2, true, {"a": [1, null]}], [1, false, ["KeyError", "x"]]]);
    assert_eq!(as_python_reads(&encode(&ended)), expected);
    assert_eq!(calls.look(None), WaitResult::Ended(ended));
    assert_eq!(calls.look(None), WaitResult::Idle);
}

#[test]
fn private_errors_do_not_reach_the_program() {
    let (calls, kept) = calls(&Limits::default(), false, None);
    begin(&calls, "f", 1).unwrap();
    begin(&calls, "f", 2).unwrap();
    begin(&calls, "panics", 3).unwrap();
    begin(&calls, "missing", 4).unwrap();
    answer(&kept, Err(HostError::private("/etc/secret")));
    drop(kept.0.lock().pop_front());
    let WaitResult::Ended(mut ended) = calls.look(None) else { panic!("all have ended") };
    ended.sort_by_key(|(ticket, _)| *ticket);
    let failed = raised(FAILURE, "the host function `f` failed");
    let expected = [
        (1, failed.clone()),
        (2, failed),
        (3, raised(FAILURE, "the host function `panics` failed")),
        (4, raised("AttributeError", "the host has no function `missing` for this job")),
    ];
    assert_eq!(ended, expected);
}

#[test]
fn calls_beyond_a_limit_are_refused_and_told_of() {
    let limits = Limits {
        function_calls: 3,
        functions_in_flight: 1,
        function_argument_bytes: 100,
        function_result_bytes: 100,
        ..Limits::default()
    };
    let (calls, kept) = calls(&limits, false, None);
    let long = vec![b' '; 101];
    assert!(calls.begin(&long).unwrap_err().message().contains("101 B"));
    assert_eq!(begin(&calls, "f", 1), Ok(1));
    assert!(begin(&calls, "f", 2).is_err(), "one is under way");
    answer(&kept, Ok("x".repeat(200).into()));
    let WaitResult::Ended(ended) = calls.look(None) else { panic!("it has ended") };
    let [(1, WaitAnswer::Call(RecordedAnswer::Raised(type_name, _)))] = &ended[..] else {
        panic!("{ended:?}")
    };
    assert_eq!(type_name, LIMIT);
    for ticket in [2, 3] {
        assert_eq!(begin(&calls, "f", 1), Ok(ticket));
        calls.cancel(ticket);
        drop(kept.0.lock().pop_front());
    }
    assert!(begin(&calls, "f", 1).is_err());
    assert!(begin(&calls, "f", 1).unwrap_err().message().contains("function_calls"));
    let mut refusals: Vec<_> =
        calls.close().refusals.iter().map(|hit| (hit.limit.name(), hit.used)).collect();
    refusals.sort_unstable();
    let expected = [
        ("function_argument_bytes", 101),
        ("function_calls", 4),
        ("function_result_bytes", 205),
        ("functions_in_flight", 2),
    ];
    assert_eq!(refusals, expected);
}

#[test]
fn arguments_under_way_take_so_much_memory_together_and_no_more() {
    let (calls, kept) = calls(&Limits::default(), false, None);
    let nested = format!("{}0{}", "{\"\":".repeat(99), "}".repeat(99));
    let argument = vec![nested; 1000].join(",");
    let call = format!(r#"{{"name": "f", "arguments": {{"x": [{argument}]}}}}"#);
    let begin = || calls.begin(call.as_bytes());
    let begun = (0..100).map_while(|_| begin().ok()).last().unwrap();
    assert!((2..10).contains(&begun), "{begun}");
    assert!(begin().unwrap_err().message().contains("256.0 MiB"));
    // An answer alone, whose time is random, makes no room; the program has to fetch it.
    answer(&kept, Ok(Json::Null));
    assert!(begin().is_err());
    assert_eq!(calls.look(None), WaitResult::Ended(vec![(1, returned(Json::Null))]));
    assert!(begin().is_ok() && begin().is_err());
    calls.cancel(2);
    drop(kept.0.lock().pop_front());
    assert!(begin().is_ok() && begin().is_err());
    // Giving a call up makes no room either: whatever works on it keeps its arguments.
    calls.cancel(3);
    let refused = begin().unwrap();
    assert!(told_of_a_limit(&calls, refused).contains("256.0 MiB"));
    drop(kept.0.lock().pop_front());
    assert!(begin().is_ok() && begin().is_err());
}

/// Returns the error of a call that a limit refused.
#[track_caller]
fn told_of_a_limit(calls: &Calls, ticket: u32) -> String {
    let WaitResult::Ended(ended) = calls.look(Some(ticket)) else { panic!("it never began") };
    let [(_, WaitAnswer::Call(RecordedAnswer::Raised(type_name, message)))] = &ended[..] else {
        panic!("{ended:?}")
    };
    assert_eq!(type_name, LIMIT);
    assert!(message.ends_with("calls that were given up still run"), "{message}");
    message.clone()
}

#[test]
fn what_was_given_up_or_answered_has_its_place_until_nothing_works_on_it() {
    let limits = Limits { functions_in_flight: 1, ..Limits::default() };
    let (calls, kept) = calls(&limits, false, None);
    let take = || kept.0.lock().pop_front().unwrap();
    begin(&calls, "f", 1).unwrap();
    let given_up = take();
    calls.cancel(1);
    assert_eq!(begin(&calls, "f", 2), Ok(2));
    assert!(kept.0.lock().is_empty(), "it has begun");
    assert!(begin(&calls, "f", 3).is_err(), "the end of that isn't known yet");
    assert!(told_of_a_limit(&calls, 2).contains("functions_in_flight"));
    drop(given_up);

    assert_eq!(begin(&calls, "f", 3), Ok(3));
    let HostCall { reply, room, run, .. } = take();
    // As if the host's time limit for the call is over and the closure continues.
    reply.answer(Err(HostError::new("TimeoutError", "late")));
    assert_eq!(calls.look(None), WaitResult::Ended(vec![(3, raised("TimeoutError", "late"))]));
    assert_eq!(begin(&calls, "f", 4), Ok(4));
    told_of_a_limit(&calls, 4);
    drop(room);

    assert_eq!(begin(&calls, "f", 5), Ok(5));
    let last = take();
    assert_eq!(last.run, run);
    let hits: Vec<_> =
        calls.close().refusals.iter().map(|hit| (hit.limit.name(), hit.used)).collect();
    assert_eq!(hits, [("functions_in_flight", 2)]);
    drop(last);
}

#[test]
fn a_replay_repeats_refusals_that_depended_on_timing() {
    let limits = Limits { functions_in_flight: 1, ..Limits::default() };
    let (live, kept) = calls(&limits, true, None);
    begin(&live, "f", 1).unwrap();
    live.cancel(1);
    begin(&live, "f", 2).unwrap();
    let refused = live.look(Some(2));
    drop(kept.0.lock().pop_front());
    begin(&live, "f", 3).unwrap();
    answer(&kept, Ok(json!(3)));
    let third = live.look(Some(3));
    let recording = live.close().recording;

    let (replay, kept) = calls(&limits, false, recording);
    begin(&replay, "f", 1).unwrap();
    replay.cancel(1);
    begin(&replay, "f", 2).unwrap();
    assert_eq!(replay.look(Some(2)), refused);
    begin(&replay, "f", 3).unwrap();
    assert_eq!(replay.look(Some(3)), third);
    assert!(kept.0.lock().is_empty(), "the host was asked");
}

#[test]
fn a_wait_without_an_end_fails_where_the_recorded_one_was_over() {
    let (live, kept) = calls(&Limits::default(), true, None);
    begin(&live, "f", 1).unwrap();
    assert_eq!(live.look(None), WaitResult::Pending);
    live.waited_in_vain();
    answer(&kept, Ok(json!(1)));
    assert!(matches!(live.look(None), WaitResult::Ended(_)));
    let recording = live.close().recording.unwrap();

    let (replay, _kept) = calls(&Limits::default(), false, Some(recording));
    begin(&replay, "f", 1).unwrap();
    assert_eq!(replay.look(Some(1)), WaitResult::NotNow);
    let failed = replay.fail_in_replay(Some(1));
    assert!(
        matches!(&*failed, [(1, WaitAnswer::Call(RecordedAnswer::Raised(kind, _)))] if kind == "ReplayError")
    );
    assert_eq!(replay.look(Some(1)), WaitResult::Idle);
}

#[test]
fn cancelling_runs_the_hook_once_and_late_answers_are_dropped() {
    let (calls, kept) = calls(&Limits::default(), false, None);
    let cancelled = Arc::<AtomicUsize>::default();
    let count = || {
        let cancelled = Arc::clone(&cancelled);
        move || {
            cancelled.fetch_add(1, Ordering::Relaxed);
        }
    };
    for argument in 1..=3 {
        begin(&calls, "f", argument).unwrap();
    }
    let cancellations: Vec<_> =
        kept.0.lock().iter().map(|call| call.reply.cancellation()).collect();
    let [first, second, third] = cancellations.try_into().unwrap();
    first.on_cancel(count());
    second.on_cancel(count());
    calls.cancel(1);
    calls.cancel(1);
    assert_eq!(cancelled.load(Ordering::Relaxed), 1);
    answer(&kept, Ok(Json::Null));
    assert_eq!(calls.look(None), WaitResult::Pending);
    calls.close();
    assert_eq!(cancelled.load(Ordering::Relaxed), 2);
    third.on_cancel(count());
    assert_eq!(cancelled.load(Ordering::Relaxed), 3, "at once, since it is over");
    answer(&kept, Ok(Json::Null));
    assert_eq!(calls.look(None), WaitResult::Idle);
    assert!(begin(&calls, "f", 1).is_err());
}

#[test]
fn a_run_is_repeated_from_its_recording() {
    let (live, kept) = calls(&Limits::default(), true, None);
    begin(&live, "f", 1).unwrap();
    begin(&live, "f", 2).unwrap();
    assert_eq!(live.look(None), WaitResult::Pending);
    live.waited_in_vain();
    answer(&kept, Ok(json!(1.5)));
    let first = live.look(Some(1));
    answer(&kept, Err(HostError::private("secret")));
    let second = live.look(None);
    let recording = live.close().recording.unwrap();
    assert!(!serde_json::to_string(&recording).unwrap().contains("secret"));

    let (replay, kept) = calls(&Limits::default(), false, Some(recording));
    begin(&replay, "f", 1).unwrap();
    assert!(begin(&replay, "f", 7).unwrap_err().message().contains("call 2 is f(x=7)"));
    begin(&replay, "f", 2).unwrap();
    assert_eq!(replay.look(None), WaitResult::NotNow);
    assert_eq!((replay.look(Some(1)), replay.look(None)), (first, second));
    assert_eq!(replay.look(None), WaitResult::Idle);
    assert!(kept.0.lock().is_empty(), "the host was asked");
}

/// Answers operations of one byte at once with it, and keeps others for the test to answer.
#[derive(Debug, Default)]
struct Streams {
    given_up: Arc<AtomicUsize>,
    kept: Mutex<KeptAnswers>,
}

#[derive(Default, derive_more::Debug)]
#[debug("KeptAnswers")]
struct KeptAnswers(Vec<NetworkAnswer>);

impl NetworkPeer for Streams {
    fn begin(&self, _transcript: &Arc<Transcript>) {}

    fn serve(&self, frame: &[u8], answer: NetworkAnswer) -> NetworkReply {
        match frame {
            [byte] => NetworkReply::Now(vec![0, *byte]),
            b"soon" => {
                answer(b"already".to_vec());
                NetworkReply::Later(Box::new(()))
            }
            _ => {
                self.kept.lock().0.push(answer);
                let given_up = Arc::clone(&self.given_up);
                NetworkReply::Later(Box::new(scopeguard::guard((), move |()| {
                    given_up.fetch_add(1, Ordering::Relaxed);
                })))
            }
        }
    }

    fn finish(&self) -> NetworkEffects {
        NetworkEffects::default()
    }
}

#[test]
fn operations_of_the_network_end_among_the_calls() {
    let streams = Arc::new(Streams::default());
    let kept = Arc::<Kept>::default();
    let signature = Signature { name: "f".to_owned(), ..Signature::default() };
    let functions = HostFunctions::new([(signature, Arc::clone(&kept) as Arc<dyn Callee>)]);
    let (gate, limits) = (Arc::new(Gate::new()), Limits { function_calls: 1, ..Limits::default() });
    let network = Arc::clone(&streams) as Arc<dyn NetworkPeer>;
    let calls =
        Calls::new(functions.unwrap(), Some(network), &limits, gate, Arc::default(), true, None);
    let calls = Arc::new(calls);
    assert_eq!(calls.operate(b"7"), Ok(b"\x007".to_vec()));
    assert_eq!(calls.look(None), WaitResult::Idle);
    // They count towards no limit of calls, and recordings have nothing of them.
    assert_eq!(begin(&calls, "f", 1), Ok(1));
    let [soon, first, second] =
        [&b"soon"[..], b"12", b"34"].map(|frame| calls.operate(frame).unwrap_err());
    assert_eq!(
        calls.look(Some(soon)),
        WaitResult::Ended(vec![(soon, WaitAnswer::Network(b"already".to_vec()))])
    );
    assert_eq!(calls.look(None), WaitResult::Pending);
    answer(&kept, Ok(Json::Null));
    let take = || streams.kept.lock().0.remove(0);
    take()(b"answer".to_vec());
    let ended = vec![(1, returned(Json::Null)), (first, WaitAnswer::Network(b"answer".to_vec()))];
    assert_eq!(calls.look(None), WaitResult::Ended(ended));
    // One that the program gives up is dropped with what works on it.
    let before = streams.given_up.load(Ordering::Relaxed);
    calls.cancel(second);
    assert_eq!(streams.given_up.load(Ordering::Relaxed), before + 1);
    take()(b"late".to_vec());
    assert_eq!(calls.look(None), WaitResult::Idle);
    calls.operate(b"56").unwrap_err();
    let recording = calls.close().recording.unwrap();
    assert_eq!(streams.given_up.load(Ordering::Relaxed), before + 2);
    assert_eq!((recording.calls.len(), recording.deliveries.len()), (1, 1));
    assert_eq!(recording.deliveries[0].empty_waits, 0);
    assert_eq!(calls.operate(b"7").unwrap()[..2], [1, 2]);
}

#[test]
fn too_many_operations_are_refused() {
    let network: Arc<dyn NetworkPeer> = Arc::<Streams>::default();
    let (functions, gate) = (HostFunctions::default(), Arc::new(Gate::new()));
    let limits = Limits::default();
    let calls = Calls::new(functions, Some(network), &limits, gate, Arc::default(), false, None);
    let calls = Arc::new(calls);
    for _ in 0..MOST_OPERATIONS {
        calls.operate(b"12").unwrap_err();
    }
    assert_eq!(calls.operate(b"12").unwrap()[..2], [1, 11]);
}
