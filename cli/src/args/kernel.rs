//! Arguments of `hatchery kernel`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, Parser, Subcommand};
use hatchery::config::PYODIDE;

use super::groups::HostFolders;
use super::limits::ProgramArguments;
use super::{Arguments, Command};

/// Options whose values are paths of this machine, perhaps with a name before or after `=`.
const PATHS: [&str; 9] = [
    "beside",
    "mount",
    "package",
    "package_index",
    "python",
    "record",
    "requirements",
    "setup",
    "unix",
];

/// The folder in which the kernel starts.
const HERE: &str = ".";

/// Arguments of `hatchery kernel`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct KernelArguments {
    #[command(subcommand)]
    pub(crate) command: Option<KernelCommand>,

    /// The connection file, which the front end writes.
    #[arg(short = 'f', long, value_name = "CONNECTION", required = true)]
    pub(crate) connection_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) options: KernelOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KernelCommand {
    /// Install a kernel for Jupyter's front ends, which start it with these options.
    ///
    /// Also builds the image now, so that the kernel starts at once.
    Install(Box<InstallArguments>),
}

/// What a kernel's sessions are like. The limits apply to each cell.
#[derive(Debug, Args)]
#[command(
    // Somebody watches, and interrupts what takes too long.
    mut_arg("timeout", |arg| arg.default_value("1d")),
    mut_arg("host_calls", |arg| arg.default_value("1000000000000")),
    mut_arg("output", |arg| arg.default_value("16MiB")),
    mut_arg("display_bytes", |arg| arg.default_value("64MiB")),
)]
pub(crate) struct KernelOptions {
    /// Let the cells read a folder as if they ran there. The default is the folder in which the
    /// kernel starts: the notebook's. They can't change what is there; new files are the session's
    /// own.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true,
        default_missing_value = HERE)]
    pub(crate) beside: Option<PathBuf>,

    /// Run the cells in the pool of `hatchery serve --unix PATH`, with its image. Other kernels and
    /// processes share it.
    #[arg(long, value_name = "PATH", conflicts_with_all =
        ["python", "host", "isolation", "preload", "setup", "package", "packages", "requirements"])]
    pub(crate) unix: Option<PathBuf>,

    /// Record each session in a new file in this folder, for `hatchery replay`. Cells then see a clock
    /// that begins now and advances only while they run.
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) folders: HostFolders,

    #[command(flatten)]
    pub(crate) programs: ProgramArguments,
}

/// Arguments of `hatchery kernel install`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("place").multiple(false))]
pub(crate) struct InstallArguments {
    /// Install for this user. This is the default.
    #[arg(long, group = "place")]
    pub(crate) user: bool,

    /// Install into the Python environment that is active.
    #[arg(long, group = "place")]
    pub(crate) sys_prefix: bool,

    /// Install below this folder, in share/jupyter/kernels.
    #[arg(long, value_name = "DIR", group = "place")]
    pub(crate) prefix: Option<PathBuf>,

    /// The kernel's name, by which front ends select it.
    #[arg(long, value_name = "NAME", default_value = "hatchery")]
    pub(crate) name: String,

    /// The name that users see.
    #[arg(long, value_name = "TEXT", default_value = "Python (Hatchery)")]
    pub(crate) display_name: String,

    #[command(flatten)]
    pub(crate) options: KernelOptions,
}

/// Returns the options of the kernel that were typed for `hatchery kernel` or its installation.
/// Paths are absolute, since front ends start kernels in other folders.
pub(crate) fn typed_options() -> Vec<String> {
    let typed = Arguments::command().get_matches();
    let Some((_, kernel)) = typed.subcommand() else { return Vec::new() };
    options_in(kernel.subcommand().map_or(kernel, |(_, install)| install))
}

