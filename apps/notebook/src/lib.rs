//! Runs Jupyter notebooks in sessions of a Hatchery pool.
//!
//! [`Notebook`] reads and writes the files. [`run`] runs one of them and puts the outputs into it,
//! and [`Report`] says how that ended. [`guest`], the package that a session installs first, gives
//! cells what IPython does. A Jupyter kernel uses the same package. [`CellEvent`] is what one
//! cell's job reports, and [`Outputs`] collects such events as nbformat has them.
#![forbid(unsafe_code)]

pub use check::{Difference, Unmarked, compare};
pub use document::{CodeCell, InvalidNotebook, Notebook};
pub use error::Error;
pub use event::{CellEvent, Interrupts, Observer, Progress, end_by, joined};
pub use guest::Prepared;
pub use outputs::{Outputs, Update};
pub use places::{Places, check_place};
pub use prefixes::PrefixCache;
pub use problem::{Problem, remarks};
pub use report::{NotebookEnd, Report, Resumption};
pub use runner::run;
pub use settings::{Settings, Task};

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
mod saved;
mod settings;
