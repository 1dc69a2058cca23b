//! What is measured, through the public library as any program would use it. A round takes some
//! samples of every figure, so that a busy minute of the machine meets all of them.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hatchery::config::{EngineConfig, ImageMapping};
use hatchery::{Builder, Hatchery, Job, Outcome, Session};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

use super::figures::{Figure, Samples, Spread};

/// The smallest program that does something.
const PROGRAM: &str = "x = 1";

/// A turn that needs what the turns before it left.
const TURN: &str = "x += 1";

const FRAME: &str = "import numpy, pandas\n\
     df = pandas.DataFrame({'a': numpy.arange(100_000), 'b': numpy.arange(100_000) * 0.5})";

const FRAME_TURN: &str = "df.loc[7, 'b'] += 1";

/// Prints a number, and how many seconds it took to compute.
const FIB: &str = "import time
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
begun = time.perf_counter()
result = fib(27)
print(result, time.perf_counter() - begun)";

/// The same for arrays.
const NUMPY: &str = "import time, numpy
a = numpy.arange(200_000) / 200_000
m = a[:40_000].reshape(200, 200) + numpy.eye(200)
begun = time.perf_counter()
for _ in range(20):
    b = numpy.sqrt(a * a + a)
    total = numpy.where(b > 0.5, b - 0.5, b).sum() + (m @ m).trace()
print(round(total), time.perf_counter() - begun)";

/// What the two compute.
const FIB_RESULT: &str = "196418";
const NUMPY_RESULT: &str = "89415";

const SCIENCE: [&str; 2] = ["numpy", "pandas"];

/// Jobs before those that count, since what was measured before them left caches cold, and the
/// session on another worker.
const WARM_UP: usize = 20;

/// How long jobs are submitted for a sample of the throughput, and before it. Samples of one worker
/// and of all take turns, so that both see the same moods of a shared machine.
const STREAM: Duration = Duration::from_millis(50);
const STREAM_WARM_UP: Duration = Duration::from_millis(5);

/// Jobs per worker that are submitted and haven't ended, for the throughput.
const AT_ONCE: usize = 32;

/// What the figures are measured on.
pub(super) struct Subjects {
    /// The command line.
    program: PathBuf,
    has_python3: bool,
    workers: usize,
    one: Hatchery,
    pub(super) all: Hatchery,
    pub(super) science: Hatchery,
    session: Session,
    framed: Session,
    /// For saved sessions.
    folder: TempDir,
    rounds: usize,
}

impl Subjects {
    /// Starts pools, and builds the images that are missing.
    pub(super) async fn start(
        builder: impl Fn() -> Builder,
        workers: usize,
        program: PathBuf,
        has_python3: bool,
    ) -> anyhow::Result<Self> {
        let all = builder().workers(workers).start().await?;
        let one = builder().workers(1).start().await?;
        let science = builder().workers(workers).preload(SCIENCE).start().await?;
        let session = all.session("turns").await?;
        checked(session.run(Job::code("x = 0")).await?)?;
        let framed = science.session("frame").await?;
        checked(framed.run(Job::code(FRAME)).await?)?;
        let folder = tempfile::tempdir().context("can't create a folder for saved sessions")?;
        Ok(Self {
            program,
            has_python3,
            workers,
            one,
            all,
            science,
            session,
            framed,
            folder,
            rounds: 0,
        })
    }

    /// Takes the samples of a round.
    pub(super) async fn round(&mut self, samples: &mut Samples) -> anyhow::Result<()> {
        self.rounds += 1;
        self.first_outcome(samples).await?;
        let fresh = async |job: Job| self.all.run(job).await;
        one_at_a_time(Figure::Fresh, fresh, PROGRAM, samples).await?;
        let turn = async |job: Job| self.session.run(job).await;
        one_at_a_time(Figure::Turn, turn, TURN, samples).await?;
        let science = async |job: Job| self.science.run(job).await;
        one_at_a_time(Figure::FreshScience, science, PROGRAM, samples).await?;
        for _ in 0..Figure::OneWorker.each_round() {
            many(Figure::OneWorker, &self.one, 1, samples).await?;
            many(Figure::AllCpus, &self.all, self.workers, samples).await?;
        }
        let framed = async |job: Job| self.framed.run(job).await;
        one_at_a_time(Figure::TurnFrame, framed, FRAME_TURN, samples).await?;
        self.fork(samples).await?;
        self.save_and_revive(samples).await?;
        self.compute(samples).await
    }

