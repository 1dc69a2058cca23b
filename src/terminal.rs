//! Makes output of programs harmless for a terminal. Sequences that could set its title, write to
//! the clipboard, or draw over earlier content are shown, not obeyed.
//!
//! Text passes unchanged, with line ends, tabs, `\r` and `\b`, and colours and styles (`ESC [ …
//! m`). So do the sequences of progress bars: erasing in the current line (`ESC [ K`), and moving
//! up (`ESC [ n A`) within the program's own lines. Any other control character is shown like
//! `\x1b`, including C1 controls (U+0080 to U+009F) and bytes that aren't UTF-8. What follows it is
//! text. Sequences and characters may come in pieces.
//!
//! Other crates handle all sequences or none: they strip them, with colours, or pass them all.

use std::fmt::Write as _;

/// The longest sequence that passes, in bytes. So no more is ever held back.
const LONGEST_BYTES: usize = 64;

const ESCAPE: u8 = 0x1b;

/// Makes what one stream of a program writes harmless for a terminal, piece by piece.
///
/// ```
/// use hatchery::terminal::Escapes;
///
/// let mut escapes = Escapes::default();
/// // A colour passes; what would set the title is shown.
/// assert_eq!(escapes.pass(b"\x1b[31mred\x1b[0m"), b"\x1b[31mred\x1b[0m");
/// assert_eq!(escapes.pass(b"\x1b]0;title\x07"), b"\\x1b]0;title\\x07");
/// assert_eq!(escapes.finish(), b"");
/// ```
#[derive(Debug, Default)]
pub struct Escapes {
    /// The beginning of an incomplete sequence or character.
    held: Vec<u8>,
    /// The least number of lines that the cursor is below where the program began.
    rows: u64,
    /// Whether a colour or a style is on.
    is_styled: bool,
}

enum Begins {
    /// This many bytes, which pass unchanged.
    Harmless(usize),
    /// This many bytes, which are one control character or invalid UTF-8.
    Control(usize),
    /// Something that continues after the bytes.
    Open,
}

impl Escapes {
    /// Returns what the terminal gets for these bytes.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let mut passed = Vec::with_capacity(all.len());
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            match self.begins(rest) {
                Begins::Harmless(length) => {
                    let (harmless, behind) = rest.split_at(length);
                    passed.extend_from_slice(harmless);
                    rest = behind;
                }
                Begins::Control(length) => {
                    let (control, behind) = rest.split_at(length);
                    show(control, &mut passed);
                    rest = behind;
                }
                Begins::Open => {
                    self.held = rest.to_vec();
                    break;
                }
            }
        }
        passed
    }

    /// Returns what the terminal gets at the end: what was held back, and a reset if a style is on.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut passed = Vec::new();
        let held = std::mem::take(&mut self.held);
        match held.split_first() {
            // What follows the escape is text.
            Some((&ESCAPE, behind)) => {
                show(&[ESCAPE], &mut passed);
                passed.extend_from_slice(behind);
            }
            _ => held.iter().for_each(|byte| show(&[*byte], &mut passed)),
        }
        if std::mem::take(&mut self.is_styled) {
            passed.extend_from_slice(b"\x1b[0m");
        }
        passed
    }

    fn begins(&mut self, bytes: &[u8]) -> Begins {
        match bytes[0] {
            b'\n' => {
                self.rows = self.rows.saturating_add(1);
                Begins::Harmless(1)
            }
            b'\t' | b'\r' | 0x08 => Begins::Harmless(1),
            ESCAPE => self.sequence(bytes),
            0x20..=0x7e => {
                let end = bytes.iter().position(|byte| !matches!(byte, 0x20..=0x7e));
                Begins::Harmless(end.unwrap_or(bytes.len()))
            }
            0x80.. => character(bytes),
            _ => Begins::Control(1),
        }
    }

    fn sequence(&mut self, bytes: &[u8]) -> Begins {
        match bytes.get(1) {
            None => return Begins::Open,
            Some(b'[') => {}
            Some(_) => return Begins::Control(1),
        }
        let parameters = bytes[2..].iter().take_while(|byte| matches!(byte, b'0'..=b';')).count();
        if parameters + 3 > LONGEST_BYTES {
            return Begins::Control(1);
        }
        let Some(last) = bytes.get(2 + parameters) else { return Begins::Open };
        let parameters = &bytes[2..2 + parameters];
        let is_harmless = match last {
            b'm' => {
                self.is_styled = !parameters.iter().all(|byte| *byte == b'0');
                true
            }
            b'K' => matches!(parameters, b"" | b"0" | b"1" | b"2"),
            b'A' => self.moves_up(parameters),
            _ => false,
        };
        if is_harmless { Begins::Harmless(parameters.len() + 3) } else { Begins::Control(1) }
    }

    /// Moves up by a number of lines, if it may. Returns whether it did.
    fn moves_up(&mut self, parameters: &[u8]) -> bool {
        let count = match parameters {
            b"" => Some(1),
            _ => std::str::from_utf8(parameters).ok().and_then(|digits| digits.parse().ok()),
        };
        // Terminals treat 0 as 1.
        let left = count.and_then(|count: u64| self.rows.checked_sub(count.max(1)));
        if let Some(left) = left {
            self.rows = left;
        }
        left.is_some()
    }
}

