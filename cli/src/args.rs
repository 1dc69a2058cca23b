//! Exactly what the user typed.

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
/// Exit codes: the program's own for sys.exit, 1 if it raised, 2 for a mistake in the usage, 124
/// if a limit ended it, 125 if the sandbox failed, 130 if it was interrupted. For a batch: 1 if some
/// job did not succeed, 2 if some line was no job. For notebooks: 1 if some cell failed. For a
/// prompt: 0, or the code of `sys.exit`.
#[derive(Debug, Parser)]
#[command(name = "hatchery", version, about, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Say nothing but results and what went wrong: no progress, no notes, no warnings.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Print more of the log: steps and how long they took, with -vv details. `RUST_LOG`, where it
    /// is set, says instead what is printed.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one program in a fresh interpreter.
    Run(Box<RunArguments>),
    /// Run many programs, one JSON object a line in, one a line out.
    Batch(Box<BatchArguments>),
    /// Watch a batch that was started with `--metrics`, live in a terminal.
    ///
    /// q, Esc and Ctrl-C end it, p pauses it, and the arrows scroll the workers.
    Top(TopArguments),
    /// Type Python at a prompt, in a session that keeps its variables.
    Repl(Box<ReplArguments>),
    /// Run notebooks of Jupyter, and go on at the cell that failed.
    Notebook {
        #[command(subcommand)]
        command: NotebookCommand,
    },
    /// Make, list and remove images: interpreters that have imported what programs need, from
    /// which further ones start at once.
    Image {
        #[command(subcommand)]
        command: ImageCommand,
    },
    /// Run a program as a tool of an agent, JSON in and out.
    Tool {
        #[command(subcommand)]
        command: ToolCommand,
    },
    /// List the packages that programs can import, with versions and where they come from.
    Packages(PackagesArguments),
    /// Say what the cache holds, and remove what nobody used for long.
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
    /// Whether results go to standard output, where nobody would miss them if it was closed.
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

    /// Call a function in place of a program, and print what it returns as Python's prompt does;
    /// with `--json` that is the value.
    #[arg(long, value_name = "MODULE:FUNCTION", conflicts_with_all = ["file", "code"])]
    pub(crate) call: Option<String>,

    /// Give the function an argument. Can be repeated.
    #[arg(long, value_name = "JSON", requires = "call", conflicts_with_all = ["file", "code"],
        value_parser = parse_json)]
    pub(crate) arg: Vec<serde_json::Value>,

    /// Give the program a variable. Can be repeated.
    #[arg(long, value_name = "NAME=JSON", value_parser = parse_json_variable)]
    pub(crate) var: Vec<(String, serde_json::Value)>,

    /// Show the program nothing of the folder that FILE lies in. Without this it can import modules
    /// from there, and so read the Python source below it, and nothing else.
    #[arg(long)]
    pub(crate) alone: bool,

    /// Let the program read the folder that FILE lies in, as if it ran there: what is in it is in
    /// the program's working directory too. Without a FILE it is the folder that this command runs
    /// in. The program can't change what is there; new files are its own.
    #[arg(long, conflicts_with = "alone")]
    pub(crate) beside: bool,

    /// The program's working directory, in its workspace or an absolute path there.
    #[arg(long, value_name = "PATH")]
    pub(crate) workdir: Option<String>,

    /// Print one JSON object with the result instead of the program's output.
    #[arg(long)]
    pub(crate) json: bool,

    /// Make the run the same every time: the clock and every random number come from this seed, and
    /// sleeping takes no time. The order of sets is the image's, whatever the seed.
    #[arg(long, value_name = "SEED")]
    pub(crate) deterministic: Option<u64>,

    /// What the clock of a deterministic run shows as it starts, in seconds since 1970. Without it,
    /// noon on 1 January 2026.
    #[arg(long, value_name = "SECONDS", requires = "deterministic")]
    pub(crate) start: Option<u64>,

    /// Give the program the contents of a file as its standard input; `-` is this command's own.
    /// Without it the program's standard input is empty.
    #[arg(long, value_name = "FILE")]
    pub(crate) stdin: Option<PathBuf>,

    /// Let the program read a folder: HOST, or HOST=PATH for another place than /NAME. Can be
    /// repeated.
    #[arg(long, value_name = "HOST[=PATH]")]
    pub(crate) mount: Vec<String>,

    /// Let the program change no file at all.
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Keep the files of a program that failed or was ended, too.
    #[arg(long)]
    pub(crate) keep_files: bool,

    /// Give the program a copy of a file: HOST, or HOST=NAME for another name in its workspace.
    /// Can be repeated. Files that a script names in its own header are given without this.
    #[arg(long, value_name = "HOST[=NAME]")]
    pub(crate) input: Vec<String>,

    /// Give the program none of the files that its header names.
    #[arg(long)]
    pub(crate) no_header_inputs: bool,

    /// Write the files that the program made or changed into this folder, in place of what is there
    /// under the same names.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Have the result tell what those files hold, in base64.
    #[arg(long, requires = "json")]
    pub(crate) file_contents: bool,

    /// Write what the program shows into this folder: figures and other displays as display-1.png
    /// and so on, the value of its last line, where that is more than text, as result.html or the
    /// like. What is there under the same names is replaced.
    #[arg(long, value_name = "DIR")]
    pub(crate) save_displays: Option<PathBuf>,

    /// Give a terminal all that the program prints as it is. Without this, control characters and
    /// sequences other than colours, styles and those of progress bars are shown, not obeyed.
    #[arg(long)]
    pub(crate) raw_output: bool,

    /// Set a variable of the program's environment. Can be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(crate) env: Vec<(String, String)>,

    /// Arguments of the program.
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) args: Vec<String>,

    // Last: their headings in the help hold for all that follows.
    #[command(flatten)]
    pub(crate) image: ImageArguments,

    #[command(flatten)]
    pub(crate) limits: LimitArguments,
}

