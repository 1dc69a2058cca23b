//! Command-line arguments, exactly as typed.

pub(crate) use batch::{BatchArguments, ProgressForm};
pub(crate) use grade::{GradeArguments, RecordedSamples};
pub(crate) use groups::{HostFiles, HostFolders};
pub(crate) use image::{
    BuildArguments, ImageCommand, KnownImports, PackagesArguments, RemoveArguments,
};
pub(crate) use kernel::{
    InstallArguments, KernelArguments, KernelCommand, KernelOptions, kernel_options, typed_options,
};
pub(crate) use limits::{ConductArguments, ProgramArguments};
pub(crate) use nats::{AccessArguments, NatsArguments, SubmitArguments, WorkerArguments};
pub(crate) use notebook::{
    NotebookArguments, NotebookCommand, NotebookProgress, ParameterArguments, ParametersArguments,
};
pub(crate) use replay::ReplayArguments;
pub(crate) use serve::ServeArguments;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use bytesize::ByteSize;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use hatchery::cache::CacheDir;
use hatchery::config::{EngineConfig, HostKind};
use hatchery::error::chain;
use hatchery::image::ImageInfo;

use crate::settings::Settings;
use crate::terminal;
use groups::WorkerCount;
use image::{PythonArgument, host_parser};
use limits::{parse_duration, parse_size};

mod batch;
mod egress;
mod grade;
mod groups;
pub(crate) mod image;
mod kernel;
mod limits;
mod nats;
mod notebook;
mod replay;
mod serve;

/// The heading of options that every command has.
const COMMON: &str = "Options of every command";

