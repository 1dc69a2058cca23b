//! Connections to servers: look-up, the check of addresses, TLS, and HTTP/1.1 over them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, rustls};
use url::Host;

use crate::address::{AddressClass, Resolver};
use crate::failure::{Failure, FailureReason};
use crate::origin::Origin;
use crate::rule::Rules;

/// A body on its way.
pub(crate) type RelayedBody = UnsyncBoxBody<Bytes, Failure>;

/// Aborts a task when it is dropped.
#[derive(Debug)]
pub(crate) struct OwnedTask(pub(crate) AbortHandle);

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection that takes requests, one after the other. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) sender: SendRequest<RelayedBody>,
    pub(crate) tls: Option<TlsInfo>,
    _task: OwnedTask,
}

/// What the program may know of a TLS connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TlsInfo {
    pub(crate) version: String,
    pub(crate) cipher: String,
    /// In DER.
    pub(crate) certificate: Vec<u8>,
}

/// Makes connections.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) connect_time: Duration,
    pub(crate) head_bytes: usize,
}

/// Returns the configuration for these roots.
pub(crate) fn tls_config(roots: RootCertStore) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

impl Connector {
    /// Connects to a host that the rules name, by an address that they allow.
    pub(crate) async fn connect(
        &self,
        rules: &Rules,
        host: &Host,
        port: u16,
        time: Duration,
    ) -> Result<TcpStream, Failure> {
        let allows_private = rules.check_host(host, port)?;
        let time = time.min(self.connect_time);
        let connecting = async {
            let mut last = None;
            for address in self.addresses(host, port, allows_private).await? {
                match TcpStream::connect(SocketAddr::new(address, port)).await {
                    Ok(connected) => {
                        // Without this, the last packet of a body may wait for an answer.
                        drop(connected.set_nodelay(true));
                        return Ok(connected);
                    }
                    Err(error) => last = Some(connect_failure(host, port, &error)),
                }
            }
            Err(last.unwrap_or_else(|| unknown_name(host, "it has no address")))
        };
        timeout(time, connecting).await.unwrap_or_else(|_| {
            let text = format!("{host}:{port} didn't accept a connection within {time:?}");
            Err(Failure::new(FailureReason::TimedOut, text))
        })
    }

    /// Looks a host up. A rule that names an address allows it.
    async fn addresses(
        &self,
        host: &Host,
        port: u16,
        allows_private: bool,
    ) -> Result<Vec<IpAddr>, Failure> {
        let name = match host {
            Host::Ipv4(address) => return Ok(vec![IpAddr::V4(*address)]),
            Host::Ipv6(address) => return Ok(vec![IpAddr::V6(*address)]),
            Host::Domain(name) => name,
        };
        let found = self.resolver.resolve(name).await;
        let found = found.map_err(|error| unknown_name(host, &error.to_string()))?;
        let mut refused = None;
        let is_allowed = |address: &IpAddr| {
            let (kind, advice) = match AddressClass::of(*address) {
                AddressClass::Public => return true,
                AddressClass::Private(_) if allows_private => return true,
                AddressClass::Private(kind) => {
                    let origin = Origin::likely(host.clone(), port);
                    (kind, format!("ends with the word `private`, as `GET {origin}/* private`,"))
                }
                AddressClass::Special(kind) => {
                    let named = match address {
                        IpAddr::V4(address) => Host::Ipv4(*address),
                        IpAddr::V6(address) => Host::Ipv6(*address),
                    };
                    let origin = Origin::likely(named, port);
                    (kind, format!("names the address, as `GET {origin}/*`,"))
                }
            };
            let text = format!(
                "connections to {host} are refused: its address {address} is {kind}; only a rule that \
                 {advice} would allow them"
            );
            refused = Some(Failure::new(FailureReason::Address, text));
            false
        };
        let allowed: Vec<IpAddr> = found.into_iter().filter(is_allowed).collect();
        match refused {
            Some(refused) if allowed.is_empty() => Err(refused),
            _ => Ok(allowed),
        }
    }

    /// Takes requests over a plain connection.
    pub(crate) async fn plain(&self, connected: TcpStream) -> Result<Upstream, Failure> {
        self.http(connected, None).await
    }

    /// Does the handshake of TLS.
    pub(crate) async fn secure(
        &self,
        connected: TcpStream,
        host: &Host,
    ) -> Result<Upstream, Failure> {
        let name = match host {
            Host::Domain(name) => ServerName::try_from(name.clone()).map_err(|_| {
                Failure::new(FailureReason::Invalid, format!("`{name}` isn't a name for TLS"))
            })?,
            Host::Ipv4(address) => ServerName::from(IpAddr::V4(*address)),
            Host::Ipv6(address) => ServerName::from(IpAddr::V6(*address)),
        };
        let handshake = TlsConnector::from(Arc::clone(&self.tls)).connect(name, connected);
        let secured = match timeout(self.connect_time, handshake).await {
            Ok(secured) => secured.map_err(|error| tls_failure(host, &error))?,
            Err(_) => {
                let text = format!("TLS with {host} took longer than {:?}", self.connect_time);
                return Err(Failure::new(FailureReason::TimedOut, text));
            }
        };
        let (_, session) = secured.get_ref();
        let text = |value: Option<String>| value.unwrap_or_default();
        let info = TlsInfo {
            version: text(session.protocol_version().map(|it| format!("{it:?}").replace('_', "."))),
            cipher: text(
                session
                    .negotiated_cipher_suite()
                    .map(|it| format!("{:?}", it.suite()).replace("TLS13_", "TLS_")),
            ),
            certificate: session
                .peer_certificates()
                .and_then(|chain| chain.first())
                .map_or_else(Vec::new, |certificate| certificate.to_vec()),
        };
        self.http(secured, Some(info)).await
    }

    async fn http(
        &self,
        connected: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        tls: Option<TlsInfo>,
    ) -> Result<Upstream, Failure> {
        let (sender, connection) = http1::Builder::new()
            .max_header_size(self.head_bytes)
            .max_buf_size(buffer_bytes(self.head_bytes))
            .preserve_header_case(true)
            .handshake(TokioIo::new(connected))
            .await
            .map_err(|error| Failure::new(FailureReason::Reset, error.to_string()))?;
        // Its errors also end the request that it is for.
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Upstream { sender, tls, _task: OwnedTask(task.abort_handle()) })
    }
}

/// Returns how much a side of HTTP may hold: a head, and at least what hyper needs.
pub(crate) fn buffer_bytes(head_bytes: usize) -> usize {
    head_bytes.clamp(64 << 10, 16 << 20)
}

fn unknown_name(host: &Host, problem: &str) -> Failure {
    Failure::new(FailureReason::UnknownName, format!("{host} can't be looked up: {problem}"))
}

fn connect_failure(host: &Host, port: u16, error: &io::Error) -> Failure {
    let reason = match error.kind() {
        io::ErrorKind::ConnectionRefused => FailureReason::Refused,
        io::ErrorKind::TimedOut => FailureReason::TimedOut,
        io::ErrorKind::ConnectionReset => FailureReason::Reset,
        _ => FailureReason::Unreachable,
    };
    Failure::new(reason, format!("{host}:{port} can't be reached: {error}"))
}

fn tls_failure(host: &Host, error: &io::Error) -> Failure {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let reason = match cause {
        Some(rustls::Error::InvalidCertificate(_)) => FailureReason::Certificate,
        _ => FailureReason::Tls,
    };
    Failure::new(reason, format!("TLS with {host} failed: {error}"))
}
