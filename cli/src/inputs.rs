//! The files and folders of the host that programs get.
//!
//! By itself, a program sees no file of the host. Besides `--input`, a script may name files in the
//! header that PEP 723 defines:
//!
//! ```python
//! # /// script
//! # [tool.hatchery]
//! # inputs = ["data/sales.csv"]
//! # ///
//! ```
//!
//! The script isn't trusted. So these must lie below its own folder, with links resolved, and a
//! note on standard error names each.

use std::fs;
use std::io::{IsTerminal, Read};
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use hatchery::python::PackageInfo;
use hatchery::{DEFAULT_PYTHON, Hatchery, Job, Outcome, Verdict};
use replace::folder_of;

use crate::args::{HostFiles, HostFolders};
use crate::exit::UsageError;
use crate::terminal;

/// Adds the files of `--input`, and the folders of `--mount`.
pub(crate) fn add_all(mut job: Job, given: &HostFiles) -> anyhow::Result<Job> {
    for (name, contents) in read_named(&given.input)? {
        job = job.input(name, contents)?;
    }
    add_mounts(job, &given.folders)
}

/// Reads the files of `--input`. Returns their names in a workspace, and their contents.
pub(crate) fn read_named(inputs: &[String]) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for input in inputs {
        // If a file's own name has a `=`, that file wins.
        let (host, name) = match input.split_once('=').filter(|_| !Path::new(input).exists()) {
            Some((host, name)) => (host, name.to_owned()),
            None => (input.as_str(), file_name(Path::new(input))?),
        };
        let contents =
            fs::read(host).with_context(|| UsageError(format!("can't read the input `{host}`")))?;
        hatchery::files::check_path(&name).map_err(hatchery::Error::from)?;
        files.push((name, contents));
    }
    Ok(files)
}

/// Reads a file of the host; `-` is standard input.
pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let contents = if file == Path::new("-") {
        let mut contents = Vec::new();
        std::io::stdin().read_to_end(&mut contents).map(|_| contents)
    } else {
        fs::read(file)
    };
    contents.with_context(|| UsageError(format!("can't read the input `{}`", file.display())))
}

/// Adds the folders of `--mount`.
pub(crate) fn add_mounts(mut job: Job, given: &HostFolders) -> anyhow::Result<Job> {
    for mount in &given.mount {
        let (host, path) = match mount.split_once('=').filter(|_| !Path::new(mount).exists()) {
            Some((host, path)) => (host, path.to_owned()),
            None => {
                // `.` and `..` have no name of their own.
                let real = Path::new(mount)
                    .canonicalize()
                    .with_context(|| UsageError(format!("can't mount `{mount}`")))?;
                (mount.as_str(), format!("/{}", file_name(&real)?))
            }
        };
        job = job.mount(host, path)?;
    }
    Ok(job)
}

/// Lets the program read the folder of this file, with links followed as in CPython.
pub(crate) fn add_beside(job: Job, file: &Path) -> anyhow::Result<Job> {
    let unfound = || UsageError(format!("can't find `{}`", file.display()));
    let file = file.canonicalize().with_context(unfound)?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    if is_of_descriptors(folder) {
        let text = "a program from a descriptor has no folder for `--beside`; give it as a file";
        return Err(UsageError(text.to_owned()).into());
    }
    Ok(job.beside(folder)?)
}

/// Notes that a file which the program didn't find lies beside its script, and which option provides
/// it. The guest's own advice knows nothing of the host.
pub(crate) fn mention_missed_file(outcome: &Outcome, script: &Path) {
    let Verdict::Raised(exception) = &outcome.verdict else { return };
    let folder = script.parent().filter(|folder| !folder.as_os_str().is_empty());
    let (Some(folder), "FileNotFoundError") = (folder, exception.type_name.as_str()) else {
        return;
    };
    // As `OSError` writes itself: `[Errno 44] No such file or directory: 'data.csv'`.
    let name = exception.message.strip_suffix('\'').and_then(|message| message.rsplit_once(": '"));
    let Some((_, name)) = name.filter(|(_, name)| hatchery::files::check_path(name).is_ok()) else {
        return;
    };
    let path = folder.join(name);
    if path.is_file() {
        let (path, is_nested) = (path.display(), name.contains('/'));
        let place = if is_nested { format!("={name}") } else { String::new() };
        terminal::note(format_args!(
            "`{path}` exists, but the program doesn't get it: add `--input {path}{place}`, or \
             `--beside` for its whole folder"
        ));
    }
}

