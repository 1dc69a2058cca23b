//! Saves what a program displayed as files for other programs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
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
    let drawn =
        png.zip(protocol()).and_then(|((_, png), protocol)| drawn(png.as_bytes(), protocol));
    let Some(drawn) = drawn else { return Ok(false) };
    let mut stdout = io::stdout().lock();
    stdout.write_all(drawn.as_bytes()).and_then(|()| stdout.flush())?;
    Ok(true)
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

// Shows images in terminals that can: by kitty's graphics protocol, or by iTerm2's.
//
// The terminal is known by environment variables. A program's image goes to it as base64, which can be
// nothing else there. What is no PNG, or too large, isn't shown.

/// The variable that names the protocol, or `none`, where this guesses wrong.
const VARIABLE: &str = "HATCHERY_PICTURES";
/// The largest picture that is shown: in bytes, and in pixels of a side.
const MOST_BYTES: usize = 16 << 20;
const LONGEST_SIDE: u32 = 10_000;
/// Characters of base64 in one piece, as kitty's protocol says.
const PIECE: usize = 4096;

/// How a terminal takes pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Kitty,
    Iterm,
}

/// Returns how standard output takes images; `None` if it takes none, as far as is known.
fn protocol() -> Option<Protocol> {
    io::stdout().is_terminal().then(|| known(|name| std::env::var(name).ok())).flatten()
}

fn known(variable: impl Fn(&str) -> Option<String>) -> Option<Protocol> {
    let value = |name| variable(name).unwrap_or_default();
    match value(VARIABLE).as_str() {
        "kitty" => return Some(Protocol::Kitty),
        "iterm2" => return Some(Protocol::Iterm),
        "" => {}
        _ => return None,
    }
    let term = value("TERM");
    // Multiplexers pass on what their terminals say, but only those pictures that they know.
    let is_multiplexed =
        !value("TMUX").is_empty() || term.starts_with("screen") || term.starts_with("tmux");
    match (term.as_str(), value("TERM_PROGRAM").as_str(), value("LC_TERMINAL").as_str()) {
        ("" | "dumb" | "linux", _, _) => None,
        _ if is_multiplexed => None,
        ("xterm-kitty" | "xterm-ghostty", _, _) | (_, "ghostty", _) => Some(Protocol::Kitty),
        (_, "iTerm.app" | "WezTerm" | "mintty" | "vscode", _) | (_, _, "iTerm2") => {
            Some(Protocol::Iterm)
        }
        _ if !value("KITTY_WINDOW_ID").is_empty() => Some(Protocol::Kitty),
        _ => None,
    }
}

/// Returns what shows a PNG, with a line end behind it; `None` if it isn't shown.
fn drawn(png: &[u8], protocol: Protocol) -> Option<String> {
    let header = png.strip_prefix(b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR")?;
    let side = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
    let fits = |side: u32| (1..=LONGEST_SIDE).contains(&side);
    if png.len() > MOST_BYTES || !fits(side(0)?) || !fits(side(4)?) {
        return None;
    }
    let base64 = || BASE64_STANDARD.encode(png);
    let mut drawn = String::new();
    match protocol {
        Protocol::Kitty => {
            let text = base64();
            let pieces = text.len().div_ceil(PIECE);
            for number in 1..=pieces {
                let start = (number - 1) * PIECE;
                let piece = &text[start..text.len().min(start + PIECE)];
                let keys = if number == 1 { "a=T,f=100,q=2," } else { "" };
                let goes_on = u8::from(number < pieces);
                // Writing to a string never fails.
                let _ = write!(drawn, "\x1b_G{keys}m={goes_on};{piece}\x1b\\");
            }
        }
        Protocol::Iterm => {
            let (bytes, text) = (png.len(), base64());
            let _ = write!(drawn, "\x1b]1337;File=inline=1;size={bytes}:{text}\x07");
        }
    }
    drawn.push('\n');
    Some(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32, more: usize) -> Vec<u8> {
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        png.extend(width.to_be_bytes());
        png.extend(height.to_be_bytes());
        png.extend(vec![7; more]);
        png
    }

    #[test]
    fn a_large_picture_goes_to_kitty_in_pieces() {
        let png = png(10, 10, 10_000);
        let drawn = drawn(&png, Protocol::Kitty).unwrap();
        let pieces: Vec<&str> = drawn.trim_end().split_terminator("\x1b\\").collect();
        assert_eq!(pieces.len(), 4);
        assert!(
            pieces[0].starts_with("\x1b_Ga=T,f=100,q=2,m=1;")
                && pieces[3].starts_with("\x1b_Gm=0;")
        );
        let text: String =
            pieces.iter().filter_map(|piece| Some(piece.split_once(';')?.1)).collect();
        assert_eq!(BASE64_STANDARD.decode(text).unwrap(), png);
    }

    #[test]
    fn iterm_gets_a_picture_at_once() {
        let png = png(10, 10, 100);
        let drawn = drawn(&png, Protocol::Iterm).unwrap();
        let text = drawn.strip_prefix("\x1b]1337;File=inline=1;size=124:").unwrap();
        let text = text.strip_suffix("\x07\n").unwrap();
        assert_eq!(BASE64_STANDARD.decode(text).unwrap(), png);
    }

    #[test]
    fn what_is_no_picture_is_not_shown() {
        for wrong in [&b"GIF89a"[..], b"", b"\x89PNG\r\n\x1a\n", &png(0, 1, 9), &png(1, 20_000, 9)]
        {
            for protocol in [Protocol::Kitty, Protocol::Iterm] {
                assert_eq!(drawn(wrong, protocol), None);
            }
        }
    }

    #[test]
    fn terminals_are_known_by_their_variables() {
        let [kitty, iterm] = [Protocol::Kitty, Protocol::Iterm].map(Some);
        for (variables, expected) in [
            (&[("TERM", "xterm-kitty")][..], kitty),
            (&[("TERM", "xterm"), ("KITTY_WINDOW_ID", "1")], kitty),
            (&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "iTerm.app")], iterm),
            (&[("TERM", "xterm-256color"), ("LC_TERMINAL", "iTerm2")], iterm),
            (&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "WezTerm")], iterm),
            (&[("TERM", "xterm-256color")], None),
            (&[("TERM", "tmux-256color"), ("LC_TERMINAL", "iTerm2")], None),
            (&[("TERM", "dumb")], None),
            (&[], None),
            (&[("TERM", "xterm-kitty"), ("HATCHERY_PICTURES", "none")], None),
            (&[("HATCHERY_PICTURES", "iterm2")], iterm),
        ] {
            let of = |name: &str| {
                let found = variables.iter().find(|(of, _)| *of == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(known(of), expected, "{variables:?}");
        }
    }
}
