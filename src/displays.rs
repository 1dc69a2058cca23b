//! What a program displayed, as files for other programs.

use engine::{ChangeKind, ChangedFile, MimeBundle, MimeData, Outcome, Verdict};

/// The file extension of each type. Forms of other types are no files.
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

/// Returns what a program displayed as files, for an [`OutputFolder`](super::files::OutputFolder):
/// each display as `display-1`, `display-2` and so on, and the value of its last expression as
/// `result`, if that is more than text; each in all of its [forms](display_forms).
pub fn display_files(outcome: &Outcome) -> Vec<ChangedFile> {
    let numbered = outcome.displays.iter().zip(1_u32..);
    let displays = numbered.map(|(display, number)| (format!("display-{number}"), display));
    let result = match &outcome.verdict {
        Verdict::Completed { bundle, .. } => Some(("result".to_owned(), bundle)),
        _ => None,
    };
    let bundles = displays.chain(result);
    let files = bundles.flat_map(|(stem, bundle)| {
        display_forms(bundle).into_iter().map(move |(extension, data)| {
            let path = format!("{stem}.{extension}");
            ChangedFile::new(path, ChangeKind::Created, data.as_bytes())
        })
    });
    files.collect()
}

/// Returns the forms of a display that can be a file, with their extensions: HTML, Markdown, LaTeX,
/// images, PDF and JSON. Plain text is among them only if there is no other form.
pub fn display_forms(bundle: &MimeBundle) -> Vec<(&'static str, &MimeData)> {
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
