//! The subcommands.

pub(crate) mod batch;
pub(crate) mod bench;
pub(crate) mod cache;
pub(crate) mod grade;
mod guest;
pub(crate) mod image;
pub(crate) mod mcp;
pub(crate) mod notebook;
pub(crate) mod packages;
pub(crate) mod python;
pub(crate) mod repl;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod tool;
#[cfg(feature = "monitor")]
pub(crate) mod top;
