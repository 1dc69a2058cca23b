//! One request: its checks, its way to the server, and the way of its response back.

use std::error::Error as _;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use engine::{RequestFailure, RequestLog};
use futures_util::stream;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri, Version, request, response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::ext::ReasonPhrase;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use crate::failure::{Failure, FailureReason};
use crate::job::{JobShared, Stream, UnderWay};
use crate::limits::UsageMeter;
use crate::needles::{Needles, Replacing};
use crate::origin::Origin;
use crate::recording::{Exchange, RecordedRequest, RecordedResponse};
use crate::secret::hide_in_headers;
use crate::upstream::{RelayedBody, Upstream};

/// Headers that are for one connection, so that neither side gets the other's.
static OF_THE_CONNECTION: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
];

/// Headers by which some servers take another method.
const OF_ANOTHER_METHOD: [&str; 3] =
    ["x-http-method-override", "x-http-method", "x-method-override"];

/// Headers by which some servers take another path or host.
const OF_ANOTHER_TARGET: [&str; 5] =
    ["x-original-url", "x-rewrite-url", "x-forwarded-host", "x-host", "forwarded"];

/// A body with secrets is sent with its length if it is at most this long, and else in chunks.
const BODY_WITH_LENGTH_BYTES: u64 = 1 << 20;