/// Notes that this command has got input, which its program doesn't get.
pub(crate) fn mention_unread() {
    let stdin = std::io::stdin();
    let bytes = if stdin.is_terminal() { Ok(0) } else { rustix::io::ioctl_fionread(&stdin) };
    if bytes.is_ok_and(|bytes| bytes > 0) {
        terminal::note(
            "the program's standard input was empty; `--stdin -` passes this command's on",
        );
    }
}

fn file_name(path: &Path) -> Result<String, UsageError> {
    path.file_name()
        .and_then(|name| name.to_str())
        .map(str::to_owned)
        .ok_or_else(|| UsageError(format!("`{}` is not a file name", path.display())))
}

/// Adds the files that the script's header names.
pub(crate) fn add_from_header(mut job: Job, script: &Path) -> anyhow::Result<Job> {
    let inputs = header_inputs(job.source())?;
    if inputs.is_empty() {
        return Ok(job);
    }
    let folder = folder_of(script);
    if is_of_descriptors(folder) {
        let text = "the script comes through a descriptor, so its header can't name files beside it; \
                    use --input for them";
        return Err(UsageError(text.to_owned()).into());
    }
    for input in inputs {
        let path = below(folder, &input)?;
        let contents = fs::read(&path).with_context(|| {
            UsageError(format!("can't read `{}`, which the script names", path.display()))
        })?;
        let path = path.display();
        terminal::note(format_args!("the script gets {path}, which its header names"));
        job = job.input(input, contents)?;
    }
    Ok(job)
}

/// Returns whether the folder holds names such as `/dev/stdin`, beside devices and memory that
/// others share.
fn is_of_descriptors(folder: &Path) -> bool {
    let real = folder.canonicalize();
    real.is_ok_and(|real| real == Path::new("/dev") || real.starts_with("/proc"))
}

/// Returns the path of `input` below `folder`, with every link followed and still below it.
fn below(folder: &Path, input: &str) -> anyhow::Result<PathBuf> {
    let refused = |why: &str| {
        UsageError(format!("the script's header names `{input}`, {why}; use --input for it"))
    };
    let is_plain = Path::new(input).components().all(|part| matches!(part, Component::Normal(_)));
    if !is_plain || input.is_empty() {
        return Err(refused("which is not a plain path below the script's folder").into());
    }
    let real = |path: &Path| path.canonicalize().with_context(|| refused("which can't be found"));
    let path = folder.join(input);
    if !real(&path)?.starts_with(real(folder)?) {
        return Err(refused("which leads outside the script's folder").into());
    }
    Ok(path)
}

/// Returns `[tool.hatchery] inputs` of a PEP 723 block, which is TOML behind `# `.
fn header_inputs(source: &str) -> anyhow::Result<Vec<String>> {
    let Some(block) = header(source) else { return Ok(Vec::new()) };
    let table: toml::Table = block
        .parse()
        .with_context(|| UsageError("the script's header isn't valid TOML".to_owned()))?;
    let inputs = table.get("tool").and_then(|tool| tool.get("hatchery")?.get("inputs"));
    let Some(inputs) = inputs else { return Ok(Vec::new()) };
    inputs.clone().try_into().with_context(|| {
        UsageError("`inputs` in the script's header must be an array of strings".to_owned())
    })
}

