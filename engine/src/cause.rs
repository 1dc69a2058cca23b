//! Causes: errors that clones share, and the text of an error with all its causes.

use std::error::Error;
use std::fmt::{self, Display};
use std::sync::Arc;

/// An error as the cause of another one. Clones share it.
///
/// It reads as that error does and has the same causes, so it adds nothing to a chain. Outcomes,
/// events and refusals keep their causes in this form, since they are cloned and most errors can't
/// be. Between processes it goes as its text and those of its causes.
#[derive(Clone, derive_more::Debug, derive_more::Display, serde::Serialize, serde::Deserialize)]
#[debug("{error:?}")]
#[display("{error}")]
#[serde(into = "Vec<String>", from = "Vec<String>")]
pub struct Cause {
    error: Arc<dyn Error + Send + Sync>,
}

#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Step {
    message: String,
    #[source]
    cause: Cause,
}

impl Cause {
    /// Keeps an error, or a text that says what happened.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { error: Arc::from(error.into()) }
    }

    /// Keeps an error as the cause of what `message` says.
    pub fn because(
        message: impl Into<String>,
        error: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::new(Step { message: message.into(), cause: Self::new(error) })
    }

    /// Returns the error if it is an `E`.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.error.downcast_ref()
    }
}

impl Error for Cause {
    /// Some libraries print the cause at the end of the message and return it here as well. Such a
    /// cause is left out, since the message has said it.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let message = self.error.to_string();
        causes(&*self.error).find(|cause| !message.ends_with(&cause.to_string()))
    }
}

/// Two causes are equal if they read the same, with all their causes.
impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.error, &other.error)
            || chain(self).to_string() == chain(other).to_string()
    }
}

impl Eq for Cause {}

impl From<&str> for Cause {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Cause {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<Cause> for Vec<String> {
    fn from(cause: Cause) -> Self {
        std::iter::once(cause.to_string()).chain(causes(&cause).map(ToString::to_string)).collect()
    }
}

impl From<Vec<String>> for Cause {
    fn from(steps: Vec<String>) -> Self {
        let mut steps = steps.into_iter().rev();
        let first = Self::new(steps.next().unwrap_or_else(|| "it didn't say why".to_owned()));
        steps.fold(first, |cause, step| Self::because(step, cause))
    }
}

/// Returns the text of an error with all its causes: `message: cause: cause of that`.
///
/// The message of an error leaves its cause to [`source`](Error::source), so printing the error
/// alone doesn't say why it happened.
pub fn chain<'a>(error: &'a (dyn Error + 'a)) -> impl Display + use<'a> {
    fmt::from_fn(move |formatter| {
        write!(formatter, "{error}")?;
        causes(error).try_for_each(|cause| write!(formatter, ": {cause}"))
    })
}

/// Returns the causes of an error, the nearest first.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'a),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// An error that breaks the rule, as those of some libraries do.
    #[derive(Debug, thiserror::Error)]
    #[error("i/o error: {0}")]
    struct Repeating(#[source] io::Error);

    #[test]
    fn a_chain_says_each_cause_once() {
        let full = || io::Error::other("the disk is full");
        let suspended = Cause::because("the state can't be suspended", full());
        let lost = Cause::because("the session is lost", suspended.clone());
        let text = "the session is lost: the state can't be suspended: the disk is full";
        assert_eq!(chain(&lost).to_string(), text);
        assert_eq!(lost.to_string(), "the session is lost");
        let repeating = Cause::because("can't unpack", Repeating(full()));
        assert_eq!(chain(&repeating).to_string(), "can't unpack: i/o error: the disk is full");
        assert_eq!(chain(&Cause::from("it was closed")).to_string(), "it was closed");
    }

    #[test]
    fn a_cause_is_the_error_that_it_keeps() {
        let cause = Cause::new(io::Error::from(io::ErrorKind::NotFound));
        let kept = cause.clone().downcast_ref().map(io::Error::kind);
        assert_eq!(kept, Some(io::ErrorKind::NotFound));
        assert_eq!(cause, Cause::from(cause.to_string()));
        assert_ne!(cause, Cause::because(cause.to_string(), "why"));
    }
}
