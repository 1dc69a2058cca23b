//! The sandbox's shell: each line of a table that dash with busybox has recorded, how commands end,
//! and what they leave.

use std::collections::BTreeMap;
use std::time::Duration;

use hatchery::wire::Intake;
use hatchery::{Hatchery, Job, LimitKind, Limits, Outcome, Verdict};
use serde::Deserialize;

use crate::support::{calm, exception, next_output, run_job, value, with_pool};

/// A line of `shell/lines.ndjson`, which `shell/record.py` records.
#[derive(Debug, Deserialize)]
struct Row {
    line: String,
    #[serde(flatten)]
    reference: Ended,
    /// What this shell does instead, if it differs.
    here: Option<Ended>,
    /// Why it differs.
    why: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Ended {
    out: String,
    status: u8,
    /// Whether something is on standard error, in words that differ.
    complains: bool,
}

fn ended(outcome: &Outcome) -> Ended {
    let status = match outcome.verdict {
        Verdict::Completed { .. } => 0,
        Verdict::Exited { code, .. } => code,
        ref verdict => panic!("{verdict:?}"),
    };
    let complains = !outcome.stderr_text().is_empty();
    Ended { out: outcome.stdout_text(), status, complains }
}

/// Runs every line among these files, and returns those that ended otherwise.
async fn differences(pool: &Hatchery, files: &Job, rows: &[Row]) -> Vec<String> {
    let mut tickets = Vec::new();
    for row in rows {
        let job = Job::shell(&row.line).env("HOME", "/home").with_files_of(files);
        tickets.push(pool.submit(job).await.expect("the queue isn't full"));
    }
    let mut found = Vec::new();
    for (row, mut ticket) in rows.iter().zip(tickets) {
        let (expected, outcome) =
            (row.here.as_ref().unwrap_or(&row.reference), ticket.outcome().await);
        let ended = ended(&outcome);
        if ended != *expected {
            let errors = outcome.stderr_text();
            found.push(format!("{}\n{ended:?}, not\n{expected:?}\n{errors}", row.line));
        }
    }
    found
}

#[test]
fn lines_do_what_dash_with_busybox_does() {
    let mut lines = include_str!("shell/lines.ndjson").lines();
    let first: BTreeMap<String, BTreeMap<String, String>> =
        serde_json::from_str(lines.next().unwrap()).unwrap();
    let files = first["files"].iter().fold(Job::default(), |job, (path, contents)| {
        job.input(path, contents.as_bytes()).unwrap()
    });
    let rows: Vec<Row> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let same = rows.iter().filter(|row| row.here.is_none()).count();
    assert!(
        same >= 553 && rows.len() - same <= 28,
        "{same} of {} lines are as recorded",
        rows.len()
    );
    for row in &rows {
        assert_eq!(
            row.here.is_some(),
            row.why.is_some(),
            "{}: a difference has a reason",
            row.line
        );
        assert_ne!(row.here.as_ref(), Some(&row.reference), "{}: it is no difference", row.line);
    }
    let found = with_pool(|pool| differences(pool, &files, &rows));
    assert!(found.is_empty(), "{} of {}:\n\n{}", found.len(), rows.len(), found.join("\n"));
}

#[test]
fn a_command_shares_files_with_its_session_and_nothing_else() {
    with_pool(|pool| async {
        let session = pool.session("shell").await.unwrap();
        let run = async |job: Job| session.run(job).await.unwrap();
        run(Job::code("x = 1; import os; os.makedirs('a'); open('a/b', 'w').write('one\\n')"))
            .await;
        let command = "cd a && export X=2 && cat b && python3 -c 'x = 5; print(x)' > c; exit 3";
        let outcome = run(Job::shell(command)).await;
        assert_eq!(ended(&outcome), Ended { out: "one\n".into(), status: 3, complains: false });
        let paths: Vec<_> = outcome.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a/c"], "files stay, whatever the exit code");
        let probe = "x, os.getcwd(), os.environ.get('X'), open('a/c').read(), __name__";
        let seen = value(&run(Job::code(probe)).await);
        assert_eq!(seen, serde_json::json!([1, "/workspace", null, "5\n", "__main__"]));
        // A program of its own finds nothing of the session but its files.
        let alone = run(Job::shell("python3 -c 'print(x)'; echo $?; pwd; echo ${X-unset}")).await;
        assert!(alone.stderr_text().contains("NameError"), "{alone:?}");
        assert_eq!(alone.stdout_text(), "1\n/workspace\nunset\n");
        session.close();
    });
}

#[test]
fn a_command_is_given_what_a_program_is() {
    let job = Job::shell("cat; echo $0 $# $2 $MODE; pwd; ls ..").args(["a", "b c"]).stdin("in\n");
    let job = job.env("MODE", "test").workdir("inner/folder").unwrap();
    let outcome = run_job(job.input("inner/x", "").unwrap());
    let out = "in\nsh 2 b c test\n/workspace/inner/folder\nfolder\nx\n";
    assert_eq!(ended(&outcome), Ended { out: out.into(), status: 0, complains: false });
    let wire = serde_json::json!({ "shell": "cat f; exit 4", "files": { "f": "1" } });
    let job = Job::from_wire(Intake::BATCH.job(wire).unwrap(), &Intake::BATCH).unwrap();
    assert_eq!(ended(&run_job(job)), Ended { out: "1".into(), status: 4, complains: false });
    let listed = run_job(Job::shell("pip list | head -n 2; pip install nosuchpackage; echo $?"));
    assert!(listed.stdout_text().starts_with("Package"), "{listed:?}");
    assert!(listed.stdout_text().ends_with("\n1\n") && listed.stderr_text().contains("outside"));
}

#[test]
fn limits_end_a_command() {
    let cpu = |seconds| Limits { cpu_time: Some(Duration::from_secs(seconds)), ..calm() };
    for command in [
        "while :; do :; done",
        "yes > /dev/null",
        "f() { while true; do true; done; }; f | cat",
        "python3 -c 'while True: pass'",
        "cat /dev/zero | tr a b > /dev/null & seq 1000000000000 | sort | tail -n 1",
        "echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | grep -E '(a*)*(a*)*(a*)*b'",
    ] {
        let limits = Limits { memory_bytes: 128 << 20, ..cpu(2) };
        let outcome = run_job(Job::shell(command).limits(limits));
        let is_ended = match &outcome.verdict {
            Verdict::Limit(hit) => matches!(hit.limit, LimitKind::Cpu | LimitKind::Memory),
            Verdict::Raised(exception) => exception.type_name == "MemoryError",
            _ => false,
        };
        assert!(is_ended, "{command}: {:?}", outcome.verdict);
    }
    let limits = Limits { output_bytes: 100, stop_at_output_limit: true, ..calm() };
    let outcome = run_job(Job::shell("yes").limits(limits));
    assert!(matches!(&outcome.verdict, Verdict::Limit(hit) if hit.limit == LimitKind::Output));
    let limits = Limits { file_bytes: 1 << 20, ..calm() };
    let outcome = run_job(Job::shell("seq 100000000 > f; echo after").limits(limits));
    assert_eq!(ended(&outcome), Ended { out: "after\n".into(), status: 0, complains: true });
}

#[test]
fn output_comes_as_it_is_written_and_an_interrupt_ends_a_command() {
    with_pool(|pool| async {
        let command = "echo first; python3 -c 'print(2)'; while :; do :; done";
        let mut ticket = pool.submit(Job::shell(command)).await.unwrap();
        let (mut events, mut seen) = (ticket.events(), Vec::new());
        while !seen.ends_with(b"2\n") {
            seen.extend(next_output(&mut events).await.expect("it still runs"));
        }
        assert_eq!(seen, b"first\n2\n");
        ticket.interrupt();
        let outcome = ticket.outcome().await;
        assert_eq!(exception(&outcome).type_name, "KeyboardInterrupt");
        let deep = "( ".repeat(45) + "echo in" + &" )".repeat(45);
        assert_eq!(pool.run(Job::shell(deep)).await.unwrap().stdout_text(), "in\n");
        let deep = "f() { [ $1 = 0 ] || f $(($1 - 1)); }; f 35; echo $?; f 1000; echo unreachable";
        let outcome = pool.run(Job::shell(deep)).await.unwrap();
        assert_eq!(ended(&outcome), Ended { out: "0\n".into(), status: 2, complains: true });
    });
}
