//! The limits of one run, and the limit that a run reached.

use std::time::Duration;

use bytesize::ByteSize;

use crate::counted::counted;

use self::advice::Interface;

pub(crate) mod advice;

/// What one run may use.
///
/// A program that uses up its time, its host calls or (if asked) its output is interrupted. It is
/// stopped after the grace period. Its outcome names the limit. Requests beyond the limits on
/// memory, files and host functions are refused. The program sees `MemoryError`, `OSError` or
/// `hatchery.HostLimitError`, and may handle it. The outcome names the limit in `limits_met`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Wall-clock time from the first instruction of the program. Default: 30 s.
    ///
    /// Zero ends every program as it begins. There is no "unlimited", but days are fine.
    pub wall_time: Duration,
    /// CPU time of the guest's threads. A busy machine then doesn't turn a right answer into a
    /// timeout. Default: `None`, no limit besides `wall_time`.
    ///
    /// For a budget independent of the machine's load, set this limit, and a generous `wall_time`.
    pub cpu_time: Option<Duration>,
    /// How long a program may continue after an interrupt, to catch `KeyboardInterrupt` and finish.
    /// Default: 1 s. With zero it is stopped at once, and its effects on its session are undone.
    /// Below 0.2 s this can also happen to a program that ends in time. Describing an interpreter's
    /// first exception takes 0.07 s.
    pub grace: Duration,
    /// Linear memory of the guest, including what CPython itself needs (66 MiB with numpy and
    /// pandas). Default: 1 GiB; at most 4 GiB can be addressed. Below 32 MiB CPython may fail
    /// while it starts.
    pub memory_bytes: usize,
    /// Standard output, and as much standard error. Default: 512 KiB. What a stream writes beyond
    /// that is dropped, and the outcome says so.
    pub output_bytes: usize,
    /// Whether reaching `output_bytes` ends the program. Default: no, it goes on.
    pub stop_at_output_limit: bool,
    /// The lengths of all files in the guest together, input files included. Default: 256 MiB; at
    /// most 64 GiB count.
    pub file_bytes: u64,
    /// Files, folders and links in the guest. Default: 10,000.
    pub file_count: u64,
    /// Descriptors that are open at once, besides the standard ones. Default: 256.
    pub open_files: u64,
    /// Threads of a program besides its main one, at once, in a build that has threads. Default:
    /// 64. Further ones are refused: Python raises `RuntimeError`. Zero refuses all. A thread takes
    /// 1 MiB of the host's memory, and 16 MiB of addresses.
    pub threads: usize,
    /// Bytes that a program sends and receives over connections that it was granted
    /// ([`Network`](crate::Network)), together. Default: 64 MiB. Beyond it both fail with
    /// `OSError`.
    pub network_bytes: u64,
    /// Calls from the guest to the host: reading, writing, asking for the time and so on. Default:
    /// 100 million, more than a program can make in 30 s.
    pub host_calls: u64,
    /// Calls of host functions. Default: 10,000. Calls beyond this limit or one of the next three
    /// are refused with `hatchery.HostLimitError`.
    pub function_calls: u64,
    /// Calls of host functions in flight at once, including abandoned calls that still run in the
    /// host. Default: 1,000.
    pub functions_in_flight: usize,
    /// One call of a host function as JSON, including its name. Default: 1 MiB. The arguments of
    /// all calls in flight take at most 256 MiB of the host's memory.
    pub function_argument_bytes: usize,
    /// The approximate size as JSON of what one host function returns. Default: 16 MiB. Together
    /// with `functions_in_flight` it bounds the results that wait in the host for the program.
    pub function_result_bytes: usize,
    /// The program's source. Default: 1 MiB. Larger programs are refused before they run.
    pub source_bytes: usize,
    /// Limits each of these: the value as JSON, its `repr`, and its other forms together. Also each
    /// text of an exception, and the rest of the exception. Default: 1 MiB. Longer texts are cut. A
    /// larger value or larger forms are left out, and `limits_met` says so.
    pub result_bytes: usize,
    /// A value that is passed as raw bytes: an array, a frame or bytes, as the host holds it.
    /// Default: 64 MiB. A larger one is left out, and `limits_met` says so. The guest needs room
    /// for two copies of it.
    pub result_data_bytes: usize,
    /// All displays together. Default: 16 MiB. One that would exceed this is dropped, and the
    /// outcome says so.
    pub display_bytes: usize,
    /// Displays. Default: 1,000. Further ones are dropped, and the outcome says so.
    pub display_count: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall_time: Duration::from_secs(30),
            cpu_time: None,
            grace: Duration::from_secs(1),
            memory_bytes: 1 << 30,
            output_bytes: 512 << 10,
            stop_at_output_limit: false,
            file_bytes: 256 << 20,
            file_count: 10_000,
            open_files: 256,
            threads: 64,
            network_bytes: 64 << 20,
            host_calls: 100_000_000,
            function_calls: 10_000,
            functions_in_flight: 1_000,
            function_argument_bytes: 1 << 20,
            function_result_bytes: 16 << 20,
            source_bytes: 1 << 20,
            result_bytes: 1 << 20,
            display_bytes: 16 << 20,
            display_count: 1000,
            result_data_bytes: 64 << 20,
        }
    }
}

