//! Arguments about images, and building the images they ask for.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use hatchery::config::{EngineConfig, HostKind};
use hatchery::error::chain;
use hatchery::image::ProgramImports;
use hatchery::{Builder, DEFAULT_PYTHON, Destination, Helper, Interface, Isolation};

use super::egress::EgressArguments;
use crate::exit::UsageError;

/// Reads a destination; the error has its causes.
fn destination(text: &str) -> Result<Destination, String> {
    text.parse().map_err(|error| chain(&error).to_string())
}

/// In place of modules: those that the programs import.
const AUTO: &str = "auto";
/// In place of modules: none.
const NONE: &str = "none";

/// What a command knows of its programs' imports.
#[derive(Clone, Copy)]
pub(crate) enum KnownImports<'a> {
    /// They can be read before the first program runs.
    Ahead(&'a dyn Fn() -> ProgramImports),
    /// As the programs come.
    Later,
    Never,
}

/// The fewest digits of a key that can name an image.
const SHORTEST_KEY: usize = 4;

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Build an image now instead of at the first run that needs it.
    Build(Box<BuildArguments>),
    /// List the images in the cache, newest first.
    List {
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Show the details of one image.
    Info {
        /// The image's key, or its first digits.
        #[arg(value_name = "KEY", value_parser = parse_key)]
        key: String,

        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Remove images. A run that needs a removed image builds it again.
    Remove(RemoveArguments),
}

#[derive(Debug, Args)]
pub(crate) struct BuildArguments {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) image: ImageArguments,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    /// Keys of images, or their first digits.
    #[arg(
        value_name = "KEY",
        value_parser = parse_key,
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub(crate) keys: Vec<String>,

    /// Remove every image.
    #[arg(long)]
    pub(crate) all: bool,
}

/// Selects whose packages to list: an existing image's, those of the image that these options
/// describe, or else the build's own.
#[derive(Debug, Args)]
pub(crate) struct PackagesArguments {
    /// The key of an image, or its first digits.
    #[arg(
        long = "image",
        value_name = "KEY",
        value_parser = parse_key,
        conflicts_with_all = ["python", "preload", "setup", "package", "packages", "requirements"]
    )]
    pub(crate) key: Option<String>,

    /// Print a JSON array.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) image: ImageArguments,
}

/// What interpreters do before a program starts: done once, then kept as an image.
#[derive(Debug, Args)]
#[command(next_help_heading = "Image")]
pub(crate) struct ImageArguments {
    /// The Python build: a WebAssembly file with its library next to it, their folder, a wheel or
    /// `.webc` package, or `pyodide`, CPython 3.14 from npm. Default: `$HATCHERY_PYTHON`, else the
    /// build that Hatchery fetches. Can be repeated for `batch`, `serve` and `mcp`; jobs select
    /// further builds by NAME.
    #[arg(long, value_name = "[NAME=]FILE|DIR", value_parser = PythonArgument::parse)]
    pub(crate) python: Vec<PythonArgument>,

    /// The host that serves the guest's imports: Hatchery's (`own`) or wasmer-wasix (`wasix`).
    #[arg(long, value_parser = host_parser(), default_value = "own")]
    pub(crate) host: HostKind,

    /// Where interpreters run: on `threads`, the fastest, or in processes that the operating system
    /// confines as far as it can (`process`). With `process-strict`, a missing layer of the
    /// confinement is an error. Default: `$HATCHERY_ISOLATION`, else `threads`.
    #[arg(long, value_parser = isolation_parser(), value_name = "WHERE")]
    pub(crate) isolation: Option<Isolation>,

    /// Hosts and ports that programs may connect to over TCP, such as
    /// `api.example.com:443,127.0.0.1:5432`, on builds that have sockets. List loopback and private
    /// addresses as addresses, not names. Can be repeated. Default: none.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = destination)]
    pub(crate) allow_connect: Vec<Destination>,

    #[command(flatten)]
    pub(crate) egress: EgressArguments,

    /// Modules to import first, such as `numpy,pandas`. Can be repeated. `auto` for `batch`, `grade`,
    /// `notebook run` and `serve`: those that the programs import, hidden until they do, if that saves
    /// time. `none`: no others. Default: `auto` for `batch` and `grade`, else `none`.
    #[arg(long, value_name = "MODULES", value_delimiter = ',', value_parser = parse_module)]
    pub(crate) preload: Vec<String>,