    async fn first_outcome(&self, samples: &mut Samples) -> anyhow::Result<()> {
        let (printed, took) = run(&self.program, &["--quiet", "run", "-c", "print(1)"]).await?;
        ensure!(printed == "1\n", "a program of the benchmark printed {printed:?}, not 1");
        samples.push(Figure::FirstOutcome, millis(took));
        Ok(())
    }

    /// Forks the session, each time after a turn.
    async fn fork(&self, samples: &mut Samples) -> anyhow::Result<()> {
        for number in 0..Figure::ForkFrame.each_round() {
            checked(self.framed.run(Job::code(FRAME_TURN)).await?)?;
            let began = Instant::now();
            let fork = self.framed.fork(&format!("fork {number} of {}", self.rounds)).await?;
            samples.push(Figure::ForkFrame, millis(began.elapsed()));
            fork.close();
        }
        Ok(())
    }

    async fn save_and_revive(&self, samples: &mut Samples) -> anyhow::Result<()> {
        let file = self.folder.path().join("frame.session");
        checked(self.framed.run(Job::code(FRAME_TURN)).await?)?;
        let began = Instant::now();
        self.framed.save(&file).await?;
        samples.push(Figure::SaveFrame, millis(began.elapsed()));
        let began = Instant::now();
        let revived = self.science.revive(&format!("revived {}", self.rounds), &file).await?;
        checked(revived.run(Job::code(FRAME_TURN)).await?)?;
        samples.push(Figure::ReviveFrame, millis(began.elapsed()));
        revived.close();
        Ok(())
    }

    /// Runs the programs that compute, by their own clocks.
    async fn compute(&self, samples: &mut Samples) -> anyhow::Result<()> {
        let printed = checked(self.all.run(Job::code(FIB)).await?)?.stdout_text();
        samples.push(Figure::Fib, self_timed(&printed, FIB_RESULT)?);
        if self.has_python3 {
            let python3 = Path::new(Python3::PROGRAM);
            let (printed, _) = run(python3, &["-c", FIB]).await?;
            samples.push(Figure::FibPython3, self_timed(&printed, FIB_RESULT)?);
        }
        let printed = checked(self.science.run(Job::code(NUMPY)).await?)?.stdout_text();
        samples.push(Figure::Numpy, self_timed(&printed, NUMPY_RESULT)?);
        Ok(())
    }
}

/// Runs jobs one after another, each from submission to outcome.
async fn one_at_a_time(
    figure: Figure,
    run: impl AsyncFn(Job) -> Result<Outcome, hatchery::Error>,
    source: &str,
    samples: &mut Samples,
) -> anyhow::Result<()> {
    for _ in 0..WARM_UP {
        checked(run(Job::code(source)).await?)?;
    }
    let cpu_before = cpu();
    for _ in 0..figure.each_round() {
        let began = Instant::now();
        checked(run(Job::code(source)).await?)?;
        samples.push(figure, millis(began.elapsed()));
    }
    samples.push_cpu(figure, millis(cpu() - cpu_before) / figure.each_round() as f64);
    Ok(())
}

/// Measures the throughput with many jobs in flight.
async fn many(
    figure: Figure,
    pool: &Hatchery,
    workers: usize,
    samples: &mut Samples,
) -> anyhow::Result<()> {
    stream(pool, AT_ONCE * workers, STREAM_WARM_UP).await?;
    let (cpu_before, began) = (cpu(), Instant::now());
    let jobs = stream(pool, AT_ONCE * workers, STREAM).await?;
    samples.push(figure, jobs / began.elapsed().as_secs_f64());
    samples.push_cpu(figure, millis(cpu() - cpu_before) / jobs);
    Ok(())
}

/// Submits jobs for this time, and waits until all have ended. Returns how many they were.
async fn stream(pool: &Hatchery, at_once: usize, time: Duration) -> anyhow::Result<f64> {
    let mut tickets = VecDeque::with_capacity(at_once);
    let mut jobs = 0.0;
    let began = Instant::now();
    while began.elapsed() < time {
        if tickets.len() == at_once
            && let Some(first) = tickets.pop_front()
        {
            checked(first.await)?;
        }
        tickets.push_back(pool.submit(Job::code(PROGRAM)).await?);
        jobs += 1.0;
    }
    for ticket in tickets {
        checked(ticket.await)?;
    }
    Ok(jobs)
}

/// Returns the outcome if the job succeeded. A figure of failed jobs would mean nothing.
pub(super) fn checked(outcome: Outcome) -> anyhow::Result<Outcome> {
    if !outcome.is_success() {
        let (ending, said) = (outcome.verdict.name(), outcome.stderr_text());
        bail!("a job of the benchmark ended as `{ending}`: {said}");
    }
    Ok(outcome)
}

