//! Many senders, one handler: nothing is lost, doubled, or overtaken. Threads and time are real.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Weak, mpsc};
use std::thread;
use std::time::Duration;

use super::*;

/// What tests send.
enum Note {
    /// From this sender, with its number there.
    Number(usize, usize),
    /// Send this number of notes to the same combiner while handling this one.
    Resend(usize),
    /// Wait until somebody sends or the sender is dropped.
    Wait(mpsc::Sender<()>, mpsc::Receiver<()>),
    Panic,
    Finish,
    Echo(Echo),
    /// Answer by this.
    Answer(Answer),
    /// Answer by this, and panic or finish before that.
    LastAnswer(Answer, Box<Note>),
}

/// Sends a note when it is dropped.
struct Echo(Arc<Combiner<Note>>);

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.send(Note::Number(0, 0));
    }
}

/// Writes down what it handles.
struct Clerk {
    combiner: Weak<Combiner<Note>>,
    seen: mpsc::Sender<(usize, usize)>,
    is_busy: AtomicBool,
    answers: Vec<Answer>,
    /// Counts the clerks that were dropped.
    dropped: Arc<AtomicUsize>,
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Handler<Note> for Clerk {
    fn handle(&mut self, note: Note) -> ControlFlow<()> {
        assert!(!self.is_busy.swap(true, Ordering::SeqCst), "two notes are handled at a time");
        match note {
            Note::Number(sender, number) => self.seen.send((sender, number)).unwrap(),
            Note::Resend(count) => {
                let combiner = self.combiner.upgrade().unwrap();
                for number in 0..count {
                    combiner.send(Note::Number(usize::MAX, number)).unwrap();
                }
            }
            Note::Wait(begun, until) => {
                begun.send(()).unwrap();
                let _ = until.recv();
            }
            Note::Panic => panic!("told to"),
            Note::Finish => return ControlFlow::Break(()),
            Note::Echo(echo) => drop(echo),
            Note::Answer(answer) => self.answers.push(answer),
            Note::LastAnswer(answer, last) => {
                self.answers.push(answer);
                self.is_busy.store(false, Ordering::SeqCst);
                return self.handle(*last);
            }
        }
        self.is_busy.store(false, Ordering::SeqCst);
        ControlFlow::Continue(())
    }

    fn answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }
}

struct Rig {
    combiner: Arc<Combiner<Note>>,
    seen: mpsc::Receiver<(usize, usize)>,
    dropped: Arc<AtomicUsize>,
    /// What the actor is asked for, if nothing else answers.
    calls: mpsc::Receiver<Call>,
}

/// A combiner whose actor is the test.
fn rig() -> Rig {
    let (combiner, dropped) = (Combiner::new(), Arc::default());
    let (seen_by, seen) = mpsc::channel();
    let (caller, calls) = mpsc::channel();
    let clerk = Clerk {
        combiner: Arc::downgrade(&combiner),
        seen: seen_by,
        is_busy: AtomicBool::new(false),
        answers: Vec::new(),
        dropped: Arc::clone(&dropped),
    };
    combiner.begin(Box::new(clerk), move |call| caller.send(call).unwrap());
    Rig { combiner, seen, dropped, calls }
}

impl Rig {
    /// Occupies the handler on another thread until the returned sender is dropped.
    fn occupy(&self) -> (mpsc::Sender<()>, thread::JoinHandle<()>) {
        let (release, until) = mpsc::channel();
        let (begun, has_begun) = mpsc::channel();
        let combiner = Arc::clone(&self.combiner);
        let thread = thread::spawn(move || combiner.send(Note::Wait(begun, until)).unwrap());
        has_begun.recv().unwrap();
        (release, thread)
    }

    fn seen(&self) -> Vec<(usize, usize)> {
        self.seen.try_iter().collect()
    }
}

#[test]
fn a_message_is_handled_before_its_sender_goes_on() {
    let rig = rig();
    rig.combiner.send(Note::Number(1, 2)).unwrap();
    assert_eq!(rig.seen(), [(1, 2)]);
    assert!(rig.calls.try_recv().is_err(), "the actor isn't needed");
}

#[test]
fn messages_from_before_the_beginning_are_handled_then() {
    let combiner = Combiner::new();
    combiner.send(Note::Number(1, 1)).unwrap();
    combiner.post(Note::Number(1, 2)).unwrap();
    let (seen_by, seen) = mpsc::channel();
    let clerk = Clerk {
        combiner: Weak::new(),
        seen: seen_by,
        is_busy: AtomicBool::new(false),
        answers: Vec::new(),
        dropped: Arc::default(),
    };
    combiner.begin(Box::new(clerk), |call| panic!("{call:?}"));
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [(1, 1), (1, 2)]);
}

