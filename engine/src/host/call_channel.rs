//! The call channel: `host.call`, the channel through which the agent fetches its request, posts
//! its reply, and sends what the program displays.
//!
//! Any code in the guest can use it. A frame's size is checked before it is copied, and an unknown
//! frame is refused. The last reply before the turn ends counts, which is the agent's.

use std::sync::Arc;
use std::time::Duration;

use crate::guest::agent::{self, AgentFrame};
use crate::host::wasi::bytes::Buffer;
use crate::run::functions::calls::Calls;
use crate::run::transcript::Transcript;

pub(crate) mod binding;
pub(crate) mod device;

/// The state of the call channel during one run.
#[derive(Debug, Default)]
pub(crate) struct CallChannel {
    pub(crate) request: Arc<Vec<u8>>,
    /// Memory of the guest's allocator for the request.
    pub(crate) room: Option<Buffer>,
    reply: Option<Vec<u8>>,
    reply_cap: usize,
    /// Where displays go, and the longest display frame.
    transcript: Option<Arc<Transcript>>,
    display_cap: usize,
    /// The address of `KeyboardInterrupt`, once the agent has reported it.
    pub(crate) exception: Option<u32>,
    /// Where a command build is entered for its turns, once the agent has reported it.
    pub(crate) entry: Option<Entered>,
    /// Whether an image is being prepared, by code that the caller chose.
    prepares: bool,
    /// Another thread has woken the one that waits for calls, which hasn't noticed yet.
    pub(super) is_woken: bool,
    /// The guest's claims about random number generators.
    generators: Vec<GeneratorClaim>,
    /// The run's calls of host functions, if it may make any.
    pub(crate) calls: Option<Arc<Calls>>,
}

/// An answer through a device, and how much of it was read.
pub(crate) type DeviceAnswer = (Arc<Vec<u8>>, usize);

/// The addresses that the agent of a command build has reported: a type, and its objects for each
/// `Word`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entered {
    pub(crate) class: u32,
    pub(crate) objects: [u32; 3],
}

/// What a run sent through the call channel.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// The last reply.
    pub(crate) reply: Option<Vec<u8>>,
    pub(crate) generators: Vec<GeneratorClaim>,
    /// Close these only after unlocking the call channel.
    pub(crate) calls: Option<Arc<Calls>>,
}

/// The guest's claim about where a random number generator is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GeneratorClaim {
    pub(crate) address: u32,
    pub(crate) size: u32,
    /// The first bytes of the generator's state.
    pub(crate) needle: Vec<u8>,
}

/// The longest frame that carries neither a reply nor a call nor a display, in bytes.
const MOST_BYTES: usize = 64 << 10;
/// The longest operation on a stream: what a write carries at most, and its fields.
const MOST_NET_BYTES: usize = (64 << 10) + 16;
/// The most generators that a guest may report.
const MOST_GENERATORS: usize = 1024;

/// What a served frame means for the run.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FrameEffect {
    Answer(Arc<Vec<u8>>),
    ProgramBegins,
    ProgramOver,
    Immortal(Vec<u32>),
    /// Sets the run's alarm; `None` clears it.
    Alarm(Option<Duration>),
    /// Duplicates a descriptor, at this number or any.
    Duplicate(u32, Option<u32>),
    Asks(Ask),
}

/// A guest's request about host functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ask {
    Call(Vec<u8>),
    /// A call of this many bytes, which is refused unread.
    CallTooLong(usize),
    Wait {
        /// The timeout; `None` to wait without one.
        time: Option<Duration>,
        /// The call to wait for; `None` for any.
        ticket: Option<u32>,
    },
    Cancel(u32),
    /// Ends the wait of another thread for any call, or else its next one.
    Wake,
    Functions,
    Net(Vec<u8>),
}

impl CallChannel {
    /// Opens the call channel for a run: lays out its request and limits its reply to `reply_cap`
    /// bytes.
    pub(crate) fn open(&mut self, request: Vec<u8>, reply_cap: usize) {
        *self = Self { request: Arc::new(request), reply_cap, ..Self::default() };
    }

    pub(crate) fn open_to_prepare(&mut self, request: Vec<u8>, reply_cap: usize) {
        self.open(request, reply_cap);
        self.prepares = true;
    }

    /// Returns memory for an answer of `length` bytes, if there is some of just this length.
    fn take_room(&mut self, length: u32) -> Option<u32> {
        self.room.take_if(|room| room.len == length).map(|room| room.at)
    }

    /// Sets where the run's displays go and how many bytes of them are kept.
    pub(crate) fn show_in(&mut self, transcript: &Arc<Transcript>, display_bytes: usize) {
        self.transcript = Some(Arc::clone(transcript));
        self.display_cap = agent::display_cap(display_bytes);
    }

    /// Whether a frame with this first byte may have this length. Counts a display that is too long
    /// as dropped.
    fn admits(&self, first: u8, length: usize) -> bool {
        if let (Some((AgentFrame::Display, _)), Some(transcript)) =
            (AgentFrame::parse(&[first]), &self.transcript)
        {
            let is_admitted = length <= self.display_cap;
            if !is_admitted {
                transcript.drop_display(length);
            }
            return is_admitted;
        }
        length <= self.frame_cap(first)
    }

