//! Why worker processes can't start.

use std::io;
use std::path::PathBuf;

use engine::StartError;
use pool::MissingLayer;

/// There can be no worker processes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The helper program can't be started.
    #[error("can't start `{}`, which is to run worker processes", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The helper program ran, but never became a helper.
    #[error(
        "`{}` isn't a helper for worker processes: call `hatchery::be_helper` first in its \
         `main`, or \
         name a program that does (`Helper::Program`, `$HATCHERY_HELPER`)",
        path.display()
    )]
    NoHelper {
        /// The program.
        path: PathBuf,
    },
    /// The helper couldn't load the build or its image.
    #[error("the helper for worker processes can't load the Python build: {what}")]
    Load {
        /// The helper's error.
        what: String,
    },
    /// The helper has ended, and its workers with it. Another one is started.
    #[error("the helper for worker processes has ended: {how}")]
    HelperEnded {
        /// How it has ended.
        how: String,
    },
    /// The first worker doesn't start.
    #[error("the first worker process doesn't start")]
    Worker(#[source] StartError),
    /// All layers of the wall were demanded, and the system doesn't offer some.
    #[error(
        "this system can't confine worker processes as fully as `process-strict` requires:\n{}\n\
         Change that, or use the isolation `process`, which doesn't need them",
        missing.iter().map(|layer| format!("- {layer}")).collect::<Vec<_>>().join("\n")
    )]
    Missing {
        /// What it doesn't offer.
        missing: Vec<MissingLayer>,
    },
    /// The environment asks for an isolation that doesn't exist.
    #[error(
        "`$HATCHERY_ISOLATION` can't be `{value}`: set it to `threads`, `process` or \
         `process-strict`, or unset it"
    )]
    UnknownIsolation {
        /// The variable's value.
        value: String,
    },
    /// The build lies in no file that the helper could load it from.
    #[error(
        "worker processes need a Python build in a file: this one was given as bytes; name its file \
         (`Builder::python`), or use `Isolation::Threads`"
    )]
    NoFile,
    /// The system refused something.
    #[error("worker processes need what the system refused")]
    System(#[from] io::Error),
}
