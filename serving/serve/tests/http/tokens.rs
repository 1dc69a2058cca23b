//! Tokens in other places than `Authorization: Bearer`, and servers without any.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};
use serve::http::{HttpConfig, HttpError};
use serve::{Service, facades};

use crate::client::{Client, Reply};
use crate::server::{ADA, BOB, OPERATOR, POOL, serve_with, tokens, wait};

const JSON: (&str, &str) = ("content-type", "application/json");

/// A server with tokens that clients of other products use, too.
fn server() -> Client {
    let service = Service::new(POOL.clone());
    let routes = facades::router(&service);
    serve_with(service, tokens(), routes).client
}

fn ask(client: &Client, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> Reply {
    let headers = [[JSON].as_slice(), headers].concat();
    client.send(method, path, &headers, body.to_string().as_bytes())
}

fn basic(pair: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(pair))
}

#[test]
fn clients_that_can_not_send_bearer_send_their_token_otherwise() {
    let client = server();
    let session = |name: &str| json!({ "name": name });
    let (pair, path) = (basic(&format!("any:{ADA}")), format!("/t/{ADA}/v1/sessions"));
    for (name, path, headers) in [
        ("in-key", "/v1/sessions", &[("x-api-key", ADA)][..]),
        ("in-basic", "/v1/sessions", &[("authorization", &pair)]),
        ("in-path", &path, &[]),
    ] {
        assert_eq!(ask(&client, "POST", path, headers, session(name)).status, 201, "{name}");
        // It is the tenant of that token.
        let own = Client { token: Some(ADA), ..client.clone() };
        assert!(own.get("/v1/sessions").json().to_string().contains(name), "{name}");
        let other = Client { token: Some(BOB), ..client.clone() };
        assert!(!other.get("/v1/sessions").json().to_string().contains(name), "{name}");
        assert_eq!(own.delete(&format!("/v1/sessions/{name}")).status, 200, "{name}");
    }
    let nearly = &ADA[1..];
    let pair = basic(&format!("any:{nearly}"));
    let refused: [(&str, &[(&str, &str)]); 5] = [
        ("/v1/status", &[("x-api-key", nearly)]),
        ("/v1/status", &[("authorization", &pair)]),
        (&format!("/t/{nearly}/v1/status"), &[]),
        (&format!("/v1/status/t/{ADA}"), &[]),
        ("/v1/status", &[("x-access-token", ADA), ("e2b-sandbox-id", "i")]),
    ];
    for (path, headers) in refused {
        let reply = client.send("GET", path, headers, b"");
        assert_eq!((reply.status, reply.reason()), (401, "token".to_owned()), "{path}");
        // No browser asks its user for a password.
        let reply = client.send("GET", path, headers, b"");
        assert!(reply.header("www-authenticate").unwrap().starts_with("Bearer"));
        let said = String::from_utf8(reply.bytes()).unwrap();
        // E2B's clients read the code.
        assert!(said.contains("\"code\":401") && !said.contains(nearly), "{said}");
    }
    let own = Client { token: Some(OPERATOR), ..client.clone() };
    let shown = String::from_utf8(own.get("/v1/status").bytes()).unwrap();
    assert!(!shown.contains(ADA) && !shown.contains("/t/"), "{shown}");
}

#[test]
fn a_browser_that_keeps_a_password_lets_no_other_site_in() {
    let client = server();
    let pair = basic(&format!("any:{ADA}"));
    let (own, port) = (format!("http://{}", client.address), client.address.port());
    let with = |more: (&str, &str)| {
        let headers = [("authorization", pair.as_str()), more];
        ask(&client, "POST", "/v1/run", &headers, json!({ "code": "1" })).status
    };
    assert_eq!(with(("accept", "*/*")), 200);
    for site in ["cross-site", "same-site", "same-origin", "none"] {
        assert_eq!(with(("sec-fetch-site", site)), 401, "{site}");
    }
    assert_eq!(with(("origin", &own)), 401);
    assert_eq!(with(("origin", &format!("http://evil.example:{port}"))), 403);
    assert_eq!(with(("origin", "null")), 403);
}

#[test]
fn what_a_sandbox_is_opened_with_opens_nothing_else() {
    let client = server();
    let template = json!({ "templateID": "base", "envVars": { "A": "1" } });
    let create = |token| {
        let made = ask(&client, "POST", "/v2/sandboxes", &[("x-api-key", token)], template.clone());
        assert_eq!(made.status, 201);
        made.json()
    };
    let (one, other) = (create(ADA), create(BOB));
    let of = |sandbox: &Value, name: &str| sandbox[name].as_str().unwrap().to_owned();
    let (id, access) = (of(&one, "sandboxID"), of(&one, "envdAccessToken"));
    assert_ne!(access, of(&other, "envdAccessToken"));
    assert!(!one.to_string().contains(ADA));
    let user = basic("root:");
    let to = |id: &str, method: &str, path: &str| {
        let headers = [
            ("e2b-sandbox-id", id),
            ("x-access-token", access.as_str()),
            ("authorization", user.as_str()),
        ];
        ask(&client, method, path, &headers, json!({ "code": "import os; os.environ['A']" }))
    };
    let ran = to(&id, "POST", "/execute");
    assert_eq!(ran.status, 200);
    assert!(String::from_utf8(ran.bytes()).unwrap().contains("\"text\":\"1\""));
    assert_eq!(to(&id, "GET", "/health").status, 200);
    assert_eq!(to(&of(&other, "sandboxID"), "POST", "/execute").status, 401);
    let path = format!("/sandboxes/{id}");
    for (method, path) in [
        ("POST", "/v1/run"),
        ("GET", "/v1/sessions"),
        ("GET", "/v2/sandboxes"),
        ("DELETE", path.as_str()),
        ("POST", "/run_code"),
    ] {
        assert_eq!(to(&id, method, path).status, 401, "{method} {path}");
    }
    // Another tenant has no such sandbox, whatever the access.
    let bob =
        [("x-api-key", BOB), ("e2b-sandbox-id", id.as_str()), ("x-access-token", access.as_str())];
    assert_eq!(ask(&client, "POST", "/execute", &bob, json!({ "code": "1" })).status, 502);
    assert_eq!(ask(&client, "DELETE", &path, &bob, json!({})).status, 404);
    assert_eq!(ask(&client, "DELETE", &path, &[("x-api-key", ADA)], json!({})).status, 204);
    assert_eq!(to(&id, "POST", "/execute").status, 502);
}

#[test]
fn a_trusted_network_needs_no_token() {
    let serve = |trusts_network| {
        wait(async {
            let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
            let mut config = HttpConfig::default();
            config.trusts_network = trusts_network;
            let started = std::future::ready((Service::new(POOL.clone()), axum::Router::new()));
            serve::http::serve([listener], config, started, std::future::ready(())).await
        })
    };
    assert!(matches!(serve(false), Err(HttpError::NoTokens(_))));
    assert!(serve(true).is_ok());
}