    pub(crate) fn close(&mut self) -> Passed {
        let Self { reply, generators, calls, .. } = std::mem::take(self);
        Passed { reply, generators, calls }
    }

    /// Returns the longest frame that begins with `kind`. A longer call is answered with an error.
    fn frame_cap(&self, kind: u8) -> usize {
        let body = match (AgentFrame::parse(&[kind]), &self.calls) {
            (Some((AgentFrame::Reply, _)), _) => self.reply_cap,
            (Some((AgentFrame::Call, _)), Some(calls)) => calls.argument_bytes(),
            (Some((AgentFrame::Net, _)), _) => MOST_NET_BYTES,
            _ => self.reply_cap.min(MOST_BYTES),
        };
        body.saturating_add(1)
    }

    /// Serves one frame; `None` if the frame is malformed or not allowed.
    fn serve(&mut self, frame: &[u8]) -> Option<FrameEffect> {
        Some(match AgentFrame::parse(frame)? {
            (AgentFrame::Fetch, _) => FrameEffect::Answer(Arc::clone(&self.request)),
            (AgentFrame::Reply, reply) => {
                self.reply = Some(reply.to_vec());
                FrameEffect::Answer(Arc::default())
            }
            (AgentFrame::Display, display) => {
                let display = agent::wire::parse_display(display).ok()?;
                self.transcript.as_ref()?.show(display);
                FrameEffect::Answer(Arc::default())
            }
            (AgentFrame::Hello, address) => {
                self.exception = Some(u32::from_le_bytes(address.try_into().ok()?));
                FrameEffect::Answer(Arc::default())
            }
            (AgentFrame::Enter, addresses) => {
                let (addresses, rest) = addresses.as_chunks::<4>();
                let [class, objects @ ..] =
                    <[[u8; 4]; 4]>::try_from(addresses).ok().filter(|_| rest.is_empty())?;
                let objects = objects.map(u32::from_le_bytes);
                self.entry = Some(Entered { class: u32::from_le_bytes(class), objects });
                FrameEffect::Answer(Arc::default())
            }
            (AgentFrame::Immortal, addresses) if self.prepares => {
                let (addresses, rest) = addresses.as_chunks::<4>();
                let addresses = addresses.iter().map(|address| u32::from_le_bytes(*address));
                rest.is_empty().then(|| FrameEffect::Immortal(addresses.collect()))?
            }
            (AgentFrame::Seeded, claim) if self.prepares => {
                let (address, rest) = claim.split_first_chunk::<4>()?;
                let (size, needle) = rest.split_first_chunk::<4>()?;
                let [address, size] = [*address, *size].map(u32::from_le_bytes);
                if self.generators.len() == MOST_GENERATORS || needle.is_empty() {
                    return None;
                }
                self.generators.push(GeneratorClaim { address, size, needle: needle.to_vec() });
                FrameEffect::Answer(Arc::default())
            }
            (AgentFrame::Seeded | AgentFrame::Immortal, _) => return None,
            (AgentFrame::ProgramBegins, _) => FrameEffect::ProgramBegins,
            (AgentFrame::ProgramOver, _) => FrameEffect::ProgramOver,
            (AgentFrame::Call, call) => FrameEffect::Asks(Ask::Call(call.to_vec())),
            (AgentFrame::Wait, body) => {
                let (time, ticket) = body.split_first_chunk::<8>()?;
                let ticket = u32::from_le_bytes(ticket.try_into().ok()?);
                let (time, ticket) = (duration(*time), (ticket != 0).then_some(ticket));
                FrameEffect::Asks(Ask::Wait { time, ticket })
            }
            (AgentFrame::Net, frame) => FrameEffect::Asks(Ask::Net(frame.to_vec())),
            (AgentFrame::Alarm, time) => FrameEffect::Alarm(duration(time.try_into().ok()?)),
            (AgentFrame::Duplicate, numbers) => {
                let (fd, to) = numbers.split_first_chunk::<4>()?;
                let to = i32::from_le_bytes(to.try_into().ok()?);
                FrameEffect::Duplicate(u32::from_le_bytes(*fd), u32::try_from(to).ok())
            }
            (AgentFrame::Cancel, ticket) => {
                FrameEffect::Asks(Ask::Cancel(u32::from_le_bytes(ticket.try_into().ok()?)))
            }
            (AgentFrame::Functions, _) => FrameEffect::Asks(Ask::Functions),
            (AgentFrame::Wake, _) => FrameEffect::Asks(Ask::Wake),
        })
    }
}

