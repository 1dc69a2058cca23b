//! Reads a script of the host, and opens the folder from which it imports.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use engine::{Mount, Script};

use crate::failure::Error;

/// The longest script that is read, in bytes, so that a device doesn't fill the memory. Far above
/// the default of `Limits::source_bytes`.
const LONGEST_SCRIPT_BYTES: u64 = 64 << 20;

/// Reads a script to its end.
pub(super) fn read(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = file.take(LONGEST_SCRIPT_BYTES + 1).read_to_end(&mut bytes)?;
    if length as u64 > LONGEST_SCRIPT_BYTES {
        let problem = "it is larger than 64 MiB, the limit for scripts";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

/// Returns whether an open file has a path in a folder. A file that only a descriptor refers to has
/// none: a pipe, or a removed file, which shells use for long here-documents.
pub(super) fn has_place(path: &Path) -> bool {
    !path.canonicalize().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Returns the script's folder and name, with links resolved, as CPython does; `None` if the folder
/// can't be shown to the program.
pub(super) fn open(path: &Path) -> Result<Option<Script>, Error> {
    let unreadable = |source| Error::Read { path: path.to_owned(), source };
    let path = path.canonicalize().map_err(unreadable)?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    // Programs can't be given a name that isn't UTF-8.
    let Some(name) = name.to_str() else { return Ok(None) };
    match Mount::open_modules(folder, name) {
        Ok(folder) => Ok(Some(Script { folder: Arc::new(folder), name: name.to_owned() })),
        Err(error) if error.cause.kind() == io::ErrorKind::Unsupported => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;

    #[test]
    fn reading_a_script_is_bounded() {
        let error = engine::chain(&Job::file("/dev/zero").unwrap_err()).to_string();
        assert!(error.contains("`/dev/zero`") && error.contains("larger than 64 MiB"), "{error}");
        assert!(Job::file("/").is_err());
    }

    #[test]
    fn an_unnamed_pipe_has_no_folder() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"1").unwrap();
        drop(writer);
        let job = Job::file(format!("/dev/fd/{}", reader.as_raw_fd())).unwrap();
        assert_eq!(job.source(), "1");
        assert!(job.request.program.script.is_none());
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("a.py");
        std::fs::write(&script, "1").unwrap();
        assert!(Job::file(script).unwrap().request.program.script.is_some());
    }
}
