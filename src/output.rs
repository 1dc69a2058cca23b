//! Output folders, where files of programs are kept.
//!
//! Names come from programs, and earlier programs may have left any files in the folder. So
//! everything below the folder is opened relative to its handle, by component, without following
//! symbolic links. The folder's own path is the user's, and may have links.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use engine::{ChangeKind, ChangedFile, MimeBundle, MimeData, Outcome, Verdict, check_path};
use replace::UNFINISHED_PREFIX;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// A folder of the host that receives what programs made.
///
/// Programs choose the names of their files, so nothing is written outside of the folder. A path
/// must be plain and relative, and symbolic links below the folder aren't followed.
///
/// ```no_run
/// use std::path::Path;
///
/// use hatchery::files::OutputFolder;
/// use hatchery::{Hatchery, Job};
///
/// # async fn example(pool: Hatchery) -> Result<(), Box<dyn std::error::Error>> {
/// let folder = OutputFolder::open(Path::new("made"))?;
/// let outcome = pool.run(Job::code("open('a.txt', 'w').write('x')")).await?;
/// for problem in folder.keep(&outcome.files) {
///     eprintln!("{problem}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OutputFolder {
    handle: OwnedFd,
    path: PathBuf,
}

impl OutputFolder {
    /// Opens the folder, and creates it if it doesn't exist. Its own path may have links.
    ///
    /// # Errors
    /// The folder can't be created, or it isn't one.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { handle, path: path.to_owned() })
    }

    /// Returns the folder's path, as it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the subfolder of this name, and creates it if it doesn't exist.
    ///
    /// # Errors
    /// The folder can't be created, or something else has its name.
    pub fn folder(&self, name: &str) -> io::Result<Self> {
        Ok(Self { handle: folder_in(&self.handle, name)?, path: self.path.join(name) })
    }

    /// Writes all files but deleted ones. Returns a message for each file that it couldn't write.
    pub fn keep(&self, files: &[ChangedFile]) -> Vec<String> {
        let there = files.iter().filter(|file| file.kind != ChangeKind::Deleted);
        let problem = |file: &ChangedFile| {
            let error = self.write(file, true).err()?;
            Some(format!("can't write `{}`: {error}", file.path))
        };
        there.filter_map(problem).collect()
    }

    /// Writes a file. An existing one is replaced, or the error is `AlreadyExists`. It has its name
    /// only once all of it is written.
    ///
    /// # Errors
    /// The file exists and may not be replaced, isn't a regular file, or has a link on its path; or
    /// the disk is full.
    pub fn write(&self, file: &ChangedFile, overwrites: bool) -> io::Result<()> {
        let ChangedFile { path, contents, .. } = file;
        // Names from the guest follow the rule for input files: plain and relative.
        check_path(path).map_err(io::Error::other)?;
        let (folders, name) = match path.rsplit_once('/') {
            Some((folders, name)) => (Some(folders), name),
            None => (None, path.as_str()),
        };
        let mut folder = self.handle.try_clone()?;
        for part in folders.into_iter().flat_map(|folders| folders.split('/')) {
            folder = folder_in(&folder, part)?;
        }
        put(&folder, name, overwrites, |file| file.write_all(contents))
    }
}

/// Creates a file that `write` fills, then gives it its name.
fn put(
    folder: &OwnedFd,
    name: &str,
    overwrites: bool,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let before = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat.st_mode),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(errno.into()),
    };
    match before.map(FileType::from_raw_mode) {
        None => {}
        Some(_) if !overwrites => return Err(Errno::EXIST.into()),
        Some(FileType::RegularFile) => {}
        Some(FileType::Symlink) => return Err(explained(folder, name, Errno::LOOP)),
        Some(_) => {
            return Err(io::Error::other("something that is not a regular file is in its place"));
        }
    }
    let unfinished = format!("{UNFINISHED_PREFIX}{:016x}", RandomState::new().hash_one(name));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    let mut file = File::from(rustix::fs::openat(folder, &*unfinished, flags, mode)?);
    let finish = |file: &mut File| -> io::Result<()> {
        if let Some(mode) = before {
            rustix::fs::fchmod(&*file, Mode::from_raw_mode(mode))?;
        }
        write(file)?;
        let flags = if overwrites { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match rustix::fs::renameat_with(folder, &*unfinished, folder, name, flags) {
            // Some file systems know no flags.
            Err(Errno::INVAL) => rustix::fs::renameat(folder, &*unfinished, folder, name)?,
            renamed => renamed?,
        }
        Ok(())
    };
    finish(&mut file).inspect_err(|_| {
        // The first error tells more than one of removing it.
        let _ = rustix::fs::unlinkat(folder, &*unfinished, AtFlags::empty());
    })
}

fn folder_in(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(parent, name, flags, Mode::empty());
    opened.map_err(|errno| explained(parent, name, errno))
}

/// Explains an error. For a link that isn't followed, the system's own message speaks of loops.
fn explained(parent: &OwnedFd, name: &str, errno: Errno) -> io::Error {
    let stat = rustix::fs::statat(parent, OsStr::new(name), AtFlags::SYMLINK_NOFOLLOW);
    match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Symlink) => io::Error::other(format!(
            "`{name}` is a symbolic link, which isn't followed; remove it or use another folder"
        )),
        _ => errno.into(),
    }
}

/// The file extension of each type. Forms of other types are no files.
const EXTENSIONS: [(&str, &str); 10] = [
    ("text/plain", "txt"),
    ("text/html", "html"),
    ("text/markdown", "md"),
    ("text/latex", "tex"),
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/gif", "gif"),
    ("image/svg+xml", "svg"),
    ("application/pdf", "pdf"),
    ("application/json", "json"),
];

