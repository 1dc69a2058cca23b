//! Reads a wheel into a package: a ZIP archive whose name states its Pythons and machines.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Cursor, Read};
use std::path::Path;

use super::info::PythonTarget;
use super::metadata::Metadata;
use super::stand_ins::StandIns;
use super::{
    Collector, MOST_BYTES, MOST_FILES, Package, PackageInfo, PackageOrigin, bad, bad_because, caps,
    file_name, is_native, normalized, stand_ins,
};
use crate::error::PackageError;

/// The most bytes that are read of `METADATA`.
const MOST_HEADER_BYTES: u64 = 4 << 20;

type Archive<'a> = zip::ZipArchive<Cursor<&'a [u8]>>;

/// Reads the bytes of a wheel's file.
pub(super) fn load(path: &Path) -> Result<Vec<u8>, PackageError> {
    let unreadable = |cause| PackageError::Read(path.to_owned(), cause);
    if fs::metadata(path).map_err(unreadable)?.len() > MOST_BYTES {
        let what = path.display().to_string();
        return Err(PackageError::TooLarge { what, detail: caps() });
    }
    fs::read(path).map_err(unreadable)
}

/// Reads a wheel from `bytes`. `path` is where it came from; only its last part matters.
pub(super) fn read(
    path: &Path,
    bytes: &[u8],
    target: &PythonTarget,
    origin: PackageOrigin,
) -> Result<Package, PackageError> {
    let file_name = file_name(path);
    let name = WheelName::parse(&file_name).ok_or_else(|| {
        bad(path, "a wheel is named NAME-VERSION-PYTHON-ABI-PLATFORM.whl, as it was published")
    })?;
    let is_linkable = name.is_linkable(target);
    // pip found no other wheel of it.
    let is_last =
        !target.machine_code().is_empty() && matches!(origin, PackageOrigin::Requirements(_));
    let stand_ins = match name.check(path, target) {
        _ if is_linkable => None,
        Err(PackageError::Native { .. }) if is_last && stand_ins::find(name.name).is_none() => {
            Some(&[][..])
        }
        Err(refusal @ PackageError::Native { .. }) => {
            Some(stand_ins::of_wheel(path, name.name, name.version, refusal)?)
        }
        checked => checked.map(|()| None)?,
    };
    let mut archive = archive(path, bytes)?;
    let metadata = metadata(path, &mut archive)?;
    let (Some(own), Some(version)) = (&metadata.name, &metadata.version) else {
        return Err(bad(path, "its `METADATA` has no name or no version"));
    };
    if normalized(own) != normalized(name.name) {
        return Err(bad(path, &format!("its `METADATA` is that of `{own}`")));
    }
    let info = PackageInfo { name: own.clone(), version: Some(version.clone()), origin };
    let mut collector = Collector::new(path, is_linkable);
    collector.may_be_empty = stand_ins.is_some();
    collect(&mut collector, &mut archive, stand_ins)?;
    for (place, source) in stand_ins.into_iter().flatten() {
        if !collector.files.contains_key(*place) {
            collector.add(place, &mut source.as_bytes())?;
        }
    }
    collector.finish(vec![info], &[metadata], target)
}

/// Reads shared libraries, which are in an archive without metadata.
pub(super) fn read_libraries(
    path: &Path,
    bytes: &[u8],
    target: &PythonTarget,
    info: PackageInfo,
) -> Result<Package, PackageError> {
    let mut collector = Collector::new(path, true);
    collect(&mut collector, &mut archive(path, bytes)?, None)?;
    collector.finish(vec![info], &[], target)
}

fn archive<'a>(path: &Path, bytes: &'a [u8]) -> Result<Archive<'a>, PackageError> {
    let archive = zip::ZipArchive::new(Cursor::new(bytes))
        .map_err(|error| bad_because(path, "it isn't a ZIP archive", error))?;
    if archive.len() > MOST_FILES {
        let what = path.display().to_string();
        return Err(PackageError::TooLarge { what, detail: caps() });
    }
    Ok(archive)
}

