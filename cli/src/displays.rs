//! Saves what a program displayed as files for other programs.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use hatchery::files::{ChangeKind, ChangedFile};
use hatchery::outcome::{MimeBundle, MimeData};
use hatchery::{Outcome, Verdict};

use crate::terminal;

/// The file extension of each type. Forms of other types aren't saved.
const EXTENSIONS: [(&str, &str); 10] = [
    ("text/plain", "txt"),
    ("text/html", "html"),
    ("text/markdown", "md"),
    ("text/latex", "tex"),
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/gif", "gif"),
    ("image/svg+xml", "svg"),
    ("application/pdf", "pdf"),
    ("application/json", "json"),
];

/// Returns whether one of the forms is an image.
pub(crate) fn has_image(bundle: &MimeBundle) -> bool {
    bundle.iter().any(|(name, _)| name.starts_with("image/"))
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
    let shown = displays.chain(value).filter(|(_, bundle)| !files_of(bundle).is_empty());
    shown.map(|(stem, bundle)| (stem, bundle.clone())).collect()
}

/// Adds displays to a folder, as `display-1`, `result-1` and so on with the first free numbers.
/// Returns the files.
pub(crate) fn add(shown: &[(&str, MimeBundle)], folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for (stem, bundle) in shown {
        let stem = folder.join(free_stem(stem, folder));
        for (extension, data) in files_of(bundle) {
            let path = stem.with_extension(extension);
            let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
            file.write_all(data.as_bytes())?;
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Returns the stem with the first number that no file in the folder has.
fn free_stem(stem: &str, folder: &Path) -> String {
    let is_free = |stem: &String| {
        let mut names = EXTENSIONS.iter().map(|(_, extension)| format!("{stem}.{extension}"));
        names.all(|name| folder.join(name).symlink_metadata().is_err())
    };
    let mut stems = (1..).map(|number: u64| format!("{stem}-{number}"));
    stems.find(is_free).expect("numbers go on")
}

/// Returns each display as files, and the result if it is more than text.
pub(crate) fn files(outcome: &Outcome) -> Vec<ChangedFile> {
    let numbered = outcome.displays.iter().zip(1_u32..);
    let displays = numbered.map(|(display, number)| (format!("display-{number}"), display));
    let result = match &outcome.verdict {
        Verdict::Completed { bundle, .. } => Some(("result".to_owned(), bundle)),
        _ => None,
    };
    let bundles = displays.chain(result);
    let files = bundles.flat_map(|(stem, bundle)| {
        files_of(bundle).into_iter().map(move |(extension, data)| {
            let path = format!("{stem}.{extension}");
            ChangedFile::new(path, ChangeKind::Created, data.as_bytes())
        })
    });
    files.collect()
}

/// Returns the forms to save with their extensions; plain text only if there is no other form.
fn files_of(bundle: &MimeBundle) -> Vec<(&'static str, &MimeData)> {
    let known = |(name, data)| {
        let found = EXTENSIONS.iter().find(|(of, _)| *of == name);
        found.map(|(_, extension)| (*extension, data))
    };
    let mut files: Vec<_> = bundle.iter().filter_map(known).collect();
    if files.len() > 1 {
        files.retain(|(extension, _)| *extension != "txt");
    }
    files
}
