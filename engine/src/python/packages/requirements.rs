//! Turns a requirements file into packages: reads it, fetches through pip, verifies and caches.
//!
//! pip uses wheels only, so it neither builds nor runs anything that it fetches. The
//! SHA-256 of each wheel is compared with those in the file. The cache keeps the packages of a file
//! unpacked and sealed, in one file from which they are mapped.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::index::{LockedPackage, PackageIndex};
use super::info::{PythonTarget, name_of};
use super::{Package, PackageOrigin, PackedPackage, bad, file_name, stand_ins, wheel};
use crate::cache::seal::Sealer;
use crate::cache::{CacheDir, UnfinishedFolder, remove_unfinished};
use crate::config::{Progress, ProgressSink};
use crate::error::{CacheError, PackageError};
use crate::places::COMMON_PACKAGES;
use crate::python::distribution::pip;

/// The folder in the cache, and the lock on it.
const FOLDER: &str = "packages";
/// The sealed packages of one requirements file.
const PACKED: &str = "packed";
/// Changes whenever pip is called or packages are kept differently.
const SETTINGS: &str = "wheels 5";
/// The name of the file with the common packages.
const COMMON: &str = "common.txt";
/// The longest requirements file, in bytes.
const MOST_TEXT_BYTES: u64 = 4 << 20;

/// Options that a file may have on lines of their own: where to find wheels, and what applies
/// anyway. Options that name further files, run code, or concern packages by address are refused.
const OPTIONS: [&str; 9] = [
    "-i",
    "--index-url",
    "--extra-index-url",
    "--no-index",
    "-f",
    "--find-links",
    "--prefer-binary",
    "--require-hashes",
    "--trusted-host",
];

/// The options by which pip takes pure wheels; and others, for a machine for which there are some; and
/// the machines for which the newest packages have some.
const PURE: &str = "--platform any --implementation py --abi none";
const NATIVE: &str = "--platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 \
                      --implementation cp --abi cp312 --abi abi3 --abi none";
const MACHINES: &str = "--platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64";
const FOR_CPYTHON: &str = "--abi abi3 --abi none --implementation cp";
/// The Python for which those of `NATIVE` have machine code. The rest of them is for any that they
/// allow.
const NATIVE_PYTHON: &str = "3.12";

const HASH: &str = "--hash=sha256:";

/// Returns the packages that the file `path` names, or else the common ones.
pub(super) fn load(
    cache: &CacheDir,
    path: Option<&Path>,
    index: Option<&Path>,
    target: &PythonTarget,
    progress: &dyn ProgressSink,
) -> Result<Vec<Package>, PackageError> {
    let text = path.map_or_else(|| Ok(COMMON_PACKAGES.to_owned()), read)?;
    let index = index.map_or_else(|| Ok(PackageIndex::default()), PackageIndex::open)?;
    let invalid = |(line, detail)| {
        let path = path.unwrap_or(Path::new(COMMON)).to_owned();
        PackageError::Requirements { path, line, detail }
    };
    let mut lines = logical_lines(&text).map_err(invalid)?;
    let locked = index.take(&mut lines).map_err(invalid)?;
    let hashes = locked.iter().map(|package| package.sha256.clone()).collect();
    let hashes = parse(&lines, hashes).map_err(invalid)?;
    let (is_common, stand_ins) = (path.is_none(), stand_ins::PACKAGES);
    let linkable = target.machine_code().first().unwrap_or(&"");
    let key = format!("{SETTINGS} {is_common} {target:?}\n{text}\n{stand_ins:?}{linkable}");
    let key = key + &locked.iter().map(|one| format!("\n{one:?}")).collect::<String>();
    let key = blake3::hash(key.as_bytes()).to_hex()[..32].to_owned();
    let folder = cache.folder(FOLDER)?.join(&key);
    let (target, sealer) = (target.clone(), Sealer::new(cache)?);
    let wheels = Wheels { folder, key, lines, hashes, index, locked, target, sealer };
    let find = || Ok(wheels.cached());
    cache.find_or_make(FOLDER, find, |_lock| wheels.fetch(path, progress))
}

