//! Packages that a user has in a folder: wheels, or those of Pyodide with their lock file.
//!
//! The lock file has the SHA-256 of each package and what it depends on. So a requirement that it meets
//! needs no hash, and brings along what no requirement names, such as shared libraries.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::info::{PythonTarget, name_of, normalized};
use super::{Package, PackageInfo, PackageOrigin, bad_because, wheel};
use crate::error::PackageError;

const LOCK: &str = "pyodide-lock.json";

/// A folder with packages. By default there is none.
#[derive(Debug, Default)]
pub(super) struct PackageIndex {
    /// Where pip finds wheels, too.
    pub(super) folder: Option<PathBuf>,
    platform: String,
    /// Those in the lock file, by their normalised names.
    packages: BTreeMap<String, LockedPackage>,
}

#[derive(Deserialize)]
struct LockFile {
    info: LockInfo,
    packages: BTreeMap<String, LockedPackage>,
}

#[derive(Deserialize)]
struct LockInfo {
    platform: String,
    arch: String,
}

/// A package in a lock file.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct LockedPackage {
    name: String,
    version: String,
    /// A wheel, or an archive of shared libraries. The name may be an address.
    file_name: String,
    pub(super) sha256: String,
    #[serde(default)]
    depends: Vec<String>,
}

impl PackageIndex {
    /// Opens a folder, or one by its lock file.
    pub(super) fn open(path: &Path) -> Result<Self, PackageError> {
        let unreadable = |path: &Path, cause| PackageError::Read(path.to_owned(), cause);
        // pip is started elsewhere.
        let path = std::path::absolute(path).map_err(|cause| unreadable(path, cause))?;
        let is_file = path.metadata().map_err(|cause| unreadable(&path, cause))?.is_file();
        let lock = if is_file { path.clone() } else { path.join(LOCK) };
        let folder = lock.parent().map(Path::to_owned);
        if !lock.exists() {
            return Ok(Self { folder, ..Self::default() });
        }
        let text = std::fs::read(&lock).map_err(|cause| unreadable(&lock, cause))?;
        let LockFile { info, packages } = serde_json::from_slice(&text)
            .map_err(|error| bad_because(&lock, "it isn't a lock file of Pyodide", error))?;
        let packages = packages.into_values();
        let packages = packages.map(|package| (normalized(&package.name), package)).collect();
        Ok(Self { folder, platform: format!("{}_{}", info.platform, info.arch), packages })
    }

    /// Takes out of a file's logical lines those that the lock file meets. Returns the packages with
    /// what they depend on, except what other lines name.
    ///
    /// # Errors
    /// The number of a line that states no hash and that the lock file doesn't meet, and why.
    pub(super) fn take(
        &self,
        lines: &mut Vec<(usize, String)>,
    ) -> Result<Vec<LockedPackage>, (usize, String)> {
        if self.packages.is_empty() {
            return Ok(Vec::new());
        }
        let (mut pending, mut others) = (Vec::new(), BTreeSet::new());
        let mut taken = BTreeMap::new();
        for (number, line) in std::mem::take(lines) {
            let is_option = line.trim_start().starts_with('-');
            let name = if is_option { String::new() } else { normalized(name_of(&line)) };
            if self.meets(&name, &line).map_err(|detail| (number, detail))? {
                pending.push(name);
            } else {
                others.insert(name);
                lines.push((number, line));
            }
        }
        while let Some(name) = pending.pop() {
            // What the lock file lacks is missed later.
            let package = self.packages.get(&name).filter(|_| !others.contains(&name));
            if let Some(package) = package
                && taken.insert(name, package.clone()).is_none()
            {
                pending.extend(package.depends.iter().map(|name| normalized(name)));
            }
        }
        Ok(taken.into_values().collect())
    }

    /// Returns whether a line is NAME or NAME==VERSION as in the lock file, with its hash or none.
    fn meets(&self, name: &str, line: &str) -> Result<bool, String> {
        if name.is_empty() {
            return Ok(false);
        }
        let mut words = line.split_whitespace();
        let requirement: String = words.clone().take_while(|word| !word.starts_with('-')).collect();
        let has_hash = words.any(|word| word.starts_with('-'));
        let Some(package) = self.packages.get(name) else {
            let others = "what pip fetches has a version and hashes";
            let refusal = format!("the package index has no `{name}`; {others}");
            return if has_hash { Ok(false) } else { Err(refusal) };
        };
        let LockedPackage { name, version, sha256, .. } = package;
        let wanted = &requirement[name_of(&requirement).len()..];
        let fits = wanted.is_empty() || wanted.strip_prefix("==") == Some(version);
        if !has_hash && !fits {
            return Err(format!(
                "the package index has {name}=={version}; another version needs hashes"
            ));
        }
        Ok(fits && (!has_hash || line.to_ascii_lowercase().contains(&sha256.to_ascii_lowercase())))
    }

