//! What does the command cost as a whole process? CPU time of a line of `hatchery batch` and of a
//! `hatchery run`, the memory that a process keeps to itself, and the code that two share. And what
//! does the first result on a machine take, whose Python isn't compiled yet?
//!
//! `cargo bench --bench command -- batch` measures one part; the others are `run`, `memory` and
//! `first`. `HATCHERY_BENCH_OPTIONS` adds options to each command, such as
//! `--python pyodide --requirements FILE --setup FILE`.
//!
//! Doesn't measure: fetching Python.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hatchery::cache::CacheDir;
use hatchery::config::CACHE_DIR_VARIABLE;
use test_support::percentiles::{self, at, is_wanted};

/// The lines of a batch.
const LINES: u32 = 20_000;
/// How often a batch runs with each number of workers.
const BATCHES: usize = 5;
/// The most CPU time of a line, start included.
const MOST_CPU_OF_A_LINE: Duration = Duration::from_micros(200);
/// How often a program runs.
const RUNS: u32 = 20;
/// The most time that half of the runs take.
const MOST_WALL_OF_A_RUN: Duration = Duration::from_millis(60);
/// The most memory that a process keeps to itself.
const MOST_PRIVATE_BYTES: u64 = 40_000_000;
/// The most time until the first result on a machine.
const MOST_FIRST: Duration = Duration::from_secs(25);
/// The most CPU time that compiling all of Python takes, with that result.
const MOST_CPU_OF_COMPILING: Duration = Duration::from_secs(240);

/// What processes took.
#[derive(Debug, Clone, Copy)]
struct Cost {
    wall: Duration,
    /// Of all threads, in user and system mode.
    cpu: Duration,
}

fn hatchery(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hatchery"));
    command.arg("--quiet").args(arguments).stdin(Stdio::null());
    let options = std::env::var("HATCHERY_BENCH_OPTIONS").unwrap_or_default();
    command.args(options.split_whitespace());
    command
}

fn clock() -> Instant {
    Instant::now()
}

/// Runs a command to its end.
fn cost(mut command: Command) -> Cost {
    let (cpu_before, began) = (cpu_of_children(), clock());
    let output = command.stdout(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Cost { wall: began.elapsed(), cpu: cpu_of_children() - cpu_before }
}

/// Returns the CPU time of all children that have ended: `cutime` and `cstime`, proc_pid_stat(5).
fn cpu_of_children() -> Duration {
    cpu_time("self", 13)
}

/// Returns the CPU time in two fields of a process's status.
fn cpu_time(process: &str, first: usize) -> Duration {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let (_, fields) = status.rsplit_once(") ").expect("the name is in brackets");
    let ticks: u64 = fields.split(' ').skip(first).take(2).map(number).sum();
    Duration::from_secs(ticks)
        / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100)
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} isn't a number"))
}

/// `python3 -c pass`, by which hours can be compared.
fn hour() {
    let python = || {
        let mut command = Command::new("python3");
        command.args(["-c", "pass"]);
        cost(command).wall
    };
    percentiles::print("python3 -c pass", (0..RUNS).map(|_| python()).collect());
}

