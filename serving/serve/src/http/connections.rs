//! Limits the clients of a server: the number of connections, and how long each may be idle.
//!
//! Otherwise idle connections could take every descriptor of the process. A new connection replaces
//! an idle one, whose client can connect again.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Future, Pending, pending};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, mem};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::serve::Listener;
use bytes::Bytes;
use futures_util::future::join_all;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Timeout, timeout};

/// The most bytes of a request's headers.
const MOST_HEADER_BYTES: usize = 64 << 10;

/// The limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The most connections.
    pub(super) most: usize,
    /// The time until the first request.
    pub(super) header_time: Duration,
    /// The time that a client may stand still.
    pub(super) idle_time: Duration,
}

/// Serves until `shutdown` is ready, and then until the present requests are answered.
pub(super) async fn serve(
    listeners: Vec<TcpListener>,
    router: Router,
    bounds: Bounds,
    shutdown: impl Future<Output = ()>,
) {
    let most = bounds.most.clamp(1, 1 << 20);
    let room = Arc::new(Semaphore::new(most));
    let idle_list = Arc::new(IdleList::default());
    let (closing, closes) = watch::channel(false);
    let accepting = listeners
        .into_iter()
        .map(|listener| accept(listener, &room, &idle_list, &router, bounds, &closes));
    // The listeners are closed with it.
    tokio::select! {
        _ = join_all(accepting) => {}
        () = shutdown => {}
    }
    closing.send_replace(true);
    // All of them are free once every connection has ended.
    let all = u32::try_from(most).expect("it is at most 2^20");
    let _ = room.acquire_many(all).await;
}

/// Accepts connections, and serves each.
async fn accept(
    mut listener: TcpListener,
    room: &Arc<Semaphore>,
    idle_list: &Arc<IdleList>,
    router: &Router,
    bounds: Bounds,
    closes: &watch::Receiver<bool>,
) -> Infallible {
    loop {
        // Listens on after errors.
        let (stream, _) = Listener::accept(&mut listener).await;
        let permit = permit(room, idle_list).await;
        let slot = IdleSlot::new(Arc::clone(idle_list));
        let router = router.clone();
        let closes = closes.clone();
        tokio::spawn(async move {
            connection(stream, router, slot, bounds, closes).await;
            drop(permit);
        });
    }
}

/// Waits for room; connections that are idle give way.
async fn permit(room: &Arc<Semaphore>, idle_list: &IdleList) -> OwnedSemaphorePermit {
    if let Ok(permit) = Arc::clone(room).try_acquire_owned() {
        return permit;
    }
    let mut permit = pin!(Arc::clone(room).acquire_owned());
    let mut is_closed = idle_list.close_oldest();
    loop {
        tokio::select! {
            permit = &mut permit => return permit.expect("nobody closes it"),
            () = idle_list.turned_idle.notified(), if !is_closed => is_closed = idle_list.close_oldest(),
        }
    }
}

async fn connection(
    stream: TcpStream,
    router: Router,
    slot: Arc<IdleSlot>,
    bounds: Bounds,
    mut closes: watch::Receiver<bool>,
) {
    // Answers are written whole, so there is nothing to wait for.
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(Stalling::new(stream, bounds.idle_time));
    let track = middleware::from_fn_with_state((slot.clone(), closes.clone()), track);
    let service = TowerToHyperService::new(Router::new().fallback_service(router).layer(track));
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        // It also is the time that it waits for a further request.
        .header_read_timeout(bounds.idle_time)
        .max_buf_size(MOST_HEADER_BYTES);
    let mut connection = pin!(builder.serve_connection(stream, service));
    let mut first = pin!(timeout(bounds.header_time, slot.first.notified()));
    let (mut is_first, mut is_closing) = (true, false);
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = slot.close.notified() => return,
            first = &mut first, if is_first => match first {
                Ok(()) => is_first = false,
                Err(_) => return,
            },
            _ = closes.wait_for(|closes| *closes), if !is_closing => {
                if !slot.has_request.load(Ordering::Relaxed) {
                    return;
                }
                connection.as_mut().graceful_shutdown();
                is_closing = true;
            }
        }
    }
}

/// Keeps the connection active from the request to the end of its answer.
async fn track(
    State((slot, closes)): State<(Arc<IdleSlot>, watch::Receiver<bool>)>,
    request: Request,
    next: Next,
) -> Response {
    let active = slot.begin();
    let mut request = Unread::wrap(request, closes);
    request.extensions_mut().insert(slot);
    next.run(request).await.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _ = &active;
            frame
        }))
    })
}

