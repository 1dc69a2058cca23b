//! Command-line arguments, exactly as typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Args, Parser, Subcommand};
use hatchery::{Deterministic, Limits};

pub(crate) use self::batch::{BatchArguments, ProgressForm};
pub(crate) use self::cache::{CacheCommand, PruneArguments};
pub(crate) use self::image::{
    BuildArguments, ImageArguments, ImageCommand, PackagesArguments, RemoveArguments,
};
pub(crate) use self::notebook::{NotebookArguments, NotebookCommand};
pub(crate) use self::top::TopArguments;

mod batch;
mod cache;
mod image;
mod notebook;
mod top;

/// Runs untrusted Python in a pool of sandboxed interpreters.
///
/// Exit codes: the program's own for `sys.exit`, 1 if it raised, 2 for a usage error, 124 if it hit
/// a limit, 125 if the sandbox failed, 130 if it was interrupted. For a batch: 1 if any job did not
/// succeed, 2 if any line was invalid. For notebooks: 1 if any cell failed. For a prompt: 0, or the
/// code of `sys.exit`.
#[derive(Debug, Parser)]
#[command(name = "hatchery", version, about, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Print only results and errors: no progress, no notes, no warnings.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Print more of the log: steps and their durations; -vv adds details. `RUST_LOG` takes
    /// precedence if it is set.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one program in a fresh interpreter.
    Run(Box<RunArguments>),
    /// Run many programs: one JSON object per line in, one per line out.
    Batch(Box<BatchArguments>),
    /// Watch a batch that was started with `--metrics`, live in the terminal.
    ///
    /// Press q, Esc or Ctrl-C to quit, p to pause, and the arrow keys to scroll the workers.
    Top(TopArguments),
    /// Type Python at a prompt, in a session that keeps its variables.
    Repl(Box<ReplArguments>),
    /// Run Jupyter notebooks, and resume at the cell that failed.
    Notebook {
        #[command(subcommand)]
        command: NotebookCommand,
    },
    /// Build, list and remove images: interpreters with imports already done, from which new ones
    /// start at once.
    Image {
        #[command(subcommand)]
        command: ImageCommand,
    },
    /// Run a program as an agent's tool, with JSON in and out.
    Tool {
        #[command(subcommand)]
        command: ToolCommand,
    },
    /// List the packages that programs can import, with their versions and origins.
    Packages(PackagesArguments),
    /// Show what the cache holds, and remove what hasn't been used for long.
    Cache {
        #[command(subcommand)]
        command: CacheCommand,
    },
    /// Manage the Python build.
    Python {
        #[command(subcommand)]
        command: PythonCommand,
    },
}

impl Command {
    /// Returns whether results go to standard output, where a closed stream would lose them
    /// silently.
    pub(crate) fn prints_results(&self) -> bool {
        match self {
            Self::Batch(arguments) => arguments.out.is_none(),
            Self::Notebook { .. } => false,
            _ => true,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The program; `-` reads it from standard input.
    #[arg(value_name = "FILE", required_unless_present_any = ["code", "call"])]
    pub(crate) file: Option<PathBuf>,

    /// The program as text.
    #[arg(short, long, value_name = "CODE", conflicts_with = "file", allow_hyphen_values = true)]
    pub(crate) code: Option<String>,

    /// Call a function instead of running a program, and print its return value as Python's prompt
    /// does; with `--json`, the result holds the value.
    #[arg(long, value_name = "MODULE:FUNCTION", conflicts_with_all = ["file", "code"])]
    pub(crate) call: Option<String>,

    /// Pass an argument to the function. Can be repeated.
    #[arg(long, value_name = "JSON", requires = "call", conflicts_with_all = ["file", "code"],
        value_parser = parse_json)]
    pub(crate) arg: Vec<serde_json::Value>,

    /// Set a variable of the program. Can be repeated.
    #[arg(long, value_name = "NAME=JSON", value_parser = parse_json_variable)]
    pub(crate) var: Vec<(String, serde_json::Value)>,

    /// Hide the folder of FILE from the program. By default the program can import modules from
    /// there, and so read the Python source below it, and nothing else.
    #[arg(long)]
    pub(crate) alone: bool,

    /// Let the program read the folder of FILE as if it ran there: the folder's contents also
    /// appear in the program's working directory. Without FILE, this is the current folder. The
    /// program can't change what is there; new files are its own.
    #[arg(long, conflicts_with = "alone")]
    pub(crate) beside: bool,

    /// The program's working directory: a path in its workspace, relative or absolute.
    #[arg(long, value_name = "PATH")]
    pub(crate) workdir: Option<String>,

    /// Print one JSON object with the result instead of the program's output.
    #[arg(long)]
    pub(crate) json: bool,

