//! A folder, read into a package.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::info::PythonTarget;
use super::metadata::Metadata;
use super::{Collector, Package, PackageInfo, PackageOrigin, bad, file_name};
use crate::error::PackageError;

/// Files of a project's folder, of which only a part is installed.
const PROJECT_FILES: [&str; 2] = ["pyproject.toml", "setup.py"];

pub(super) fn read(path: &Path, target: &PythonTarget) -> Result<Package, PackageError> {
    let unreadable = |path: &Path, cause| PackageError::Read(path.to_owned(), cause);
    // Also gives `.` a name.
    let root = fs::canonicalize(path).map_err(|cause| unreadable(path, cause))?;
    let name = file_name(&root);
    let is_package = root.join("__init__.py").is_file();
    if !is_package && PROJECT_FILES.iter().any(|file| root.join(file).is_file()) {
        return Err(bad(
            path,
            "it is a project: give the folder of its package, or a wheel made of it with \
             `python3 -m pip wheel --no-deps`",
        ));
    }
    let mut collector = Collector::new(path, false);
    let base = if is_package { format!("{name}/") } else { String::new() };
    let mut pending: Vec<(PathBuf, String)> = vec![(root, base)];
    while let Some((folder, prefix)) = pending.pop() {
        let entries = fs::read_dir(&folder).map_err(|cause| unreadable(&folder, cause))?;
        for entry in entries {
            let entry = entry.map_err(|cause| unreadable(&folder, cause))?;
            let place = entry.path();
            let Ok(name) = entry.file_name().into_string() else {
                return Err(bad(
                    path,
                    &format!("`{}` has a name that isn't UTF-8", place.display()),
                ));
            };
            if name.starts_with('.') || name == "__pycache__" {
                continue;
            }
            let kind = entry.file_type().map_err(|cause| unreadable(&place, cause))?;
            let name = format!("{prefix}{name}");
            if kind.is_dir() {
                collector.check(&name)?;
                pending.push((place, format!("{name}/")));
            } else if kind.is_file() {
                let mut file = File::open(&place).map_err(|cause| unreadable(&place, cause))?;
                collector.add(&name, &mut file)?;
            } else {
                let text =
                    format!("`{}` is a link or a device, not a regular file", place.display());
                return Err(bad(path, &text));
            }
        }
    }
    let metadata = distributions(&collector);
    let origin = PackageOrigin::Folder(name.clone());
    let info = |name: &str, version: Option<&String>| PackageInfo {
        name: name.to_owned(),
        version: version.cloned(),
        origin: origin.clone(),
    };
    let mut infos: Vec<PackageInfo> = metadata
        .iter()
        .filter_map(|one| Some(info(one.name.as_deref()?, one.version.as_ref())))
        .collect();
    if infos.is_empty() {
        infos.push(info(&name, None));
    }
    collector.finish(infos, &metadata, target)
}

/// Returns the metadata in the top-level `.dist-info` folders.
fn distributions(collector: &Collector<'_>) -> Vec<Metadata> {
    let texts = collector.files.iter().filter_map(|(path, contents)| {
        let folder = path.strip_suffix("/METADATA")?;
        (folder.ends_with(".dist-info") && !folder.contains('/')).then_some(contents)
    });
    texts.map(|text| Metadata::parse(&String::from_utf8_lossy(text))).collect()
}
