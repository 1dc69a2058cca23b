//! Detects lines that share an id, which doesn't tell their results apart.

use std::collections::HashSet;

use serde_json::Value;

/// Characters of an id to show.
const SHOWN: usize = 40;

/// The ids of the lines so far.
#[derive(Debug, Default)]
pub(super) struct Ids {
    /// By digest, since ids can be long and lines many.
    seen: HashSet<[u8; 16]>,
    /// Number of lines with the id of an earlier line.
    repeated: usize,
    /// The number and the id of the first of them.
    first: Option<(usize, String)>,
}

impl Ids {
    /// Adds the id of the line of this number.
    pub(super) fn add(&mut self, id: &Value, number: usize) {
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

    /// Returns a note about lines with the id of an earlier line, if there are any.
    pub(super) fn remark(&self) -> Option<String> {
        let (number, id) = self.first.as_ref()?;
        let lines = match self.repeated {
            1 => format!("line {number} has the `id` of an earlier line, {id}"),
            count => format!(
                "{count} lines have the `id` of an earlier line, the first of them line {number} \
                 with {id}"
            ),
        };
        Some(format!("{lines}; each was run, and `digest` tells their results apart"))
    }
}

/// Returns a short digest of a text, for sets that grow large.
pub(super) fn digest(text: &str) -> [u8; 16] {
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
        let mut ids = Ids::default();
        ids.add(&json!(1), 1);
        ids.add(&json!("1"), 2);
        assert_eq!(ids.remark(), None);
        ids.add(&json!("1"), 3);
        assert!(
            ids.remark().unwrap().starts_with("line 3 has the `id` of an earlier line, \"1\";")
        );
        ids.add(&json!(1), 4);
        let remark = ids.remark().unwrap();
        assert!(remark.starts_with("2 lines have") && remark.contains("line 3 with \"1\""));
    }

    #[test]
    fn long_ids_are_cut_where_a_character_ends() {
        let mut ids = Ids::default();
        let long = json!("ä".repeat(1000));
        ids.add(&long, 1);
        ids.add(&long, 2);
        let remark = ids.remark().unwrap();
        assert!(remark.contains("ä…") && remark.len() < 300, "{remark}");
    }
}