fn read(path: &Path) -> Result<String, PackageError> {
    let unreadable = |cause| PackageError::Read(path.to_owned(), cause);
    if fs::metadata(path).map_err(unreadable)?.len() > MOST_TEXT_BYTES {
        return Err(unreadable(std::io::Error::other("it is too long to be one")));
    }
    fs::read_to_string(path).map_err(unreadable)
}

/// The wheels of one requirements file, for one Python.
struct Wheels {
    folder: PathBuf,
    key: String,
    /// The logical lines that are for pip.
    lines: Vec<(usize, String)>,
    /// Every SHA-256 in the file.
    hashes: BTreeSet<String>,
    index: PackageIndex,
    /// The packages that come from the index's lock file.
    locked: Vec<LockedPackage>,
    target: PythonTarget,
    sealer: Sealer,
}

impl Wheels {
    /// Returns the packages in the cache; `None` unless all are present and intact.
    fn cached(&self) -> Option<Vec<Package>> {
        let bytes = Bytes::from_owner(self.sealer.view(&self.folder.join(PACKED), &self.key)?);
        let packed: Vec<PackedPackage<'_>> = postcard::from_bytes(&bytes).ok()?;
        Some(packed.into_iter().map(|package| package.unpack(&bytes)).collect())
    }

    /// Fetches the wheels through pip, and keeps them if each can go into an image.
    fn fetch(
        &self,
        path: Option<&Path>,
        progress: &dyn ProgressSink,
    ) -> Result<Vec<Package>, PackageError> {
        // The others have hashes.
        if self.hashes.len() > self.locked.len() {
            progress.report(Progress::FetchingPackages);
        }
        let parent = self.folder.parent().unwrap_or(&self.folder);
        remove_unfinished(parent);
        let (unfinished, wheels) =
            (UnfinishedFolder::new_in(parent)?, UnfinishedFolder::new_in(parent)?);
        let list = path.unwrap_or(Path::new(COMMON));
        let place = wheels.path().join(COMMON);
        let failed = |cause| match path {
            Some(path) => PackageError::Pip(path.to_owned(), cause),
            None => PackageError::PipCommon(cause),
        };
        // Returns the paths of all that have been fetched.
        let download = |part: &str, kinds: &str, version: &str| {
            fs::write(&place, part).map_err(|source| CacheError::io("write", &place, source))?;
            let kinds = kinds.split(' ').chain(["--python-version", version]).map(str::to_owned);
            let links =
                self.index.folder.iter().map(|folder| folder.to_string_lossy().into_owned());
            let links = links.flat_map(|folder| ["--find-links".to_owned(), folder]);
            let kinds: Vec<_> = kinds.chain(links).collect();
            Ok::<_, CacheError>(pip::download(&place, list.parent(), wheels.path(), &kinds))
        };
        let version = self.target.series();
        let (options, mut packages) = split(&self.lines);
        let joined = |packages: &[String]| [&options[..], packages].concat().join("\n");
        let mut paths = Vec::new();
        match self.target.machine_code() {
            _ if packages.is_empty() => {}
            platforms if path.is_none() || platforms.is_empty() => {
                let (native, pure): (Vec<_>, Vec<_>) =
                    packages.into_iter().partition(|line| stand_ins::find(name_of(line)).is_some());
                for (part, kinds, version) in
                    [(pure, PURE, version.as_str()), (native, NATIVE, NATIVE_PYTHON)]
                {
                    if !part.is_empty() {
                        paths = download(&joined(&part), kinds, version)?.map_err(failed)?;
                    }
                }
            }
            platforms => {
                let own = format!("--abi cp{} {FOR_CPYTHON}", version.replace('.', ""));
                let linkable = format!("--platform {} {own}", platforms.join(" --platform "));
                while !packages.is_empty() {
                    let cause = match download(&joined(&packages), &linkable, &version)? {
                        Ok(all) => {
                            paths = all;
                            break;
                        }
                        Err(cause) => cause,
                    };
                    // pip names one that has no such wheel, whose machine code is then left out.
                    let said = cause.to_string();
                    let lacking = packages.iter().position(|line| is_named(&said, name_of(line)));
                    let Some(lacking) = lacking else { return Err(failed(cause)) };
                    let one = joined(&[packages.remove(lacking)]);
                    let fetched = match download(&one, &format!("{MACHINES} {own}"), &version)? {
                        Err(_) => download(&one, NATIVE, NATIVE_PYTHON)?,
                        fetched => fetched,
                    };
                    paths = fetched.map_err(failed)?;
                }
            }
        }
        paths.sort_unstable();
        let origin = match path {
            Some(_) => PackageOrigin::Requirements,
            None => PackageOrigin::Common,
        };
        let mut packages = Vec::with_capacity(paths.len());
        for path in paths {
            let (name, bytes) = (file_name(&path), wheel::load(&path)?);
            if !self.hashes.contains(&hex::encode(Sha256::digest(&bytes))) {
                return Err(bad(
                    list,
                    &format!("pip fetched `{name}`, whose hash it doesn't have"),
                ));
            }
            packages.push(wheel::read(&path, &bytes, &self.target, origin(name))?);
        }
        for package in &self.locked {
            packages.push(self.index.read(package, &self.target)?);
        }
        let packed: Vec<_> = packages.iter().map(Package::pack).collect();
        let packed = postcard::to_stdvec(&packed).expect("names and contents can be encoded");
        let place = unfinished.path().join(PACKED);
        self.sealer.write(&place, &self.key, |file| file.write_all(&packed))?;
        unfinished.finish(&self.folder)?;
        Ok(self.cached().unwrap_or(packages))
    }
}

