//! Folders that another process has opened. A worker process may open nothing, so it asks the
//! process that granted the folder.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{HostStat, Mount};
use crate::errno::{Errno, Result};

/// What tells two folders of one host apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FolderIdentity {
    pub(super) device: u64,
    pub(super) inode: u64,
}

/// A question about what is below a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderAsk(Question);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Question {
    Stat(String),
    File(String),
    List(String),
}

/// The answer to a [`FolderAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderAnswer(Result<FolderData>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum FolderData {
    Stat(HostStat),
    /// Its descriptor comes beside the answer.
    File,
    List(Vec<(String, HostStat)>),
}

/// Carries questions to the process that has opened a folder.
pub trait FolderServer: Send + Sync {
    /// Returns the answer and the descriptor of a file; `None` if that process is gone.
    fn ask(&self, folder: u64, ask: FolderAsk) -> Option<(FolderAnswer, Option<OwnedFd>)>;
}

/// A folder that another process has opened.
#[derive(Clone, derive_more::Debug)]
#[debug("ProxiedFolder({number})")]
pub struct ProxiedFolder {
    number: u64,
    identity: FolderIdentity,
    server: Arc<dyn FolderServer>,
}

impl ProxiedFolder {
    /// Returns the folder that its process calls by this number.
    pub fn new(number: u64, identity: FolderIdentity, server: Arc<dyn FolderServer>) -> Self {
        Self { number, identity, server }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn identity(&self) -> FolderIdentity {
        self.identity
    }

    pub(super) fn stat(&self, path: &str) -> Result<HostStat> {
        match self.ask(Question::Stat(path.to_owned()))? {
            (FolderData::Stat(stat), None) => Ok(stat),
            _ => Err(Errno::InputOutput),
        }
    }

    pub(super) fn file(&self, path: &str) -> Result<File> {
        match self.ask(Question::File(path.to_owned()))? {
            (FolderData::File, Some(file)) => Ok(File::from(file)),
            _ => Err(Errno::InputOutput),
        }
    }

    pub(super) fn list(&self, path: &str) -> Result<Vec<(String, HostStat)>> {
        match self.ask(Question::List(path.to_owned()))? {
            (FolderData::List(list), None) => Ok(list),
            _ => Err(Errno::InputOutput),
        }
    }

    fn ask(&self, question: Question) -> Result<(FolderData, Option<OwnedFd>)> {
        let answered = self.server.ask(self.number, FolderAsk(question));
        let (FolderAnswer(found), file) = answered.ok_or(Errno::InputOutput)?;
        Ok((found?, file))
    }
}

pub(super) fn serve(
    mount: &Mount,
    FolderAsk(question): &FolderAsk,
) -> (FolderAnswer, Option<OwnedFd>) {
    let mut opened = None;
    let found = match question {
        Question::Stat(path) => mount.stat(path).map(FolderData::Stat),
        Question::List(path) => mount.list(path).map(FolderData::List),
        Question::File(path) => mount.file(path).map(|file| {
            opened = Some(OwnedFd::from(file));
            FolderData::File
        }),
    };
    (FolderAnswer(found), opened)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// Serves one folder, over bytes.
    struct Served(Mount);

    impl FolderServer for Served {
        fn ask(&self, folder: u64, ask: FolderAsk) -> Option<(FolderAnswer, Option<OwnedFd>)> {
            let ask: FolderAsk = postcard::from_bytes(&postcard::to_stdvec(&ask).unwrap()).unwrap();
            let (answer, file) = self.0.serve(&ask);
            let answer = postcard::from_bytes(&postcard::to_stdvec(&answer).unwrap()).unwrap();
            (folder == 7).then_some((answer, file))
        }
    }

    #[test]
    fn a_lent_folder_is_as_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/f"), "text").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        let own = Mount::open(folder.path()).unwrap();
        let identity = own.identity().unwrap();
        let server = Arc::new(Served(Mount::open(folder.path()).unwrap()));
        let lent =
            |number| Mount::proxied(ProxiedFolder::new(number, identity, Arc::clone(&server) as _));
        let there = lent(7);
        assert!(own.is_same_folder(&there) && there.is_same_folder(&own));
        for path in [".", "a", "a/f", "b", "link", "../x", "/etc/passwd", "a/f/g"] {
            assert_eq!(there.stat(path), own.stat(path), "{path}");
            assert_eq!(there.list(path), own.list(path), "{path}");
            assert_eq!(there.file(path).map(drop), own.file(path).map(drop), "{path}");
        }
        let mut text = String::new();
        there.file("a/f").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        assert_eq!(lent(8).stat("a"), Err(Errno::InputOutput));
    }
}
