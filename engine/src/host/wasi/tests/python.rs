//! CPython for WASIX on this host: what programs get from the functions that it imports.
//!
//! The build isn't part of this repository; without it the test is skipped and says so.

use std::net::IpAddr;

use wasmer::{Instance, Module};

use super::bound::Bound;
use crate::files::resolve::{Base, Links, ResolvedPath, resolve};
use crate::files::tree::{NodeId, NodeKind};
use crate::host::network::RunNetwork;
use crate::python::module::imports::tests::wasix_build;
use crate::python::module::native::NativeEngine;
use crate::python::module::new_engine;
use crate::run::network::Destination;
use crate::run::transcript::Stream;

/// Programs, each with what it prints.
const PROGRAMS: [(&str, &str, &str); 17] = [
    ("a pipe", "import os; r, w = os.pipe(); os.write(w, b'through'); print(os.read(r, 99))", "b'through'"),
    (
        "a full pipe",
        "import os
r, w = os.pipe()
os.set_blocking(w, False)
try:
    while True: os.write(w, bytes(4096))
except BlockingIOError: print(len(os.read(r, 1 << 20)))",
        "65536",
    ),
    (
        "a pipe that waits for itself",
        "import errno, os
r, w = os.pipe()
try: os.read(r, 1)
except OSError as error: print(errno.errorcode[error.errno])",
        "EDEADLK",
    ),
    (
        "connected sockets",
        "import socket
a, b = socket.socketpair()
a.sendall(b'there'); b.sendall(b'back'); a.shutdown(socket.SHUT_WR)
print(b.recv(9), b.recv(9), a.recv(9), a.getsockname(), a.type == socket.SOCK_STREAM)",
        "b'there' b'' b'back' (0, b'') True",
    ),
    (
        "asyncio",
        "import asyncio
async def main():
    await asyncio.sleep(0.01)
    results = await asyncio.gather(*(asyncio.sleep(0.01, n) for n in range(3)))
    reader, writer = await asyncio.open_connection(sock=a)
    other_reader, other_writer = await asyncio.open_connection(sock=b)
    writer.write(b'line\\n')
    return results, await other_reader.readline()
import socket
a, b = socket.socketpair()
print(asyncio.run(main()))",
        "([0, 1, 2], b'line\\n')",
    ),
    (
        "selectors",
        "import os, selectors
with selectors.DefaultSelector() as selector:
    r, w = os.pipe()
    selector.register(r, selectors.EVENT_READ)
    before = len(selector.select(0.01)); os.write(w, b'x')
    print(type(selector).__name__, before, len(selector.select(None)))",
        "PollSelector 0 1",
    ),
    (
        "select",
        "import os, select; r, w = os.pipe()
print(select.select([r], [w], [], 0.01) == ([], [w], []))",
        "True",
    ),
    (
        "the current folder",
        "import os
os.makedirs('/tmp/a/b'); os.chdir('/tmp/a'); os.chdir('b')
open('here', 'w').close()
print(os.getcwd(), os.path.exists('/tmp/a/b/here'), os.listdir('..'))
os.chdir('/')",
        "/tmp/a/b True ['b']",
    ),
    (
        "duplicates",
        "import os, sys
file = os.open('/tmp/out', os.O_RDWR | os.O_CREAT)
kept = os.dup(1); os.dup2(file, 1); print('redirected', flush=True)
os.dup2(kept, 1); os.close(kept)
os.lseek(file, 0, 0); print(os.read(file, 99), os.get_inheritable(file))",
        "b'redirected\\n' False",
    ),
    (
        "a lock that times out",
        "import threading, time
lock = threading.Lock(); lock.acquire(); start = time.monotonic()
print(lock.acquire(timeout=0.02), time.monotonic() - start >= 0.02)",
        "False True",
    ),
    (
        "a thread",
        "import threading
try: threading.Thread(target=print).start()
except RuntimeError as error: print(error)",
        "can't start new thread",
    ),
    (
        "processes",
        "import os
for call in (os.fork, lambda: os.execv('/bin/ls', ['ls']), lambda: os.posix_spawn('/bin/ls', ['ls'], {})):
    try: call()
    except OSError as error: print(error.strerror, end=', ')
try: os.waitpid(-1, 0)
except ChildProcessError: print(os.getpid(), os.getppid())",
        "Not supported, Not supported, Not supported, 1 0",
    ),
    (
        "the network",
        "import socket
for call in (socket.socket, lambda: socket.create_connection(('127.0.0.1', 80)), lambda: socket.getaddrinfo('example.com', 80)):
    try: call()
    except OSError as error: print(type(error).__name__, end=' ')",
        "PermissionError PermissionError gaierror",
    ),
    (
        "a handler of a signal",
        "import os, signal
signal.signal(signal.SIGTERM, lambda number, frame: print('handled', number))
os.kill(os.getpid(), signal.SIGTERM); signal.raise_signal(signal.SIGTERM)
try: signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt: print('interrupted', end='')
os.kill(os.getpid(), signal.SIGCHLD)",
        "handled 15\nhandled 15\ninterrupted",
    ),
    (
        "the clocks",
        "import signal, time
signal.setitimer(signal.ITIMER_REAL, 0)
try: time.clock_settime(time.CLOCK_REALTIME, 0)
except PermissionError: print('fixed')",
        "fixed",
    ),
    (
        "the terminal",
        "import os, sys
print(sys.stdout.isatty(), os.cpu_count())",
        "False 1",
    ),
    (
        "what it may not do",
        "import select
try: select.epoll()
except OSError as error: print(error.strerror)",
        "Function not implemented",
    ),
];