/// A request that has begun. It ends when its response does, or when it is dropped.
pub(crate) struct OpenRequest {
    job: Arc<JobShared>,
    stream: Arc<Stream>,
    number: usize,
    begun: Instant,
    /// `None` once it has ended.
    under_way: Mutex<Option<UnderWay>>,
    /// When the server or the program last made progress.
    progress: Mutex<Instant>,
    failure: OnceLock<Failure>,
    /// Whether the whole body was sent.
    is_sent: AtomicBool,
    sizes: [UsageMeter; 2],
    /// What a recording gets of it.
    recorded: Mutex<Option<RecordedRequest>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// Serves a request of the program.
pub(crate) async fn serve(
    job: Arc<JobShared>,
    stream: Arc<Stream>,
    request: Request<Incoming>,
) -> Result<Response<RelayedBody>, Failure> {
    let (head, body) = request.into_parts();
    let origin = stream.origin();
    let url = match (head.uri.scheme(), head.uri.path_and_query()) {
        (None, Some(target)) => format!("{origin}{target}"),
        _ => head.uri.to_string(),
    };
    let begun = job.begin(head.method.as_str(), &url);
    let number = begun.inspect_err(|failure| stream.pipe.fail(failure))?;
    let limits = &job.egress.limits;
    let recorded = job.records().then(|| RecordedRequest {
        method: head.method.to_string(),
        url: url.clone(),
        ..RecordedRequest::default()
    });
    let sizes = [
        UsageMeter::new("bytes in a request", "request_bytes", limits.request_bytes),
        UsageMeter::new("bytes in a response", "response_bytes", limits.response_bytes),
    ];
    let now = Instant::now();
    let request = Arc::new(OpenRequest {
        number,
        begun: now,
        under_way: Mutex::new(Some(job.note_under_way(head.method.as_str(), &url))),
        progress: Mutex::new(now),
        failure: OnceLock::new(),
        is_sent: AtomicBool::new(body.is_end_stream()),
        sizes,
        recorded: Mutex::new(recorded),
        job,
        stream,
    });
    let performed = request.perform(origin, head, body, &url).await;
    performed.map_err(|failure| request.fail(failure))
}

impl OpenRequest {
    async fn perform(
        self: &Arc<Self>,
        origin: Origin,
        mut head: request::Parts,
        body: Incoming,
        url: &str,
    ) -> Result<Response<RelayedBody>, Failure> {
        let path = check_head(&self.job, &origin, &head)?;
        self.passed(Direction::Up, 0, head_bytes(&head.headers) + url.len())?;
        let mut query = path.1;
        let secrets = &self.job.secrets;
        let needles = secrets.in_request(&origin, &head);
        secrets.replace_in_head(&origin, &mut head, &path.0, &mut query)?;
        let hidden = secrets.in_response(&origin);
        let method = head.method.clone();
        forward_head(&mut head, &origin, &path.0, query.as_deref(), !hidden.is_empty())?;
        let body = self.upload(&origin, &mut head, body, needles).await?;
        let concurrent = Arc::clone(&self.job.concurrent).acquire_owned();
        let permit = self.within_time(concurrent).await?.map_err(|_| closed())?;
        if let Some(replayer) = &self.job.replayer {
            body.collect().await?;
            let body = self.recorded.lock().as_mut().map(|own| std::mem::take(&mut own.body));
            return self.replayed(replayer.request(&method, url, &body.unwrap_or_default())?);
        }
        let request = Request::from_parts(head, body);
        let (mut response, upstream) = self.send(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(protocol("the server switched to another protocol unasked"));
        }
        if !is_plainly_chunked(response.headers()) {
            return Err(protocol("the server used a transfer encoding that nobody asked for"));
        }
        self.job.note(self.number, |log| log.status = Some(response.status().as_u16()));
        self.passed(Direction::Down, 0, head_bytes(response.headers()))?;
        let is_empty = response.body().is_end_stream();
        let is_last = ends_connection(&response);
        remove_of_the_connection(response.headers_mut());
        if is_last {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        *response.version_mut() = Version::HTTP_11;
        let (mut head, body) = response.into_parts();
        if !hidden.is_empty() {
            hide_secrets(&hidden, &mut head, is_empty)?;
        }
        if let Some(recorded) = &mut *self.recorded.lock() {
            recorded.response = Some(RecordedResponse::new(head.status.as_u16(), &head.headers));
        }
        let mut relay = self.relay(Direction::Down, origin, body, hidden);
        relay.upstream = Some((upstream, permit));
        if is_empty {
            relay.end();
            return Ok(Response::from_parts(head, whole(Bytes::new())));
        }
        Ok(Response::from_parts(head, relay.into_body()))
    }

    fn relay(
        self: &Arc<Self>,
        direction: Direction,
        origin: Origin,
        body: Incoming,
        needles: Needles,
    ) -> Relay {
        Relay {
            incoming: Some(body),
            trailers: None,
            needles,
            replacing: Replacing::default(),
            request: Arc::clone(self),
            origin,
            direction,
            upstream: None,
        }
    }

    /// Returns the body for the server.
    async fn upload(
        self: &Arc<Self>,
        origin: &Origin,
        head: &mut request::Parts,
        body: Incoming,
        (needles, is_rewritten): (Needles, bool),
    ) -> Result<RelayedBody, Failure> {
        if body.is_end_stream() {
            return Ok(whole(Bytes::new()));
        }
        let length = body.size_hint().exact();
        let body = self.relay(Direction::Up, origin.clone(), body, needles).into_body();
        match length {
            Some(length) if is_rewritten && length <= BODY_WITH_LENGTH_BYTES => {
                let bytes = self.within_time(body.collect()).await??.to_bytes();
                head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
                return Ok(whole(bytes));
            }
            Some(_) if !is_rewritten => {}
            _ => {
                head.headers.remove(header::CONTENT_LENGTH);
                let chunked = HeaderValue::from_static("chunked");
                head.headers.insert(header::TRANSFER_ENCODING, chunked);
            }
        }
        Ok(body)
    }

    /// Sends the request. A kept connection may have been closed before it got the request, which
    /// then goes over another one.
    async fn send(
        &self,
        mut request: Request<RelayedBody>,
    ) -> Result<(Response<Incoming>, Upstream), Failure> {
        loop {
            let connecting = self.job.upstream(&self.stream);
            let (mut upstream, is_fresh) = self.within_time(connecting).await??;
            match self.within_time(upstream.sender.ready()).await? {
                Ok(()) => {}
                Err(error) if is_fresh => return Err(self.lost(&error)),
                Err(_) => continue,
            }
            self.touch();
            match self.within_idle(upstream.sender.try_send_request(request)).await? {
                Ok(response) => return Ok((response, upstream)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !is_fresh => request = unsent,
                    _ => return Err(self.lost(&error.into_error())),
                },
            }
        }
    }

    fn replayed(&self, recorded: RecordedRequest) -> Result<Response<RelayedBody>, Failure> {
        let Some(answer) = recorded.response else {
            return Err(recorded.failure.unwrap_or_else(closed));
        };
        self.job.note(self.number, |log| log.status = Some(answer.status));
        let mut response = Response::builder().status(answer.status);
        for (name, value) in answer.header_bytes() {
            response = response.header(name, value);
        }
        self.passed(Direction::Down, answer.body.len(), 0)?;
        let mut frames = vec![Ok(Frame::data(Bytes::from(answer.body)))];
        match recorded.failure {
            Some(failure) => frames.push(Err(self.fail(failure))),
            None => self.end(),
        }
        let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
        response.body(body).map_err(|error| protocol(&error))
    }

    /// Counts bytes of a body, and of a head.
    fn passed(&self, direction: Direction, body: usize, head: usize) -> Result<(), Failure> {
        self.touch();
        let bytes = (body + head) as u64;
        self.job.note(self.number, |log| match direction {
            Direction::Up => log.bytes_up += bytes,
            Direction::Down => log.bytes_down += bytes,
        });
        self.sizes[direction as usize].add(body as u64)?;
        self.job.bytes.add(bytes)
    }

    /// Keeps bytes of a body for the recording.
    fn record(&self, direction: Direction, bytes: &[u8]) -> Result<(), Failure> {
        if let Some(recorded) = &mut *self.recorded.lock() {
            match (direction, &mut recorded.response) {
                (Direction::Down, Some(response)) => response.body.extend_from_slice(bytes),
                _ => recorded.body.extend_from_slice(bytes),
            }
            self.job.recorded_bytes.add(bytes.len() as u64)?;
        }
        Ok(())
    }

    fn touch(&self) {
        *self.progress.lock() = Instant::now();
    }

    async fn within_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Failure> {
        let time = self.job.egress.limits.request_time;
        let left = time.saturating_sub(self.begun.elapsed());
        timeout(left, work).await.map_err(|_| timed_out("the request", time))
    }

    /// Waits for the server while there is progress.
    async fn within_idle<T>(&self, work: impl Future<Output = T>) -> Result<T, Failure> {
        let idle = self.job.egress.limits.idle_time;
        let left = || idle.saturating_sub(self.progress.lock().elapsed());
        let waited = async {
            tokio::pin!(work);
            loop {
                match timeout(left(), &mut work).await {
                    Ok(done) => return Ok(done),
                    Err(_) if left().is_zero() => {
                        return Err(timed_out("waiting for the server", idle));
                    }
                    Err(_) => {}
                }
            }
        };
        self.within_time(waited).await?
    }

    /// Returns why the connection ended: for a reason of this side, or else this error.
    fn lost(&self, error: &hyper::Error) -> Failure {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        let is_end = cause.is_some_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof);
        let reason = match is_end || error.is_incomplete_message() {
            true => FailureReason::Cut,
            false => FailureReason::Reset,
        };
        let text = format!("the connection to {} was lost: {error}", self.stream.origin());
        self.failure.get().cloned().unwrap_or_else(|| Failure::new(reason, text))
    }

