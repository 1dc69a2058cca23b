//! How a host function failed, and what the program learns of it.

use crate::cause::chain;

/// How a host function failed.
///
/// An error from [`new`](Self::new) is for the program: it raises an exception of that type with
/// that message. Any other error, such as one from `?`, is private to the host. The program only
/// learns that the function failed, and the host's log has the text.
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
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("{type_name}({message:?}), {}", if *is_public { "public" } else { "private" })]
pub struct HostError {
    type_name: String,
    message: String,
    is_public: bool,
}

/// The exception type of failures whose text is private.
pub(super) const FAILURE: &str = "HostFunctionError";
/// The exception type of calls beyond a limit.
pub(super) const LIMIT: &str = "HostLimitError";

impl HostError {
    /// Creates an error for the program. It is an exception of Python's built-in type with this
    /// name, such as `ValueError`. Else it is one of a new subclass of `hatchery.HostFunctionError`
    /// whose `type` is this name.
    pub fn new(type_name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { type_name: type_name.into(), message: message.into(), is_public: true }
    }

    /// Creates an error whose text stays in the host's log.
    pub fn private(message: impl Into<String>) -> Self {
        Self { type_name: FAILURE.to_owned(), message: message.into(), is_public: false }
    }

    /// Returns its text, whether it is private or not.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns what the program learns of it: the type and the message.
    pub(super) fn for_program(self, function: &str) -> (String, String) {
        let Self { type_name, message, is_public } = self;
        if is_public {
            return (type_name, message);
        }
        tracing::warn!(function, message, "a host function failed");
        (type_name, format!("the host function `{function}` failed"))
    }
}

/// `HostError` isn't an error type itself, so that every error type can become one.
impl<E: std::error::Error> From<E> for HostError {
    fn from(error: E) -> Self {
        Self::private(chain(&error).to_string())
    }
}
