//! Scripts that lines name.
//!
//! A queued line holds its script's folder open. So queued lines may open folders only while half
//! of the process's file descriptors remain free. Otherwise programs could fail for lack of
//! descriptors.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use hatchery::error::chain;
use hatchery::{Error, Job};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Why a line has no job. Made of an error of `hatchery`, it tells the two apart itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoJob {
    /// The line says or names something wrong. Its result says so.
    #[error("{0}")]
    Bad(String),
    /// Too many file descriptors are in use, which passes. The line is tried again.
    #[error("{0}")]
    NoDescriptor(String),
}

/// Returns the job of a script. Blocks while it reads the file.
pub(crate) fn job(path: &Path, is_ahead: bool) -> Result<Job, NoJob> {
    let unreadable = |source| NoJob::from(Error::Read { path: path.to_owned(), source });
    check(path).map_err(unreadable)?;
    if is_ahead && has_few_descriptors(path).map_err(unreadable)? {
        return Err(unreadable(Errno::MFILE.into()));
    }
    Ok(Job::file(path)?)
}

/// Refuses anything but a regular file without opening it, which could block forever or have
/// effects.
fn check(path: &Path) -> io::Result<()> {
    let kind = path.metadata()?.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let what = if kind.is_dir() { "a folder" } else { "a pipe, a device or a socket" };
    Err(io::Error::other(format!("it is {what}; name a regular file")))
}

/// Returns whether half of the descriptors that this process may have are in use.
fn has_few_descriptors(path: &Path) -> io::Result<bool> {
    let Some(most) = getrlimit(Resource::Nofile).current else { return Ok(false) };
    // The system returns the lowest free number.
    let lowest = u64::try_from(File::open(path)?.as_raw_fd()).unwrap_or(0);
    Ok(lowest >= most / 2)
}

impl From<String> for NoJob {
    fn from(problem: String) -> Self {
        Self::Bad(problem)
    }
}

impl From<Error> for NoJob {
    fn from(error: Error) -> Self {
        let cause = match &error {
            Error::Read { source, .. } => Some(source),
            Error::Mount(bad) => Some(&bad.cause),
            _ => None,
        };
        match cause.and_then(Errno::from_io_error) {
            Some(Errno::MFILE | Errno::NFILE) => Self::NoDescriptor(chain(&error).to_string()),
            _ => Self::Bad(chain(&error).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn bad(path: &Path) -> String {
        match job(path, true).unwrap_err() {
            NoJob::Bad(problem) => problem,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_not_a_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, script) = (folder.path().join("pipe"), folder.path().join("a.py"));
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        assert!(bad(&pipe).contains("it is a pipe"), "{}", bad(&pipe));
        assert!(bad(Path::new("/dev/zero")).contains("a device"));
        assert!(bad(folder.path()).contains("it is a folder"));
        assert!(bad(&script).contains("No such file"));
        fs::write(&script, "1").unwrap();
        assert_eq!(job(&script, true).unwrap().source(), "1");
    }

    #[test]
    fn running_out_of_descriptors_differs_from_a_bad_line() {
        let of = |errno: Errno| {
            let path = Path::new("a").to_owned();
            NoJob::from(Error::Read { path, source: errno.into() })
        };
        assert!(matches!(of(Errno::MFILE), NoJob::NoDescriptor(_)));
        assert!(matches!(of(Errno::NFILE), NoJob::NoDescriptor(_)));
        assert!(matches!(of(Errno::ACCESS), NoJob::Bad(_)));
    }
}