    /// Ends the request and its stream with a failure, the first one of several.
    fn fail(&self, failure: Failure) -> Failure {
        let failure = self.failure.get_or_init(|| failure).clone();
        // A program sees the end of a connection as of any other.
        if failure.reason != FailureReason::Cut {
            self.stream.pipe.fail(&failure);
        }
        self.close(|log| log.failure = Some(RequestFailure::from(&failure)));
        failure
    }

    fn end(&self) {
        self.close(|log| log.is_whole = true);
    }

    /// Writes the log, once.
    fn close(&self, result: impl FnOnce(&mut RequestLog)) {
        if self.under_way.lock().take().is_none() {
            return;
        }
        self.job.note(self.number, |log| {
            log.time = self.begun.elapsed();
            result(log);
        });
        let recorded = self.recorded.lock().take();
        if let Some(mut recorded) = recorded {
            // What the rules refuse, they refuse in a replay, too.
            recorded.failure = self.failure.get().cloned();
            let is_refusal = recorded.failure.as_ref().is_some_and(|failure| {
                matches!(
                    failure.reason,
                    FailureReason::Rule | FailureReason::Secret | FailureReason::Limit
                )
            });
            if !is_refusal || recorded.response.is_some() {
                self.job.record(Exchange::Request(recorded));
            }
        }
        self.job.tell_ended(self.number);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.close(|_| {});
    }
}

/// A body on its way through. Dropping it before its end closes the connection to the server.
struct Relay {
    /// `None` once it has ended.
    incoming: Option<Incoming>,
    trailers: Option<HeaderMap>,
    needles: Needles,
    replacing: Replacing,
    request: Arc<OpenRequest>,
    origin: Origin,
    direction: Direction,
    /// The connection that a response came from.
    upstream: Option<(Upstream, OwnedSemaphorePermit)>,
}

impl Relay {
    fn into_body(self) -> RelayedBody {
        let frames = stream::unfold(Some(self), |relay| async move {
            let mut relay = relay?;
            match relay.frame().await? {
                Ok(frame) => Some((Ok(frame), Some(relay))),
                Err(failure) => Some((Err(relay.request.fail(failure)), None)),
            }
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// Returns the next frame, none at the end.
    async fn frame(&mut self) -> Option<Result<Frame<Bytes>, Failure>> {
        loop {
            if self.incoming.is_none() {
                return self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)));
            }
            match self.pass().await {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Some(Ok(Frame::data(bytes))),
                Err(failure) => {
                    self.incoming = None;
                    return Some(Err(failure));
                }
            }
        }
    }

