//! What the benchmark reports: a table for people, or a JSON object.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hatchery::config::ImageMapping;
use hatchery::python::WHEEL_REQUIREMENT;
use hatchery::{Builder, Job};
use serde_json::{Value, json};

use super::figures::{Figure, LEAST_ROUNDS, RATIOS, Ratio, Samples, Spread, Unit};
use super::rounds::{Machine, Python3, Subjects, checked, load};
use crate::cmd::image::short;
use crate::terminal::{self, size, three_digits};

/// Decimals of numbers in JSON: below a nanosecond, for milliseconds.
const JSON_SCALE: f64 = 1e6;

const ROUNDS: Duration = Duration::from_secs(60);
const QUICK_ROUNDS: Duration = Duration::from_secs(15);

/// What runs the programs.
#[derive(Debug, Clone)]
pub(super) struct Build {
    /// Python as packed for the sandbox.
    pub(super) name: String,
    /// Its version, such as `3.14.0`.
    pub(super) version: String,
    /// The key of the image without imports.
    pub(super) image: Option<String>,
    /// The key of the image with numpy and pandas.
    pub(super) science_image: Option<String>,
    /// What one pool may use.
    pub(super) memory_limit_bytes: u64,
}

/// Everything that is reported.
#[derive(Debug, Clone)]
pub(super) struct Report {
    /// Whether a quarter of the samples was wanted.
    pub(super) is_quick: bool,
    /// All rounds were done.
    pub(super) is_complete: bool,
    pub(super) machine: Machine,
    /// Its own Python; `None` if the benchmark ended before that was known, or there is none.
    pub(super) python3: Option<Python3>,
    /// What runs the programs; `None` if the benchmark ended before that was known.
    pub(super) build: Option<Build>,
    pub(super) samples: Samples,
    /// The load average at the end.
    pub(super) load: Option<f64>,
    /// What it took to start, and to build what was missing; `None` if that didn't end.
    pub(super) preparation: Option<Duration>,
    /// When it began.
    began: Instant,
    /// What it took until it ended.
    took: Duration,
}

impl Report {
    /// Begins a report about this machine, without figures. What it takes counts from now.
    pub(super) fn new(is_quick: bool) -> Self {
        Self {
            is_quick,
            is_complete: false,
            machine: Machine::read(),
            python3: None,
            build: None,
            samples: Samples::default(),
            load: None,
            preparation: None,
            began: Instant::now(),
            took: Duration::ZERO,
        }
    }

    /// Returns how long rounds go on, once there are enough of them.
    pub(super) fn rounds_time(&self) -> Duration {
        if self.is_quick { QUICK_ROUNDS } else { ROUNDS }
    }

    /// Ends the report: notes how long it took, and the load.
    pub(super) fn end(&mut self) {
        self.load = load();
        self.took = self.began.elapsed();
    }

    /// Returns the report for people, its parts apart.
    pub(super) fn text(&self) -> String {
        let mut lines = self.facts();
        for part in [terminal::aligned(&self.table()), self.ratios()] {
            if !part.is_empty() {
                lines.push(String::new());
                lines.extend(part);
            }
        }
        lines.push(self.duration());
        lines.join("\n")
    }

    /// Says what the figures say about each other.
    fn ratios(&self) -> Vec<String> {
        let says = |ratio: &Ratio| {
            let number = three_digits(self.samples.ratio(ratio)?);
            Some(ratio.3.replace("{}", &number))
        };
        RATIOS.iter().filter_map(says).collect()
    }

    fn duration(&self) -> String {
        let shown = |time: Duration| format!("{} s", three_digits(time.as_secs_f64()));
        let took = shown(self.took);
        match self.preparation {
            Some(time) => format!("took {took}, {} of that to start", shown(time)),
            None => format!("ended after {took}, before it had started"),
        }
    }

