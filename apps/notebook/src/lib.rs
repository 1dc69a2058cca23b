//! Runs Jupyter notebooks in sessions of a Hatchery pool.
//!
//! [`Notebook`] reads and writes the files, [`run`] runs one of them and puts the outputs into it,
//! and [`Report`] says how that ended. Cells get what IPython gives them by [`guest`], the package
//! that a session installs first; a Jupyter kernel uses the same package. [`CellEvent`] is what one
//! cell's job reports, and [`Outputs`] collects such events as nbformat has them.
#![forbid(unsafe_code)]

pub use check::{Difference, Unmarked, compare};
pub use document::{CodeCell, InvalidNotebook, Notebook};
pub use error::Error;
pub use event::{CellEvent, joined};
pub use interrupts::Interrupts;
pub use outputs::{Outputs, Update};
pub use places::{Places, check_place};
pub use prefixes::Prefixes;
pub use prepared::Prepared;
pub use problem::{Problem, remarks};
pub use progress::{Observer, Progress};
pub use report::{End, Report, Resumption};
pub use runner::run;
pub use settings::{Settings, Task};

mod ask;
mod check;
mod document;
mod error;
mod event;
pub mod guest;
pub mod html;
mod interrupts;
mod markers;
mod outputs;
pub mod parameters;
mod places;
mod prefixes;
mod prepared;
mod problem;
mod progress;
mod record;
mod report;
mod runner;
mod settings;
