//! `hatchery serve --http`: its start, its end, and workers that are retired meanwhile.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::hatchery;

pub(crate) const OPERATOR: &str = "secret-of-the-operator-0";
pub(crate) const ADA: &str = "secret-of-ada-0123456789";
pub(crate) const BOB: &str = "secret-of-bob-0123456789";

/// Starts `hatchery serve --http`, and returns the process and its address.
pub(crate) fn spawn(arguments: &[&str]) -> (Child, String) {
    spawn_with(&[], arguments)
}

/// The same with these variables set.
fn spawn_with(environment: &[(&str, &str)], arguments: &[&str]) -> (Child, String) {
    let (child, address, mut said) = spawn_saying(environment, arguments);
    // Whatever else it says is read, so that it never waits for that.
    thread::spawn(move || said.read_to_end(&mut Vec::new()));
    (child, address)
}

/// The same with what it says after that.
fn spawn_saying(
    environment: &[(&str, &str)],
    arguments: &[&str],
) -> (Child, String, BufReader<ChildStderr>) {
    let mut child = hatchery()
        .args(["serve", "--http", "127.0.0.1:0"])
        .args(arguments)
        .envs(environment.iter().copied())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let address = loop {
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "it serves");
        if let Some((_, address)) = line.trim().split_once("http://") {
            break address.to_owned();
        }
    };
    (child, address, said)
}

