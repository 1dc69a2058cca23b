//! Advice on a program's problem, in the words of its user's interface.
//!
//! The agent and the limits say what happened; this file alone knows what each interface calls the
//! remedies.

use serde::{Deserialize, Serialize};

use super::LimitKind;
use crate::places::COMMON_PACKAGES;

/// The interface through which a user gives jobs, whose words messages about them use.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Interface {
    /// This library.
    #[default]
    Library,
    /// Options of `hatchery run`.
    CommandLine,
    /// Jobs as lines or calls, with options of a command for all of them: `hatchery batch`,
    /// `hatchery tool run`.
    Batch,
    /// The prompt of `hatchery repl`.
    Prompt,
    /// `hatchery notebook run`.
    Notebook,
    /// `hatchery kernel`.
    Kernel,
    /// `hatchery grade`.
    Grade,
    /// Jobs as JSON, from a client that may set every limit.
    Json,
    /// Jobs as JSON over HTTP, from a client that can lower limits.
    Http,
    /// Lines of `hatchery submit`, which `hatchery worker` runs.
    Cluster,
    /// The tools of MCP.
    Mcp,
    /// The Python package.
    Python,
    /// E2B's code interpreter.
    E2b,
    /// SandboxFusion's API.
    SandboxFusion,
    /// Piston's API.
    Piston,
}

/// What would help a program, apart from a higher limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Remedy {
    /// The file that it tried to read.
    File,
    /// Standard input.
    Input,
    /// Data from the network.
    Data,
    /// A package.
    Package,
    /// A connection that it wasn't granted.
    Connection,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Advice {
    /// Sentences that hold for every interface.
    #[serde(default)]
    text: String,
    #[serde(default)]
    remedy: Option<Remedy>,
    /// The path of the file, or the name of the module.
    #[serde(default)]
    path: String,
}

impl Advice {
    pub(crate) fn bytes(&self) -> usize {
        self.text.len() + self.path.len()
    }

    /// Returns whether it is about what happened: the program sought its file, or has no input.
    pub(crate) fn holds(&self, has_sought: impl FnOnce(&str) -> bool, has_input: bool) -> bool {
        match self.remedy {
            Some(Remedy::File) => has_sought(&self.path),
            Some(Remedy::Input) => !has_input,
            Some(Remedy::Data | Remedy::Package | Remedy::Connection) | None => true,
        }
    }

    pub(crate) fn worded_for(&self, interface: Interface) -> String {
        let remedy = match self.remedy {
            None => String::new(),
            Some(Remedy::File) => file(&self.path, interface),
            Some(Remedy::Input) => {
                format!("The program has no standard input: {}.", input(interface))
            }
            Some(Remedy::Data | Remedy::Package) if is_common(&self.path) => {
                let option = "--packages common";
                let python = "Pool(packages_common=True)";
                let granted = grant("Builder::packages_common", python, option, interface);
                format!("Add it with {granted}.")
            }
            Some(Remedy::Data) => format!(
                "Give the program its data with {}, or allow its HTTP requests with {}.",
                data(interface),
                grant("Builder::egress", "Pool(egress=[…])", "--allow-http", interface)
            ),
            Some(Remedy::Package) => package(interface),
            Some(Remedy::Connection) => format!(
                "Allow programs to connect there with {}.",
                grant(
                    "Builder::allow_connect",
                    "Pool(allow_connect=[…])",
                    "--allow-connect HOST:PORT",
                    interface
                )
            ),
        };
        let space = if self.text.is_empty() || remedy.is_empty() { "" } else { " " };
        format!("{}{space}{remedy}", self.text)
    }
}

fn file(path: &str, interface: Interface) -> String {
    use Interface as I;
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    // A copy gets the file's own name, unless another one is given.
    let is_absolute = path.starts_with('/');
    let is_below = !is_absolute && !folder.is_empty() && !path.split('/').any(|part| part == "..");
    let renamed = if is_below || folder.is_empty() { "" } else { &format!(" as `{name}`") };
    let gives = match interface {
        I::Library if is_absolute => "`Job::mount` gives it the folder".to_owned(),
        I::Library => "`Job::input` gives it a copy, `Job::beside` a folder to read".to_owned(),
        I::CommandLine | I::Batch | I::Notebook | I::Kernel
            if is_absolute && !folder.is_empty() =>
        {
            format!("`--mount {}` gives it the folder", quoted(&format!("{folder}={folder}")))
        }
        I::Batch => "`--input` gives a copy to every job, the field `files` to one".to_owned(),
        I::CommandLine | I::Notebook => {
            let option = if is_below { format!("{path}={path}") } else { path.to_owned() };
            let beside = if interface == I::Notebook { "notebook" } else { "script" };
            format!(
                "`--input {}` gives it a copy{renamed}, `--beside` the folder of its {beside} to read",
                quoted(&option)
            )
        }
        I::Kernel => "the kernel's option `--beside` gives it the notebook's folder".to_owned(),
        I::Prompt if is_below => {
            format!("`:put {0} {0}` gives it a copy", quoted(path))
        }
        I::Prompt => format!("`:put {}` gives it a copy{renamed}", quoted(path)),
        I::Grade | I::Json | I::Http | I::Cluster => "the field `files` gives it a copy".to_owned(),
        I::Mcp => "the argument `files` gives it a copy".to_owned(),
        I::Python => format!("`files={{{path:?}: …}}` gives it a copy"),
        I::E2b => format!("`sandbox.files.write({path:?}, …)` gives it a copy"),
        I::SandboxFusion | I::Piston => "the request's `files` give it a copy".to_owned(),
    };
    format!("A program sees only the files that it gets. If `{path}` is your file, {gives}.")
}

