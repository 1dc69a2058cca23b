//! Servers on loopback, a resolver whose answers change, and a program that speaks in frames.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use egress::{
    Egress, EgressLimits, JobNetwork, JobOptions, Lookup, NetworkOutcome, Resolver, Secret, Served,
};
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, TlsConnector, rustls};

pub(crate) type Payload = BoxBody<Bytes, io::Error>;

/// A body of these bytes.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Payload {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// What a server got: its first line, its headers and body as text.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) text: String,
}

/// An HTTP server on loopback.
pub(crate) struct Server {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) connections: Arc<Mutex<usize>>,
}

/// Answers a request of which the server has read the body.
pub(crate) type Handler = dyn Fn(&http::request::Parts, &Bytes) -> Response<Payload> + Send + Sync;

/// Answers a request with the body on its way.
pub(crate) type Streaming =
    dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Payload>> + Send + Sync;

impl Server {
    /// Serves with the test's certificate if `tls`.
    pub(crate) async fn streaming(tls: bool, handler: Arc<Streaming>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::<Mutex<usize>>::default();
        let count = Arc::clone(&connections);
        let acceptor = tls.then(acceptor);
        tokio::spawn(async move {
            loop {
                let (connected, _) = listener.accept().await.unwrap();
                drop(connected.set_nodelay(true));
                let (handler, acceptor) = (Arc::clone(&handler), acceptor.clone());
                let count = Arc::clone(&count);
                tokio::spawn(async move {
                    *count.lock() += 1;
                    let service = service_fn(|request| {
                        let answer = handler(request);
                        async { Ok::<_, Infallible>(answer.await) }
                    });
                    let mut server = hyper::server::conn::http1::Builder::new();
                    server.preserve_header_case(true);
                    match acceptor {
                        None => {
                            drop(server.serve_connection(TokioIo::new(connected), service).await)
                        }
                        Some(acceptor) => {
                            if let Ok(secured) = acceptor.accept(connected).await {
                                drop(server.serve_connection(TokioIo::new(secured), service).await);
                            }
                        }
                    }
                    *count.lock() -= 1;
                });
            }
        });
        Self { port, seen: Arc::default(), connections }
    }

    pub(crate) async fn new(tls: bool, handler: Arc<Handler>) -> Self {
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let kept = Arc::clone(&seen);
        let streaming = move |request: Request<Incoming>| -> BoxFuture<'static, Response<Payload>> {
            let (handler, kept) = (Arc::clone(&handler), Arc::clone(&kept));
            Box::pin(async move {
                let (head, body) = request.into_parts();
                let body = match body.collect().await {
                    Ok(body) => body.to_bytes(),
                    Err(_) => return Response::new(full("broken")),
                };
                let line = format!("{} {}", head.method, head.uri);
                let text = format!("{line} {:?} {}", head.headers, String::from_utf8_lossy(&body));
                kept.lock().push(Seen { line, text });
                handler(&head, &body)
            })
        };
        Self { seen, ..Self::streaming(tls, Arc::new(streaming)).await }
    }

    pub(crate) fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock())
    }
}

