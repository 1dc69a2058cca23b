//! Saves what a program displayed as files for other programs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use hatchery::files::display_forms;
use hatchery::outcome::MimeBundle;
use hatchery::{Outcome, Verdict};

use crate::terminal;

/// Returns whether one of the forms is an image.
pub(crate) fn has_image(bundle: &MimeBundle) -> bool {
    bundle.iter().any(|(name, _)| name.starts_with("image/"))
}

/// Shows a bundle's picture where the terminal takes pictures, and returns whether it did.
pub(crate) fn draw(bundle: &MimeBundle) -> io::Result<bool> {
    let png = bundle.iter().find(|(name, _)| *name == "image/png");
    png.map_or(Ok(false), |(_, png)| crate::images::draw(png.as_bytes()))
}

/// Returns how many displays are images.
pub(crate) fn images(outcome: &Outcome) -> usize {
    outcome.displays.iter().filter(|display| has_image(display)).count()
}

/// Notes images that nobody would see otherwise: all but those that were drawn.
pub(crate) fn mention(outcome: &Outcome, drawn: usize) {
    let count = images(outcome).saturating_sub(drawn);
    if count > 0 {
        let images = if count == 1 { "an image".to_owned() } else { format!("{count} images") };
        terminal::note(format_args!(
            "the program displayed {images}; save such displays with --save-displays DIR"
        ));
    }
}

/// Returns what an outcome displays beyond printed text: its displays, and its value.
pub(crate) fn shown(outcome: &Outcome) -> Vec<(&'static str, MimeBundle)> {
    let displays = outcome.displays.iter().map(|display| ("display", display));
    let value = match &outcome.verdict {
        Verdict::Completed { bundle, .. } => Some(("result", bundle)),
        _ => None,
    };
    let shown = displays.chain(value).filter(|(_, bundle)| !display_forms(bundle).is_empty());
    shown.map(|(stem, bundle)| (stem, bundle.clone())).collect()
}

/// Adds displays to a folder, as `display-1`, `result-1` and so on with the first free numbers.
/// Returns the files.
pub(crate) fn add(shown: &[(&str, MimeBundle)], folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut stems = stems(folder)?;
    let mut paths = Vec::new();
    for (stem, bundle) in shown {
        let stem = free_stem(stem, &mut stems);
        for (extension, data) in display_forms(bundle) {
            let path = folder.join(format!("{stem}.{extension}"));
            let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
            file.write_all(data.as_bytes())?;
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Returns the names in a folder without their extensions.
fn stems(folder: &Path) -> io::Result<BTreeSet<OsString>> {
    let name = |entry: io::Result<std::fs::DirEntry>| {
        let name = entry?.file_name();
        Ok(Path::new(&name).file_stem().map(OsString::from).unwrap_or_default())
    };
    folder.read_dir()?.map(name).collect()
}

/// Returns the stem with the first number that no file in the folder has, and takes it.
fn free_stem(stem: &str, taken: &mut BTreeSet<OsString>) -> String {
    let mut stems = (1..).map(|number: u64| format!("{stem}-{number}"));
    stems.find(|stem| taken.insert(stem.into())).expect("numbers go on")
}
