//! Measures in rounds, until there are enough of them and the time is over.

use std::time::Duration;

use hatchery::python::WHEEL_REQUIREMENT;
use hatchery::{Builder, Job};

use crate::bench::clock::now;
use crate::bench::error::Error;
use crate::bench::figures::{LEAST_ROUNDS, Samples};
use crate::bench::machine::Python3;
use crate::bench::report::{Build, Report};
use crate::bench::rounds::{Subjects, checked};
use crate::bench::settings::Settings;

/// Measures this machine, and fills the report as figures become known: whoever drops the future has
/// what was measured so far. `builder` begins each of three pools; their workers and imports are set
/// here. `tell` learns how long rounds have gone on: before the first, and after each.
///
/// # Errors
/// A pool can't be started, or a program of the benchmark fails.
pub(crate) async fn measure(
    report: &mut Report,
    settings: &Settings,
    builder: impl Fn() -> Builder,
    mut tell: impl FnMut(Duration),
) -> Result<(), Error> {
    let began = now();
    report.python3 = Python3::measure().await;
    let has_python3 = report.python3.is_some();
    let (cpus, program) = (report.machine.cpus, settings.program.clone());
    let mut subjects = Subjects::start(builder, cpus, program, has_python3).await?;
    report.build = Some(build(&subjects).await?);
    report.preparation = Some(began.elapsed());
    tell(Duration::ZERO);
    // Warms every cache.
    subjects.round(&mut Samples::default()).await?;
    let mut rounds = 0;
    let rounds_began = now();
    while rounds < LEAST_ROUNDS || rounds_began.elapsed() < settings.time() {
        subjects.round(&mut report.samples).await?;
        rounds += 1;
        tell(rounds_began.elapsed());
    }
    report.is_complete = true;
    report.end();
    Ok(())
}

async fn build(subjects: &Subjects) -> Result<Build, Error> {
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
