//! Packages whose machine code is left out of an image: they go on in Python without it, or a file
//! of `stand_ins/` takes its place.

use std::path::Path;

use super::info::normalized;
use crate::error::PackageError;
use crate::places::COMMON_PACKAGES;

/// Files that a package gets, by their paths in it. If it has such a file, this comes before its text.
pub(super) type StandIns = &'static [(&'static str, &'static str)];

/// The packages by their names. All of them are among the common packages.
pub(super) const PACKAGES: [(&str, StandIns); 10] = [
    ("blake3", &[("blake3/blake3.py", include_str!("stand_ins/blake3.py"))]),
    (
        "cryptography",
        &[("cryptography/hazmat/bindings/_rust.py", include_str!("stand_ins/cryptography.py"))],
    ),
    (
        "levenshtein",
        &[("Levenshtein/levenshtein_cpp.py", include_str!("stand_ins/levenshtein.py"))],
    ),
    ("msgpack", &[]),
    ("orjson", &[("orjson/orjson.py", include_str!("stand_ins/orjson.py"))]),
    (
        "psutil",
        &[
            ("psutil/__init__.py", include_str!("stand_ins/psutil/before.py")),
            ("psutil/_sandbox.py", include_str!("stand_ins/psutil/sandbox.py")),
        ],
    ),
    ("rapidfuzz", &[]),
    ("rpds-py", &[("rpds/rpds.py", include_str!("stand_ins/rpds.py"))]),
    ("tornado", &[]),
    ("ujson", &[("ujson.py", include_str!("stand_ins/ujson.py"))]),
];

/// Returns the files of a package whose machine code is left out.
pub(super) fn find(name: &str) -> Option<StandIns> {
    PACKAGES.iter().find(|(own, _)| *own == normalized(name)).map(|(_, files)| *files)
}

/// Returns the files that take the place of a wheel's machine code.
///
/// # Errors
/// `refusal`, unless the wheel works without. A stand-in is for one version, that of the common
/// packages.
pub(super) fn of_wheel(
    path: &Path,
    name: &str,
    version: &str,
    refusal: PackageError,
) -> Result<StandIns, PackageError> {
    let files = find(name).ok_or(refusal)?;
    let pin = format!("{}==", normalized(name));
    let pinned =
        COMMON_PACKAGES.lines().find_map(|line| line.strip_prefix(&pin)?.split(' ').next());
    match pinned.filter(|pinned| !files.is_empty() && *pinned != version) {
        Some(pinned) => {
            let reason = format!(
                "Hatchery has a stand-in for its machine code for version {pinned} only, which \
                 the common packages have"
            );
            Err(PackageError::Native { path: path.to_owned(), reason })
        }
        None => Ok(files),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_is_a_common_one_and_its_stand_in_says_its_version() {
        for (name, files) in PACKAGES {
            let pin = format!("\n{name}==");
            let (_, rest) = COMMON_PACKAGES.split_once(&pin).expect(name);
            let version = rest.split(' ').next().unwrap();
            for (path, source) in files {
                let stated = format!("{version:?}");
                let says = !source.contains("__version__ =") || source.contains(&stated);
                assert!(says, "{path} isn't for {version}");
            }
        }
    }
}
