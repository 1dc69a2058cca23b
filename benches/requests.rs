//! What does a program's HTTP request cost, against the same client natively? Python's `http.client`
//! sends requests over one connection, in turns natively, on a thread and in a worker process.
//!
//! Doesn't measure: TLS, connecting, the server, other clients.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use hatchery::egress::EgressFile;
use hatchery::{Hatchery, Helper, Isolation, Job, Verdict};
use test_support::percentiles::{at, print};
use tokio::runtime::Runtime;

/// How often they take turns, and the requests of each turn.
const ROUNDS: usize = 10;
const REQUESTS: usize = 500;

/// Prints the seconds of each request.
const CLIENT: &str = "import http.client, json, sys, time
connection = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]))
times = []
for _ in range(int(sys.argv[2])):
    begun = time.perf_counter()
    connection.request('GET', '/')
    connection.getresponse().read()
    times.append(time.perf_counter() - begun)
print(json.dumps(times))";

fn answer(stream: TcpStream) {
    stream.set_nodelay(true).expect("it is connected");
    let mut answers = stream.try_clone().expect("descriptors are left");
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let is_end = line.is_empty();
        if is_end
            && answers.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_err()
        {
            return;
        }
    }
}

fn times(printed: &str) -> Vec<Duration> {
    let seconds: Vec<f64> = serde_json::from_str(printed).expect("the client prints its times");
    seconds.into_iter().map(Duration::from_secs_f64).collect()
}

fn natively(arguments: &[String]) -> Vec<Duration> {
    let output = Command::new("python3").args(["-c", CLIENT]).args(arguments).output();
    times(&String::from_utf8_lossy(&output.expect("python3 is installed").stdout))
}

async fn in_pool(pool: &Hatchery, arguments: &[String]) -> Vec<Duration> {
    let job = Job::code(CLIENT).args(arguments.to_vec());
    let outcome = pool.run(job).await.expect("the job is admitted");
    assert!(matches!(outcome.verdict, Verdict::Completed { .. }), "{outcome:?}");
    times(&outcome.stdout_text())
}

fn main() {
    hatchery::be_helper();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(|| answer(stream));
        }
    });
    let arguments = [port.to_string(), REQUESTS.to_string()];
    Runtime::new().expect("the runtime starts").block_on(async {
        let mut pools = Vec::new();
        for isolation in [Isolation::Threads, Isolation::Process { helper: Helper::Itself }] {
            let mut file = EgressFile::default();
            let rule = format!("GET http://127.0.0.1:{port}/*");
            file.allow.push(rule.parse().expect("it is a rule"));
            let egress = file.load().expect("it has no secrets");
            let builder = Hatchery::builder().workers(1).isolation(isolation).egress(egress);
            pools.push(builder.start().await.expect("the build is available"));
        }
        let mut all = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            all[0].extend(natively(&arguments));
            for (pool, all) in pools.iter().zip(&mut all[1..]) {
                all.extend(in_pool(pool, &arguments).await);
            }
        }
        let names = ["natively", "thread", "process"];
        let mut sorted = names.into_iter().zip(all).map(|(name, all)| print(name, all));
        let native = sorted.next().unwrap_or_default();
        for (name, times) in names[1..].iter().zip(sorted) {
            let added = at(&times, 500).saturating_sub(at(&native, 500));
            println!("{name}: {added:?} more than natively (p50)");
        }
        for pool in pools {
            pool.abort().await;
        }
    });
}
