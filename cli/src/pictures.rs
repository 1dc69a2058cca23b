//! Shows pictures in terminals that can: by kitty's graphics protocol, by iTerm2's, or as sixels.
//!
//! kitty's and iTerm2's terminals are known by variables, those with sixels by their answer to a
//! question. A program's picture goes to the terminal as base64 or as sixels made here, neither of
//! which can be anything else there. What is no PNG, or too large, isn't shown.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::sync::OnceLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hatchery::outcome::MimeBundle;

mod attributes;
mod png;
mod sixel;

/// The variable that names the protocol, or `none`, where this guesses wrong.
const VARIABLE: &str = "HATCHERY_PICTURES";
/// The largest picture that is shown: in bytes, and in pixels of a side.
const MOST_BYTES: usize = 16 << 20;
const MOST_PIXELS: u32 = 10_000;
/// Characters of base64 in one piece, as kitty's protocol says.
const PIECE: usize = 4096;

/// How a terminal takes pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Kitty,
    Iterm,
    Sixel,
}

/// What variables say about a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Takes(Protocol),
    TakesNone,
    /// It has to be asked.
    Unknown,
}

/// Shows a picture on standard output, with a line end behind it. Returns whether it did: the bundle
/// has a PNG, and standard output is a terminal that takes pictures, as far as is known.
///
/// # Errors
/// Standard output can't be written.
pub(crate) fn draw(bundle: &MimeBundle) -> io::Result<bool> {
    let png = bundle.iter().find(|(name, _)| *name == "image/png").map(|(_, png)| png.as_bytes());
    let Some(drawn) = png.and_then(|png| drawn(png, protocol()?)) else { return Ok(false) };
    let mut stdout = io::stdout().lock();
    stdout.write_all(drawn.as_bytes()).and_then(|()| stdout.flush())?;
    Ok(true)
}

/// Returns how standard output takes pictures. The terminal is asked once.
fn protocol() -> Option<Protocol> {
    static SIXEL: OnceLock<bool> = OnceLock::new();
    if !io::stdout().is_terminal() {
        return None;
    }
    match known(|name| std::env::var(name).ok()) {
        Known::Takes(protocol) => Some(protocol),
        Known::TakesNone => None,
        Known::Unknown => {
            // If it can't be asked now, it will be for the next picture.
            let has_sixel = match SIXEL.get() {
                Some(known) => *known,
                None => {
                    let asked = attributes::has_sixel()?;
                    *SIXEL.get_or_init(|| asked)
                }
            };
            has_sixel.then_some(Protocol::Sixel)
        }
    }
}

fn known(variable: impl Fn(&str) -> Option<String>) -> Known {
    let value = |name| variable(name).unwrap_or_default();
    match value(VARIABLE).as_str() {
        "kitty" => return Known::Takes(Protocol::Kitty),
        "iterm2" => return Known::Takes(Protocol::Iterm),
        "sixel" => return Known::Takes(Protocol::Sixel),
        "" => {}
        _ => return Known::TakesNone,
    }
    let term = value("TERM");
    // Multiplexers pass on what their terminals say, but only those pictures that they know.
    let is_multiplexed =
        !value("TMUX").is_empty() || term.starts_with("screen") || term.starts_with("tmux");
    match (term.as_str(), value("TERM_PROGRAM").as_str(), value("LC_TERMINAL").as_str()) {
        ("" | "dumb" | "linux", _, _) => Known::TakesNone,
        _ if is_multiplexed => Known::Unknown,
        ("xterm-kitty" | "xterm-ghostty", _, _) | (_, "ghostty", _) => {
            Known::Takes(Protocol::Kitty)
        }
        (_, "iTerm.app" | "WezTerm" | "mintty" | "vscode", _) | (_, _, "iTerm2") => {
            Known::Takes(Protocol::Iterm)
        }
        _ if !value("KITTY_WINDOW_ID").is_empty() => Known::Takes(Protocol::Kitty),
        _ => Known::Unknown,
    }
}

/// Returns what shows a PNG, with a line end behind it; `None` if it isn't shown.
fn drawn(png: &[u8], protocol: Protocol) -> Option<String> {
    let header = png.strip_prefix(b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR")?;
    let side = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
    let fits = |side: u32| (1..=MOST_PIXELS).contains(&side);
    if png.len() > MOST_BYTES || !fits(side(0)?) || !fits(side(4)?) {
        return None;
    }
    let base64 = || BASE64_STANDARD.encode(png);
    let mut drawn = String::new();
    match protocol {
        Protocol::Sixel => drawn = sixel::encode(&png::decode(png)?),
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
            assert_eq!(drawn(wrong, Protocol::Kitty), None);
        }
    }

    #[test]
    fn terminals_are_known_by_their_variables() {
        let [kitty, iterm] = [Protocol::Kitty, Protocol::Iterm].map(Known::Takes);
        for (variables, expected) in [
            (&[("TERM", "xterm-kitty")][..], kitty),
            (&[("TERM", "xterm"), ("KITTY_WINDOW_ID", "1")], kitty),
            (&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "iTerm.app")], iterm),
            (&[("TERM", "xterm-256color"), ("LC_TERMINAL", "iTerm2")], iterm),
            (&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "WezTerm")], iterm),
            (&[("TERM", "xterm-256color")], Known::Unknown),
            (&[("TERM", "tmux-256color"), ("LC_TERMINAL", "iTerm2")], Known::Unknown),
            (&[("TERM", "dumb")], Known::TakesNone),
            (&[], Known::TakesNone),
            (&[("TERM", "xterm-kitty"), ("HATCHERY_PICTURES", "none")], Known::TakesNone),
            (&[("HATCHERY_PICTURES", "iterm2")], iterm),
            (&[("HATCHERY_PICTURES", "sixel")], Known::Takes(Protocol::Sixel)),
        ] {
            let of = |name: &str| {
                let found = variables.iter().find(|(of, _)| *of == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(known(of), expected, "{variables:?}");
        }
    }
}
