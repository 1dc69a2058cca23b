//! Links between the Markdown files of this repository, and the guide's table of contents. Links to
//! other sites aren't followed.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Markdown files at the root and below `docs/`, with their paths from the root.
fn documents() -> Vec<PathBuf> {
    let mut documents = Vec::new();
    for folder in ["", "docs", "docs/guide"] {
        for entry in fs::read_dir(root().join(folder)).unwrap().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "md") {
                documents.push(Path::new(folder).join(entry.file_name()));
            }
        }
    }
    assert!(documents.len() > 15, "the documents moved");
    documents
}

fn read(document: &Path) -> String {
    fs::read_to_string(root().join(document)).unwrap()
}

fn parse(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// Where the links of a document lead, as they are written there.
fn targets(text: &str) -> Vec<String> {
    let target = |event| match event {
        Event::Start(Tag::Link(_, target, _) | Tag::Image(_, target, _)) => {
            Some(target.into_string())
        }
        _ => None,
    };
    parse(text).filter_map(target).collect()
}

/// The anchors of a document's headings, as GitHub and mdBook name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in parse(text) {
        match event {
            Event::Start(Tag::Heading(_)) => heading = Some(String::new()),
            Event::End(Tag::Heading(_)) => {
                let kept = |c: char| c.is_alphanumeric() || "-_ ".contains(c);
                let title = heading.take().unwrap_or_default().to_lowercase();
                let anchor = title.chars().filter(|&c| kept(c)).collect::<String>();
                assert!(anchors.insert(anchor.replace(' ', "-")), "two headings `{title}`");
            }
            Event::Text(piece) | Event::Code(piece) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&piece);
                }
            }
            _ => {}
        }
    }
    anchors
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path {
        match part.to_str() {
            Some("..") => assert!(plain.pop(), "{} leads out of the repository", path.display()),
            Some(".") => {}
            _ => plain.push(part),
        }
    }
    plain
}

#[test]
fn every_relative_link_leads_somewhere() {
    for document in documents() {
        for target in targets(&read(&document)) {
            if target.contains("://") {
                continue;
            }
            let says = format!("{}: `{target}`", document.display());
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let folder = document.parent().unwrap();
            let linked = if path.is_empty() { document.clone() } else { plain(&folder.join(path)) };
            assert!(root().join(&linked).exists(), "{says} isn't there");
            assert!(
                !document.starts_with("docs") || linked.starts_with("docs"),
                "{says} leads out of the book"
            );
            if !anchor.is_empty() {
                assert!(anchors(&read(&linked)).contains(anchor), "{says} has no such heading");
            }
        }
    }
}

#[test]
fn every_page_is_in_the_table_of_contents_once() {
    let listed = targets(&read(Path::new("docs/SUMMARY.md")));
    let unique: BTreeSet<PathBuf> =
        listed.iter().map(|path| Path::new("docs").join(path)).collect();
    assert_eq!(unique.len(), listed.len(), "{listed:?}");
    let is_page = |path: &PathBuf| path.starts_with("docs") && !path.ends_with("SUMMARY.md");
    let pages: BTreeSet<PathBuf> = documents().into_iter().filter(is_page).collect();
    assert_eq!(unique, pages);
}

#[test]
fn the_readme_is_one_page() {
    let characters = read(Path::new("README.md")).chars().count();
    assert!(characters <= 8_000, "{characters} characters");
}

#[test]
fn the_glossary_explains_each_word_once() {
    let text = read(Path::new("docs/guide/glossary.md"));
    let mut words = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("**")) {
        for word in line.split(':').next().unwrap().split("**").skip(1).step_by(2) {
            assert!(words.insert(word.to_lowercase()), "`{word}` is explained twice");
        }
    }
    assert!(words.len() > 40, "{words:?}");
}
