//! What a reader must know about the machine, and the hour, to judge the figures.

use std::fs;
use std::path::Path;

use hatchery::config::{EngineConfig, ImageMapping};

use crate::bench::children;
use crate::bench::clock::millis;
use crate::bench::spread::Spread;

/// How often the machine's own Python is started.
const STARTS: usize = 11;

/// The machine, as this process sees it. What the system doesn't say is `None`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub(crate) struct Machine {
    /// The name of its CPU.
    pub(crate) cpu_model: Option<String>,
    /// How many CPUs this process may use: affinity and control group considered.
    pub(crate) cpus: usize,
    /// Memory of the machine.
    pub(crate) memory_bytes: Option<u64>,
    /// The version of its kernel.
    pub(crate) kernel: Option<String>,
    /// How interpreters get their image.
    pub(crate) mapping: ImageMapping,
    /// The load average of the last minute when the benchmark began.
    pub(crate) load: Option<f64>,
}

/// The machine's own Python.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub(crate) struct Python3 {
    /// Its version, such as `3.12.1`.
    pub(crate) version: String,
    /// What `python3 -c pass` takes, in milliseconds.
    pub(crate) start: Spread,
}

impl Machine {
    /// Reads what the system says.
    pub(crate) fn read() -> Self {
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
    pub(crate) const PROGRAM: &str = "python3";

    /// Starts it several times; `None` if it isn't installed, or doesn't run.
    pub(crate) async fn measure() -> Option<Self> {
        let program = Path::new(Self::PROGRAM);
        let version = "import platform; print(platform.python_version())";
        let (version, _) = children::run(program, &["-c", version]).await.ok()?;
        let mut starts = Vec::new();
        for _ in 0..STARTS {
            let (_, took) = children::run(program, &["-c", "pass"]).await.ok()?;
            starts.push(millis(took));
        }
        let start = Spread::of(&starts, STARTS)?;
        Some(Self { version: version.trim().to_owned(), start })
    }
}

/// Returns the load average of the last minute.
pub(crate) fn load() -> Option<f64> {
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
