//! Why a session can't be parked, attached, saved or revived.

use std::io;
use std::path::PathBuf;

/// A session can't be parked, attached, saved or revived.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The interpreter wasn't started from an image, or the state of its host can't be captured.
    #[error("this interpreter can't be parked: only those on an image can")]
    NotParkable,
    /// Threads that the session has left are still alive, and can't be copied.
    #[error("the session has {count} other threads, which can't be copied: end or `join` them")]
    Threads {
        /// Their number.
        count: usize,
    },
    /// The system refuses memory.
    #[error("the system refused to copy the session's memory")]
    Memory(#[source] io::Error),
    /// The file can't be read or written.
    #[error("can't {action} `{}`", path.display())]
    File {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
    /// The file holds no session, or is damaged.
    #[error("`{}` is no saved session, or is damaged: {detail}", path.display())]
    NotASession {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: &'static str,
    },
    /// The packed session is damaged.
    #[error("the packed session is damaged: {detail}")]
    Damaged {
        /// What is wrong with it.
        detail: &'static str,
    },
    /// The session belongs to another Python build.
    #[error(
        "`{}` was saved on the Python build {build}, and here is {here}: revive it in a pool of \
         that build", path.display()
    )]
    OtherBuild {
        /// The file.
        path: PathBuf,
        /// The build on which it was saved.
        build: String,
        /// The builds that are here.
        here: String,
    },
    /// The session belongs to another image.
    #[error(
        "`{}` was saved on image {saved} and this is {here}: revive it with the same \
         Hatchery, packages, preloads and setup (preloads there: {})", path.display(), or_none(preload)
    )]
    OtherImage {
        /// The file.
        path: PathBuf,
        /// The key of the image that it began from.
        saved: String,
        /// The key of this image.
        here: String,
        /// The modules that the session's image had imported.
        preload: Vec<String>,
    },
}

fn or_none(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}