/// Reads what a program printed that times itself, and returns that time in milliseconds.
fn self_timed(printed: &str, expected: &str) -> anyhow::Result<f64> {
    let timed = printed.trim_end().split_once(' ').filter(|(result, _)| *result == expected);
    let seconds = timed.and_then(|(_, seconds)| seconds.parse::<f64>().ok());
    let seconds = seconds.filter(|seconds| *seconds > 0.0).with_context(|| {
        format!("a program of the benchmark printed {printed:?}, not {expected} and its time")
    })?;
    Ok(seconds * 1e3)
}

/// Returns the CPU time that all threads of this process have taken so far.
fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Runs a program to its end. Returns what it printed, and how long it took.
///
/// It doesn't hear the terminal's Ctrl-C: that ends the benchmark, not a sample.
async fn run(program: &Path, arguments: &[&str]) -> anyhow::Result<(String, Duration)> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).process_group(0);
    let running = tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        command.output().map(|output| (output, began.elapsed()))
    });
    let program = program.display();
    let (output, took) = running.await?.with_context(|| format!("can't run `{program}`"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{program}` failed ({}): {}", output.status, said.trim_end());
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), took))
}

/// How often the machine's own Python is started.
const STARTS: usize = 11;

/// The machine, as this process sees it. What the system doesn't say is `None`.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) cpu_model: Option<String>,
    /// How many CPUs this process may use: affinity and control group considered.
    pub(super) cpus: usize,
    pub(super) memory_bytes: Option<u64>,
    /// The version of its kernel.
    pub(super) kernel: Option<String>,
    /// How interpreters get their image.
    pub(super) mapping: ImageMapping,
    /// The load average of the last minute when the benchmark began.
    pub(super) load: Option<f64>,
}

/// The machine's own Python.
#[derive(Debug, Clone)]
pub(super) struct Python3 {
    /// Its version, such as `3.12.1`.
    pub(super) version: String,
    /// What `python3 -c pass` takes, in milliseconds.
    pub(super) start: Spread,
}

impl Machine {
    pub(super) fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let kernel = text("/proc/sys/kernel/osrelease").trim().to_owned();
        Self {
            cpu_model: field(&text("/proc/cpuinfo"), "model name").map(str::to_owned),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: field(&text("/proc/meminfo"), "MemTotal").and_then(bytes),
            kernel: Some(kernel).filter(|kernel| !kernel.is_empty()),
            mapping: EngineConfig::from_env().image_mapping(),
            load: load(),
        }
    }
}

impl Python3 {
    /// The name of its program.
    pub(super) const PROGRAM: &str = "python3";

    /// Starts it several times; `None` if it isn't installed, or doesn't run.
    pub(super) async fn measure() -> Option<Self> {
        let program = Path::new(Self::PROGRAM);
        let version = "import platform; print(platform.python_version())";
        let (version, _) = run(program, &["-c", version]).await.ok()?;
        let mut starts = Vec::new();
        for _ in 0..STARTS {
            let (_, took) = run(program, &["-c", "pass"]).await.ok()?;
            starts.push(millis(took));
        }
        let start = Spread::of(&starts, STARTS)?;
        Some(Self { version: version.trim().to_owned(), start })
    }
}

/// Returns the load average of the last minute.
pub(super) fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Returns what stands behind the first line's colon that begins with this name.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start().strip_prefix(':')?.trim())
}

/// Parses a number of KiB, as in `/proc/meminfo`.
fn bytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_times_itself_must_also_be_right() {
        assert_eq!(self_timed("7 0.25\n", "7").unwrap(), 250.0);
        for wrong in ["8 0.25\n", "7\n", "7 soon\n", "7 0.0\n", ""] {
            let error = self_timed(wrong, "7").unwrap_err().to_string();
            assert!(error.contains("not 7"), "{error}");
        }
    }

    #[test]
    fn facts_are_read_from_the_kernels_tables() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nMemTotal:  2048 kB\n";
        assert_eq!(field(text, "model name"), Some("Some CPU @ 2.00GHz"));
        assert_eq!(field(text, "MemTotal").and_then(bytes), Some(2 << 20));
        assert_eq!(field(text, "flags"), None);
        assert_eq!(bytes("2048 MB"), None);
        let machine = Machine::read();
        assert!(machine.cpus > 0);
        assert!(machine.memory_bytes.is_some_and(|bytes| bytes > 1 << 20), "{machine:?}");
        assert!(machine.kernel.is_some() && machine.load.is_some(), "{machine:?}");
    }
}