/// Returns the dependencies in a script's header: package names, followed by versions and so on.
/// Empty if the header can't be read.
pub(crate) fn header_dependencies(source: &str) -> Vec<String> {
    let table = header(source).and_then(|block| block.parse::<toml::Table>().ok());
    let named = table.as_ref().and_then(|table| table.get("dependencies")?.as_array());
    let named = named.into_iter().flatten();
    named.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Notes which of these packages programs can't import, since nothing installs them.
pub(crate) async fn mention_missing(dependencies: Vec<String>, hatchery: &Hatchery) {
    if dependencies.is_empty() {
        return;
    }
    let pool = hatchery.clone();
    let packages = tokio::task::spawn_blocking(move || pool.packages(DEFAULT_PYTHON));
    let Ok(Ok(packages)) = packages.await else { return };
    let missing = missing(&dependencies, &packages);
    if !missing.is_empty() {
        terminal::note(format_args!(
            "the script's header names packages that are missing, and nothing installs them: {}; \
             add them with --packages common, --package FILE|DIR or --requirements FILE",
            missing.join(", ")
        ));
    }
}

fn missing<'a>(dependencies: &'a [String], packages: &[PackageInfo]) -> Vec<&'a str> {
    let is_there = |named: &str| packages.iter().any(|package| package.is_named_by(named));
    dependencies.iter().map(String::as_str).filter(|named| !is_there(named)).collect()
}

/// Returns the TOML of the `script` block, if it exists and is closed.
fn header(source: &str) -> Option<String> {
    let mut lines = source.lines().skip_while(|line| line.trim_end() != "# /// script");
    lines.next()?;
    let mut toml = String::new();
    for line in lines {
        if line.trim_end() == "# ///" {
            return Some(toml);
        }
        let content = line.strip_prefix("# ").or_else(|| line.strip_prefix('#'))?;
        toml.push_str(content);
        toml.push('\n');
    }
    None
}

#[cfg(test)]
mod tests {
    use hatchery::python::PackageOrigin;

    use super::*;

    const SCRIPT: &str = "# /// script\n# dependencies = [\"pandas\"]\n#\n# [tool.hatchery]\n\
                          # inputs = [\"a.csv\", \"d/b.csv\"]\n# ///\nprint(1)\n";

    #[test]
    fn the_header_names_inputs() {
        assert_eq!(header_inputs(SCRIPT).unwrap(), ["a.csv", "d/b.csv"]);
        assert!(header_inputs("print(1)").unwrap().is_empty());
        assert!(header_inputs("# /// script\n# x = 1\nprint(1)").unwrap().is_empty());
        assert!(header_inputs("# /// script\n# [tool.hatchery]\n# inputs = 3\n# ///").is_err());
    }

    #[test]
    fn dependencies_that_are_there_are_not_missed() {
        let package = |name: &str| PackageInfo::new(name, PackageOrigin::Build);
        let packages = [package("pandas"), package("ruamel.yaml")];
        assert_eq!(header_dependencies(SCRIPT), ["pandas"]);
        assert!(header_dependencies("print(1)").is_empty());
        assert!(header_dependencies("# /// script\n# dependencies = 3\n# ///").is_empty());
        let named =
            ["Pandas>=2", "ruamel_yaml[jinja2] ; python_version > '3'", "requests<3", "a @ b"];
        assert_eq!(missing(&named.map(str::to_owned), &packages), ["requests<3", "a @ b"]);
    }

    #[test]
    fn nothing_outside_of_the_folder_can_be_named() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("scripts");
        fs::create_dir(&folder).unwrap();
        fs::write(base.path().join("secret"), "s").unwrap();
        fs::write(folder.join("data"), "d").unwrap();
        std::os::unix::fs::symlink(base.path().join("secret"), folder.join("link")).unwrap();
        assert!(below(&folder, "data").is_ok());
        for input in ["../secret", "link", "/etc/passwd", "missing", "./data", ""] {
            assert!(below(&folder, input).is_err(), "{input}");
        }
    }
}