/// Runs untrusted Python in a pool of sandboxed interpreters.
///
/// Exit codes: the program's own for `sys.exit`, 1 if it raised, 2 for a usage error. 124 is for a
/// limit, 125 for a failure of the sandbox, 130 for an interrupt. For a batch: 1 if a job did not
/// succeed, 2 if a line was invalid, 3 if parts lack results. For notebooks: 1 if a cell failed. For
/// grading: 1 if a sample did not pass. For a prompt: 0, or the code of `sys.exit`.
#[derive(Debug, Parser)]
#[command(name = "hatchery", version, about, max_term_width = 100, disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Print help; `--help` prints more than `-h`.
    #[arg(id = "help", short = 'h', long = "help", global = true, action = ArgAction::Help,
        help_heading = COMMON)]
    _help: Option<bool>,

    /// Print only results and errors: no progress, no notes, no warnings.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = COMMON)]
    pub(crate) quiet: bool,

    /// Print more of the log: steps and their durations; -vv adds details. `RUST_LOG` takes
    /// precedence if it is set.
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = COMMON)]
    pub(crate) verbose: u8,

    /// Read defaults of options from this file. Default: `$HATCHERY_CONFIG`, else
    /// `~/.config/hatchery/config.toml` if it exists. `hatchery config` shows what it sets.
    #[arg(long, global = true, value_name = "FILE", help_heading = COMMON)]
    pub(crate) config: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one program in a fresh interpreter.
    Run(Box<RunArguments>),
    /// Run many programs: one JSON object per line in, one per line out.
    Batch(Box<BatchArguments>),
    /// Merge the results of the shards of a batch, and report missing ones.
    ///
    /// The results are in the order of the lines, as `hatchery batch --ordered` writes them. Parts
    /// of another batch or another number of shards are refused, as are two results of one line.
    /// Exit codes are those of the batch, or 3 if results are missing.
    BatchMerge(MergeArguments),
    /// Share one pool among processes: over standard input and output, a Unix socket, or HTTP.
    Serve(Box<ServeArguments>),
    /// Run jobs from a queue on a NATS server, as one of many pools on many machines.
    Worker(Box<WorkerArguments>),
    /// Run many programs on the workers of a queue on a NATS server.
    Submit(Box<SubmitArguments>),
    /// Watch a batch that was started with `--metrics`, or a server over HTTP, live in the terminal.
    ///
    /// Press q, Esc or Ctrl-C to quit, p to pause, and the arrow keys to scroll the workers.
    Top(TopArguments),
    /// Open a Python prompt, in a session that keeps its variables.
    Repl(Box<ReplArguments>),
    /// Show recorded sessions, run them again and compare, or continue from any turn.
    ///
    /// Exit codes: 0 if all turns that can be repeated are equal; 1 if some differ, or the file has no
    /// end; 2 if the file was changed.
    Replay(Box<ReplayArguments>),
    /// Run Jupyter notebooks, and resume at the cell that failed.
    #[command(subcommand)]
    Notebook(NotebookCommand),
    /// Grade generated code, with tests out of its reach: human-eval, MBPP, EvalPlus, BigCodeBench,
    /// or your own tasks.
    Grade(Box<GradeArguments>),
    /// Run as a Jupyter kernel, or install one.
    Kernel(Box<KernelArguments>),
    /// Build, list and remove images: interpreters with imports done, from which others start at
    /// once.
    #[command(subcommand)]
    Image(ImageCommand),
    /// Run a program as an agent's tool, with JSON in and out.
    #[command(subcommand)]
    Tool(ToolCommand),
    /// Serve programs to an agent: MCP, the Model Context Protocol, over standard input and output.
    Mcp(Box<McpArguments>),
    /// List the packages that programs can import, with their versions and origins.
    Packages(PackagesArguments),
    /// Show what the cache holds, and remove what is no longer used.
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Measure Hatchery on this machine: latency, throughput, computation.
    Bench {
        /// Measure for 15 s instead of 60, with a quarter of the samples.
        #[arg(long)]
        quick: bool,

        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Print completions for a shell.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the man page, or write those of all commands.
    Man {
        /// Write the pages of all commands into this folder, as hatchery.1, hatchery-run.1 and so on.
        /// By default the main page is printed.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Show what the configuration file sets, and where.
    Config,
    /// Manage the Python build.
    #[command(subcommand)]
    Python(PythonCommand),
}

impl Command {
    /// Returns whether results go to standard output, where a closed stream would lose them
    /// silently.
    pub(crate) fn prints_results(&self) -> bool {
        match self {
            Self::Batch(arguments) => arguments.out.is_none(),
            Self::BatchMerge(arguments) => arguments.out.is_none(),
            Self::Notebook(..) | Self::Kernel(_) | Self::Worker(_) | Self::Submit(_) => false,
            Self::Serve(arguments) => arguments.stdio,
            _ => true,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The program; `-` reads it from standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// The program as text.
    #[arg(short, long, value_name = "CODE", conflicts_with = "file", allow_hyphen_values = true)]
    pub(crate) code: Option<String>,

    /// Call a function instead of running a program, and print its return value as Python's prompt
    /// does. With `--json`, the result holds the value.
    #[arg(long, value_name = "MODULE:FUNCTION", conflicts_with_all = ["file", "code"])]
    pub(crate) call: Option<String>,

    /// Pass an argument to the function. Can be repeated.
    #[arg(long, value_name = "JSON", requires = "call", conflicts_with_all = ["file", "code"],
        value_parser = parse_json)]
    pub(crate) arg: Vec<serde_json::Value>,

    /// Set a variable of the program. Can be repeated.
    #[arg(long, value_name = "NAME=JSON", value_parser = parse_json_variable)]
    pub(crate) var: Vec<(String, serde_json::Value)>,

    /// Hide the folder of FILE from the program. By default, the program can import modules from
    /// there, and so read the Python source below it.
    #[arg(long)]
    pub(crate) alone: bool,

    /// Let the program read the folder of FILE as if it ran there. Its contents also appear in the
    /// program's working directory. Without FILE, this is the current folder. The program can't
    /// change what is there; new files are its own.
    #[arg(long, conflicts_with = "alone")]
    pub(crate) beside: bool,

    /// The program's working directory: a path in its workspace, relative or absolute.
    #[arg(long, value_name = "PATH")]
    pub(crate) workdir: Option<String>,

    /// Print one JSON object with the result instead of the program's output.
    #[arg(long)]
    pub(crate) json: bool,

    /// Read the program's standard input from a file; `-` is this command's own standard input.
    /// Default: empty.
    #[arg(long, value_name = "FILE")]
    pub(crate) stdin: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) conduct: ConductArguments,

    #[command(flatten)]
    pub(crate) host: HostFiles,

    /// Ignore the input files that the program's header names.
    #[arg(long)]
    pub(crate) no_header_inputs: bool,

    /// Write the files that the program created or changed into this folder. Overwrites files of
    /// the same names.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Include the contents of those files in the result, in base64.
    #[arg(long, requires = "json")]
    pub(crate) file_contents: bool,

    /// Write what the program displays into this folder: figures and other displays as
    /// display-1.png and so on. The value of its last line becomes result.html or similar if it is
    /// more than text. Overwrites files of the same names.
    #[arg(long, value_name = "DIR")]
    pub(crate) save_displays: Option<PathBuf>,

    /// Pass the program's output to the terminal unchanged. By default, control characters and
    /// escape sequences are shown, not obeyed, except colours, styles and those of progress bars.
    #[arg(long)]
    pub(crate) raw_output: bool,

    /// Set an environment variable of the program. Can be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(crate) env: Vec<(String, String)>,

    /// Arguments for the program.
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) args: Vec<String>,

    // Last: in the help, its headings apply to everything that follows.
    #[command(flatten)]
    pub(crate) programs: ProgramArguments,
}

