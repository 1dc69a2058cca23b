//! A session in this worker's pool: opened from its stored state, and saved again after a turn.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use hatchery::{Error, Hatchery, Session};

/// Tells the files and sessions of this process apart.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// An open session of the pool.
#[derive(Debug)]
pub(super) struct LocalCopy {
    session: Session,
}

/// Why a state isn't a session of the pool.
#[derive(Debug)]
pub(super) enum NotOpen {
    /// The pool refuses, or the state is of another image.
    Pool(Error),
    /// The file can't be written.
    File(std::io::Error),
}

impl LocalCopy {
    /// Opens a session: a fresh one on the build of this name, or one that continues from the bytes of
    /// a state. `folder` is for a file meanwhile.
    pub(super) async fn open(
        pool: &Hatchery,
        folder: &Path,
        state: Option<Vec<u8>>,
        python: Option<&str>,
    ) -> Result<Self, NotOpen> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Sessions of the pool have no such names otherwise: this worker opens them all.
        let name = format!("turns {number}");
        let opened = match (state, python) {
            (None, None) => pool.session(&name).await,
            (None, Some(python)) => pool.session_on(&name, python).await,
            (Some(bytes), _) => {
                let path = folder.join(format!("{number}.session"));
                tokio::fs::write(&path, bytes).await.map_err(NotOpen::File)?;
                let revived = pool.revive(&name, &path).await;
                let _ = tokio::fs::remove_file(&path).await;
                revived
            }
        };
        Ok(Self { session: opened.map_err(NotOpen::Pool)? })
    }

    /// Returns the session.
    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the bytes of its state, which [`Self::open`] takes.
    pub(super) async fn saved(&self, folder: &Path) -> Result<Vec<u8>, NotOpen> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{number}.session"));
        self.session.save(&path).await.map_err(NotOpen::Pool)?;
        let bytes = tokio::fs::read(&path).await.map_err(NotOpen::File);
        let _ = tokio::fs::remove_file(&path).await;
        bytes
    }

    /// Closes it, and drops its state.
    pub(super) fn close(self) {
        self.session.close();
    }
}

impl std::fmt::Display for NotOpen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pool(error) => write!(formatter, "{}", hatchery::error::chain(error)),
            Self::File(error) => {
                write!(formatter, "can't use the folder for temporary files: {error}")
            }
        }
    }
}