    /// Make the run reproducible: the clock and all random numbers come from this seed, and
    /// sleeping takes no time. The order of sets comes from the image, whatever the seed.
    #[arg(long, value_name = "SEED")]
    pub(crate) deterministic: Option<u64>,

    /// Start the clock of a deterministic run at this time, in seconds since 1970. Default: noon on
    /// 1 January 2026.
    #[arg(long, value_name = "SECONDS", requires = "deterministic")]
    pub(crate) start: Option<u64>,

    /// Read the program's standard input from a file; `-` is this command's own standard input.
    /// Default: empty.
    #[arg(long, value_name = "FILE")]
    pub(crate) stdin: Option<PathBuf>,

    /// Mount the folder HOST at PATH, for the program to read. The default PATH is / and the name
    /// of the folder. Can be repeated.
    #[arg(long, value_name = "HOST[=PATH]")]
    pub(crate) mount: Vec<String>,

    /// Keep the program from changing any file.
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Keep the files of a program even if it failed or was stopped.
    #[arg(long)]
    pub(crate) keep_files: bool,

    /// Copy the file HOST into the program's workspace as NAME, by default under its own name. Can
    /// be repeated. Files that a script names in its own header need no `--input`.
    #[arg(long, value_name = "HOST[=NAME]")]
    pub(crate) input: Vec<String>,

    /// Ignore the input files that the program's header names.
    #[arg(long)]
    pub(crate) no_header_inputs: bool,

    /// Write the files that the program created or changed into this folder, overwriting files of
    /// the same names.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Include the contents of those files in the result, in base64.
    #[arg(long, requires = "json")]
    pub(crate) file_contents: bool,

    /// Write what the program displays into this folder: figures and other displays as
    /// display-1.png and so on, and the value of its last line, if it is more than text, as
    /// result.html or similar. Overwrites files of the same names.
    #[arg(long, value_name = "DIR")]
    pub(crate) save_displays: Option<PathBuf>,

    /// Pass the program's output to the terminal unchanged. By default, control characters and
    /// escape sequences other than colours, styles and those of progress bars are shown, not
    /// obeyed.
    #[arg(long)]
    pub(crate) raw_output: bool,

    /// Set an environment variable of the program. Can be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(crate) env: Vec<(String, String)>,

    /// Arguments for the program.
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) args: Vec<String>,

    // Last: in the help, their headings apply to everything that follows.
    #[command(flatten)]
    pub(crate) image: ImageArguments,

    #[command(flatten)]
    pub(crate) limits: LimitArguments,
}

/// Arguments of `hatchery repl`. The limits apply to each input.
#[derive(Debug, Args)]
pub(crate) struct ReplArguments {
    /// Continue the session in this file, if it exists, and save the session there at the end.
    #[arg(long, value_name = "FILE")]
    pub(crate) session: Option<PathBuf>,

    /// Mount the folder HOST at PATH, for programs to read. The default PATH is / and the name of
    /// the folder. Can be repeated.
    #[arg(long, value_name = "HOST[=PATH]")]
    pub(crate) mount: Vec<String>,

    /// Copy the file HOST into the session's workspace as NAME, by default under its own name. Can
    /// be repeated. `:put` does so later.
    #[arg(long, value_name = "HOST[=NAME]")]
    pub(crate) input: Vec<String>,

    /// Write the files that inputs create or change into this folder at once. Files that were there
    /// before are left alone. `:get` fetches single files.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Write what inputs display into this folder: figures and other displays as display-1.png and
    /// so on, values that are more than text as result-1.html or similar.
    #[arg(long, value_name = "DIR")]
    pub(crate) save_displays: Option<PathBuf>,

    /// Pass the output of programs to the terminal unchanged. By default, control characters and
    /// escape sequences other than colours, styles and those of progress bars are shown, not
    /// obeyed.
    #[arg(long)]
    pub(crate) raw_output: bool,

    #[command(flatten)]
    pub(crate) image: ImageArguments,

    #[command(flatten)]
    pub(crate) limits: LimitArguments,
}