/// Which limit a run reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LimitKind {
    /// `Limits::wall_time`, in milliseconds.
    Wall,
    /// `Limits::cpu_time`, in milliseconds.
    Cpu,
    /// When the outcome was due, in milliseconds from submission, including time in the queue.
    Deadline,
    /// `Limits::memory_bytes`.
    Memory,
    /// The memory that was left for the job in its pool, when that was less than
    /// `Limits::memory_bytes` and `Limits::file_bytes`.
    PoolMemory,
    /// `Limits::output_bytes`.
    Output,
    /// `Limits::file_bytes`.
    FileBytes,
    /// `Limits::file_count`.
    FileCount,
    /// `Limits::open_files`.
    OpenFiles,
    /// `Limits::threads`.
    Threads,
    /// `Limits::network_bytes`.
    NetworkBytes,
    /// `Limits::host_calls`.
    HostCalls,
    /// `Limits::function_calls`.
    FunctionCalls,
    /// `Limits::functions_in_flight`.
    FunctionsInFlight,
    /// `Limits::function_argument_bytes`.
    FunctionArguments,
    /// `Limits::function_result_bytes`.
    FunctionResults,
    /// `Limits::source_bytes`.
    Source,
    /// `Limits::result_bytes`, by a value as JSON or by one of its other forms.
    Result,
    /// `Limits::result_data_bytes`.
    ResultData,
    /// `Limits::display_bytes`.
    DisplayBytes,
    /// `Limits::display_count`.
    DisplayCount,
    /// Exceptions that C++ code in the guest may throw in a run: 65,536, for every program. The
    /// host keeps each of them at least until the run is over. Python's exceptions don't count.
    NativeExceptions,
    /// The stack that guest code runs on, in bytes: 16 MiB, for every program. Recursion in Python
    /// raises `RecursionError` long before; recursion in C can get here.
    Stack,
}

