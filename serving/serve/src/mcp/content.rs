//! A result as a model reads it: a short text, images, and links to files.

use hatchery::error::counted;
use hatchery::files::{ChangeKind, ChangedFile};
use hatchery::outcome::{MimeBundle, MimeData};
use hatchery::wire::Problem;
use hatchery::{Outcome, Verdict};
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use serde_json::Value;

use super::{media, uri};

/// The most bytes of one part of the text. The middle of longer ones is left out.
const MOST_PART_BYTES: usize = 16 << 10;

/// The most images of one result.
const MOST_IMAGES: usize = 20;

/// The most files of one result that are linked, or listed.
const MOST_FILES: usize = 20;

/// The longest file of which the result has the contents, if there is no session to read it from.
const MOST_FILE_BYTES: usize = 8 << 10;

/// The session of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InSession {
    pub(super) name: String,
    /// Whether this call has given it its name.
    pub(super) is_new: bool,
}

/// Returns the result of a call that ran. A program that fails is no error of the call: the model
/// reads the traceback.
pub(super) fn of_outcome(outcome: &Outcome, session: Option<&InSession>) -> CallToolResult {
    let mut json = outcome.to_tool_json();
    json["session"] = session.map(|session| session.name.as_str()).into();
    let mut told = Told::default();
    told.output("", &outcome.stdout_text());
    for display in &outcome.displays {
        let is_image = told.bundle(display);
        if let Some(text) = display.text("text/plain").filter(|_| !is_image) {
            told.output("displayed:", text);
        }
    }
    told.output("stderr:", &outcome.stderr_text());
    told.verdict(outcome);
    told.notes(outcome);
    told.files(&outcome.files, session);
    if let Some(session) = session.filter(|session| session.is_new) {
        told.parts.push(format!("session: {}", session.name));
    }
    if told.parts.is_empty() && told.blocks.is_empty() {
        told.parts.push("The program ended without output.".to_owned());
    }
    let is_error = matches!(outcome.verdict, Verdict::SandboxFailed(_) | Verdict::Cancelled);
    let mut blocks = told.blocks;
    if !told.parts.is_empty() {
        blocks.insert(0, ContentBlock::text(told.parts.join("\n")));
    }
    let mut result = CallToolResult::success(blocks);
    result.is_error = Some(is_error);
    result.structured_content = Some(structured(json));
    result
}

/// Fields of a result that are not for models: forms of a value other than its text, why it isn't
/// JSON, and accounts.
pub(super) const LEFT_OUT: [&str; 3] = ["bundle", "usage", "value_missing"];

/// The fields of a result that are always there.
pub(super) const ALWAYS: [&str; 2] = ["status", "success"];

/// The parts of an error beside its traceback.
const OF_ERROR: [&str; 8] =
    ["kind", "type", "message", "limit", "allowed", "used", "reason", "retry_after"];

