//! The configuration file: defaults for options that many commands have.
//!
//! A setting becomes the default of the option of its name, in every command that has it. So the
//! command line takes precedence, and so does the option's environment variable.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Command;
use toml::de::DeTable;

/// The variable that names the file; if it is empty, there is none.
const FILE: &str = "HATCHERY_CONFIG";

/// Options that can be set, each with the variable that wins over the setting, if there is one.
const OPTIONS: [(&str, Option<&str>); 19] = [
    ("cpu-time", None),
    ("file-bytes", None),
    ("file-count", None),
    ("grace", None),
    ("host", None),
    ("host-calls", None),
    ("isolation", Some("HATCHERY_ISOLATION")),
    ("memory", None),
    ("network-bytes", None),
    ("open-files", None),
    ("output", None),
    ("preload", None),
    ("progress", None),
    ("python", Some("HATCHERY_PYTHON")),
    ("queue", None),
    ("source", None),
    ("threads", None),
    ("timeout", None),
    ("workers", None),
];

/// Those that can be repeated, so that a list stands for several.
const REPEATED: [&str; 2] = ["preload", "python"];

/// The largest file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// The settings of a file.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) path: PathBuf,
    pub(crate) list: Vec<Setting>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) option: &'static str,
    /// Its line in the file, from 1.
    pub(crate) line: usize,
    /// As they would be typed.
    pub(crate) values: Vec<String>,
    /// The variable that wins over it now.
    pub(crate) overridden_by: Option<&'static str>,
}

impl Settings {
    /// Reads the file that the command line names, or else the environment. Without either, reads the
    /// user's own, if there is one. The error says what is wrong, and where.
    pub(crate) fn find(named: Option<&Path>) -> Result<Option<Self>, String> {
        let variable = || std::env::var_os(FILE).map(PathBuf::from);
        match named.map(Path::to_owned).or_else(variable) {
            Some(path) if path.as_os_str().is_empty() => Ok(None),
            Some(path) => Self::read(&path).map(Some),
            None => match users_own(|name| std::env::var_os(name)) {
                Some(path) if path.exists() => Self::read(&path).map(Some),
                _ => Ok(None),
            },
        }
    }

    fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let unreadable = |error| format!("can't read the configuration `{name}`: {error}");
        let bytes = path.metadata().map_err(unreadable)?.len();
        if bytes > MOST_BYTES {
            return Err(format!("the configuration `{name}` is longer than {MOST_BYTES} bytes"));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let has_variable =
            |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let list = parse(&text, |name| Some(name).filter(has_variable))
            .map_err(|problem| format!("`{name}`: {problem}"))?;
        Ok(Self { path: path.to_owned(), list })
    }

    /// Makes the settings the defaults of a command's options, and of those of its subcommands.
    pub(crate) fn apply(&self, command: Command) -> Command {
        let command = command.mut_args(|argument| {
            let name = argument.get_long().map(str::to_owned);
            let mut settings = self.list.iter().filter(|setting| setting.overridden_by.is_none());
            match settings.find(|setting| Some(setting.option) == name.as_deref()) {
                // The definition of the command line lives as long as the process anyway.
                Some(Setting { values, .. }) => argument.default_values(
                    values.iter().map(|value| &*Box::leak(value.clone().into_boxed_str())),
                ),
                None => argument,
            }
        });
        command.mut_subcommands(|subcommand| self.apply(subcommand))
    }
}

/// Returns where the user's own file is.
pub(crate) fn users_own(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    in_folder(variable, "XDG_CONFIG_HOME", ".config", "hatchery/config.toml")
}

/// Returns a path in the folder that the variable names, or else in this one of the user's home. `None`
/// without a home.
pub(crate) fn in_folder(
    variable: impl Fn(&str) -> Option<OsString>,
    name: &str,
    below_home: &str,
    path: &str,
) -> Option<PathBuf> {
    // The standard says to ignore relative paths.
    let folder = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    Some(folder(name).or_else(|| Some(folder("HOME")?.join(below_home)))?.join(path))
}

