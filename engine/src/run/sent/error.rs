//! What is wrong with what another process sent.

/// What another process sent isn't what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("another process sent {what}")]
pub struct InvalidSent {
    what: String,
}

impl InvalidSent {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }

    /// As [`Self::new`], with the error that says what is wrong.
    pub(super) fn because(what: &str, error: &dyn std::error::Error) -> Self {
        Self { what: format!("{what}: {error}") }
    }
}
