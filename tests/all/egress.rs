//! HTTP by rule: the clients that programs use, a job's share, secrets, and what ends a request.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use hatchery::egress::{Egress, EgressLimits, Lookup, Resolver, Rule, Secret};
use hatchery::event::EventKind;
use hatchery::record::{RecordingFile, Verified};
use hatchery::{Builder, Hatchery, Job, Limits, Verdict};
use serde_json::json;

use crate::found;
use crate::support::{self, exception, value, with_own_pool};

/// Servers of HTTP and HTTPS on this machine, in a process of Python.
struct Servers {
    _python: Child,
    plain: u16,
    secure: u16,
    /// Nothing listens there.
    closed: u16,
}

static SERVERS: LazyLock<Servers> = LazyLock::new(Servers::start);

const HOST: &str = "api.example.com";
/// The secret of the tests.
const VALUE: &str = "sk-test-0123456789";
/// The paths that programs may request: all that the servers have but `/forbidden`.
const PATHS: [&str; 13] = [
    "bytes/*",
    "chunks/*",
    "cookies*",
    "get*",
    "gzip",
    "hangup",
    "last",
    "post",
    "put",
    "redirect/*",
    "slow",
    "status/*",
    "x",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

impl Servers {
    fn start() -> Self {
        let code = "import json, sys, network_double
plain, secure = network_double.Server(), network_double.Server(sys.argv[1:])
print(json.dumps([plain.server_port, secure.server_port]), flush=True)
sys.stdin.read()";
        let tls = folder().join("isolation/egress/tests/tls");
        let mut python = Command::new("python3")
            .args(["-B", "-c", code])
            .args([tls.join("server.pem"), tls.join("server.key")])
            .current_dir(folder().join("engine/src/guest/agent"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(python.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let [plain, secure] = serde_json::from_str(&line).unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { _python: python, plain, secure, closed }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{HOST}:{}{path}", self.plain)
    }
}

/// Names of this machine, but for one without an address and one whose look-up never ends.
#[derive(Debug)]
struct Names;

impl Resolver for Names {
    fn resolve<'a>(&'a self, name: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            match name {
                "unknown.example.com" => Err(io::Error::other("there is no such name")),
                "slow.example.com" => std::future::pending().await,
                _ => Ok(vec![[127, 0, 0, 1].into()]),
            }
        })
    }
}

fn rule(text: &str) -> Rule {
    text.parse().unwrap()
}

/// The rules for the servers.
fn rules() -> Vec<Rule> {
    let Servers { plain, secure, closed, .. } = &*SERVERS;
    let urls = [format!("http://{HOST}:{plain}"), format!("https://{HOST}:{secure}")];
    let paths = urls.iter().flat_map(|url| PATHS.map(|path| format!("* {url}/{path} private")));
    let failing = [
        format!("* http://closed.example.com:{closed}/* private"),
        "* http://unknown.example.com/*".to_owned(),
        format!("* https://wrong.example.com:{secure}/* private"),
        "* http://slow.example.com/*".to_owned(),
    ];
    paths.chain(failing).map(|text| rule(&text)).collect()
}

fn egress(secrets: Vec<Secret>) -> Egress {
    let root = include_bytes!("../../isolation/egress/tests/tls/root.pem");
    Egress::new(rules(), secrets, EgressLimits::default(), root, Arc::new(Names)).unwrap()
}

/// A pool whose programs have a secret for the server of HTTP.
fn builder() -> Builder {
    let origin = format!("http://{HOST}:{}", SERVERS.plain);
    support::builder().egress(egress(vec![Secret::new("API_KEY", VALUE, &origin).unwrap()]))
}

/// Runs one of the programs in `clients`, which end with an exception if a client does anything
/// unexpected.
fn client(name: &str, source: &str, builder: Builder) {
    let builder = builder.egress(egress(Vec::new()));
    let Servers { plain, secure, closed, .. } = &*SERVERS;
    let urls = json!({
        "http": format!("http://{HOST}:{plain}"),
        "https": format!("https://{HOST}:{secure}"),
        "closed": format!("http://closed.example.com:{closed}/"),
        "unknown": "http://unknown.example.com/",
        "wrong": format!("https://wrong.example.com:{secure}/"),
        "denied": "http://denied.example.com/",
        "slow": "http://slow.example.com/",
    });
    with_own_pool(builder, async |pool| {
        let job = Job::code(source).args([urls.to_string()]).named(name);
        let outcome = pool.run(job).await.unwrap();
        assert!(outcome.is_success(), "{name}: {:?}\n{}", outcome.verdict, outcome.stderr_text());
        assert!(outcome.requests.len() > 30, "{name}: {:?}", outcome.requests);
    });
}

#[test]
fn the_standard_library_makes_requests() {
    let pyodide = found::pyodide().map(|path| support::builder().python(path));
    for builder in [Some(support::builder()), pyodide].into_iter().flatten() {
        client("use_standard.py", include_str!("clients/use_standard.py"), builder);
    }
}

#[test]
fn common_clients_make_requests() {
    for (name, source) in [
        ("use_requests.py", include_str!("clients/use_requests.py")),
        ("use_urllib3.py", include_str!("clients/use_urllib3.py")),
        ("use_httpx.py", include_str!("clients/use_httpx.py")),
        ("use_aiohttp.py", include_str!("clients/use_aiohttp.py")),
    ] {
        client(name, source, support::builder().packages_common());
    }
}

#[test]
fn a_hundred_megabytes_come_through_each_client_in_flat_memory() {
    let builder = support::builder().packages_common().egress(egress(Vec::new()));
    with_own_pool(builder, async |pool| {
        let limits = Limits { network_bytes: 1 << 30, ..support::calm() };
        let peak = async |size: &str| {
            let url = format!("https://{HOST}:{}", SERVERS.secure);
            let job = Job::code(include_str!("clients/use_much.py")).args([&*url, size]);
            let outcome = pool.run(job.limits(limits.clone())).await.unwrap();
            assert!(outcome.is_success(), "{:?}\n{}", outcome.verdict, outcome.stderr_text());
            assert_eq!(outcome.requests.len(), 7);
            outcome.usage.peak_memory_bytes
        };
        let (few, many) = (peak("1000000").await, peak("100000000").await);
        assert!(many < few + (16 << 20), "{few} and {many} bytes");
    });
}

/// A program that requests this URL with further arguments, and evaluates an expression of the
/// answer.
fn request(url: &str, arguments: &str, expression: &str) -> Job {
    Job::code(format!(
        "import json, os, urllib.request as r
a = r.urlopen(r.Request({url:?}, {arguments})); b = a.read(); {expression}"
    ))
}

#[test]
fn a_job_has_a_share_of_the_pools_requests() {
    with_own_pool(builder(), async |pool| {
        let get = || request(&SERVERS.url("/get"), "", "a.status");
        let refused = async |job: Job| {
            let outcome = pool.run(job).await.unwrap();
            let exception = exception(&outcome).clone();
            (exception.type_name, exception.message)
        };
        let outcome = pool.run(get()).await.unwrap();
        assert_eq!(value(&outcome), 200);
        let log = &outcome.requests[0];
        assert_eq!(
            (&*log.method, &*log.url, log.status),
            ("GET", &*SERVERS.url("/get"), Some(200))
        );
        assert!(log.is_whole && log.bytes_up > 50 && log.bytes_down > 100, "{log:?}");
        assert_eq!(outcome.usage.network_bytes, log.bytes_up + log.bytes_down);
        assert_eq!(outcome.to_tool_json()["requests"][0]["status"], 200);
        let own = rule(&format!("POST http://{HOST}:{}/* private", SERVERS.plain));
        let (kind, message) = refused(get().egress([own.clone()])).await;
        assert_eq!(kind, "PermissionError");
        assert!(message.contains("no rule allows GET "), "{message}");
        // What the pool doesn't allow, no job can.
        let other = rule("* http://other.example.com/* private");
        let (_, message) =
            refused(request("http://other.example.com/", "", "").egress([other])).await;
        assert!(message.contains("no rule allows"), "{message}");
        let (_, message) = refused(get().egress([])).await;
        assert!(message.contains("the sandbox has no network"), "{message}");
        // The limit on bytes holds for requests, too.
        let bytes = Limits { network_bytes: 100, ..support::calm() };
        let outcome = pool.run(get().limits(bytes)).await.unwrap();
        assert!(exception(&outcome).message.contains("network_bytes"), "{outcome:?}");
        assert_eq!(outcome.requests[0].label(), "limit");
    });
    with_own_pool(support::builder(), async |pool| {
        let error = pool.run(Job::code("1").egress(rules())).await.unwrap_err().to_string();
        assert!(error.contains("the pool allows no requests"), "{error}");
        let outcome = pool.run(request("http://example.com/", "", "")).await.unwrap();
        assert!(outcome.requests.is_empty());
        let told = &exception(&outcome).traceback;
        assert!(told.contains("`Builder::egress`"), "{told}");
    });
}

#[test]
fn a_tenant_has_a_share_of_the_pools_requests() {
    let get = format!("GET http://{HOST}:{}/get* private", SERVERS.plain);
    let own = vec![rule(&get), rule("* http://other.example.com/* private")];
    let egress = egress(Vec::new()).with_tenant("ada", own).with_tenant("bob", Vec::new());
    let told = async |pool: &Hatchery, job: Job| {
        let outcome = pool.run(job).await.unwrap();
        match &outcome.verdict {
            Verdict::Raised(exception) => exception.message.clone(),
            _ => value(&outcome).to_string(),
        }
    };
    let job = |path: &str| request(&SERVERS.url(path), "", "a.status");
    with_own_pool(support::builder().egress(egress), async |pool| {
        assert_eq!(told(&pool, job("/get").tenant("ada")).await, "200");
        for (path, tenant) in [("/gzip", "ada"), ("/get", "bob")] {
            let message = told(&pool, job(path).tenant(tenant)).await;
            assert!(message.contains("no rule allows "), "{tenant}: {message}");
        }
        // What the pool doesn't allow, no tenant's rule does.
        let elsewhere = request("http://other.example.com/", "", "").tenant("ada");
        assert!(told(&pool, elsewhere).await.contains("no rule allows "));
        // A job's own rules don't widen its tenant's, also in a session.
        let all = || rule(&format!("* http://{HOST}:{}/* private", SERVERS.plain));
        let wider = |path: &str| job(path).tenant("ada").egress([all()]);
        assert_eq!(told(&pool, wider("/get")).await, "200");
        assert!(told(&pool, wider("/gzip")).await.contains("no rule allows GET "));
        let session = pool.session("of ada").await.unwrap();
        for (path, expected) in [("/get", "success"), ("/gzip", "rule")] {
            let outcome = session.run(job(path).tenant("ada")).await.unwrap();
            assert_eq!(outcome.requests[0].label(), expected);
        }
        let of_ada = pool.of_tenant("ada");
        assert!(told(&of_ada, job("/gzip")).await.contains("no rule allows GET "));
        // Others have what the pool allows.
        for job in [job("/gzip"), job("/gzip").tenant("cleo")] {
            assert_eq!(told(&pool, job).await, "200");
        }
    });
    let egress = self::egress(Vec::new()).with_tenant("*", vec![rule(&get)]);
    with_own_pool(support::builder().egress(egress), async |pool| {
        for job in [job("/gzip"), job("/gzip").tenant("cleo")] {
            assert!(told(&pool, job).await.contains("no rule allows GET "));
        }
    });
}

#[test]
fn a_recorded_session_has_its_responses_without_a_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    // It answers once, and nothing listens afterwards.
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = BufReader::new(stream.try_clone().unwrap());
        while head.read_line(&mut String::new()).unwrap() > 2 {}
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nonce";
        stream.write_all(answer).unwrap();
    });
    let rules = vec![rule(&format!("GET {url} private"))];
    let limits = EgressLimits::default();
    let egress = Egress::new(rules, Vec::new(), limits, b"", Arc::new(Names)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests.recording");
    with_own_pool(support::builder().egress(egress), async |pool| {
        let session = pool.session("requests").await.unwrap();
        session.record(&path).await.unwrap();
        let first = session.run(request(&url, "", "b.decode()")).await.unwrap();
        assert_eq!(value(&first), "once");
        session.run(Job::code("print(len(b))")).await.unwrap();
        session.stop_recording().await.unwrap();
        server.join().unwrap();
        let recording = RecordingFile::open(&path).await.unwrap();
        let tell = |_: &_, verified: &Verified| assert_eq!(*verified, Verified::Equal);
        assert!(recording.verify(&pool, tell).await.unwrap());
        let later = recording.session_at(&pool, "later", 2).await.unwrap();
        assert_eq!(value(&later.run(Job::code("b.decode()")).await.unwrap()), "once");
    });
}