/// Parses a file; `is_set` returns a variable of the environment if it has a value.
fn parse(
    text: &str,
    is_set: impl Fn(&'static str) -> Option<&'static str>,
) -> Result<Vec<Setting>, String> {
    let places = DeTable::parse(text).map_err(|error| error.to_string())?;
    let mut table: toml::Table = text.parse().map_err(|error| format!("{error}"))?;
    let mut settings = Vec::new();
    for key in places.get_ref().keys() {
        let line = 1 + text[..key.span().start].bytes().filter(|byte| *byte == b'\n').count();
        let name: &str = key.get_ref();
        let Some((option, variable)) = OPTIONS.iter().find(|(option, _)| *option == name) else {
            let known: Vec<_> = OPTIONS.iter().map(|(option, _)| *option).collect();
            return Err(format!(
                "line {line}: there is no setting `{name}`; the settings are: {}",
                known.join(", ")
            ));
        };
        let value = table.remove(name).ok_or_else(|| format!("line {line}: no value"))?;
        let values = values(value).ok_or_else(|| {
            format!(
                "line {line}: `{name}` is a text, a number or a list of these, as for `--{name}`"
            )
        })?;
        if values.len() != 1 && !REPEATED.contains(option) {
            return Err(format!("line {line}: `{name}` takes one value, and not a list"));
        }
        let overridden_by = variable.and_then(&is_set);
        settings.push(Setting { option, line, values, overridden_by });
    }
    settings.sort_by_key(|setting| setting.line);
    Ok(settings)
}

/// Returns values as they would be typed.
fn values(value: toml::Value) -> Option<Vec<String>> {
    match value {
        toml::Value::String(text) => Some(vec![text]),
        toml::Value::Integer(number) => Some(vec![number.to_string()]),
        toml::Value::Float(number) => Some(vec![number.to_string()]),
        toml::Value::Array(items) if !items.iter().any(toml::Value::is_array) => {
            let each: Option<Vec<_>> = items.into_iter().map(values).collect();
            Some(each?.concat())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_their_lines_and_values_as_typed() {
        let text = "# mine\nworkers = 4\n\npreload = [\"numpy\", 'pandas']\ntimeout = \"5s\"\n";
        let settings = parse(text, |_| None).unwrap();
        let shown: Vec<_> =
            settings.iter().map(|one| (one.option, one.line, one.values.join(" "))).collect();
        let expected = [
            ("workers", 2, "4".to_owned()),
            ("preload", 4, "numpy pandas".to_owned()),
            ("timeout", 5, "5s".to_owned()),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, expected) in [
            ("workers = 1\nworker = 2\n", "line 2: there is no setting `worker`"),
            ("\n\nworkers = true\n", "line 3: `workers` is a text"),
            ("[run]\ntimeout = '5s'\n", "line 1: there is no setting `run`"),
            ("timeout = ['1s', '2s']\n", "line 1: `timeout` takes one value"),
            ("workers = [[1]]\n", "line 1: `workers`"),
            ("workers = \n", "line 1"),
            ("workers = 1\nworkers = 2\n", "line 2"),
        ] {
            let said = parse(text, |_| None).unwrap_err();
            assert!(said.contains(expected), "{text:?}: {said}");
        }
    }

    #[test]
    fn a_variable_wins_over_its_setting() {
        let text = "isolation = 'process'\nworkers = 2\n";
        let settings = parse(text, |name| (name == "HATCHERY_ISOLATION").then_some(name)).unwrap();
        assert_eq!(settings[0].overridden_by, Some("HATCHERY_ISOLATION"));
        assert_eq!(settings[1].overridden_by, None);
    }

    #[test]
    fn the_users_own_file_is_where_others_are() {
        let with = |variables: &'static [(&str, &str)]| {
            users_own(|name| {
                variables.iter().find(|(of, _)| *of == name).map(|(_, value)| value.into())
            })
        };
        let path = |text: &str| Some(PathBuf::from(text));
        let both = with(&[("XDG_CONFIG_HOME", "/c"), ("HOME", "/h")]);
        assert_eq!(both, path("/c/hatchery/config.toml"));
        let relative = with(&[("XDG_CONFIG_HOME", "c"), ("HOME", "/h")]);
        assert_eq!(relative, path("/h/.config/hatchery/config.toml"));
        assert_eq!(with(&[]), None);
    }
}
