//! MCP over HTTP, on the real build: who may call, sessions that only their name opens, and the
//! official client.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use axum::{Extension, Router};
use hatchery::Hatchery;
use serde_json::{Value, json};
use serve::{Caller, Service};
use test_support::mcp;
use tokio::runtime::Runtime;

/// A server with a path for each of two tenants, and one where nobody says who calls.
struct Server {
    runtime: Runtime,
    address: SocketAddr,
    pool: Hatchery,
}

impl Server {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let (address, pool) = runtime.block_on(async {
            let pool = Hatchery::builder().workers(2).start().await.unwrap();
            let mcp = serve::mcp::http(Service::new(pool.clone()), None, 1 << 20);
            let of = |tenant: &str| {
                let router = Router::new().route_service("/mcp", mcp.clone());
                router.layer(Extension(Caller::of_tenant(tenant).unwrap()))
            };
            let router = Router::new()
                .nest("/a", of("a"))
                .nest("/b", of("b"))
                .nest("/nobody", Router::new().route_service("/mcp", mcp.clone()));
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move { axum::serve(listener, router).await });
            (address, pool)
        });
        Self { runtime, address, pool }
    }

    /// Posts a message, and returns the connection.
    fn send(&self, tenant: &str, headers: &[(&str, &str)], message: &Value) -> TcpStream {
        self.request("POST", tenant, headers, &message.to_string())
    }

    fn request(
        &self,
        method: &str,
        tenant: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut lines = vec![
            format!("{method} /{tenant}/mcp HTTP/1.1"),
            "Connection: close".to_owned(),
            "Content-Type: application/json".to_owned(),
            "Accept: application/json, text/event-stream".to_owned(),
            format!("Content-Length: {}", body.len()),
        ];
        if !headers.iter().any(|(name, _)| *name == "Host") {
            lines.push(format!("Host: {}", self.address));
        }
        lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
        write!(stream, "{}\r\n\r\n{body}", lines.join("\r\n")).unwrap();
        stream
    }

    /// Posts a message, and returns the head of the answer and the messages in it.
    fn post(&self, tenant: &str, headers: &[(&str, &str)], message: &Value) -> Answer {
        Answer::read(self.send(tenant, headers, message))
    }

    /// Opens a connection as older clients do, and returns its id and the answer.
    fn connect(&self, tenant: &str) -> (String, Answer) {
        let initialize = json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" },
            },
        });
        let begun = self.post(tenant, &[], &initialize);
        let id = begun.head.split("mcp-session-id: ").nth(1).unwrap().lines().next().unwrap();
        let id = id.to_owned();
        self.notify(tenant, &id, "notifications/initialized", json!({}));
        (id, begun)
    }

    fn notify(&self, tenant: &str, connection: &str, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        let answer = self.post(tenant, &[("Mcp-Session-Id", connection)], &message);
        assert_eq!(answer.status, 202, "{answer:?}");
    }

    /// Calls a tool by the newest protocol, in which each request stands alone.
    fn call(&self, tenant: &str, tool: &'static str, arguments: &Value) -> Value {
        let headers = modern("tools/call", Some(tool));
        let answer = self.post(tenant, &headers, &modern_call(tool, arguments));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.messages.last().unwrap().clone()
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    messages: Vec<Value>,
}

impl Answer {
    fn read(mut stream: TcpStream) -> Self {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let lines = body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
        let messages = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Answer {
            status: head[9..12].parse().unwrap(),
            head: head.to_lowercase(),
            messages: messages.filter(Value::is_object).collect(),
        }
    }
}

fn modern(method: &'static str, name: Option<&'static str>) -> Vec<(&'static str, &'static str)> {
    let version = ("MCP-Protocol-Version", "2026-07-28");
    let name = name.map(|name| ("Mcp-Name", name));
    [Some(version), Some(("Mcp-Method", method)), name].into_iter().flatten().collect()
}

fn modern_call(tool: &str, arguments: &Value) -> Value {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": tool, "arguments": arguments, "_meta": meta() },
    })
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

fn text(message: &Value) -> &str {
    message["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{message}"))
}

#[test]
fn only_its_tenant_and_its_name_open_a_session() {
    let server = Server::start();
    let call = |tenant, arguments| server.call(tenant, "run_python", &arguments);
    let opened = call("a", json!({ "code": "x = 1", "session": "new" }));
    let session = opened["result"]["structuredContent"]["session"].as_str().unwrap().to_owned();
    assert_eq!(session.len(), 32);
    assert!(text(&opened).contains(&session), "{opened}");
    let kept = call("a", json!({ "code": "x", "session": session }));
    assert_eq!(kept["result"]["structuredContent"]["value"], 1);

    let stolen = call("b", json!({ "code": "x", "session": session }));
    let guessed = call("a", json!({ "code": "x", "session": "mine" }));
    for refused in [stolen, guessed] {
        assert_eq!(refused["result"]["isError"], true, "{refused}");
        assert!(text(&refused).contains("there is no session"), "{refused}");
        assert!(text(&refused).contains("\"new\""), "{refused}");
    }
    let named = json!({ "session": session, "name": "mine" });
    let named = server.call("a", "fork_session", &named);
    assert!(text(&named).contains("no field `name`"), "{named}");
    let fork = server.call("a", "fork_session", &json!({ "session": session }));
    let fork = fork["result"]["structuredContent"]["session"].as_str().unwrap();
    assert!(fork.len() == 32 && fork != session, "{fork}");
    let many = server.call("a", "fork_session", &json!({ "session": session, "count": 3 }));
    let many = many["result"]["structuredContent"]["sessions"].as_array().unwrap().clone();
    assert_eq!(many.len(), 3, "{many:?}");
    let invalid = json!({ "session": session, "count": 101 });
    let invalid = server.call("a", "fork_session", &invalid);
    assert!(text(&invalid).contains("from 1 to 100"), "{invalid}");

    let list = json!({
        "jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": { "_meta": meta() },
    });
    let listed = server.post("a", &modern("resources/list", None), &list);
    assert_eq!(listed.messages[0]["result"]["resources"], json!([]), "{listed:?}");
}