    /// Describes the machine and the build, a line each.
    fn facts(&self) -> Vec<String> {
        let Self { machine, build, .. } = self;
        let unknown = || "unknown".to_owned();
        let or_unknown = |fact: &Option<String>| fact.clone().unwrap_or_else(unknown);
        let load = |load: Option<f64>| load.map_or_else(unknown, |load| format!("{load:.2}"));
        let short = |key: &Option<String>| short(&or_unknown(key)).to_owned();
        let mut memory = machine.memory_bytes.map_or_else(unknown, size);
        let mut images = mapping(machine.mapping).to_owned();
        let mut python = None;
        if let Some(build) = build {
            memory += &format!(", of which a pool uses {} at most", size(build.memory_limit_bytes));
            let [plain, science] = [&build.image, &build.science_image].map(short);
            images = format!("{plain}, {science} with numpy and pandas; {images}");
            python = Some(format!("{}, {}", build.version, build.name));
        }
        let python3 = match &self.python3 {
            Some(Python3 { version, start }) => {
                let [half, low, high] =
                    [start.p50, start.p5, start.p95].map(|value| Unit::Millis.shown(value));
                Some(format!("{version}; `python3 -c pass` takes {half}, {low} to {high}"))
            }
            // Before the build is known, nobody may have looked.
            None => build.as_ref().map(|_| "not installed".to_owned()),
        };
        let loads = [machine.load, self.load].map(load);
        let facts = [
            ("hatchery", Some(env!("CARGO_PKG_VERSION").to_owned())),
            ("cpu", Some(or_unknown(&machine.cpu_model))),
            ("cpus", Some(machine.cpus.to_string())),
            ("memory", Some(memory)),
            ("kernel", Some(or_unknown(&machine.kernel))),
            ("python", python),
            ("images", Some(images)),
            ("python3", python3),
            ("load", Some(format!("{} at the start, {} at the end", loads[0], loads[1]))),
        ];
        let line = |(name, fact): (&str, Option<String>)| Some(format!("{name:8} {}", fact?));
        facts.into_iter().filter_map(line).collect()
    }

    /// Formats a heading and a row for each figure; nothing if there are none.
    fn table(&self) -> Vec<[String; 7]> {
        let headings = ["FIGURE", "MEDIAN", "P5", "P95", "P99", "CPU PER JOB", "SAMPLES"];
        let known: Vec<_> = Figure::all().filter_map(|figure| self.row(figure)).collect();
        if known.is_empty() {
            return Vec::new();
        }
        [vec![headings.map(str::to_owned)], known].concat()
    }

    /// Formats the line of a figure, if it is known.
    fn row(&self, figure: Figure) -> Option<[String; 7]> {
        let Spread { samples, mean: _, p5, p50, p95, p99 } = self.samples.spread(figure)?;
        let [half, low, high, tail] = [p50, p5, p95, p99].map(|value| figure.unit().shown(value));
        let none = || "-".to_owned();
        let tail = if figure.has_tail() { tail } else { none() };
        let cpu = self.samples.cpu_millis(figure);
        let cpu = cpu.map_or_else(none, |millis| Unit::Millis.shown(millis));
        Some([figure.title().to_owned(), half, low, high, tail, cpu, samples.to_string()])
    }

