//! What a program can't reach.

use crate::support::run;

/// Each program tries to reach something; what it says must contain the second text.
#[test]
fn nothing_of_the_host_is_reachable() {
    for (source, expected) in [
        ("open('/etc/passwd')", "FileNotFoundError"),
        ("open('/proc/self/environ')", "FileNotFoundError"),
        ("import os; print(sorted(os.listdir('/')))", "['home', 'tmp', 'usr', 'workspace']"),
        ("import os; os.listdir('/root')", "FileNotFoundError"),
        ("open('../../../../etc/passwd')", "FileNotFoundError"),
        ("import os; print('PATH' in os.environ)", "False"),
        ("import subprocess; subprocess.run(['ls'])", "Error"),
        ("import os; os.system('ls')", "AttributeError"),
        ("import os; os.fork()", "AttributeError"),
        ("import os; os.execv('/bin/sh', ['sh'])", "AttributeError"),
        ("import threading; threading.Thread(target=print).start()", "RuntimeError"),
        ("import multiprocessing; multiprocessing.Process(target=print).start()", "Error"),
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

#[test]
fn what_one_job_does_to_the_library_no_other_sees() {
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
fn junk_at_the_door_is_refused_and_harmless() {
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
