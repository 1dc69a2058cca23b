//! What is done with the outputs once a notebook has ended: they are compared with those in the file,
//! and go into a report.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use ::notebook::html::{Part, page};
use ::notebook::{Difference, Error, Report, Unmarked, compare};
use anyhow::Context;
use hatchery::Hatchery;
use replace::{Access, replace};

use super::summary::{Tally, described};
use crate::args::{Checked, NotebookArguments};
use crate::exit::UsageError;

/// The comparison and the report, as far as the user wants them.
pub(super) struct After {
    pool: Hatchery,
    check: Option<Unmarked>,
    /// The text of a file of patterns.
    patterns: Option<String>,
    html: Option<PathBuf>,
    /// The parts of the report, by the places of the notebooks.
    parts: BTreeMap<usize, Part>,
}

impl After {
    pub(super) fn new(arguments: &NotebookArguments, pool: Hatchery) -> anyhow::Result<Self> {
        let patterns = arguments.sanitize_with.as_ref().map(|file| {
            let unusable =
                || UsageError(format!("can't read the patterns in `{}`", file.display()));
            fs::read_to_string(file).with_context(unusable)
        });
        let check = arguments.check.map(|checked| match checked {
            Checked::All => Unmarked::Checked,
            Checked::Marked => Unmarked::Ignored,
        });
        let html = arguments.html.clone();
        Ok(Self { pool, check, patterns: patterns.transpose()?, html, parts: BTreeMap::new() })
    }

    /// Compares the outputs of a notebook that didn't fail; `None` if the user doesn't want that.
    pub(super) async fn differences(
        &self,
        report: &Report,
    ) -> anyhow::Result<Option<Vec<Difference>>> {
        let Some(unmarked) = self.check else { return Ok(None) };
        if !report.end.is_success() {
            return Ok(Some(Vec::new()));
        }
        let patterns = self.patterns.as_deref();
        match compare(&self.pool, &report.notebook, unmarked, patterns).await {
            Ok(differences) => Ok(Some(differences)),
            Err(Error::Pool(error)) => Err(error.into()),
            Err(error) => Err(UsageError(error.to_string()).into()),
        }
    }

    /// Adds a notebook to the report.
    pub(super) fn add(
        &mut self,
        place: usize,
        name: &str,
        report: &Report,
        differences: Option<&[Difference]>,
    ) {
        if self.html.is_some() {
            let remarks: Vec<String> =
                differences.unwrap_or_default().iter().map(described).collect();
            self.parts.insert(place, Part::new(name, report, &remarks));
        }
    }

    /// Writes the report.
    pub(super) fn write(&self, tally: &Tally) -> anyhow::Result<()> {
        let Some(file) = &self.html else { return Ok(()) };
        let page = page(&tally.to_string(), self.parts.values());
        replace(file, Access::AsBefore, |target| target.write_all(page.as_bytes()))
            .with_context(|| UsageError(format!("can't write the report `{}`", file.display())))
    }
}