/// Limits on what a program may use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArguments {
    /// Wall-clock time, such as `500ms`, `30s` or `2m`.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time,
        allow_hyphen_values = true)]
    pub(crate) timeout: Duration,

    /// CPU time, independent of the machine's load. By default, only the wall-clock time is
    /// limited.
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    pub(crate) cpu_time: Option<Duration>,

    /// How long a program may continue after an interrupt, from a time limit or Ctrl-C.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_grace,
        allow_hyphen_values = true)]
    pub(crate) grace: Duration,

    /// Memory of the guest, CPython's own included: 32MiB to 4GiB.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_memory,
        allow_hyphen_values = true)]
    pub(crate) memory: ByteSize,

    /// Size of standard output and standard error together; the rest is dropped.
    #[arg(long, value_name = "SIZE", default_value = "512KiB", allow_hyphen_values = true)]
    pub(crate) output: ByteSize,

    /// Stop a program that reaches the output limit.
    #[arg(long)]
    pub(crate) stop_at_output_limit: bool,

    /// Total size of the program's files.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", allow_hyphen_values = true)]
    pub(crate) file_bytes: ByteSize,

    /// Number of the program's files and folders.
    #[arg(long, value_name = "N", default_value_t = 10_000, allow_hyphen_values = true)]
    pub(crate) file_count: u64,

    /// Number of files open at once.
    #[arg(long, value_name = "N", default_value_t = 256, allow_hyphen_values = true)]
    pub(crate) open_files: u64,

    /// Number of calls from the program to the host, such as reads, writes and clock readings.
    #[arg(long, value_name = "N", default_value_t = 100_000_000, allow_hyphen_values = true)]
    pub(crate) host_calls: u64,

    /// Size of the program's source.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", allow_hyphen_values = true)]
    pub(crate) source: ByteSize,

    /// Size of the program's value, as JSON, as its `repr` and in its other forms, and of each text
    /// of an exception.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", allow_hyphen_values = true)]
    pub(crate) result: ByteSize,

    /// Total size of a program's displays; the rest is dropped.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", allow_hyphen_values = true)]
    pub(crate) display_bytes: ByteSize,

    /// Number of a program's displays; the rest is dropped.
    #[arg(long, value_name = "N", default_value_t = 1000, allow_hyphen_values = true)]
    pub(crate) display_count: usize,
}

