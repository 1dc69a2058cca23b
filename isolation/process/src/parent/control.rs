//! Sends control messages to a worker's runs, from any thread.

use std::time::{Duration, Instant};

use channel::{Error, Sender};
use parking_lot::Mutex;

use crate::message::{ControlMessage, StopRequest};

/// How long a frame may wait for space in a worker's ring.
pub(crate) const SENDING: Duration = Duration::from_secs(3);

/// The most bytes that the encoded end of a run takes.
const END_BYTES: usize = 32;

/// Says things to the runs of a worker.
#[derive(Debug)]
pub(crate) struct ControlChannel {
    sender: Mutex<Sender>,
    /// Stop requests that the worker hasn't been told of yet.
    ends: Mutex<PendingStops>,
}

#[derive(Debug, Default)]
struct PendingStops {
    ends: Vec<StopRequest>,
    /// When the worker must have been told of all.
    until: Option<Instant>,
}

impl ControlChannel {
    pub(crate) fn new(sender: Sender) -> Self {
        Self { sender: Mutex::new(sender), ends: Mutex::default() }
    }

    /// Sends a message. Waits while the worker hasn't read the previous one.
    pub(crate) fn send(&self, word: &ControlMessage) -> Result<(), Error> {
        let said = self.sender.lock().send(word, Some(Instant::now() + SENDING));
        self.send_stops();
        said
    }

    /// Ends a run. Never waits, since the scheduler calls it while it decides. If the message can't
    /// be sent now, another sender or the next call of [`Self::send_stops`] sends it.
    pub(crate) fn stop(&self, end: StopRequest) {
        let mut ends = self.ends.lock();
        end.add_to(&mut ends.ends);
        ends.until.get_or_insert_with(|| Instant::now() + SENDING);
        drop(ends);
        self.send_stops();
    }

    /// Tells the worker which runs are to end, as far as it can be told now. Returns whether it could
    /// not be told for too long.
    pub(crate) fn send_stops(&self) -> bool {
        // The thread that has the sender calls this once it has released it. So no end that is
        // added meanwhile is forgotten.
        while !self.ends.lock().ends.is_empty()
            && let Some(mut sender) = self.sender.try_lock()
        {
            // An error is seen by the thread that waits for the run.
            if !matches!(sender.would_block(END_BYTES), Ok(false)) {
                break;
            }
            let end = self.ends.lock().take_one();
            if let Some(end) = end {
                let _ = sender.send(&ControlMessage::End(end), Some(Instant::now()));
            }
        }
        self.ends.lock().until.is_some_and(|until| Instant::now() >= until)
    }
}

impl PendingStops {
    fn take_one(&mut self) -> Option<StopRequest> {
        let end = self.ends.pop();
        if self.ends.is_empty() {
            self.until = None;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use channel::Receiver;
    use engine::StopReason;

    use super::*;
    use crate::message::{StopKind, control_config};

    const STOP: StopRequest =
        StopRequest { run: 1, reason: StopReason::Cancelled, kind: StopKind::Kill };
    const INTERRUPT: StopRequest = StopRequest { kind: StopKind::Interrupt, ..STOP };

    fn control() -> (ControlChannel, Receiver) {
        let (end, file) = channel::create(&control_config()).unwrap();
        let receiver = channel::attach(&file, &control_config()).unwrap().receiver;
        (ControlChannel::new(end.sender), receiver)
    }

    /// Fills the ring. Returns how many control are in it.
    fn fill(control: &ControlChannel) -> usize {
        let mut count = 0;
        while !control.sender.lock().would_block(END_BYTES).unwrap() {
            control.send(&ControlMessage::Ping).unwrap();
            count += 1;
        }
        count
    }

    fn next(receiver: &mut Receiver) -> ControlMessage {
        receiver.receive(Some(Instant::now() + Duration::from_secs(60))).unwrap()
    }

    #[test]
    fn an_end_that_finds_no_room_waits_for_some_and_holds_nobody_up() {
        let (control, mut receiver) = control();
        let count = fill(&control);
        control.stop(INTERRUPT);
        control.stop(STOP);
        control.stop(INTERRUPT);
        control.stop(StopRequest { run: 2, ..INTERRUPT });
        assert!(!control.send_stops());
        control.ends.lock().until = Some(Instant::now());
        assert!(control.send_stops(), "the worker takes nothing");
        for _ in 0..count {
            assert!(matches!(next(&mut receiver), ControlMessage::Ping));
        }
        assert!(!control.send_stops());
        let mut ends = [next(&mut receiver), next(&mut receiver)].map(|word| match word {
            ControlMessage::End(end) => (end.run, end.kind),
            other => panic!("{other:?}"),
        });
        ends.sort_unstable();
        assert_eq!(ends, [(1, StopKind::Kill), (2, StopKind::Interrupt)]);
        control.send_stops();
        control.send(&ControlMessage::Ping).unwrap();
        assert!(matches!(next(&mut receiver), ControlMessage::Ping), "each end is said once");
    }

    #[test]
    fn whoever_says_something_says_the_ends_that_came_meanwhile() {
        let (control, mut receiver) = control();
        let somebody = control.sender.lock();
        control.stop(STOP);
        drop(somebody);
        control.send(&ControlMessage::Ping).unwrap();
        assert!(matches!(next(&mut receiver), ControlMessage::Ping));
        assert!(matches!(next(&mut receiver), ControlMessage::End(StopRequest { run: 1, .. })));
    }

    #[test]
    fn an_end_fits_into_the_room_that_is_asked_for() {
        let longest = ControlMessage::End(StopRequest { run: u64::MAX, ..STOP });
        assert!(postcard::to_allocvec(&longest).unwrap().len() <= END_BYTES);
    }
}
