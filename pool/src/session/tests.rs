//! Concurrent operations on a session's state, and which of them wins.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Weak};

use engine::StartError;

use super::*;
use crate::event::OffloadError;
use crate::interpreter::{Interpreter, InterpreterSource, PackedBytes, SuspendedState};
use crate::offload::OffloadFile;
use crate::supervisor::offloading::offload;

const FIRST: WorkerId = WorkerId(1);
const SECOND: WorkerId = WorkerId(2);

fn cell() -> SessionCell {
    SessionCell::new(SessionId(1), None)
}

struct Number(u64);

impl SuspendedState for Number {
    fn bytes(&self) -> u64 {
        8
    }

    fn fork(&self) -> Suspended {
        suspended(self.0)
    }
}

fn suspended(state: u64) -> Suspended {
    Suspended::new(Number(state))
}

/// Returns the number in a suspended state.
fn number(state: Option<&Suspended>) -> Option<u64> {
    Some(state?.downcast_ref::<Number>()?.0)
}

fn lost(reason: &str) -> Option<Away> {
    Some(Away::Lost(reason.into()))
}

#[test]
fn a_state_goes_from_worker_to_worker() {
    let cell = cell();
    assert_eq!(cell.place(), SessionPlace::Fresh);
    assert!(matches!(cell.claim(FIRST), Claim::Resume(StoredState::Fresh)));
    cell.begin_run(FIRST, 100);
    assert_eq!(cell.at_hand().err(), Some(Away::OnWorker(FIRST)));
    assert!(matches!(cell.claim(FIRST), Claim::AlreadyHere));
    cell.captured(FIRST, suspended(7));
    assert_eq!(cell.place(), SessionPlace::OnWorker { worker: FIRST });
    assert_eq!(number(cell.at_hand().unwrap().as_ref()), Some(7));
    assert_eq!(cell.leave(FIRST, "unused"), Some(8));
    assert_eq!(cell.place(), SessionPlace::Suspended { bytes: 8 });
    let Claim::Resume(StoredState::Suspended(state)) = cell.claim(SECOND) else {
        panic!("{cell:?}")
    };
    assert_eq!(number(Some(&state)), Some(7));
    assert!(cell.is_on(SECOND) && !cell.is_on(FIRST));
}

#[test]
fn a_state_that_only_a_worker_knew_is_lost_with_it() {
    for is_running in [false, true] {
        let cell = cell();
        let _ = cell.claim(FIRST);
        cell.begin_run(FIRST, 100);
        cell.end_run(FIRST);
        if is_running {
            cell.begin_run(FIRST, 100);
        }
        cell.leave(FIRST, "it died");
        assert_eq!(cell.at_hand().err(), lost("it died"));
        assert!(matches!(cell.claim(SECOND), Claim::Lost(reason) if reason == "it died".into()));
    }
}

#[test]
fn a_run_that_is_cut_short_rolls_back_to_the_copy_before_it() {
    let cell = cell();
    let _ = cell.claim(FIRST);
    cell.begin_run(FIRST, 100);
    assert_eq!(cell.leave(FIRST, "it died"), Some(0));
    assert_eq!(cell.place(), SessionPlace::Fresh);
    let _ = cell.claim(FIRST);
    cell.captured(FIRST, suspended(5));
    assert_eq!(cell.kept_bytes(), 8);
    cell.begin_run(FIRST, 100);
    assert_eq!((cell.kept_bytes(), cell.at_hand().err()), (0, Some(Away::OnWorker(FIRST))));
    assert_eq!(cell.leave(FIRST, "it died"), Some(8));
    assert_eq!(number(cell.at_hand().unwrap().as_ref()), Some(5));
}

/// A state of this cell, which nobody may keep locked while it is forked.
struct Watching(Weak<SessionCell>);

impl SuspendedState for Watching {
    fn bytes(&self) -> u64 {
        8
    }