/// Returns the options of a requirements file, and its packages.
fn split(lines: &[(usize, String)]) -> (Vec<String>, Vec<String>) {
    let lines = lines.iter().map(|(_, line)| line.clone());
    lines
        .filter(|line| !line.trim().is_empty())
        .partition(|line| line.trim_start().starts_with('-'))
}

/// Returns whether pip's message is about a package, of which it names the version, too.
fn is_named(said: &str, name: &str) -> bool {
    let is_end = |c: char| c.is_whitespace() || "=[".contains(c);
    said.match_indices(name).any(|(at, _)| {
        said[..at].chars().next_back().is_none_or(char::is_whitespace)
            && said[at + name.len()..].starts_with(is_end)
    })
}

/// Adds every SHA-256 in the logical lines of a requirements file; else returns the first invalid
/// line, counted from 1, and why.
fn parse(
    lines: &[(usize, String)],
    mut hashes: BTreeSet<String>,
) -> Result<BTreeSet<String>, (usize, String)> {
    for (number, line) in lines {
        let wrong = |detail: String| (*number, detail);
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(&first) = words.first() else { continue };
        if first.starts_with('-') {
            // pip takes several options on one line, and quoted ones.
            for word in words.iter().filter(|word| is_option(word)) {
                let option = word.split('=').next().unwrap_or(word);
                if !OPTIONS.contains(&option) {
                    return Err(wrong(format!("`{option}` can't be used here")));
                }
            }
            continue;
        }
        let options = words.iter().position(|word| word.starts_with("--")).unwrap_or(words.len());
        let (requirement, options) = words.split_at(options);
        if let Some(option) = requirement.iter().find(|word| is_option(word)) {
            return Err(wrong(format!("`{option}` can't be used here")));
        }
        let requirement = requirement.join(" ");
        check_requirement(&requirement).map_err(wrong)?;
        if options.is_empty() {
            return Err(wrong(format!(
                "`{requirement}` has no hash: give each requirement its {HASH}…, as \
                 `pip-compile --generate-hashes` writes them, or `python3 -m pip hash WHEEL`"
            )));
        }
        for option in options {
            let is_sha256 = |hash: &&str| hash.len() == 64 && hex::decode(hash).is_ok();
            let hash = option.strip_prefix(HASH).filter(is_sha256);
            let hash = hash.ok_or_else(|| {
                wrong(format!("`{option}` can't be used here: a hash is {HASH} and 64 hex digits"))
            })?;
            hashes.insert(hash.to_ascii_lowercase());
        }
    }
    if hashes.is_empty() {
        return Err((1, "it names no package".to_owned()));
    }
    Ok(hashes)
}