/// The unit of a limit, with what is counted, as in "2 MiB of output" or "3 files".
enum Quantity {
    Time(&'static str),
    Bytes(&'static str),
    Count(&'static str),
}

impl LimitKind {
    /// Returns the limit's name in results, such as `wall`.
    pub fn name(self) -> &'static str {
        self.described().0
    }

    /// Formats an amount of what it limits with its unit: `1.5 s`, `100.0 MiB`, or a plain number.
    pub fn amount(self, amount: u64) -> String {
        match self.described().1 {
            Quantity::Time(_) if amount < 1000 => format!("{amount} ms"),
            Quantity::Time(_) => format!("{} s", amount as f64 / 1e3),
            Quantity::Bytes(_) => ByteSize(amount).to_string(),
            Quantity::Count(_) => grouped(amount),
        }
    }

    fn described(self) -> (&'static str, Quantity) {
        use Quantity::{Bytes, Count, Time};

        match self {
            Self::Wall => ("wall", Time("of time")),
            Self::Cpu => ("cpu", Time("of CPU time")),
            Self::Deadline => ("deadline", Time("of time")),
            Self::Memory => ("memory", Bytes("of memory")),
            Self::PoolMemory => ("pool_memory", Bytes("of memory")),
            Self::Output => ("output", Bytes("of output")),
            Self::FileBytes => ("file_bytes", Bytes("in files")),
            Self::FileCount => ("file_count", Count("file")),
            Self::OpenFiles => ("open_files", Count("open file")),
            Self::Threads => ("threads", Count("thread")),
            Self::NetworkBytes => ("network_bytes", Bytes("over the network")),
            Self::HostCalls => ("host_calls", Count("host call")),
            Self::FunctionCalls => ("function_calls", Count("function call")),
            Self::FunctionsInFlight => ("functions_in_flight", Count("concurrent function call")),
            Self::FunctionArguments => {
                ("function_argument_bytes", Bytes("as arguments of functions"))
            }
            Self::FunctionResults => ("function_result_bytes", Bytes("as results of functions")),
            Self::Source => ("source", Bytes("of source")),
            Self::Result => ("result", Bytes("as its result")),
            Self::ResultData => ("result_data", Bytes("as its result")),
            Self::DisplayBytes => ("display_bytes", Bytes("of displays")),
            Self::DisplayCount => ("display_count", Count("display")),
            Self::NativeExceptions => ("native_exceptions", Count("C++ exception")),
            Self::Stack => ("stack", Bytes("of stack")),
        }
    }
}

/// A limit that a run reached, with the amount that was allowed and used.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    derive_more::Display,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[display("{}{}", self.event(), self.advice())]
#[non_exhaustive]
pub struct LimitHit {
    /// Which limit.
    #[schemars(with = "String")]
    pub limit: LimitKind,
    /// The amount allowed: milliseconds for times, bytes for sizes, else a number.
    pub allowed: u64,
    /// The amount used when the run ended, or the largest one that was refused, in the same unit.
    pub used: u64,
    /// Whose words say what raises the limit. The scheduler knows it.
    #[serde(skip)]
    interface: Interface,
}

impl LimitHit {
    /// Reports that `used` reached or exceeded `allowed`, both in the unit of the limit.
    pub fn new(limit: LimitKind, allowed: u64, used: u64) -> Self {
        Self { limit, allowed, used, interface: Interface::default() }
    }

    /// Reports a missed deadline: the outcome was due `allowed` after submission, and `used` had
    /// passed.
    pub fn deadline(allowed: Duration, used: Duration) -> Self {
        Self::new(LimitKind::Deadline, milliseconds(allowed), milliseconds(used))
    }

    /// Returns the same report in the words of an interface.
    pub fn worded_for(self, interface: Interface) -> Self {
        Self { interface, ..self }
    }

    /// Returns what happened, without advice.
    pub(crate) fn event(&self) -> String {
        let Self { limit, allowed, used, .. } = *self;
        let (name, allowed, used) = (limit.name(), limit.amount(allowed), limit.amount(used));
        format!("the {name} limit of {allowed} was reached with {used}")
    }

    /// Returns what raises the limit, as [`LimitKind::raised_by`] does.
    pub fn raised_by(&self) -> Option<String> {
        self.limit.raised_by(self.interface)
    }

    /// Returns a message that says what the program was refused, and what raises the limit.
    pub fn refusal(&self) -> String {
        let Self { limit, allowed, used, .. } = *self;
        let (most, wanted) = (limit.amount(allowed), limit.amount(used));
        let wanted = match limit.described().1 {
            Quantity::Time(what) | Quantity::Bytes(what) => {
                format!("{wanted} {what} and may have {most}")
            }
            Quantity::Count(noun) => format!("more than {}", counted(most, noun)),
        };
        format!("the program wanted {wanted}{}", self.advice())
    }

    fn advice(&self) -> String {
        self.raised_by().map_or_else(String::new, |raises| format!("; {raises} raises it"))
    }
}

/// Formats a number with a comma before each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_says_what_raises_it_and_amounts_have_units() {
        let wall = LimitHit::new(LimitKind::Wall, 300, 1003);
        let reached = "the wall limit of 300 ms was reached with 1.003 s";
        assert_eq!(wall.to_string(), format!("{reached}; `Limits::wall_time` raises it"));
        let told = wall.worded_for(Interface::CommandLine).to_string();
        assert_eq!(told, format!("{reached}; `--timeout` raises it"));
        let stack = LimitHit::new(LimitKind::Stack, 16 << 20, 16 << 20).to_string();
        assert_eq!(stack, "the stack limit of 16.0 MiB was reached with 16.0 MiB");
        let memory = LimitHit::new(LimitKind::Memory, 100 << 20, 3 << 29);
        assert_eq!(
            memory.worded_for(Interface::Python).refusal(),
            "the program wanted 1.5 GiB of memory and may have 100.0 MiB; `Limits(memory=…)` \
             raises it"
        );
        let files = LimitHit::new(LimitKind::FileCount, 10_000, 10_001);
        let files = files.worded_for(Interface::CommandLine);
        let expected = "the program wanted more than 10,000 files; `--file-count`";
        assert!(files.refusal().starts_with(expected), "{}", files.refusal());
        assert_eq!([0, 999, 1_000, 12_345_678].map(grouped), ["0", "999", "1,000", "12,345,678"]);
    }
}
