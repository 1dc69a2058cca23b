//! Runs Jupyter notebooks in sessions of a Hatchery pool.
//!
//! [`Notebook`] reads and writes the files, [`run`] runs one of them and puts the outputs into it,
//! and [`Report`] says how that ended. Cells get what IPython gives them by [`guest`], the package
//! that a session installs first; a Jupyter kernel uses the same package. [`CellEvent`] is what one
//! cell's job reports, and [`Outputs`] collects such events as nbformat has them.
#![forbid(unsafe_code)]

pub use crate::error::Error;
pub use crate::places::Places;
pub use crate::places::check_place;
pub use crate::problem::Problem;
pub use crate::problem::remarks;
pub use check::Difference;
pub use check::Unmarked;
pub use check::compare;
pub use document::{CodeCell, InvalidNotebook, Notebook};
pub use event::{CellEvent, Interrupts, Observer, Progress, joined};
pub use guest::Prepared;
pub use outputs::{Outputs, Update};
pub use prefixes::PrefixCache;
pub use report::{NotebookEnd, Report, Resumption};
pub use runner::run;
pub use settings::Settings;
pub use settings::Task;

mod check;
mod document;
mod error;
mod event;
pub mod guest;
pub mod html;
mod markers;
mod outputs;
pub mod parameters;
mod places;
mod prefixes;
mod problem;
mod report;
mod runner;
mod settings;