/// Checks that pip reads the text as it is read here: the same line ends, and UTF-8.
fn check_text(text: &str) -> Result<(), (usize, String)> {
    for (index, line) in text.lines().enumerate() {
        let is_end_of_line =
            |c: char| (c.is_control() && c != '\t') || "\u{2028}\u{2029}".contains(c);
        if line.contains(is_end_of_line) {
            return Err((index + 1, "it has a control character".to_owned()));
        }
        let names_encoding = ["coding:", "coding="].iter().any(|name| line.contains(name));
        if index < 2 && line.starts_with('#') && names_encoding {
            return Err((index + 1, "its comment can't name an encoding: it is UTF-8".to_owned()));
        }
    }
    Ok(())
}

/// Returns whether pip takes a word for an option; pip removes quotes first.
fn is_option(word: &str) -> bool {
    word.trim_start_matches(['"', '\'', '\\']).starts_with('-')
}

/// Checks that a requirement is a package by name with a version.
fn check_requirement(requirement: &str) -> Result<(), String> {
    let begins = requirement.starts_with(|first: char| first.is_ascii_alphanumeric());
    let before_marker = requirement.split(';').next().unwrap_or(requirement);
    let rest = before_marker.get(name_of(requirement).len()..).unwrap_or_default();
    if !begins || rest.contains(['/', '@', ':']) || rest.is_empty() {
        return Err(format!("`{requirement}` isn't NAME==VERSION: packages are fetched by name"));
    }
    let version = rest.rsplit_once(']').map_or(rest, |(_extras, version)| version);
    if !version.contains("==") || version.contains(['*', ',']) {
        return Err(format!("`{requirement}` leaves its version open: write NAME==VERSION"));
    }
    Ok(())
}

/// Returns the lines with the number of their first line, lines that end in `\` joined, without
/// comments. For pip, a line doesn't end in `\` if a blank follows.
fn logical_lines(text: &str) -> Result<Vec<(usize, String)>, (usize, String)> {
    check_text(text)?;
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut is_joined = false;
    for (index, line) in text.lines().enumerate() {
        let line = without_comment(line);
        let (part, goes_on) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match lines.last_mut() {
            Some((_, joined)) if is_joined => {
                joined.push(' ');
                joined.push_str(part);
            }
            _ => lines.push((index + 1, part.to_owned())),
        }
        is_joined = goes_on;
    }
    Ok(lines)
}

