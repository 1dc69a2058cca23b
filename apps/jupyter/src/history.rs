//! The inputs of this run of the kernel, for front ends that search them.
//!
//! They are kept in memory, and end with the kernel.

use std::collections::{BTreeSet, VecDeque};

use regex::Regex;
use serde_json::{Value, json};

use crate::message::Message;

/// The most inputs that are kept, and their bytes with those of their results. Older ones go first.
const MOST_INPUTS: usize = 10_000;
const MOST_BYTES: usize = 8 << 20;

/// The number of this session in replies: 0 is the present one, and there are no others.
const SESSION: u64 = 0;

/// How many inputs a front end gets that doesn't say.
const DEFAULT_COUNT: usize = 1000;

/// The longest pattern, in bytes. The time of a search grows with it, and longer ones find nothing.
const LONGEST_PATTERN: usize = 1000;

/// The inputs of a kernel, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    inputs: VecDeque<HistoryEntry>,
    bytes: usize,
}

#[derive(Debug, Clone)]
struct HistoryEntry {
    number: u64,
    source: String,
    /// The text of the input's value, if it had one.
    result: Option<String>,
}

impl HistoryEntry {
    fn bytes(&self) -> usize {
        self.source.len() + self.result.as_ref().map_or(0, String::len)
    }

    fn reply(&self, with_output: bool) -> Value {
        if with_output {
            json!([SESSION, self.number, [self.source, self.result]])
        } else {
            json!([SESSION, self.number, self.source])
        }
    }
}

impl History {
    /// Adds an input with its result.
    pub(crate) fn add(&mut self, number: u64, source: &str, result: Option<String>) {
        let entry = HistoryEntry { number, source: source.to_owned(), result };
        self.bytes += entry.bytes();
        self.inputs.push_back(entry);
        while self.inputs.len() > MOST_INPUTS || self.bytes > MOST_BYTES {
            let Some(oldest) = self.inputs.pop_front() else { return };
            self.bytes -= oldest.bytes();
        }
    }

    /// Answers a request.
    pub(crate) fn reply(&self, request: &Message) -> Value {
        let count = request.number("n").and_then(|count| usize::try_from(count).ok());
        let found = match request.text("hist_access_type") {
            "range" => self.range(request),
            "search" => self.search(request, count),
            _ => self.last(count.unwrap_or(DEFAULT_COUNT)),
        };
        let with_output = request.flag("output", false);
        let found: Vec<Value> = found.iter().map(|entry| entry.reply(with_output)).collect();
        json!({ "status": "ok", "history": found })
    }

    fn last(&self, count: usize) -> Vec<&HistoryEntry> {
        self.inputs.iter().skip(self.inputs.len().saturating_sub(count)).collect()
    }

    fn range(&self, request: &Message) -> Vec<&HistoryEntry> {
        let number = |name| request.number(name).and_then(|number| u64::try_from(number).ok());
        let (start, stop) = (number("start").unwrap_or(0), number("stop").unwrap_or(u64::MAX));
        let is_here = request.number("session").is_none_or(|session| session == 0);
        let is_wanted = |entry: &&HistoryEntry| is_here && (start..stop).contains(&entry.number);
        self.inputs.iter().filter(is_wanted).collect()
    }

    fn search(&self, request: &Message, count: Option<usize>) -> Vec<&HistoryEntry> {
        let Some(pattern) = expression(request.text("pattern")) else { return Vec::new() };
        let mut found: Vec<&HistoryEntry> = Vec::new();
        let mut seen = BTreeSet::new();
        let is_unique = request.flag("unique", false);
        // Newest first, so that of equal inputs the last one is found.
        for entry in self.inputs.iter().rev() {
            if count.is_some_and(|count| found.len() >= count) {
                break;
            }
            if pattern.is_match(&entry.source) && (!is_unique || seen.insert(&entry.source)) {
                found.push(entry);
            }
        }
        found.reverse();
        found
    }
}

/// Returns the expression for a pattern, in which `*` stands for any text and `?` for a character. An
/// empty one fits all. `None` if it is too long.
fn expression(pattern: &str) -> Option<Regex> {
    let pattern = if pattern.is_empty() { "*" } else { pattern };
    let escaped = regex::escape(pattern).replace(r"\*", ".*").replace(r"\?", ".");
    let expression = (pattern.len() <= LONGEST_PATTERN).then(|| format!("(?s)^{escaped}$"))?;
    Regex::new(&expression).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(history: &History, content: Value) -> Vec<Value> {
        let content = content.as_object().cloned().unwrap();
        let reply = history.reply(&Message { content, ..Message::default() });
        reply["history"].as_array().unwrap().clone()
    }

    fn sources(found: &[Value]) -> Vec<&str> {
        found.iter().map(|entry| entry[2].as_str().unwrap()).collect()
    }

    #[test]
    fn inputs_are_found_by_age_number_and_pattern() {
        let mut history = History::default();
        for (number, source) in (1..).zip(["x = 1", "print(x)", "x", "x = 1"]) {
            history.add(number, source, (source == "x").then(|| "1".to_owned()));
        }
        let tail = asked(&history, json!({ "hist_access_type": "tail", "n": 2 }));
        assert_eq!(sources(&tail), ["x", "x = 1"]);
        let range = json!({ "hist_access_type": "range", "session": 0, "start": 2, "stop": 4 });
        let range = asked(&history, range);
        assert_eq!(range, [json!([0, 2, "print(x)"]), json!([0, 3, "x"])]);
        let search = |more: Value| {
            let mut content = json!({ "hist_access_type": "search", "pattern": "x =*" });
            content.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            asked(&history, content)
        };
        assert_eq!(search(json!({})).len(), 2);
        assert_eq!(search(json!({ "unique": true })), [json!([0, 4, "x = 1"])]);
        assert_eq!(search(json!({ "n": 1 })), [json!([0, 4, "x = 1"])]);
        assert!(search(json!({ "pattern": "*".repeat(LONGEST_PATTERN + 1) })).is_empty());
        let output = asked(&history, json!({ "output": true, "n": 2 }));
        assert_eq!(output[0], json!([0, 3, ["x", "1"]]));
        let earlier = json!({ "hist_access_type": "range", "session": -1 });
        assert!(asked(&history, earlier).is_empty());
    }

    #[test]
    fn old_inputs_make_room() {
        let mut history = History::default();
        for number in 0..20 {
            history.add(number, &"x".repeat(MOST_BYTES / 10), None);
        }
        assert_eq!(history.inputs.len(), 10);
        assert_eq!(history.inputs.front().map(|entry| entry.number), Some(10));
    }

    #[test]
    fn patterns_are_those_of_a_shell() {
        for (pattern, text, expected) in [
            ("a*c", "abbc", true),
            ("a*c", "abbcd", false),
            ("*", "", true),
            ("?b*", "abc", true),
            ("?", "", false),
            ("*a*b*", "xxaxxbxx", true),
            ("a", "ab", false),
            ("a*", "a\nb\n", true),
            ("[a]\\*", "[a]\\b", true),
            ("[a]", "a", false),
        ] {
            assert_eq!(expression(pattern).unwrap().is_match(text), expected, "{pattern} {text}");
        }
    }
}
