//! The connection file, by which a front end says where it expects the kernel.

use std::fmt::{Debug, Formatter};
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

use serde::Deserialize;

use crate::error::ConnectionError;
use crate::message::Key;

/// The longest connection file, in bytes; front ends write some 300.
const MOST_BYTES: u64 = 64 << 10;

/// The only scheme of signatures that front ends use.
const SCHEME: &str = "hmac-sha256";

/// Where a kernel listens, and the key that signs its messages.
#[derive(Clone)]
pub struct Connection {
    file: ConnectionFile,
    key: Key,
}

/// The fields of the file. There may be others.
#[derive(Clone, Deserialize)]
struct ConnectionFile {
    #[serde(default)]
    transport: Transport,
    /// An address, or the beginning of paths.
    ip: String,
    shell_port: u16,
    control_port: u16,
    iopub_port: u16,
    stdin_port: u16,
    hb_port: u16,
    #[serde(default)]
    key: String,
    #[serde(default = "scheme")]
    signature_scheme: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Transport {
    #[default]
    Tcp,
    Ipc,
}

/// The sockets of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Shell,
    Control,
    IoPub,
    Stdin,
    Heartbeat,
}

fn scheme() -> String {
    SCHEME.to_owned()
}

impl Debug for Connection {
    /// Leaves out the key.
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Connection")
            .field("shell", &self.endpoint(Channel::Shell))
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Reads a connection file.
    ///
    /// # Errors
    /// The file can't be read, is none, asks for signatures that aren't HMAC-SHA256, or has no key
    /// although other machines can reach the address.
    pub fn read(path: &Path) -> Result<Self, ConnectionError> {
        let unreadable = |source| ConnectionError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let mut text = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut text).map_err(unreadable)?;
        Self::parse(&text)
    }

    /// Reads the contents of a connection file.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &[u8]) -> Result<Self, ConnectionError> {
        let file: ConnectionFile = serde_json::from_slice(text).map_err(ConnectionError::Form)?;
        if file.signature_scheme != SCHEME {
            return Err(ConnectionError::Scheme { scheme: file.signature_scheme });
        }
        let is_local = file.transport == Transport::Ipc
            || file.ip.parse().is_ok_and(|address: IpAddr| address.is_loopback())
            || file.ip == "localhost";
        if file.key.is_empty() && !is_local {
            return Err(ConnectionError::NoKey { address: file.ip });
        }
        let key = Key::new(file.key.as_bytes());
        Ok(Self { file, key })
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the address of a socket, in the notation of ZeroMQ.
    pub(crate) fn endpoint(&self, channel: Channel) -> String {
        let file = &self.file;
        let port = match channel {
            Channel::Shell => file.shell_port,
            Channel::Control => file.control_port,
            Channel::IoPub => file.iopub_port,
            Channel::Stdin => file.stdin_port,
            Channel::Heartbeat => file.hb_port,
        };
        match (file.transport, file.ip.as_str()) {
            (Transport::Ipc, path) => format!("ipc://{path}-{port}"),
            (Transport::Tcp, "localhost") => format!("tcp://127.0.0.1:{port}"),
            (Transport::Tcp, ip) if ip.contains(':') => format!("tcp://[{ip}]:{port}"),
            (Transport::Tcp, ip) => format!("tcp://{ip}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn file(changes: Value) -> Result<Connection, ConnectionError> {
        let mut file = json!({
            "shell_port": 1, "control_port": 2, "iopub_port": 3, "stdin_port": 4, "hb_port": 5,
            "ip": "127.0.0.1", "key": "k", "transport": "tcp", "signature_scheme": "hmac-sha256",
            "kernel_name": "hatchery", "jupyter_session": "/a.ipynb",
        });
        for (name, value) in changes.as_object().unwrap() {
            file[name] = value.clone();
        }
        Connection::parse(file.to_string().as_bytes())
    }

    #[test]
    fn sockets_have_addresses_of_each_transport() {
        let tcp = file(json!({})).unwrap();
        assert_eq!(tcp.endpoint(Channel::Shell), "tcp://127.0.0.1:1");
        assert_eq!(tcp.endpoint(Channel::Heartbeat), "tcp://127.0.0.1:5");
        let ipc = file(json!({ "transport": "ipc", "ip": "/tmp/kernel-1" })).unwrap();
        assert_eq!(ipc.endpoint(Channel::IoPub), "ipc:///tmp/kernel-1-3");
        let six = file(json!({ "ip": "::1" })).unwrap();
        assert_eq!(six.endpoint(Channel::Stdin), "tcp://[::1]:4");
    }

    #[test]
    fn a_key_may_only_be_missing_where_nobody_else_can_connect() {
        assert!(file(json!({ "key": "" })).is_ok());
        assert!(file(json!({ "key": "", "ip": "/tmp/k", "transport": "ipc" })).is_ok());
        let open = file(json!({ "key": "", "ip": "0.0.0.0" }));
        assert!(matches!(open, Err(ConnectionError::NoKey { .. })));
        assert!(file(json!({ "ip": "0.0.0.0" })).is_ok());
    }

    #[test]
    fn other_schemes_and_forms_are_refused_and_the_key_is_never_shown() {
        let other = file(json!({ "signature_scheme": "hmac-md5" }));
        assert!(matches!(other, Err(ConnectionError::Scheme { .. })));
        assert!(matches!(file(json!({ "shell_port": 70_000 })), Err(ConnectionError::Form(_))));
        assert!(matches!(Connection::parse(b"{}"), Err(ConnectionError::Form(_))));
        let shown = format!("{:?}", file(json!({ "key": "secret" })).unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
