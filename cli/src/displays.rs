//! Keeps what a program showed as files that other programs open.

use std::fs;
use std::path::Path;

use hatchery::{MimeBundle, MimeData, Outcome, Verdict};

use crate::terminal;

/// What files of each type are called. Forms of other types aren't kept.
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

/// Whether one of its forms is an image.
pub(crate) fn has_image(bundle: &MimeBundle) -> bool {
    bundle.iter().any(|(name, _)| name.starts_with("image/"))
}

/// Says that there are images which nobody sees.
pub(crate) fn mention(outcome: &Outcome) {
    let count = outcome.displays.iter().filter(|display| has_image(display)).count();
    if count > 0 {
        let images = if count == 1 { "an image".to_owned() } else { format!("{count} images") };
        terminal::note(format_args!(
            "the program showed {images}; keep such things with --save-displays DIR"
        ));
    }
}

/// Writes each display, and the result if it is more than text. Returns whether all were written.
pub(crate) fn keep(outcome: &Outcome, folder: &Path) -> bool {
    let numbered = outcome.displays.iter().zip(1_u32..);
    let mut bundles: Vec<(String, &MimeBundle)> =
        numbered.map(|(display, number)| (format!("display-{number}"), display)).collect();
    if let Verdict::Completed { bundle, .. } = &outcome.verdict {
        bundles.push(("result".to_owned(), bundle));
    }
    let mut are_kept = true;
    for (stem, bundle) in bundles {
        for (extension, data) in files_of(bundle) {
            let path = folder.join(format!("{stem}.{extension}"));
            if let Err(error) = fs::write(&path, data.as_bytes()) {
                terminal::note(format_args!("can't write `{}`: {error}", path.display()));
                are_kept = false;
            }
        }
    }
    are_kept
}

/// The forms that are kept, with their extensions: the plain text only where there is no other.
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