    /// A Python file to run first; programs see the names that it defines.
    #[arg(long, value_name = "FILE")]
    pub(crate) setup: Option<PathBuf>,

    /// A pure-Python wheel, or a folder of Python code, that programs can import. Can be repeated.
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) package: Vec<PathBuf>,

    /// The common packages, such as requests, Flask, Faker, pytest and xarray, which pip downloads
    /// once.
    #[arg(long, value_name = "LIST", value_parser = ["common"])]
    pub(crate) packages: Option<String>,

    /// A file of lines such as `NAME==VERSION --hash=sha256:…`: packages that pip downloads once.
    /// Can be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) requirements: Vec<PathBuf>,

    /// A folder of wheels for `--requirements`, or of Pyodide's packages with `pyodide-lock.json`.
    /// Names in that file need no version and no hash, and bring what they depend on.
    #[arg(long, value_name = "DIR", requires = "requirements")]
    pub(crate) package_index: Option<PathBuf>,
}

fn isolation_parser() -> impl TypedValueParser<Value = Isolation> {
    let isolation = |name: String| match name.as_str() {
        "process" => Isolation::Process { helper: Helper::from_env() },
        "process-strict" => Isolation::ProcessStrict { helper: Helper::from_env() },
        _ => Isolation::Threads,
    };
    PossibleValuesParser::new(["threads", "process", "process-strict"]).map(isolation)
}

pub(super) fn host_parser() -> impl TypedValueParser<Value = HostKind> {
    PossibleValuesParser::new(["own", "wasix"]).map(|name| match name.as_str() {
        "wasix" => HostKind::Wasix,
        _ => HostKind::Own,
    })
}

impl ImageArguments {
    /// Returns whether this adds nothing to the build.
    pub(crate) fn is_plain(&self) -> bool {
        let Self {
            python: _,
            host: _,
            isolation: _,
            allow_connect: _,
            egress: _,
            preload: _,
            setup,
            package,
            packages,
            requirements,
            package_index: _,
        } = self;
        let has_none = package.is_empty() && packages.is_none() && requirements.is_empty();
        self.modules().is_empty() && setup.is_none() && has_none
    }

    /// Returns the modules that are named.
    fn modules(&self) -> &[String] {
        if self.has_word(AUTO) || self.has_word(NONE) { &[] } else { &self.preload }
    }

    /// Whether `--preload auto` is given.
    pub(crate) fn is_auto(&self) -> bool {
        self.has_word(AUTO)
    }

    fn has_word(&self, word: &str) -> bool {
        self.preload.iter().any(|module| module == word)
    }

    /// Returns the engine's configuration with the only build.
    pub(crate) fn engine(&self) -> anyhow::Result<EngineConfig> {
        let config = EngineConfig::from_env();
        let python = only(&self.python)?.cloned().or_else(|| config.python.clone());
        Ok(EngineConfig { python, host: self.host, ..config })
    }

    /// Makes interpreters of the only build start from this image. Reads the setup file.
    pub(crate) fn apply(&self, builder: Builder) -> anyhow::Result<Builder> {
        self.apply_knowing(builder, KnownImports::Never)
    }

    /// As [`Self::apply`], for a command that may know what its programs import.
    pub(crate) fn apply_knowing(
        &self,
        builder: Builder,
        imports: KnownImports<'_>,
    ) -> anyhow::Result<Builder> {
        let builder = only(&self.python)?.into_iter().fold(builder, Builder::python);
        self.add(builder, imports)
    }

    /// Makes interpreters of every build start from this image. Reads the setup file.
    pub(crate) fn apply_to_all(&self, builder: Builder) -> anyhow::Result<Builder> {
        self.apply_to_all_knowing(builder, KnownImports::Never)
    }

    /// As [`Self::apply_to_all`], for a command that may know what its programs import.
    pub(crate) fn apply_to_all_knowing(
        &self,
        builder: Builder,
        imports: KnownImports<'_>,
    ) -> anyhow::Result<Builder> {
        Ok(self.add(give(&self.python, builder)?, imports)?.interface(Interface::Batch))
    }

    /// Returns whether programs can reach something outside of the sandbox.
    pub(crate) fn reaches_out(&self) -> bool {
        !self.allow_connect.is_empty() || !self.egress.is_empty()
    }

    /// Returns the names of the builds of a pool, that of the default one first.
    pub(crate) fn python_names(&self) -> Vec<String> {
        let named = self.python.iter().filter_map(|python| python.name.clone());
        [DEFAULT_PYTHON.to_owned()].into_iter().chain(named).collect()
    }