/// Reads the options of a kernel that another process serves.
pub(crate) fn kernel_options(options: &[String]) -> Result<KernelOptions, String> {
    let typed = ["hatchery", "kernel", "-f", "-"].into_iter().map(str::to_owned);
    match Arguments::try_parse_from(typed.chain(options.iter().cloned())) {
        Ok(Arguments { command: Command::Kernel(kernel), .. })
            if kernel.command.is_none() && kernel.options.is_for_a_pool() =>
        {
            Ok(kernel.options)
        }
        Ok(_) => Err("only options for a kernel's sessions apply here".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl KernelOptions {
    /// Returns whether no option is about the pool.
    fn is_for_a_pool(&self) -> bool {
        let image = &self.programs.image;
        let is_default = image.python.is_empty() && image.isolation.is_none();
        self.unix.is_none() && image.is_plain() && is_default
    }
}

fn options_in(install: &ArgMatches) -> Vec<String> {
    let known = KernelOptions::augment_args(clap::Command::new("kernel"));
    let mut options = Vec::new();
    for argument in known.get_arguments() {
        let id = argument.get_id().as_str();
        let Some(long) = argument.get_long() else { continue };
        if install.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        if !argument.get_action().takes_values() {
            options.push(format!("--{long}"));
            continue;
        }
        for value in install.get_raw(id).into_iter().flatten() {
            let value = value.to_string_lossy().into_owned();
            if id == "beside" {
                options.push(match value.as_str() {
                    HERE => "--beside".to_owned(),
                    folder => format!("--beside={}", absolute(folder)),
                });
                continue;
            }
            let value = if PATHS.contains(&id) { absolute(&value) } else { value };
            options.extend([format!("--{long}"), value]);
        }
    }
    options
}

/// Makes the path in a value absolute, unless it is the name of a build. Another name stands before
/// it in `--python NAME=FILE`, and a place in the sandbox after it in `--mount HOST=PATH`.
fn absolute(value: &str) -> String {
    let absolute = |path: &str| {
        if path == PYODIDE && !std::path::Path::new(path).exists() {
            return path.to_owned();
        }
        std::path::absolute(path)
            .map_or_else(|_| path.into(), OsString::from)
            .to_string_lossy()
            .into_owned()
    };
    match value.split_once('=') {
        Some((host, place)) if place.starts_with('/') && !std::path::Path::new(value).exists() => {
            if std::path::Path::new(host).exists() {
                format!("{}={place}", absolute(host))
            } else {
                value.to_owned()
            }
        }
        Some((name, path)) if !name.contains('/') => format!("{name}={}", absolute(path)),
        _ => absolute(value),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn options_of(typed: &[&str]) -> Vec<String> {
        let typed = ["hatchery", "kernel", "install"].iter().chain(typed);
        let matches = Arguments::command().get_matches_from(typed);
        let kernel = matches.subcommand_matches("kernel").unwrap();
        options_in(kernel.subcommand_matches("install").unwrap())
    }

    #[test]
    fn a_kernel_starts_with_the_options_that_were_typed() {
        assert!(options_of(&["--user", "--name", "a"]).is_empty());
        let here = std::env::current_dir().unwrap();
        let here = here.to_str().unwrap();
        let typed =
            ["--preload", "numpy,pandas", "--timeout", "2m", "--beside", "--mount", "src=/x"];
        let mount = format!("{here}/src=/x");
        let expected =
            ["--beside", "--mount", &mount, "--preload", "numpy,pandas", "--timeout", "2m"];
        let mut found = options_of(&typed);
        // clap divides a list.
        if let Some(at) = found.iter().position(|value| value == "numpy") {
            found.splice(at..at + 3, ["numpy,pandas".to_owned()]);
        }
        assert_eq!(found, expected);
        let here_too = format!("--beside={here}/src");
        assert_eq!(options_of(&["--beside=src"]), [here_too]);
        let socket = format!("{here}/pool.sock");
        assert_eq!(options_of(&["--unix", "pool.sock"]), ["--unix", &socket]);
        assert_eq!(absolute("b/c.whl"), format!("{here}/b/c.whl"));
        assert_eq!(absolute("3.12=c.whl"), format!("3.12={here}/c.whl"));
        assert_eq!(options_of(&["--python", "pyodide"]), ["--python", "pyodide"]);
        assert_eq!(absolute("3.14=pyodide"), "3.14=pyodide");
    }

    #[test]
    fn a_shared_pool_takes_options_about_sessions_alone() {
        let read = |options: &[&str]| {
            let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
            kernel_options(&options)
        };
        let options = read(&["--timeout", "1m", "--beside=/tmp"]).unwrap();
        assert_eq!(options.programs.limits().wall_time, Duration::from_secs(60));
        assert_eq!(options.beside, Some("/tmp".into()));
        for options in [&["--preload", "numpy"][..], &["--unix", "/a"], &["install"], &["-x"]] {
            assert!(read(options).is_err(), "{options:?}");
        }
    }

    #[test]
    fn a_cell_may_take_long_unless_the_user_says_otherwise() {
        let limits = |typed: &[&str]| {
            let typed = ["hatchery", "kernel", "-f", "c.json"].iter().chain(typed);
            let Command::Kernel(arguments) = Arguments::parse_from(typed).command else {
                panic!("that was `kernel`")
            };
            arguments.options.programs.limits()
        };
        assert_eq!(limits(&[]).wall_time, Duration::from_secs(24 * 60 * 60));
        assert_eq!(limits(&["--timeout", "1m"]).wall_time, Duration::from_secs(60));
        assert_eq!(limits(&[]).output_bytes, 16 << 20);
    }
}
