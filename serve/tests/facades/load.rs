//! 64 clients at once, while programs end the interpreters that run them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::server::Server;

const CLIENTS: u32 = 64;
const PROGRAMS: u32 = 200;

/// What to run, and what a grader must be told. Three of 16 take their interpreter with them.
fn program(number: u32) -> (String, Value) {
    let right = format!("{}\n", u64::from(number) * 7);
    let (code, expected) = match number % 16 {
        3 => ("import os; print('half', flush=True); os._exit(0)", json!(["Success", 0, "half\n"])),
        7 => ("import os; os._exit(9)", json!(["Failed", 9, ""])),
        11 => ("import os; os.abort()", json!(["Failed", 134, ""])),
        13 => ("raise ValueError(input())", json!(["Failed", 1, ""])),
        15 => {
            ("print(int(input()) * 7 + 1)", json!(["Success", 0, format!("{}\n", number * 7 + 1)]))
        }
        _ => ("print(int(input()) * 7)", json!(["Success", 0, right])),
    };
    // Code of its own, so that none is compiled ahead.
    (format!("{code}\n# {number}\n"), expected)
}

#[test]
fn no_reward_is_lost_or_wrong_while_interpreters_die() {
    let server = Server::shared();
    let graded = AtomicU32::new(0);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let graded = &graded;
            scope.spawn(move || {
                for number in client * PROGRAMS..(client + 1) * PROGRAMS {
                    let (code, expected) = program(number);
                    let request = json!({
                        "code": code, "language": "python", "stdin": number.to_string(),
                        "run_timeout": 10, "memory_limit_MB": 1024,
                    });
                    let answer = server.post("/run_code", &request).json();
                    let run = &answer["run_result"];
                    let found = json!([answer["status"], run["return_code"], run["stdout"]]);
                    assert_eq!(found, expected, "{number}: {answer}");
                    graded.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(graded.into_inner(), CLIENTS * PROGRAMS);
}
