//! How a host function fails, and what of that the program learns.

use std::fmt::{Debug, Formatter};

/// How a host function failed.
///
/// One that [`new`](Self::new) makes is for the program: it raises an exception of that type with
/// that message. Any other error, such as one that `?` passes on, is the host's: the program learns
/// only that the function failed, and the host's log has the text.
///
/// ```
/// # use engine::HostError;
/// fn stock(item: &str) -> Result<u64, HostError> {
///     match item {
///         "chair" => Ok("12".parse()?),
///         _ => Err(HostError::new("KeyError", item)),
///     }
/// }
/// # assert_eq!(stock("chair").unwrap(), 12);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct HostError {
    type_name: String,
    message: String,
    is_public: bool,
}

/// The type of exceptions that say only that a host function failed.
pub(super) const FAILURE: &str = "HostFunctionError";
/// The type of exceptions for calls beyond a limit.
pub(super) const LIMIT: &str = "HostLimitError";

impl HostError {
    /// An error that the program learns of: an exception of Python's own type of this name, such as
    /// `ValueError`, or else of a new subclass of `hatchery.HostFunctionError`, whose `type` is this
    /// name.
    pub fn new(type_name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { type_name: type_name.into(), message: message.into(), is_public: true }
    }

    /// An error whose text stays with the host, in its log.
    pub fn private(message: impl Into<String>) -> Self {
        Self { type_name: FAILURE.to_owned(), message: message.into(), is_public: false }
    }

    /// Its text, whoever may see it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What the program learns of it: the type and the message.
    pub(super) fn told(self, function: &str) -> (String, String) {
        let Self { type_name, message, is_public } = self;
        if is_public {
            return (type_name, message);
        }
        tracing::warn!(function, message, "a host function failed");
        (type_name, format!("the host function `{function}` failed"))
    }
}

impl Debug for HostError {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { type_name, message, is_public } = self;
        let way = if *is_public { "public" } else { "private" };
        write!(formatter, "{type_name}({message:?}), {way}")
    }
}

/// Not an error type itself, so that every error type can become one.
impl<E: std::error::Error> From<E> for HostError {
    fn from(error: E) -> Self {
        Self::private(error.to_string())
    }
}
