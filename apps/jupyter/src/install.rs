//! Makes a kernel known to front ends: the file `kernel.json` in a folder where they look.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::error::InstallError;

/// What front ends replace by the path of the connection file.
const CONNECTION_FILE: &str = "{connection_file}";

/// A kernel as front ends know it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KernelSpec {
    /// The name of its folder, by which it is chosen: letters, digits, `-`, `.` and `_`.
    pub name: String,
    /// The name that users see.
    pub display_name: String,
    /// The command that starts it, to which `-f` and the connection file are added.
    pub command: Vec<String>,
}

impl KernelSpec {
    /// Describes a kernel by its names and its command.
    pub fn new(
        name: impl Into<String>,
        display_name: impl Into<String>,
        command: Vec<String>,
    ) -> Self {
        Self { name: name.into(), display_name: display_name.into(), command }
    }

    /// Returns the contents of `kernel.json`.
    fn json(&self) -> String {
        let mut argv = self.command.clone();
        argv.extend(["-f", CONNECTION_FILE].map(str::to_owned));
        let spec = json!({
            "argv": argv,
            "display_name": self.display_name,
            "language": "python",
            "interrupt_mode": "message",
            "metadata": { "debugger": false },
        });
        format!("{spec:#}\n")
    }
}

/// Where front ends look for kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The folder of the user's own kernels.
    User,
    /// The Python environment that is active.
    Environment,
    /// An installation below this folder, such as `/usr/local`.
    Prefix(PathBuf),
}

impl Place {
    /// Returns the folder of kernels, given the environment's variables.
    fn folder(&self, variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, InstallError> {
        let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let below = |prefix: PathBuf| prefix.join("share/jupyter/kernels");
        match self {
            Self::User => {
                let data = path("JUPYTER_DATA_DIR");
                let shared = || path("XDG_DATA_HOME").map(|data| data.join("jupyter"));
                let home = || path("HOME").map(|home| home.join(".local/share/jupyter"));
                let data = data.or_else(shared).or_else(home).ok_or(InstallError::NoHome)?;
                Ok(data.join("kernels"))
            }
            Self::Environment => {
                let environment = path("VIRTUAL_ENV").or_else(|| path("CONDA_PREFIX"));
                environment.map(below).ok_or(InstallError::NoEnvironment)
            }
            Self::Prefix(prefix) => Ok(below(prefix.clone())),
        }
    }
}

/// Installs a kernel, replacing one of the same name, and returns its folder.
///
/// # Errors
/// The name is invalid, there is no such place, or the files can't be written.
pub fn install(spec: &KernelSpec, place: &Place) -> Result<PathBuf, InstallError> {
    let is_name = |part: char| part.is_ascii_alphanumeric() || "-._".contains(part);
    let name = &spec.name;
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_name) {
        return Err(InstallError::Name { name: name.clone() });
    }
    let folder = place.folder(|name| env::var_os(name))?.join(name);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| InstallError::Write { path, source }
    };
    fs::create_dir_all(&folder).map_err(failed(&folder))?;
    // Whole or not at all, since a front end may look meanwhile.
    let (file, unfinished) = (folder.join("kernel.json"), folder.join(".kernel.json.new"));
    fs::write(&unfinished, spec.json()).map_err(failed(&unfinished))?;
    fs::rename(&unfinished, &file).map_err(failed(&file))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn spec(name: &str) -> KernelSpec {
        let command = ["/bin/hatchery", "kernel", "--preload", "numpy"];
        KernelSpec::new(name, "Python (Hatchery)", command.map(str::to_owned).to_vec())
    }

    #[test]
    fn a_kernel_is_a_file_with_its_command() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Prefix(folder.path().to_owned());
        for _ in 0..2 {
            let installed = install(&spec("hatchery"), &place).unwrap();
            assert_eq!(installed, folder.path().join("share/jupyter/kernels/hatchery"));
            let file = fs::read(installed.join("kernel.json")).unwrap();
            let file: Value = serde_json::from_slice(&file).unwrap();
            let argv = ["/bin/hatchery", "kernel", "--preload", "numpy", "-f", CONNECTION_FILE];
            assert_eq!(file["argv"], json!(argv));
            assert_eq!(file["interrupt_mode"], "message");
            assert_eq!(fs::read_dir(&installed).unwrap().count(), 1);
        }
        for name in ["", "..", "a/b", ".hidden", "ä"] {
            assert!(matches!(install(&spec(name), &place), Err(InstallError::Name { .. })));
        }
    }

    #[test]
    fn places_are_those_of_jupyter() {
        let folder = |place: Place, variables: &[(&str, &str)]| {
            let value = |name: &str| {
                let found = variables.iter().find(|(given, _)| *given == name);
                found.map(|(_, value)| OsString::from(value))
            };
            place.folder(value).ok().and_then(|folder| folder.to_str().map(str::to_owned))
        };
        let expected = |path: &str| Some(path.to_owned());
        let home = ("HOME", "/home/ada");
        let user = folder(Place::User, &[home, ("XDG_DATA_HOME", "")]);
        assert_eq!(user, expected("/home/ada/.local/share/jupyter/kernels"));
        let shared = folder(Place::User, &[home, ("XDG_DATA_HOME", "/data")]);
        assert_eq!(shared, expected("/data/jupyter/kernels"));
        let own = folder(Place::User, &[home, ("JUPYTER_DATA_DIR", "/jupyter")]);
        assert_eq!(own, expected("/jupyter/kernels"));
        assert_eq!(folder(Place::User, &[]), None);
        let environment = folder(Place::Environment, &[("CONDA_PREFIX", "/conda")]);
        assert_eq!(environment, expected("/conda/share/jupyter/kernels"));
        assert_eq!(folder(Place::Environment, &[home]), None);
    }
}
