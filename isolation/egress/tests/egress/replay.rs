//! Recorded exchanges are served without a network.

use std::sync::Arc;

use bytes::Bytes;
use egress::{Egress, EgressLimits, EgressRecording, JobOptions, Secret};
use http::Response;

use crate::support::{Guest, Server, TableResolver, egress_with, full};

const HOST: &str = "api.example.com";
const VALUE: &str = "sk-live-0123456789";

fn egress(port: u16) -> Arc<Egress> {
    let rules = [
        format!("GET,POST https://{HOST}:{port}/* private"),
        format!("GET http://nowhere.example.com:{port}/*"),
        format!("GET https://wrong.example.com:{port}/* private"),
    ];
    let secrets = vec![Secret::new("TOKEN", VALUE, &format!("https://{HOST}:{port}")).unwrap()];
    let resolver = TableResolver::default().with("nowhere.example.com", &[&[]]);
    egress_with(&rules, secrets, EgressLimits::default(), resolver)
}

/// What the program does in each run; returns what it saw.
async fn program(guest: &Guest, port: u16) -> Vec<String> {
    let mut seen = Vec::new();
    let token = guest.0.environment()["TOKEN"].clone();
    let stream = guest.open(HOST, port).await.unwrap();
    seen.push(format!("{:?}", guest.start_tls(stream, HOST).await.unwrap()));
    let mut client = guest.client(HOST, port, true).await.unwrap();
    for (method, path, body) in
        [("GET", "/a", ""), ("POST", "/b", "one"), ("POST", "/b", "two"), ("GET", "/a", "")]
    {
        let headers = [("Authorization", &*token)];
        let response = client.send(method, path, &headers, full(body)).await.unwrap();
        seen.push(format!("{:?}", response.headers().get("x-number")));
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        seen.push(String::from_utf8(body.to_vec()).unwrap());
    }
    seen.push(format!("{:?}", guest.open("nowhere.example.com", port).await));
    let stream = guest.open("wrong.example.com", port).await.unwrap();
    seen.push(format!("{:?}", guest.start_tls(stream, "wrong.example.com").await));
    seen.push(format!("{:?}", guest.open("evil.org", port).await));
    seen
}

#[tokio::test]
async fn a_recording_serves_the_same_program_again() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let handler = move |head: &http::request::Parts, body: &Bytes| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let token = head.headers["authorization"].to_str().unwrap().to_owned();
        let text = format!("{number} {} {token}", String::from_utf8_lossy(body));
        Response::builder().header("X-Number", number).body(full(text)).unwrap()
    };
    let server = Server::new(true, Arc::new(handler)).await;
    let port = server.port;
    let egress = egress(port);
    let mut options = JobOptions::default();
    options.records = true;
    let guest = Guest::with(&egress, options);
    let expected = program(&guest, port).await;
    let recording = guest.finish().recording.unwrap();
    assert_eq!(server.take_seen().len(), 4);
    let text = serde_json::to_string(&recording).unwrap();
    assert!(!text.contains(VALUE));
    let recording: EgressRecording = serde_json::from_str(&text).unwrap();

    let replay = || {
        let mut options = JobOptions::default();
        options.replays = Some(recording.clone());
        Guest::with(&egress, options)
    };
    let guest = replay();
    assert_eq!(program(&guest, port).await, expected);
    let log = guest.finish().requests;
    assert_eq!(log.iter().filter(|one| one.status == Some(200)).count(), 4, "{log:?}");

    // Another request isn't there; the error shows the nearest.
    for (method, path, body, nearest) in [
        ("GET", "/ab", "", format!("the nearest is its request 4, GET https://{HOST}:{port}/a")),
        ("POST", "/b", "three", "POST https://api.example.com:".to_owned()),
    ] {
        let guest = replay();
        let mut client = guest.client(HOST, port, true).await.unwrap();
        assert!(client.send(method, path, &[], full(body)).await.is_err());
        let log = guest.finish().requests;
        let failure = log[0].failure.clone().unwrap();
        assert_eq!(failure.kind, "replay");
        assert!(failure.message.contains(&nearest), "{failure:?}");
    }
    let guest = replay();
    let mut client = guest.client(HOST, port, true).await.unwrap();
    for expected in [true, true, false] {
        assert_eq!(client.send("GET", "/a", &[], full("")).await.is_ok(), expected);
    }
    let log = guest.finish().requests;
    let failure = log[2].failure.clone().unwrap();
    assert!(failure.message.contains("which the program has made already"), "{failure:?}");
    assert!(server.take_seen().is_empty());
}
