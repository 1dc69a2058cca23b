//! Connections of programs on the builds for WASIX: to what was granted, and to nothing else. All
//! of them stay on this machine.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use engine::{
    Afterwards, Destination, Deterministic, Interpreter, LimitKind, Limits, Network, Outcome,
    Program, StopHandle, Verdict,
};
use serde_json::json;

use super::{REACTOR, THREADED, image, value};

/// Longer than anything here takes, and shorter than a wait that nothing ends.
const LONG: Duration = Duration::from_secs(20);

/// Begins an interpreter of each build for WASIX that is here.
fn interpreters() -> impl Iterator<Item = Interpreter> {
    let engines = [*REACTOR, *THREADED].into_iter().flatten();
    engines.map(|engine| image(engine).start().expect("it works here"))
}

/// Serves every connection with `answer`, on a thread of its own.
fn serve(answer: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let answer = answer.clone();
            thread::spawn(move || answer(connection.unwrap()));
        }
    });
    address
}

/// Sends back what comes.
fn echo() -> SocketAddr {
    serve(|mut connection| {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = connection.read(&mut bytes) {
            if connection.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
    })
}

/// Never sends. Tells when a connection has begun, and when it has ended.
fn silent() -> (SocketAddr, Receiver<&'static str>) {
    let (tell, told) = channel();
    let address = serve(move |mut connection| {
        let _ = tell.send("begun");
        let _ = connection.read_to_end(&mut Vec::new());
        let _ = tell.send("ended");
    });
    (address, told)
}

/// Neither sends nor receives.
fn stuck() -> SocketAddr {
    serve(|connection| {
        let _connection = connection;
        loop {
            thread::park();
        }
    })
}

fn granted(source: &str, addresses: &[SocketAddr]) -> Program {
    let destinations = addresses.iter().map(|address| Destination::address(*address).unwrap());
    let network: Network = destinations.collect();
    Program { source: source.to_owned(), network, ..Program::default() }
}

fn run(interpreter: &mut Interpreter, program: &Program, limits: &Limits) -> (Outcome, Afterwards) {
    interpreter.run(program, limits, &Arc::default(), &StopHandle::default(), false)
}

fn run_granted(
    interpreter: &mut Interpreter,
    source: &str,
    addresses: &[SocketAddr],
) -> (Outcome, Afterwards) {
    run(interpreter, &granted(source, addresses), &Limits::default())
}

fn short() -> Limits {
    Limits { wall_time: Duration::from_millis(200), ..Limits::default() }
}

fn connecting(address: SocketAddr) -> String {
    format!("import socket; s = socket.create_connection(('127.0.0.1', {}))\n", address.port())
}

/// The name of the exception that a program ends with.
fn raised(outcome: &Outcome) -> &str {
    match &outcome.verdict {
        Verdict::Raised(exception) => &exception.type_name,
        verdict => panic!("{verdict:?}"),
    }
}

#[test]
fn a_program_connects_to_what_is_listed_and_to_nothing_else() {
    let (listed, other) = (echo(), echo());
    for mut interpreter in interpreters() {
        let talk = "s.sendall(b'there'); s.recv(9).decode(), s.getpeername()[1]";
        let (outcome, _) = run_granted(&mut interpreter, &(connecting(listed) + talk), &[listed]);
        assert_eq!(value(&outcome), json!(["there", listed.port()]));
        assert_eq!(outcome.usage.network_bytes, 10);
        let (outcome, _) = run_granted(&mut interpreter, &connecting(other), &[listed]);
        assert_eq!(raised(&outcome), "PermissionError");
        for source in [connecting(listed), "import socket; socket.socket()".to_owned()] {
            let (outcome, _) = run_granted(&mut interpreter, &source, &[]);
            assert_eq!(raised(&outcome), "PermissionError");
            let Verdict::Raised(exception) = outcome.verdict else { unreachable!() };
            assert!(
                exception.message.contains("let it connect to the hosts"),
                "{}",
                exception.message
            );
        }
        let source = "import socket; socket.getaddrinfo('example.com', 80)";
        for grants in [&[][..], &[listed]] {
            let (outcome, _) = run_granted(&mut interpreter, source, grants);
            assert_eq!(raised(&outcome), "socket.gaierror");
        }
    }
}

#[test]
fn nothing_listens_and_no_datagram_is_sent() {
    let listed = echo();
    let source = "import socket
names = []
def attempt(call, *args):
    try: call(*args)
    except OSError as error: names.append(type(error).__name__)
attempt(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
s = socket.socket()
attempt(s.bind, ('127.0.0.1', 0))
attempt(s.listen)
attempt(s.accept)
names";
    for mut interpreter in interpreters() {
        let (outcome, _) = run_granted(&mut interpreter, source, &[listed]);
        assert_eq!(value(&outcome), json!(["PermissionError", "OSError", "OSError", "OSError"]));
    }
}

#[test]
fn clients_of_the_library_work() {
    let web = serve(|mut connection| {
        let mut bytes = Vec::new();
        let mut more = [0; 1024];
        while !bytes.ends_with(b"\r\n\r\n") {
            match connection.read(&mut more) {
                Ok(count @ 1..) => bytes.extend_from_slice(&more[..count]),
                _ => return,
            }
        }
        let path = bytes.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        let body = "x".repeat(200_000) + &String::from_utf8_lossy(path);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let _ = connection.write_all((head + &body).as_bytes());
    });
    let port = web.port();
    let source = format!(
        "import http.client, urllib.request
c = http.client.HTTPConnection('127.0.0.1', {port}); c.request('GET', '/a')
with urllib.request.urlopen('http://127.0.0.1:{port}/b', timeout=10) as reply: other = reply.read()
[body[-2:].decode() + str(len(body)) for body in (c.getresponse().read(), other)]"
    );
    for mut interpreter in interpreters() {
        let (outcome, _) = run_granted(&mut interpreter, &source, &[web]);
        assert_eq!(value(&outcome), json!(["/a200002", "/b200002"]));
    }
}

#[test]
fn timeouts_polls_and_errors_are_those_of_sockets() {
    let listed = echo();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let source = connecting(listed)
        + &format!(
            "import select, selectors
s.settimeout(0.02); found = []
try: s.recv(1)
except TimeoutError: found.append('timeout')
found.append([len(part) for part in select.select([s], [s], [], 0)])
s.sendall(b'a'); found.append([len(part) for part in select.select([s], [], [], 10)])
found.append(s.recv(9, socket.MSG_PEEK).decode() + s.recv(9).decode())
with selectors.DefaultSelector() as selector:
    selector.register(s, selectors.EVENT_READ)
    found.append(len(selector.select(0.01))); s.send(b'b'); found.append(len(selector.select(None)))
s.setblocking(False); s.recv(1)
try: s.recv(1)
except BlockingIOError: found.append('would wait')
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.setblocking(True); s.shutdown(socket.SHUT_WR); found.append(s.recv(1).decode())
try: socket.create_connection(('127.0.0.1', {0}), timeout=10)
except ConnectionRefusedError: found.append('refused')
t = socket.socket(); t.setblocking(False)
try: t.connect(('127.0.0.1', {1}))
except BlockingIOError: pass
select.select([], [t], [], 10); found.append(t.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
found",
            gone.port(),
            listed.port()
        );
    for mut interpreter in interpreters() {
        let (outcome, _) = run_granted(&mut interpreter, &source, &[listed, gone]);
        let expected =
            json!(["timeout", [0, 1, 0], [1, 0, 0], "aa", 0, 1, "would wait", "", "refused", 0]);
        assert_eq!(value(&outcome), expected);
    }
}

#[test]
fn a_wait_for_a_connection_ends_at_the_limit_and_the_session_lives() {
    let address = stuck();
    let waits = [
        "s.recv(1)",
        "s.sendall(bytes(50_000_000))",
        "import select; select.select([s], [], [])",
        "s.settimeout(100); s.recv(1)",
        "s.makefile('rb').read()",
    ];
    for mut interpreter in interpreters() {
        for wait in waits {
            let begun = Instant::now();
            let program = granted(&(connecting(address) + wait), &[address]);
            let (outcome, afterwards) = run(&mut interpreter, &program, &short());
            let Verdict::Limit(hit) = outcome.verdict else { panic!("{wait}: {outcome:?}") };
            assert_eq!((hit.limit, afterwards), (LimitKind::Wall, Afterwards::Usable), "{wait}");
            assert!(begun.elapsed() < LONG, "{wait}");
        }
        let (outcome, _) = run_granted(&mut interpreter, "type(s).__name__", &[]);
        assert_eq!(value(&outcome), json!("socket"));
    }
}

#[test]
fn a_program_that_insists_on_waiting_is_stopped() {
    let address = stuck();
    let source = connecting(address)
        + "while True:\n    try:\n        s.recv(1)\n    except BaseException: pass";
    for mut interpreter in interpreters() {
        let limits = Limits { grace: Duration::from_millis(100), ..short() };
        let (outcome, afterwards) = run(&mut interpreter, &granted(&source, &[address]), &limits);
        assert!(matches!(outcome.verdict, Verdict::Limit(_)), "{outcome:?}");
        assert_eq!(afterwards, Afterwards::Lost);
    }
}

#[test]
fn an_interrupt_and_a_stop_end_a_wait_at_once() {
    for mut interpreter in interpreters() {
        for is_stop in [false, true] {
            let (address, told) = silent();
            let stop = StopHandle::default();
            let stops = stop.clone();
            let stopper = thread::spawn(move || {
                assert_eq!(told.recv(), Ok("begun"));
                match is_stop {
                    false => stops.interrupt(engine::StopReason::Interrupted),
                    true => stops.stop(engine::StopReason::Cancelled),
                }
                // The connection goes with the run.
                assert_eq!(told.recv(), Ok("ended"));
            });
            let program = granted(&(connecting(address) + "s.recv(1)"), &[address]);
            let limits = Limits { wall_time: LONG, ..Limits::default() };
            let (outcome, afterwards) =
                interpreter.run(&program, &limits, &Arc::default(), &stop, false);
            match is_stop {
                false => assert_eq!(raised(&outcome), "KeyboardInterrupt"),
                true => assert_eq!(outcome.verdict, Verdict::Cancelled),
            }
            assert_eq!(afterwards == Afterwards::Lost, is_stop);
            interpreter.reset().expect("it works here");
            stopper.join().unwrap();
        }
    }
}

#[test]
fn bytes_count_up_to_their_limit() {
    let flood = serve(|mut connection| while connection.write_all(&[7; 4096]).is_ok() {});
    let source = connecting(flood)
        + "count = 0
try:
    while True: count += len(s.recv(1000))
except OSError as error: message = error.strerror
count, message";
    for mut interpreter in interpreters() {
        let limits = Limits { network_bytes: 10_500, ..Limits::default() };
        let (outcome, _) = run(&mut interpreter, &granted(&source, &[flood]), &limits);
        assert_eq!(value(&outcome)[0], json!(10_500));
        assert_eq!(outcome.usage.network_bytes, 10_500);
        let [hit] = outcome.limits_met[..] else { panic!("{outcome:?}") };
        assert_eq!((hit.limit, hit.allowed), (LimitKind::NetworkBytes, 10_500));
        let (outcome, _) = run(&mut interpreter, &granted("s.close()", &[]), &limits);
        assert!(outcome.is_success(), "{outcome:?}");
    }
}

#[test]
fn a_guest_has_so_many_sockets_and_no_more() {
    let listed = echo();
    let source = "import socket
many = []
try:
    while True: many.append(socket.socket())
except OSError as error: name = error.strerror
for s in many: s.close()
len(many), socket.socket().close()";
    for mut interpreter in interpreters() {
        let (outcome, _) = run_granted(&mut interpreter, source, &[listed]);
        assert_eq!(value(&outcome), json!([64, null]));
    }
}

#[test]
fn a_connection_ends_with_its_run_and_its_number_names_nothing_else() {
    for mut interpreter in interpreters() {
        let (address, told) = silent();
        let opened = connecting(address) + "s.fileno()";
        let (outcome, _) = run_granted(&mut interpreter, &opened, &[address]);
        let number = value(&outcome);
        assert_eq!([told.recv(), told.recv()], [Ok("begun"), Ok("ended")]);
        let state = interpreter.suspend().expect("a lost connection can be suspended");
        interpreter.reset().expect("it works here");
        interpreter.resume(&state).expect("it works here");
        let look = "import os
names = []
for call in (lambda: s.recv(1), lambda: s.send(b'x'), lambda: s.connect(('127.0.0.1', 1))):
    try: call()
    except OSError as error: names.append(type(error).__name__)
other = os.open('/tmp/f', os.O_CREAT | os.O_RDWR)
[names, other != s.fileno(), s.fileno()]";
        let (outcome, _) = run_granted(&mut interpreter, look, &[address]);
        let reset = "ConnectionResetError";
        assert_eq!(value(&outcome), json!([[reset, reset, reset], true, number]));
    }
}

#[test]
fn runs_that_are_the_same_each_time_have_no_network() {
    let listed = echo();
    for mut interpreter in interpreters() {
        let program = granted("import socket; socket.socket()", &[listed]);
        let replayed = Program { replays: Some(Arc::default()), ..program.clone() };
        let fixed = Program { deterministic: Some(Deterministic::new(1)), ..program };
        for program in [replayed, fixed] {
            let (outcome, _) = run(&mut interpreter, &program, &Limits::default());
            assert_eq!(raised(&outcome), "PermissionError");
            interpreter.reset().expect("it works here");
        }
    }
}

#[test]
fn threads_have_connections_of_their_own() {
    let Some(engine) = *THREADED else { return };
    let (listed, mute) = (echo(), stuck());
    let source = format!(
        "import socket
from concurrent.futures import ThreadPoolExecutor
import threading
waits = socket.create_connection(('127.0.0.1', {1}))
threading.Thread(target=waits.recv, args=(1,), daemon=True).start()
def ask(n):
    with socket.create_connection(('127.0.0.1', {0})) as s:
        for _ in range(20): s.sendall(bytes([n])); n = s.recv(1)[0]
        return n
with ThreadPoolExecutor(8) as pool: total = sum(pool.map(ask, range(24)))
total",
        listed.port(),
        mute.port()
    );
    let mut interpreter = image(engine).start().expect("it works here");
    for _ in 0..3 {
        let (outcome, _) = run_granted(&mut interpreter, &source, &[listed, mute]);
        assert_eq!(value(&outcome), json!(276));
        interpreter.reset().expect("it works here");
    }
}
