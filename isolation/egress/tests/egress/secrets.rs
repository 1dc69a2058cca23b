//! Secrets reach their hosts, and nothing of them comes back.

use std::io::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use egress::{EgressLimits, JobOptions, Secret, SecretSource};
use futures_util::stream;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;

use crate::support::{Guest, Server, egress, full};

const HOST: &str = "api.example.com";
const VALUE: &str = "sk-\"live\"/0123 <456>&+abc";

#[tokio::test]
async fn echoes_are_replaced_in_all_forms() {
    let value = VALUE;
    let forms = [
        value.to_owned(),
        serde_json::to_string(value).unwrap(),
        serde_json::to_string(value).unwrap().replace('/', "\\/"),
        percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC)
            .to_string()
            .replace("%2D", "-"),
        "sk-%22live%22%2f0123+%3c456%3e%26%2babc".to_owned(),
        "sk-%22live%22%2F0123+%3C456%3E%26%2Babc".to_owned(),
        hex::encode(value),
        hex::encode_upper(value),
        "sk-\"live\"/0123 &lt;456&gt;&amp;+abc".to_owned(),
        "sk-&quot;live&quot;/0123 &lt;456&gt;&amp;+abc".to_owned(),
        STANDARD.encode(value),
        STANDARD.encode(format!("user:{value}")),
        STANDARD.encode(format!("users:{value}:x")),
        URL_SAFE_NO_PAD.encode(format!("a{value}")),
    ];
    let texts = Arc::new(forms);
    let served = Arc::clone(&texts);
    let handler = move |head: &http::request::Parts, _: &Bytes| {
        assert!(head.headers["authorization"].to_str().unwrap().contains(VALUE));
        assert_eq!(head.headers["accept-encoding"], "identity");
        assert!(!head.headers.contains_key("range"));
        let mut parts = head.uri.path()[1..].split('/').map(|part| part.parse::<usize>().unwrap());
        let (form, size) = (&served[parts.next().unwrap()], parts.next().unwrap());
        let text = format!("before {form} after {form}");
        let frames: Vec<_> = text.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
        let frames = frames.into_iter().map(|chunk| Ok(Frame::data(chunk)));
        let response =
            Response::builder().header("X-Echo", format!("a {form} b")).header("ETag", "x");
        response.body(BodyExt::boxed(StreamBody::new(stream::iter(frames)))).unwrap()
    };
    let server = Server::new(true, Arc::new(handler)).await;
    let port = server.port;
    let secrets = vec![Secret::new("TOKEN", VALUE, &format!("https://{HOST}:{port}")).unwrap()];
    let egress =
        egress(&[format!("GET https://{HOST}:{port}/* private")], secrets, EgressLimits::default());
    let guest = Guest::with(&egress, {
        let mut options = JobOptions::default();
        options.records = true;
        options
    });
    let placeholder = guest.0.environment()["TOKEN"].clone();
    assert!(placeholder.starts_with("hatchery-secret-TOKEN-") && placeholder.len() == 54);
    let mut client = guest.client(HOST, port, true).await.unwrap();
    let bearer = format!("Bearer {placeholder}");
    for number in 0..texts.len() {
        for size in [1, 2, 3, 7, 1000] {
            let headers = [
                ("Authorization", &*bearer),
                ("Accept-Encoding", "gzip, br"),
                ("Range", "bytes=0-3"),
            ];
            let response =
                client.send("GET", &format!("/{number}/{size}"), &headers, full("")).await.unwrap();
            let echoed = response.headers()["x-echo"].to_str().unwrap().to_owned();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let body = String::from_utf8(body.to_vec()).unwrap();
            let form = &texts[number];
            for text in [&echoed, &body] {
                assert!(text.contains(&placeholder), "{form} by {size}: {text}");
                assert!(!text.contains(&**form), "{form} by {size}: {text}");
            }
            assert!(body.starts_with("before ") && body.contains(" after "), "{body}");
        }
    }
    let outcome = guest.finish();
    let recording = serde_json::to_string(outcome.recording.as_ref().unwrap()).unwrap();
    for text in [format!("{outcome:?}"), format!("{egress:?}"), recording] {
        texts.iter().for_each(|form| assert!(!text.contains(&**form)));
    }
}

