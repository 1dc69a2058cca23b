//! The commands under test, as processes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::server::{self, ROUND, Server};

/// How long a command may take to say or do something.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// Lines that wait to be read.
const MOST_LINES: usize = 10_000;

/// A running command, which is killed when it is dropped.
pub(crate) struct Running {
    process: Child,
    said: Receiver<String>,
    heard: Vec<String>,
}

fn hatchery() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hatchery"));
    command.stdin(Stdio::null()).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    // What earlier runs left in the cache brings no message.
    command.env("HATCHERY_CACHE_BOUND", "1000TiB");
    command
}

/// Runs a command to its end.
pub(crate) fn output(arguments: &[&str]) -> std::process::Output {
    hatchery().args(arguments).output().unwrap()
}

impl Running {
    fn spawn(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = process.stderr.take().unwrap();
        let (sender, said) = sync_channel(MOST_LINES);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { process, said, heard: Vec::new() }
    }

    /// A worker of two slots that finds dead ones within some seconds.
    pub(crate) fn worker(server: &Server, name: &str, more: &[&str]) -> Self {
        let arguments = ["worker", "--nats", &server.url(), "--name", name, "--workers", "2"];
        let claim = ["--claim-time", "4s"];
        Self::spawn(hatchery().args(arguments).args(claim).args(more))
    }

    /// A worker like others, in this environment.
    pub(crate) fn worker_in(server: &Server, environment: &[(&str, &Path)]) -> Self {
        let mut command = hatchery();
        command.args(["worker", "--nats", &server.url(), "--workers", "2", "--claim-time", "4s"]);
        Self::spawn(command.envs(environment.iter().copied()))
    }

    /// A server with a page, which also shows the cluster.
    pub(crate) fn page(server: &Server) -> Self {
        let mut command = hatchery();
        Self::spawn(command.args(["serve", "--http", "127.0.0.1:0", "--nats", &server.url()]))
    }

    /// A worker that takes jobs already.
    pub(crate) fn ready_worker(server: &Server, name: &str, more: &[&str]) -> Self {
        let mut worker = Self::worker(server, name, more);
        worker.says("taking jobs");
        worker
    }

    pub(crate) fn submit(server: &Server, jobs: &Path, out: &Path, more: &[&str]) -> Self {
        Self::submit_to(&server.url(), jobs, out, more)
    }

    pub(crate) fn submit_to(url: &str, jobs: &Path, out: &Path, more: &[&str]) -> Self {
        let mut command = hatchery();
        command.args(["submit", "--nats", url, "--claim-time", "4s"]).arg(jobs);
        Self::spawn(command.arg("--out").arg(out).args(more))
    }

    /// Runs the lines here.
    pub(crate) fn batch(files: &Files) -> Self {
        let mut command = hatchery();
        command.args(["batch", "--workers", "2", "--progress", "none"]).arg(files.jobs());
        Self::spawn(command.arg("--out").arg(files.out("local")))
    }

    /// Returns the CPU time that it has used so far.
    pub(crate) fn cpu(&self) -> Duration {
        server::cpu(&self.process).1
    }

    /// Waits for its end, and returns the CPU time that it has used.
    pub(crate) fn end_with_cpu(mut self) -> Duration {
        while let Ok(line) = self.said.recv_timeout(PATIENCE) {
            self.heard.push(line);
        }
        // It is gone, but for what its waiter learns.
        let cpu = loop {
            let (is_gone, cpu) = server::cpu(&self.process);
            if is_gone {
                break cpu;
            }
            std::thread::sleep(ROUND);
        };
        assert!(self.process.wait().unwrap().success(), "{:?}", self.heard);
        cpu
    }

    /// Waits until it says something with this text, and returns the line.
    #[track_caller]
    pub(crate) fn says(&mut self, text: &str) -> String {
        if let Some(line) = self.heard.iter().find(|line| line.contains(text)) {
            return line.clone();
        }
        loop {
            match self.said.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.heard.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("it never says {text:?}: {:?}", self.heard)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("it ended without saying {text:?}: {:?}", self.heard)
                }
            }
        }
    }

    /// Checks that it has said nothing with this text before what was waited for last.
    #[track_caller]
    pub(crate) fn has_not_said(&self, text: &str) {
        assert!(!self.heard.iter().any(|line| line.contains(text)), "{:?}", self.heard);
    }

    /// Returns the id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Whether it runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Stops it where it is, until it is resumed.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Waits for its end, and returns everything that it said.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        while let Ok(line) = self.said.recv_timeout(PATIENCE) {
            self.heard.push(line);
        }
        let status = self.process.wait().unwrap();
        (status, self.heard.join("\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            self.heard.extend(self.said.try_iter());
            println!("{}", self.heard.join("\n"));
        }
    }
}

/// Lines of a batch in a folder, and where its results go.
pub(crate) struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new(lines: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("in.ndjson"), lines.join("\n")).unwrap();
        Self { folder }
    }

    pub(crate) fn jobs(&self) -> PathBuf {
        self.folder.path().join("in.ndjson")
    }

    pub(crate) fn out(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the lines here.
    pub(crate) fn locally(&self, more: &[&str]) -> Vec<Value> {
        let mut command = hatchery();
        command.args(["batch", "--workers", "2", "--progress", "none"]).arg(self.jobs());
        let output = command.arg("--out").arg(self.out("local")).args(more).output().unwrap();
        assert!(output.status.code().is_some_and(|code| code <= 2), "{output:?}");
        self.results("local")
    }

    /// Reads a file of results, sorted by their ids.
    pub(crate) fn results(&self, name: &str) -> Vec<Value> {
        let mut text = String::new();
        fs::File::open(self.out(name)).unwrap().read_to_string(&mut text).unwrap();
        let mut results: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        results.sort_by_key(|result| result["id"].to_string());
        results
    }
}

/// Returns what the server at this address, such as `http://127.0.0.1:80`, answers.
pub(crate) fn get(address: &str, path: &str) -> String {
    let address = address.strip_prefix("http://").unwrap();
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{answer}");
    body.to_owned()
}

/// Takes out of results what differs from run to run.
pub(crate) fn without_times(results: &[Value]) -> Vec<Value> {
    let mut results = results.to_vec();
    for result in &mut results {
        let fields = result.as_object_mut().unwrap();
        fields.remove("execution_time");
        fields.remove("usage");
        if fields.get("status") == Some(&"limit".into()) {
            let error = fields["error"].as_object_mut().unwrap();
            error.remove("used");
            error.remove("message");
        }
    }
    results
}
