//! Forms of files: `multipart/form-data`, as RFC 7578 has it, in bodies that are there already.
//!
//! The crate that axum has for this needs a library of encodings whose features would have wasmer
//! built again.

use axum::body::Bytes;
use memchr::memmem::{Finder, find};

/// The name that clients give to each file.
const FIELD: &str = "file";

/// The longest boundary, by RFC 2046.
const MOST_BOUNDARY_BYTES: usize = 70;

/// A file of a form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FormFile {
    /// The name that the client gave it.
    pub(super) name: Option<String>,
    pub(super) contents: Bytes,
}

/// Returns what separates the parts of a form; `None` if it is none.
pub(super) fn boundary(content_type: &str) -> Option<String> {
    let (essence, rest) = content_type.split_once(';')?;
    let is_form = essence.trim().eq_ignore_ascii_case("multipart/form-data");
    let boundary = is_form.then(|| parameter(rest, "boundary"))??;
    (1..=MOST_BOUNDARY_BYTES).contains(&boundary.len()).then_some(boundary)
}

/// Returns the files of a form, without its other fields; `None` if it isn't complete.
pub(super) fn files(body: &Bytes, boundary: &str) -> Option<Vec<FormFile>> {
    // The line end before a boundary is part of it, except before the first.
    let delimiter = format!("\r\n--{boundary}");
    let finder = Finder::new(&delimiter);
    let mut at = match body.starts_with(&delimiter.as_bytes()[2..]) {
        true => delimiter.len() - 2,
        false => finder.find(body)? + delimiter.len(),
    };
    let mut files = Vec::new();
    loop {
        let part = &body[at..];
        if part.starts_with(b"--") {
            return Some(files);
        }
        if !part.starts_with(b"\r\n") {
            return None;
        }
        let head_length = find(part, b"\r\n\r\n")?;
        let begin = at + head_length + 4;
        let end = begin + finder.find(&body[begin..])?;
        if let Some(name) = file_name(&part[..head_length]) {
            files.push(FormFile { name, contents: body.slice(begin..end) });
        }
        at = end + delimiter.len();
    }
}

/// Returns the name of a part's file, which may be without one; `None` if the part is another field.
fn file_name(head: &[u8]) -> Option<Option<String>> {
    let head = String::from_utf8_lossy(head);
    let disposition = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    let (_, parameters) = disposition.split_once(';')?;
    let is_file = parameter(parameters, "name").as_deref() == Some(FIELD);
    is_file.then(|| parameter(parameters, "filename").map(|name| unescaped(&name)))
}

/// Returns a file's name without the escapes of HTML's forms.
fn unescaped(name: &str) -> String {
    [("%22", "\""), ("%0D", "\r"), ("%0A", "\n")]
        .iter()
        .fold(name.to_owned(), |name, (escape, character)| name.replace(escape, character))
}

/// Returns a parameter of a header, such as `a` of `a=1; b="2"`.
fn parameter(parameters: &str, wanted: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        let (name, value) = rest.split_once('=')?;
        let (value, after) = match value.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => {
                let (value, after) = value.split_once(';').unwrap_or((value, ""));
                (value.trim(), after)
            }
        };
        if name.trim_matches([';', ' ', '\t']).eq_ignore_ascii_case(wanted) {
            return Some(value.to_owned());
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(body: &str) -> Option<Vec<String>> {
        let files = files(&Bytes::copy_from_slice(body.as_bytes()), "b")?;
        let shown = |file: FormFile| {
            let name = file.name.unwrap_or_else(|| "nothing".to_owned());
            format!("{name}={}", String::from_utf8_lossy(&file.contents))
        };
        Some(files.into_iter().map(shown).collect())
    }

    fn part(parameters: &str, contents: &str) -> String {
        let head =
            format!("Content-Disposition: form-data; {parameters}\r\nContent-Type: text/csv");
        format!("--b\r\n{head}\r\n\r\n{contents}\r\n")
    }

    #[test]
    fn a_form_has_files_and_other_fields() {
        let one = part("name=\"file\"; filename=\"/a/%22b; c=1\"", "1\r\n--c\r\n\r\n");
        let empty = part("filename=d; name=file", "");
        let other = part("name=\"other\"", "2");
        let nameless = part("name=\"file\"", "3");
        let body = format!("before\r\n{one}{empty}{other}{nameless}--b--\r\nafter");
        let expected = ["/a/\"b; c=1=1\r\n--c\r\n\r\n", "d=", "nothing=3"];
        assert_eq!(shown(&body).unwrap(), expected);
        assert_eq!(shown("--b--").unwrap(), [""; 0]);
        assert_eq!(shown("--b\r\n\r\nheadless\r\n--b--").unwrap(), [""; 0]);
    }

    #[test]
    fn a_form_that_is_not_complete_has_no_files() {
        let whole = format!("{}--b--", part("name=\"file\"; filename=\"a\"", "1"));
        assert_eq!(shown(&whole).unwrap(), ["a=1"]);
        for length in 0..whole.len() {
            assert_eq!(shown(&whole[..length]), None, "{}", &whole[..length]);
        }
    }

    #[test]
    fn a_boundary_is_that_of_a_form() {
        for (content_type, expected) in [
            ("multipart/form-data; boundary=b", Some("b")),
            ("Multipart/Form-Data;charset=utf-8; Boundary=\"b c\"", Some("b c")),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data; boundary=\"b", None),
            ("multipart/mixed; boundary=b", None),
            ("", None),
        ] {
            assert_eq!(boundary(content_type).as_deref(), expected, "{content_type}");
        }
        let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
        assert_eq!(boundary(&long), None);
    }
}