#[test]
fn advice_names_the_arguments_of_the_tool() {
    let server = Server::start();
    for (code, advice) in [
        ("open('a.csv')", "the argument `files` gives it a copy"),
        ("input()", "the argument `stdin` gives it some"),
        ("while True: pass", "`timeout`, up to the server's `--timeout`, raises it"),
    ] {
        let ran = server.call("a", "run_python", &json!({ "code": code, "timeout": 0.5 }));
        let told = ran["result"].to_string();
        assert!(text(&ran).contains(advice) && !told.contains("--input"), "{told}");
        assert!(!told.contains("Limits::") && !told.contains("Job::"), "{told}");
    }
}

#[test]
fn a_call_can_not_raise_the_pools_limits() {
    let server = Server::start();
    let refused = server.call("a", "run_python", &json!({ "code": "1", "limits": {} }));
    assert!(text(&refused).contains("`limits` can't be used here"), "{refused}");
}

#[test]
fn strangers_and_web_pages_are_refused() {
    let server = Server::start();
    let (call, headers) =
        (modern_call("list_packages", &json!({})), modern("tools/call", Some("list_packages")));
    let with = |more: (&'static str, &'static str)| {
        let headers: Vec<_> = headers.iter().copied().chain([more]).collect();
        server.post("a", &headers, &call).status
    };
    assert_eq!(with(("Host", "evil.example")), 403);
    assert_eq!(with(("Origin", "https://evil.example")), 403);
    assert_eq!(with(("X-Any", "1")), 200);
    let stranger = server.post("nobody", &headers, &call);
    let message = &stranger.messages[0];
    assert_eq!(message["error"]["message"], "the caller is unknown", "{stranger:?}");
    // So little too long that the client has sent all of it when it is refused.
    let long = json!({ "code": "#".repeat(1 << 20) });
    let headers = modern("tools/call", Some("run_python"));
    let answer = server.post("a", &headers, &modern_call("run_python", &long));
    assert_eq!(answer.status, 413, "{answer:?}");
}

#[test]
fn older_clients_have_connections_and_cancel_by_a_notification() {
    let server = Server::start();
    let (connection, begun) = server.connect("a");
    assert_eq!(begun.messages[0]["result"]["protocolVersion"], "2025-06-18", "{begun:?}");
    let headers = [("Mcp-Session-Id", connection.as_str())];
    let call = |id: u32, arguments: Value| {
        json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "run_python", "arguments": arguments },
        })
    };
    let opened = server.post("a", &headers, &call(1, json!({ "code": "x = 1", "session": "new" })));
    let result = &opened.messages.last().unwrap()["result"];
    let session = result["structuredContent"]["session"].clone();
    let endless = json!({ "code": "while True: pass", "session": session });
    let stream = server.send("a", &headers, &call(2, endless));
    while server.pool.status().running == 0 {
        std::thread::yield_now();
    }
    server.notify("a", &connection, "notifications/cancelled", json!({ "requestId": 2 }));
    let after = server.post("a", &headers, &call(3, json!({ "code": "x", "session": session })));
    let result = &after.messages.last().unwrap()["result"];
    assert_eq!(result["structuredContent"]["value"], 1, "{after:?}");
    stream.shutdown(Shutdown::Both).unwrap();
}

#[test]
fn a_connection_is_of_use_only_to_the_caller_who_opened_it() {
    let server = Server::start();
    let (connection, _) = server.connect("a");
    let headers = [("Mcp-Session-Id", connection.as_str())];
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let untagged = connection.split('.').next().unwrap();
    // Another tenant's, one without its tag, and one with another tag.
    for (tenant, id) in [
        ("b", connection.clone()),
        ("a", untagged.to_owned()),
        ("a", format!("{untagged}.{}", "0".repeat(64))),
        ("a", format!("x{connection}")),
    ] {
        let headers = [("Mcp-Session-Id", id.as_str()), ("Accept", "text/event-stream")];
        for method in ["DELETE", "GET"] {
            let answer = Answer::read(server.request(method, tenant, &headers, ""));
            assert_eq!(answer.status, 404, "{method} {answer:?}");
        }
        let answer = server.post(tenant, &headers[..1], &list);
        assert_eq!(answer.status, 404, "{answer:?}");
    }
    assert_eq!(server.post("a", &headers, &list).status, 200);
    assert_eq!(Answer::read(server.request("DELETE", "a", &headers, "")).status, 202);
    assert_eq!(server.post("a", &headers, &list).status, 404);
}

#[test]
fn a_client_that_goes_away_ends_its_program() {
    let server = Server::start();
    let headers = modern("tools/call", Some("run_python"));
    let call = modern_call("run_python", &json!({ "code": "while True: pass" }));
    let stream = server.send("a", &headers, &call);
    while server.pool.status().running == 0 {
        std::thread::yield_now();
    }
    drop(stream);
    // The limit on its time, 30 s, is far away.
    let ended = server.runtime.block_on(async {
        let free = async {
            while server.pool.status().running > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), free).await
    });
    assert!(ended.is_ok(), "it still runs");
}

#[test]
fn the_official_client_finds_what_it_expects() {
    let Some(environment) = mcp::environment() else { return };
    let server = Server::start();
    let address = format!("http://{}/a/mcp", server.address);
    mcp::check(environment.path(), &[&address]);
}
