//! The subcommands.

pub(crate) mod batch;
pub(crate) mod python;
pub(crate) mod run;