    fn add(&self, builder: Builder, imports: KnownImports<'_>) -> anyhow::Result<Builder> {
        let builder = builder.host(self.host).interface(Interface::CommandLine);
        let builder = self.isolation.iter().cloned().fold(builder, Builder::isolation);
        let builder = builder.allow_connect(self.allow_connect.iter().cloned());
        let builder = self.egress.apply(builder)?;
        let builder = self.package.iter().fold(builder, Builder::package);
        let builder = self.requirements.iter().fold(builder, Builder::requirements);
        let builder = self.package_index.iter().fold(builder, Builder::package_index);
        let builder = self.packages.iter().fold(builder, |builder, _| builder.packages_common());
        let builder = match (self.preload.as_slice(), imports) {
            ([_, _, ..], _) if self.has_word(AUTO) || self.has_word(NONE) => {
                let alone = "write `auto` or `none` of `--preload` alone, without modules";
                return Err(UsageError(alone.to_owned()).into());
            }
            ([], KnownImports::Ahead(imports)) => builder.preload_for(imports()),
            ([word], KnownImports::Ahead(imports)) if word == AUTO => {
                builder.preload_for(imports())
            }
            ([word], KnownImports::Later) if word == AUTO => builder.preload_auto(),
            ([word], KnownImports::Never) if word == AUTO => {
                let named =
                    "this command doesn't know its programs, so name the modules of `--preload`";
                return Err(UsageError(named.to_owned()).into());
            }
            _ => builder.preload(self.modules()),
        };
        Ok(match self.read_setup()? {
            Some((source, filename)) => builder.setup(source, filename),
            None => builder,
        })
    }

    /// Returns the source of the setup, and the name of its file.
    fn read_setup(&self) -> anyhow::Result<Option<(String, String)>> {
        let Some(path) = &self.setup else { return Ok(None) };
        let unreadable = || UsageError(format!("can't read the setup `{}`", path.display()));
        let bytes = fs::read(path).with_context(unreadable)?;
        let source = hatchery::source::decode(&bytes).with_context(unreadable)?;
        Ok(Some((source, path.to_string_lossy().into_owned())))
    }

    /// Returns what workers of other machines need for this image.
    pub(crate) fn source(&self) -> anyhow::Result<cluster::ImageSource> {
        let mut source = cluster::ImageSource::default();
        source.preload = self.modules().to_vec();
        source.packages.clone_from(&self.package);
        source.setup = self.read_setup()?;
        Ok(source)
    }
}

/// Parses a module's name as `import` takes it: identifiers separated by dots.
fn parse_module(text: &str) -> Result<String, String> {
    let name = text.trim();
    if !name.is_empty() && name.split('.').all(is_identifier) {
        return Ok(name.to_owned());
    }
    Err("a module's name consists of letters, digits, `_` and dots, such as \
         `matplotlib.pyplot`; write several as `numpy,pandas`"
        .to_owned())
}

fn is_identifier(text: &str) -> bool {
    let is_start = |character: char| character == '_' || character.is_alphabetic();
    text.starts_with(is_start)
        && text.chars().all(|character| character == '_' || character.is_alphanumeric())
}

fn parse_key(text: &str) -> Result<String, String> {
    if text.len() >= SHORTEST_KEY && text.chars().all(|digit| digit.is_ascii_hexdigit()) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(format!(
        "give at least {SHORTEST_KEY} hex digits of a key; `hatchery image list` shows them"
    ))
}

/// A build, with its name in a pool unless it is the default one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PythonArgument {
    pub(crate) name: Option<String>,
    pub(crate) path: PathBuf,
}

impl PythonArgument {
    /// Parses `[NAME=]FILE|DIR`. What comes before `=` is a name unless it has a `/`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) if !name.contains('/') => (Some(name.to_owned()), path),
            _ => (None, text),
        };
        if path.is_empty() || name.as_deref() == Some("") {
            return Err("write FILE, a folder, or NAME=FILE".to_owned());
        }
        Ok(Self { name, path: PathBuf::from(path) })
    }
}