    /// Takes the next frame in, and returns the bytes that can go out.
    async fn pass(&mut self) -> Result<Bytes, Failure> {
        let Some(incoming) = &mut self.incoming else { return Ok(Bytes::new()) };
        let request = &self.request;
        let next = match self.direction {
            Direction::Up => incoming.frame().await,
            Direction::Down => {
                request.touch();
                request.within_idle(incoming.frame()).await?
            }
        };
        let bytes = match next.transpose() {
            Ok(None) => None,
            Ok(Some(frame)) => match frame.into_data() {
                Ok(bytes) => Some(bytes),
                Err(frame) => {
                    self.trailers = frame.into_trailers().ok();
                    None
                }
            },
            Err(error) => return Err(request.lost(&error)),
        };
        // The end of a body with a length comes with its last bytes.
        let is_end = bytes.is_none() || incoming.is_end_stream();
        let bytes = bytes.unwrap_or_default();
        request.passed(self.direction, bytes.len(), 0)?;
        if self.direction == Direction::Up {
            request.record(self.direction, &bytes)?;
        }
        let secrets = &request.job.secrets;
        let bytes = self
            .replacing
            .push(&self.needles, bytes, is_end)
            .map_err(|number| secrets.misplaced_in_body(&self.origin, number))?;
        if self.direction == Direction::Down {
            request.record(self.direction, &bytes)?;
        }
        match (&mut self.trailers, self.direction) {
            (None, _) => {}
            (Some(trailers), Direction::Up) => {
                secrets.replace_in_headers(&self.origin, trailers)?
            }
            (Some(trailers), Direction::Down) => hide_in_headers(&self.needles, trailers),
        }
        if is_end {
            self.end();
        }
        Ok(bytes)
    }

    /// Keeps the connection for the next request.
    fn end(&mut self) {
        self.incoming = None;
        match self.direction {
            Direction::Up => self.request.is_sent.store(true, Ordering::Relaxed),
            Direction::Down => {
                let kept = self.upstream.take().map(|(upstream, _)| upstream);
                if let Some(upstream) =
                    kept.filter(|_| self.request.is_sent.load(Ordering::Relaxed))
                {
                    self.request.stream.keep(upstream);
                }
                self.request.end();
            }
        }
    }
}

/// Checks the head of a request, and returns the path and the query to send.
fn check_head(
    job: &JobShared,
    origin: &Origin,
    head: &request::Parts,
) -> Result<(String, Option<String>), Failure> {
    let refused = |why: &str| {
        let text = format!("a request to {origin} is refused: {why}");
        Err(Failure::new(FailureReason::Rule, text))
    };
    let is_for_this = |authority: Option<&str>| {
        authority.and_then(|it| Origin::parse(origin.scheme, it)).is_some_and(|it| it == *origin)
    };
    if head.method == Method::CONNECT {
        return refused("CONNECT is never allowed");
    }
    if head.headers.contains_key(header::UPGRADE) {
        return refused("connections can't be upgraded to other protocols, such as websockets");
    }
    if let Some(scheme) = head.uri.scheme_str()
        && (scheme != origin.scheme.name()
            || !is_for_this(head.uri.authority().map(|it| it.as_str())))
    {
        return refused("its target names another server than its connection is to");
    }
    let mut hosts = head.headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if head.version == Version::HTTP_10 => {}
        (Some(host), None) if is_for_this(host.to_str().ok()) => {}
        (None, _) => return refused("it has no header `Host`"),
        (Some(_), _) => {
            return refused("its header `Host` names another server than its connection is to");
        }
    }
    if !is_plainly_chunked(&head.headers) {
        return refused("of transfer encodings only `chunked` is allowed");
    }
    let path = head.uri.path();
    if !path.starts_with('/') {
        return refused("its target has no path");
    }
    job.egress.rules.check(&head.method, origin, path)?;
    for name in OF_ANOTHER_METHOD {
        for value in head.headers.get_all(name) {
            match Method::from_bytes(value.as_bytes().to_ascii_uppercase().as_slice()) {
                Ok(method) => job.egress.rules.check(&method, origin, path)?,
                Err(_) => return refused(&format!("its header `{name}` isn't a method")),
            }
        }
    }
    if let Some(name) = OF_ANOTHER_TARGET.iter().find(|name| head.headers.contains_key(**name)) {
        return refused(&format!("servers may take its header `{name}` for another target"));
    }
    // What was checked is what is sent.
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let url = url::Url::parse(&format!("{origin}{target}")).map_err(|error| protocol(&error))?;
    Ok((url.path().to_owned(), url.query().map(str::to_owned)))
}

