//! A benchmark harness: grades untrusted candidate functions, including wrong, crashing and endless
//! ones. It never confuses a failure of a candidate with one of the sandbox.
//!
//! `cargo run --release --example benchmark_harness`

use std::error::Error;
use std::time::Duration;

use hatchery::error::chain;
use hatchery::{Hatchery, Job, Verdict};

/// The checks of a candidate: the n-th Fibonacci number.
const CHECKS: &str = "
for n, expected in [(0, 0), (1, 1), (2, 1), (10, 55), (90, 2880067194370816120)]:
    got = fibonacci(n)
    assert got == expected, f'fibonacci({n}) is {got!r}, not {expected}'
";

const CANDIDATES: [(&str, &str); 6] = [
    (
        "iterative",
        "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n): a, b = b, a + b\n    return a",
    ),
    (
        "off by one",
        "def fibonacci(n):\n    a, b = 1, 1\n    for _ in range(n): a, b = b, a + b\n    return a",
    ),
    (
        "exponential",
        "def fibonacci(n):\n    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)",
    ),
    ("crashes", "def fibonacci(n):\n    return [0, 1, 1][n]"),
    ("quits", "import os\ndef fibonacci(n):\n    os._exit(0)"),
    ("no Python", "def fibonacci(n)\n    return n"),
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pool = Hatchery::builder().workers(2).start().await?;
    let mut tickets = Vec::new();
    for (name, source) in CANDIDATES {
        // The last expression distinguishes a finished check from a candidate that exited early.
        let program = format!("{source}\n{CHECKS}\n'passed'");
        // A budget of CPU time grades alike on a busy machine and on an idle one. The wall-clock time
        // ends only what waits.
        let job = Job::code(program)
            .named("candidate.py")
            .cpu_time(Duration::from_secs(2))
            .timeout(Duration::from_secs(120));
        tickets.push((name, pool.submit(job).await?));
    }
    for (name, ticket) in tickets {
        let outcome = ticket.await;
        let grade = match &outcome.verdict {
            Verdict::Completed { value: Some(value), .. } if value == "passed" => {
                "passed".to_owned()
            }
            Verdict::Raised(exception) => {
                format!("failed: {}: {}", exception.type_name, exception.message)
            }
            Verdict::Exited { code, .. } => format!("failed: left with code {code}"),
            Verdict::Limit(hit) => format!("failed: {hit}"),
            Verdict::SandboxFailed(failure) => {
                format!("not graded, our fault: {}", chain(failure))
            }
            verdict => format!("failed: {verdict:?}"),
        };
        println!("{name:12} {:>7.1?}  {grade}", outcome.usage.cpu);
    }
    pool.drain().await;
    Ok(())
}
