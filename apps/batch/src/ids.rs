//! Detects lines that share an id, which doesn't tell their results apart.

use std::collections::HashSet;

use serde_json::Value;

/// Characters of an id to show.
const SHOWN: usize = 40;

/// The ids of the lines so far.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    /// By digest, since ids can be long and lines many.
    seen: HashSet<[u8; 16]>,
    /// Number of lines with the id of an earlier line.
    repeated: usize,
    /// The number and the id of the first of them.
    first: Option<(usize, String)>,
}

impl Ids {
    /// Adds the id of the line of this number.
    pub(crate) fn add(&mut self, id: &Value, number: usize) {
        let text = id.to_string();
        if self.seen.insert(digest(&text)) {
            return;
        }
        self.repeated += 1;
        let shown = || match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.clone(),
        };
        self.first.get_or_insert_with(|| (number, shown()));
    }

    /// Returns which lines have the id of an earlier line, if there are any.
    pub(crate) fn repeated(self) -> Option<RepeatedIds> {
        let (line, id) = self.first?;
        Some(RepeatedIds { count: self.repeated, line, id })
    }
}

/// Lines with the id of an earlier line. Each was run; the `digest` tells their results apart.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepeatedIds {
    /// How many there are.
    pub count: usize,
    /// The number of the first of them.
    pub line: usize,
    /// The beginning of its id, as JSON.
    pub id: String,
}

impl std::fmt::Display for RepeatedIds {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, line, id } = self;
        match count {
            1 => write!(formatter, "line {line} has the `id` of an earlier line, {id}")?,
            _ => write!(
                formatter,
                "{count} lines have the `id` of an earlier line, the first of them line {line} with \
                 {id}"
            )?,
        }
        formatter.write_str("; each was run, and `digest` tells their results apart")
    }
}

/// Returns a short digest of a text, for sets that grow large.
pub(crate) fn digest(text: &str) -> [u8; 16] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_of_one_id_are_counted_and_the_first_is_named() {
        let remark = |of: &[Value]| {
            let mut ids = Ids::default();
            of.iter().zip(1..).for_each(|(id, number)| ids.add(id, number));
            ids.repeated().map(|repeated| repeated.to_string())
        };
        let ids = [json!(1), json!("1"), json!("1"), json!(1)];
        assert_eq!(remark(&ids[..2]), None);
        let one = remark(&ids[..3]).unwrap();
        assert!(one.starts_with("line 3 has the `id` of an earlier line, \"1\";"), "{one}");
        let two = remark(&ids).unwrap();
        assert!(two.starts_with("2 lines have") && two.contains("line 3 with \"1\""), "{two}");
    }

    #[test]
    fn long_ids_are_cut_where_a_character_ends() {
        let mut ids = Ids::default();
        let long = json!("ä".repeat(1000));
        ids.add(&long, 1);
        ids.add(&long, 2);
        let remark = ids.repeated().unwrap().to_string();
        assert!(remark.contains("ä…") && remark.len() < 300, "{remark}");
    }
}
