//! Limits the clients of a server: the number of connections, and how long each may stand still.
//!
//! Otherwise idle connections could take every descriptor of the process. A connection that waits
//! for its client gives way to a new one; a client whose connection ended can connect again.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::serve::Listener;
use futures_util::future::join_all;
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::place::{Crowd, Place};
use super::stall::Stalling;
use super::unread::Unread;

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
    let crowd = Arc::new(Crowd::default());
    let (closing, closes) = watch::channel(false);
    let accepting = listeners
        .into_iter()
        .map(|listener| accept(listener, &room, &crowd, &router, bounds, &closes));
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

/// Serves whoever connects.
async fn accept(
    mut listener: TcpListener,
    room: &Arc<Semaphore>,
    crowd: &Arc<Crowd>,
    router: &Router,
    bounds: Bounds,
    closes: &watch::Receiver<bool>,
) -> Infallible {
    loop {
        // Listens on after errors.
        let (stream, _) = Listener::accept(&mut listener).await;
        let seat = seat(room, crowd).await;
        let place = Place::new(Arc::clone(crowd));
        let router = router.clone();
        let closes = closes.clone();
        tokio::spawn(async move {
            connection(stream, router, place, bounds, closes).await;
            drop(seat);
        });
    }
}

/// Waits for room; connections that are idle give way.
async fn seat(room: &Arc<Semaphore>, crowd: &Crowd) -> OwnedSemaphorePermit {
    if let Ok(seat) = Arc::clone(room).try_acquire_owned() {
        return seat;
    }
    let mut seat = pin!(Arc::clone(room).acquire_owned());
    let mut is_closed = crowd.close_oldest();
    loop {
        tokio::select! {
            seat = &mut seat => return seat.expect("nobody closes it"),
            () = crowd.turned_idle(), if !is_closed => is_closed = crowd.close_oldest(),
        }
    }
}

async fn connection(
    stream: TcpStream,
    router: Router,
    place: Place,
    bounds: Bounds,
    mut closes: watch::Receiver<bool>,
) {
    // Answers are written whole, so there is nothing to wait for.
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(Stalling::new(stream, bounds.idle_time));
    let track = middleware::from_fn_with_state((place.clone(), closes.clone()), track);
    let service = TowerToHyperService::new(Router::new().fallback_service(router).layer(track));
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        // It also is the time that it waits for a further request.
        .header_read_timeout(bounds.idle_time)
        .max_buf_size(MOST_HEADER_BYTES);
    let mut connection = pin!(builder.serve_connection(stream, service));
    let mut first = pin!(timeout(bounds.header_time, place.first_request()));
    let (mut is_first, mut is_closing) = (true, false);
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = place.closed() => return,
            first = &mut first, if is_first => match first {
                Ok(()) => is_first = false,
                Err(_) => return,
            },
            _ = closes.wait_for(|closes| *closes), if !is_closing => {
                if !place.has_request() {
                    return;
                }
                connection.as_mut().graceful_shutdown();
                is_closing = true;
            }
        }
    }
}

/// Keeps the place of the connection from the request to the end of its answer.
async fn track(
    State((place, closes)): State<(Place, watch::Receiver<bool>)>,
    request: Request,
    next: Next,
) -> Response {
    let busy = place.begin();
    let mut request = Unread::wrap(request, closes);
    request.extensions_mut().insert(place);
    next.run(request).await.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _ = &busy;
            frame
        }))
    })
}