/// Programs that end the interpreter, each with its exit code.
const ENDS: [(&str, u32); 3] = [
    ("import os; os._exit(7)", 7),
    ("import os; os.kill(os.getpid(), 9)", 137),
    ("import os, signal; signal.signal(15, signal.SIG_DFL); os.kill(0, 15)", 143),
];

/// The build, if it is here.
struct Build {
    engine: NativeEngine,
    module: Module,
    library: Vec<u8>,
}

impl Build {
    fn find() -> Option<Self> {
        let folder = wasix_build()?;
        let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
        let engine = new_engine();
        let module = engine.module(read("reactor.wasm"));
        Some(Self { engine, module, library: read("python313.zip") })
    }

    /// Starts the build on this host.
    fn start(&self, mut bound: Bound) -> (Bound, Instance) {
        {
            let mut wasi = bound.wasi.lock();
            let lib =
                resolve(&wasi.tree, Base::Node(NodeId::ROOT), "/usr/local/lib", Links::Follow);
            let Ok(ResolvedPath::Node(lib)) = lib else { panic!("the library has a folder") };
            let library = NodeKind::Fixed(self.library.clone().into());
            wasi.tree.create_fixed(lib, "python313.zip", library, 0).unwrap();
        }
        let python = bound.start_module(&self.module);
        bound.gate.begin();
        let begin = python.exports.get_typed_function::<(), ()>(&bound.store, "_initialize");
        bound.gate.guest(|| begin.unwrap().call(&mut bound.store)).unwrap().unwrap();
        (bound, python)
    }
}

#[test]
fn programs_of_a_wasix_build_get_what_the_table_says() {
    let Some(build) = Build::find() else { return };
    let start = || build.start(Bound::on(build.engine.clone()));
    let (mut bound, python) = start();
    let mut failed = Vec::new();
    for (name, program, expected) in PROGRAMS {
        let transcript = bound.begin_run();
        let program = format!("{program}\nimport sys; sys.stdout.flush()");
        let status = bound.turn(&python, &program);
        let said = |stream| String::from_utf8_lossy(&transcript.text_of(stream)).trim().to_owned();
        let (out, err) = (said(Stream::Stdout), said(Stream::Stderr));
        if out != expected || !matches!(status, Ok(0)) {
            failed.push(format!("{name}: {status:?}: {out}\n{err}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    for (program, expected) in ENDS {
        let (mut bound, python) = start();
        bound.begin_run();
        assert_eq!(
            super::bound::exit_code(bound.turn(&python, program)),
            Some(expected),
            "{program}"
        );
    }
}

/// Names as the tests have them; no resolver is asked.
fn names(name: &str) -> std::io::Result<Vec<IpAddr>> {
    let found: &[&str] = match name {
        "two.test" => &["93.184.216.34", "93.184.216.35"],
        "six.test" => &["2606:4700::1111"],
        "inside.test" => &["127.0.0.1", "10.0.0.1", "169.254.169.254"],
        _ => return Err(std::io::ErrorKind::NotFound.into()),
    };
    Ok(found.iter().map(|text| text.parse().unwrap()).collect())
}

#[test]
fn a_wasix_build_looks_up_the_names_that_were_granted() {
    let Some(build) = Build::find() else { return };
    let (mut bound, python) = build.start(Bound::in_real_time_on(build.engine.clone()));
    let transcript = bound.begin_run();
    let granted = ["two.test:80", "six.test:443", "inside.test:80", "absent.test:80"];
    let granted = granted.iter().map(|text| text.parse::<Destination>().unwrap()).collect();
    bound.wasi.lock().network = RunNetwork::new(granted, 100).with_resolver(names);
    let program = "import socket, sys
for name in ('two.test', 'TWO.test', 'six.test', 'inside.test', 'absent.test', 'other.test'):
    try: print(sorted({found[4][0] for found in socket.getaddrinfo(name, 80)}))
    except socket.gaierror: print('unknown')
# What a name leads to inside isn't reached, whether or not it was asked for.
for address in ('127.0.0.1', '10.0.0.1', '169.254.169.254'):
    try: socket.create_connection((address, 80), 1)
    except PermissionError: print('refused')
sys.stdout.flush()";
    assert!(matches!(bound.turn(&python, program), Ok(0)), "{transcript:?}");
    let printed = String::from_utf8(transcript.text_of(Stream::Stdout)).unwrap();
    let two = "['93.184.216.34', '93.184.216.35']";
    // This CPython is built without IPv6: of such an address it shows the number of the family.
    let expected = [two, two, "[2]", "unknown", "unknown", "unknown", "refused", "refused"];
    assert_eq!(printed.lines().collect::<Vec<_>>(), [&expected[..], &["refused"]].concat());
}
