//! What the streams of a job share: its secrets, limits, log and connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::{NetworkActivity, RequestFailure, RequestLog, RequestUnderWay};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use url::Host;

use crate::config::Egress;
use crate::failure::{Failure, FailureReason};
use crate::limits::UsageMeter;
use crate::origin::{Origin, Scheme};
use crate::pipe::Pipe;
use crate::recording::{EgressRecording, EgressReplayer, Exchange, RecordedConnection};
use crate::secret::JobSecrets;
use crate::upstream::{OwnedTask, TlsInfo, Upstream};

/// Idle connections that a job keeps for streams to come.
const MOST_IDLE: usize = 32;

/// The longest URL of a log, in bytes; the rest of a longer one is left out.
const LONGEST_URL_BYTES: usize = 2048;

/// Hears of a request that has ended.
pub(crate) type OnEnd = Box<dyn Fn(&RequestLog) + Send + Sync>;

/// How a job uses the network.
#[derive(derive_more::Debug)]
#[non_exhaustive]
pub struct JobOptions {
    /// Bytes of all heads and bodies, both ways, as HTTP/1.1. Default: without a limit.
    pub network_bytes: u64,
    /// Records exchanges.
    pub records: bool,
    /// Serves the exchanges of a recording instead of the network.
    pub replays: Option<EgressRecording>,
    /// Is called with each request that has ended, on the runtime's threads. It must not block.
    #[debug(skip)]
    pub on_end: Option<OnEnd>,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self { network_bytes: u64::MAX, records: false, replays: None, on_end: None }
    }
}

/// What all streams of a job share.
pub(crate) struct JobShared {
    pub(crate) egress: Arc<Egress>,
    pub(crate) secrets: JobSecrets,
    pub(crate) bytes: UsageMeter,
    pub(crate) recorded_bytes: UsageMeter,
    pub(crate) concurrent: Arc<Semaphore>,
    pub(crate) replayer: Option<EgressReplayer>,
    requests: UsageMeter,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) runtime: Handle,
    pub(crate) log: Mutex<Vec<RequestLog>>,
    pub(crate) recording: Option<Mutex<EgressRecording>>,
    /// What hasn't ended, the oldest first, and when it began.
    under_way: Mutex<BTreeMap<u64, (RequestUnderWay, Instant)>>,
    on_end: Option<OnEnd>,
    /// Connections without a stream.
    pub(crate) idle: Mutex<Vec<(Host, u16, Upstream)>>,
}

/// A request or a connection that is under way until this is dropped.
pub(crate) struct UnderWay {
    job: Arc<JobShared>,
    number: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.job.under_way.lock().remove(&self.number);
    }
}

/// Cuts what is too long for a log.
fn shortened(url: &str) -> &str {
    &url[..url.floor_char_boundary(LONGEST_URL_BYTES)]
}

/// A stream of the program.
pub(crate) struct Stream {
    pub(crate) pipe: Arc<Pipe>,
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) state: Mutex<StreamState>,
    pub(crate) _permit: OwnedSemaphorePermit,
}

pub(crate) struct StreamState {
    pub(crate) scheme: Scheme,
    /// Connected, without TLS as yet.
    pub(crate) connected: Option<TcpStream>,
    /// Idle between two requests.
    pub(crate) upstream: Option<Upstream>,
    /// Serves the stream, once the program has written.
    pub(crate) server: Option<OwnedTask>,
}

impl Stream {
    pub(crate) fn origin(&self) -> Origin {
        Origin { scheme: self.state.lock().scheme, host: self.host.clone(), port: self.port }
    }