#[test]
fn a_job_that_waits_for_the_network_says_so() {
    with_own_pool(builder(), async |pool| {
        let (get, slow) = (SERVERS.url("/get"), SERVERS.url("/slow?n=1"));
        let key = "headers={'Authorization': os.environ['API_KEY']}";
        for (code, requests, method, url) in [
            (
                format!("r.urlopen({get:?}).read(); r.urlopen(r.Request({slow:?}, {key}))"),
                2,
                "GET",
                &*slow,
            ),
            ("r.urlopen('http://slow.example.com/')".to_owned(), 0, "", "slow.example.com:80"),
        ] {
            let job = Job::code(format!("import os, urllib.request as r\n{code}"));
            let ticket = pool.submit(job).await.unwrap();
            let explained = loop {
                let explained = pool.explain(ticket.job_id()).await.unwrap();
                let network = explained.network.clone().unwrap_or_default();
                if network.under_way.is_some_and(|request| request.url == url) {
                    break explained;
                }
            };
            let network = explained.network.clone().unwrap();
            let request = network.under_way.unwrap();
            assert_eq!((network.requests, &*request.method), (requests, method));
            let what = if method.is_empty() { "the connection to" } else { method };
            let text = format!("made {requests} requests; {what} {url} has been under way for ");
            assert!(explained.to_string().contains(&text), "{explained}");
            let told = serde_json::to_value(&explained).unwrap();
            assert_eq!(told["network"]["under_way"]["url"], url, "{told}");
            let workers = pool.status().workers;
            let busy = workers.iter().find_map(|worker| worker.network.clone()).unwrap();
            assert_eq!(busy.under_way.unwrap().url, url);
            assert!(!format!("{told}{workers:?}").contains(VALUE));
            ticket.cancel();
            drop(ticket.await);
        }
        assert!(pool.status().workers.iter().all(|worker| worker.network.is_none()));
    });
}