/// Makes the head that the server gets.
fn forward_head(
    head: &mut request::Parts,
    origin: &Origin,
    path: &str,
    query: Option<&str>,
    has_secrets: bool,
) -> Result<(), Failure> {
    let target = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    head.uri = Uri::try_from(target).map_err(|error| protocol(&error))?;
    head.version = Version::HTTP_11;
    let accepts_trailers = head.headers.get(header::TE).is_some_and(|it| it == "trailers");
    remove_of_the_connection(&mut head.headers);
    if accepts_trailers {
        head.headers.insert(header::TE, HeaderValue::from_static("trailers"));
        head.headers.insert(header::CONNECTION, HeaderValue::from_static("TE"));
    }
    let host = HeaderValue::try_from(origin.authority()).map_err(|error| protocol(&error))?;
    head.headers.insert(header::HOST, host);
    if has_secrets {
        // So that echoes of the secret are found: neither compressed nor in pieces.
        head.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        head.headers.remove(header::RANGE);
        head.headers.remove(header::IF_RANGE);
    }
    Ok(())
}

/// Whether the server ends the connection after this response, so that the stream ends, too.
fn ends_connection(response: &Response<Incoming>) -> bool {
    let headers = response.headers();
    let is_close = |value: &HeaderValue| {
        let names = value.as_bytes().split(|byte| *byte == b',');
        names.into_iter().any(|name| name.trim_ascii().eq_ignore_ascii_case(b"close"))
    };
    let has_end = response.body().is_end_stream()
        || headers.contains_key(header::CONTENT_LENGTH)
        || headers.contains_key(header::TRANSFER_ENCODING);
    !has_end
        || response.version() == Version::HTTP_10
        || headers.get_all(header::CONNECTION).iter().any(is_close)
}

/// Whether no other transfer encoding is used, such as one that compresses.
fn is_plainly_chunked(headers: &HeaderMap) -> bool {
    let is_chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    headers.get_all(header::TRANSFER_ENCODING).iter().all(is_chunked)
}

fn remove_of_the_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| *name != header::HOST && *name != header::CONTENT_LENGTH)
        .collect();
    named.iter().chain(&OF_THE_CONNECTION).for_each(|name| drop(headers.remove(name)));
}

/// Hides secrets in the head of a response, and refuses one in which they can't be found.
fn hide_secrets(
    hidden: &Needles,
    head: &mut response::Parts,
    is_empty: bool,
) -> Result<(), Failure> {
    head.extensions.remove::<ReasonPhrase>();
    hide_in_headers(hidden, &mut head.headers);
    let is_plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if !is_empty && !head.headers.get_all(header::CONTENT_ENCODING).iter().all(is_plain) {
        let text = "the server compressed the response unasked, so secrets in it can't be hidden";
        return Err(protocol(text));
    }
    if !is_empty {
        head.headers.remove(header::CONTENT_LENGTH);
    }
    Ok(())
}

/// A body of these bytes.
fn whole(bytes: Bytes) -> RelayedBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn head_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

fn closed() -> Failure {
    Failure::new(FailureReason::Closed, "the job has ended")
}

fn protocol(problem: &(impl std::fmt::Display + ?Sized)) -> Failure {
    Failure::new(FailureReason::Protocol, format!("this isn't HTTP/1.1 as expected: {problem}"))
}

fn timed_out(what: &str, time: Duration) -> Failure {
    Failure::new(FailureReason::TimedOut, format!("{what} took longer than {time:?}"))
}