    fn fork(&self) -> Suspended {
        let cell = self.0.upgrade().expect("the test has it");
        assert!(cell.place.try_lock().is_some(), "others ask where it is");
        suspended(6)
    }
}

#[test]
fn rolling_back_forks_the_copy_while_others_ask_where_the_state_is() {
    let cell = Arc::new(cell());
    let _ = cell.claim(FIRST);
    cell.captured(FIRST, Suspended::new(Watching(Arc::downgrade(&cell))));
    cell.begin_run(FIRST, 100);
    cell.roll_back(FIRST);
    assert_eq!(cell.leave(FIRST, "unused"), Some(8));
    assert_eq!(number(cell.at_hand().unwrap().as_ref()), Some(6));
}

#[test]
fn an_unchanged_state_outlives_its_worker() {
    let cell = SessionCell::new(SessionId(1), Some(suspended(3)));
    let _ = cell.claim(FIRST);
    cell.leave(FIRST, "unused");
    assert_eq!(number(cell.at_hand().unwrap().as_ref()), Some(3));
}

#[test]
fn replacing_or_closing_a_session_overrides_its_worker() {
    let cell = cell();
    let _ = cell.claim(FIRST);
    cell.begin_run(FIRST, 100);
    drop(cell.replace(Some(suspended(5))));
    cell.captured(FIRST, suspended(9));
    cell.leave(FIRST, "unused");
    assert_eq!(number(cell.at_hand().unwrap().as_ref()), Some(5));
    let _ = cell.claim(FIRST);
    drop(cell.lose("closed"));
    cell.captured(FIRST, suspended(9));
    assert_eq!(cell.at_hand().err(), lost("closed"));
}

#[test]
fn a_claim_waits_for_the_worker_that_has_the_state() {
    let cell = Arc::new(cell());
    let _ = cell.claim(FIRST);
    cell.begin_run(FIRST, 100);
    let claiming = std::thread::spawn({
        let cell = Arc::clone(&cell);
        move || cell.claim(SECOND)
    });
    cell.captured(FIRST, suspended(4));
    cell.leave(FIRST, "unused");
    let Claim::Resume(StoredState::Suspended(state)) = claiming.join().unwrap() else {
        panic!("{cell:?}")
    };
    assert_eq!(number(Some(&state)), Some(4));
}

/// A source of [`Number`]s.
#[derive(Default)]
struct Numbers {
    packed: AtomicU64,
    fails: AtomicBool,
    /// Passed by `pack` before it returns, once by itself and once with its caller's leave.
    gate: Option<[Barrier; 2]>,
}

impl InterpreterSource for Numbers {
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError> {
        Err(StartError::Boot("there are no interpreters".into()))
    }

    fn pack(&self, suspended: &Suspended) -> Result<PackedBytes, StartError> {
        self.packed.fetch_add(1, Ordering::Relaxed);
        for barrier in self.gate.iter().flatten() {
            barrier.wait();
        }
        if self.fails.load(Ordering::Relaxed) {
            return Err(StartError::Boot("scripted to fail".into()));
        }
        let bytes = number(Some(suspended)).unwrap().to_le_bytes().to_vec();
        Ok(PackedBytes { bytes, rest: None })
    }

    fn unpack(&self, packed: &PackedBytes) -> Result<Suspended, StartError> {
        Ok(suspended(u64::from_le_bytes(*packed.bytes.as_array().unwrap())))
    }
}

fn rig() -> (SessionCell, Numbers, OffloadFile, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let disk = OffloadFile::new(Some(folder.path().to_owned()));
    let cell = SessionCell::new(SessionId(1), Some(suspended(3)));
    (cell, Numbers::default(), disk, folder)
}

