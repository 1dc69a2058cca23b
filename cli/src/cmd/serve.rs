//! `hatchery serve`: shares one pool among processes.

use std::future::pending;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hatchery::record::RecordFolder;
use hatchery::status::Phase;
use hatchery::{Builder, Job};
use serve::frames::{UnixServer, serve_stdio};
use serve::http::{self, HttpConfig, HttpError, Token};
use serve::monitor::metrics_page;
use serve::{Answering, Grading, Service, facades, mcp};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::nats::watched;
use super::{grade, kernel};
use crate::args::{KnownImports, ServeArguments};
use crate::exit::{Exit, UsageError};
use crate::pool::{room_for, start_pool};
use crate::{inputs, signals, terminal};

/// How long clients of HTTP may take to read the answers to what the pool has finished.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// Ctrl-C this often ends the process at once.
const LAST_INTERRUPT: u32 = 3;

/// Serves until a signal comes, the client of standard input ends it, or somebody drains the pool.
pub(crate) async fn run(arguments: ServeArguments) -> anyhow::Result<Exit> {
    let mut interrupts = signals::interrupts(LAST_INTERRUPT)?;
    let mut endings = signals::endings()?;
    // Before the pool starts, so that an address that is in use is known at once. Who connects
    // waits, or learns of `/healthz` that the pool starts.
    let unix = match &arguments.unix {
        None => None,
        Some(path) => {
            let bound = UnixServer::bind(path).await;
            Some(bound.with_context(|| UsageError("can't serve `--unix`".to_owned()))?)
        }
    };
    let mut web = match arguments.http.is_empty() {
        true => None,
        false => Some(Web::open(&arguments).await?),
    };
    let folders = inputs::add_mounts(Job::default(), &arguments.folders)?;
    let service = {
        let grading = grade::shared::grading(&arguments)?;
        let recordings = arguments.record.clone().map(RecordFolder::open).transpose()?;
        let starting = start(builder(&arguments)?, grading, recordings);
        tokio::select! {
            started = starting => started?,
            exit = interrupts.first() => return Ok(exit),
            exit = endings.first() => return Ok(exit),
        }
    };
    let service = service.with_files_of(folders);
    let unix = unix.map(|unix| {
        terminal::note(format_args!("serving at {}", unix.path().display()));
        tokio::spawn(unix.serve(service.clone()))
    });
    // A task of its own, so that a drain goes on with it.
    let stdio = arguments.stdio.then(|| tokio::spawn(serve_stdio(service.clone())));
    if let Some(web) = &mut web {
        web.begin(&service);
    }
    let stdio_ended = async {
        match stdio {
            Some(stdio) => stdio.await.context("the connection's task failed"),
            None => pending().await,
        }
    };
    let web_ended = async {
        match &mut web {
            Some(web) => web.ended(&service).await,
            None => pending().await,
        }
    };
    let (served, exit) = tokio::select! {
        served = stdio_ended => (served?.map_err(anyhow::Error::from), Exit::Success),
        served = web_ended => (served, Exit::Success),
        exit = interrupts.first() => (Ok(()), exit),
        exit = endings.first() => (Ok(()), exit),
        () = service.ended() => (Ok(()), Exit::Success),
    };
    // New connections to the socket find nobody; connections that are open go on
    // meanwhile. HTTP says until the end that the pool drains.
    unix.iter().for_each(|unix| unix.abort());
    if served.is_err() || arguments.stdio && matches!(exit, Exit::Success) {
        service.abort().await;
    } else {
        tokio::select! {
            () = service.drain(Some(arguments.drain_time)) => {}
            _ = interrupts.more_than(1) => service.abort().await,
        }
    }
    service.closed().await;
    if let Some(web) = web {
        web.close().await;
    }
    served?;
    Ok(exit)
}

fn builder(arguments: &ServeArguments) -> anyhow::Result<Builder> {
    let builder = arguments.programs.builder().sessions(arguments.sessions.config());
    let builder = builder.default_tenant(arguments.sessions.of_tenant());
    let image = &arguments.programs.image;
    Ok(arguments.size.set(image.apply_to_all_knowing(builder, KnownImports::Later)?))
}

async fn start(
    builder: Builder,
    grading: Grading,
    recordings: Option<RecordFolder>,
) -> anyhow::Result<Service> {
    let service = Service::new(start_pool(builder).await?);
    let service = recordings.into_iter().fold(service, Service::with_recordings);
    let kernels = Arc::new(|pool, connection, options| -> Answering {
        Box::pin(kernel::serve_in(pool, connection, options))
    });
    Ok(service.with_kernels(kernels).with_grading(grading))
}

