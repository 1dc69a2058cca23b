//! Names of the folders for the files of each line.
//!
//! Ids are arbitrary JSON, so a name is the id with every byte other than letters, digits, `.`, `_`
//! and `-` as `%` and two hex digits. It is a single path component, neither hidden nor an option.
//! Lines with the same id still differ: a later one has `~` and its number after the name. A name
//! depends only on the lines before it, so that a resumed batch gives the same names.

use std::collections::HashSet;
use std::fmt::Write;

use serde_json::Value;

use crate::ids::digest;

/// Longer names are cut and end with a digest, so that no file system finds them too long.
const LONGEST_NAME_BYTES: usize = 150;

/// The names in use.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    /// By digest, since ids can be long and lines many.
    taken: HashSet<[u8; 16]>,
}

impl Folders {
    /// Returns a name for the line of this id that no earlier line has.
    pub(crate) fn name(&mut self, id: &Value, number: usize) -> String {
        let name = match id {
            Value::String(text) => plain(text),
            id => plain(&id.to_string()),
        };
        match self.taken.insert(digest(&name)) {
            true => name,
            // No name made from an id has `~` before a short number.
            false => format!("{name}~{number}"),
        }
    }
}

fn plain(id: &str) -> String {
    let mut name = String::with_capacity(id.len());
    for (place, byte) in id.bytes().enumerate() {
        let is_plain = match byte {
            b'.' | b'-' => place > 0,
            byte => byte == b'_' || byte.is_ascii_alphanumeric(),
        };
        match is_plain {
            true => name.push(char::from(byte)),
            false => write!(name, "%{byte:02X}").expect("writing to a string never fails"),
        }
    }
    match name.len() {
        0 => "%".to_owned(),
        1..=LONGEST_NAME_BYTES => name,
        _ => format!("{}~{}", &name[..LONGEST_NAME_BYTES], blake3::hash(name.as_bytes()).to_hex()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn name(id: Value) -> String {
        Folders::default().name(&id, 1)
    }

    #[test]
    fn names_are_one_plain_part_of_a_path() {
        for (id, expected) in [
            (json!("report-1.v2"), "report-1.v2"),
            (json!(7), "7"),
            (json!(-1.5), "%2D1.5"),
            (json!(".."), "%2E."),
            (json!("."), "%2E"),
            (json!("../../etc/passwd"), "%2E.%2F..%2Fetc%2Fpasswd"),
            (json!("-rf"), "%2Drf"),
            (json!(""), "%"),
            (json!("%"), "%25"),
            (json!("a b\0~"), "a%20b%00%7E"),
            (json!("ä"), "%C3%A4"),
            (json!(["a", 1]), "%5B%22a%22%2C1%5D"),
        ] {
            assert_eq!(name(id), expected);
        }
    }

    #[test]
    fn long_names_are_cut_and_differ() {
        let (one, other) = (name(json!("/".repeat(999))), name(json!("/".repeat(998))));
        assert_ne!(one, other);
        assert!(one.len() <= 220 && one.is_ascii(), "{one}");
    }

    #[test]
    fn lines_of_one_id_have_folders_of_their_own() {
        let mut folders = Folders::default();
        assert_eq!(folders.name(&json!(7), 1), "7");
        assert_eq!(folders.name(&json!("7"), 2), "7~2");
        assert_eq!(folders.name(&json!(7), 7), "7~7");
        assert_eq!(folders.name(&json!("7~2"), 8), "7%7E2");
    }
}
