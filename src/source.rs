//! Python source files, decoded as PEP 263 describes.

/// A file can't be decoded as Python source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSource {
    /// It isn't UTF-8, the encoding of source that names none.
    #[error(
        "it isn't UTF-8, and its first two lines name no other encoding, as `# coding: latin-1` \
         does"
    )]
    NotUtf8,
    /// It isn't in the encoding that it names.
    #[error("it isn't in the encoding `{0}` that it names")]
    NotAsNamed(String),
    /// It begins with the byte order mark of UTF-8, but names another encoding.
    #[error("it names the encoding `{0}`, but begins with the byte order mark of UTF-8")]
    Marked(String),
    /// It names an encoding that isn't supported.
    #[error(
        "it names the encoding `{0}`, but only UTF-8, ASCII and Latin-1 are supported; \
         save it as UTF-8"
    )]
    Unknown(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Ascii,
    Latin1,
}

/// The byte order mark of UTF-8, which some editors write and CPython skips.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Decodes Python source. Its encoding is UTF-8, perhaps with a byte order mark, unless its first
/// or second line names another one, as [PEP 263](https://peps.python.org/pep-0263/) describes.
/// UTF-8, ASCII and Latin-1 are supported, by their usual names.
///
/// ```
/// use hatchery::source;
///
/// let source = source::decode(b"# coding: latin-1\nprint('\xe9')")?;
/// assert!(source.ends_with("print('é')"));
/// # Ok::<(), hatchery::source::InvalidSource>(())
/// ```
///
/// # Errors
/// The bytes aren't in their encoding, or that encoding isn't supported.
pub fn decode(bytes: &[u8]) -> Result<String, InvalidSource> {
    let unmarked = bytes.strip_prefix(MARK);
    let is_marked = unmarked.is_some();
    let bytes = unmarked.unwrap_or(bytes);
    let named = named_encoding(bytes);
    let encoding = match &named {
        None => Encoding::Utf8,
        Some(name) => encoding_of(name).ok_or_else(|| InvalidSource::Unknown(name.clone()))?,
    };
    if let Some(encoding) = named.clone().filter(|_| is_marked && encoding != Encoding::Utf8) {
        return Err(InvalidSource::Marked(encoding));
    }
    let text = match encoding {
        Encoding::Latin1 => Some(bytes.iter().copied().map(char::from).collect()),
        Encoding::Ascii if !bytes.is_ascii() => None,
        Encoding::Ascii | Encoding::Utf8 => std::str::from_utf8(bytes).ok().map(str::to_owned),
    };
    text.ok_or(match named {
        Some(encoding) => InvalidSource::NotAsNamed(encoding),
        None => InvalidSource::NotUtf8,
    })
}

/// Returns the encoding named in the first line, or in the second one if the first has no code.
fn named_encoding(source: &[u8]) -> Option<String> {
    let (first, rest) = split_line(source);
    if let Some(name) = encoding_in(first) {
        return Some(name);
    }
    let code = first.trim_ascii_start();
    let (second, _) = split_line(rest);
    if code.is_empty() || code.starts_with(b"#") { encoding_in(second) } else { None }
}

fn split_line(source: &[u8]) -> (&[u8], &[u8]) {
    let Some(end) = source.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
        return (source, b"");
    };
    let (line, rest) = source.split_at(end);
    (line, rest.strip_prefix(b"\r\n").unwrap_or(&rest[1..]))
}

/// Returns the name after `coding:` or `coding=` in a comment line.
fn encoding_in(line: &[u8]) -> Option<String> {
    let comment = line.trim_ascii_start().strip_prefix(b"#")?;
    let word = b"coding";
    let mut places = comment.windows(word.len()).enumerate().filter(|(_, window)| window == word);
    places.find_map(|(place, _)| {
        let behind = &comment[place + word.len()..];
        let behind = behind.strip_prefix(b":").or_else(|| behind.strip_prefix(b"="))?;
        let name = behind.trim_ascii_start();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        let length = name.iter().position(|byte| !is_part(byte)).unwrap_or(name.len());
        (length > 0).then(|| String::from_utf8_lossy(&name[..length]).into_owned())
    })
}

fn encoding_of(name: &str) -> Option<Encoding> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    // As in CPython's tokenizer; Emacs writes `utf-8-unix`.
    let begins = |known: &str| {
        name.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    if begins("utf-8") || matches!(name.as_str(), "utf8" | "u8" | "cp65001") {
        return Some(Encoding::Utf8);
    }
    let is_latin = ["latin-1", "iso-8859-1", "iso-latin-1"].into_iter().any(begins);
    match name.as_str() {
        _ if is_latin => Some(Encoding::Latin1),
        "latin1" | "latin" | "l1" | "iso8859-1" | "8859" | "cp819" => Some(Encoding::Latin1),
        "ascii" | "us-ascii" | "646" => Some(Encoding::Ascii),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_utf8_unless_it_says_otherwise() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"x = '\xc3\xa9'", "x = 'é'"),
            (b"\xef\xbb\xbfx", "x"),
            (b"\xef\xbb\xbf# coding: utf-8\n'\xc3\xa9'", "# coding: utf-8\n'é'"),
            (b"# coding: latin-1\n'\xe9'", "# coding: latin-1\n'é'"),
            (
                b"#!/bin/python\r\n# -*- coding: ISO_8859_1-unix -*-\n'\xe9'",
                "#!/bin/python\r\n# -*- coding: ISO_8859_1-unix -*-\n'é'",
            ),
            (
                b"\n \t# vim: set fileencoding=latin1 :\n'\xe9'",
                "\n \t# vim: set fileencoding=latin1 :\n'é'",
            ),
            (b"# coding of coding: ascii\rx", "# coding of coding: ascii\rx"),
            // None of these names an encoding.
            (b"x = 1\n# coding: latin-1\n'\xc3\xa9'", "x = 1\n# coding: latin-1\n'é'"),
            (b"\n\n# coding: latin-1\n'\xc3\xa9'", "\n\n# coding: latin-1\n'é'"),
            (b"'# coding: latin-1 \xc3\xa9'", "'# coding: latin-1 é'"),
            (b"# coding : latin-1\n'\xc3\xa9'", "# coding : latin-1\n'é'"),
        ] {
            assert_eq!(decode(bytes).as_deref(), Ok(text), "{text:?}");
        }
    }

    #[test]
    fn source_that_cannot_be_decoded_is_an_error_that_says_why() {
        for (bytes, expected) in [
            (&b"'\xe9'"[..], "isn't UTF-8"),
            (b"# coding: utf8\n'\xe9'", "`utf8` that it names"),
            (b"# coding: ascii\n'\xc3\xa9'", "`ascii` that it names"),
            (b"\xef\xbb\xbf# coding: latin-1\n", "begins with the byte order mark"),
            (b"# coding: cp1252\n'x'", "`cp1252`, but only"),
            (b"# coding: iso-8859-15\n", "`iso-8859-15`, but only"),
        ] {
            let problem = decode(bytes).unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
