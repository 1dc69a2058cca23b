//! Lines of a batch: what they request, and what is wrong with invalid ones.

use std::collections::HashSet;
use std::path::Path;

use hatchery::Job;
use hatchery::error::chain;
use hatchery::wire::{Intake, InvalidJob};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::runner::{Parsed, Prepared, invalid};
use crate::scripts;
use crate::scripts::NoJob;

/// Digits of a digest: 128 bits, so that no two lines share one.
const DIGEST_DIGITS: usize = 32;

/// An invalid line.
#[derive(Debug, PartialEq)]
pub(crate) struct BadLine {
    pub(crate) id: Value,
    pub(crate) problem: String,
}

/// Why a line yields no request.
#[derive(Debug)]
pub(crate) enum NoRequest {
    /// The line is invalid.
    Bad(BadLine),
    /// Too many file descriptors are in use to read the program. Carries the system's message.
    NoDescriptor(String),
}

impl BadLine {
    /// Returns the result of the line of this number.
    pub(crate) fn result(self, number: usize) -> Value {
        let mut result = invalid(number, &self.problem);
        result["id"] = self.id;
        result
    }
}

/// The job of a line, and what goes with it.
#[derive(Debug)]
pub(crate) struct Request<J> {
    /// The line's own, or its number.
    pub(crate) id: Value,
    /// Hexadecimal digest of the line, and of the program if that is in a file.
    pub(crate) digest: String,
    pub(crate) job: J,
    /// Size of the line, and of what its job keeps beside it.
    pub(crate) bytes: usize,
}

/// Parses a line, and has a job made of it and of the program that it names. `None` if it is empty.
/// Blocks while it reads that program. If the line `is_ahead` of what the workers need, it must leave
/// descriptors for them.
pub(crate) fn parse<J>(
    bytes: &[u8],
    number: usize,
    is_ahead: bool,
    fields: &[&str],
    prepare: impl FnOnce(Parsed) -> Result<Prepared<J>, NoJob>,
) -> Result<Option<Request<J>>, NoRequest> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let by_number = Value::from(number);
    let mut value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => return Err(bad(by_number, chain(&InvalidJob::from(error)).to_string())),
    };
    // Taken before the rest is read, so that it is known even if the rest is invalid.
    let id = value.get_mut("id").map(Value::take).filter(|id| !id.is_null()).unwrap_or(by_number);
    let fields = fields_of(&mut value, fields);
    match prepared(value, bytes, is_ahead, fields, prepare) {
        Ok((digest, Prepared { job, bytes: beside })) => {
            Ok(Some(Request { id, digest, job, bytes: bytes.len() + beside }))
        }
        Err(NoJob::Bad(problem)) => Err(bad(id, problem)),
        Err(NoJob::NoDescriptor(problem)) => Err(NoRequest::NoDescriptor(problem)),
    }
}

/// Returns the digest of a line, and the job that is made of it.
fn prepared<J>(
    value: Value,
    bytes: &[u8],
    is_ahead: bool,
    fields: Map<String, Value>,
    prepare: impl FnOnce(Parsed) -> Result<Prepared<J>, NoJob>,
) -> Result<(String, Prepared<J>), NoJob> {
    let mut job = Intake::BATCH.job(value).map_err(hatchery::Error::from)?;
    let file = job.file.take();
    let script = file.map(|path| scripts::job(Path::new(&path), is_ahead)).transpose()?;
    let digest = digest(bytes, script.as_ref().map(Job::source));
    Ok((digest, prepare(Parsed { job, script, fields })?))
}

/// Takes those of these fields off a line that it has.
fn fields_of(line: &mut Value, names: &[&str]) -> Map<String, Value> {
    let Some(line) = line.as_object_mut() else { return Map::new() };
    names.iter().filter_map(|name| line.remove_entry(*name)).collect()
}

fn bad(id: Value, problem: String) -> NoRequest {
    NoRequest::Bad(BadLine { id, problem })
}

/// Returns a digest that tells apart lines with the same id.
fn digest(line: &[u8], program: Option<&str>) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(line.trim_ascii());
    if let Some(program) = program {
        hasher.update(b"\n").update(program.as_bytes());
    }
    hasher.finalize().to_hex()[..DIGEST_DIGITS].to_owned()
}

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
        if self.seen.insert(short_digest(&text)) {
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
pub(crate) fn short_digest(text: &str) -> [u8; 16] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
    digest
}