/// Returns a result as data, each fact once: some hosts give their model this and not the text. What
/// is null, empty or false isn't there.
fn structured(mut json: Value) -> Value {
    let Some(fields) = json.as_object_mut() else { return json };
    if let Some(Value::Array(displays)) = fields.get_mut("displays") {
        let forms = displays.iter_mut().filter_map(Value::as_object_mut);
        forms.for_each(|forms| forms.retain(|name, _| name == "text/plain"));
        displays.retain(|forms| !is_empty(forms));
    }
    if let Some(Value::Object(error)) = fields.get_mut("error") {
        error.retain(|name, _| OF_ERROR.contains(&name.as_str()));
    }
    if fields.get("value").is_some_and(|value| !value.is_null()) {
        fields.remove("repr");
    }
    fields.retain(|name, value| {
        let name = name.as_str();
        // A value says something even if it is empty.
        let is_kept = ALWAYS.contains(&name) || (name == "value" && !value.is_null());
        is_kept || !(LEFT_OUT.contains(&name) || is_empty(value))
    });
    json
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// Returns the result of a call of `run_python` that didn't run.
pub(super) fn not_run(problem: &Problem) -> CallToolResult {
    let mut result = refused(problem);
    result.structured_content = Some(structured(hatchery::tool::refusal(problem)));
    result
}

/// Returns the result of a call that failed.
pub(super) fn refused(problem: &Problem) -> CallToolResult {
    let message = match problem.retry_after {
        Some(seconds) => format!("{}; try again in {seconds:.1} s", problem.message),
        None => problem.message.clone(),
    };
    CallToolResult::error(vec![ContentBlock::text(message)])
}

#[derive(Default)]
struct Told {
    /// Paragraphs of the text.
    parts: Vec<String>,
    /// Images and links.
    blocks: Vec<ContentBlock>,
    images: usize,
}

impl Told {
    /// Adds a text under a heading, cut if it is long.
    fn output(&mut self, heading: &str, text: &str) {
        let text = text.trim_end();
        if text.is_empty() {
            return;
        }
        let text = cut(text);
        self.parts.push(match (heading.is_empty(), text.contains('\n')) {
            (true, _) => text,
            (false, true) => format!("{heading}\n{text}"),
            (false, false) => format!("{heading} {text}"),
        });
    }

    /// Adds the image of an object, if it has one. Returns whether it has one.
    fn bundle(&mut self, bundle: &MimeBundle) -> bool {
        let found = media::image_types().find_map(|name| match bundle.get(name) {
            Some(MimeData::Bytes(bytes)) => Some(bytes),
            _ => None,
        });
        let Some(bytes) = found else { return false };
        match media::image_type(bytes) {
            Some(actual) if self.images < MOST_IMAGES => {
                self.images += 1;
                self.blocks.push(media::image(bytes, actual));
            }
            Some(_) => {
                self.parts.push(format!("Left out: an image beyond the first {MOST_IMAGES}."))
            }
            None => self.parts.push(format!(
                "Left out: an image of {} bytes that is too large or isn't what it says.",
                bytes.len()
            )),
        }
        true
    }

    fn verdict(&mut self, outcome: &Outcome) {
        match &outcome.verdict {
            Verdict::Completed { repr, bundle, .. } => {
                self.bundle(bundle);
                self.output("value:", repr.as_deref().unwrap_or_default());
            }
            Verdict::Raised(exception) => self.output("", &exception.traceback),
            Verdict::Exited { code, message } => {
                // Python has written what `sys.exit` was given.
                let is_new = |said: &&String| !outcome.stderr_text().contains(said.as_str());
                let message = message.as_ref().filter(is_new);
                let message = message.map(|said| format!(": {said}")).unwrap_or_default();
                self.output("", &format!("The program exited with code {code}{message}"));
            }
            Verdict::Limit(hit) => self.output("", &format!("Stopped: {hit}.")),
            Verdict::Cancelled => self.output("", "The call was cancelled."),
            Verdict::Tampered(tampering) => self.output("", &tampering.to_string()),
            Verdict::SandboxFailed(failure) => {
                let causes = hatchery::error::chain(failure);
                self.output("", &format!("The sandbox failed: {causes}"));
            }
            other => self.output("", other.name()),
        }
    }

    fn notes(&mut self, outcome: &Outcome) {
        if let Some(place) = &outcome.interrupted_at {
            self.output("", &place.traceback);
        }
        if outcome.output_truncated {
            self.parts.push("Some output was dropped at the limit on output.".to_owned());
        }
        for hit in &outcome.limits_met {
            self.parts.push(format!("Limit met: {hit}."));
        }
        if outcome.session_restored {
            let restored = "The session is as it was before this call: what the program did to it \
                is undone.";
            self.parts.push(restored.to_owned());
        }
    }

    /// Links the files of a session, and shows short ones that are gone with the call.
    fn files(&mut self, files: &[ChangedFile], session: Option<&InSession>) {
        for file in files.iter().take(MOST_FILES) {
            let ChangedFile { path, kind, contents, .. } = file;
            let change = match kind {
                ChangeKind::Created => "created",
                ChangeKind::Modified => "modified",
                ChangeKind::Deleted => {
                    self.parts.push(format!("File deleted: {path}"));
                    continue;
                }
                _ => "changed",
            };
            let line = format!("File {change}: {path} ({})", counted(contents.len(), "byte"));
            match (session, std::str::from_utf8(contents)) {
                (Some(session), _) => {
                    self.parts.push(line);
                    self.blocks.push(ContentBlock::resource_link(link(
                        &session.name,
                        path,
                        contents.len() as u64,
                    )));
                }
                (None, Ok(text)) if text.len() <= MOST_FILE_BYTES => {
                    self.parts.push(format!("{line}:\n{}", text.trim_end()));
                }
                (None, _) => {
                    self.parts.push(format!("{line}; not kept, since the call has no session"))
                }
            }
        }
        if files.len() > MOST_FILES {
            self.parts.push(format!("{} changed", counted(files.len() - MOST_FILES, "more file")));
        }
    }
}

/// Returns a file of a session as an entry of a list of resources.
pub(super) fn link(session: &str, path: &str, bytes: u64) -> Resource {
    let resource = Resource::new(uri::of_file(session, path), path).with_size(bytes);
    match media::file_type(path) {
        Some(name) => resource.with_mime_type(name),
        None => resource,
    }
}

/// Leaves out the middle of a long text.
fn cut(text: &str) -> String {
    if text.len() <= MOST_PART_BYTES {
        return text.to_owned();
    }
    let half = MOST_PART_BYTES / 2;
    let (begin, end) = (text.floor_char_boundary(half), text.ceil_char_boundary(text.len() - half));
    let dropped = end - begin;
    format!("{}\n[{dropped} bytes are left out here]\n{}", &text[..begin], &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(result: &CallToolResult) -> &str {
        &result.content[0].as_text().unwrap().text
    }

    fn completed(repr: Option<&str>) -> Outcome {
        Outcome::not_run(Verdict::Completed {
            value: None,
            repr: repr.map(str::to_owned),
            bundle: MimeBundle::default(),
            data: None,
            missing: None,
        })
    }

    #[test]
    fn a_result_is_a_short_text() {
        let mut outcome = completed(Some("42"));
        assert_eq!(text(&of_outcome(&outcome, None)), "value: 42");
        outcome.stdout = b"a\nb\n".to_vec();
        outcome.stderr = b"c\n".to_vec();
        assert_eq!(text(&of_outcome(&outcome, None)), "a\nb\nstderr: c\nvalue: 42");
        let session = InSession { name: "s".to_owned(), is_new: true };
        let result = of_outcome(&completed(None), Some(&session));
        assert_eq!((text(&result), result.is_error), ("session: s", Some(false)));
        assert_eq!(result.structured_content.unwrap()["session"], "s");
        let nothing = of_outcome(&completed(None), None);
        assert_eq!(text(&nothing), "The program ended without output.");
    }

    #[test]
    fn long_parts_lose_their_middle() {
        let mut outcome = completed(None);
        outcome.stdout = "ä".repeat(20_000).into_bytes();
        let result = of_outcome(&outcome, None);
        assert!(text(&result).contains("bytes are left out here"), "{}", text(&result));
        assert!(text(&result).len() < MOST_PART_BYTES + 100);
    }

    #[test]
    fn files_are_linked_in_a_session_and_shown_without_one() {
        let mut outcome = completed(None);
        outcome.files = vec![
            ChangedFile::new("a.csv", ChangeKind::Created, "1,2\n"),
            ChangedFile::new("b.bin", ChangeKind::Modified, [0xff; 3]),
            ChangedFile::new("c", ChangeKind::Deleted, ""),
        ];
        let shown = of_outcome(&outcome, None);
        assert_eq!(
            text(&shown),
            "File created: a.csv (4 bytes):\n1,2\nFile modified: b.bin (3 bytes); not kept, since \
             the call has no session\nFile deleted: c"
        );
        assert_eq!(shown.content.len(), 1);
        let session = InSession { name: "s".to_owned(), is_new: false };
        let linked = of_outcome(&outcome, Some(&session));
        let links: Vec<&str> = linked.content[1..]
            .iter()
            .map(|block| block.as_resource_link().unwrap().uri.as_str())
            .collect();
        let expected = ["hatchery://sessions/s/files/a.csv", "hatchery://sessions/s/files/b.bin"];
        assert_eq!(links, expected);
    }

    #[test]
    fn a_result_as_data_says_each_fact_once() {
        let mut outcome = completed(Some("<Figure>"));
        outcome.stdout = b"a".to_vec();
        let forms = |name: &str| [(name.to_owned(), MimeData::Text("x".repeat(1000)))];
        let both = [forms("text/html"), forms("text/plain")].concat();
        outcome.displays = vec![
            MimeBundle::new(forms("text/html").into()).unwrap(),
            MimeBundle::new(both).unwrap(),
        ];
        let json = of_outcome(&outcome, None).structured_content.unwrap();
        let expected = serde_json::json!({
            "status": "completed", "success": true, "passed": true, "execution_time": 0.0,
            "stdout": "a", "repr": "<Figure>", "displays": [{ "text/plain": "x".repeat(1000) }],
        });
        assert_eq!(json, expected);
        let problem = Problem::new(hatchery::wire::ProblemKind::Usage, "wrong");
        let json = not_run(&problem).structured_content.unwrap();
        assert_eq!(json["error"]["message"], "wrong");
        assert_eq!((&json["status"], &json["success"]), (&"not_run".into(), &false.into()));
    }

    #[test]
    fn only_the_sandboxs_failures_are_errors() {
        use hatchery::SandboxFailure;

        let of = |verdict| of_outcome(&Outcome::not_run(verdict), None).is_error;
        assert_eq!(of(Verdict::Exited { code: 3, message: None }), Some(false));
        assert_eq!(of(Verdict::Cancelled), Some(true));
        assert_eq!(of(Verdict::SandboxFailed(SandboxFailure::NotDeterministic)), Some(true));
        let problem = Problem::new(hatchery::wire::ProblemKind::Refused, "full")
            .with_retry_after(Some(std::time::Duration::from_secs(2)));
        let refused = not_run(&problem);
        assert_eq!((text(&refused), refused.is_error), ("full; try again in 2.0 s", Some(true)));
        assert_eq!(refused.structured_content.unwrap()["status"], "not_run");
    }
}