#[test]
fn many_senders_lose_double_and_reorder_nothing() {
    const SENDERS: usize = 8;
    const EACH: usize = 20_000;
    let Rig { combiner, seen, calls, .. } = rig();
    let barrier = Arc::new(Barrier::new(SENDERS));
    let actor = thread::spawn({
        let combiner = Arc::downgrade(&combiner);
        move || {
            while let Ok(Call::Resume) = calls.recv()
                && let Some(combiner) = combiner.upgrade()
            {
                combiner.resume();
            }
        }
    });
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let (combiner, barrier) = (Arc::clone(&combiner), Arc::clone(&barrier));
            thread::spawn(move || {
                barrier.wait();
                for number in 0..EACH {
                    let note = Note::Number(sender, number);
                    let sent = if (sender + number) % 4 == 0 {
                        combiner.post(note)
                    } else {
                        combiner.send(note)
                    };
                    sent.unwrap();
                }
            })
        })
        .collect();
    let mut next = [0; SENDERS];
    for _ in 0..SENDERS * EACH {
        let (sender, number) = seen.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(number, next[sender], "sender {sender}");
        next[sender] += 1;
    }
    for sender in senders {
        sender.join().unwrap();
    }
    assert!(seen.try_recv().is_err());
    // The actor's channel closes with the combiner.
    drop(combiner);
    actor.join().unwrap();
}

#[test]
fn messages_sent_while_handling_one_follow_it() {
    let rig = rig();
    rig.combiner.send(Note::Resend(3)).unwrap();
    assert_eq!(rig.seen(), [(usize::MAX, 0), (usize::MAX, 1), (usize::MAX, 2)]);
    rig.combiner.send(Note::Echo(Echo(Arc::clone(&rig.combiner)))).unwrap();
    assert_eq!(rig.seen(), [(0, 0)]);
}

#[test]
fn a_sender_handles_a_share_and_leaves_the_rest_to_the_actor() {
    let rig = rig();
    rig.combiner.send(Note::Resend(2 * BATCH_LIMIT)).unwrap();
    assert_eq!(rig.seen().len(), BATCH_LIMIT - 1);
    assert!(matches!(rig.calls.try_recv(), Ok(Call::Resume)));
    rig.combiner.resume();
    assert_eq!(rig.seen().len(), BATCH_LIMIT);
    assert!(matches!(rig.calls.try_recv(), Ok(Call::Resume)));
    // Another sender may come first.
    rig.combiner.send(Note::Number(1, 1)).unwrap();
    assert_eq!(rig.seen(), [(usize::MAX, 2 * BATCH_LIMIT - 1), (1, 1)]);
    rig.combiner.resume();
    assert!(rig.calls.try_recv().is_err() && rig.seen().is_empty());
}

#[test]
fn a_busy_handler_takes_the_message_along() {
    let rig = rig();
    let (release, thread) = rig.occupy();
    rig.combiner.send(Note::Number(1, 1)).unwrap();
    rig.combiner.post(Note::Number(1, 2)).unwrap();
    assert!(rig.seen().is_empty());
    drop(release);
    thread.join().unwrap();
    assert_eq!(rig.seen(), [(1, 1), (1, 2)]);
    assert!(rig.calls.try_recv().is_err(), "the actor isn't needed");
}

#[test]
fn what_is_posted_is_left_to_the_actor_who_is_called_once() {
    let rig = rig();
    rig.combiner.post(Note::Number(1, 1)).unwrap();
    rig.combiner.post(Note::Number(1, 2)).unwrap();
    assert!(rig.seen().is_empty());
    assert!(matches!(rig.calls.try_recv(), Ok(Call::Resume)));
    assert!(rig.calls.try_recv().is_err());
    rig.combiner.resume();
    assert_eq!(rig.seen(), [(1, 1), (1, 2)]);
    rig.combiner.post(Note::Number(1, 3)).unwrap();
    assert!(matches!(rig.calls.try_recv(), Ok(Call::Resume)));
}

#[test]
fn answers_are_given_when_the_handler_is_free() {
    let rig = rig();
    let (combiner, (saw, seen)) = (Arc::clone(&rig.combiner), mpsc::channel());
    let answer = move || {
        combiner.send(Note::Number(1, 1)).unwrap();
        saw.send("answered").unwrap();
    };
    rig.combiner.send(Note::Answer(Box::new(answer))).unwrap();
    assert_eq!((rig.seen(), seen.try_recv()), (vec![(1, 1)], Ok("answered")));

    // What was queued meanwhile comes first, and the one who answered goes on with it.
    let (release, thread) = rig.occupy();
    let combiner = Arc::clone(&rig.combiner);
    let answer = move || combiner.send(Note::Number(1, 3)).unwrap();
    rig.combiner.send(Note::Answer(Box::new(answer))).unwrap();
    rig.combiner.send(Note::Number(1, 2)).unwrap();
    drop(release);
    thread.join().unwrap();
    assert_eq!(rig.seen(), [(1, 2), (1, 3)]);
}