// Names of the folders for the files of each line.
//
// Ids are arbitrary JSON, so a name is the id with its bytes as in a URL: `%` and two hex digits stand
// for all but letters, digits, `.`, `_` and `-`. It is a single path component, neither hidden nor an
// option.
// Lines with the same id still differ: a later one has `~` and its number after the name. A name
// depends only on the lines before it, so that a resumed batch gives the same names.

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
            Value::String(text) => folder_name(text),
            id => folder_name(&id.to_string()),
        };
        match self.taken.insert(short_digest(&name)) {
            true => name,
            // No name made from an id has `~` before a short number.
            false => format!("{name}~{number}"),
        }
    }
}

fn folder_name(id: &str) -> String {
    const INNER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'.').remove(b'-');
    const FIRST: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_');
    let (first, rest) = id.split_at(id.chars().next().map_or(0, char::len_utf8));
    let name = format!("{}{}", utf8_percent_encode(first, FIRST), utf8_percent_encode(rest, INNER));
    match name.len() {
        0 => "%".to_owned(),
        1..=LONGEST_NAME_BYTES => name,
        _ => format!("{}~{}", &name[..LONGEST_NAME_BYTES], blake3::hash(name.as_bytes()).to_hex()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::pool_runner::{LineJob, prepare};

    fn parsed(text: &[u8]) -> Result<Option<Request<LineJob>>, BadLine> {
        parse(text, 7, true, &[], |line| prepare(line, |job| job)).map_err(|none| match none {
            NoRequest::Bad(bad) => bad,
            none => panic!("{none:?}"),
        })
    }

    fn problem(text: &str) -> BadLine {
        parsed(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn ids_are_kept_as_they_are() {
        let id = |text: &str| parsed(text.as_bytes()).unwrap().unwrap().id;
        assert_eq!(id(r#"{"id": "a", "code": "1"}"#), json!("a"));
        assert_eq!(id(r#"{"id": [1], "code": "1"}"#), json!([1]));
        assert_eq!(id(r#"{"code": "1"}"#), json!(7));
        assert_eq!(id("\u{feff}{\"code\": \"1\"}\r"), json!(7));
        assert!(parsed(b" \r").unwrap().is_none());
    }

    #[test]
    fn malformed_lines_say_what_is_wrong() {
        assert_eq!(problem("{").id, json!(7));
        let bad = BadLine {
            id: json!(3),
            problem: "give the program as `code`, `file`, `shell` or `call`".to_owned(),
        };
        assert_eq!(problem(r#"{"id": 3}"#), bad);
        assert!(problem(r#"{"id": 3, "code": "", "file": "x"}"#).problem.contains("one of"));
        assert!(problem(r#"{"call": {"function": "a:b", "arg": 1}}"#).problem.contains("arg"));
        assert!(problem(r#"{"id": 3, "cod": ""}"#).problem.contains("cod"));
        assert!(problem(r#"{"code": "", "timeout": -1}"#).problem.contains("timeout"));
        assert!(problem(r#"{"code": "", "deadline": 0}"#).problem.contains("deadline"));
        assert!(problem(r#"{"code": "", "priority": "urgent"}"#).problem.contains("`normal`"));
        assert!(problem("[]").problem.contains("is a JSON object"));
        assert!(problem(r#"[null, "1"]"#).problem.contains("is a JSON object"));
        let not_text = parsed(b"{\"code\": \"\xff\"}").unwrap_err();
        assert!(not_text.problem.contains("unicode"), "{not_text:?}");
    }

    #[test]
    fn errors_name_their_field() {
        for (line, start) in [
            (
                r#"{"code": "", "timeout": "1s"}"#,
                "`timeout` must be a number of seconds, such as 1.5, not \"1s\"",
            ),
            (r#"{"code": "", "deadline": [1]}"#, "`deadline` must be a number of seconds"),
            (r#"{"call": 5}"#, "`call` must be an object with `function`, such as"),
            (r#"{"code": "", "tenant": 5}"#, "`tenant` must be a string, not 5"),
            (
                r#"{"code": "", "priority": "urgent"}"#,
                "`priority` must be `high`, `normal` or `low`, not \"urgent\"",
            ),
            (r#"{"code": "", "priorit": "high"}"#, "there is no field `priorit`; use id, code"),
            (
                r#"{"call": {"function": "a:b", "arg": 1}}"#,
                "there is no field `call.arg`; use args, function, keywords, tagged",
            ),
            (r#"{"code": "", "deadline": 1e300}"#, "`deadline` is 1e300; give"),
            (r#"{"code": "", "limits": {"memory": 1}}"#, "`limits.memory` is 1; give bytes from"),
            (r#"{"code": "", "variables": {"a b": 1}}"#, "`a b`"),
        ] {
            let problem = problem(line).problem;
            assert!(problem.starts_with(start), "{line}: {problem}");
        }
    }

    #[test]
    fn numbers_keep_all_their_digits() {
        let id = "123456789012345678901234567890";
        let request = parsed(format!(r#"{{"id": {id}, "code": "1"}}"#).as_bytes());
        assert_eq!(request.unwrap().unwrap().id.to_string(), id);
    }

    #[test]
    fn a_field_that_is_null_is_not_given() {
        let line = r#"{"code": "1", "tenant": null, "priority": null, "deadline": null}"#;
        assert!(parsed(line.as_bytes()).is_ok());
    }

    #[test]
    fn files_are_texts_or_bytes_by_path() {
        let line = r#"{"code": "1", "files": {"a": "text", "b/c": {"base64": "/w=="}}}"#;
        let shared = Job::default().input("d", "12").unwrap();
        let give = |job: Job| job.with_files_of(&shared);
        let request = parse(line.as_bytes(), 1, true, &[], |line| prepare(line, give));
        let request = request.unwrap().unwrap();
        assert_eq!(request.job.job.input_bytes(), 7);
        assert_eq!(request.bytes, line.len() + 1 + 7);
        for (files, expected) in [
            ("[]", "`files` must be"),
            (r#"{"a": 1}"#, "`files` must be"),
            (r#"{"../a": ""}"#, "relative path"),
            (r#"{"a": {"base64": "?"}}"#, "base64"),
        ] {
            let problem = problem(&format!(r#"{{"code": "", "files": {files}}}"#)).problem;
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn digests_tell_lines_apart_and_ignore_their_ends() {
        let digest = |text: &str| parsed(text.as_bytes()).unwrap().unwrap().digest;
        let one = digest(r#"{"code": "1"}"#);
        assert_eq!((one.len(), &one), (DIGEST_DIGITS, &digest("\u{feff} {\"code\": \"1\"}\r")));
        assert_ne!(one, digest(r#"{"code": "2"}"#));
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("a.py");
        let line = json!({ "file": program }).to_string();
        std::fs::write(&program, "1").unwrap();
        let before = digest(&line);
        assert_eq!(before, digest(&line));
        std::fs::write(&program, "2").unwrap();
        assert_ne!(before, digest(&line));
    }

    #[test]
    fn a_deadline_is_a_number_of_seconds() {
        let deadline = |text: &str| parsed(text.as_bytes()).unwrap().unwrap().job.deadline;
        assert_eq!(deadline(r#"{"code": "1"}"#), None);
        let line = r#"{"code": "1", "deadline": 1.5, "tenant": "a", "priority": "high"}"#;
        assert_eq!(deadline(line), Some(Duration::from_millis(1500)));
    }

    #[test]
    fn a_runner_may_take_further_fields() {
        let line = br#"{"id": 1, "code": "x", "turn": [2], "other": 3}"#;
        let taken = |names: &[&str]| {
            let mut seen = None;
            let parsed = parse(line, 1, true, names, |line| {
                seen = Some(line.fields.clone());
                prepare(line, |job| job)
            });
            (seen.map(Value::Object), parsed.is_ok())
        };
        assert_eq!(
            taken(&["turn", "other", "none"]),
            (Some(json!({"turn": [2], "other": 3})), true)
        );
        // A field that nobody takes is a mistake, as ever.
        assert_eq!(taken(&["turn"]), (None, false));
    }

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
