//! Serves a pool to agents over MCP, the Model Context Protocol.
//!
//! A session of Python is an argument of each call. It never belongs to a connection, since newer
//! versions of the protocol have none. Over standard input and output the client chooses the names
//! of sessions. Over HTTP a name is 128 random bits. Any caller of the tenant who knows it can use
//! the session; no list shows it. Sessions rest and end by the pool's rules
//! ([`SessionsConfig`](hatchery::SessionsConfig)).

use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::HeaderName;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any_service};
use rmcp::ServiceExt;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService, stdio_pipes};
use tokio::sync::{Semaphore, watch};

use crate::caller::Caller;
use crate::service::Service;
use handler::Handler;
use tools::{Naming, PoolTraits};

mod calls;
mod content;
mod handler;
mod tools;

/// The longest message of a client over standard input, 64 MiB. Longer ones are dropped without an
/// answer.
const MOST_LINE_BYTES: usize = 64 << 20;

/// The most clients with a connection of their own over HTTP. A connection ends after 5 minutes
/// without a request.
const MOST_CONNECTIONS: usize = 1024;

/// Serves one client over standard input and output. Clones are the same server.
///
/// It answers before the pool has started, since clients don't wait for long. Calls of tools wait
/// until [`provide`](Self::provide) is called.
#[derive(Debug, Clone, Default)]
pub struct Stdio {
    starting: Starting,
    pool: PoolTraits,
}

impl Stdio {
    /// Returns the same server for a pool with these Python builds. With several, tools have an
    /// argument `python`, which selects one.
    #[must_use]
    pub fn with_pythons(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.pool.pythons = names.into_iter().collect();
        self
    }

    /// Returns the same server for a pool whose programs can reach something outside of the sandbox,
    /// or not. Default: not.
    #[must_use]
    pub fn with_network(mut self, has_network: bool) -> Self {
        self.pool.has_network = has_network;
        self
    }

    /// Gives it the service that runs programs.
    pub fn provide(&self, service: Service) {
        self.starting.0.send_replace(Some(service));
    }

    /// Serves until the client closes standard input, or until `stop`. Then calls in progress have
    /// 5 s to end, or 2 s after `stop`. Programs that still run are interrupted.
    ///
    /// # Errors
    /// The client doesn't begin as the protocol says, or a stream fails.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let mut stop = std::pin::pin!(stop);
        let handler = Handler {
            starting: self.starting,
            naming: Naming::Free,
            pool: self.pool,
            caller: Some(Caller::owner()),
            _permit: None,
        };
        let (read, write) = stdio_pipes();
        let transport =
            AsyncRwTransport::new_server(read, write).with_max_line_length(MOST_LINE_BYTES);
        let begun = tokio::select! {
            begun = handler.serve(transport) => begun,
            () = &mut stop => return Ok(()),
        };
        let running = match begun {
            Ok(running) => running,
            // It never began.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => return Err(io::Error::other(error)),
        };
        let cancel = running.cancellation_token();
        let mut waiting = std::pin::pin!(running.waiting());
        let ended = tokio::select! {
            ended = &mut waiting => ended,
            () = &mut stop => {
                cancel.cancel();
                waiting.await
            }
        };
        ended.map(drop).map_err(io::Error::other)
    }
}

/// A service that may still be starting. Clones are the same one.
#[derive(Debug, Clone, Default)]
struct Starting(Arc<watch::Sender<Option<Service>>>);

impl Starting {
    /// Waits until the pool has started.
    async fn ready(&self) -> Service {
        let mut changes = self.0.subscribe();
        let service = changes.wait_for(Option::is_some).await.expect("the sender is in `self`");
        service.clone().expect("it is there")
    }
}