/// Returns what a program displayed as files, for an [`OutputFolder`](super::files::OutputFolder).
/// Displays are `display-1`, `display-2` and so on. The value of the last expression is `result`,
/// if it is more than text. Each has all of its [forms](display_forms).
pub fn display_files(outcome: &Outcome) -> Vec<ChangedFile> {
    let numbered = outcome.displays.iter().zip(1_u32..);
    let displays = numbered.map(|(display, number)| (format!("display-{number}"), display));
    let result = match &outcome.verdict {
        Verdict::Completed { bundle, .. } => Some(("result".to_owned(), bundle)),
        _ => None,
    };
    let bundles = displays.chain(result);
    let files = bundles.flat_map(|(stem, bundle)| {
        display_forms(bundle).into_iter().map(move |(extension, data)| {
            let path = format!("{stem}.{extension}");
            ChangedFile::new(path, ChangeKind::Created, data.as_bytes())
        })
    });
    files.collect()
}

/// Returns the forms of a display that can be a file, with their extensions: HTML, Markdown, LaTeX,
/// images, PDF and JSON. Plain text is among them only if there is no other form.
pub fn display_forms(bundle: &MimeBundle) -> Vec<(&'static str, &MimeData)> {
    let known = |(name, data)| {
        let found = EXTENSIONS.iter().find(|(of, _)| *of == name);
        found.map(|(_, extension)| (*extension, data))
    };
    let mut files: Vec<_> = bundle.iter().filter_map(known).collect();
    if files.len() > 1 {
        files.retain(|(extension, _)| *extension != "txt");
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn file(path: &str, contents: &str) -> ChangedFile {
        ChangedFile::new(path, ChangeKind::Created, contents)
    }

    #[test]
    fn files_are_written_below_the_folder_in_place_of_older_ones() {
        let base = tempfile::tempdir().unwrap();
        let folder = OutputFolder::open(&base.path().join("a/b")).unwrap();
        assert!(folder.keep(&[file("x", "long"), file("c/d/y", "1")]).is_empty());
        let deleted = ChangedFile::new("z", ChangeKind::Deleted, "");
        assert!(folder.keep(&[file("x", "2"), deleted]).is_empty());
        assert!(folder.folder("line").unwrap().keep(&[file("x", "3")]).is_empty());
        let read = |path: &str| fs::read_to_string(base.path().join("a/b").join(path)).unwrap();
        assert_eq!(
            (read("x"), read("c/d/y"), read("line/x")),
            ("2".into(), "1".into(), "3".into())
        );
        assert!(!base.path().join("a/b/z").exists());
    }

    #[test]
    fn links_in_the_folder_are_not_followed_and_the_others_are_kept() {
        let base = tempfile::tempdir().unwrap();
        let outside = base.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "kept").unwrap();
        let path = base.path().join("out");
        fs::create_dir(&path).unwrap();
        symlink(&outside, path.join("folder")).unwrap();
        symlink(outside.join("secret"), path.join("file")).unwrap();
        symlink(outside.join("new"), path.join("dangling")).unwrap();
        let folder = OutputFolder::open(&path).unwrap();
        let names =
            ["folder/secret", "folder/new", "file", "dangling", "../outside/secret", "fine"];
        let problems = folder.keep(&names.map(|name| file(name, "changed")));
        assert_eq!(problems.len(), 5, "{problems:?}");
        assert!(problems[0].contains("symbolic link"), "{problems:?}");
        assert!(problems[3].contains("symbolic link"), "{problems:?}");
        assert!(folder.folder("folder").is_err());
        assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "kept");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(path.join("fine")).unwrap(), "changed");
    }

    #[test]
    fn the_folders_own_path_may_have_links() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("real")).unwrap();
        symlink(base.path().join("real"), base.path().join("link")).unwrap();
        let folder = OutputFolder::open(&base.path().join("link")).unwrap();
        assert!(folder.keep(&[file("x", "1")]).is_empty());
        assert!(base.path().join("real/x").exists());
        assert!(OutputFolder::open(Path::new("/dev/null/x")).is_err());
    }

    #[test]
    fn a_file_that_could_not_be_written_leaves_what_was_there() {
        let base = tempfile::tempdir().unwrap();
        let folder = OutputFolder::open(base.path()).unwrap();
        let full = |file: &mut File| -> io::Result<()> {
            file.write_all(b"half")?;
            Err(Errno::NOSPC.into())
        };
        assert!(put(&folder.handle, "new", true, full).is_err());
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
        folder.write(&file("old", "whole"), false).unwrap();
        fs::set_permissions(base.path().join("old"), fs::Permissions::from_mode(0o640)).unwrap();
        assert!(put(&folder.handle, "old", true, full).is_err());
        let again = folder.write(&file("old", "new"), false).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(base.path().join("old")).unwrap(), "whole");
        folder.write(&file("old", "new"), true).unwrap();
        assert_eq!(fs::read_to_string(base.path().join("old")).unwrap(), "new");
        let mode = fs::metadata(base.path().join("old")).unwrap().permissions().mode();
        assert_eq!((fs::read_dir(base.path()).unwrap().count(), mode & 0o777), (1, 0o640));
    }

    #[test]
    fn what_is_not_a_regular_file_is_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let folder = OutputFolder::open(base.path()).unwrap();
        fs::create_dir(base.path().join("x")).unwrap();
        let status = std::process::Command::new("mkfifo").arg(base.path().join("pipe")).status();
        assert!(status.unwrap().success());
        let problems = folder.keep(&[file("x", "1"), file("pipe", "1"), file("pipe/y", "1")]);
        assert_eq!(problems.len(), 3, "{problems:?}");
    }
}
