//! The connection to the server, and reports of its loss.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::{
    Client, ClientError, ConnectErrorKind, ConnectOptions, Event, ServerAddr, ServerError,
};
use tokio::sync::watch;

use crate::clock::{now, sleep};
use crate::error::Error;

/// How long the first connection is tried for, since servers and workers may start together.
const WAIT: Duration = Duration::from_secs(30);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause before a lost connection is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// How often the server has to show that it is there. A connection whose server doesn't for twice
/// as long is given up.
const PING: Duration = Duration::from_secs(10);

/// Something that users should know of, beside results and errors.
#[derive(Debug, derive_more::Display, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The server is gone; what needs it waits.
    #[display("lost the NATS server; waiting until it is back")]
    Away,
    /// The server is there again.
    #[display("the NATS server is back")]
    Back,
    /// The server refuses this client, which tries again.
    #[display("the NATS server now refuses these credentials; trying again until it takes them")]
    Refused,
    /// The queue of the pool is full, as the server says; jobs wait until there is room.
    #[display("the queue on the NATS server is full ({_0}); waiting until there is room")]
    Full(String),
    /// There is room in the queue again.
    #[display("the queue on the NATS server has room again")]
    HasRoom,
    /// The server can't do this now, which is tried again.
    #[display("{_0}; trying again")]
    Trouble(String),
}

/// Receives notices.
type Listener = Arc<dyn Fn(Notice) + Send + Sync>;

/// Which server to use, and how to be allowed to.
///
/// ```no_run
/// # async fn example() -> Result<(), cluster::Error> {
/// use cluster::{Client, Connection, PoolName};
///
/// let connection = Connection::new("nats://127.0.0.1:4222")
///     .credentials_file("/etc/hatchery/submit.creds")
///     .on_notice(|notice| eprintln!("{notice}"));
/// let client = Client::connect(&connection, PoolName::new("default")?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Connection({})", self.shown())]
pub struct Connection {
    url: String,
    credentials: Option<PathBuf>,
    token: Option<String>,
    nkey: Option<String>,
    authority: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    name: String,
    wait: Duration,
    listener: Listener,
}

impl Connection {
    /// Uses the server at this URL, or one of several separated by commas. A URL may have a user
    /// and a password; `tls://` asks for TLS.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            credentials: None,
            token: None,
            nkey: None,
            authority: None,
            certificate: None,
            name: "hatchery".to_owned(),
            wait: WAIT,
            listener: Arc::new(|_| {}),
        }
    }

    /// Presents the user's JWT and signs with the key in this file, as `nsc` writes it.
    pub fn credentials_file(self, path: impl Into<PathBuf>) -> Self {
        Self { credentials: Some(path.into()), ..self }
    }

    /// Presents this token.
    pub fn token(self, token: impl Into<String>) -> Self {
        Self { token: Some(token.into()), ..self }
    }

    /// Signs with this seed of an NKey.
    pub fn nkey(self, seed: impl Into<String>) -> Self {
        Self { nkey: Some(seed.into()), ..self }
    }

    /// Trusts servers whose certificates the authorities in this PEM file have signed.
    pub fn authority(self, path: impl Into<PathBuf>) -> Self {
        Self { authority: Some(path.into()), ..self }
    }

    /// Presents the certificate in the one PEM file, with the key in the other.
    pub fn certificate(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { certificate: Some((certificate.into(), key.into())), ..self }
    }

    /// Names this client in the server's list of connections.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Waits this long for a server that doesn't answer yet. Default: 30 s.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Tells of whatever delays jobs without being an error. It must not block.
    pub fn on_notice(self, listener: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        Self { listener: Arc::new(listener), ..self }
    }

    /// Returns the URL without a password, for messages.
    fn shown(&self) -> String {
        let hidden = |url: &str| match (url.split_once("://"), url.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
            (None, Some((_, host))) => host.to_owned(),
            _ => url.to_owned(),
        };
        self.url.split(',').map(hidden).collect::<Vec<_>>().join(",")
    }

    /// Says what the server was presented with.
    fn presented(&self) -> String {
        match (&self.credentials, &self.token, &self.nkey) {
            (Some(path), _, _) => format!("the credentials in `{}`", path.display()),
            (None, Some(_), _) => "the token".to_owned(),
            (None, None, Some(_)) => "the NKey".to_owned(),
            _ if self.url.contains('@') => "the user and the password of the URL".to_owned(),
            _ => "a client without credentials; give it some".to_owned(),
        }
    }

    pub(crate) async fn connect(&self) -> Result<(Client, Arc<Link>), Error> {
        let mut addresses = Vec::new();
        for url in self.url.split(',') {
            let address: Result<ServerAddr, _> = url.trim().parse();
            let wrong = |source| Error::Url(self.shown(), Box::new(source));
            addresses.push(address.map_err(wrong)?);
        }
        let (is_away, is_refused, epoch) = Default::default();
        let listener = Arc::clone(&self.listener);
        let link = Arc::new(Link { listener, is_away, is_refused, epoch });
        let until = now() + self.wait;
        loop {
            let options = self.options(&link).await?;
            let error = match options.connect(addresses.clone()).await {
                Ok(client) => {
                    link.set_back();
                    return Ok((client, link));
                }
                Err(error) => error,
            };
            let (url, kind) = (self.shown(), error.kind());
            let source = Box::new(error);
            match kind {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    return Err(Error::Credentials { url, what: self.presented(), source });
                }
                ConnectErrorKind::Tls => return Err(Error::Tls(url, source)),
                ConnectErrorKind::ServerParse => return Err(Error::Url(url, source)),
                _ if now() >= until => return Err(Error::Connect(url, source)),
                _ => link.set_away(),
            }
            sleep(PAUSE).await;
        }
    }

    async fn options(&self, link: &Arc<Link>) -> Result<ConnectOptions, Error> {
        let link = Arc::clone(link);
        let mut options = ConnectOptions::new()
            .name(&self.name)
            .connection_timeout(ATTEMPT)
            .ping_interval(PING)
            .max_reconnects(None)
            .reconnect_delay_callback(|attempts| {
                let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
                PAUSE.saturating_mul(attempts).min(LONGEST_PAUSE)
            })
            .event_callback(move |event| {
                let link = Arc::clone(&link);
                async move { link.hear(&event) }
            });
        if let Some(path) = &self.credentials {
            let read = options.credentials_file(path).await;
            options = read.map_err(|source| Error::Read(path.clone(), source))?;
        }
        if let Some(token) = &self.token {
            options = options.token(token.clone());
        }
        if let Some(seed) = &self.nkey {
            options = options.nkey(seed.clone());
        }
        if let Some(path) = &self.authority {
            options = options.add_root_certificates(path.clone()).require_tls(true);
        }
        if let Some((certificate, key)) = &self.certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok(options)
    }
}

