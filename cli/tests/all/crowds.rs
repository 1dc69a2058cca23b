//! `hatchery serve --http` with many clients: rewards while workers die, thousands of idle
//! connections, and a server that is killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::{serving, web};

/// The longest that a test waits for the server.
const PATIENCE: Duration = Duration::from_secs(120);

/// Connections that grade at once, as many as verl has by default.
const GRADERS: u32 = 64;

/// Programs of each, unless `HATCHERY_REWARDS` says otherwise.
const PROGRAMS: u32 = 200;

const OPERATOR: &str = "secret-of-the-operator-0";

/// A server in a process of its own, which ends with the test.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(options: &[&str]) -> Self {
        let (child, address) = web::spawn(&[&["--workers", "2"], options].concat());
        let address = address.parse().unwrap();
        Self { child, address }
    }

    fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).unwrap())
    }

    fn run(&self, code: &str) -> Value {
        let answer = self.connect().post("/v1/run", &json!({ "code": code }));
        answer.expect("an answer").1["value"].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that is kept.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// Posts JSON, and returns the status and the JSON of the answer; `None` if there is none.
    fn post(&mut self, path: &str, body: &Value) -> Option<(u16, Value)> {
        self.send("POST", path, &body.to_string());
        self.receive()
    }

    /// Returns the status, if the connection is still served.
    fn get(&mut self, path: &str) -> Option<u16> {
        self.send("GET", path, "");
        self.receive().map(|(status, _)| status)
    }

    fn send(&mut self, method: &str, path: &str, body: &str) {
        self.send_with(method, path, "", body);
    }

    fn send_with(&mut self, method: &str, path: &str, head: &str, body: &str) {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             authorization: Bearer {OPERATOR}\r\ncontent-length: {length}\r\n{head}\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
    }

    fn receive(&mut self) -> Option<(u16, Value)> {
        let mut line = String::new();
        self.stream.read_line(&mut line).ok().filter(|length| *length > 0)?;
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line).ok().filter(|length| *length > 0)?;
            match line.trim_end().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).ok()?;
        Some((status, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

/// What to run, and what a grader must be told: the status, the code it returned, and the output.
/// Of 16 programs, three take their interpreter with them; a few never end.
fn program(number: u32) -> (String, f64, Value) {
    let answer = number * 7;
    let (code, seconds, expected) = match number % 16 {
        3 => {
            let code = "import os; print('half', flush=True); os._exit(0)";
            (code, 20.0, json!(["Success", 0, "half\n"]))
        }
        5 if number % 400 == 5 => {
            let code = "print('on', flush=True)\nwhile True: pass";
            (code, 0.2, json!(["Failed", null, "on\n"]))
        }
        7 => ("import os; os._exit(9)", 20.0, json!(["Failed", 9, ""])),
        11 => ("import os; os.abort()", 20.0, json!(["Failed", 134, ""])),
        13 => ("raise ValueError(input())", 20.0, json!(["Failed", 1, ""])),
        15 => {
            let wrong = format!("{}\n", answer + 1);
            ("print(int(input()) * 7 + 1)", 20.0, json!(["Success", 0, wrong]))
        }
        _ => ("print(int(input()) * 7)", 20.0, json!(["Success", 0, format!("{answer}\n")])),
    };
    // Code of its own, so that none is compiled ahead.
    (format!("{code}\n# {number}\n"), seconds, expected)
}

fn grade(client: &mut Client, number: u32) {
    let (code, seconds, expected) = program(number);
    let request = json!({
        "code": code, "language": "python", "stdin": number.to_string(),
        "run_timeout": seconds, "memory_limit_MB": 1024,
    });
    let (status, answer) = client.post("/run_code", &request).expect("an answer");
    assert_eq!(status, 200, "{number}: {answer}");
    let run = &answer["run_result"];
    let found = json!([answer["status"], run["return_code"], run["stdout"]]);
    assert_eq!(found, expected, "{number}: {answer}");
    let timed_out = if expected[1].is_null() { "TimeLimitExceeded" } else { "Finished" };
    assert_eq!(run["status"], timed_out, "{number}: {answer}");
}

/// Retires a worker, the oldest, at each message; returns how many were.
fn retire_workers(server: &Server, ticks: &Receiver<()>) -> u32 {
    let mut client = server.connect();
    let mut retired = 0;
    for () in ticks {
        client.send("GET", "/v1/status", "");
        let (_, status) = client.receive().expect("a status");
        let Some(worker) = status["workers"][0]["worker"].as_u64() else { continue };
        let path = format!("/v1/workers/{worker}/retire");
        // It may have ended by itself meanwhile.
        let (status, _) = client.post(&path, &json!({})).expect("an answer");
        retired += u32::from(status < 300);
    }
    retired
}

#[test]
fn no_reward_is_lost_or_wrong_while_workers_die() {
    let programs = std::env::var("HATCHERY_REWARDS").map_or(PROGRAMS, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, OPERATOR).unwrap();
    let server = Server::start(&["--token-file", tokens.to_str().unwrap()]);
    let graded = AtomicU32::new(0);
    let (tick, ticks) = sync_channel(1);
    let retired = thread::scope(|scope| {
        for grader in 0..GRADERS {
            let (server, graded, tick) = (&server, &graded, tick.clone());
            scope.spawn(move || {
                let mut client = server.connect();
                for number in grader * programs..(grader + 1) * programs {
                    grade(&mut client, number);
                    graded.fetch_add(1, Ordering::Relaxed);
                    if number % 50 == 0 {
                        // The killer may be busy.
                        let _ = tick.try_send(());
                    }
                }
            });
        }
        drop(tick);
        retire_workers(&server, &ticks)
    });
    println!("{graded:?} programs graded, {retired} workers retired meanwhile");
    assert_eq!(graded.into_inner(), GRADERS * programs);
    assert!(retired > 0, "workers are retired meanwhile");
}

/// Connections that say nothing, if the machine allows that many.
const IDLE: usize = 10_000;

/// Descriptors of the test beside them.
const OTHERS: usize = 500;

/// The longest that a job may take meanwhile.
const SOON: Duration = Duration::from_secs(1);

/// Raises the limit on open files; returns how many connections fit.
fn room_for(connections: usize) -> usize {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let most = maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap());
    let limit = most.min(connections + OTHERS);
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit as u64), maximum }).unwrap();
    limit - OTHERS
}