fn batch() {
    let folder = tempfile::tempdir().expect("there is room");
    let lines = folder.path().join("lines.jsonl");
    let line = "{\"code\": \"x = 1\"}\n";
    fs::write(&lines, line.repeat(LINES as usize)).expect("there is room");
    let lines = lines.to_str().expect("it is UTF-8");
    let mut costs = [Vec::new(), Vec::new()];
    for round in 0..=BATCHES {
        for (workers, costs) in ["1", "2"].into_iter().zip(&mut costs) {
            let cost = cost(hatchery(&["batch", "--workers", workers, lines]));
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    for (workers, costs) in costs.iter().enumerate() {
        let median = |of: fn(&Cost) -> Duration| {
            let mut values: Vec<_> = costs.iter().map(of).collect();
            values.sort_unstable();
            at(&values, 500)
        };
        let (wall, cpu) = (median(|cost| cost.wall), median(|cost| cost.cpu));
        println!(
            "batch --workers {}, {LINES} lines: {wall:.2?}, {:.1?} of CPU time a line, {:.2} CPUs busy",
            workers + 1,
            cpu / LINES,
            cpu.as_secs_f64() / wall.as_secs_f64(),
        );
        assert!(cpu / LINES <= MOST_CPU_OF_A_LINE);
    }
}

fn run() {
    let command = || hatchery(&["run", "-c", "x = 1"]);
    cost(command());
    let costs: Vec<_> = (0..RUNS).map(|_| cost(command())).collect();
    let mut walls: Vec<_> = costs.iter().map(|cost| cost.wall).collect();
    walls.sort_unstable();
    let half = at(&walls, 500);
    percentiles::print("run", walls);
    let cpu: Duration = costs.iter().map(|cost| cost.cpu).sum();
    println!("run: {:.1?} of CPU time on average", cpu / RUNS);
    assert!(half <= MOST_WALL_OF_A_RUN);
}

/// Two processes at once, each within a program.
fn memory() {
    let program = "import time; print('here', flush=True); time.sleep(60)";
    let processes = [(), ()].map(|()| running(hatchery(&["run", "-c", program])));
    for process in &processes {
        let whole = amounts(process, "smaps_rollup", |_| true);
        let code = amounts(process, "smaps", |mapping| mapping.ends_with(".code"));
        println!("a process within a program: {}; of its code: {}", whole.told(), code.told(),);
        assert!(whole.private <= MOST_PRIVATE_BYTES);
        assert!(code.shared > 0 && code.private == 0, "code isn't shared");
    }
    processes.into_iter().for_each(end);
}

/// With a cache that holds Python as it was fetched.
fn first() {
    let folder = tempfile::tempdir().expect("there is room");
    let cache = CacheDir::open(None).expect("there is one");
    let fetched = ["builds", "secret"].map(|name| cache.root().join(name));
    let copied = Command::new("cp").arg("-a").args(fetched).arg(folder.path()).status();
    assert!(copied.expect("cp starts").success());
    let mut command = hatchery(&["run", "-c", "print('here')"]);
    command.env(CACHE_DIR_VARIABLE, folder.path());
    let (cpu_before, began) = (cpu_of_children(), clock());
    let mut process = running(command);
    let (wall, cpu) = (began.elapsed(), cpu_time(&process.id().to_string(), 11));
    println!("the first result on a machine: {wall:.1?}, {cpu:.1?} of CPU time");
    assert!(wall <= MOST_FIRST);
    // It compiles the rest now.
    assert!(process.wait().expect("it ends").success());
    let (wall, cpu) = (began.elapsed(), cpu_of_children() - cpu_before);
    println!("all of Python is compiled after {wall:.1?}, {cpu:.1?} of CPU time");
    assert!(cpu <= MOST_CPU_OF_COMPILING);
}

/// Returns the process of a command once it has printed its line.
fn running(mut command: Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let output = child.stdout.as_mut().expect("it is a pipe");
    BufReader::new(output).read_line(&mut line).expect("it goes on");
    assert_eq!(line, "here\n");
    child
}

fn end(mut process: Child) {
    process.kill().expect("it runs");
    process.wait().expect("it ends");
}

/// Resident bytes.
#[derive(Debug, Default)]
struct Amounts {
    private: u64,
    shared: u64,
}

impl Amounts {
    fn told(&self) -> String {
        let [private, shared] = [self.private, self.shared].map(|bytes| bytes as f64 / 1e6);
        format!("{private:.1} MB private, {shared:.1} MB shared")
    }
}

/// Adds up the wanted mappings of a process, as proc_pid_smaps(5) has them.
fn amounts(process: &Child, file: &str, is_wanted: impl Fn(&str) -> bool) -> Amounts {
    let smaps = fs::read_to_string(format!("/proc/{}/{file}", process.id())).expect("it runs");
    let (mut amounts, mut counts) = (Amounts::default(), false);
    for line in smaps.lines() {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["Private_Clean:" | "Private_Dirty:", kibibytes, "kB"] if counts => {
                amounts.private += number(kibibytes) << 10;
            }
            ["Shared_Clean:" | "Shared_Dirty:", kibibytes, "kB"] if counts => {
                amounts.shared += number(kibibytes) << 10;
            }
            [addresses, _, _, _, _, ..] if addresses.contains('-') => counts = is_wanted(line),
            _ => {}
        }
    }
    amounts
}

fn main() {
    hour();
    let parts = [("batch", batch as fn()), ("run", run), ("memory", memory), ("first", first)];
    for (name, part) in parts {
        if is_wanted(name) {
            part();
        }
    }
}