#[tokio::test]
async fn what_cannot_be_searched_is_refused() {
    let handler = |head: &http::request::Parts, _: &Bytes| match head.uri.path() {
        "/gzip" => {
            Response::builder().header("Content-Encoding", "gzip").body(full("zzz")).unwrap()
        }
        "/identity" => {
            Response::builder().header("Content-Encoding", "identity").body(full("x")).unwrap()
        }
        _ => Response::builder()
            .status(304)
            .header("Content-Encoding", "gzip")
            .body(full(""))
            .unwrap(),
    };
    let server = Server::new(false, Arc::new(handler)).await;
    let port = server.port;
    let secrets = vec![Secret::new("TOKEN", VALUE, &format!("http://{HOST}:{port}")).unwrap()];
    let rules = [
        format!("GET http://{HOST}:{port}/* private"),
        format!("GET http://other.example.com:{port}/* private"),
    ];
    let guest = Guest::new(&egress(&rules, secrets, EgressLimits::default()));
    for (host, path, is_allowed) in [
        (HOST, "/gzip", false),
        (HOST, "/identity", true),
        (HOST, "/unchanged", true),
        ("other.example.com", "/gzip", true),
    ] {
        let mut client = guest.client(host, port, false).await.unwrap();
        assert_eq!(
            client.send("GET", path, &[], full("")).await.is_ok(),
            is_allowed,
            "{host} {path}"
        );
    }
}

#[tokio::test]
async fn a_placeholder_that_a_redirect_brings_elsewhere_is_refused() {
    let other = Server::new(false, Arc::new(|_, _| Response::new(full("x")))).await;
    let location = format!("http://other.example.com:{}/?echo={VALUE}", other.port);
    let location = location.replace(['"', ' ', '<', '>'], "_");
    let value = VALUE.replace(['"', ' ', '<', '>'], "_");
    let handler = move |_: &http::request::Parts, _: &Bytes| {
        Response::builder().status(302).header("Location", &location).body(full("")).unwrap()
    };
    let server = Server::new(false, Arc::new(handler)).await;
    let secrets =
        vec![Secret::new("TOKEN", &value, &format!("http://{HOST}:{}", server.port)).unwrap()];
    let rules = [
        format!("GET http://{HOST}:{}/* private", server.port),
        format!("GET http://other.example.com:{}/* private", other.port),
    ];
    let guest = Guest::new(&egress(&rules, secrets, EgressLimits::default()));
    let placeholder = guest.0.environment()["TOKEN"].clone();
    let mut client = guest.client(HOST, server.port, false).await.unwrap();
    let response =
        client.send("GET", "/", &[("Authorization", &placeholder)], full("")).await.unwrap();
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    assert_eq!(location, format!("http://other.example.com:{}/?echo={placeholder}", other.port));
    let mut client = guest.client("other.example.com", other.port, false).await.unwrap();
    let target = location.split_once(&other.port.to_string()).unwrap().1;
    assert!(client.send("GET", target, &[], full("")).await.is_err());
    assert!(other.take_seen().is_empty());
}