#[test]
fn a_program_uses_a_secret_that_it_does_not_see() {
    with_own_pool(builder(), async |pool| {
        let header = "headers={'Authorization': 'Bearer ' + os.environ['API_KEY']}";
        let job = request(&SERVERS.url("/get"), header, "[os.environ['API_KEY'], b.decode()]");
        let session = pool.session("first").await.unwrap();
        let outcome = session.run(job).await.unwrap();
        let seen = value(&outcome);
        let placeholder = seen[0].as_str().unwrap().to_owned();
        // The server echoes what it got, which the program sees with the placeholder.
        assert!(placeholder.starts_with("hatchery-secret-API_KEY-"), "{seen}");
        assert!(seen[1].as_str().unwrap().contains(&format!("Bearer {placeholder}")), "{seen}");
        assert!(!format!("{outcome:?}").contains(VALUE));
        // What a session or its fork keeps of it holds in later turns.
        let keeps =
            "r.urlopen(r.Request(a.url, headers={'X-Key': os.environ['API_KEY']})).read().decode()";
        for session in [session.fork("second").await.unwrap(), session] {
            let told = value(&session.run(Job::code(keeps)).await.unwrap());
            assert!(told.as_str().unwrap().contains(&placeholder), "{told}");
        }
        // Another host doesn't get it.
        let url = format!("https://{HOST}:{}/get", SERVERS.secure);
        let outcome = pool.run(request(&url, header, "")).await.unwrap();
        let message = &exception(&outcome).message;
        assert!(message.contains("a secret's placeholder in a header"), "{message}");
        assert_eq!(outcome.requests[0].label(), "secret");
    });
}