impl LimitArguments {
    pub(crate) fn limits(&self) -> Limits {
        let bytes = |size: ByteSize| usize::try_from(size.as_u64()).unwrap_or(usize::MAX);
        Limits {
            wall_time: self.timeout,
            cpu_time: self.cpu_time,
            grace: self.grace,
            memory_bytes: bytes(self.memory),
            output_bytes: bytes(self.output),
            stop_at_output_limit: self.stop_at_output_limit,
            file_bytes: self.file_bytes.as_u64(),
            file_count: self.file_count,
            open_files: self.open_files,
            host_calls: self.host_calls,
            source_bytes: bytes(self.source),
            result_bytes: bytes(self.result),
            display_bytes: bytes(self.display_bytes),
            display_count: self.display_count,
            ..Limits::default()
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// Print the JSON schema of a call; its title is the tool's name.
    Schema {
        /// Print the schema of the result instead.
        #[arg(long)]
        result: bool,
    },
    /// Read one call from standard input, run it and print the result. A call that can't be run
    /// also gets a result, whose `error` says why.
    Run(Box<ToolRunArguments>),
}

#[derive(Debug, Args)]
pub(crate) struct ToolRunArguments {
    /// Run the call in the session in this file, and save the session there for the next call:
    /// variables, modules and files. If the file doesn't exist, a new session begins.
    #[arg(long, value_name = "FILE")]
    pub(crate) session: Option<PathBuf>,

    /// Copy the file HOST into the program's workspace as NAME, by default under its own name. Can
    /// be repeated. A file of the same name in the call takes precedence.
    #[arg(long, value_name = "HOST[=NAME]")]
    pub(crate) input: Vec<String>,

    /// Mount the folder HOST at PATH, for the program to read. The default PATH is / and the name
    /// of the folder. Can be repeated.
    #[arg(long, value_name = "HOST[=PATH]")]
    pub(crate) mount: Vec<String>,

    /// Write the files that the program created or changed into this folder, overwriting files of
    /// the same names.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Include the contents of those files in the result, in base64.
    #[arg(long)]
    pub(crate) file_contents: bool,

    #[command(flatten)]
    pub(crate) image: ImageArguments,

    #[command(flatten)]
    pub(crate) limits: LimitArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PythonCommand {
    /// Download, verify and compile the build now instead of at the first run.
    Install,
    /// Show which build is installed, and where.
    Info,
}

/// Parses the command line; exits the process if it is invalid.
pub(crate) fn parse() -> Arguments {
    let typed: Vec<OsString> = std::env::args_os().collect();
    Arguments::try_parse_from(&typed).unwrap_or_else(|error| explained(error, &typed).exit())
}

/// Replaces the tip of an error by a helpful one. clap advises `-- ARGUMENT` for every unknown
/// argument, which is right only for arguments of a program.
fn explained(mut error: clap::Error, typed: &[OsString]) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let own = typed.get(1).is_some_and(|command| command == "run").then(|| {
        let text = "arguments for the program come last, after `--`: hatchery run … --";
        format!("{text} {unknown}")
    });
    let tips = match error.remove(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => tips,
        _ => Vec::new(),
    };
    let tips = tips.into_iter().filter(|tip| !tip.to_string().starts_with("to pass "));
    let tips: Vec<StyledStr> = tips.chain(own.map(StyledStr::from)).collect();
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Returns the settings of a reproducible run, if a seed is given.
pub(crate) fn deterministic(seed: Option<u64>, start: Option<u64>) -> Option<Deterministic> {
    let start = start.map(|seconds| seconds.saturating_mul(1_000_000_000));
    let start = start.unwrap_or(Deterministic::DEFAULT_START);
    seed.map(|seed| Deterministic { seed, start })
}

fn parse_memory(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse()?;
    if (ByteSize::mib(32)..=ByteSize::gib(4)).contains(&size) {
        return Ok(size);
    }
    Err("give 32MiB to 4GiB: CPython needs 32MiB, and no guest can have more than 4GiB".to_owned())
}

fn parse_grace(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a number with a unit, such as 500ms or 30s"))
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let time = parse_grace(text)?;
    if time.is_zero() {
        return Err("a program needs some time; give at least 1ms".to_owned());
    }
    Ok(time)
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

fn parse_json(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("not valid JSON ({error}); a string needs quotes"))
}

fn parse_json_variable(text: &str) -> Result<(String, serde_json::Value), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=JSON")?;
    Ok((name.to_owned(), parse_json(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// The defaults in the help must match the library's.
    #[test]
    fn the_defaults_are_the_librarys() {
        let arguments = Arguments::parse_from(["hatchery", "run", "-c", "1"]);
        let Command::Run(arguments) = arguments.command else { panic!("that was `run`") };
        assert_eq!(arguments.limits.limits(), Limits::default());
    }

    /// No default CPU limit cuts short a run whose wall-clock limit was raised.
    #[test]
    fn the_cpu_time_has_a_limit_of_its_own_only_if_it_is_given() {
        let limits = |options: &[&str]| {
            let arguments = ["hatchery", "run", "-c", "1"].iter().chain(options);
            let Command::Run(arguments) = Arguments::parse_from(arguments).command else {
                panic!("that was `run`")
            };
            arguments.limits.limits()
        };
        let raised = limits(&["--timeout", "2m"]);
        assert_eq!((raised.wall_time, raised.cpu_time), (Duration::from_secs(120), None));
        let both = limits(&["--timeout", "2m", "--cpu-time", "40s"]);
        assert_eq!(both.cpu_time, Some(Duration::from_secs(40)));
    }

    #[test]
    fn times_need_a_unit_and_an_amount() {
        assert_eq!(parse_time("1s"), Ok(Duration::from_secs(1)));
        assert!(parse_time("1").is_err());
        assert!(parse_time("0s").is_err());
        assert!(parse_time("-5s").is_err_and(|problem| problem.contains("500ms")));
        assert!(parse_variable("A=b=c").is_ok_and(|pair| pair.1 == "b=c"));
        assert!(parse_variable("=b").is_err());
    }

    #[test]
    fn tips_lead_somewhere() {
        let said = |typed: &[&str]| {
            let typed: Vec<OsString> = ["hatchery"].iter().chain(typed).map(Into::into).collect();
            explained(Arguments::try_parse_from(&typed).unwrap_err(), &typed).to_string()
        };
        for (typed, expected) in [
            (&["run", "prog.py", "a", "b"][..], "after `--`: hatchery run … -- a"),
            (&["run", "prog.py", "--colour"], "after `--`: hatchery run … -- --colour"),
            (&["run", "prog.py", "--tim", "2s"], "'--timeout'"),
            (&["run", "-c", "1", "--timeout", "-5s"], "'-5s' for '--timeout <TIME>'"),
            (&["run", "-c", "1", "--memory", "-1GiB"], "'-1GiB' for '--memory <SIZE>'"),
            (&["run", "-c", "1", "--open-files", "-1"], "'-1' for '--open-files <N>'"),
            (&["batch", "-x"], "'-x'"),
        ] {
            let said = said(typed);
            assert!(said.contains(expected), "{typed:?}: {said}");
            assert!(!said.contains("as a value"), "{typed:?}: {said}");
        }
    }

    #[test]
    fn variables_are_json() {
        assert_eq!(parse_json_variable("a=[1]"), Ok(("a".to_owned(), serde_json::json!([1]))));
        assert!(parse_json_variable("a=b").is_err_and(|error| error.contains("quotes")));
        assert!(parse_json_variable("a").is_err());
    }
}