/// Reads the files of an archive. Those of `stand_ins` come before what they stand for.
fn collect(
    collector: &mut Collector<'_>,
    archive: &mut Archive<'_>,
    stand_ins: Option<StandIns>,
) -> Result<(), PackageError> {
    let path = collector.source;
    for index in 0..archive.len() {
        let unreadable = |error| bad_because(path, &format!("can't read its entry {index}"), error);
        let mut entry = archive.by_index(index).map_err(unreadable)?;
        let name = entry.name().map_err(unreadable)?.into_owned();
        if entry.is_symlink() {
            return Err(bad(path, &format!("`{name}` in it is a link")));
        }
        if stand_ins.is_some() && is_native(&name) {
            continue;
        }
        // Folder names are untrusted too.
        collector.check(name.strip_suffix('/').unwrap_or(&name))?;
        if entry.is_dir() {
            continue;
        }
        if let Some(place) = place_of(&name) {
            let before = stand_ins.into_iter().flatten().find(|(own, _)| *own == place);
            let before = before.map_or("", |(_, source)| source);
            collector.add(place, &mut before.as_bytes().chain(&mut entry))?;
        }
    }
    Ok(())
}

/// Returns whether the name is that of a wheel whose machine code is missing in an image.
pub(super) fn lacks_machine_code(file_name: &str) -> bool {
    WheelName::parse(file_name).is_some_and(|name| {
        let fitting = ["any", "pyemscripten_", "pyodide_", "emscripten_"];
        let is_for = |platform: &str| fitting.iter().any(|kind| platform.starts_with(kind));
        !name.platform.split('.').any(is_for) && stand_ins::find(name.name).is_none()
    })
}

/// The parts of a wheel's name that matter here.
#[derive(Debug, PartialEq, Eq)]
struct WheelName<'a> {
    name: &'a str,
    version: &'a str,
    python: &'a str,
    abi: &'a str,
    platform: &'a str,
}

impl<'a> WheelName<'a> {
    fn parse(file_name: &'a str) -> Option<Self> {
        let parts: Vec<&str> = file_name.strip_suffix(".whl")?.split('-').collect();
        match parts.as_slice() {
            [name, version, python, abi, platform] | [name, version, _, python, abi, platform] => {
                Some(Self { name, version, python, abi, platform })
            }
            _ => None,
        }
    }

    /// Returns whether its machine code can be linked into the build.
    fn is_linkable(&self, target: &PythonTarget) -> bool {
        let [major, minor, _] = target.version;
        let own = format!("cp{major}{minor}");
        let least = format!("cp{major}");
        let is_since = |tag: &str| {
            let digits = tag.strip_prefix(&least).and_then(|digits| digits.parse::<u32>().ok());
            digits.is_some_and(|since| since <= minor)
        };
        self.is_for(target)
            && self.python.split('.').any(|python| {
                self.abi.split('.').any(|abi| match abi {
                    "none" => runs_on(python, target),
                    "abi3" => is_since(python),
                    abi => abi == own && python == own,
                })
            })
    }

    /// Returns whether its platform is one whose machine code the build takes, of some Python.
    fn is_for(&self, target: &PythonTarget) -> bool {
        self.platform.split('.').any(|platform| target.machine_code().contains(&platform))
    }

    fn check(&self, path: &Path, target: &PythonTarget) -> Result<(), PackageError> {
        if self.is_for(target) {
            let (wants, has) = (format!("{}-{}", self.python, self.abi), target.series());
            return Err(PackageError::Python { path: path.to_owned(), wants, has });
        }
        let native = |reason: String| PackageError::Native { path: path.to_owned(), reason };
        if !self.platform.split('.').any(|platform| platform == "any") {
            return Err(native(format!("it is made for the platform `{}`", self.platform)));
        }
        if !self.abi.split('.').any(|abi| abi == "none") {
            return Err(native(format!("it is compiled against the interface `{}`", self.abi)));
        }
        if !self.python.split('.').any(|tag| runs_on(tag, target)) {
            return Err(PackageError::Python {
                path: path.to_owned(),
                wants: self.python.to_owned(),
                has: target.series(),
            });
        }
        Ok(())
    }
}

/// Returns whether this Python runs wheels with this tag, such as `py3`.
fn runs_on(tag: &str, target: &PythonTarget) -> bool {
    let [major, minor, _] = target.version;
    if tag == format!("cp{major}{minor}") || tag == format!("py{major}") {
        return true;
    }
    let digits = tag.strip_prefix(&format!("py{major}"));
    digits.and_then(|digits| digits.parse::<u32>().ok()).is_some_and(|of| of <= minor)
}

