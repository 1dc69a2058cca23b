//! Sockets of a network as modules use them, without Python: refused without a grant, and what they
//! do with one. All connections stay on this machine.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;
use crate::host::network::RunNetwork;
use crate::interpreter::image::format::SavedHost;
use crate::interrupt::gate::GateRun;
use crate::limits::LimitKind;
use crate::run::network::Destination;

/// Where a module has the address that it connects to, what it sends, and what it receives.
const ADDRESS: u32 = 64;
const RECEIVED: u32 = 1024;

/// Returns a module whose function `main` opens a socket, connects it, and does `steps`. The first
/// step that fails ends it with its error. Its function `again` does `later`.
fn client(peer: SocketAddr, steps: &str, later: &str) -> String {
    let IpAddr::V4(ip) = peer.ip() else { panic!("IPv4 is used here") };
    let bytes = [&[1, 0][..], &peer.port().to_le_bytes(), &ip.octets()].concat();
    let data: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
    let attempt = |steps: &str| {
        let steps = steps.lines().map(str::trim).filter(|step| !step.is_empty());
        let attempts = steps.map(|step| format!("(br_if $end (local.tee $error (call {step})))\n"));
        format!(
            "(local $error i32) (block $end {}) (local.get $error)",
            attempts.collect::<String>()
        )
    };
    let open = "$open (i32.const 1) (i32.const 1) (i32.const 6) (i32.const 0)\n";
    let connect = "$connect (i32.load (i32.const 0)) (i32.const 64)\n";
    let (main, again) = (attempt(&format!("{open}{connect}{steps}")), attempt(later));
    format!(
        r#"(module
            (import "wasix_32v1" "sock_open" (func $open (param i32 i32 i32 i32) (result i32)))
            (import "wasix_32v1" "sock_connect" (func $connect (param i32 i32) (result i32)))
            (import "{WASI}" "sock_send" (func $send (param i32 i32 i32 i32 i32) (result i32)))
            (import "{WASI}" "sock_recv" (func $recv (param i32 i32 i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1 1)
            (data (i32.const {ADDRESS}) "{data}")
            (data (i32.const 128) "\00\01\00\00\04\00\00\00\00\04\00\00\00\01\00\00")
            (data (i32.const 256) "ping")
            (func (export "main") (result i32) {main})
            (func (export "again") (result i32) {again}))"#
    )
}

/// Sends four bytes.
const SEND: &str = "$send (i32.load (i32.const 0)) (i32.const 128) (i32.const 1) (i32.const 0) \
                    (i32.const 16)\n";
/// Receives up to 256 bytes.
const RECEIVE: &str = "$recv (i32.load (i32.const 0)) (i32.const 136) (i32.const 1) (i32.const 0) \
                       (i32.const 20) (i32.const 24)\n";

/// A client that has been started, with what its run may reach.
struct Client {
    bound: Bound,
    instance: Instance,
    run: GateRun,
}

impl Client {
    fn start(text: &str, reaches: &[SocketAddr], most_bytes: u64) -> Self {
        let mut bound = Bound::in_real_time();
        let instance = bound.start(text);
        let run = bound.gate.begin();
        let mut client = Self { bound, instance, run };
        client.begin_run(reaches, most_bytes);
        client
    }

    fn begin_run(&mut self, reaches: &[SocketAddr], most_bytes: u64) {
        self.bound.begin_run();
        let destinations = reaches.iter().map(|address| Destination::address(*address).unwrap());
        let network = RunNetwork::new(destinations.collect(), most_bytes);
        self.bound.wasi.lock().network = network;
    }

    fn call(&mut self, name: &str) -> Result<i32, RuntimeError> {
        let Bound { store, gate, .. } = &mut self.bound;
        let function = self.instance.exports.get_typed_function::<(), i32>(store, name).unwrap();
        gate.guest(|| function.call(store)).unwrap_or_else(|stopped| Err(unwind(stopped)))
    }

    /// Returns what the module has received.
    fn received(&self) -> Vec<u8> {
        let guest = &self.bound.wasi.lock().guest;
        let len = u32::from_le_bytes(guest.read(20).unwrap());
        let bytes: [u8; 256] = guest.read(RECEIVED).unwrap();
        bytes[..len as usize].to_vec()
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Accepts one connection and serves it on a thread.
fn serve(
    listener: TcpListener,
    serve: impl FnOnce(TcpStream) + Send + 'static,
) -> thread::JoinHandle<()> {
    thread::spawn(move || serve(listener.accept().unwrap().0))
}

#[test]
fn without_a_grant_a_socket_is_refused() {
    let (listener, address) = listen();
    let mut client = Client::start(&client(address, "", ""), &[], 100);
    assert_eq!(client.call("main").unwrap(), Errno::Access.code());
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_grant_is_for_its_address_and_its_port_alone() {
    let (listener, address) = listen();
    let echo = serve(listener, |mut connection| {
        let mut bytes = [0; 4];
        connection.read_exact(&mut bytes).unwrap();
        connection.write_all(&bytes).unwrap();
    });
    let mut granted =
        Client::start(&client(address, &format!("{SEND}{RECEIVE}"), ""), &[address], 100);
    assert_eq!(granted.call("main").unwrap(), 0);
    assert_eq!(granted.received(), b"ping");
    assert_eq!(granted.bound.wasi.lock().network.used_bytes(), 8);
    echo.join().unwrap();

    let (other_listener, other) = listen();
    let mut refused = Client::start(&client(other, "", ""), &[address], 100);
    assert_eq!(refused.call("main").unwrap(), Errno::Access.code());
    let elsewhere = SocketAddr::new([127, 0, 0, 2].into(), address.port());
    let mut refused = Client::start(&client(elsewhere, "", ""), &[address], 100);
    assert_eq!(refused.call("main").unwrap(), Errno::Access.code());
    other_listener.set_nonblocking(true).unwrap();
    assert_eq!(other_listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_deterministic_guest_has_no_network() {
    let (_listener, address) = listen();
    let mut bound = Bound::new();
    let instance = bound.start(&client(address, "", ""));
    let network = [Destination::address(address).unwrap()].into_iter().collect();
    bound.wasi.lock().begin_run(RunStreams {
        transcript: Arc::default(),
        stdin: Vec::new(),
        stops_at_output_limit: false,
        most_calls: u64::MAX,
        network: RunNetwork::new(network, 100),
    });
    bound.gate.begin();
    assert_eq!(bound.run(&instance).unwrap(), Errno::Access.code());
}

#[test]
fn a_wait_is_stopped_at_once() {
    let (listener, address) = listen();
    let mut client = Client::start(&client(address, RECEIVE, ""), &[address], 100);
    let (run, handle) = (client.run, Arc::clone(&client.bound.gate));
    let server = serve(listener, move |mut connection| {
        assert!(handle.stop(run, StopReason::WallTime));
        // Nothing came, and the guest's end closes with the guest.
        assert_eq!(connection.read(&mut [0]).unwrap(), 0);
    });
    let begun = Instant::now();
    assert!(client.call("main").is_err());
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(client.bound.gate.end().stop, Some(StopReason::WallTime));
    drop(client);
    server.join().unwrap();
}

#[test]
fn bytes_are_limited_in_both_directions() {
    let (listener, address) = listen();
    let server = serve(listener, |mut connection| {
        connection.write_all(&[7; 100]).unwrap();
        let mut bytes = Vec::new();
        connection.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"pi");
    });
    let mut client =
        Client::start(&client(address, RECEIVE, &format!("{SEND}{SEND}")), &[address], 100);
    assert_eq!(client.call("main").unwrap(), 0);
    let received = client.received().len() as u64;
    client.bound.wasi.lock().network = {
        let network = [Destination::address(address).unwrap()].into_iter().collect();
        RunNetwork::new(network, 2)
    };
    assert_eq!(client.call("again").unwrap(), Errno::NoBuffers.code());
    let network = client.bound.wasi.lock().end_run();
    let hit = network.refusal().unwrap();
    assert_eq!((hit.limit, hit.allowed, hit.used), (LimitKind::NetworkBytes, 2, 6));
    assert!((1..=100).contains(&received));
    server.join().unwrap();
}

#[test]
fn connections_close_at_the_end_of_the_run_and_are_in_no_state() {
    let (listener, address) = listen();
    let server = serve(listener, |mut connection| {
        assert_eq!(connection.read(&mut [0]).unwrap(), 0, "it is closed, and nothing came");
    });
    let mut client = Client::start(&client(address, "", RECEIVE), &[address], 100);
    assert_eq!(client.call("main").unwrap(), 0);
    client.bound.host.end_run(true);
    server.join().unwrap();
    let state = client.bound.host.state().unwrap();
    assert!(SavedHost::is_all_of(&state));
    let revived = SavedHost::of(&state).revive(&layout()).unwrap();
    for state in [state, revived] {
        client.bound.host.set_state(state);
        client.begin_run(&[address], 100);
        assert_eq!(client.call("again").unwrap(), Errno::ConnectionReset.code());
    }
}

#[test]
fn a_refused_connection_is_an_error_and_the_socket_is_as_new() {
    let (listener, address) = listen();
    drop(listener);
    let connect = "$connect (i32.load (i32.const 0)) (i32.const 64)\n";
    let mut client = Client::start(&client(address, "", connect), &[address], 100);
    assert_eq!(client.call("main").unwrap(), Errno::ConnectionRefused.code());
    assert_eq!(client.call("again").unwrap(), Errno::ConnectionRefused.code());
}
