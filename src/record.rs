//! Recordings of sessions and jobs, which anyone can run again.
//!
//! A recording is one file that other programs can read, too: the repository's docs/recordings.md
//! has the format. It holds each turn's program with its inputs, what answered its host calls and
//! requests, its outcome, and states from which a replay can begin.
//!
//! ```no_run
//! # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
//! use hatchery::record::{RecordingFile, Verified};
//!
//! let recording = RecordingFile::open("analysis.recording").await?;
//! for turn in recording.turns() {
//!     println!("{}: {}", turn.number(), turn.code());
//! }
//! recording.verify(&pool, |turn, verified| match verified {
//!     Verified::Equal => println!("{}: equal", turn.number()),
//!     Verified::Taken(reason) => println!("{}: from the recording ({reason})", turn.number()),
//!     Verified::Differs(parts) => println!("{}: {} parts differ", turn.number(), parts.len()),
//!     _ => {}
//! })
//! .await?;
//! # Ok(())
//! # }
//! ```

pub use error::RecordError;
pub use replay::{DifferentPart, RecordedTurn, RecordingFile, Verified};
pub use sessions::{RecordFolder, Recorder};

pub(crate) mod error;
mod format;
pub(crate) mod recorders;
mod replay;
mod sessions;
mod turn;
pub(crate) mod writer;
