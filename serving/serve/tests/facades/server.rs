//! One server for all tests, and a client of plain HTTP.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::sync::LazyLock;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use hatchery::egress::{EgressFile, Rule};
use hatchery::{Hatchery, SessionsConfig, TenantConfig};
use serde_json::{Value, json};
use serve::{Caller, Service, facades};
use test_support::http::{self, Reply};
use tokio::runtime::Runtime;

/// Sends bodies of this type.
const JSON: &str = "application/json";

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

static SERVICE: LazyLock<Service> = LazyLock::new(|| {
    let builder = Hatchery::builder().workers(2).preload(["numpy", "pandas", "matplotlib"]);
    Service::new(RUNTIME.block_on(builder.start()).unwrap())
});

/// Its clones share their contexts.
static ROUTER: LazyLock<Router> = LazyLock::new(|| facades::router(&SERVICE));

static SERVER: LazyLock<Server> = LazyLock::new(|| Server::start(ROUTER.clone()));

/// A server on a free port.
pub(crate) struct Server {
    address: SocketAddr,
}

impl Server {
    /// The one that the tests share.
    pub(crate) fn shared() -> &'static Self {
        &SERVER
    }

    fn start(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let router = router.layer(middleware::from_fn(identify));
        RUNTIME.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
        Self { address }
    }

    /// One whose pool closes sessions that have been idle for this long.
    pub(crate) fn forgetful(idle: Duration) -> (Self, Hatchery) {
        let sessions = SessionsConfig {
            suspend_after: Duration::ZERO,
            close_after: Some(idle),
            ..SessionsConfig::default()
        };
        let builder = Hatchery::builder().workers(1).sessions(sessions);
        let pool = RUNTIME.block_on(builder.start()).unwrap();
        (Self::start(facades::router(&Service::new(pool.clone()))), pool)
    }

    /// One whose tenants have one session each.
    pub(crate) fn narrow() -> Self {
        let tenant = TenantConfig { sessions: 1, ..TenantConfig::default() };
        let builder = Hatchery::builder().workers(1).default_tenant(tenant);
        let pool = RUNTIME.block_on(builder.start()).unwrap();
        Self::start(facades::router(&Service::new(pool)))
    }

    /// One whose pool allows these requests.
    pub(crate) fn allowing(rules: &[&str]) -> Self {
        let mut egress = EgressFile::default();
        egress.allow.extend(rules.iter().map(|rule| rule.parse::<Rule>().unwrap()));
        let builder = Hatchery::builder().workers(1).egress(egress.load().unwrap());
        let pool = RUNTIME.block_on(builder.start()).unwrap();
        Self::start(facades::router(&Service::new(pool)))
    }

    /// One whose pool takes no more jobs.
    pub(crate) fn drained() -> Self {
        let pool = RUNTIME.block_on(async {
            let pool = Hatchery::builder().workers(1).start().await.unwrap();
            pool.drain().await;
            pool
        });
        Self::start(facades::router(&Service::new(pool)))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(path, body.to_string(), JSON, None)
    }

    /// As the layer in front would have it for a tenant.
    pub(crate) fn post_as(&self, tenant: &str, path: &str, body: &Value) -> Answer {
        self.send(path, body.to_string(), JSON, Some(tenant))
    }

    pub(crate) fn send(
        &self,
        path: &str,
        body: String,
        content_type: &str,
        tenant: Option<&str>,
    ) -> Answer {
        let headers = [("content-type", content_type), ("x-tenant", tenant.unwrap_or_default())];
        Answer::of(self.request("POST", path, &headers, &body))
    }

    pub(crate) fn get_as(&self, tenant: &str, path: &str) -> Answer {
        Answer::of(self.request("GET", path, &[("x-tenant", tenant)], ""))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.get_as("", path)
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.delete_as("", path)
    }

    /// As the SDK of E2B sends it to a sandbox.
    pub(crate) fn post_to(&self, sandbox: &str, tenant: &str, path: &str, body: &Value) -> Answer {
        let headers = [("content-type", JSON), ("e2b-sandbox-id", sandbox), ("x-tenant", tenant)];
        Answer::of(self.request("POST", path, &headers, &body.to_string()))
    }

    /// Sends a call with many answers, as the SDK of E2B does, and returns them as they come.
    pub(crate) fn call(
        &self,
        (sandbox, tenant): (&str, &str),
        method: &str,
        message: &Value,
        headers: &[(&str, &str)],
    ) -> impl Iterator<Item = Value> + use<> {
        let url = self.url(&format!("/process.Process/{method}"));
        let own = [("content-type", "application/connect+json"), ("x-tenant", tenant)];
        let headers = [own.as_slice(), &[("e2b-sandbox-id", sandbox)], headers].concat();
        let message = message.to_string();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let body = [&[0], length.as_slice(), message.as_bytes()].concat();
        let reply = http::request("POST", &url, &headers, &body).unwrap();
        assert_eq!(reply.status, 200);
        let mut body = reply.reader();
        std::iter::from_fn(move || {
            let mut prefix = [0; 5];
            // A call ends with its last message.
            body.read_exact(&mut prefix).ok()?;
            let [flags, length @ ..] = prefix;
            let mut message = vec![0; u32::from_be_bytes(length) as usize];
            body.read_exact(&mut message).unwrap();
            let message: Value = serde_json::from_slice(&message).unwrap();
            Some(if flags == 2 { json!({ "last": message }) } else { message["event"].clone() })
        })
    }

    pub(crate) fn delete_as(&self, tenant: &str, path: &str) -> Answer {
        Answer::of(self.request("DELETE", path, &[("x-tenant", tenant)], ""))
    }

    /// The lines of an answer as they come.
    pub(crate) fn lines(&self, path: &str, body: &Value) -> impl Iterator<Item = Value> + use<> {
        let headers = [("content-type", JSON)];
        let reply = self.request("POST", path, &headers, &body.to_string());
        assert_eq!(reply.status, 200);
        reply.lines().map(|line| serde_json::from_str(&line).unwrap())
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        http::request(method, &self.url(path), headers, body.as_bytes()).unwrap()
    }
}

/// Stands in for the layer that knows who calls.
async fn identify(mut request: Request, next: Next) -> Response {
    let tenant = request.headers().get("x-tenant").map(|name| name.to_str().unwrap().to_owned());
    if let Some(tenant) = tenant.filter(|name| !name.is_empty()) {
        request.extensions_mut().insert(Caller::of_tenant(tenant).unwrap());
    }
    next.run(request).await
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<String>,
    pub(crate) text: String,
}

impl Answer {
    fn of(reply: Reply) -> Self {
        let (status, retry_after) = (reply.status, reply.header("retry-after").map(str::to_owned));
        Self { status, retry_after, text: String::from_utf8(reply.bytes()).unwrap() }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        serde_json::from_str(&self.text).unwrap()
    }

    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text);
        self.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