/// The connections that wait for their clients.
#[derive(Debug, Default)]
pub(super) struct IdleList {
    idle: Mutex<Idle>,
    /// Notified whenever a connection becomes idle.
    turned_idle: Notify,
}

#[derive(Debug, Default)]
struct Idle {
    /// By the order in which they became idle.
    slots: BTreeMap<u64, Arc<Notify>>,
    next: u64,
}

/// A connection, which may be among the idle ones.
#[derive(Debug)]
pub(super) struct IdleSlot {
    idle_list: Arc<IdleList>,
    /// Its number among the idle ones.
    number: Mutex<Option<u64>>,
    /// Notified when it must give way.
    close: Arc<Notify>,
    /// Notified of its first request.
    first: Notify,
    /// Whether the server works on a request, so that only part of a body keeps it waiting.
    has_request: AtomicBool,
}

/// A request that the server works on.
#[derive(Debug)]
struct ActiveRequest(Arc<IdleSlot>);

impl IdleList {
    /// Closes the connection that has been idle longest; returns whether there is one.
    fn close_oldest(&self) -> bool {
        let oldest = self.idle.lock().slots.pop_first();
        oldest.map(|(_, close)| close.notify_one()).is_some()
    }
}

impl IdleSlot {
    /// Takes the slot of a new connection, which is idle until it has a request.
    fn new(idle_list: Arc<IdleList>) -> Arc<Self> {
        let (number, close, first, has_request) = Default::default();
        let slot = Self { idle_list, number, close, first, has_request };
        slot.wait();
        Arc::new(slot)
    }

    /// Begins a request.
    fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.has_request.store(true, Ordering::Relaxed);
        self.first.notify_one();
        self.work();
        ActiveRequest(Arc::clone(self))
    }

    /// Says that the client has to send something: the connection may be closed.
    pub(super) fn wait(&self) {
        let mut number = self.number.lock();
        let mut idle = self.idle_list.idle.lock();
        let next = idle.next;
        idle.next += 1;
        let before = number.replace(next);
        before.map(|before| idle.slots.remove(&before));
        idle.slots.insert(next, Arc::clone(&self.close));
        drop(idle);
        self.idle_list.turned_idle.notify_one();
    }

    /// Says that the client waits for the server.
    pub(super) fn work(&self) {
        if let Some(number) = self.number.lock().take() {
            self.idle_list.idle.lock().slots.remove(&number);
        }
    }
}

impl Drop for IdleSlot {
    fn drop(&mut self) {
        self.work();
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.has_request.store(false, Ordering::Relaxed);
        self.0.wait();
    }
}

/// A connection whose writes fail once the client hasn't read anything for a while. Otherwise a
/// client that never reads would keep its answers in memory forever.
#[derive(Debug)]
pub(super) struct Stalling {
    stream: TcpStream,
    most: Duration,
    /// While a write waits.
    stalled: Option<Pin<Box<Timeout<Pending<()>>>>>,
}

impl Stalling {
    /// Lets writes wait this long.
    pub(super) fn new(stream: TcpStream, most: Duration) -> Self {
        Self { stream, most, stalled: None }
    }