#[tokio::test]
async fn bodies_have_secrets_in_their_own_form() {
    let server = Server::new(false, Arc::new(|_, _| Response::new(full("x")))).await;
    let port = server.port;
    let secrets = vec![Secret::new("TOKEN", VALUE, &format!("http://{HOST}:{port} body")).unwrap()];
    let guest = Guest::new(&egress(
        &[format!("POST http://{HOST}:{port}/* private")],
        secrets,
        EgressLimits::default(),
    ));
    let placeholder = guest.0.environment()["TOKEN"].clone();
    let json = serde_json::json!({"key": VALUE, "n": 1}).to_string();
    let form = "key=sk-%22live%22%2F0123%20%3C456%3E%26%2Babc&n=1";
    for (kind, body, expected) in [
        ("application/json", format!("{{\"key\":\"{placeholder}\",\"n\":1}}"), &*json),
        ("application/x-www-form-urlencoded", format!("key={placeholder}&n=1"), form),
        ("text/plain", format!("{placeholder}{placeholder}"), &VALUE.repeat(2)),
    ] {
        for is_chunked in [false, true] {
            let mut client = guest.client(HOST, port, false).await.unwrap();
            let frames = body
                .as_bytes()
                .chunks(5)
                .map(|chunk| Ok(Frame::data(Bytes::copy_from_slice(chunk))));
            let frames: Vec<_> = frames.collect();
            let sent = match is_chunked {
                true => BodyExt::boxed(StreamBody::new(stream::iter(frames))),
                false => full(body.clone()),
            };
            let response = client.send("POST", "/", &[("Content-Type", kind)], sent).await.unwrap();
            assert_eq!(response.status(), 200);
            let seen = server.take_seen();
            assert!(seen[0].text.ends_with(&format!(" {expected}")), "{}", seen[0].text);
            let length = format!("\"content-length\": \"{}\"", expected.len());
            assert_eq!(seen[0].text.contains(&length), !is_chunked, "{}", seen[0].text);
        }
    }
}

#[tokio::test]
async fn events_have_placeholders_only() {
    let server = Server::new(false, Arc::new(|_, _| Response::new(full("x")))).await;
    let port = server.port;
    let secrets =
        vec![Secret::new("TOKEN", VALUE, &format!("http://{HOST}:{port} query")).unwrap()];
    let egress =
        egress(&[format!("GET http://{HOST}:{port}/* private")], secrets, EgressLimits::default());
    let events = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&events);
    let mut options = JobOptions::default();
    options.on_end = Some(Box::new(move |log| kept.lock().push(format!("{log:?}"))));
    let guest = Guest::with(&egress, options);
    let placeholder = guest.0.environment()["TOKEN"].clone();
    let mut client = guest.client(HOST, port, false).await.unwrap();
    assert_eq!(client.fetch("GET", &format!("/?{placeholder}"), "").await.0, 200);
    assert_eq!(guest.open("evil.org", 80).await.unwrap_err().0, 2);
    let log = guest.finish().requests;
    assert_eq!(log[0].url, format!("http://{HOST}:{port}/?{placeholder}"));
    assert_eq!((log[0].status, log[0].label(), log[1].label()), (Some(200), "success", "rule"));
    let events = events.lock();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events[0].starts_with("RequestLog { method: \"GET\""));
    assert!(events.iter().all(|event| !event.contains("sk-")));
    assert!(server.take_seen()[0].line.starts_with("GET /?sk-%22live%22%2F0123%20"));
}

#[test]
fn secrets_are_read_and_checked() {
    let folder = std::env::temp_dir().join(format!("egress-secret-{}", std::process::id()));
    let mut file = std::fs::File::create(&folder).unwrap();
    writeln!(file, "from@file-0123\r").unwrap();
    let text = format!("KEY=file:{}@https://api.example.com", folder.display());
    let secret = text.parse::<SecretSource>().unwrap().load().unwrap();
    assert_eq!((secret.name(), format!("{secret:?}")), ("KEY", "Secret(KEY)".to_owned()));
    std::fs::remove_file(&folder).unwrap();
    let problem = text.parse::<SecretSource>().unwrap().load().unwrap_err().to_string();
    assert!(problem.contains("can't be read"), "{problem}");
    let new = |value: &str| Secret::new("KEY", value, "https://api.example.com");
    assert!(new("12345678").is_ok());
    for value in ["1234567", "two\nlines of it", "\u{e9}t\u{e9} 2026", &"x".repeat(9000)] {
        let problem = new(value).unwrap_err().to_string();
        assert!(problem.starts_with("the secret `KEY` can't be used: it must"), "{problem}");
        assert!(!problem.contains(value));
    }
}
