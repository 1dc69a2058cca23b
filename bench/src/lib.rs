//! Measures what Hatchery does on a machine, in a minute.
//!
//! [`measure`] fills a [`Report`] in rounds, each of which takes some samples of every [`Figure`], so
//! that a busy minute of the machine meets all of them. Nothing is estimated: a figure has the samples
//! of at least five rounds, or isn't reported. Not measured: fetching and compiling the Python build,
//! which happens once on a machine.
//!
//! ```no_run
//! use bench::{Report, Settings, measure};
//! use hatchery::Hatchery;
//!
//! # async fn example() -> Result<(), bench::Error> {
//! let settings = Settings::quick();
//! let mut report = Report::new(&settings);
//! measure(&mut report, &settings, Hatchery::builder, |_elapsed| {}).await?;
//! println!("{:#}", report.json());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub use error::Error;
pub use figures::{Figure, Ratio, Samples};
pub use machine::{Machine, Python3};
pub use measure::measure;
pub use report::{Build, Report, Sections};
pub use settings::Settings;
pub use spread::{Spread, Unit};

mod children;
mod clock;
mod error;
mod figures;
mod machine;
mod measure;
mod report;
mod rounds;
mod settings;
mod spread;
