//! Connections: which a pool allows, which of them a job has, and which pools can't allow any. All
//! of them stay on this machine.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::thread;

use hatchery::error::NetworkError;
use hatchery::wire::Intake;
use hatchery::{Builder, Destination, Error, Hatchery, Helper, Isolation, Job, Outcome};
use serde_json::json;

use crate::found;
use crate::support::{self, exception, value};

/// A pool on threads, wherever the environment wants it: worker processes have no network.
fn builder() -> Builder {
    support::builder().isolation(Isolation::Threads)
}

/// The builds that have sockets and are here.
fn builds() -> impl Iterator<Item = PathBuf> {
    let builds = found::others().into_iter();
    builds.filter(|(name, _)| name.starts_with("wasix")).map(|(_, path)| path)
}

/// Sends five bytes back to each client.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let mut bytes = [0; 5];
            let _ = connection.read_exact(&mut bytes);
            let _ = connection.write_all(&bytes);
        }
    });
    address
}

fn destination(address: SocketAddr) -> Destination {
    Destination::address(address).unwrap()
}

/// A job that talks to this address.
fn talk(address: SocketAddr) -> Job {
    Job::code(format!(
        "import socket
s = socket.create_connection(('127.0.0.1', {})); s.sendall(b'there'); s.recv(5).decode()",
        address.port()
    ))
}

async fn run(pool: &Hatchery, job: Job) -> Outcome {
    pool.run(job).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_connects_to_what_its_pool_allows_or_to_a_part_of_that() {
    let (one, two, outside) = (echo(), echo(), echo());
    for path in builds() {
        let allowed = [one, two].map(destination);
        let builder = builder().workers(1).python(path);
        let pool = builder.allow_connect(allowed).start().await.unwrap();
        for address in [one, two] {
            let outcome = run(&pool, talk(address)).await;
            assert_eq!((value(&outcome), outcome.usage.network_bytes), (json!("there"), 10));
        }
        assert_eq!(exception(&run(&pool, talk(outside)).await).type_name, "PermissionError");
        // A part of it, or nothing.
        let part = |address| talk(address).allow_connect([destination(one)]);
        assert_eq!(value(&run(&pool, part(one)).await), json!("there"));
        assert_eq!(exception(&run(&pool, part(two)).await).type_name, "PermissionError");
        let outcome = run(&pool, talk(one).allow_connect([])).await;
        assert_eq!(exception(&outcome).type_name, "PermissionError");
        // More than that is refused.
        let error = pool.run(talk(one).allow_connect([destination(outside)])).await.unwrap_err();
        let expected = NetworkError::NotAllowed { destination: destination(outside) };
        assert!(matches!(&error, Error::Network(error) if *error == expected), "{error:?}");
        // A job that was sent has what the pool allows.
        let sent = json!({ "code": talk(two).source() });
        let sent = Job::from_wire(Intake::BATCH.job(sent).unwrap(), &Intake::BATCH).unwrap();
        assert_eq!(value(&run(&pool, sent).await), json!("there"));
        pool.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_connects_anew_in_each_turn_and_is_forked_without_its_connection() {
    let address = echo();
    for path in builds() {
        let builder = builder().workers(1).python(path);
        let pool = builder.allow_connect([destination(address)]).start().await.unwrap();
        let session = pool.session("talks").await.unwrap();
        assert_eq!(value(&session.run(talk(address)).await.unwrap()), json!("there"));
        let fork = session.fork("other").await.unwrap();
        for session in [&session, &fork] {
            let outcome = session.run(Job::code("s.recv(1)")).await.unwrap();
            assert_eq!(exception(&outcome).type_name, "ConnectionResetError");
            assert_eq!(value(&session.run(talk(address)).await.unwrap()), json!("there"));
        }
        pool.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_cannot_have_connections_does_not_start() {
    let allowed: Destination = "192.0.2.1:80".parse().unwrap();
    let default = builder().allow_connect([allowed.clone()]);
    let error = default.start().await.unwrap_err();
    let Error::Network(NetworkError::Build { reasons }) = &error else { panic!("{error:?}") };
    assert_eq!(reasons[..], ["`default`: it imports no sockets of WASIX"]);
    for path in builds() {
        let builder = builder().python(path).allow_connect([allowed.clone()]);
        let isolation = Isolation::Process { helper: Helper::from_env() };
        let error = builder.clone().isolation(isolation).start().await.unwrap_err();
        assert!(matches!(error, Error::Network(NetworkError::Isolation)), "{error:?}");
        // One build of several is enough; the others have none.
        let pool = builder.workers(1).start().await.unwrap();
        pool.drain().await;
    }
}
