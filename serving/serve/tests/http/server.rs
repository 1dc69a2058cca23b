//! Servers for the tests, on one pool where that is possible.

use std::sync::LazyLock;

use axum::Router;
use hatchery::decision::{DecisionKind, Decisions, NextDecision};
use hatchery::{Builder, Hatchery};
use serve::Service;
use serve::http::{HttpConfig, Token};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::client::Client;

pub(crate) const ADA: &str = "secret-of-ada-0123456789";
pub(crate) const BOB: &str = "secret-of-bob-0123456789";
/// Tenants of one test each, which so knows their jobs.
pub(crate) const CLEO: &str = "secret-of-cleo-012345678";
pub(crate) const DORA: &str = "secret-of-dora-012345678";
pub(crate) const EVE: &str = "secret-of-eve-0123456789";
pub(crate) const OPERATOR: &str = "secret-of-the-operator-0";

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// The pool of most tests.
pub(crate) static POOL: LazyLock<Hatchery> = LazyLock::new(|| start(|builder| builder));

/// A server with tokens.
static SERVER: LazyLock<Client> = LazyLock::new(|| serve(&POOL, tokens()).client);

/// A server without tokens.
static OPEN: LazyLock<Client> = LazyLock::new(|| serve(&POOL, HttpConfig::default()).client);

/// A server that ends on request.
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) end: oneshot::Sender<()>,
    pub(crate) ended: oneshot::Receiver<()>,
}

pub(crate) fn start(configure: impl FnOnce(Builder) -> Builder) -> Hatchery {
    let builder = configure(Hatchery::builder().workers(2));
    RUNTIME.block_on(builder.start()).unwrap()
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.block_on(future)
}

pub(crate) fn tokens() -> HttpConfig {
    let mut config = HttpConfig::default();
    let tokens = format!("{ADA} ada\n{BOB} bob\n{CLEO} cleo\n{DORA} dora\n{EVE} eve\n{OPERATOR}");
    config.tokens = Token::read(&tokens).unwrap();
    config
}

pub(crate) fn serve(pool: &Hatchery, config: HttpConfig) -> Server {
    serve_with(Service::new(pool.clone()), config, Router::new())
}

pub(crate) fn serve_with(service: Service, config: HttpConfig, routes: Router) -> Server {
    let _runtime = RUNTIME.enter();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let client = Client { address: listener.local_addr().unwrap(), token: None };
    let (end, ends) = oneshot::channel();
    let (report, ended) = oneshot::channel();
    RUNTIME.spawn(async move {
        // A test that doesn't end its server drops the sender at once.
        let ends = async {
            if ends.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let started = std::future::ready((service, routes));
        serve::http::serve([listener], config, started, ends).await.unwrap();
        let _ = report.send(());
    });
    Server { client, end, ended }
}

pub(crate) fn with(token: &'static str) -> Client {
    Client { token: Some(token), ..SERVER.clone() }
}

pub(crate) fn without_token() -> Client {
    SERVER.clone()
}

pub(crate) fn open() -> Client {
    OPEN.clone()
}

/// Waits until a job has ended, and returns how.
pub(crate) fn end_of(mut decisions: Decisions, id: u64) -> &'static str {
    wait(async {
        loop {
            if let Some(NextDecision::Decision(decision)) = decisions.next().await
                && let DecisionKind::Ended { job, how } = decision.kind
                && job.0 == id
            {
                return how;
            }
        }
    })
}

/// Waits until a job of this tenant is admitted.
pub(crate) fn job_of(decisions: &mut Decisions, expected: &str) -> u64 {
    wait(async {
        loop {
            if let Some(NextDecision::Decision(decision)) = decisions.next().await
                && let DecisionKind::Admitted { job, tenant } = decision.kind
                && tenant == expected
            {
                return job.0;
            }
        }
    })
}
