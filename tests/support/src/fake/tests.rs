//! The scripted interpreter follows its script.

use super::*;

#[test]
fn gates_apply_in_order_and_then_stay_open() {
    let source = FakeSource::default();
    source.gate(Step::Start, [Gate::Err, Gate::Ok, Gate::Slow, Gate::Err]);
    let started: Vec<bool> = (0..6).map(|_| source.start().is_ok()).collect();
    assert_eq!(started, [false, true, true, false, true, true]);
    assert_eq!(source.starts(), 6);
}

#[test]
fn a_release_applies_only_to_gates_scripted_before_it() {
    let source = FakeSource::default();
    source.gate(Step::Pack, [Gate::Never, Gate::Never]);
    let packing = std::thread::spawn({
        let source = source.clone();
        move || source.pack(&Suspended::new(FakeState::default())).is_ok()
    });
    source.release();
    assert!(packing.join().unwrap());
    assert!(source.pack(&Suspended::new(FakeState::default())).is_ok());
}

#[test]
fn a_packed_state_is_restored_unless_it_is_damaged() {
    let source = FakeSource::default();
    let state = FakeState { runs: 3, memory_bytes: 5 };
    let mut packed = source.pack(&Suspended::new(state)).unwrap();
    let unpacked = source.unpack(&packed).unwrap();
    assert_eq!((state_of(&unpacked), unpacked.bytes()), (state, 13));
    packed.bytes[0] ^= 1;
    assert!(source.unpack(&packed).is_err());
}

#[test]
fn scripts_have_parts() {
    let script = Script::of("memory 70; cpu 5 ;count");
    assert_eq!((script.memory_bytes, script.cpu.as_micros()), (Some(70), 5));
    assert!(script.counts && !script.traps && script.spin.is_zero());
}