#[test]
fn thousands_of_idle_connections_hold_up_nobody() {
    let count = room_for(IDLE);
    let server = Server::start(&["--connections", &count.to_string()]);
    while server.connect().get("/healthz") != Some(200) {}
    let answers_soon = |what: &str| {
        let since = Instant::now();
        assert_eq!(server.run("6 * 7"), 42);
        let took = since.elapsed();
        println!("{what}: a job in {took:?}");
        assert!(took < SOON, "{what}: {took:?}");
    };
    answers_soon("no connections");
    let mut idle = Vec::with_capacity(count);
    let since = Instant::now();
    for number in 0..count {
        let mut client = server.connect();
        match number % 3 {
            // Silent ones, ones within a head, and ones that are kept after an answer.
            0 => {}
            1 => client.stream.get_mut().write_all(b"POST /v1/run HTTP/1.1\r\nhost: ").unwrap(),
            _ => assert_eq!(client.get("/healthz"), Some(200)),
        }
        idle.push(client);
        if number % 1000 == 999 {
            answers_soon(&format!("{} connections", number + 1));
        }
    }
    println!("{count} connections in {:?}", since.elapsed());
    // The server has no room for more, so these take the places of the longest idle.
    for _ in 0..100 {
        server.run("6 * 7");
    }
    answers_soon("as many connections as there may be");
    // Those that never asked for anything end by themselves, and the others are still served.
    let mut kept = 0;
    for (number, client) in idle.iter_mut().enumerate() {
        match number % 3 {
            2 if number > 1000 => kept += usize::from(client.get("/healthz") == Some(200)),
            2 => {}
            _ => assert_eq!(client.receive(), None, "{number}"),
        }
    }
    println!("{kept} kept");
    assert!(kept > 0);
    answers_soon("the end");
}

#[test]
fn a_killed_server_is_noticed_at_once() {
    let mut server = Server::start(&[]);
    let (mut waiting, mut idle) = (server.connect(), server.connect());
    assert!(idle.get("/healthz").is_some());
    let job = json!({ "code": "print('begun', flush=True)\nwhile True: pass" });
    let head = "accept: text/event-stream\r\n";
    waiting.send_with("POST", "/v1/run", head, &job.to_string());
    let mut said = String::new();
    while !said.contains("begun") {
        assert!(waiting.stream.read_line(&mut said).unwrap() > 0, "{said}");
    }
    // The process gets no chance to say anything.
    server.child.kill().unwrap();
    let since = Instant::now();
    let ended = waiting.stream.read_to_string(&mut said);
    assert!(ended.is_err() || !said.contains("outcome"), "{said}");
    assert_eq!(idle.receive(), None);
    server.child.wait().unwrap();
    assert!(TcpStream::connect(server.address).is_err(), "nobody listens");
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

#[test]
fn a_killed_server_of_frames_is_noticed_at_once() {
    let mut server = serving::Server::start();
    let (mut waiting, mut idle) = (server.connect(), server.connect());
    let (mut child, mut piped) = serving::over_stdio();
    let job = json!({ "code": "print('begun')\nwhile True: pass" });
    let run = json!({ "type": "run", "id": 1, "events": true, "job": job });
    waiting.send(run.clone(), &[]);
    waiting.await_begun();
    piped.send(run, &[]);
    piped.await_begun();
    server.signal("-KILL");
    child.kill().unwrap();
    let since = Instant::now();
    assert!(waiting.next().is_none() && idle.next().is_none() && piped.next().is_none());
    server.child.wait().unwrap();
    assert!(UnixStream::connect(&server.path).is_err(), "nobody listens");
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}