/// The limits hold for each input.
#[derive(Debug, Args)]
pub(crate) struct ReplArguments {
    /// Go on with the session in this file, if there is one, and keep it there at the end.
    #[arg(long, value_name = "FILE")]
    pub(crate) session: Option<PathBuf>,

    /// Let programs read a folder: HOST, or HOST=PATH for another place than /NAME. Can be repeated.
    #[arg(long, value_name = "HOST[=PATH]")]
    pub(crate) mount: Vec<String>,

    /// Put a copy of a file into the session: HOST, or HOST=NAME for another name in its workspace.
    /// Can be repeated. `:put` does so later.
    #[arg(long, value_name = "HOST[=NAME]")]
    pub(crate) input: Vec<String>,

    /// Write the files that inputs make or change into this folder, as soon as they have. A file
    /// that was there before is left alone. `:get` fetches single ones.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Write what inputs show into this folder: figures and other displays as display-1.png and so
    /// on, values that are more than text as result-1.html or the like.
    #[arg(long, value_name = "DIR")]
    pub(crate) save_displays: Option<PathBuf>,

    /// Give a terminal all that programs print as it is. Without this, control characters and
    /// sequences other than colours, styles and those of progress bars are shown, not obeyed.
    #[arg(long)]
    pub(crate) raw_output: bool,

    #[command(flatten)]
    pub(crate) image: ImageArguments,

    #[command(flatten)]
    pub(crate) limits: LimitArguments,
}

