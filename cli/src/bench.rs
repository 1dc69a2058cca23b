//! What `hatchery bench` measures on a machine, in a minute.
//!
//! [`measure`] fills a [`Report`] in rounds, each of which takes some samples of every [`Figure`], so
//! that a busy minute of the machine meets all of them. Nothing is estimated: a figure has the samples
//! of at least five rounds, or isn't reported. Not measured: fetching and compiling the Python build,
//! which happens once on a machine.

pub(crate) use report::{Report, Sections, measure};
pub(crate) use setup::BenchSettings;

mod figures;
mod report;
mod rounds;
mod setup;
