//! The connection file, by which a front end says where it expects the kernel.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde::Deserialize;
use serde_json::json;

use crate::error::{ConnectionError, InstallError};
use crate::message::Key;

/// The longest connection file, in bytes; front ends write some 300.
const MOST_BYTES: u64 = 64 << 10;

/// The only scheme of signatures that front ends use.
const SCHEME: &str = "hmac-sha256";

/// Where a kernel listens, and the key that signs its messages.
#[derive(Debug, Clone)]
pub struct Connection {
    pub(crate) file: ConnectionFile,
    pub(crate) key: Key,
}

/// The fields of the file. There may be others.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ConnectionFile {
    #[serde(default)]
    transport: Transport,
    /// An address, or the beginning of paths.
    ip: String,
    pub(crate) shell_port: u16,
    pub(crate) control_port: u16,
    pub(crate) iopub_port: u16,
    pub(crate) stdin_port: u16,
    pub(crate) hb_port: u16,
    #[serde(default)]
    key: String,
    #[serde(default = "scheme")]
    signature_scheme: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    #[default]
    Tcp,
    Ipc,
}

fn scheme() -> String {
    SCHEME.to_owned()
}

impl Connection {
    /// Reads a connection file.
    ///
    /// # Errors
    /// The file can't be read or isn't a connection file. Or it requires signatures other than
    /// HMAC-SHA256, or has no key although other machines can reach the address.
    pub fn read(path: &Path) -> Result<Self, ConnectionError> {
        let unreadable = |source| ConnectionError::Read(path.to_owned(), source);
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
        let mut file: ConnectionFile =
            serde_json::from_slice(text).map_err(ConnectionError::Form)?;
        if file.signature_scheme != SCHEME {
            return Err(ConnectionError::Scheme(file.signature_scheme));
        }
        let is_local = file.transport == Transport::Ipc
            || file.ip.parse().is_ok_and(|address: IpAddr| address.is_loopback())
            || file.ip == "localhost";
        if file.key.is_empty() && !is_local {
            return Err(ConnectionError::NoKey(file.ip));
        }
        // Taken out of what `Debug` shows.
        let key = Key::new(std::mem::take(&mut file.key).as_bytes());
        Ok(Self { file, key })
    }

    /// Returns the address of a socket, in the notation of ZeroMQ.
    pub(crate) fn endpoint(&self, port: u16) -> String {
        match (self.file.transport, self.file.ip.as_str()) {
            (Transport::Ipc, path) => format!("ipc://{path}-{port}"),
            (Transport::Tcp, "localhost") => format!("tcp://127.0.0.1:{port}"),
            (Transport::Tcp, ip) if ip.contains(':') => format!("tcp://[{ip}]:{port}"),
            (Transport::Tcp, ip) => format!("tcp://{ip}:{port}"),
        }
    }
}

/// What front ends replace by the path of the connection file.
const CONNECTION_FILE: &str = "{connection_file}";

/// A kernel as front ends know it.
#[derive(Debug, Clone)]
pub struct KernelSpec {
    /// The name of its folder, by which it is chosen: letters, digits, `-`, `.` and `_`.
    pub name: String,
    /// The name that users see.
    pub display_name: String,
    /// The command that starts it, to which `-f` and the connection file are added.
    pub command: Vec<String>,
}

impl KernelSpec {
    /// Returns the contents of `kernel.json`.
    fn json(&self) -> String {
        let mut argv = self.command.clone();
        argv.extend(["-f", CONNECTION_FILE].map(str::to_owned));
        let spec = json!({
            "argv": argv,
            "display_name": self.display_name,
            "language": "python",
            "interrupt_mode": "message",
            "metadata": { "debugger": false },
        });
        format!("{spec:#}\n")
    }
}

/// Where front ends look for kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstallLocation {
    /// The folder of the user's own kernels.
    User,
    /// The Python environment that is active.
    Environment,
    /// An installation below this folder, such as `/usr/local`.
    Prefix(PathBuf),
}

