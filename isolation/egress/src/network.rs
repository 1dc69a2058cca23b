//! The network of one job: its streams, and the frames by which the program uses them.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use derive_more::Debug;
use engine::{NetworkActivity, RequestLog};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use parking_lot::Mutex;
use tokio::sync::TryAcquireError;

use crate::config::Egress;
use crate::exchange;
use crate::failure::{Failure, FailureReason};
use crate::job::{JobOptions, JobShared, Stream, StreamState};
use crate::origin::{Scheme, parse_host};
use crate::pipe::{HostEnd, PIPE_BYTES, READABLE, WRITABLE};
use crate::recording::EgressRecording;
use crate::upstream::{OwnedTask, buffer_bytes};

/// What a job did on the network.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct NetworkOutcome {
    /// The requests, in the order in which they began.
    pub requests: Vec<RequestLog>,
    /// The exchanges, if they were recorded.
    pub recording: Option<EgressRecording>,
}

/// The network of a job. Dropping it closes all connections at once.
#[derive(Debug)]
#[debug("JobNetwork({} streams)", streams.lock().len())]
pub struct JobNetwork {
    shared: Arc<JobShared>,
    streams: Arc<Mutex<HashMap<u32, Arc<Stream>>>>,
    next: AtomicU32,
}

/// What answers a frame.
#[derive(Debug)]
pub enum Served {
    /// The answer.
    Done(Vec<u8>),
    /// Gives the answer in time. Dropping it gives the operation up.
    #[debug("Pending")]
    Pending(Pin<Box<dyn Future<Output = Vec<u8>> + Send>>),
}

impl Egress {
    /// Returns the network of a job, which runs on the current runtime of tokio. It panics outside of
    /// one.
    pub fn job(self: &Arc<Self>, options: JobOptions) -> JobNetwork {
        let shared = Arc::new(JobShared::new(Arc::clone(self), options));
        JobNetwork { shared, streams: Arc::default(), next: AtomicU32::new(1) }
    }
}

impl JobNetwork {
    /// Returns the environment variables in which the program finds its secrets' placeholders.
    pub fn environment(&self) -> BTreeMap<String, String> {
        self.shared.secrets.environment()
    }

    /// Serves a frame of the program.
    pub fn serve(&self, frame: &[u8]) -> Served {
        self.operate(frame).unwrap_or_else(|failure| Served::Done(encode(Err(failure))))
    }

    /// Returns what the job is doing.
    pub fn activity(&self) -> NetworkActivity {
        self.shared.activity()
    }

    /// Closes all connections, and returns what the job did. The program can open none afterwards.
    pub fn finish(&self) -> NetworkOutcome {
        self.close();
        let recording = self.shared.recording.as_ref().map(|own| std::mem::take(&mut *own.lock()));
        NetworkOutcome { requests: std::mem::take(&mut *self.shared.log.lock()), recording }
    }

    fn close(&self) {
        self.shared.streams.close();
        let streams = std::mem::take(&mut *self.streams.lock());
        streams.into_values().for_each(|stream| self.shared.close(&stream));
        self.shared.idle.lock().clear();
    }

    fn operate(&self, frame: &[u8]) -> Result<Served, Failure> {
        let malformed = || Failure::new(FailureReason::Invalid, "the frame is malformed");
        let (operation, body) = frame.split_first().ok_or_else(malformed)?;
        let (number, rest) = body.split_first_chunk::<4>().ok_or_else(malformed)?;
        let number = u32::from_le_bytes(*number);
        let stream = || {
            let text = || Failure::new(FailureReason::BadStream, "there is no such stream");
            self.streams.lock().get(&number).cloned().ok_or_else(text)
        };
        let text = |bytes| str::from_utf8(bytes).map_err(|_| malformed());
        let done = |payload: &[u8]| Ok(Served::Done(encode(Ok(payload))));
        match operation {
            1 => {
                let (port, host) = rest.split_first_chunk::<2>().ok_or_else(malformed)?;
                self.open(text(host)?, u16::from_le_bytes(*port), number)
            }
            2 => self.start_tls(stream()?, text(rest)?),
            3 => {
                let stream = stream()?;
                let count = stream.pipe.write(rest)?;
                self.start(&stream);
                done(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes())
            }
            4 => {
                let most = u32::from_le_bytes(rest.try_into().map_err(|_| malformed())?);
                let most = PIPE_BYTES.min(usize::try_from(most).unwrap_or(PIPE_BYTES));
                done(&stream()?.pipe.read(most)?)
            }
            5 => match (stream()?, rest) {
                (stream, [interest]) if interest & (READABLE | WRITABLE) != 0 => {
                    match stream.pipe.readiness(*interest) {
                        0 => {
                            let (pipe, interest) = (Arc::clone(&stream.pipe), *interest);
                            Ok(Served::pending(async move { Ok(vec![pipe.ready(interest).await]) }))
                        }
                        found => done(&[found]),
                    }
                }
                _ => Err(malformed()),
            },
            6 => {
                let stream = stream()?;
                stream.pipe.end_writing();
                self.start(&stream);
                done(b"")
            }
            7 => {
                let closed = self.streams.lock().remove(&number);
                if let Some(stream) = closed {
                    self.shared.close(&stream);
                }
                done(b"")
            }
            _ => Err(malformed()),
        }
    }

