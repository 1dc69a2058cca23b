//! To come.

use super::Attempt;

pub(crate) const ATTEMPTS: &[Attempt] = &[];