/// What a program may use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArguments {
    /// Time on the clock, such as `500ms`, `30s` or `2m`.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time,
        allow_hyphen_values = true)]
    pub(crate) timeout: Duration,

    /// Time on the CPU, whatever else the machine does. Without it the time on the clock is the
    /// only limit on time.
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    pub(crate) cpu_time: Option<Duration>,

    /// How long a program may go on after it was interrupted, by a limit on time or by Ctrl-C.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_grace,
        allow_hyphen_values = true)]
    pub(crate) grace: Duration,

    /// Memory of the guest, CPython's own included; from 32MiB to 4GiB.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_memory,
        allow_hyphen_values = true)]
    pub(crate) memory: ByteSize,

    /// Standard output and standard error together; the rest is dropped.
    #[arg(long, value_name = "SIZE", default_value = "512KiB", allow_hyphen_values = true)]
    pub(crate) output: ByteSize,

    /// End a program that reaches the limit on output.
    #[arg(long)]
    pub(crate) stop_at_output_limit: bool,

    /// All files of the program together.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", allow_hyphen_values = true)]
    pub(crate) file_bytes: ByteSize,

    /// Files and folders of the program.
    #[arg(long, value_name = "N", default_value_t = 10_000, allow_hyphen_values = true)]
    pub(crate) file_count: u64,

    /// Files that are open at once.
    #[arg(long, value_name = "N", default_value_t = 256, allow_hyphen_values = true)]
    pub(crate) open_files: u64,

    /// Calls from the program to the host, such as reading, writing and looking at the clock.
    #[arg(long, value_name = "N", default_value_t = 100_000_000, allow_hyphen_values = true)]
    pub(crate) host_calls: u64,

    /// The program's source.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", allow_hyphen_values = true)]
    pub(crate) source: ByteSize,

    /// The value that a program ends in, as JSON, as its `repr` and in its other forms, and each
    /// text of an exception.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", allow_hyphen_values = true)]
    pub(crate) result: ByteSize,

    /// All that a program displays together; the rest is dropped.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", allow_hyphen_values = true)]
    pub(crate) display_bytes: ByteSize,

    /// How often a program displays something; the rest is dropped.
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
    /// Print the JSON schema of a call, whose title is the tool's name.
    Schema {
        /// Print that of the result instead.
        #[arg(long)]
        result: bool,
    },
    /// Read one call from standard input, run it and print the result. A call that can't be run has
    /// a result as well, whose `error` says why.
    Run(Box<ToolRunArguments>),
}

#[derive(Debug, Args)]
pub(crate) struct ToolRunArguments {
    /// Run the call in the session in this file, and keep the session there for the next call:
    /// variables, modules and files. Without the file a session begins.
    #[arg(long, value_name = "FILE")]
    pub(crate) session: Option<PathBuf>,

    /// Give the program a copy of a file: HOST, or HOST=NAME for another name in its workspace.
    /// Can be repeated. A file that the call gives by the same name takes its place.
    #[arg(long, value_name = "HOST[=NAME]")]
    pub(crate) input: Vec<String>,

    /// Let the program read a folder: HOST, or HOST=PATH for another place than /NAME. Can be
    /// repeated.
    #[arg(long, value_name = "HOST[=PATH]")]
    pub(crate) mount: Vec<String>,

    /// Write the files that the program made or changed into this folder, in place of what is there
    /// under the same names.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Have the result tell what those files hold, in base64.
    #[arg(long)]
    pub(crate) file_contents: bool,

    #[command(flatten)]
    pub(crate) image: ImageArguments,

    #[command(flatten)]
    pub(crate) limits: LimitArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PythonCommand {
    /// Fetch, verify and compile the build now instead of at the first run.
    Install,
    /// Say which build there is, and where.
    Info,
}

/// What the user typed; ends the process where that is nothing that can be done.
pub(crate) fn parse() -> Arguments {
    let typed: Vec<OsString> = std::env::args_os().collect();
    Arguments::try_parse_from(&typed).unwrap_or_else(|error| explained(error, &typed).exit())
}

/// The error with a tip that helps. clap's own advises `-- ARGUMENT` for whatever it doesn't know,
/// which holds for the arguments of a program alone.
fn explained(mut error: clap::Error, typed: &[OsString]) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let own = typed.get(1).is_some_and(|command| command == "run").then(|| {
        let text = "arguments of the program itself come last, behind `--`: hatchery run … --";
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

/// What makes a run the same every time, if it is to be.
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
    Err("CPython needs 32MiB, and no guest can have more than 4GiB".to_owned())
}

fn parse_grace(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a number with a unit, such as 500ms or 30s"))
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let time = parse_grace(text)?;
    if time.is_zero() {
        return Err("no program ends in no time; give at least 1ms".to_owned());
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
        .map_err(|error| format!("that is no JSON ({error}); a text needs quotes"))
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

    /// The help and the library must not tell different stories.
    #[test]
    fn the_defaults_are_the_librarys() {
        let arguments = Arguments::parse_from(["hatchery", "run", "-c", "1"]);
        let Command::Run(arguments) = arguments.command else { panic!("that was `run`") };
        assert_eq!(arguments.limits.limits(), Limits::default());
    }

    /// A time limit that is raised isn't cut short by one that nobody set.
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
            (&["run", "prog.py", "a", "b"][..], "behind `--`: hatchery run … -- a"),
            (&["run", "prog.py", "--colour"], "behind `--`: hatchery run … -- --colour"),
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