    /// Returns the object for programs. Whatever isn't known is null.
    pub(super) fn json(&self) -> Value {
        let Self { machine, build, python3, .. } = self;
        let (build, python3) = (build.as_ref(), python3.as_ref());
        let mut figures = json!({});
        for figure in Figure::all() {
            figures[figure.name()] = self.figure_json(figure);
        }
        let mut ratios = json!({});
        for ratio in &RATIOS {
            ratios[ratio.0] = self.samples.ratio(ratio).map(rounded).into();
        }
        json!({
            "hatchery_version": env!("CARGO_PKG_VERSION"),
            "is_quick": self.is_quick,
            "is_complete": self.is_complete,
            "took_seconds": rounded(self.took.as_secs_f64()),
            "preparation_seconds": self.preparation.map(|time| rounded(time.as_secs_f64())),
            "machine": {
                "cpu_model": machine.cpu_model,
                "cpu_count": machine.cpus,
                "memory_bytes": machine.memory_bytes,
                "memory_limit_bytes": build.map(|build| build.memory_limit_bytes),
                "kernel": machine.kernel,
                "has_copy_on_write": machine.mapping != ImageMapping::Copied,
                "has_page_scan": machine.mapping == ImageMapping::PageScan,
                "load_at_start": machine.load,
                "load_at_end": self.load,
                "python3_version": python3.map(|python3| &python3.version),
                "python3_start": python3.map(|python3| spread_json(&python3.start, "ms")),
            },
            "build": build.map(|build| json!({
                "name": build.name,
                "python_version": build.version,
                "image_key": build.image,
                "numpy_pandas_image_key": build.science_image,
            })),
            "figures": figures,
            "ratios": ratios,
        })
    }

    fn figure_json(&self, figure: Figure) -> Value {
        let Some(spread) = self.samples.spread(figure) else { return Value::Null };
        let suffix = figure.unit().suffix();
        let mut value = spread_json(&spread, suffix);
        if figure.has_tail() {
            value[format!("p99_{suffix}")] = rounded(spread.p99).into();
        }
        if figure.has_cpu() {
            value["cpu_ms_per_job"] = self.samples.cpu_millis(figure).map(rounded).into();
        }
        value
    }
}

fn spread_json(spread: &Spread, suffix: &str) -> Value {
    let mut value = json!({ "samples": spread.samples });
    for (name, number) in [("p5", spread.p5), ("p50", spread.p50), ("p95", spread.p95)] {
        value[format!("{name}_{suffix}")] = rounded(number).into();
    }
    value
}

fn rounded(number: f64) -> f64 {
    (number * JSON_SCALE).round() / JSON_SCALE
}

fn mapping(mapping: ImageMapping) -> &'static str {
    match mapping {
        ImageMapping::Copied => "copied",
        ImageMapping::PageMap => "mapped copy-on-write, without the kernel's page scan",
        ImageMapping::PageScan => "mapped copy-on-write, with the kernel's page scan",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests;

/// Measures this machine, and fills the report as figures become known: dropping the future leaves
/// what was measured so far. `builder` begins each of three pools; their workers and imports are set
/// here. `program` is this command line. `tell` learns how long rounds have gone on: before the
/// first, and after each. Fails if a pool can't be started, or a program of the benchmark fails.
pub(super) async fn measure(
    report: &mut Report,
    program: PathBuf,
    builder: impl Fn() -> Builder,
    mut tell: impl FnMut(Duration),
) -> anyhow::Result<()> {
    let began = Instant::now();
    report.python3 = Python3::measure().await;
    let has_python3 = report.python3.is_some();
    let mut subjects = Subjects::start(builder, report.machine.cpus, program, has_python3).await?;
    report.build = Some(build(&subjects).await?);
    report.preparation = Some(began.elapsed());
    tell(Duration::ZERO);
    // Warms every cache.
    subjects.round(&mut Samples::default()).await?;
    let mut rounds = 0;
    let rounds_began = Instant::now();
    while rounds < LEAST_ROUNDS || rounds_began.elapsed() < report.rounds_time() {
        subjects.round(&mut report.samples).await?;
        rounds += 1;
        tell(rounds_began.elapsed());
    }
    report.is_complete = true;
    Ok(())
}

async fn build(Subjects { all, science, .. }: &Subjects) -> anyhow::Result<Build> {
    let version = Job::code("import platform; print(platform.python_version())");
    let version = checked(all.run(version).await?)?.stdout_text();
    Ok(Build {
        name: WHEEL_REQUIREMENT.to_owned(),
        version: version.trim().to_owned(),
        image: all.image().map(|image| image.key.clone()),
        science_image: science.image().map(|image| image.key.clone()),
        memory_limit_bytes: all.status().memory.limit_bytes,
    })
}