/// Arguments of `hatchery repl`. The limits apply to each input.
#[derive(Debug, Args)]
pub(crate) struct ReplArguments {
    /// Continue the session in this file, if it exists, and save the session there at the end.
    #[arg(long, value_name = "FILE")]
    pub(crate) session: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) host: HostFiles,

    /// Write the files that an input creates or changes into this folder when it ends. Existing files
    /// are not overwritten. `:get` fetches single files.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Write what inputs display into this folder: figures and other displays as display-1.png and
    /// so on. Values that are more than text become result-1.html or similar.
    #[arg(long, value_name = "DIR")]
    pub(crate) save_displays: Option<PathBuf>,

    /// Record each session in a new file in this folder, for `hatchery replay`. Programs then see a clock
    /// that begins now and advances only while they run.
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    pub(crate) record: Option<PathBuf>,

    /// Pass the output of programs to the terminal unchanged. By default, control characters and
    /// escape sequences are shown, not obeyed, except colours, styles and those of progress bars.
    #[arg(long)]
    pub(crate) raw_output: bool,

    #[command(flatten)]
    pub(crate) programs: ProgramArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// Print the JSON schema of a call; its title is the tool's name.
    Schema {
        /// Print the schema of the result instead.
        #[arg(long)]
        result: bool,

        /// Print the schema of a job instead, as in lines of a batch and requests to a server.
        #[arg(long, conflicts_with = "result")]
        job: bool,
    },
    /// Read one call from standard input, run it and print the result. A call that can't be run
    /// also gets a result, whose `error` says why. A file of the call takes precedence over one of
    /// `--input`.
    Run(Box<ToolRunArguments>),
}

#[derive(Debug, Args)]
pub(crate) struct ToolRunArguments {
    /// Run the call in the session in this file, and save the session there for the next call. If
    /// the file doesn't exist, a new session starts.
    #[arg(long, value_name = "FILE")]
    pub(crate) session: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) host: HostFiles,

    /// Write the files that the program created or changed into this folder. Overwrites files of
    /// the same names.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Include the contents of those files in the result, in base64.
    #[arg(long)]
    pub(crate) file_contents: bool,

    #[command(flatten)]
    pub(crate) programs: ProgramArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PythonCommand {
    /// Download, verify and compile the build now instead of at the first run.
    Install {
        /// A file of `hatchery python precompile` to unpack instead of compiling. It holds native
        /// code, so its hash is required.
        #[arg(long, value_name = "FILE", requires = "sha256")]
        module: Option<PathBuf>,
        /// The SHA-256 of that file in hexadecimal.
        #[arg(long, value_name = "HASH", requires = "module")]
        sha256: Option<String>,
    },
    /// Write the compiled build to a file, so that other machines needn't compile it.
    Precompile {
        /// The file to write: 35 MB, for machines with a CPU of this kind (x86-64-v3) and this
        /// version of Hatchery.
        file: PathBuf,
    },
    /// Show the installed build and where it is, or what other builds can do.
    Info {
        /// Builds, as for `--python`: a WebAssembly file with its library next to it, their folder,
        /// or a wheel or `.webc` package. All but the default build need a NAME. Compiles
        /// builds that the cache doesn't have compiled. Default: `$HATCHERY_PYTHON`.
        #[arg(value_name = "[NAME=]FILE|DIR", value_parser = PythonArgument::parse)]
        pythons: Vec<PythonArgument>,
        /// The host that serves the guest's imports: Hatchery's (`own`) or wasmer-wasix (`wasix`).
        #[arg(long, value_parser = host_parser(), default_value = "own")]
        host: HostKind,
    },
}

/// Returns the definition of the command line, the same on all machines.
pub(crate) fn definition() -> clap::Command {
    Arguments::command()
}

/// Parses the command line, with the defaults of the configuration; exits the process if either is
/// invalid.
pub(crate) fn parse() -> (Arguments, Option<Settings>) {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let parse = |definition: clap::Command| {
        let mut matches = definition.try_get_matches_from(&typed)?;
        Arguments::from_arg_matches_mut(&mut matches)
    };
    // The long version reads the cache.
    let asks_version = typed.iter().skip(1).any(|argument| argument == "--version");
    let arguments =
        parse(if asks_version { definition().long_version(long()) } else { definition() });
    let arguments = arguments.unwrap_or_else(|error| explained(error, &typed).exit());
    let fail = |problem: String| -> ! {
        terminal::error(problem);
        std::process::exit(2)
    };
    match Settings::find(arguments.config.as_deref()) {
        Ok(None) => (arguments, None),
        Ok(Some(settings)) => match parse(settings.apply(Arguments::command())) {
            Ok(arguments) => (arguments, Some(settings)),
            // What was typed is valid.
            Err(error) => {
                let text = error.to_string();
                let text = text.lines().next().unwrap_or_default();
                let text = text.strip_prefix("error: ").unwrap_or(text);
                fail(format!("`{}`: {text}", settings.path.display()))
            }
        },
        Err(problem) => fail(problem),
    }
}