/// Returns the number of a claimed state.
fn claimed(cell: &SessionCell) -> Option<u64> {
    match cell.claim(FIRST) {
        Claim::Resume(StoredState::Suspended(suspended)) => number(Some(&suspended)),
        Claim::Resume(StoredState::Packed(offloaded)) => {
            number(Some(&Numbers::default().unpack(&offloaded.packed().unwrap()).unwrap()))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_state_is_compressed_then_offloaded_and_comes_back() {
    let (cell, source, disk, _folder) = rig();
    let bytes = offload(&cell, Tier::Compressed, &source, &disk).unwrap();
    assert_eq!(cell.place(), SessionPlace::Compressed { bytes });
    assert_eq!(cell.at_hand().err(), Some(Away::Packed));
    assert_eq!(offload(&cell, Tier::Compressed, &source, &disk), Ok(bytes));
    assert_eq!(offload(&cell, Tier::Disk, &source, &disk), Ok(bytes));
    assert_eq!(cell.place(), SessionPlace::OnDisk { bytes });
    assert_eq!(offload(&cell, Tier::Disk, &source, &disk), Ok(bytes));
    assert!(offload(&cell, Tier::Compressed, &source, &disk).is_err());
    assert_eq!(claimed(&cell), Some(3));
    assert_eq!(cell.place(), SessionPlace::OnWorker { worker: FIRST });
}

#[test]
fn a_state_that_is_offloaded_directly_is_compressed_too() {
    let (cell, source, disk, _folder) = rig();
    let bytes = offload(&cell, Tier::Disk, &source, &disk).unwrap();
    assert_eq!(cell.place(), SessionPlace::OnDisk { bytes });
    cell.leave(FIRST, "it has nothing to leave");
    assert_eq!(claimed(&cell), Some(3));
}

#[test]
fn only_a_state_at_rest_is_offloaded() {
    let (cell, source, disk, _folder) = rig();
    let offloaded = |cell: &SessionCell| {
        let error = offload(cell, Tier::Disk, &source, &disk).unwrap_err();
        engine::chain(&error).to_string()
    };
    assert!(offloaded(&SessionCell::new(SessionId(2), None)).contains("nothing has run"));
    let _ = cell.claim(FIRST);
    assert!(offloaded(&cell).contains("worker-1"));
    drop(cell.lose("closed"));
    assert!(offloaded(&cell).contains("closed"));
}

#[test]
fn a_state_that_cannot_be_packed_or_offloaded_is_unchanged() {
    let (cell, source, disk, _folder) = rig();
    source.fails.store(true, Ordering::Relaxed);
    let error = offload(&cell, Tier::Compressed, &source, &disk).unwrap_err();
    assert!(matches!(error, OffloadError::Unchanged(_)), "{error}");
    assert!(matches!(cell.place(), SessionPlace::Suspended { .. }));
}

#[test]
fn a_state_that_cannot_be_written_is_compressed_and_can_be_offloaded_later() {
    let (cell, source, disk, _folder) = rig();
    for _ in 0..2 {
        let error = offload(&cell, Tier::Disk, &source, &OffloadFile::default()).unwrap_err();
        let text = engine::chain(&error).to_string();
        assert!(text.contains("has no folder to offload"), "{text}");
        let OffloadError::NotWritten { bytes, .. } = error else { panic!("{error}") };
        assert_eq!(cell.place(), SessionPlace::Compressed { bytes });
    }
    assert_eq!(source.packed.load(Ordering::Relaxed), 1);
    let bytes = offload(&cell, Tier::Disk, &source, &disk).unwrap();
    assert_eq!(cell.place(), SessionPlace::OnDisk { bytes });
    assert_eq!(claimed(&cell), Some(3));
}

/// Offloads the cell's state and runs `meanwhile` while it is being packed. Returns the cell and the
/// result.
fn offload_and(meanwhile: impl FnOnce(&SessionCell)) -> (SessionCell, Result<u64, OffloadError>) {
    let (cell, source, disk, _folder) = rig();
    let source = Numbers { gate: Some([Barrier::new(2), Barrier::new(2)]), ..source };
    let offloaded = std::thread::scope(|scope| {
        let offloading = scope.spawn(|| offload(&cell, Tier::Disk, &source, &disk));
        let [began, goes_on] = source.gate.as_ref().unwrap();
        began.wait();
        meanwhile(&cell);
        goes_on.wait();
        offloading.join().unwrap()
    });
    (cell, offloaded)
}

#[test]
fn a_claim_while_a_state_is_being_offloaded_gets_the_original_state() {
    let (cell, offloaded) = offload_and(|cell| {
        assert!(matches!(cell.claim(FIRST), Claim::Resume(StoredState::Suspended(_))));
        cell.begin_run(FIRST, 100);
    });
    assert!(offloaded.unwrap_err().to_string().contains("moved on"));
    assert_eq!(cell.at_hand().err(), Some(Away::OnWorker(FIRST)));
}

#[test]
fn a_state_that_changed_meanwhile_is_not_replaced_by_the_offloaded_one() {
    let now = suspended(4);
    let (cell, offloaded) = offload_and(|cell| {
        let _ = cell.claim(FIRST);
        cell.begin_run(FIRST, 100);
        cell.captured(FIRST, now);
        assert!(cell.leave(FIRST, "unused").is_some());
    });
    assert!(offloaded.is_err());
    assert_eq!(claimed(&cell), Some(4));
}

#[test]
fn a_state_that_came_back_unchanged_is_offloaded() {
    let (cell, offloaded) = offload_and(|cell| {
        let _ = cell.claim(FIRST);
        assert!(cell.leave(FIRST, "unused").is_some());
    });
    assert_eq!(cell.place(), SessionPlace::OnDisk { bytes: offloaded.unwrap() });
    assert_eq!(claimed(&cell), Some(3));
}

#[test]
fn replacing_or_closing_a_session_overrides_offloading() {
    let now = suspended(9);
    let (cell, offloaded) = offload_and(|cell| drop(cell.replace(Some(now))));
    assert!(offloaded.is_err());
    assert_eq!(claimed(&cell), Some(9));
    let (cell, offloaded) = offload_and(|cell| drop(cell.lose("closed")));
    assert!(offloaded.is_err());
    assert_eq!(cell.at_hand().err(), lost("closed"));
}

#[test]
fn a_state_that_cannot_be_unpacked_is_lost_unless_it_was_replaced_meanwhile() {
    let (cell, source, disk, _folder) = rig();
    offload(&cell, Tier::Compressed, &source, &disk).unwrap();
    let Claim::Resume(before) = cell.claim(FIRST) else { panic!("{cell:?}") };
    cell.mark_damaged(SECOND, &before, "it isn't here");
    assert_eq!(cell.at_hand().err(), Some(Away::Packed));
    cell.mark_damaged(FIRST, &before, "damaged");
    assert_eq!(cell.at_hand().err(), lost("damaged"));
    drop(cell.replace(None));
    cell.mark_damaged(FIRST, &before, "damaged");
    assert_eq!(cell.place(), SessionPlace::Fresh);
}

#[test]
fn an_unpacked_state_replaces_the_offloaded_one() {
    let (cell, source, disk, _folder) = rig();
    offload(&cell, Tier::Disk, &source, &disk).unwrap();
    let before = cell.stored().unwrap();
    assert!(cell.exchange(&before, StoredState::Suspended(suspended(3))));
    assert_eq!(cell.place(), SessionPlace::Suspended { bytes: 8 });
    assert!(!cell.exchange(&before, StoredState::Fresh));
}

#[test]
fn places_serialize_by_name() {
    let (cell, source, disk, _folder) = rig();
    let told = |cell: &SessionCell| serde_json::to_value(cell.place()).unwrap();
    assert_eq!(told(&cell), serde_json::json!({ "place": "suspended", "bytes": 8 }));
    let bytes = offload(&cell, Tier::Disk, &source, &disk).unwrap();
    assert_eq!(told(&cell), serde_json::json!({ "place": "on_disk", "bytes": bytes }));
    let _ = cell.claim(FIRST);
    assert_eq!(told(&cell), serde_json::json!({ "place": "on_worker", "worker": 1 }));
}