    /// Reads a package of the lock file.
    pub(super) fn read(
        &self,
        package: &LockedPackage,
        target: &PythonTarget,
    ) -> Result<Package, PackageError> {
        let LockedPackage { name, version, file_name, sha256, .. } = package;
        let file_name = file_name.rsplit('/').next().unwrap_or(file_name);
        let path = self.folder.as_deref().unwrap_or(Path::new("")).join(file_name);
        let unfit = |why| PackageError::Read(path.clone(), io::Error::other(why));
        if !path.exists() {
            return Err(unfit("the lock file names it, but it isn't in the folder"));
        }
        let bytes = wheel::load(&path)?;
        if !hex::encode(Sha256::digest(&bytes)).eq_ignore_ascii_case(sha256) {
            return Err(unfit("its SHA-256 isn't that in the lock file"));
        }
        let origin = PackageOrigin::Requirements(file_name.to_owned());
        if file_name.ends_with(".whl") {
            return wheel::read(&path, &bytes, target, origin);
        }
        if !target.machine_code().contains(&self.platform.as_str()) {
            let reason = format!("it is made for the platform `{}`", self.platform);
            return Err(PackageError::Native { path, reason });
        }
        let info = PackageInfo { name: name.clone(), version: Some(version.clone()), origin };
        wheel::read_libraries(&path, &bytes, target, info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> PackageIndex {
        let package = |name: &str, version: &str, depends: &[&str]| LockedPackage {
            name: name.to_owned(),
            version: version.to_owned(),
            file_name: String::new(),
            sha256: "Ab".repeat(32),
            depends: depends.iter().map(|&name| name.to_owned()).collect(),
        };
        let packages = [
            package("Some_Thing", "1.2", &["lib", "pure"]),
            // In a circle, and of what isn't there.
            package("lib", "1", &["some-thing", "nowhere"]),
            package("pure", "2", &[]),
            package("other", "3", &[]),
        ];
        let packages = packages.map(|package| (normalized(&package.name), package));
        PackageIndex { packages: packages.into(), ..PackageIndex::default() }
    }

    fn taken(lines: &[&str]) -> Result<(Vec<String>, usize), (usize, String)> {
        let mut lines: Vec<_> = (1..).zip(lines.iter().map(|&line| line.to_owned())).collect();
        let taken = index().take(&mut lines)?;
        Ok((taken.into_iter().map(|package| package.name).collect(), lines.len()))
    }

    #[test]
    fn what_the_lock_file_meets_comes_with_what_it_depends_on() {
        let (hash, other) = ("ab".repeat(32), "ac".repeat(32));
        let all = ["lib", "pure", "Some_Thing"];
        for line in
            ["some.thing", "Some_Thing==1.2", &format!("some-thing == 1.2 --hash=sha256:{hash}")]
        {
            let found = taken(&[line, "", "--no-index"]).unwrap();
            assert_eq!(found, (all.map(str::to_owned).to_vec(), 2), "{line}");
        }
        // Lines for pip stay, and what they name is theirs.
        for line in [
            format!("pure==2 --hash=sha256:{other}"),
            format!("pure==3 --hash=sha256:{hash}"),
            format!("pure[x]==2 --hash=sha256:{hash}"),
        ] {
            let found = taken(&["some-thing", &line]).unwrap();
            assert_eq!(found, (vec!["lib".to_owned(), "Some_Thing".to_owned()], 1), "{line}");
        }
        let further = format!("further==1 --hash=sha256:{other}");
        assert_eq!(taken(&[&further]).unwrap(), (vec![], 1));
        for (line, said) in [
            ("pure==3", "the package index has pure==2"),
            ("pure>=2", "the package index has pure==2"),
            ("further", "the package index has no `further`"),
        ] {
            let (number, refusal) = taken(&["other", line]).unwrap_err();
            assert!(number == 2 && refusal.contains(said), "{line}: {refusal}");
        }
    }
}