/// Replaces the tip of an error by a helpful one. The tip `-- ARGUMENT`, which clap gives for every
/// unknown argument, is right only for arguments of a program.
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

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// List what the cache holds, most recently used first.
    Info {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Remove what hasn't been used for a time, or the least recently used until the rest fits.
    ///
    /// Files that a running process uses stay. Removed files are rebuilt or downloaded again when
    /// needed. The Python build and its compiled form, which every start needs, are removed last.
    Prune(PruneArguments),
}

#[derive(Debug, Args)]
pub(crate) struct PruneArguments {
    /// Remove what hasn't been used for this time, such as `30d` or `12h`.
    #[arg(long, value_name = "TIME", value_parser = parse_duration,
        required_unless_present = "to_size")]
    pub(crate) older_than: Option<Duration>,

    /// Remove the least recently used until the cache takes no more than this, such as `2GiB`.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) to_size: Option<ByteSize>,

    /// Only show what would be removed.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `hatchery mcp`. The limits apply to each call.
#[derive(Debug, Args)]
pub(crate) struct McpArguments {
    #[command(flatten)]
    pub(crate) workers: WorkerCount,

    #[command(flatten)]
    pub(crate) programs: ProgramArguments,
}

// A command of its own: with `hatchery batch merge`, a batch in a file of that name couldn't be run.
#[derive(Debug, Args)]
pub(crate) struct MergeArguments {
    /// The jobs of the batch, as its shards read them; `-` reads standard input.
    #[arg(value_name = "IN.ndjson")]
    pub(crate) jobs: PathBuf,

    /// The results of the shards: the files of `--out`, in any order.
    #[arg(value_name = "PART", required = true)]
    pub(crate) parts: Vec<PathBuf>,

    /// Write the results to this file instead of standard output. An existing file is replaced in
    /// one step, once every result has been found.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Write the results that exist, even if others are missing. The exit code is still 3.
    #[arg(long)]
    pub(crate) partial: bool,

    /// Drop results that belong to no line, such as those of changed lines, instead of refusing
    /// their parts.
    #[arg(long)]
    pub(crate) drop_others: bool,
}

/// The address to watch by default; the help of `batch --metrics` suggests the same.
const DEFAULT_ADDRESS: &str = "127.0.0.1:9184";

#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// The address of the batch's metrics, or of the server.
    #[arg(value_name = "ADDR", default_value = DEFAULT_ADDRESS)]
    pub(crate) address: String,

    /// Watch the pools of a queue on this NATS server instead.
    #[arg(long, value_name = "URL", conflicts_with = "address")]
    pub(crate) nats: Option<String>,

    #[command(flatten)]
    pub(crate) access: AccessArguments,

    /// Time between updates, such as `500ms` or `2s`.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: Duration,

    /// Print the current state as text, and exit.
    #[arg(long)]
    pub(crate) once: bool,

    /// Print the current state as one JSON object, and exit. For one pool, docs/status.md describes
    /// the fields.
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    let interval = humantime::parse_duration(text).ok().filter(|time| allowed.contains(time));
    interval.ok_or_else(|| {
        "write a number with a unit, such as 500ms or 2s; at least 100ms and at most 1h".to_owned()
    })
}

/// What `--version` says, in lines; `-V` says the first.
fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let cache = CacheDir::open(EngineConfig::from_env().cache_dir.as_deref());
        let cache = cache
            .map_or_else(|error| error.to_string(), |cache| cache.root().display().to_string());
        format!(
            "{}\nbuild    {}\nimage    {}\nwasmer   {}\ntarget   {}\ncache    {cache}",
            env!("CARGO_PKG_VERSION"),
            hatchery::python::WHEEL_REQUIREMENT,
            plain_image(),
            hatchery::python::WASMER_VERSION,
            hatchery::python::module_target(),
        )
    });
    &TEXT
}

/// Describes the newest image in the cache with nothing added, which programs get by default.
fn plain_image() -> String {
    let images = hatchery::image::list(EngineConfig::from_env().cache_dir.as_deref());
    let images = match images {
        Ok(images) => images,
        Err(error) => return chain(&error).to_string(),
    };
    let is_plain = |image: &&ImageInfo| {
        image.hidden.is_empty()
            && image.preload.is_empty()
            && image.packages.is_empty()
            && image.setup.is_none()
    };
    let plain =
        images.iter().find(is_plain).map_or("none yet without options", |image| image.key.as_str());
    format!("{plain}; {} in the cache", images.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn variables_have_a_name() {
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
