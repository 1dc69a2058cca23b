//! The client's side of ZMTP, as far as these tests need it: right, or wrong on purpose.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use kernel::{Connection, Kernel};
use serde_json::{Value, json};
use sha2::Sha256;

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const KEY: &[u8] = b"the key of the connection file";

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// A kernel and where it listens.
pub(crate) struct Bound {
    pub(crate) kernel: Kernel,
    /// Shell, control, outputs, standard input and heartbeat.
    pub(crate) ports: [u16; 5],
}

/// The sockets of a kernel, as indices of its ports.
pub(crate) const SHELL: usize = 0;
pub(crate) const IOPUB: usize = 2;
pub(crate) const HEARTBEAT: usize = 4;

impl Bound {
    /// Binds a kernel to ports that are free.
    pub(crate) async fn new() -> Self {
        // Another process may take a port in between.
        for _ in 0..20 {
            let listeners = [(); 5].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
            let ports = listeners.each_ref().map(|it| it.local_addr().unwrap().port());
            drop(listeners);
            let [shell, control, iopub, stdin, heartbeat] = ports;
            let file = json!({
                "transport": "tcp", "ip": "127.0.0.1", "key": str::from_utf8(KEY).unwrap(),
                "shell_port": shell, "control_port": control, "iopub_port": iopub,
                "stdin_port": stdin, "hb_port": heartbeat, "signature_scheme": "hmac-sha256",
            });
            let connection = Connection::parse(file.to_string().as_bytes()).unwrap();
            if let Ok(kernel) = Kernel::bind(&connection).await {
                return Self { kernel, ports };
            }
        }
        panic!("no ports are free");
    }

    /// Connects without a word.
    pub(crate) fn connect(&self, socket: usize) -> TcpStream {
        let address = SocketAddr::from(([127, 0, 0, 1], self.ports[socket]));
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Connects and greets as a socket of this type.
    ///
    /// # Errors
    /// The kernel closed the connection.
    pub(crate) fn greet(&self, socket: usize, kind: &str) -> std::io::Result<TcpStream> {
        let mut stream = self.connect(socket);
        stream.write_all(&greeting())?;
        let length = u8::try_from(kind.len()).unwrap();
        let ready = [b"\x05READY\x0bSocket-Type\0\0\0", &[length][..], kind.as_bytes()].concat();
        stream.write_all(&[&[COMMAND, u8::try_from(ready.len()).unwrap()], &ready[..]].concat())?;
        let mut answer = [0; 64 + 2];
        stream.read_exact(&mut answer)?;
        let mut body = vec![0; usize::from(answer[65])];
        stream.read_exact(&mut body)?;
        Ok(stream)
    }

    /// Asserts that heartbeats are answered, for somebody who connects now, and as often as ZeroMQ
    /// would: a stranger may just have pushed the greeting aside.
    #[expect(clippy::disallowed_methods, reason = "it gives up at some time")]
    pub(crate) fn assert_alive(&self) {
        let began = Instant::now();
        while let Err(error) = self.beat() {
            assert!(began.elapsed() < PATIENCE, "no heartbeat is answered: {error}");
        }
    }

    fn beat(&self) -> std::io::Result<()> {
        let mut stream = self.greet(HEARTBEAT, "REQ")?;
        stream.write_all(&frames(&[b"", b"ping"]))?;
        assert_eq!(message(&mut stream)?, [b"".to_vec(), b"ping".to_vec()]);
        Ok(())
    }
}

/// The greeting of libzmq.
pub(crate) fn greeting() -> [u8; 64] {
    let mut greeting = [0; 64];
    (greeting[0], greeting[8], greeting[9], greeting[10], greeting[11]) = (0xff, 1, 0x7f, 3, 1);
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

/// A message on the wire.
pub(crate) fn frames(parts: &[&[u8]]) -> Vec<u8> {
    let mut wire = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let more = if place + 1 < parts.len() { MORE } else { 0 };
        wire.extend(header(more, part.len() as u64));
        wire.extend(*part);
    }
    wire
}

/// The header of a frame that has so many bytes, it says.
pub(crate) fn header(flags: u8, length: u64) -> Vec<u8> {
    match u8::try_from(length) {
        Ok(short) => vec![flags, short],
        Err(_) => [&[flags | LONG][..], &length.to_be_bytes()].concat(),
    }
}

/// Reads a message.
pub(crate) fn message(stream: &mut TcpStream) -> std::io::Result<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    loop {
        let mut flags = [0];
        stream.read_exact(&mut flags)?;
        let mut length = [0; 8];
        match flags[0] & LONG {
            0 => stream.read_exact(&mut length[7..])?,
            _ => stream.read_exact(&mut length)?,
        }
        let mut part = vec![0; usize::try_from(u64::from_be_bytes(length)).unwrap()];
        stream.read_exact(&mut part)?;
        parts.push(part);
        if flags[0] & MORE == 0 {
            return Ok(parts);
        }
    }
}

/// A request of Jupyter's protocol, signed with a key.
pub(crate) fn request(kind: &str, content: &Value, key: &[u8]) -> Vec<u8> {
    let header = json!({ "msg_id": "1", "msg_type": kind, "session": "s", "username": "u" });
    let parts = [header, json!({}), json!({}), content.clone()].map(|part| part.to_string());
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    parts.iter().for_each(|part| mac.update(part.as_bytes()));
    let signature: String =
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let [header, parent, metadata, content] = &parts;
    let parts = ["<IDS|MSG>", &signature, header, parent, metadata, content];
    frames(&parts.map(str::as_bytes))
}

/// Asserts that the kernel closes a connection, whatever it sends before.
pub(crate) fn assert_closed(mut stream: TcpStream) {
    let mut buffer = [0; 1 << 12];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => match error.kind() {
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => return,
                _ => panic!("it isn't closed: {error}"),
            },
        }
    }
}