/// Reads nanoseconds; `None` if they are below 0.
fn duration(bytes: [u8; 8]) -> Option<Duration> {
    u64::try_from(i64::from_le_bytes(bytes)).ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_fetched_and_the_last_reply_counts() {
        let mut channel = CallChannel::default();
        let empty = Some(FrameEffect::Answer(Arc::default()));
        channel.open(b"request".to_vec(), 100);
        assert_eq!(
            channel.serve(b"\x01"),
            Some(FrameEffect::Answer(Arc::new(b"request".to_vec())))
        );
        assert_eq!(channel.serve(b"\x02forged"), empty);
        assert_eq!(channel.serve(b"\x02honest"), empty);
        assert_eq!(channel.serve(b"\x07"), None);
        assert_eq!(channel.close().reply.unwrap(), b"honest");
        assert_eq!(channel.serve(b"\x01"), empty);
        assert_eq!(channel.close().reply, None);
    }

    #[test]
    fn memory_for_the_request_is_used_once_and_in_one_run() {
        let mut channel = CallChannel::default();
        channel.open(b"request".to_vec(), 100);
        let room = Buffer { at: 64, len: 7 };
        assert_eq!((channel.request.len(), channel.take_room(7)), (7, None));
        channel.room = Some(room);
        assert_eq!([8, 7, 7].map(|length| channel.take_room(length)), [None, Some(64), None]);
        channel.room = Some(room);
        channel.open(b"another".to_vec(), 100);
        assert_eq!(channel.take_room(7), None);
    }

    #[test]
    fn displays_go_to_the_transcript_within_their_own_cap() {
        let mut channel = CallChannel::default();
        let frame =
            b"\x08\x37\0\0\0{\"bundle\": [[\"text/plain\", \"text\", 0]], \"buffers\": [1]}5";
        assert_eq!(channel.serve(frame), None);
        let transcript = Arc::<Transcript>::default();
        transcript.begin(&crate::limits::Limits::default());
        channel.open(Vec::new(), 100);
        channel.show_in(&transcript, 1000);
        assert!(channel.serve(frame).is_some());
        assert_eq!((channel.serve(&frame[..9]), channel.serve(b"\x08")), (None, None));
        assert_eq!(transcript.displays().len(), 1);
        assert!(channel.admits(2, 101) && !channel.admits(2, 102));
        assert!(channel.admits(8, 60_000) && !channel.admits(8, 70_000));
        assert_eq!(transcript.display_limits_met().count(), 1);
    }

    #[test]
    fn only_an_image_in_preparation_reports_its_objects() {
        let mut channel = CallChannel::default();
        channel.open(Vec::new(), 100);
        let claim = [&[6][..], &[1; 9]].concat();
        assert_eq!((channel.serve(b"\x07abcd"), channel.serve(&claim)), (None, None));
        channel.open_to_prepare(Vec::new(), 100);
        assert_eq!(channel.serve(b"\x07\x01\0\0\0"), Some(FrameEffect::Immortal(vec![1])));
        assert_eq!(channel.serve(b"\x07\x01"), None);
        assert!(channel.serve(&claim).is_some());
        assert_eq!(channel.close().generators.len(), 1);
    }

    #[test]
    fn an_address_has_four_bytes() {
        let mut channel = CallChannel::default();
        assert_eq!(channel.serve(b"\x03abc"), None);
        assert_eq!(channel.exception, None);
        assert!(channel.serve(b"\x03\x01\x02\0\0").is_some());
        assert_eq!(channel.exception, Some(0x201));
    }

    #[test]
    fn requests_of_the_wrong_length_are_refused() {
        let (waits, cancels, sets_alarms, duplicates) = (17, 18, 21, 22);
        let asked = |kind: u8, body: &[u8]| CallChannel::default().serve(&[&[kind], body].concat());
        let wait = |time: i64, ticket: u32| {
            asked(waits, &[&time.to_le_bytes()[..], &ticket.to_le_bytes()].concat())
        };
        let asks = |ask| Some(FrameEffect::Asks(ask));
        assert_eq!(wait(-1, 0), asks(Ask::Wait { time: None, ticket: None }));
        let time = Some(Duration::from_nanos(5));
        assert_eq!(wait(5, 7), asks(Ask::Wait { time, ticket: Some(7) }));
        assert_eq!(asked(cancels, b"\x02\0\0\0"), asks(Ask::Cancel(2)));
        let alarm = |time: i64| asked(sets_alarms, &time.to_le_bytes());
        assert_eq!(alarm(5), Some(FrameEffect::Alarm(time)));
        assert_eq!(alarm(-1), Some(FrameEffect::Alarm(None)));
        let duplicate = |to: i32| asked(duplicates, &[[5, 0, 0, 0], to.to_le_bytes()].concat());
        assert_eq!(duplicate(1), Some(FrameEffect::Duplicate(5, Some(1))));
        assert_eq!(duplicate(-1), Some(FrameEffect::Duplicate(5, None)));
        for (kind, body) in [
            (waits, &b""[..]),
            (waits, &[0; 11]),
            (waits, &[0; 13]),
            (cancels, b"abc"),
            (sets_alarms, &[0; 9]),
            (duplicates, &[0; 7]),
            (duplicates, b"abc"),
        ] {
            assert_eq!(asked(kind, body), None, "{kind} {body:?}");
        }
    }
}
