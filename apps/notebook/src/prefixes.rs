//! States after cells, kept so that a notebook which begins like another one runs only from its
//! first different cell on.
//!
//! A state is known by a digest of all that it depends on: the image, the input files, the folders of
//! the host (`folders.rs`), the limits, and the sources of the cells so far (`key.rs`). Within one command, notebooks share states in
//! memory, and run a common cell once (`shared.rs`). Between commands, states are files in a folder
//! with a bound (`shelf.rs`).
//!
//! What a digest can't cover makes a notebook run from its start: folders that are too large, and
//! whatever programs may connect to. Clocks and random numbers are not covered either: a cell that isn't run
//! again shows what it showed.

use std::path::PathBuf;
use std::sync::Arc;

use self::folders::Folders;
use self::shared::Shared;
use self::shelf::Shelf;

pub(crate) mod folders;
pub(crate) mod key;
pub(crate) mod shared;
pub(crate) mod shelf;
pub(crate) mod state;

/// The states that the notebooks of a command share, and those of earlier commands.
///
/// Default bounds: 1 GiB and 1,000 states on disk, 64 states in memory.
#[derive(Debug)]
pub struct Prefixes {
    pub(crate) shared: Shared,
    pub(crate) shelf: Option<Arc<Shelf>>,
    pub(crate) folders: Folders,
}

impl Prefixes {
    /// Shares states only among the notebooks of this command.
    pub fn in_memory() -> Self {
        Self { shared: Shared::default(), shelf: None, folders: Folders::default() }
    }

    /// Also keeps states in this folder, which is created if it doesn't exist, up to so many bytes.
    /// The states that weren't used for the longest time go first. `0` keeps none, and uses none.
    pub fn in_folder(folder: PathBuf, most_bytes: u64) -> Self {
        let shelf = (most_bytes > 0).then(|| Arc::new(Shelf::new(folder, most_bytes)));
        Self { shared: Shared::default(), shelf, folders: Folders::default() }
    }
}
