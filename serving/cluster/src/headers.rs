//! Headers of messages.

/// What a submitter wants beside the result: a list of the words below.
pub(crate) const WANTS: &str = "Hatchery-Wants";
pub(crate) const WANTS_EVENTS: &str = "events";
pub(crate) const WANTS_FILES: &str = "files";
/// Which of the jobs with the same text in its batch this is, from 0. The job's key is made of it.
pub(crate) const NTH: &str = "Hatchery-Nth";
/// Names the object that has the text of the message.
pub(crate) const OBJECT: &str = "Hatchery-Object";
/// Which worker has stored a result.
pub(crate) const WORKER: &str = "Hatchery-Worker";
/// The starts of a dead letter.
pub(crate) const HISTORY: &str = "Hatchery-History";
/// The name of the session whose turn the message is.
pub(crate) const SESSION: &str = "Hatchery-Session";