/// Returns a tower service for one path, `/mcp` by convention, as axum's `Router::route_service` takes
/// it. It answers `POST`, `GET` and `DELETE`. Its clones share their connections.
///
/// The program that mounts it checks tokens, and puts a [`Caller`] into the extensions of each
/// request. A request without one is refused. A connection is of use only to the caller who opened
/// it. The service itself refuses requests whose `Host` is neither this machine nor one of
/// `hosts`, with or without a port. It also refuses requests of web pages (any `Origin`),
/// and bodies of more than `most_body_bytes`.
pub fn http(
    service: Service,
    hosts: impl IntoIterator<Item = String>,
    most_body_bytes: usize,
) -> MethodRouter {
    let pythons = service.pool().pythons().map(str::to_owned).collect();
    let pool = PoolTraits { pythons, has_network: service.pool().allows_connections() };
    let starting = Starting(Arc::new(watch::Sender::new(Some(service))));
    let permits = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let config = StreamableHttpServerConfig::default();
    let hosts: Vec<String> = config.allowed_hosts.iter().cloned().chain(hosts).collect();
    let config = config
        .with_allowed_hosts(hosts)
        .enforce_origin_validation()
        .with_max_request_body_bytes(most_body_bytes);
    let handler = move || {
        let permit = Arc::clone(&permits).try_acquire_owned();
        let permit = permit.map_err(|_| io::Error::other("too many MCP clients are connected"))?;
        Ok(Handler {
            starting: starting.clone(),
            naming: Naming::Random,
            pool: pool.clone(),
            caller: None,
            _permit: Some(Arc::new(permit)),
        })
    };
    let service: StreamableHttpService<Handler, LocalSessionManager> =
        StreamableHttpService::new(handler, Arc::default(), config);
    let belong = middleware::from_fn_with_state(Tags::new(), belong);
    any_service(service).layer(belong)
}

// Connections of older clients: each is of use only to the caller who opened it.
//
// The library that serves the protocol takes any id that it knows. So the server
// adds a tag to each id that it sends, which only it can make, for that caller. For other callers
// there is no connection of that id.

/// Where the protocol has the id of a connection.
const ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Between an id and its tag. Ids don't have it.
const SEPARATOR: char = '.';

/// Makes tags. Clones make the same ones.
#[derive(Clone)]
struct Tags {
    key: [u8; 32],
}

impl Tags {
    /// Makes tags that nobody else can make.
    ///
    /// # Panics
    /// The system has no random numbers.
    fn new() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("Linux gives random numbers");
        Self { key }
    }

    fn tag(&self, id: &str, caller: &Caller) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(caller.identity().as_bytes()).update(id.as_bytes()).finalize()
    }

    /// Returns the library's id of a connection that this caller opened.
    fn opened(&self, sent: &HeaderValue, caller: &Caller) -> Option<HeaderValue> {
        let (id, tag) = sent.to_str().ok()?.rsplit_once(SEPARATOR)?;
        // Hashes are compared in constant time.
        let is_own = blake3::Hash::from_hex(tag).ok()? == self.tag(id, caller);
        is_own.then(|| HeaderValue::from_str(id).ok())?
    }

    fn tagged(&self, id: &HeaderValue, caller: &Caller) -> Option<HeaderValue> {
        let id = id.to_str().ok()?;
        let tag = self.tag(id, caller).to_hex();
        HeaderValue::from_str(&format!("{id}{SEPARATOR}{tag}")).ok()
    }
}

/// Passes requests on with the library's ids, and answers with those of the caller.
async fn belong(State(tags): State<Tags>, mut request: Request, next: Next) -> Response {
    // Requests without a caller are refused behind this.
    let Some(caller) = request.extensions().get::<Caller>().cloned() else {
        return next.run(request).await;
    };
    if !replace(request.headers_mut(), |id| tags.opened(id, &caller)) {
        return (StatusCode::NOT_FOUND, Body::from("Not Found: Session not found")).into_response();
    }
    let mut response = next.run(request).await;
    replace(response.headers_mut(), |id| tags.tagged(id, &caller));
    response
}

/// Replaces the id if there is one; returns whether it could be replaced.
fn replace(headers: &mut HeaderMap, change: impl Fn(&HeaderValue) -> Option<HeaderValue>) -> bool {
    let Some(id) = headers.remove(ID) else { return true };
    let changed = change(&id);
    let is_changed = changed.is_some();
    headers.extend(changed.map(|id| (ID, id)));
    is_changed
}
