//! Shows pictures in terminals that can: by kitty's graphics protocol, by iTerm2's, or as sixels.
//!
//! kitty's and iTerm2's terminals are known by variables, those with sixels by their answer to a
//! question. A program's picture goes to the terminal as base64 or as sixels made here, neither of
//! which can be anything else there. What is no PNG, or too large, isn't shown.

use std::fmt::Write as _;
use std::io::{self, Cursor, IsTerminal, Write as _};
use std::sync::OnceLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use icy_sixel::SixelImage;
use png::{BitDepth, ColorType, Decoder, Limits, Transformations};

mod attributes;

/// The variable that names the protocol, or `none`, where this guesses wrong.
const VARIABLE: &str = "HATCHERY_PICTURES";
/// The largest picture that is shown: in bytes, and in pixels of a side.
const MOST_BYTES: usize = 16 << 20;
const LONGEST_SIDE: u32 = 10_000;
/// The largest picture that is shown as sixels, in bytes as it is decoded: four million pixels.
const MOST_DECODED: usize = 16 << 20;
/// Characters of base64 in one piece, as kitty's protocol says.
const PIECE: usize = 4096;

/// How a terminal takes pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
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

/// Shows a PNG on standard output, with a line end behind it. Returns whether it did: these bytes are a
/// PNG of at most 16 MiB, and standard output is a terminal that takes pictures, as far as is known.
///
/// # Errors
/// Standard output can't be written.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let is_drawn = pictures::draw(b"GIF89a")?;
/// assert!(!is_drawn);
/// # Ok(())
/// # }
/// ```
pub fn draw(png: &[u8]) -> io::Result<bool> {
    let Some(drawn) = protocol().and_then(|protocol| drawn(png, protocol)) else {
        return Ok(false);
    };
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
    let fits = |side: u32| (1..=LONGEST_SIDE).contains(&side);
    if png.len() > MOST_BYTES || !fits(side(0)?) || !fits(side(4)?) {
        return None;
    }
    let base64 = || BASE64_STANDARD.encode(png);
    let mut drawn = String::new();
    match protocol {
        Protocol::Sixel => drawn = sixels(png)?,
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

/// Returns a PNG as sixels; `None` if it is damaged, or has more than four million pixels.
fn sixels(png: &[u8]) -> Option<String> {
    let mut decoder = Decoder::new_with_limits(Cursor::new(png), Limits { bytes: MOST_DECODED });
    decoder.set_transformations(Transformations::normalize_to_color8() | Transformations::ALPHA);
    let mut reader = decoder.read_info().ok()?;
    let size = reader.output_buffer_size().filter(|bytes| *bytes <= MOST_DECODED)?;
    let mut pixels = vec![0; size];
    let frame = reader.next_frame(&mut pixels).ok()?;
    let pixels = match (frame.color_type, frame.bit_depth) {
        (ColorType::Rgba, BitDepth::Eight) => pixels,
        (ColorType::GrayscaleAlpha, BitDepth::Eight) => {
            let pairs = pixels.as_chunks().0;
            pairs.iter().flat_map(|&[gray, opacity]| [gray, gray, gray, opacity]).collect()
        }
        _ => return None,
    };
    let side = |side| usize::try_from(side).ok();
    SixelImage::try_from_rgba(pixels, side(frame.width)?, side(frame.height)?).ok()?.encode().ok()
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

    /// Returns a real PNG of these pixels, each red, green, blue and opacity.
    fn encoded(width: u32, pixels: &[[u8; 4]]) -> Vec<u8> {
        let mut file = Vec::new();
        let height = u32::try_from(pixels.len()).unwrap() / width;
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(ColorType::Rgba);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(pixels.as_flattened()).unwrap();
        writer.finish().unwrap();
        file
    }

    #[test]
    fn what_is_painted_as_sixels_is_the_picture() {
        let (red, blue, clear) = ([255, 0, 0, 255], [0, 0, 255, 255], [9, 9, 9, 0]);
        let mut pixels = vec![red; 9 * 8];
        (pixels[3], pixels[9 * 7 + 8], pixels[9]) = (blue, blue, clear);
        let drawn = drawn(&encoded(9, &pixels), Protocol::Sixel).unwrap();
        let shown = SixelImage::decode(drawn.trim_end().as_bytes()).unwrap();
        // Its last band of six rows may be filled up.
        assert!(shown.width == 9 && shown.height >= 8, "{shown:?}");
        for (shown, pixel) in shown.pixels.as_chunks::<4>().0.iter().zip(&pixels) {
            if *pixel == clear {
                assert!(shown[3] < 128, "{shown:?}");
            } else {
                let far = shown.iter().zip(pixel).map(|(one, other)| one.abs_diff(*other));
                assert!(far.max().unwrap() <= 3, "{shown:?} for {pixel:?}");
            }
        }
    }

    #[test]
    fn sixels_of_anything_are_a_picture_or_none() {
        let good = encoded(2, &[[1, 2, 3, 255]; 4]);
        assert!(sixels(&good).is_some());
        for at in 0..good.len() {
            assert_eq!(sixels(&good[..at]).filter(|_| at < good.len() - 30), None, "{at}");
            for value in [0, 1, 3, 16, 255] {
                let mut changed = good.clone();
                changed[at] = value;
                // Any text, but no panic.
                sixels(&changed);
            }
        }
        let large = encoded(3000, &vec![[0; 4]; 3000 * 2000]);
        assert_eq!(sixels(&large), None);
    }

    #[test]
    fn what_is_no_picture_is_not_shown() {
        for wrong in [&b"GIF89a"[..], b"", b"\x89PNG\r\n\x1a\n", &png(0, 1, 9), &png(1, 20_000, 9)]
        {
            for protocol in [Protocol::Kitty, Protocol::Iterm, Protocol::Sixel] {
                assert_eq!(drawn(wrong, protocol), None);
            }
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
