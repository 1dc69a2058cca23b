//! What a program can't reach.

use crate::support::{exception, run};

/// Each program tries to reach something; its output must contain the second text.
#[test]
fn nothing_of_the_host_is_reachable() {
    for (source, expected) in [
        ("open('/etc/passwd')", "FileNotFoundError"),
        ("open('/proc/self/environ')", "FileNotFoundError"),
        ("import os; print(sorted(os.listdir('/')))", "['dev', 'home', 'tmp', 'usr', 'workspace']"),
        ("import os; os.listdir('/root')", "FileNotFoundError"),
        ("open('../../../../etc/passwd')", "FileNotFoundError"),
        ("import os; print('PATH' in os.environ)", "False"),
        ("import subprocess; subprocess.run(['git'])", "Error"),
        ("import os; os.fork()", "OSError"),
        ("import os; os.fork()", "OSError"),
        ("import os; os.execv('/bin/sh', ['sh'])", "OSError"),
        ("import socket; socket.socket().connect(('127.0.0.1', 80))", "Error"),
        ("import urllib.request; urllib.request.urlopen('http://127.0.0.1')", "Error"),
        ("import ctypes; ctypes.CDLL(None)", "Error"),
        ("f = open('/usr/local/lib/python315.zip', 'r+b'); f.write(b'x'); f.flush()", "Error"),
    ] {
        let outcome = run(source);
        let said = match &outcome.verdict {
            hatchery::Verdict::Raised(exception) => exception.type_name.clone(),
            _ => outcome.stdout_text(),
        };
        assert!(said.contains(expected), "{source}: {outcome:?}");
    }
}

/// Each program tries something that needs a network, and gets an exception that
/// programs expect there, with a message that says what to do instead.
#[test]
fn attempts_at_networks_fail_with_an_explanation() {
    for (source, expected) in [
        ("import urllib.request as u; u.urlopen('http://example.com')", "no network"),
        ("import urllib.request as u; u.urlopen('https://example.com')", "no network"),
        ("import pandas; pandas.read_csv('https://example.com/x.csv')", "no network"),
        ("import socket; socket.create_connection(('example.com', 80))", "no network"),
        ("import socket; socket.socket()", "no network"),
        ("import select, socket; socket.getaddrinfo('example.com', 80)", "no network"),
    ] {
        let source =
            format!("try:\n    {source}\nexcept (OSError, RuntimeError) as e:\n    print(e)");
        let outcome = run(&source);
        assert!(outcome.stdout_text().contains(expected), "{source}: {outcome:?}");
    }
    for (source, expected) in [
        ("import subprocess; subprocess.run(['git'])", "no program `git`"),
        ("import os; os.fork()", "no processes"),
        ("import http.client; http.client.HTTPSConnection('example.com').connect()", "no network"),
        ("import requests", "no network"),
        (
            "import urllib.request as u; u.urlopen('http://example.com')",
            "Give the program its data with `Job::input`",
        ),
        ("import torch", "no native libraries"),
        ("import _testcapi", "a part of Python that this build leaves out"),
    ] {
        let outcome = run(source);
        let traceback = &exception(&outcome).traceback;
        assert!(traceback.contains(expected), "{source}: {traceback}");
    }
}

#[test]
fn changes_to_the_library_are_invisible_to_other_jobs() {
    let damage = "import os\n\
                  for path in ['/usr/local/lib/python315.zip']:\n    \
                  try: os.remove(path)\n    except OSError as error: print(type(error).__name__)";
    run(damage);
    for _ in 0..3 {
        assert!(run("import json, decimal, statistics").is_success());
    }
}

#[test]
fn a_forged_reply_does_not_replace_the_agents_own() {
    let forged = "import _host\n\
                  _host.call(b'\\x02\\x29\\0\\0\\0{\"kind\":\"exited\",\"code\":9,\"message\":null}')\n5";
    assert_eq!(crate::support::value(&run(forged)), serde_json::json!(5));
}

#[test]
fn invalid_frames_at_the_door_are_refused_and_harmless() {
    for source in [
        "import _host\n_host.call(b'')",
        "import _host\n_host.call(b'\\xff' * 100)",
        "import _host\n_host.call(b'\\x02' * (1 << 27))",
    ] {
        let outcome = run(source);
        assert!(matches!(outcome.verdict, hatchery::Verdict::Raised(_)), "{source}: {outcome:?}");
    }
    let outcome = run("import _host\nfor _ in range(10000): _host.call(b'\\x02x')\n1");
    assert_eq!(crate::support::value(&outcome), serde_json::json!(1));
}
