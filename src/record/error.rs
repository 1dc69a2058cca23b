//! Why a session can't be recorded, or a recording not be used.

use std::io;
use std::path::PathBuf;

use engine::Cause;

/// A session or a job can't be recorded, or a recording can't be read or replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file can't be created, read or written.
    #[error("can't {action} the recording `{}`", path.display())]
    File {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
    /// The file is no recording.
    #[error("`{}` isn't a recording: {detail}", path.display())]
    NotARecording {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The recording was changed after it was written.
    #[error(
        "the recording `{}` is damaged in the {bytes} bytes from byte {at}: {detail}; what stands \
         before byte {at} is unchanged", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damaged record begins.
        at: u64,
        /// How long it is, or what is left of the file.
        bytes: u64,
        /// What is wrong with it.
        detail: &'static str,
    },
    /// An earlier turn couldn't be written, so nothing more is recorded.
    #[error("the recording can't go on, and so no further job runs")]
    Stopped(#[source] Cause),
    /// The session began with the machine's clock and random numbers.
    #[error(
        "the session began with the machine's clock and random numbers, so it can't be repeated: \
         record it from its first job on"
    )]
    NotDeterministic,
    /// The session is being recorded already.
    #[error("the session is recorded already")]
    Twice,
    /// The recording has no such turn.
    #[error("the recording has no turn {turn}: it has {turns}")]
    NoTurn {
        /// The turn that was asked for.
        turn: usize,
        /// How many it has.
        turns: usize,
    },
    /// The state after this turn isn't known.
    #[error(
        "the state after turn {turn} can't be had: turn {ended} can't be repeated ({reason}), and \
         the recording has no state between the two"
    )]
    NoState {
        /// The turn that was asked for.
        turn: usize,
        /// The turn that can't be repeated.
        ended: usize,
        /// Why.
        reason: String,
    },
    /// The recording has no session, but jobs that ran on their own.
    #[error("the recording has jobs that ran on their own, so there is no state to continue from")]
    NoSession,
    /// The recording needs another image.
    #[error(
        "the recording needs the image {there}, and this one is {here}: replay it with the same \
         Hatchery, packages, preloads and setup (preloads there: {preload}; packages there: \
         {packages})"
    )]
    OtherImage {
        /// The key of the image there.
        there: String,
        /// The key of this image.
        here: String,
        /// The modules that were imported there.
        preload: String,
        /// The packages that were added there.
        packages: String,
    },
}