/// Returns the default build, if there is one among these.
pub(crate) fn default_of(pythons: &[PythonArgument]) -> anyhow::Result<Option<&PathBuf>> {
    let mut unnamed = pythons.iter().filter(|python| python.name.is_none());
    let default = unnamed.next().map(|python| &python.path);
    match unnamed.next() {
        None => Ok(default),
        Some(second) => Err(UsageError(format!(
            "the default build is given twice: give `{0}` a name, as in \
             `--python NAME={0}`",
            second.path.display()
        ))
        .into()),
    }
}

/// Gives a pool these builds.
pub(crate) fn give(pythons: &[PythonArgument], builder: Builder) -> anyhow::Result<Builder> {
    let builder = default_of(pythons)?.into_iter().fold(builder, Builder::python);
    let named = pythons.iter().filter_map(|python| Some((python.name.clone()?, &python.path)));
    Ok(named.fold(builder, |builder, (name, path)| builder.python_named(name, path)))
}

/// Returns the build of a command that runs one.
pub(crate) fn only(pythons: &[PythonArgument]) -> anyhow::Result<Option<&PathBuf>> {
    if let Some(name) = pythons.iter().find_map(|python| python.name.as_ref()) {
        return Err(UsageError(format!(
            "`--python {name}=…` is only for `batch`, `serve` and `mcp`, whose jobs select a \
             build; this command runs one: `--python FILE`"
        ))
        .into());
    }
    default_of(pythons)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Command};

    #[test]
    fn modules_have_names_that_import_takes() {
        for name in ["numpy", "matplotlib.pyplot", "_x1", " pandas "] {
            assert_eq!(parse_module(name), Ok(name.trim().to_owned()));
        }
        for name in ["", "1x", "a..b", ".a", "a.", "a-b", "a b", "os;print()", "../x"] {
            assert!(parse_module(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn modules_are_given_with_commas_or_one_by_one() {
        let parse = |modules: &[&str]| {
            let mut typed = vec!["hatchery", "run", "-c", "1"];
            modules.iter().for_each(|modules| typed.extend(["--preload", *modules]));
            match Arguments::try_parse_from(typed).map(|arguments| arguments.command) {
                Ok(Command::Run(arguments)) => Some(arguments.programs.image.preload),
                _ => None,
            }
        };
        assert_eq!(parse(&["numpy, pandas", "json"]).unwrap(), ["numpy", "pandas", "json"]);
        assert!(parse(&[]).unwrap().is_empty());
        assert!(parse(&["numpy,"]).is_none() && parse(&[""]).is_none());
    }

    #[test]
    fn keys_are_hex_digits_and_not_too_few() {
        assert_eq!(parse_key("0aBc"), Ok("0abc".to_owned()));
        for key in ["", "0ab", "0abg", "../../x"] {
            assert!(parse_key(key).is_err(), "{key}");
        }
    }

    #[test]
    fn images_are_removed_by_key_or_all_together() {
        let parses = |arguments: &[&str]| {
            let typed = ["hatchery", "image", "remove"].iter().chain(arguments);
            Arguments::try_parse_from(typed).is_ok()
        };
        assert!(parses(&["0abc", "1abc"]) && parses(&["--all"]));
        assert!(!parses(&[]) && !parses(&["0abc", "--all"]));
    }

    #[test]
    fn a_name_comes_before_the_path_and_has_no_folder() {
        for (text, name, path) in [
            ("python.wasm", None, "python.wasm"),
            ("3.12=build.whl", Some("3.12"), "build.whl"),
            ("a=b=c", Some("a"), "b=c"),
            ("./a=b", None, "./a=b"),
            ("/builds/a=b/python.wasm", None, "/builds/a=b/python.wasm"),
        ] {
            let parsed = PythonArgument::parse(text).unwrap();
            assert_eq!((parsed.name.as_deref(), parsed.path), (name, path.into()), "{text}");
        }
        for text in ["", "=", "3.12=", "=python.wasm"] {
            assert!(PythonArgument::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn there_is_one_default_build_and_some_commands_run_no_other() {
        let parse = |texts: &[&str]| -> Vec<_> {
            texts.iter().map(|text| PythonArgument::parse(text).unwrap()).collect()
        };
        assert_eq!(default_of(&parse(&["a=b", "c"])).unwrap(), Some(&"c".into()));
        assert!(default_of(&parse(&["a", "b"])).is_err());
        assert_eq!(only(&parse(&["c"])).unwrap(), Some(&"c".into()));
        let error = only(&parse(&["c", "3.12=b"])).unwrap_err().to_string();
        assert!(error.contains("--python 3.12=…"), "{error}");
    }
}