#[test]
fn an_answer_that_panics_does_no_harm() {
    let rig = rig();
    rig.combiner.send(Note::Answer(Box::new(|| panic!("told to")))).unwrap();
    rig.combiner.send(Note::Number(1, 1)).unwrap();
    assert_eq!(rig.seen(), [(1, 1)]);
}

#[test]
fn the_last_answers_are_given_too() {
    for last in [Note::Panic, Note::Finish] {
        let rig = rig();
        let (given, was_given) = mpsc::channel();
        let answer = move || given.send(()).unwrap();
        rig.combiner.send(Note::LastAnswer(Box::new(answer), Box::new(last))).unwrap();
        assert_eq!(was_given.try_recv(), Ok(()));
        assert_eq!(rig.combiner.send(Note::Number(1, 1)), Err(Ended));
        assert_eq!(rig.dropped.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn a_panic_ends_it_and_not_the_sender() {
    let rig = rig();
    let (release, thread) = rig.occupy();
    rig.combiner.send(Note::Panic).unwrap();
    rig.combiner.send(Note::Number(1, 1)).unwrap();
    drop(release);
    thread.join().unwrap();
    let Ok(Call::Failed(panic)) = rig.calls.try_recv() else { panic!("the actor isn't told") };
    assert_eq!(panic.downcast_ref(), Some(&"told to"));
    assert_eq!(rig.combiner.send(Note::Number(1, 2)), Err(Ended));
    assert_eq!(rig.combiner.post(Note::Number(1, 3)), Err(Ended));
    assert!(rig.seen().is_empty());
    assert_eq!(rig.dropped.load(Ordering::SeqCst), 1);
}

#[test]
fn a_handler_that_is_done_is_dropped_with_what_waits() {
    let rig = rig();
    let (release, thread) = rig.occupy();
    rig.combiner.send(Note::Finish).unwrap();
    rig.combiner.send(Note::Number(1, 1)).unwrap();
    drop(release);
    thread.join().unwrap();
    assert_eq!(rig.combiner.send(Note::Number(1, 2)), Err(Ended));
    assert!(rig.seen().is_empty() && rig.calls.try_recv().is_err());
    assert_eq!(rig.dropped.load(Ordering::SeqCst), 1);
}

#[test]
fn ending_it_drops_the_handler_at_once_or_after_the_present_message() {
    let free = rig();
    drop(EndsCombiner(Arc::clone(&free.combiner)));
    assert_eq!(free.dropped.load(Ordering::SeqCst), 1);
    assert_eq!(free.combiner.send(Note::Number(1, 1)), Err(Ended));

    let busy = rig();
    let (release, thread) = busy.occupy();
    busy.combiner.send(Note::Number(1, 1)).unwrap();
    busy.combiner.end();
    assert_eq!(busy.combiner.send(Note::Number(1, 2)), Err(Ended));
    assert_eq!(busy.dropped.load(Ordering::SeqCst), 0);
    drop(release);
    thread.join().unwrap();
    assert_eq!(busy.dropped.load(Ordering::SeqCst), 1);
    assert!(busy.seen().is_empty());
}

#[test]
fn ending_it_among_senders_drops_the_handler_once() {
    for _ in 0..200 {
        let rig = rig();
        let senders: Vec<_> = (0..4)
            .map(|sender| {
                let combiner = Arc::clone(&rig.combiner);
                thread::spawn(move || {
                    let mut number = 0;
                    while combiner.send(Note::Number(sender, number)).is_ok() {
                        number += 1;
                    }
                })
            })
            .collect();
        rig.seen.recv_timeout(Duration::from_secs(60)).unwrap();
        rig.combiner.end();
        for sender in senders {
            sender.join().unwrap();
        }
        assert_eq!(rig.dropped.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn what_is_dropped_at_the_end_may_send() {
    let rig = rig();
    let (release, thread) = rig.occupy();
    rig.combiner.send(Note::Echo(Echo(Arc::clone(&rig.combiner)))).unwrap();
    rig.combiner.end();
    // A message that comes too late is dropped, too.
    let late = Note::Echo(Echo(Arc::clone(&rig.combiner)));
    assert_eq!(rig.combiner.send(late), Err(Ended));
    drop(release);
    thread.join().unwrap();
    assert!(rig.seen().is_empty());
}
