//! A client of one server.

use std::net::{SocketAddr, TcpStream};

use serde_json::Value;
use test_support::http;

pub(crate) use http::{PATIENCE, Reply};

/// Sends requests to one server, with the same headers each time.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<&'static str>,
}

impl Client {
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &[], body.to_string().as_bytes())
    }

    /// Runs a job, and returns its result.
    pub(crate) fn run(&self, path: &str, code: &str) -> Value {
        let reply = self.post(path, &serde_json::json!({ "code": code }));
        assert_eq!(reply.status, 200);
        reply.json()
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let token = self.token.map(|token| format!("Bearer {token}"));
        let token = token.as_deref().map(|token| ("authorization", token));
        let headers: Vec<_> = token.into_iter().chain(headers.iter().copied()).collect();
        let url = format!("http://{}{path}", self.address);
        http::request(method, &url, &headers, body).expect("an answer")
    }

    pub(crate) fn connect(&self) -> TcpStream {
        http::connect(self.address).unwrap()
    }
}
