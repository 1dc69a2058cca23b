//! What tenants see of one another.

use serde_json::json;

use crate::server::{ADA, BOB, OPERATOR, open, with, without_token};

#[test]
fn sessions_of_another_tenant_do_not_exist() {
    let (ada, bob) = (with(ADA), with(BOB));
    assert_eq!(ada.post("/v1/sessions", &json!({ "name": "mine" })).status, 201);
    ada.run("/v1/sessions/mine/run", "secret = 7; open('f', 'w').write('x')");
    let code = json!({ "code": "secret" });
    for (method, path) in [
        ("POST", "/v1/sessions/mine/run"),
        ("POST", "/v1/run?session=mine"),
        ("POST", "/v1/run?session=ada/mine"),
        ("POST", "/v1/sessions/ada%2Fmine/run"),
        ("POST", "/v1/sessions/..%2Fada%2Fmine/run"),
        ("POST", "/v1/sessions/mine/fork"),
        ("GET", "/v1/sessions/mine/files"),
        ("GET", "/v1/sessions/mine/files/f"),
        ("GET", "/v1/sessions/ada%2Fmine/files/f"),
        ("DELETE", "/v1/sessions/mine"),
        ("DELETE", "/v1/sessions/ada%2Fmine"),
    ] {
        let body = if path.ends_with("fork") { json!({ "to": "stolen" }) } else { code.clone() };
        let reply = bob.send(method, path, &[], body.to_string().as_bytes());
        assert_eq!((reply.status, reply.reason().as_str()), (404, "no_session"), "{path}");
    }
    // The name is free for others.
    assert_eq!(bob.post("/v1/sessions", &json!({ "name": "mine" })).status, 201);
    assert_eq!(bob.run("/v1/sessions/mine/run", "secret")["error"]["type"], "NameError");
    assert_eq!(bob.delete("/v1/sessions/mine").status, 200);
    assert_eq!(ada.run("/v1/sessions/mine/run", "secret")["value"], 7);
    assert_eq!(ada.delete("/v1/sessions/mine").status, 200);
}

#[test]
fn a_tenant_sees_its_own_status_alone() {
    let own = with(BOB).get("/v1/status").json();
    assert_eq!(own["tenant"], "bob");
    let mut fields: Vec<&String> = own.as_object().unwrap().keys().collect();
    fields.sort();
    assert_eq!(fields, ["phase", "queued", "running", "sessions", "tenant", "version"]);
    for client in [with(OPERATOR), open()] {
        assert!(client.get("/v1/status").json()["workers"].is_array());
    }
}

#[test]
fn what_is_about_everybody_needs_the_token_of_an_administrator() {
    for (method, path) in [("GET", "/v1/decisions"), ("GET", "/metrics"), ("POST", "/v1/drain")] {
        let reply = with(ADA).send(method, path, &[], b"");
        assert_eq!((reply.status, reply.reason().as_str()), (403, "administrator"), "{path}");
        let reply = without_token().send(method, path, &[], b"");
        assert_eq!(reply.status, 401, "{path}");
    }
    // Nobody drains a pool that others of this machine use, just by being there.
    assert_eq!(open().post("/v1/drain", &json!({})).status, 403);
}