/// Removes the comment, which begins the line or follows white space.
fn without_comment(line: &str) -> &str {
    let is_comment = |at: usize| at == 0 || line[..at].ends_with(char::is_whitespace);
    let comment = line.match_indices('#').map(|(at, _)| at).find(|at| is_comment(*at));
    comment.map_or(line, |at| &line[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB";

    fn parsed(text: &str) -> Result<BTreeSet<String>, (usize, String)> {
        parse(&logical_lines(text)?, BTreeSet::new())
    }

    #[test]
    fn each_common_package_has_one_hash_and_its_modules_and_they_are_sorted() {
        let lines: Vec<&str> = COMMON_PACKAGES.lines().skip(1).collect();
        assert_eq!(parsed(COMMON_PACKAGES).unwrap().len(), lines.len());
        let names = lines.iter().map(|line| {
            let (pin, modules) = line.split_once("  # ").unwrap();
            let is_module = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
            assert!(!modules.is_empty() && modules.split(' ').all(is_module), "{line}");
            pin.split_once("==").unwrap().0.to_owned()
        });
        assert!(names.is_sorted_by(|a, b| a < b) && lines.len() > 70);
    }

    #[test]
    fn hashes_are_taken_from_lines_as_pip_reads_them() {
        let text = format!(
            "# made by hand\n--no-index\n--find-links ./wheels  # near\n\n\
             one==1.0 \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{B}\n    # via two\n\
             Two.x[extra] == 2 ; python_version > '3' --hash=sha256:{A}\n"
        );
        let hashes: Vec<String> = parsed(&text).unwrap().into_iter().collect();
        assert_eq!(hashes, [A.to_owned(), B.to_ascii_lowercase()]);
    }

    #[test]
    fn options_and_packages_are_told_apart() {
        let text = "-f wheels # near\n\none==1 \\\n --hash=x\nMsgPack==2 --hash=y";
        let (options, packages) = split(&logical_lines(text).unwrap());
        assert_eq!(options, ["-f wheels "]);
        assert_eq!(packages, ["one==1   --hash=x", "MsgPack==2 --hash=y"]);
    }

    #[test]
    fn a_package_that_pip_lacks_is_found_in_its_message() {
        let said = "exit status: 1; ERROR: No matching distribution found for rpds-py==1.0";
        assert!(is_named(said, "rpds-py"));
        for name in ["py", "rpds", "rpds-py-x", "1.0", "cffi"] {
            assert!(!is_named(said, name), "{name}");
        }
        assert!(is_named("satisfies the requirement one[all]==2 (from versions: none)", "one"));
        assert!(is_named("one==2 from https://x.test/one-2.whl", "one"));
    }

    #[test]
    fn what_leaves_something_open_is_refused_with_its_line() {
        for (text, line, expected) in [
            ("\none==1.0\n".to_owned(), 2, "pip-compile --generate-hashes"),
            (format!("one>=1.0 --hash=sha256:{A}"), 1, "NAME==VERSION"),
            (format!("one==1.* --hash=sha256:{A}"), 1, "NAME==VERSION"),
            (format!("one --hash=sha256:{A}"), 1, "by name"),
            (format!("./one.whl --hash=sha256:{A}"), 1, "by name"),
            (format!("one @ https://x.test/one.whl --hash=sha256:{A}"), 1, "by name"),
            (format!("https://x.test/one-1.whl --hash=sha256:{A}"), 1, "by name"),
            (format!("one==1 --hash=md5:{A}"), 1, "64 hex digits"),
            (format!("one==1 --hash=sha256:{}", &A[1..]), 1, "64 hex digits"),
            (format!("one==1 --hash=sha256:{A} --config-settings=x"), 1, "--config-settings"),
            ("-r other.txt".to_owned(), 1, "`-r`"),
            ("# x\n-e .".to_owned(), 2, "`-e`"),
            ("--no-binary=:all:".to_owned(), 1, "`--no-binary`"),
            ("--no-index --no-binary :all:".to_owned(), 1, "`--no-binary`"),
            ("--find-links x -rother.txt".to_owned(), 1, "`-rother.txt`"),
            ("--no-index \"--no-binary\" :all:".to_owned(), 1, "--no-binary"),
            ("--no-index \\--pre".to_owned(), 1, "--pre"),
            ("--no-index \\\n  --pre".to_owned(), 1, "`--pre`"),
            ("--no-index \\ \n-r other.txt".to_owned(), 2, "`-r`"),
            (format!("one==1 \\ \n-r x --hash=sha256:{A}"), 1, "no hash"),
            (format!("one==1 -r x --hash=sha256:{A}"), 1, "`-r`"),
            ("# a\u{c}--no-binary :all:".to_owned(), 1, "control character"),
            ("\n# a\u{2028}-e .".to_owned(), 2, "control character"),
            ("# a\r-e .".to_owned(), 1, "control character"),
            ("\n# -*- coding: utf-7 -*-".to_owned(), 2, "encoding"),
            ("# nothing".to_owned(), 1, "no package"),
        ] {
            let (number, detail) = parsed(&text).unwrap_err();
            assert_eq!(number, line, "{text}: {detail}");
            assert!(detail.contains(expected), "{text}: {detail}");
        }
    }
}
