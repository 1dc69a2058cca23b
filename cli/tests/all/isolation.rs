//! Workers in processes of their own, from the command line.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use test_support::victims::Victim;

use crate::hatchery;
use crate::web::Server;

/// Runs a program with these variables set.
fn run(environment: &[(&str, &str)], arguments: &[&str]) -> Output {
    hatchery().args(["run"]).args(arguments).envs(environment.iter().copied()).output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_option_and_the_variable_put_workers_into_processes() {
    let source = "print(6 * 7)";
    let by_option = run(&[], &["--isolation", "process", "-c", source]);
    let by_variable = run(&[("HATCHERY_ISOLATION", "process")], &["-c", source]);
    for output in [by_option, by_variable] {
        assert_eq!(output.status.code(), Some(0), "{}", error(&output));
        assert_eq!(output.stdout, b"42\n");
    }
}

#[test]
fn a_program_that_fails_there_fails_as_elsewhere() {
    let output = run(&[], &["--isolation", "process", "-c", "1 / 0"]);
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    assert!(error(&output).contains("ZeroDivisionError"), "{}", error(&output));
}

/// Sends a signal to all processes of a command once it has printed a line. Returns all that it prints,
/// and its exit code.
fn signalled(arguments: &[&str], input: &str, signal: Signal) -> (String, Option<i32>) {
    let mut command = hatchery();
    command.args(arguments).env("HATCHERY_ISOLATION", "process").process_group(0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // Open until the end.
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    stdout.read_line(&mut said).unwrap();
    let group = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    kill_process_group(group, signal).unwrap();
    stdout.read_to_string(&mut said).unwrap();
    (said, child.wait().unwrap().code())
}

/// A terminal, a service manager and `timeout` signal all processes of a command.
#[test]
fn a_signal_to_all_processes_is_for_the_command_alone() {
    let source = "try:\n    print('on')\n    while True: pass\n\
                  except KeyboardInterrupt: print('tidied up')";
    let (said, code) = signalled(&["run", "-c", source], "", Signal::INT);
    assert_eq!((&*said, code), ("on\ntidied up\n", Some(0)));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("work.session");
    let prompt = ["repl", "--session", file.to_str().unwrap()];
    for (input, says) in [("x = 1\nprint('on')\n", "on\n"), ("print(x)\n", "1\n")] {
        let (said, code) = signalled(&prompt, input, Signal::TERM);
        assert_eq!((&*said, code), (says, Some(143)));
    }
}

#[test]
fn jobs_and_turns_of_a_server_outlive_each_process_below_it() {
    let server = Server::start(&["--workers", "2", "--isolation", "process"]);
    let job = json!({ "code": "import time; time.sleep(0.3); 6 * 7" });
    let turn = json!({ "code": "turns = globals().get('turns', 0) + 1; turns" });
    let session = || server.post("/v1/sessions", &json!({ "name": "s" })).0;
    assert_eq!(session(), 201);
    let (mut turns, mut kept) = (0, 0);
    for victim in Victim::ALL {
        thread::scope(|scope| {
            let jobs = [(); 2].map(|()| scope.spawn(|| server.post("/v1/run", &job)));
            server.running();
            victim.kill(server.process());
            for job in jobs {
                let (status, result) = job.join().unwrap();
                assert_eq!((status, &result["value"]), (200, &json!(42)), "{victim:?}: {result}");
            }
        });
        let (status, result) = server.post("/v1/sessions/s/run", &turn);
        if status == 200 {
            (turns, kept) = (turns + 1, kept + 1);
            assert_eq!(result["value"], turns, "{victim:?}: {result}");
        } else {
            // It was on the worker, and no copy of it had left that.
            assert_eq!(result["error"]["reason"], "session_gone", "{victim:?}: {result}");
            turns = 0;
            assert_eq!(session(), 201);
        }
    }
    assert!(kept > 0);
}

/// What is killed may take the next session along that begins meanwhile.
#[test]
fn a_prompt_outlives_each_process_below_it() {
    let mut command = hatchery();
    command.args(["repl", "--isolation", "process"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut prompt = command.spawn().unwrap();
    let mut stdin = prompt.stdin.take().unwrap();
    let mut stdout = BufReader::new(prompt.stdout.take().unwrap());
    let mut stderr = prompt.stderr.take().unwrap();
    let said = thread::spawn(move || {
        let mut said = String::new();
        stderr.read_to_string(&mut said).unwrap();
        said
    });
    let mut says = |input: &str, answer: &str| {
        stdin.write_all(input.as_bytes()).unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, answer, "{input}");
    };
    for times in [1, 3] {
        for victim in Victim::ALL {
            says("x = 1; print('on'); import time; time.sleep(60)\n", "on\n");
            victim.kill(prompt.id());
            // Once its input has failed, the prompt is idle.
            let again = || victim.kill_within(prompt.id(), Duration::from_millis(300));
            (1..times).take_while(|_| again()).count();
            says("print('x' in globals())\n", "False\n");
            // Between two inputs.
            (0..times).take_while(|_| again()).count();
            says("pass\nprint(6 * 7)\n", "42\n");
        }
    }
    drop(stdin);
    prompt.wait().unwrap();
    let said = said.join().unwrap();
    assert!(said.contains("the session and its variables are lost"), "{said}");
}

#[test]
fn an_isolation_that_does_not_exist_is_an_error() {
    let output = run(&[("HATCHERY_ISOLATION", "fence")], &["-c", "print(1)"]);
    assert_ne!(output.status.code(), Some(0));
    let said = error(&output);
    assert!(said.contains("HATCHERY_ISOLATION") && said.contains("fence"), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_helper_that_is_none_is_an_error() {
    for (program, says) in [("/bin/true", "be_helper"), ("/nowhere/helper", "can't start")] {
        let environment = [("HATCHERY_ISOLATION", "process"), ("HATCHERY_HELPER", program)];
        let output = run(&environment, &["-c", "print(1)"]);
        assert_ne!(output.status.code(), Some(0));
        let said = error(&output);
        assert!(said.contains(program) && said.contains(says), "{said}");
    }
}

/// Runs a program in a user namespace in which no network namespaces can be made, if this system
/// lets the user have one.
fn run_without_network_namespaces(isolation: &str) -> Option<Output> {
    let script = r#"echo 0 > /proc/sys/user/max_net_namespaces && exec "$@""#;
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script, "sh"]);
    let unshares = command.arg("true").output().is_ok_and(|output| output.status.success());
    if !unshares {
        println!("this system lets the user make no user namespace");
        return None;
    }
    let program = hatchery();
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script, "sh"]);
    command.arg(program.get_program());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["run", "--isolation", isolation, "-c", "print(1)"]);
    Some(command.output().unwrap())
}