/// Returns the metadata in the only `.dist-info` folder.
fn metadata(path: &Path, archive: &mut Archive<'_>) -> Result<Metadata, PackageError> {
    let of_folder = |name: &str| Some(name.split_once('/')?.0.to_owned());
    let folders = archive.file_names().flatten().filter_map(|name| of_folder(&name));
    let folders: BTreeSet<String> = folders.filter(|name| name.ends_with(".dist-info")).collect();
    let folder = match folders.first() {
        Some(folder) if folders.len() == 1 => folder,
        Some(_) => return Err(bad(path, "it has more than one `.dist-info` folder")),
        None => return Err(bad(path, "it has no `.dist-info` folder, so it isn't a wheel")),
    };
    let name = format!("{folder}/METADATA");
    let unreadable = format!("`{name}` in it can't be read");
    let entry = archive.by_name(&name).map_err(|error| bad_because(path, &unreadable, error))?;
    let mut bytes = Vec::new();
    let read = entry.take(MOST_HEADER_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| bad_because(path, &unreadable, error))?;
    Ok(Metadata::parse(&String::from_utf8_lossy(&bytes)))
}

/// Returns where a file of a wheel goes; `None` for files that aren't imported: scripts, headers,
/// data, and compiled files.
fn place_of(name: &str) -> Option<&str> {
    if name.split('/').any(|part| part == "__pycache__") {
        return None;
    }
    match name.split_once('/') {
        Some((folder, rest)) if folder.ends_with(".data") => {
            rest.strip_prefix("purelib/").or_else(|| rest.strip_prefix("platlib/"))
        }
        _ => Some(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_wheels_have_five_or_six_parts() {
        let name = WheelName::parse("a_b-1.0-2-py2.py3-none-any.whl").unwrap();
        let (python, abi, platform) = ("py2.py3", "none", "any");
        let expected = WheelName { name: "a_b", version: "1.0", python, abi, platform };
        assert_eq!(name, expected);
        for name in ["a.whl", "a-1-py3-none.whl", "a-1-py3-none-any.zip", "a-b-c-d-e-f-g.whl"] {
            assert_eq!(WheelName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn tags_say_where_a_wheel_runs() {
        let newest = PythonTarget::default();
        for tag in ["py3", "py38", "py315", "cp315"] {
            assert!(runs_on(tag, &newest), "{tag}");
        }
        for tag in ["py2", "py27", "py316", "cp312", "pp310", "cp3", ""] {
            assert!(!runs_on(tag, &newest), "{tag}");
        }
        let older = PythonTarget::new([3, 12, 0], "wasi");
        let tags = ["py3", "py312", "cp312", "py313", "cp315", "cp313"];
        assert_eq!(tags.map(|tag| runs_on(tag, &older)), [true, true, true, false, false, false]);
    }

    #[test]
    fn machine_code_that_can_be_linked_has_the_tags_of_the_build() {
        let target = PythonTarget::of_emscripten([3, 14, 2]);
        for (tags, expected) in [
            ("cp314-cp314-pyemscripten_2026_0_wasm32", true),
            ("cp311-abi3-pyemscripten_2026_0_wasm32", true),
            ("py3-none-pyemscripten_2026_0_wasm32", true),
            ("cp315-abi3-pyemscripten_2026_0_wasm32", false),
            ("cp313-cp313-pyemscripten_2026_0_wasm32", false),
            ("cp314-cp314-pyodide_2026_0_wasm32", true),
            ("cp314-cp314-emscripten_5_0_3_wasm32", true),
            ("cp314-cp314-emscripten_4_0_9_wasm32", false),
            ("cp314-cp314-pyemscripten_2027_0_wasm32", false),
            ("cp314-cp314-manylinux2014_x86_64", false),
            ("py3-none-any", false),
        ] {
            let name = format!("a-1-{tags}.whl");
            let name = WheelName::parse(&name).unwrap();
            assert_eq!(name.is_linkable(&target), expected, "{tags}");
            assert!(!name.is_linkable(&PythonTarget::default()), "{tags}");
        }
    }

    #[test]
    fn what_is_not_imported_has_no_place() {
        assert_eq!(place_of("a/b.py"), Some("a/b.py"));
        assert_eq!(place_of("a-1.data/purelib/a.py"), Some("a.py"));
        for name in ["a-1.data/scripts/run", "a-1.data/data/share/x", "a/__pycache__/b.pyc"] {
            assert_eq!(place_of(name), None, "{name}");
        }
    }
}