/// A server of HTTP, which begins before its pool.
struct Web {
    addresses: Vec<SocketAddr>,
    /// Where the pool is awaited; `None` once it is there.
    begin: Option<oneshot::Sender<Service>>,
    /// Whether the pool has passed its self-test.
    ready: watch::Sender<bool>,
    /// Set when no more connections are accepted.
    stop: watch::Sender<bool>,
    server: JoinHandle<Result<(), HttpError>>,
}

impl Web {
    async fn open(arguments: &ServeArguments) -> anyhow::Result<Self> {
        let tokens = match &arguments.token_file {
            None => Vec::new(),
            Some(path) => read_tokens(path)?,
        };
        let mut listeners = Vec::with_capacity(arguments.http.len());
        for address in &arguments.http {
            let is_open = arguments.trust_network || !tokens.is_empty();
            listeners.push(listen(address, is_open).await?);
        }
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
        let (ready, is_ready) = watch::channel(false);
        let mut config = HttpConfig::default();
        config.tokens = tokens;
        config.trusts_network = arguments.trust_network;
        config.hosts.clone_from(&arguments.host_name);
        config.origins.clone_from(&arguments.origin);
        let wanted = arguments.connections.unwrap_or(config.connections);
        config.connections = room_for(wanted);
        if arguments.connections.is_some() && config.connections < wanted {
            return Err(UsageError(format!(
                "can't serve {wanted} connections: the limit on open files and sockets allows {} \
                 (raise it with `ulimit -Hn`, or give that number to `--connections`)",
                config.connections
            ))
            .into());
        }
        config.metrics = Some(metrics_page(None)?);
        if let Some(url) = &arguments.nats {
            config.cluster = Some(watched(url, &arguments.access).await?);
        }
        config.ready = Some(is_ready);
        let (begin, begins) = oneshot::channel();
        let (stop, mut stopped) = watch::channel(false);
        let (hosts, body_bytes) = (config.hosts.clone(), config.body_bytes);
        let started = async move {
            let service: Service = match begins.await {
                Ok(started) => started,
                // The process ends before its pool has started.
                Err(_) => pending().await,
            };
            let agents = mcp::http(service.clone(), hosts, body_bytes);
            let routes = facades::router(&service).route_service("/mcp", agents);
            (service, routes)
        };
        let stop_wanted = async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        let server = http::serve(listeners, config, started, stop_wanted);
        let server = tokio::spawn(server);
        Ok(Self { addresses, begin: Some(begin), ready, stop, server })
    }

    /// Serves this pool.
    fn begin(&mut self, service: &Service) {
        if let Some(begin) = self.begin.take() {
            // Fails if the server has ended, which `ended` reports.
            let _ = begin.send(service.clone());
            for address in &self.addresses {
                terminal::note(format_args!("serving HTTP at http://{address}"));
            }
        }
    }

    /// Tests the pool, after which it is ready, and waits until it fails or the server ends.
    async fn ended(&mut self, service: &Service) -> anyhow::Result<()> {
        let Self { ready, server, .. } = self;
        let testing = async {
            match service.test_itself().await {
                Ok(()) => {
                    ready.send_replace(true);
                }
                // A pool that drains refuses the test.
                Err(_) if service.pool().status().phase != Phase::Open => {}
                Err(problem) => return Err(anyhow::anyhow!(problem.message)),
            }
            pending().await
        };
        tokio::select! {
            ended = server => Ok(ended.context("the server's task failed")??),
            failed = testing => failed,
        }
    }

    /// Accepts no more connections, and waits a while until answers have been read.
    async fn close(self) {
        self.stop.send_replace(true);
        if !self.server.is_finished() {
            let _ = timeout(LAST_ANSWERS, self.server).await;
        }
    }
}

/// Listens at an address, which is one of this machine alone unless others may connect.
async fn listen(address: &str, is_open: bool) -> anyhow::Result<TcpListener> {
    let unusable = || {
        UsageError(format!(
            "can't serve HTTP at `{address}` (give `--http` an address of this machine with a free \
             port, such as 127.0.0.1:8000, or port 0 for any)"
        ))
    };
    let listener = TcpListener::bind(address).await.with_context(unusable)?;
    if !is_open && !listener.local_addr()?.ip().is_loopback() {
        return Err(UsageError(format!(
            "other machines could reach `{address}`: give tokens with `--token-file`, or an \
             address of this machine alone with `--http 127.0.0.1:8000`; in a private network whose \
             clients may all do everything, `--trust-network` serves them without tokens"
        ))
        .into());
    }
    Ok(listener)
}

fn read_tokens(path: &Path) -> anyhow::Result<Vec<Token>> {
    let unusable = || UsageError(format!("can't read `--token-file {}`", path.display()));
    let text = std::fs::read_to_string(path).with_context(unusable)?;
    let tokens = Token::read(&text).with_context(unusable)?;
    if tokens.is_empty() {
        return Err(anyhow::anyhow!("it has no token").context(unusable()));
    }
    Ok(tokens)
}