fn input(interface: Interface) -> &'static str {
    use Interface as I;
    match interface {
        I::Library => "`Job::stdin` gives it some",
        I::CommandLine => "`--stdin FILE` gives it some",
        I::Prompt => "`input()` reads the line that is typed next, and there is none",
        I::Notebook => "assign the answer in the cell, or make it a parameter (`--parameter`)",
        I::Grade => "its task provides none either",
        I::Batch | I::Json | I::Http | I::Cluster | I::Piston => "the field `stdin` gives it some",
        I::SandboxFusion => "the field `stdin` of `/run_code` gives it some",
        I::Python => "`stdin=` gives it some",
        I::Mcp => "the argument `stdin` gives it some",
        I::Kernel | I::E2b => "assign the answer in the code",
    }
}

fn data(interface: Interface) -> &'static str {
    use Interface as I;
    match interface {
        I::Library => {
            "`Job::input`, `Job::mount` or `Job::stdin`, or have a host function fetch it"
        }
        I::CommandLine => "`--input`, `--mount` or `--stdin`",
        I::Batch => "`--input`, `--mount` or the field `files`",
        I::Prompt => "`:put FILE`",
        I::Notebook => "`--input` or `--mount`",
        I::Kernel => "the kernel's options `--beside` or `--mount`",
        I::Grade | I::Json | I::Http | I::Cluster => "the field `files`",
        I::Mcp => "the argument `files`",
        I::Python => "`files=`, or have a host function fetch it (`functions=`)",
        I::E2b => "`sandbox.files.write`",
        I::SandboxFusion | I::Piston => "the request's `files`",
    }
}

fn package(interface: Interface) -> String {
    use Interface as I;
    let server = |name| {
        format!("The {name} adds packages with its options `--package` and `--requirements`")
    };
    match interface {
        I::Library => "`Builder::package` adds a pure-Python wheel or a folder, \
                       `Builder::requirements` the packages in a file; `Job::input` copies your \
                       own module."
            .to_owned(),
        I::CommandLine | I::Batch | I::Notebook | I::Prompt | I::Kernel | I::Grade => {
            let own = match interface {
                I::CommandLine | I::Batch | I::Notebook => "; `--input` copies your own module",
                I::Prompt => "; `:put FILE` copies your own module",
                _ => "",
            };
            format!(
                "`--package` adds a pure-Python wheel or a folder, `--requirements` the packages \
                 in a file{own}. `hatchery packages` lists what the image has."
            )
        }
        I::Python => "`Pool(packages=[…])` adds pure-Python wheels or folders, \
                      `Pool(requirements=[…])` the packages in files; `files=` copies your own \
                      module."
            .to_owned(),
        I::Mcp => format!("{}; `list_packages` lists what can be imported.", server("server")),
        I::Cluster => format!("{}.", server("worker")),
        I::Json | I::Http | I::E2b | I::SandboxFusion | I::Piston => {
            format!("{}.", server("server"))
        }
    }
}

/// Returns whether the common packages have a module.
fn is_common(module: &str) -> bool {
    let modules = |line: &'static str| Some(line.split_once("  # ")?.1.split(' '));
    COMMON_PACKAGES.lines().filter_map(modules).flatten().any(|name| name == module)
}

/// Returns what gives programs a network or packages: in Rust, in Python, or by an option of the
/// command line.
fn grant(library: &str, python: &str, option: &str, interface: Interface) -> String {
    match interface {
        Interface::Library => format!("`{library}`"),
        Interface::Python => format!("`{python}`"),
        _ => of_command(option, interface),
    }
}

/// Returns an option of the command that has the pool.
fn of_command(option: &str, interface: Interface) -> String {
    use Interface as I;
    match interface {
        I::Cluster => format!("the worker's `{option}`"),
        I::Json | I::Http | I::Mcp | I::E2b | I::SandboxFusion | I::Piston => {
            format!("the server's `{option}`")
        }
        _ => format!("`{option}`"),
    }
}

fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_./=-+,:@%".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{text}'") }
}

impl LimitKind {
    /// Returns what raises the limit, in the words of an interface. `None` if nothing does that its
    /// user could set.
    pub fn raised_by(self, interface: Interface) -> Option<String> {
        use Interface as I;
        let (name, field) = match self {
            Self::NativeExceptions | Self::Stack => return None,
            Self::Deadline if interface == I::Library => return Some("`Job::deadline`".to_owned()),
            Self::Deadline => return Some("a later `deadline`".to_owned()),
            Self::PoolMemory => {
                return Some(match interface {
                    I::Library => "`Builder::memory_limit_bytes`, or fewer workers,".to_owned(),
                    I::Python => "`Pool(workers=…)` with fewer workers".to_owned(),
                    _ => "a pool with more memory, or with fewer `--workers`,".to_owned(),
                });
            }
            Self::Wall => ("timeout", "wall_time"),
            Self::Cpu => ("cpu_time", "cpu_time"),
            Self::Memory => (self.name(), "memory_bytes"),
            Self::Output => (self.name(), "output_bytes"),
            Self::Source => (self.name(), "source_bytes"),
            Self::Result => (self.name(), "result_bytes"),
            Self::ResultData => (self.name(), "result_data_bytes"),
            _ => (self.name(), self.name()),
        };
        if interface == I::Library {
            return Some(format!("`Limits::{field}`"));
        }
        let option = of_command(&format!("--{}", name.replace('_', "-")), interface);
        let own = |field: &str| Some(format!("`{field}`, up to {option},"));
        match (interface, self) {
            (I::Python, Self::Wall) => Some("`timeout=`".to_owned()),
            (I::Python, _) => Some(format!("`Limits({name}=…)`")),
            (I::Json, Self::Wall) => Some("`timeout`".to_owned()),
            (I::Json, _) => Some(format!("`limits.{name}`")),
            _ if !self.has_option() => None,
            (I::Grade, Self::Source | Self::Result | Self::DisplayBytes | Self::DisplayCount) => {
                None
            }
            (I::Http | I::Mcp | I::Cluster, Self::Wall) => own("timeout"),
            (I::Http | I::Cluster, _) => own(&format!("limits.{name}")),
            (I::SandboxFusion, Self::Wall) => own("run_timeout` or `cell_timeout"),
            (I::SandboxFusion, Self::Memory) => own("memory_limit_MB"),
            (I::Piston, Self::Wall) => own("run_timeout"),
            (I::Piston, Self::Cpu) => own("run_cpu_time"),
            (I::Piston, Self::Memory) => own("run_memory_limit"),
            _ => Some(option),
        }
    }

