//! Addresses of files in sessions: `hatchery://sessions/NAME/files/PATH`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The template of the addresses (RFC 6570). A path keeps its slashes.
pub(super) const TEMPLATE: &str = "hatchery://sessions/{session}/files/{+path}";

const PREFIX: &str = "hatchery://sessions/";
const FILES: &str = "/files/";

/// What is escaped in a name; a path keeps its slashes as well.
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH: &AsciiSet = &NAME.remove(b'/');

/// Returns the address of a file.
pub(super) fn of_file(session: &str, path: &str) -> String {
    let (name, path) = (utf8_percent_encode(session, NAME), utf8_percent_encode(path, PATH));
    format!("{PREFIX}{name}{FILES}{path}")
}

/// Returns the session and the path that an address names.
pub(super) fn parse(uri: &str) -> Option<(String, String)> {
    let (session, path) = uri.strip_prefix(PREFIX)?.split_once(FILES)?;
    let decoded = |text| percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned());
    Some((decoded(session)?, decoded(path)?))
        .filter(|(session, path)| !session.is_empty() && !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_its_file() {
        for (session, path) in
            [("a", "b.csv"), ("a/b c", "dir/ä ?#%.txt"), ("..", "files/x"), ("/files/", "%2F")]
        {
            let uri = of_file(session, path);
            assert!(uri.is_ascii() && !uri.contains(' '), "{uri}");
            assert_eq!(parse(&uri), Some((session.to_owned(), path.to_owned())), "{uri}");
        }
        let escaped = parse("hatchery://sessions/a/files/dir%2Fb.csv");
        assert_eq!(escaped, Some(("a".to_owned(), "dir/b.csv".to_owned())));
    }

    #[test]
    fn other_addresses_name_nothing() {
        for uri in [
            "",
            "file:///etc/passwd",
            "hatchery://sessions/a",
            "hatchery://sessions/a/files/",
            "hatchery://sessions//files/a",
            "hatchery://sessions/%ff/files/a",
        ] {
            assert_eq!(parse(uri), None, "{uri}");
        }
    }
}