/// The state of a connection, and who learns of its changes.
#[derive(derive_more::Debug)]
pub(crate) struct Link {
    #[debug(skip)]
    listener: Listener,
    is_away: AtomicBool,
    is_refused: AtomicBool,
    /// Goes up when the connection is there again. What was asked before gets no answer.
    epoch: watch::Sender<u64>,
}

impl Link {
    pub(crate) fn tell(&self, notice: Notice) {
        (self.listener)(notice);
    }

    /// Repeats something until it succeeds, with a pause after each failure. After some failures it
    /// tells what can't be done, and why.
    pub(crate) async fn insist<T, E: fmt::Display, F: Future<Output = Result<T, E>>>(
        &self,
        what: &str,
        (quiet_attempts, pause): (u32, Duration),
        attempt: impl Fn() -> F,
    ) -> T {
        let mut attempts = 0;
        loop {
            let error = match attempt().await {
                Ok(done) => return done,
                Err(error) => error,
            };
            attempts += 1;
            if attempts == quiet_attempts {
                self.tell(Notice::Trouble(format!("can't {what}: {error}")));
            }
            sleep(pause).await;
        }
    }

    /// Returns what the future returns; `None` if the client reconnects before, after which no
    /// answer comes.
    pub(crate) async fn unless_renewed<T>(&self, asked: impl Future<Output = T>) -> Option<T> {
        let mut epochs = self.epoch.subscribe();
        epochs.mark_unchanged();
        tokio::select! {
            biased;
            answer = asked => Some(answer),
            // The sender is in `self`, so this ends with a change.
            _ = epochs.changed() => None,
        }
    }

    fn hear(&self, event: &Event) {
        match event {
            Event::Disconnected => self.set_away(),
            Event::Connected => self.set_back(),
            Event::ServerError(ServerError::AuthorizationViolation) => self.set_refused(),
            // An attempt to connect again, of which the client has only the words.
            Event::ClientError(ClientError::Other(words)) if is_refusal(words) => {
                self.set_refused()
            }
            other => tracing::info!("NATS: {other}"),
        }
    }

    fn set_refused(&self) {
        if !self.is_refused.swap(true, Ordering::Relaxed) {
            self.tell(Notice::Refused);
        }
    }

    fn set_away(&self) {
        if !self.is_away.swap(true, Ordering::Relaxed) {
            self.tell(Notice::Away);
        }
    }

    fn set_back(&self) {
        self.is_refused.store(false, Ordering::Relaxed);
        if self.is_away.swap(false, Ordering::Relaxed) {
            self.tell(Notice::Back);
        }
        self.epoch.send_modify(|epoch| *epoch += 1);
    }
}

fn is_refusal(words: &str) -> bool {
    let kinds = [ConnectErrorKind::AuthorizationViolation, ConnectErrorKind::Authentication];
    kinds.iter().any(|kind| kind.to_string() == words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let shown = |url: &str| Connection::new(url).shown();
        assert_eq!(shown("nats://u:p@h:4222,tls://h2"), "nats://h:4222,tls://h2");
        assert_eq!(shown("u:p@h"), "h");
        assert!(!format!("{:?}", Connection::new("nats://u:secret@h")).contains("secret"));
    }

    #[tokio::test]
    async fn an_address_that_is_none_is_an_error_at_once() {
        let error = Connection::new("nats://:x").connect().await.unwrap_err();
        assert!(matches!(error, Error::Url(..)), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_told_and_then_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        drop(listener);
        let (told, heard) = std::sync::mpsc::sync_channel(8);
        let connection = Connection::new(&url).wait(Duration::ZERO);
        let connection = connection.on_notice(move |notice| told.send(notice).unwrap());
        let error = connection.connect().await.unwrap_err();
        assert!(error.to_string().contains(&url), "{error}");
        assert!(heard.try_recv().is_err());
        let waiting = connection.wait(Duration::from_millis(300)).connect().await;
        assert!(waiting.is_err());
        assert_eq!(heard.recv().unwrap(), Notice::Away);
    }
}