#[test]
fn requests_are_events_as_they_end() {
    with_own_pool(builder(), async |pool| {
        let code = format!(
            "import urllib.request as r\nfor path in ('get', 'status/404'):
    try: r.urlopen('{}' + path).read()
    except r.HTTPError as error: error.read(); print('missing', flush=True)",
            SERVERS.url("/")
        );
        let ticket = pool.submit(Job::code(code)).await.unwrap();
        let mut events = ticket.events();
        let mut told = Vec::new();
        while let Some(event) = events.next().await {
            match event.kind {
                EventKind::Request(request) => told.push(request.label().to_owned()),
                EventKind::Output { .. } => told.push("output".to_owned()),
                _ => {}
            }
        }
        // A reader may come between the two writes of a `print`.
        told.dedup();
        assert_eq!(told, ["success", "client-error", "output"]);
    });
}

#[test]
fn an_end_of_the_run_ends_its_requests() {
    let servers = Servers::start();
    let closed = async |pool: &Hatchery| all_closed(pool, servers.plain).await;
    with_own_pool(support::builder().egress(own_egress(&servers)), async |pool| {
        let url = servers.url("/slow");
        let waits =
            format!("x = 7; import urllib.request as r; print(x, flush=True); r.urlopen({url:?})");
        let session = pool.session("lives on").await.unwrap();
        // A limit interrupts the wait, and the session lives on.
        let soon = Job::code(&*waits).timeout(Duration::from_millis(500));
        let outcome = session.run(soon).await.unwrap();
        assert!(matches!(outcome.verdict, Verdict::Limit(_)), "{:?}", outcome.verdict);
        assert_eq!(outcome.requests[0].label(), "aborted");
        closed(&pool).await;
        assert_eq!(value(&session.run(Job::code("x")).await.unwrap()), 7);
        // So does a caller's interrupt, once the request is on its way.
        let ticket = session.submit(Job::code(&*waits)).await.unwrap();
        let interrupted = interrupt_once_begun(ticket).await;
        let is_interrupt =
            matches!(&interrupted, Verdict::Raised(it) if it.type_name == "KeyboardInterrupt");
        assert!(is_interrupt, "{interrupted:?}");
        closed(&pool).await;
        assert_eq!(value(&session.run(Job::code("x")).await.unwrap()), 7);
        // A program that ignores it is stopped by force, and the session is as before.
        let stubborn = format!(
            "x = 8; import urllib.request as r\nwhile True:\n    try: r.urlopen({url:?})\n    except BaseException: pass"
        );
        let grace = Limits { grace: Duration::from_millis(100), ..support::calm() };
        let job = Job::code(stubborn).limits(grace).timeout(Duration::from_millis(500));
        for outcome in [pool.run(job.clone()).await.unwrap(), session.run(job).await.unwrap()] {
            assert!(matches!(outcome.verdict, Verdict::Limit(_)), "{:?}", outcome.verdict);
            closed(&pool).await;
        }
        assert_eq!(value(&session.run(Job::code("x")).await.unwrap()), 7);
    });
}

