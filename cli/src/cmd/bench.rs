//! `hatchery bench`: what Hatchery does on this machine, in a minute.
//!
//! Nothing is estimated: a figure has the samples of at least five rounds, or isn't reported. Not
//! measured: fetching and compiling the Python build, which happens once on a machine.

use std::time::{Duration, Instant};

use hatchery::Job;
use hatchery::python::WHEEL_REQUIREMENT;
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::BenchArguments;
use crate::exit::Exit;
use crate::{signals, terminal};

use self::clock::now;
use self::figures::{LEAST_ROUNDS, Samples};
use self::machine::{Machine, Python3};
use self::report::{Build, Report};
use self::rounds::{Subjects, checked};

mod children;
mod clock;
mod figures;
mod machine;
mod report;
mod rounds;
mod spread;

/// How long rounds go on, once there are enough of them.
const ROUNDS: Duration = Duration::from_secs(60);
const QUICK_ROUNDS: Duration = Duration::from_secs(15);

pub(crate) async fn run(arguments: BenchArguments) -> anyhow::Result<Exit> {
    let began = now();
    // The first ends the benchmark, the second this process.
    let mut interrupts = signals::interrupts(2)?;
    let mut report = Report {
        is_quick: arguments.quick,
        is_complete: false,
        machine: Machine::read(),
        python3: None,
        build: None,
        samples: Samples::default(),
        load: None,
        preparation: None,
        took: Duration::ZERO,
    };
    let exit = tokio::select! {
        measured = measure(&mut report, began) => {
            measured?;
            report.is_complete = true;
            Exit::Success
        }
        exit = interrupts.first() => {
            terminal::note("interrupted; only what was measured in enough rounds is reported");
            exit
        }
    };
    report.load = machine::load();
    report.took = began.elapsed();
    if arguments.json {
        terminal::print(report.json())?;
    } else {
        terminal::print(report.lines().join("\n"))?;
    }
    Ok(exit)
}

async fn measure(report: &mut Report, began: Instant) -> anyhow::Result<()> {
    report.python3 = Python3::measure().await;
    let mut subjects = Subjects::start(report.machine.cpus, report.python3.is_some()).await?;
    report.build = Some(build(&subjects).await?);
    report.preparation = Some(began.elapsed());
    let time = if report.is_quick { QUICK_ROUNDS } else { ROUNDS };
    let shown = Shown::begin(time);
    // Warms every cache.
    subjects.round(&mut Samples::default()).await?;
    let mut rounds = 0;
    let began = now();
    while rounds < LEAST_ROUNDS || began.elapsed() < time {
        subjects.round(&mut report.samples).await?;
        rounds += 1;
        shown.update(began.elapsed());
    }
    Ok(())
}

async fn build(subjects: &Subjects) -> anyhow::Result<Build> {
    let (plain, science) = subjects.pools();
    let version = Job::code("import platform; print(platform.python_version())");
    let version = checked(plain.run(version).await?)?.stdout_text();
    Ok(Build {
        name: WHEEL_REQUIREMENT.to_owned(),
        version: version.trim().to_owned(),
        image: plain.image().map(|image| image.key.clone()),
        science_image: science.image().map(|image| image.key.clone()),
        memory_limit_bytes: plain.status().memory.limit_bytes,
    })
}

/// The progress of the rounds: a bar on a terminal, a note elsewhere.
struct Shown(Option<ProgressBar>);

impl Shown {
    fn begin(time: Duration) -> Self {
        use std::io::IsTerminal;
        if terminal::is_quiet() {
            return Self(None);
        }
        if !std::io::stderr().is_terminal() {
            terminal::note(format_args!("measuring for {} s", time.as_secs()));
            return Self(None);
        }
        let style = ProgressStyle::with_template("measuring {wide_bar} {percent}%");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(Some(terminal::bars().add(ProgressBar::new(time.as_secs()).with_style(style))))
    }

    fn update(&self, elapsed: Duration) {
        if let Some(bar) = &self.0 {
            bar.set_position(elapsed.as_secs());
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
