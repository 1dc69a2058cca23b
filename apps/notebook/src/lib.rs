//! Runs Jupyter notebooks in sessions of a Hatchery pool.
//!
//! [`Notebook`] reads and writes the files, [`run`] runs one of them and puts the outputs into it,
//! and [`Report`] says how that ended. Cells get what IPython gives them by [`guest`], the package
//! that a session installs first; a Jupyter kernel uses the same package. [`CellEvent`] is what one
//! cell's job reports, and [`Outputs`] collects such events as nbformat has them.
#![forbid(unsafe_code)]

pub use check::{Difference, Error, Problem, Unmarked, compare, remarks};
pub use document::{CodeCell, InvalidNotebook, Notebook};
pub use event::{CellEvent, Interrupts, Observer, Progress, joined};
pub use guest::Prepared;
pub use outputs::{Outputs, Update};
pub use prefixes::PrefixCache;
pub use report::{NotebookEnd, Report, Resumption};
pub use runner::run;
pub use settings::{Places, Settings, Task, check_place};

mod check;
mod document;
mod event;
pub mod guest;
pub mod html;
mod outputs;
pub mod parameters;
mod prefixes;
mod report;
mod runner;
mod settings;