/// Interrupts a program as it waits for a response, once it has printed something.
async fn interrupt_once_begun(ticket: hatchery::Ticket) -> Verdict {
    let mut events = ticket.events();
    while let Some(event) = events.next().await {
        if matches!(event.kind, EventKind::Output { .. }) {
            break;
        }
    }
    drop(events);
    ticket.interrupt();
    ticket.await.verdict
}

#[test]
fn a_recording_answers_requests_without_a_network() {
    with_own_pool(builder(), async |pool| {
        let header = "headers={'Authorization': os.environ['API_KEY']}";
        let job = |path: &str| request(&SERVERS.url(path), header, "b.decode()");
        let first = pool.run(job("/get?n=1").record_host_calls()).await.unwrap();
        let recording = Arc::new(first.recording.clone().unwrap());
        assert!(!serde_json::to_string(&*recording).unwrap().contains(VALUE));
        let again =
            pool.run(job("/get?n=1").replay_host_calls(Arc::clone(&recording))).await.unwrap();
        assert_eq!(value(&again), value(&first));
        let other = pool.run(job("/get?n=2").replay_host_calls(recording)).await.unwrap();
        let message = &exception(&other).message;
        assert!(message.contains("the nearest is its request 1, GET"), "{message}");
    });
}

/// Returns how many connections to a port of this machine are open.
fn connections(port: u16) -> usize {
    let port = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let is_open = |line: &&str| {
        let mut words = line.split_whitespace().skip(2);
        words.next().is_some_and(|remote| remote.ends_with(&port)) && words.next() == Some("01")
    };
    table.lines().filter(is_open).count()
}

/// Waits until no connection to a port is open; the time is that of short jobs.
async fn all_closed(pool: &Hatchery, port: u16) {
    for _ in 0..1000 {
        if connections(port) == 0 {
            break;
        }
        assert_eq!(value(&pool.run(Job::code("1")).await.unwrap()), 1);
    }
    assert_eq!(connections(port), 0);
}

/// Allows requests to a test's own server of HTTP.
fn own_egress(servers: &Servers) -> Egress {
    let rules = vec![rule(&format!("GET http://{HOST}:{}/* private", servers.plain))];
    Egress::new(rules, Vec::new(), EgressLimits::default(), &[], Arc::new(Names)).unwrap()
}

#[test]
fn connections_end_with_their_jobs() {
    let servers = Servers::start();
    with_own_pool(support::builder().egress(own_egress(&servers)), async |pool| {
        // The program keeps its connection, and loses the last one without closing it.
        let code = format!(
            "import http.client
c = http.client.HTTPConnection('{HOST}', {port}); c.request('GET', '/get')
a = c.getresponse(); a.read(); d = http.client.HTTPConnection('{HOST}', {port}); d.connect()
a.status",
            port = servers.plain
        );
        let mut tickets = Vec::new();
        for _ in 0..100 {
            tickets.push(pool.submit(Job::code(&*code)).await.unwrap());
        }
        for ticket in tickets {
            assert_eq!(value(&ticket.await), 200);
        }
        all_closed(&pool, servers.plain).await;
    });
}