    fn checked<T>(
        &mut self,
        context: &mut Context<'_>,
        write: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.stalled = None;
            return write;
        }
        let most = self.most;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(timeout(most, pending())));
        match stalled.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Stalling {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stalling {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.checked(context, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.checked(context, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

// What a client still sends of a request that is already answered.
//
// Many clients read nothing before they have sent a whole body. If the connection ended in the
// middle, they would see a broken connection in place of the answer (RFC 9112, section 9.6). So the
// server receives the rest and drops it, within bounds.

/// The most bytes that are dropped. A connection that has more to send ends.
const MOST_BYTES: u64 = 256 << 20;
/// The longest that a client may take to send the rest.
const MOST_TIME: Duration = Duration::from_secs(30);
/// The longest that it may send nothing.
const MOST_PAUSE: Duration = Duration::from_secs(5);

/// A body of a request; what nobody reads of it is received and dropped.
#[derive(Debug)]
pub(super) struct Unread {
    body: Body,
    /// Whether the client waits for `100 Continue` before sending it.
    is_held_back: bool,
    is_over: bool,
    closes: watch::Receiver<bool>,
}

impl Unread {
    /// Wraps the body of a request. Nothing more is received once the server closes.
    pub(super) fn wrap(request: Request, closes: watch::Receiver<bool>) -> Request {
        let is_held_back = request.headers().contains_key(header::EXPECT);
        request.map(|body| Body::new(Self { body, is_held_back, is_over: false, closes }))
    }
}

impl HttpBody for Unread {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_held_back = false;
        let frame = Pin::new(&mut self.body).poll_frame(context);
        self.is_over = matches!(frame, Poll::Ready(None | Some(Err(_))));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let is_over = self.is_over || self.body.is_end_stream();
        if is_over || self.is_held_back || self.body.size_hint().lower() > MOST_BYTES {
            return;
        }
        // There is none while the runtime ends, and then the connections end with it.
        if let Ok(runtime) = Handle::try_current() {
            let (body, mut closes) = (mem::take(&mut self.body), self.closes.clone());
            runtime.spawn(async move {
                tokio::select! {
                    _ = timeout(MOST_TIME, drop_all(body)) => {}
                    _ = closes.wait_for(|closes| *closes) => {}
                }
            });
        }
    }
}

/// Receives what is left of a body, up to the bounds.
async fn drop_all(mut body: Body) {
    let mut left = MOST_BYTES;
    while let Ok(Some(Ok(frame))) = timeout(MOST_PAUSE, body.frame()).await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(length as u64) {
            Some(less) => left = less,
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use axum::http::HeaderValue;
    use futures_util::stream;

    use super::*;

    #[test]
    fn the_longest_idle_gives_way_and_no_busy_one() {
        let idle_list = Arc::new(IdleList::default());
        let slots = [(); 3].map(|()| IdleSlot::new(Arc::clone(&idle_list)));
        let count = || idle_list.idle.lock().slots.len();
        let first = slots[0].begin();
        let has_request = || slots[0].has_request.load(Ordering::Relaxed);
        assert!(has_request() && count() == 2);
        drop(first);
        // It is idle for the shortest time now.
        assert!(!has_request());
        let oldest = idle_list.idle.lock().slots.values().next().cloned().unwrap();
        assert!(Arc::ptr_eq(&oldest, &slots[1].close));
        let _busy = slots.each_ref().map(IdleSlot::begin);
        assert!(!idle_list.close_oldest());
        slots[2].wait();
        assert_eq!(count(), 1);
        drop((_busy, slots));
        assert_eq!(count(), 0);
    }

    #[expect(clippy::disallowed_methods, reason = "of a paused clock")]
    async fn pass(time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Returns a request that sends a mebibyte after each pause, and how many bytes were received.
    fn endless(pause: Duration) -> (Request, Arc<AtomicU64>) {
        let received = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&received);
        let chunks = stream::unfold((), move |()| {
            let counted = Arc::clone(&counted);
            async move {
                pass(pause).await;
                counted.fetch_add(1 << 20, Ordering::Relaxed);
                Some((Ok::<_, Infallible>(Bytes::from_static(&[0; 1 << 20])), ()))
            }
        });
        (Request::new(Body::from_stream(chunks)), received)
    }

    /// Drops a request unread, and returns how many bytes were received within a minute.
    async fn left(request: Request, received: &AtomicU64, closes: watch::Receiver<bool>) -> u64 {
        drop(Unread::wrap(request, closes));
        pass(Duration::from_secs(60)).await;
        received.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_is_received_within_bounds() {
        let (close, closes) = watch::channel(false);
        let mebibytes = async |pause| {
            let (request, received) = endless(Duration::from_millis(pause));
            left(request, &received, closes.clone()).await >> 20
        };
        assert_eq!(mebibytes(1).await, 257);
        assert_eq!(mebibytes(1100).await, 27);
        assert_eq!(mebibytes(6000).await, 0);
        close.send_replace(true);
        assert_eq!(mebibytes(1).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_to_be_told_is_not_told() {
        let (_close, closes) = watch::channel(false);
        let (mut request, received) = endless(Duration::from_millis(1));
        request.headers_mut().insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        assert_eq!(left(request, &received, closes.clone()).await, 0);
        // Once it was told, it sends.
        let (mut request, received) = endless(Duration::from_millis(1));
        request.headers_mut().insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        let mut request = Unread::wrap(request, closes);
        request.body_mut().frame().await.unwrap().unwrap();
        drop(request);
        pass(Duration::from_secs(60)).await;
        assert_eq!(received.load(Ordering::Relaxed) >> 20, 258);
    }
}