impl InstallLocation {
    /// Returns the folder of kernels, given the environment's variables.
    fn folder(&self, variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, InstallError> {
        let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let below = |prefix: PathBuf| prefix.join("share/jupyter/kernels");
        match self {
            Self::User => {
                let data = path("JUPYTER_DATA_DIR");
                let shared = || path("XDG_DATA_HOME").map(|data| data.join("jupyter"));
                let home = || path("HOME").map(|home| home.join(".local/share/jupyter"));
                let data = data.or_else(shared).or_else(home).ok_or(InstallError::NoHome)?;
                Ok(data.join("kernels"))
            }
            Self::Environment => {
                let environment = path("VIRTUAL_ENV").or_else(|| path("CONDA_PREFIX"));
                environment.map(below).ok_or(InstallError::NoEnvironment)
            }
            Self::Prefix(prefix) => Ok(below(prefix.clone())),
        }
    }
}

/// Installs a kernel, replacing one of the same name, and returns its folder.
///
/// # Errors
/// The name is invalid, there is no such place, or the files can't be written.
pub fn install(spec: &KernelSpec, place: &InstallLocation) -> Result<PathBuf, InstallError> {
    let is_name = |part: char| part.is_ascii_alphanumeric() || "-._".contains(part);
    let name = &spec.name;
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_name) {
        return Err(InstallError::Name(name.clone()));
    }
    let folder = place.folder(|name| env::var_os(name))?.join(name);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| InstallError::Write(path, source)
    };
    fs::create_dir_all(&folder).map_err(failed(&folder))?;
    // Whole or not at all, since a front end may look meanwhile.
    let (file, unfinished) = (folder.join("kernel.json"), folder.join(".kernel.json.new"));
    fs::write(&unfinished, spec.json()).map_err(failed(&unfinished))?;
    fs::rename(&unfinished, &file).map_err(failed(&file))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
        assert_eq!(tcp.endpoint(tcp.file.shell_port), "tcp://127.0.0.1:1");
        assert_eq!(tcp.endpoint(tcp.file.hb_port), "tcp://127.0.0.1:5");
        let ipc = file(json!({ "transport": "ipc", "ip": "/tmp/kernel-1" })).unwrap();
        assert_eq!(ipc.endpoint(ipc.file.iopub_port), "ipc:///tmp/kernel-1-3");
        let six = file(json!({ "ip": "::1" })).unwrap();
        assert_eq!(six.endpoint(six.file.stdin_port), "tcp://[::1]:4");
    }

    #[test]
    fn a_key_may_only_be_missing_where_nobody_else_can_connect() {
        assert!(file(json!({ "key": "" })).is_ok());
        assert!(file(json!({ "key": "", "ip": "/tmp/k", "transport": "ipc" })).is_ok());
        let open = file(json!({ "key": "", "ip": "0.0.0.0" }));
        assert!(matches!(open, Err(ConnectionError::NoKey(_))));
        assert!(file(json!({ "ip": "0.0.0.0" })).is_ok());
    }

    #[test]
    fn other_schemes_and_forms_are_refused_and_the_key_is_never_shown() {
        let other = file(json!({ "signature_scheme": "hmac-md5" }));
        assert!(matches!(other, Err(ConnectionError::Scheme(_))));
        assert!(matches!(file(json!({ "shell_port": 70_000 })), Err(ConnectionError::Form(_))));
        assert!(matches!(Connection::parse(b"{}"), Err(ConnectionError::Form(_))));
        let shown = format!("{:?}", file(json!({ "key": "secret" })).unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }

    fn spec(name: &str) -> KernelSpec {
        let command = ["/bin/hatchery", "kernel", "--preload", "numpy"];
        let command = command.map(str::to_owned).to_vec();
        KernelSpec { name: name.into(), display_name: "Python (Hatchery)".into(), command }
    }

    #[test]
    fn a_kernel_is_a_file_with_its_command() {
        let folder = tempfile::tempdir().unwrap();
        let place = InstallLocation::Prefix(folder.path().to_owned());
        for _ in 0..2 {
            let installed = install(&spec("hatchery"), &place).unwrap();
            assert_eq!(installed, folder.path().join("share/jupyter/kernels/hatchery"));
            let file = fs::read(installed.join("kernel.json")).unwrap();
            let file: Value = serde_json::from_slice(&file).unwrap();
            let argv = ["/bin/hatchery", "kernel", "--preload", "numpy", "-f", CONNECTION_FILE];
            assert_eq!(file["argv"], json!(argv));
            assert_eq!(file["interrupt_mode"], "message");
            assert_eq!(fs::read_dir(&installed).unwrap().count(), 1);
        }
        for name in ["", "..", "a/b", ".hidden", "ä"] {
            assert!(matches!(install(&spec(name), &place), Err(InstallError::Name(_))));
        }
    }

    #[test]
    fn places_are_those_of_jupyter() {
        let folder = |place: InstallLocation, variables: &[(&str, &str)]| {
            let value = |name: &str| {
                let found = variables.iter().find(|(given, _)| *given == name);
                found.map(|(_, value)| OsString::from(value))
            };
            place.folder(value).ok().and_then(|folder| folder.to_str().map(str::to_owned))
        };
        let expected = |path: &str| Some(path.to_owned());
        let home = ("HOME", "/home/ada");
        let user = folder(InstallLocation::User, &[home, ("XDG_DATA_HOME", "")]);
        assert_eq!(user, expected("/home/ada/.local/share/jupyter/kernels"));
        let shared = folder(InstallLocation::User, &[home, ("XDG_DATA_HOME", "/data")]);
        assert_eq!(shared, expected("/data/jupyter/kernels"));
        let own = folder(InstallLocation::User, &[home, ("JUPYTER_DATA_DIR", "/jupyter")]);
        assert_eq!(own, expected("/jupyter/kernels"));
        assert_eq!(folder(InstallLocation::User, &[]), None);
        let environment = folder(InstallLocation::Environment, &[("CONDA_PREFIX", "/conda")]);
        assert_eq!(environment, expected("/conda/share/jupyter/kernels"));
        assert_eq!(folder(InstallLocation::Environment, &[home]), None);
    }
}