    /// Serves what the program writes, from its first byte on.
    fn start(&self, stream: &Arc<Stream>) {
        let mut state = stream.state.lock();
        if state.server.is_none() {
            let task =
                self.shared.runtime.spawn(serve(Arc::clone(&self.shared), Arc::clone(stream)));
            state.server = Some(OwnedTask(task.abort_handle()));
        }
    }

    fn open(&self, host: &str, port: u16, milliseconds: u32) -> Result<Served, Failure> {
        let shared = Arc::clone(&self.shared);
        let shown = format!("{}:{port}", host.chars().take(255).collect::<String>());
        let log = |failure| shared.log_refused(&shown, failure);
        let host = parse_host(host).ok_or_else(|| {
            let text = format!("`{shown}` isn't a valid host and port");
            log(Failure::new(FailureReason::Invalid, text))
        })?;
        shared.egress.rules.check_host(&host, port).map_err(log)?;
        let permit = Arc::clone(&shared.streams).try_acquire_owned().map_err(|refused| {
            let text = match refused {
                TryAcquireError::Closed => "the job has ended".to_owned(),
                TryAcquireError::NoPermits => {
                    let most = shared.egress.limits.streams;
                    format!("{most} streams are open: close some, or raise `streams`")
                }
            };
            log(Failure::new(FailureReason::Limit, text))
        })?;
        let time = match milliseconds {
            0 => Duration::MAX,
            milliseconds => Duration::from_millis(milliseconds.into()),
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let streams = Arc::clone(&self.streams);
        Ok(Served::pending(async move {
            let _under_way = shared.note_under_way("", &shown);
            let connected = shared.connect(&host, port, time).await;
            let connected = connected.map_err(|failure| shared.log_refused(&shown, failure))?;
            let scheme = Scheme::Http;
            let state = StreamState { scheme, connected, upstream: None, server: None };
            let (pipe, state) = (Arc::default(), Mutex::new(state));
            let stream = Stream { pipe, host, port, state, _permit: permit };
            if shared.streams.is_closed() {
                return Err(Failure::new(FailureReason::Closed, "the job has ended"));
            }
            streams.lock().insert(number, Arc::new(stream));
            Ok(number.to_le_bytes().to_vec())
        }))
    }

    fn start_tls(&self, stream: Arc<Stream>, name: &str) -> Result<Served, Failure> {
        let shared = Arc::clone(&self.shared);
        if parse_host(name).as_ref() != Some(&stream.host) {
            let host = &stream.host;
            let text = format!("the stream is to {host}, so its TLS can't be for `{name}`");
            let failure = Failure::new(FailureReason::Rule, text);
            return Err(shared.log_refused(&stream.authority(), failure));
        }
        {
            let mut state = stream.state.lock();
            if state.server.is_some() || state.scheme == Scheme::Https {
                let text = "TLS can only start once, before the first byte";
                return Err(Failure::new(FailureReason::Invalid, text));
            }
            // From here on nothing is sent in the clear, also if this is given up.
            state.scheme = Scheme::Https;
        }
        Ok(Served::pending(async move {
            let _under_way = shared.note_under_way("", &stream.authority());
            let info = shared.secure(&stream).await;
            let info = info.map_err(|failure| {
                stream.pipe.fail(&failure);
                shared.log_refused(&stream.authority(), failure)
            })?;
            let mut payload = Vec::new();
            for text in [&info.version, &info.cipher] {
                let text = &text.as_bytes()[..text.len().min(255)];
                payload.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
                payload.extend(text);
            }
            payload.extend(&info.certificate);
            Ok(payload)
        }))
    }
}

impl Drop for JobNetwork {
    fn drop(&mut self) {
        self.close();
    }
}

/// Serves the requests that a program writes to a stream.
async fn serve(job: Arc<JobShared>, stream: Arc<Stream>) {
    let service =
        service_fn(|request| exchange::serve(Arc::clone(&job), Arc::clone(&stream), request));
    let served = http1::Builder::new()
        .half_close(true)
        .auto_date_header(false)
        .preserve_header_case(true)
        .header_read_timeout(None)
        .max_header_size(job.egress.limits.head_bytes)
        .max_buf_size(buffer_bytes(job.egress.limits.head_bytes))
        .serve_connection(HostEnd(Arc::clone(&stream.pipe)), service)
        .await;
    if let Err(error) = served
        && error.is_parse()
    {
        let text = format!("what the program wrote isn't HTTP/1.1: {error}");
        let failure = Failure::new(FailureReason::Protocol, text);
        stream.pipe.fail(&job.log_refused(&stream.authority(), failure));
    }
    stream.pipe.end();
}

/// Writes an answer for the program.
fn encode(answer: Result<&[u8], Failure>) -> Vec<u8> {
    match answer {
        Ok(payload) => [&[0], payload].concat(),
        Err(failure) => [&[1, failure.reason.code()], failure.text.as_bytes()].concat(),
    }
}

impl Served {
    fn pending(work: impl Future<Output = Result<Vec<u8>, Failure>> + Send + 'static) -> Self {
        Self::Pending(Box::pin(async move {
            match work.await {
                Ok(payload) => encode(Ok(&payload)),
                Err(failure) => encode(Err(failure)),
            }
        }))
    }
}