fn acceptor() -> TlsAcceptor {
    let chain = vec![CertificateDer::from_pem_slice(include_bytes!("../tls/server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("../tls/server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

const ROOT: &[u8] = include_bytes!("../tls/root.pem");

/// Connects by TLS as a program of its own would.
pub(crate) fn connector() -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ROOT).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// Answers look-ups from a table. A name with several answers gives the next one each time, and
/// stays at its last. Other names lead to loopback.
#[derive(Debug, Default)]
pub(crate) struct TableResolver(Mutex<BTreeMap<String, VecDeque<Vec<IpAddr>>>>);

impl TableResolver {
    pub(crate) fn with(self, name: &str, answers: &[&[&str]]) -> Self {
        let parsed = |answer: &&[&str]| answer.iter().map(|it| it.parse().unwrap()).collect();
        self.0.lock().insert(name.to_owned(), answers.iter().map(parsed).collect());
        self
    }
}

impl Resolver for TableResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> Lookup<'a> {
        let mut table = self.0.lock();
        let answer = match table.get_mut(name) {
            Some(answers) if answers.len() > 1 => answers.pop_front().unwrap(),
            Some(answers) => answers[0].clone(),
            None => vec![IpAddr::from([127, 0, 0, 1])],
        };
        Box::pin(async move {
            match answer.is_empty() {
                true => Err(io::Error::other("no such name")),
                false => Ok(answer),
            }
        })
    }
}

pub(crate) fn egress(rules: &[String], secrets: Vec<Secret>, limits: EgressLimits) -> Arc<Egress> {
    egress_with(rules, secrets, limits, TableResolver::default())
}

pub(crate) fn egress_with(
    rules: &[String],
    secrets: Vec<Secret>,
    limits: EgressLimits,
    resolver: TableResolver,
) -> Arc<Egress> {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    Arc::new(Egress::new(rules, secrets, limits, ROOT, Arc::new(resolver)).unwrap())
}

/// A failure as the program sees it: the code and the text.
pub(crate) type Refusal = (u8, String);

/// A program that uses the network in frames.
#[derive(Clone)]
pub(crate) struct Guest(pub(crate) Arc<JobNetwork>);

impl Guest {
    pub(crate) fn new(egress: &Arc<Egress>) -> Self {
        Self::with(egress, JobOptions::default())
    }

    pub(crate) fn with(egress: &Arc<Egress>, options: JobOptions) -> Self {
        Self(Arc::new(egress.job(options)))
    }

    pub(crate) fn finish(&self) -> NetworkOutcome {
        self.0.finish()
    }

    pub(crate) async fn call(&self, operation: u8, fields: &[&[u8]]) -> Result<Vec<u8>, Refusal> {
        let answer = match self.0.serve(&[&[operation], &fields.concat()[..]].concat()) {
            Served::Done(answer) => answer,
            Served::Pending(answer) => answer.await,
        };
        parse(answer)
    }

    pub(crate) async fn open(&self, host: &str, port: u16) -> Result<u32, Refusal> {
        let fields: [&[u8]; 3] = [&0_u32.to_le_bytes(), &port.to_le_bytes(), host.as_bytes()];
        let stream = self.call(1, &fields).await?;
        Ok(u32::from_le_bytes(stream.try_into().unwrap()))
    }

    pub(crate) async fn start_tls(&self, stream: u32, name: &str) -> Result<Vec<u8>, Refusal> {
        self.call(2, &[&stream.to_le_bytes(), name.as_bytes()]).await
    }

    pub(crate) async fn write_all(&self, stream: u32, mut bytes: &[u8]) -> Result<(), Refusal> {
        let number = stream.to_le_bytes();
        while !bytes.is_empty() {
            match self.call(3, &[&number, bytes]).await {
                Ok(count) => {
                    bytes = &bytes[u32::from_le_bytes(count.try_into().unwrap()) as usize..];
                }
                Err((1, _)) => drop(self.call(5, &[&number, &[2]]).await?),
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Reads up to the end or a failure.
    pub(crate) async fn read_all(&self, stream: u32) -> (Vec<u8>, Result<(), Refusal>) {
        let (number, most) = (stream.to_le_bytes(), u32::MAX.to_le_bytes());
        let mut read = Vec::new();
        loop {
            match self.call(4, &[&number, &most]).await {
                Ok(bytes) if bytes.is_empty() => return (read, Ok(())),
                Ok(bytes) => read.extend(bytes),
                Err((1, _)) => drop(self.call(5, &[&number, &[1]]).await.unwrap()),
                Err(failure) => return (read, Err(failure)),
            }
        }
    }

    pub(crate) async fn end_writing(&self, stream: u32) {
        self.call(6, &[&stream.to_le_bytes()]).await.unwrap();
    }

    pub(crate) async fn close(&self, stream: u32) {
        self.call(7, &[&stream.to_le_bytes()]).await.unwrap();
    }

    /// Returns an HTTP client over a new stream.
    pub(crate) async fn client(&self, host: &str, port: u16, tls: bool) -> Result<Client, Refusal> {
        let stream = self.open(host, port).await?;
        if tls {
            self.start_tls(stream, host).await?;
        }
        let io = GuestIo { guest: self.clone(), stream, waiting: [None, None] };
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        Ok(Client { sender, host: format!("{host}:{port}"), stream })
    }
}

fn parse(answer: Vec<u8>) -> Result<Vec<u8>, Refusal> {
    match answer[0] {
        0 => Ok(answer[1..].to_vec()),
        _ => Err((answer[1], String::from_utf8(answer[2..].to_vec()).unwrap())),
    }
}

/// An HTTP client of a program.
pub(crate) struct Client {
    pub(crate) sender: SendRequest<Payload>,
    host: String,
    pub(crate) stream: u32,
}

impl Client {
    /// Sends a request, and returns the response's head with its body on its way.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: Payload,
    ) -> hyper::Result<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(target).header("Host", &self.host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.sender.ready().await?;
        self.sender.send_request(request.body(body).unwrap()).await
    }

    /// Sends a request, and returns the status and the body.
    pub(crate) async fn fetch(&mut self, method: &str, target: &str, body: &str) -> (u16, String) {
        let response = self.send(method, target, &[], full(body.to_owned())).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

/// A stream as a connection for hyper.
struct GuestIo {
    guest: Guest,
    stream: u32,
    waiting: [Option<BoxFuture<'static, Vec<u8>>>; 2],
}

impl GuestIo {
    /// Repeats an operation until it needn't wait.
    fn repeat(
        &mut self,
        context: &mut Context<'_>,
        frame: &[u8],
        interest: u8,
    ) -> Poll<io::Result<Vec<u8>>> {
        loop {
            let waiting = &mut self.waiting[usize::from(interest) - 1];
            if let Some(wait) = waiting {
                drop(ready!(wait.as_mut().poll(context)));
                *waiting = None;
            }
            let Served::Done(answer) = self.guest.0.serve(frame) else {
                unreachable!("it never waits")
            };
            match parse(answer) {
                Ok(payload) => return Poll::Ready(Ok(payload)),
                Err((1, _)) => {
                    let frame = [&[5], &self.stream.to_le_bytes()[..], &[interest]].concat();
                    *waiting = Some(match self.guest.0.serve(&frame) {
                        Served::Done(answer) => Box::pin(std::future::ready(answer)),
                        Served::Pending(answer) => answer,
                    });
                }
                Err((_, text)) => return Poll::Ready(Err(io::Error::other(text))),
            }
        }
    }
}

impl Read for GuestIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let most = u32::try_from(into.remaining()).unwrap();
        let frame = [&[4], &self.stream.to_le_bytes()[..], &most.to_le_bytes()].concat();
        into.put_slice(&ready!(self.repeat(context, &frame, 1))?);
        Poll::Ready(Ok(()))
    }
}

impl Write for GuestIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let frame = [&[3], &self.stream.to_le_bytes()[..], bytes].concat();
        let count = ready!(self.repeat(context, &frame, 2))?;
        Poll::Ready(Ok(u32::from_le_bytes(count.try_into().unwrap()) as usize))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
