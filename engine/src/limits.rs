//! What one run may use.

use std::time::Duration;

/// What one run may use. A program that goes beyond ends with an outcome that names the limit,
/// except for memory: the guest sees `MemoryError` and may handle it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Time on the clock from the first instruction of the program. Default: 30 s.
    ///
    /// Zero stops every program about as it begins; there is no "none", but days are fine.
    pub wall_time: Duration,
    /// Linear memory of the guest, including what CPython itself needs (63 MB with numpy and
    /// pandas). Default: 1 GiB; at most 4 GiB can be addressed. Below 32 MiB CPython may fail at
    /// start-up tasks of its own.
    pub memory_bytes: usize,
    /// Standard output and standard error together. Default: 512 KiB.
    ///
    /// What goes beyond is dropped and the outcome says so; the program goes on.
    pub output_bytes: usize,
    /// The program's source. Default: 1 MiB. Larger programs are refused before they run.
    pub source_bytes: usize,
    /// The value as JSON, its `repr`, and each text of an exception. Default: 1 MiB.
    pub result_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall_time: Duration::from_secs(30),
            memory_bytes: 1 << 30,
            output_bytes: 512 << 10,
            source_bytes: 1 << 20,
            result_bytes: 1 << 20,
        }
    }
}

/// Which limit ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LimitKind {
    /// `Limits::wall_time`, in milliseconds.
    Wall,
    /// `Limits::source_bytes`.
    Source,
    /// The stack that guest code runs on, in bytes: 16 MiB, for every program. Recursion in Python
    /// raises `RecursionError` long before; recursion in C can get here.
    Stack,
}

impl LimitKind {
    /// The name that results carry, such as `wall`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Source => "source",
            Self::Stack => "stack",
        }
    }
}

/// A limit that ended a run, with the amount that was allowed and used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LimitHit {
    /// Which limit.
    pub limit: LimitKind,
    /// The amount allowed: milliseconds for `Wall`, bytes otherwise.
    pub allowed: u64,
    /// The amount used when the run ended, in the same unit.
    pub used: u64,
}

impl std::fmt::Display for LimitHit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = match self.limit {
            LimitKind::Wall => "ms",
            LimitKind::Source | LimitKind::Stack => "bytes",
        };
        let Self { allowed, used, .. } = self;
        let name = self.limit.name();
        write!(formatter, "the {name} limit of {allowed} {unit} was reached with {used} {unit}")
    }
}