#[test]
fn a_missing_layer_is_noted() {
    let Some(output) = run_without_network_namespaces("process") else { return };
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    assert_eq!(output.stdout, b"1\n");
    let said = error(&output);
    assert!(said.contains("lack a layer") && said.contains("network namespace: "), "{said}");
}

#[test]
fn a_strict_pool_refuses_to_start_without_a_layer() {
    let Some(output) = run_without_network_namespaces("process-strict") else { return };
    assert_eq!(output.status.code(), Some(125), "{}", error(&output));
    assert!(output.stdout.is_empty());
    let said = error(&output);
    for part in ["`process-strict`", "- network namespace: ", "max_", "isolation `process`"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Where nothing is missing, a strict pool starts, and the notes say nothing.
#[test]
fn a_strict_pool_starts_where_every_layer_stands() {
    let lax = run(&[], &["--isolation", "process", "-c", "print(1)"]);
    let strict = run(&[("HATCHERY_ISOLATION", "process-strict")], &["-c", "print(1)"]);
    let is_whole = !error(&lax).contains("lack a layer");
    assert_eq!(strict.status.success(), is_whole, "{}{}", error(&lax), error(&strict));
    assert_eq!(strict.stdout, if is_whole { &b"1\n"[..] } else { b"" });
}

/// Files that are too young for a note that they were checked are hashed by the helper, too. Threads
/// that did it would keep it from making a namespace of process ids.
#[test]
fn no_layer_is_missing_right_after_an_image_was_built() {
    let cache = crate::guide::cache_without_images();
    let environment = [("HATCHERY_CACHE_DIR", cache.path().to_str().unwrap())];
    let output = run(&environment, &["--isolation", "process", "-c", "print(1)"]);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    assert!(!error(&output).contains("PID namespace"), "{}", error(&output));
}

#[test]
fn the_status_tells_the_isolation_and_the_memory_of_each_process() {
    let server = crate::web::Server::start(&["--isolation", "process", "--workers", "1"]);
    let session = serde_json::json!({ "name": "large" });
    assert_eq!(server.post("/v1/sessions", &session).0, 201);
    // What the kernel said is used for a second.
    let code = "import time\nx = b'x' * (64 << 20)\ntime.sleep(1.1)";
    let keep = serde_json::json!({ "code": code });
    assert_eq!(server.post("/v1/sessions/large/run", &keep).0, 200);
    let (_, shown) = server.get("/v1/status");
    assert_eq!(shown["isolation"]["workers_in"], "processes");
    assert!(shown["isolation"]["missing"].is_array(), "{shown}");
    let (cgroup, no_cgroup) = (&shown["isolation"]["cgroup"], &shown["isolation"]["no_cgroup"]);
    assert!(cgroup.is_string() != no_cgroup.is_string(), "{shown}");
    let bytes = shown["workers"][0]["process_private_bytes"].as_u64().unwrap();
    assert!((64 << 20..512 << 20).contains(&bytes), "{bytes}");

    let server = crate::web::Server::start(&["--isolation", "threads", "--workers", "1"]);
    let (_, shown) = server.get("/v1/status");
    let none = serde_json::json!({
        "workers_in": "threads", "missing": [], "cgroup": null, "no_cgroup": null,
    });
    assert_eq!(shown["isolation"], none);
    assert!(shown["workers"][0]["process_private_bytes"].is_null(), "{shown}");
}

/// With the feature `test-hook` of the crate `process`, the text is in the program: its test
/// `compromised` finds it in itself.
#[test]
fn the_program_has_no_test_hook() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_hatchery")).unwrap();
    let text = b"# hatchery test hook";
    assert!(program.windows(text.len()).all(|found| found != text));
}