/// A server, which ends with the test.
pub(crate) struct Server {
    child: Child,
    address: String,
    _tokens: Option<tempfile::NamedTempFile>,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(&[], arguments)
    }

    /// The same with these variables set.
    pub(crate) fn start_with(environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        let (child, address) = spawn_with(environment, arguments);
        let server = Self { child, address, _tokens: None };
        while server.get("/healthz").0 != 200 {}
        server
    }

    /// A server for an operator and two tenants.
    pub(crate) fn with_tokens(arguments: &[&str]) -> Self {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "{OPERATOR}\n{ADA} ada\n{BOB} bob\n").unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let mut server = Self::start(&[&["--token-file", &path], arguments].concat());
        server._tokens = Some(file);
        server
    }

    /// Returns the id of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        answer(ask(&self.address, "GET", path, "", ""))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        answer(ask(&self.address, "POST", path, "", &body.to_string()))
    }

    pub(crate) fn by(&self, token: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        answer(ask(&self.address, method, path, token, &body))
    }

    /// Kills the server, which can then tidy nothing up.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the server as a service manager does.
    pub(crate) fn end(mut self) {
        self.terminate();
        self.child.wait().unwrap();
    }

    fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    /// Waits until a job runs, and returns its number.
    pub(crate) fn running(&self) -> u64 {
        let job = || {
            let (_, status) = self.get("/v1/status");
            status["workers"].as_array()?.iter().find_map(|worker| worker["job"].as_u64())
        };
        std::iter::repeat_with(job).flatten().next().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request, with a token unless it is empty.
fn ask(address: &str, method: &str, path: &str, token: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let token = match token {
        "" => String::new(),
        token => format!("authorization: Bearer {token}\r\n"),
    };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let request = format!("{head}{token}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Reads the status and the JSON of an answer.
fn answer(mut stream: TcpStream) -> (u16, Value) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")))
}

#[test]
fn a_signal_leaves_no_request_over_http_without_its_answer() {
    let mut server = Server::start(&["--workers", "1"]);
    let job = json!({ "code": "import time; time.sleep(0.5); 'done'" }).to_string();
    let running = ask(&server.address, "POST", "/v1/run", "", &job);
    server.running();
    server.terminate();
    let (status, result) = answer(running);
    assert_eq!((status, &result["value"]), (200, &json!("done")), "{result}");
    assert_eq!(server.child.wait().unwrap().code(), Some(143));
}

#[test]
fn a_server_makes_an_image_of_what_its_jobs_import() {
    let job =
        json!({ "code": "import sys\nif len(sys.argv) > 9: import sympy\n'sympy' in sys.modules" });
    for isolation in ["threads", "process"] {
        let arguments = ["--workers", "1", "--preload", "auto", "--isolation", isolation];
        let (child, address, mut said) = spawn_saying(&[], &arguments);
        let server = Server { child, address, _tokens: None };
        assert_eq!(server.get("/v1/status").1["hidden"], json!([]));
        // So often that it pays on any machine.
        for _ in 0..10 * thread::available_parallelism().unwrap().get() {
            assert_eq!(server.post("/v1/run", &job).1["value"], false);
        }
        let mut line = String::new();
        while !line.contains("the image has imported 1 module that programs import") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it says so");
        }
        assert_eq!(server.post("/v1/run", &job).1["value"], false);
        assert_eq!(server.get("/v1/status").1["hidden"], json!(["sympy"]));
        let source = "import time; a = time.process_time(); import sympy; time.process_time() - a";
        let seconds = || server.post("/v1/run", &json!({ "code": source })).1["value"].as_f64();
        let least = (0..5).filter_map(|_| seconds()).fold(f64::INFINITY, f64::min);
        assert!(least < 0.15, "{least}");
        server.end();
    }
}

#[test]
fn a_server_is_ready_once_it_has_tested_itself() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut child = hatchery().args(["serve", "--quiet", "--http", &free]).spawn().unwrap();
    let health = || match TcpStream::connect(&free) {
        Ok(_) => Some(answer(ask(&free, "GET", "/healthz", "", ""))),
        Err(_) => None,
    };
    let mut told = Vec::new();
    while told.last().is_none_or(|(status, _)| *status != 200) {
        assert_eq!(child.try_wait().unwrap(), None);
        told.extend(health());
        told.dedup();
    }
    let expected = [(503, json!({ "status": "starting" })), (200, json!({ "status": "ok" }))];
    assert_eq!(told, expected);
    // It ran jobs of its own for that, which nobody finds among those of users.
    let (_, status) = answer(ask(&free, "GET", "/v1/status", "", ""));
    let totals = status["totals"].as_object().unwrap();
    assert!(totals.values().all(|count| *count == 0), "{status}");
    let latency = status["latency"].as_object().unwrap();
    assert!(latency.values().all(|step| step["count"] == 0), "{status}");
    let workers = status["workers"].as_array().unwrap();
    assert!(workers.iter().all(|worker| worker["jobs_served"] == 0), "{status}");
    let mut metrics = String::new();
    ask(&free, "GET", "/metrics", "", "").read_to_string(&mut metrics).unwrap();
    for counter in ["hatchery_jobs_total{", "hatchery_job_duration_seconds_count{"] {
        let mut lines = metrics.lines().filter(|line| line.starts_with(counter));
        assert!(lines.all(|line| line.ends_with(" 0")), "{metrics}");
    }
    assert!(!metrics.contains("hatchery_limit_hits_total{"), "{metrics}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn readiness_ends_with_the_signal_and_the_server_with_the_last_job() {
    let mut server = Server::start(&["--workers", "1", "--drain-time", "60s"]);
    let code = "import time\nprint('begun', flush=True)\ntry:\n  while True: time.sleep(0.01)\n\
                except KeyboardInterrupt: pass\n7";
    let job = json!({ "code": code, "timeout": 60 }).to_string();
    let head = "POST /v1/run HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                accept: text/event-stream\r\n";
    let mut running = TcpStream::connect(&server.address).unwrap();
    write!(running, "{head}content-length: {}\r\n\r\n{job}", job.len()).unwrap();
    let (mut running, mut said) = (BufReader::new(running), String::new());
    // A job that is interrupted before its program begins is cancelled.
    while !said.contains("begun") {
        assert!(running.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let id = server.running();
    server.terminate();
    let draining = (503, json!({ "status": "draining" }));
    while server.get("/healthz") != draining {}
    let (status, refused) = server.post("/v1/run", &json!({ "code": "1" }));
    assert_eq!((status, &refused["error"]["reason"]), (503, &json!("shutting_down")), "{refused}");
    // What runs can still be watched, and ends in its own time.
    assert_eq!(server.get("/v1/status").1["phase"], "draining");
    assert_eq!(server.get("/healthz"), draining);
    assert_eq!(server.post(&format!("/v1/jobs/{id}/interrupt"), &Value::Null).0, 202);
    running.read_to_string(&mut said).unwrap();
    assert!(said.contains("\"value\":7"), "{said}");
    assert_eq!(server.child.wait().unwrap().code(), Some(143));
    assert!(TcpStream::connect(&server.address).is_err());
}

#[test]
fn a_server_that_is_drained_over_http_ends() {
    let mut server = Server::with_tokens(&["--workers", "1"]);
    assert_eq!(server.by(ADA, "POST", "/v1/drain", &Value::Null).0, 403);
    assert_eq!(server.by(OPERATOR, "POST", "/v1/drain", &Value::Null).0, 202);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn administrators_retire_workers_and_sessions_go_on() {
    let server = Server::with_tokens(&["--workers", "1"]);
    let run = |code: &str| {
        let body = json!({ "code": code });
        let (status, result) = server.by(ADA, "POST", "/v1/sessions/s/run", &body);
        assert_eq!(status, 200, "{result}");
        result["value"].clone()
    };
    assert_eq!(server.by(ADA, "POST", "/v1/sessions", &json!({ "name": "s" })).0, 201);
    assert_eq!(run("x = 1; x"), 1);
    let worker = || {
        let (_, status) = server.by(OPERATOR, "GET", "/v1/status", &Value::Null);
        status["workers"][0]["worker"].as_u64()
    };
    let first = worker().unwrap();
    let path = format!("/v1/workers/{first}/retire");
    for (token, expected) in [("", 401), (ADA, 403), (OPERATOR, 202)] {
        let (status, told) = server.by(token, "POST", &path, &Value::Null);
        assert_eq!(status, expected, "{told}");
        if status == 202 {
            assert_eq!(told, json!({ "worker": first, "status": "retiring" }));
        }
    }
    assert_eq!(run("x += 1; x"), 2, "the session has moved");
    while worker().is_none_or(|worker| worker == first) {}
    for (path, expected) in [(path.as_str(), 404), ("/v1/workers/x/retire", 400)] {
        let (status, told) = server.by(OPERATOR, "POST", path, &Value::Null);
        assert_eq!(status, expected, "{told}");
    }
    let (_, told) = server.by(OPERATOR, "POST", "/v1/workers/999/retire", &Value::Null);
    assert_eq!(told["error"]["reason"], "no_such_worker", "{told}");
    let (_, status) = server.by(OPERATOR, "GET", "/v1/status", &Value::Null);
    let decisions = status["last_decisions"].as_array().unwrap();
    let retired: Vec<_> =
        decisions.iter().filter(|decision| decision["decision"] == "retired").collect();
    assert_eq!(retired.len(), 1, "{status}");
    assert_eq!(retired[0]["worker"], first);
    assert_eq!(retired[0]["reason"], json!({ "why": "requested" }));
    let names: Vec<_> = decisions.iter().rev().map(|decision| &decision["decision"]).collect();
    assert_eq!(names[0], "pool_starting", "{names:?}");
    assert!(names.contains(&&json!("pool_ready")), "{names:?}");
}

/// One tenant's programs end their interpreters, and workers are retired all the time, while
/// another tenant works.
#[test]
fn workers_that_end_midway_cost_nobody_else_anything_over_http() {
    let server = Server::with_tokens(&["--workers", "2"]);
    assert_eq!(server.by(ADA, "POST", "/v1/sessions", &json!({ "name": "s" })).0, 201);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let hostile = scope.spawn(|| {
            let mut ended = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let body = json!({ "code": "import os; os.abort()" });
                let (status, result) = server.by(BOB, "POST", "/v1/run", &body);
                assert!(status == 200 && result["success"] == false, "{result}");
                ended += 1;
            }
            ended
        });
        let retiring = scope.spawn(|| {
            let mut retired = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let (_, status) = server.by(OPERATOR, "GET", "/v1/status", &Value::Null);
                let worker = status["workers"][0]["worker"].as_u64().unwrap_or(0);
                let path = format!("/v1/workers/{worker}/retire");
                let told = server.by(OPERATOR, "POST", &path, &Value::Null).0;
                assert!(told == 202 || told == 404, "{told}");
                retired += u32::from(told == 202);
            }
            retired
        });
        for number in 1..=40 {
            let body = json!({ "code": format!("sum(range({number}))") });
            let (status, result) = server.by(ADA, "POST", "/v1/run", &body);
            assert_eq!((status, &result["value"]), (200, &json!(number * (number - 1) / 2)));
            let body = json!({ "code": "x = globals().get('x', 0) + 1; x" });
            let (status, result) = server.by(ADA, "POST", "/v1/sessions/s/run", &body);
            assert_eq!((status, &result["value"]), (200, &json!(number)), "{result}");
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(hostile.join().unwrap() > 0);
        assert!(retiring.join().unwrap() > 0);
    });
}