/// Makes a complete text harmless for a terminal.
///
/// ```
/// assert_eq!(hatchery::terminal::harmless("\x1b[2J\u{9b}1m"), "\\x1b[2J\\x9b1m");
/// ```
pub fn harmless(text: &str) -> String {
    let mut escapes = Escapes::default();
    let mut bytes = escapes.pass(text.as_bytes());
    bytes.extend(escapes.finish());
    String::from_utf8_lossy(&bytes).into_owned()
}

fn character(bytes: &[u8]) -> Begins {
    let length = match bytes[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Begins::Control(1),
    };
    let bytes = &bytes[..length.min(bytes.len())];
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(char::is_control) => Begins::Control(length),
        Ok(_) => Begins::Harmless(length),
        // Only the end is missing.
        Err(error) if error.error_len().is_none() => Begins::Open,
        Err(_) => Begins::Control(1),
    }
}

/// Shows a control character, or a byte that isn't UTF-8, as Python writes it.
fn show(control: &[u8], passed: &mut Vec<u8>) {
    let code = match std::str::from_utf8(control).ok().and_then(|text| text.chars().next()) {
        Some(character) => u32::from(character),
        None => u32::from(control[0]),
    };
    let mut shown = String::new();
    let _ = write!(shown, "\\x{code:02x}");
    passed.extend_from_slice(shown.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> Vec<u8> {
        let mut escapes = Escapes::default();
        let mut passed = escapes.pass(bytes);
        passed.extend(escapes.finish());
        passed
    }

    #[track_caller]
    fn check(written: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) {
        let (written, expected) = (written.as_ref(), expected.as_ref());
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        assert_eq!(text(&shown(written)), text(expected));
        // In pieces of any size.
        for size in 1..written.len() {
            let mut escapes = Escapes::default();
            let mut passed: Vec<u8> =
                written.chunks(size).flat_map(|piece| escapes.pass(piece)).collect();
            passed.extend(escapes.finish());
            assert_eq!(text(&passed), text(expected), "in pieces of {size}");
        }
    }

    #[test]
    fn text_and_styles_are_passed_on() {
        for harmless in [
            "",
            "plain\ttext\r\nañ€😀\u{a0}\n",
            "\x1b[31mred\x1b[0m",
            "\x1b[1;38;2;1;2;3mx\x1b[m",
            "\x1b[4:3mx\x1b[00m",
            "50%\r\x1b[K100%\r\x1b[2Kover\x08\n",
            "one\ntwo\n\x1b[2A\x1b[Kthree\n\n\x1b[A\x1b[1A",
        ] {
            check(harmless, harmless);
        }
    }

    #[test]
    fn what_changes_the_terminal_is_shown() {
        for (written, expected) in [
            ("\x1b]0;title\x07x", "\\x1b]0;title\\x07x"),
            ("\x1b]52;c;aGk=\x1b\\", "\\x1b]52;c;aGk=\\x1b\\"),
            ("\x1b[2J\x1b[H", "\\x1b[2J\\x1b[H"),
            ("\x1b[?1049h\x1b[>4;1m\x1b[3K", "\\x1b[?1049h\\x1b[>4;1m\\x1b[3K"),
            ("\x1b[6n\x1bc\x1bP+q\x1b[!p", "\\x1b[6n\\x1bc\\x1bP+q\\x1b[!p"),
            ("\x00\x05\x0b\x0c\x0e\x7f", "\\x00\\x05\\x0b\\x0c\\x0e\\x7f"),
            ("\u{9b}2J\u{9d}0;t\u{9c}\u{85}", "\\x9b2J\\x9d0;t\\x9c\\x85"),
            ("\x1b\x1b[31mx\x1b[m", "\\x1b\x1b[31mx\x1b[m"),
            ("\x1b[3\n1m", "\\x1b[3\n1m"),
        ] {
            check(written, expected);
        }
        check(b"a\x9b31m\xff\xc3(\xe2\x82", b"a\\x9b31m\\xff\\xc3(\\xe2\\x82");
        check(b"\xed\xa0\x80\xc0\x9b", b"\\xed\\xa0\\x80\\xc0\\x9b");
    }

    #[test]
    fn a_program_draws_over_its_own_lines_alone() {
        check("\x1b[Ax", "\\x1b[Ax");
        check("a\n\x1b[2Ax", "a\n\\x1b[2Ax");
        check("a\n\x1b[A\x1b[A", "a\n\x1b[A\\x1b[A");
        check("a\n\x1b[0A\x1b[0A", "a\n\x1b[0A\\x1b[0A");
        check("a\nb\n\x1b[1;1A", "a\nb\n\\x1b[1;1A");
        check("a\n\x1b[99999999999999999999A", "a\n\\x1b[99999999999999999999A");
    }

    #[test]
    fn what_is_left_open_ends_with_the_program() {
        check("\x1b[31mred", "\x1b[31mred\x1b[0m");
        check("x\x1b", "x\\x1b");
        check("x\x1b[31", "x\\x1b[31");
        let long = format!("\x1b[{}m", "1;".repeat(LONGEST_BYTES));
        check(&long, long.replace('\x1b', "\\x1b"));
        let mut escapes = Escapes::default();
        escapes.pass(long.strip_suffix('m').unwrap().as_bytes());
        assert!(escapes.held.is_empty());
        assert_eq!(harmless("\x1b]0;x\x07\n"), "\\x1b]0;x\\x07\n");
    }
}
