//! The subcommands.

pub(crate) mod batch;
pub(crate) mod bench;
pub(crate) mod cache;
pub(crate) mod grade;
pub(crate) mod image;
pub(crate) mod kernel;
pub(crate) mod mcp;
mod nats;
pub(crate) mod notebook;
pub(crate) mod python;
pub(crate) mod repl;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod shell;
pub(crate) mod tool;
pub(crate) mod top;
pub(crate) mod worker;