    fn has_option(self) -> bool {
        !matches!(
            self,
            Self::FunctionCalls
                | Self::FunctionsInFlight
                | Self::FunctionArguments
                | Self::FunctionResults
                | Self::ResultData
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(path: &str) -> Advice {
        Advice { text: String::new(), remedy: Some(Remedy::File), path: path.to_owned() }
    }

    #[test]
    fn a_missing_file_is_given_in_the_words_of_the_interface() {
        for (interface, path, expected) in [
            (Interface::Library, "a.csv", "`Job::input` gives it a copy, `Job::beside`"),
            (Interface::CommandLine, "a.csv", "`--input a.csv` gives it a copy, `--beside`"),
            (Interface::CommandLine, "d/a.csv", "`--input d/a.csv=d/a.csv` gives it a copy, "),
            (Interface::CommandLine, "../a.csv", "`--input ../a.csv` gives it a copy as `a.csv`, "),
            (Interface::CommandLine, "a b", "`--input 'a b'` gives"),
            (Interface::Notebook, "/d/a.csv", "`--mount /d=/d` gives it the folder."),
            (Interface::Prompt, "a.csv", "`:put a.csv` gives"),
            (Interface::Prompt, "d/a.csv", "`:put d/a.csv d/a.csv` gives it a copy."),
            (Interface::Prompt, "../a.csv", "`:put ../a.csv` gives it a copy as `a.csv`."),
            (Interface::Prompt, "/d/a.csv", "`:put /d/a.csv` gives it a copy as `a.csv`."),
            (Interface::CommandLine, "/a.csv", "`--input /a.csv` gives it a copy,"),
            (Interface::Batch, "a.csv", "`--input` gives a copy to every job, the field `files` "),
            (Interface::Http, "/d/a.csv", "the field `files` gives"),
            (Interface::Cluster, "a.csv", "the field `files` gives"),
            (Interface::Mcp, "a.csv", "the argument `files` gives"),
            (Interface::Python, "a.csv", "`files={\"a.csv\": …}` gives"),
            (Interface::E2b, "a.csv", "`sandbox.files.write(\"a.csv\", …)` gives"),
        ] {
            let told = missing(path).worded_for(interface);
            assert!(told.contains(expected), "{interface:?}: {told}");
            assert!(told.contains(&format!("If `{path}` is your file, ")), "{told}");
        }
    }

    #[test]
    fn advice_is_given_on_what_happened_only() {
        let input = Advice { remedy: Some(Remedy::Input), ..missing("") };
        assert!(
            missing("a").holds(|path| path == "a", true) && !missing("a").holds(|_| false, true)
        );
        assert!(input.holds(|_| false, false) && !input.holds(|_| true, true));
    }

    #[test]
    fn a_connection_is_allowed_in_the_words_of_the_interface() {
        let refused = Advice { remedy: Some(Remedy::Connection), ..missing("") };
        let no_network = Advice { remedy: Some(Remedy::Data), ..missing("") };
        for (interface, connection, requests) in [
            (Interface::Library, "`Builder::allow_connect`.", "`Builder::egress`."),
            (Interface::CommandLine, "`--allow-connect HOST:PORT`.", "`--allow-http`."),
            (Interface::Python, "`Pool(allow_connect=[…])`.", "`Pool(egress=[…])`."),
            (
                Interface::Mcp,
                "the server's `--allow-connect HOST:PORT`.",
                "the server's `--allow-http`.",
            ),
        ] {
            for (advice, expected) in [(&refused, connection), (&no_network, requests)] {
                let told = advice.worded_for(interface);
                assert!(told.ends_with(&format!("with {expected}")), "{interface:?}: {told}");
            }
        }
    }

    #[test]
    fn a_missing_common_package_is_added_in_the_words_of_the_interface() {
        let missing = |module| Advice { remedy: Some(Remedy::Package), ..missing(module) };
        for (interface, expected) in [
            (Interface::Library, "Add it with `Builder::packages_common`."),
            (Interface::CommandLine, "Add it with `--packages common`."),
            (Interface::Python, "Add it with `Pool(packages_common=True)`."),
            (Interface::Mcp, "Add it with the server's `--packages common`."),
            (Interface::Cluster, "Add it with the worker's `--packages common`."),
        ] {
            // Its wheel has another name.
            assert_eq!(missing("docx").worded_for(interface), expected);
            assert!(!missing("python-docx").worded_for(interface).contains("common"));
        }
        let of_the_network = Advice { remedy: Some(Remedy::Data), ..missing("requests") };
        assert_eq!(of_the_network.worded_for(Interface::Batch), "Add it with `--packages common`.");
    }

    #[test]
    fn a_limit_is_raised_by_what_its_user_can_set() {
        use Interface as I;
        for (limit, interface, expected) in [
            (LimitKind::Wall, I::Library, Some("`Limits::wall_time`")),
            (LimitKind::Wall, I::CommandLine, Some("`--timeout`")),
            (LimitKind::FileCount, I::Kernel, Some("`--file-count`")),
            (LimitKind::Threads, I::CommandLine, Some("`--threads`")),
            (LimitKind::NetworkBytes, I::CommandLine, Some("`--network-bytes`")),
            (LimitKind::FunctionCalls, I::Json, Some("`limits.function_calls`")),
            (LimitKind::FunctionCalls, I::Mcp, None),
            (LimitKind::Cpu, I::Grade, Some("`--cpu-time`")),
            (LimitKind::Output, I::Grade, Some("`--output`")),
            (LimitKind::FileCount, I::Grade, Some("`--file-count`")),
            (LimitKind::DisplayBytes, I::Grade, None),
            (LimitKind::Memory, I::Json, Some("`limits.memory`")),
            (LimitKind::Wall, I::Http, Some("`timeout`, up to the server's `--timeout`,")),
            (LimitKind::Wall, I::Mcp, Some("`timeout`, up to the server's `--timeout`,")),
            (LimitKind::Memory, I::Mcp, Some("the server's `--memory`")),
            (LimitKind::Wall, I::Cluster, Some("`timeout`, up to the worker's `--timeout`,")),
            (LimitKind::Wall, I::Python, Some("`timeout=`")),
            (LimitKind::OpenFiles, I::Python, Some("`Limits(open_files=…)`")),
            (LimitKind::Wall, I::E2b, Some("the server's `--timeout`")),
            (
                LimitKind::Memory,
                I::Piston,
                Some("`run_memory_limit`, up to the server's `--memory`,"),
            ),
            (LimitKind::Stack, I::Library, None),
        ] {
            assert_eq!(limit.raised_by(interface).as_deref(), expected, "{interface:?}");
        }
    }
}