    /// Keeps a connection for the next request.
    pub(crate) fn keep(&self, upstream: Upstream) {
        self.state.lock().upstream = Some(upstream);
    }

    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl JobShared {
    pub(crate) fn new(egress: Arc<Egress>, options: JobOptions) -> Self {
        let JobOptions { network_bytes, records, replays, on_end } = options;
        let none = BTreeMap::new();
        let placeholders = replays.as_ref().map_or(&none, |recording| &recording.placeholders);
        let secrets = JobSecrets::new(&egress.secrets, placeholders);
        let recording = records.then(|| {
            let placeholders = secrets.environment();
            Mutex::new(EgressRecording { placeholders, ..EgressRecording::default() })
        });
        let limits = &egress.limits;
        let meter = UsageMeter::new;
        Self {
            secrets,
            requests: meter("requests in a job", "requests", limits.requests),
            bytes: meter("bytes on the network in a job", "network_bytes", network_bytes),
            recorded_bytes: meter("bytes in a recording", "recorded_bytes", limits.recorded_bytes),
            concurrent: Arc::new(Semaphore::new(limits.concurrent_requests)),
            streams: Arc::new(Semaphore::new(limits.streams)),
            replayer: replays.map(EgressReplayer::new),
            runtime: Handle::current(),
            log: Mutex::default(),
            recording,
            under_way: Mutex::default(),
            on_end,
            idle: Mutex::default(),
            egress,
        }
    }

    /// Counts a request, and adds it to the log. Returns its number.
    pub(crate) fn begin(&self, method: &str, url: &str) -> Result<usize, Failure> {
        self.requests.add(1)?;
        let mut log = self.log.lock();
        let number = log.len();
        let mut request = RequestLog::default();
        method.clone_into(&mut request.method);
        shortened(url).clone_into(&mut request.url);
        log.push(request);
        Ok(number)
    }

    /// Notes a request, or without a method a connection, as under way.
    pub(crate) fn note_under_way(self: &Arc<Self>, method: &str, url: &str) -> UnderWay {
        let mut request = RequestUnderWay::default();
        method.clone_into(&mut request.method);
        shortened(url).clone_into(&mut request.url);
        let mut all = self.under_way.lock();
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        all.insert(number, (request, Instant::now()));
        UnderWay { job: Arc::clone(self), number }
    }

    /// Returns what the job is doing.
    pub(crate) fn activity(&self) -> NetworkActivity {
        let mut activity = NetworkActivity::default();
        activity.under_way =
            self.under_way.lock().first_key_value().map(|(_, (request, begun))| {
                let mut request = request.clone();
                request.time = begun.elapsed();
                request
            });
        // What is under way has been counted already.
        activity.requests = self.log.lock().len();
        activity
    }

    /// Changes the log of a request. After the end of the job there is none.
    pub(crate) fn note(&self, number: usize, change: impl FnOnce(&mut RequestLog)) {
        if let Some(log) = self.log.lock().get_mut(number) {
            change(log);
        }
    }

    pub(crate) fn tell_ended(&self, number: usize) {
        if let Some(on_end) = &self.on_end {
            let log = self.log.lock().get(number).cloned();
            log.iter().for_each(on_end);
        }
    }

    /// Adds a connection that was refused or failed to the log.
    pub(crate) fn log_refused(&self, authority: &str, failure: Failure) -> Failure {
        match self.begin("", authority) {
            Ok(number) => {
                self.note(number, |log| log.failure = Some(RequestFailure::from(&failure)));
                self.tell_ended(number);
                failure
            }
            Err(limit) => limit,
        }
    }

    /// Whether requests are kept with their bodies.
    pub(crate) fn records(&self) -> bool {
        self.recording.is_some() || self.replayer.is_some()
    }

    pub(crate) fn record(&self, exchange: Exchange) {
        if let Some(recording) = &self.recording {
            recording.lock().exchanges.push(exchange);
        }
    }

    /// Connects, unless a kept connection is there or exchanges are replayed.
    pub(crate) async fn connect(
        &self,
        host: &Host,
        port: u16,
        time: Duration,
    ) -> Result<Option<TcpStream>, Failure> {
        let authority = format!("{host}:{port}");
        if let Some(replayer) = &self.replayer {
            return replayer.connection(&authority, false).map(|_| None);
        }
        let is_kept = self.idle.lock().iter().any(|(its, at, _)| its == host && *at == port);
        let connector = &self.egress.connector;
        let connected = match is_kept {
            true => Ok(None),
            false => connector.connect(&self.egress.rules, host, port, time).await.map(Some),
        };
        let result = connected.as_ref().map(drop);
        self.record(Exchange::Connection(RecordedConnection::opened(&authority, result)));
        connected
    }

    pub(crate) async fn secure(&self, stream: &Stream) -> Result<TlsInfo, Failure> {
        let authority = stream.authority();
        if let Some(replayer) = &self.replayer {
            let info = replayer.connection(&authority, true)?;
            return info.ok_or_else(|| {
                Failure::new(FailureReason::Replay, "the recording has no TLS here")
            });
        }
        let upstream = self.upstream(stream).await.map(|(upstream, _)| upstream);
        let info = upstream.and_then(|upstream| {
            let info = upstream.tls.clone();
            stream.keep(upstream);
            info.ok_or_else(|| Failure::new(FailureReason::Tls, "the connection has no TLS"))
        });
        self.record(Exchange::Connection(RecordedConnection::secured(&authority, info.as_ref())));
        info
    }

    /// Returns a connection for a request of a stream, and whether it is a new one.
    pub(crate) async fn upstream(&self, stream: &Stream) -> Result<(Upstream, bool), Failure> {
        let (scheme, connected) = {
            let mut state = stream.state.lock();
            if let Some(upstream) = state.upstream.take() {
                return Ok((upstream, false));
            }
            (state.scheme, state.connected.take())
        };
        let (host, port) = (&stream.host, stream.port);
        if connected.is_none() {
            let mut idle = self.idle.lock();
            let fits = |(its, at, upstream): &(Host, u16, Upstream)| {
                its == host && *at == port && upstream.tls.is_some() == (scheme == Scheme::Https)
            };
            if let Some(at) = idle.iter().position(fits) {
                return Ok((idle.swap_remove(at).2, false));
            }
        }
        let connector = &self.egress.connector;
        let connected = match connected {
            Some(connected) => connected,
            None => connector.connect(&self.egress.rules, host, port, Duration::MAX).await?,
        };
        let upstream = match scheme {
            Scheme::Http => connector.plain(connected).await?,
            Scheme::Https => connector.secure(connected, host).await?,
        };
        Ok((upstream, true))
    }

    /// Closes a stream. Its connection is kept if no request is on its way.
    pub(crate) fn close(&self, stream: &Stream) {
        let (server, upstream) = {
            let mut state = stream.state.lock();
            drop(state.connected.take());
            (state.server.take(), state.upstream.take())
        };
        stream.pipe.end();
        drop(server);
        if let Some(upstream) = upstream.filter(|upstream| !upstream.sender.is_closed()) {
            let mut idle = self.idle.lock();
            if idle.len() == MOST_IDLE {
                idle.remove(0);
            }
            idle.push((stream.host.clone(), stream.port, upstream));
        }
    }
}
