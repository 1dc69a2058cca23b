//! Python builds that options name.

use std::path::PathBuf;

use hatchery::Builder;

use crate::exit::UsageError;

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
            "`--python {name}=…` is for commands whose jobs name their build, `batch`, `serve` and `mcp`: \
             this one runs one build, `--python FILE`"
        ))
        .into());
    }
    default_of(pythons)
}

#[cfg(test)]
mod tests {
    use super::*;

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
