//! A batch that is watched while it runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdin, Stdio};

use serde_json::{Value, json};

use super::{hatchery, interrupt, json_of, run, text};

/// A batch that serves its metrics; it ends when its standard input does.
struct Watched {
    child: Child,
    stdin: Option<ChildStdin>,
    results: BufReader<std::process::ChildStdout>,
    address: String,
    /// Kept open, so that later output of the batch has a reader.
    stderr: BufReader<ChildStderr>,
}

impl Watched {
    fn start(arguments: &[&str]) -> Self {
        let mut child = hatchery()
            .args(["batch", "-", "--metrics", "127.0.0.1:0"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            said.clear();
            assert!(stderr.read_line(&mut said).unwrap() > 0, "it said no address");
            if let Some(rest) = said.split("metrics at http://").nth(1) {
                break rest.split('/').next().unwrap().to_owned();
            }
        };
        let stdin = child.stdin.take();
        let results = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdin, results, address, stderr }
    }

    fn submit(&mut self, line: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn result(&mut self) -> Value {
        let mut line = String::new();
        self.results.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Waits until a program runs.
    fn metrics_when_running(&self) -> String {
        let running = || {
            let (code, metrics) = fetch(&self.address, "/metrics");
            assert_eq!(code, 200, "{metrics}");
            let is_up = metrics.contains("hatchery_slots{");
            let runs = is_up && value(&metrics, "hatchery_slots{state=\"running\"}") > 0.0;
            runs.then_some(metrics)
        };
        std::iter::repeat_with(running).flatten().next().unwrap()
    }

    /// Ends the input, and returns the exit code and standard error.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.stdin.take());
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

/// Returns the status code and the body of a page.
fn fetch(address: &str, path: &str) -> (u16, String) {
    ask(address, "GET", path, address)
}

fn ask(address: &str, method: &str, path: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let line = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n");
    write!(stream, "{line}connection: close\r\ncontent-length: 0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, body.to_owned())
}

/// Returns the value of a metric, with its labels.
fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no `{name}` in {metrics}")).parse().unwrap()
}

#[test]
fn a_batch_is_scraped_while_it_runs() {
    let mut batch = Watched::start(&["--workers", "1..2", "--tenant", "web=3", "--timeout", "60s"]);
    batch.submit(&json!({ "id": 1, "code": "print(1)", "tenant": "web", "priority": "high" }));
    assert_eq!(batch.result()["success"], true);
    batch.submit(&json!({ "id": 2, "code": "1/0" }));
    assert_eq!(batch.result()["success"], false);
    // It runs until the batch is interrupted.
    batch.submit(&json!({ "id": 3, "code": "while True: pass", "tenant": "web" }));

    let metrics = batch.metrics_when_running();
    let (code, body) = fetch(&batch.address, "/v1/status");
    assert_eq!(code, 200, "{body}");
    let status: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status["running"], 1);
    assert_eq!(status["phase"], "open");
    assert_eq!(status["totals"]["succeeded"], 1);
    assert_eq!(status["totals"]["failed"], 1);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["last_errors"], json!([]));
    let error = &status["last_program_errors"][0];
    assert_eq!((&error["exception"], &error["job"]), (&json!("ZeroDivisionError"), &json!(2)));
    assert_eq!(error["message"], "division by zero");
    assert_eq!(status["tenants"][0]["tenant"], "web");
    assert_eq!(status["tenants"][0]["weight"], 3);

    let document = include_str!("../../../docs/status.md");
    for name in names(&status) {
        assert!(document.contains(&format!("`{name}`")), "no `{name}` in docs/status.md");
    }

    let document = include_str!("../../../docs/metrics.md");
    // These exist once there was something to report.
    let later = [
        "hatchery_code_cache_hits_total",
        "hatchery_refusals_total",
        "hatchery_limit_hits_total",
        "hatchery_http_requests_total",
        "hatchery_http_bytes_total",
        "hatchery_evictions_total",
        "hatchery_retirements_total",
        "hatchery_actor_restarts_total",
        "hatchery_offload_duration_seconds",
    ];
    let names = document.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    for name in names.filter(|name| name.starts_with("hatchery_") && !later.contains(name)) {
        assert!(metrics.contains(&format!("# TYPE {name} ")), "no `{name}` in {metrics}");
    }
    assert_eq!(value(&metrics, "hatchery_jobs_total{outcome=\"succeeded\"}"), 1.0);
    assert_eq!(value(&metrics, "hatchery_jobs_total{outcome=\"failed\"}"), 1.0);
    assert_eq!(value(&metrics, "hatchery_job_duration_seconds_count{phase=\"run\"}"), 2.0);
    let smallest = "hatchery_job_duration_seconds_bucket{phase=\"run\",le=\"0.00001\"}";
    assert_eq!(value(&metrics, smallest), 0.0);
    assert!(!metrics.contains("web"), "tenants are no labels: {metrics}");

    let (_, index) = fetch(&batch.address, "/");
    assert!(index.contains("/metrics") && index.contains("/v1/status"), "{index}");
    assert_eq!(fetch(&batch.address, "/healthz"), (200, r#"{"status":"ok"}"#.to_owned()));
    // Nothing can be run or changed, and no other page gets here.
    for path in ["/nothing", "/status", "/v1/sessions", "/openapi.json", "/health"] {
        assert_eq!(fetch(&batch.address, path).0, 404, "{path}");
    }
    for path in ["/v1/run", "/v1/drain", "/v1/workers/1/retire", "/mcp", "/execute", "/run_code"] {
        let told = ask(&batch.address, "POST", path, &batch.address).0;
        assert_eq!(told, 404, "{path}");
    }
    assert_eq!(ask(&batch.address, "POST", "/v1/status", &batch.address).0, 405);
    assert_eq!(ask(&batch.address, "GET", "/v1/status", "evil.example").0, 421);

    let top = run(&["top", &batch.address, "--once"]);
    assert_eq!(top.status.code(), Some(0), "{top:?}");
    let shown = text(&top.stdout);
    for expected in ["Hatchery open", "succeeded 1", "failed 1", "web", "running", "Latency"] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(shown.contains("ZeroDivisionError: division by zero"), "{shown}");
    let told = json_of(&run(&["top", &batch.address, "--json"]));
    assert_eq!((&told["phase"], &told["totals"]), (&status["phase"], &status["totals"]));
    interrupt(batch.child.id());
    assert_eq!(batch.child.wait().unwrap().code(), Some(130));
}

/// Returns the names of all fields in a value.
fn names(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(items) => items.iter().flat_map(names).collect(),
        Value::Object(fields) => {
            let within = fields.values().flat_map(names);
            fields.keys().map(String::as_str).chain(within).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn the_server_ends_with_its_batch() {
    let mut batch = Watched::start(&["--workers", "1"]);
    let address = batch.address.clone();
    batch.submit(&json!({ "code": "1" }));
    assert_eq!(batch.result()["success"], true);
    // An idle connection blocks nobody.
    let idle = TcpStream::connect(&address).unwrap();
    let (code, said) = batch.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 succeeded, 0 did not"), "{said}");
    drop(idle);
    let top = run(&["top", &address, "--once"]);
    assert_eq!(top.status.code(), Some(2), "{top:?}");
    let expected = format!("hatchery batch JOBS --metrics {address}");
    assert!(text(&top.stderr).contains(&expected), "{top:?}");
}

#[test]
fn an_unusable_address_is_reported_before_anything_starts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.ndjson");
    std::fs::write(&out, "kept").unwrap();
    for address in [taken.as_str(), "192.0.2.1:80", "nonsense", "127.0.0.1:99999"] {
        let output = hatchery()
            .args(["batch", "-", "--metrics", address, "--out"])
            .arg(&out)
            // Starting would fail with another code.
            .env("HATCHERY_CACHE_DIR", "/dev/null/x")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(&format!("`{address}`")), "{output:?}");
        assert_eq!(std::fs::read(&out).unwrap(), b"kept");
    }
}

#[test]
fn watching_needs_an_address_and_a_terminal() {
    for (arguments, expected) in [
        (&["top", "nonsense"][..], "HOST:PORT"),
        (&["top", "127.0.0.1:1", "--once"], "--metrics 127.0.0.1:1"),
        (&["top", "127.0.0.1:1", "--json"], "--metrics 127.0.0.1:1"),
        (&["top", "--interval", "1ms"], "at least 100ms"),
        (&["batch", "-", "--workers", "8..1"], "1..=1024"),
        (&["batch", "-", "--tenant", "web=0"], "NAME=WEIGHT"),
        (&["batch", "-", "--queue", "few"], "a whole number"),
        (&["batch", "-", "--tenant", "web=1", "--tenant", "web=2"], "twice"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    let mut batch = Watched::start(&["--workers", "1"]);
    batch.submit(&json!({ "code": "1" }));
    assert_eq!(batch.result()["success"], true);
    let output = run(&["top", &batch.address]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("--once"), "{output:?}");
    assert_eq!(batch.end().0, Some(0));
}

/// Without room to wait, most lines are refused when they are read.
#[test]
fn refused_lines_are_retried_until_accepted() {
    for workers in ["2", "0..2"] {
        let mut batch = Watched::start(&["--workers", workers, "--queue", "0"]);
        for id in 0..30 {
            batch.submit(&json!({ "id": id, "code": "import time; time.sleep(0.005); 1" }));
        }
        let mut ids: Vec<i64> = (0..30)
            .map(|_| {
                let result = batch.result();
                assert_eq!(result["success"], true, "{result}");
                result["id"].as_i64().unwrap()
            })
            .collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..30));
        let (_, metrics) = fetch(&batch.address, "/metrics");
        assert!(value(&metrics, "hatchery_refusals_total{reason=\"queue_full\"}") >= 1.0);
        let (code, said) = batch.end();
        assert_eq!(code, Some(0), "{said}");
    }
}

/// A job that would end too late doesn't wait, and gets its result like every line.
#[test]
fn a_deadline_that_can_not_be_met_is_the_result_of_its_line() {
    let mut batch = Watched::start(&["--workers", "1", "--timeout", "60s"]);
    batch.submit(&json!({ "id": "endless", "code": "while True: pass" }));
    batch.metrics_when_running();
    batch.submit(&json!({ "id": "late", "code": "1", "deadline": 0.05 }));
    let late = batch.result();
    assert_eq!((&late["id"], &late["success"]), (&json!("late"), &json!(false)), "{late}");
    // Without a measured time nothing is refused for it.
    let kind = &late["error"]["kind"];
    assert!(*kind == "limit" || late["error"]["reason"] == "deadline", "{late}");
    interrupt(batch.child.id());
    assert_eq!(batch.child.wait().unwrap().code(), Some(130));
}
