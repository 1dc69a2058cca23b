//! A result as a model reads it: a short text, images, and links to files. The files of sessions are
//! resources.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hatchery::error::counted;
use hatchery::files::{ChangeKind, ChangedFile};
use hatchery::outcome::{MimeBundle, MimeData};
use hatchery::wire::{Problem, ProblemKind};
use hatchery::{Outcome, Verdict};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, ContentBlock, ListResourcesResult, ReadResourceResult, Resource,
    ResourceContents,
};
use serde_json::Value;

use super::tools::Naming;
use crate::caller::Caller;
use crate::service::Service;

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

/// Fields of a result that models don't need: its other forms, why it isn't JSON, and accounts.
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
        let found = IMAGES.iter().find_map(|(name, _)| match bundle.get(name) {
            Some(MimeData::Bytes(bytes)) => Some(bytes),
            _ => None,
        });
        let Some(bytes) = found else { return false };
        match image_type(bytes) {
            Some(actual) if self.images < MOST_IMAGES => {
                self.images += 1;
                self.blocks.push(image(bytes, actual));
            }
            Some(_) => {
                self.parts.push(format!("Left out: an image beyond the first {MOST_IMAGES}."))
            }
            None => self.parts.push(format!(
                "Left out: an image of {} bytes that is too large or not of its stated type.",
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
    let resource = Resource::new(of_file(session, path), path).with_size(bytes);
    match file_type(path) {
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

/// The largest image that is sent: 5 MB in base64, the most that models take.
const MOST_IMAGE_BYTES: usize = 3_750_000;

/// The types of images that models take, with how each begins. The first that an object has is used.
const IMAGES: [(&str, &[u8]); 5] = [
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/webp", b"RIFF"),
    ("image/gif", b"GIF8"),
    ("image/gif", b"GIF9"),
];

/// Types of files by the ends of their names.
const TYPES: [(&str, &str); 18] = [
    ("csv", "text/csv"),
    ("css", "text/css"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("py", "text/x-python"),
    ("svg", "image/svg+xml"),
    ("txt", "text/plain"),
    ("webp", "image/webp"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("zip", "application/zip"),
];

/// Returns the type of an image that a client can show. A program says what its bytes are, and a
/// client that believes it may fail at them. So they must begin as such an image does.
pub(super) fn image_type(bytes: &[u8]) -> Option<&'static str> {
    let is_webp = |name| name != "image/webp" || bytes.get(8..12) == Some(b"WEBP");
    let found = IMAGES.iter().find(|(name, begin)| bytes.starts_with(begin) && is_webp(*name));
    found.filter(|_| bytes.len() <= MOST_IMAGE_BYTES).map(|(name, _)| *name)
}

/// Returns an image as a client shows it.
pub(super) fn image(bytes: &[u8], mime_type: &str) -> ContentBlock {
    ContentBlock::image(BASE64_STANDARD.encode(bytes), mime_type)
}

/// Returns the type of a file by its name.
pub(super) fn file_type(path: &str) -> Option<&'static str> {
    let (_, end) = path.rsplit_once('.')?;
    TYPES.iter().find(|(known, _)| end.eq_ignore_ascii_case(known)).map(|(_, name)| *name)
}

/// Returns a file as a resource: a text if it is UTF-8, else base64.
pub(super) fn resource(uri: &str, path: &str, bytes: Vec<u8>) -> ResourceContents {
    match String::from_utf8(bytes) {
        Ok(text) => ResourceContents::text(text, uri)
            .with_mime_type(file_type(path).unwrap_or("text/plain")),
        Err(error) => ResourceContents::blob(BASE64_STANDARD.encode(error.as_bytes()), uri)
            .with_mime_type(file_type(path).unwrap_or("application/octet-stream")),
    }
}

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

/// The most sessions, and roughly the most files, of one page of the list.
const MOST_SESSIONS: usize = 100;
const MOST_LISTED: usize = 1000;

/// The files that an error names if another one was asked for.
const NAMED: usize = 20;

/// Returns a page of the files of the caller's sessions, from behind the session that `after` names.
/// Sessions in which a program runs are left out. Where a name is all that protects a session, the
/// list is empty.
pub(super) async fn list(
    service: &Service,
    caller: &Caller,
    naming: Naming,
    after: Option<&str>,
) -> ListResourcesResult {
    let mut page = ListResourcesResult::default();
    if naming == Naming::Random {
        return page;
    }
    let mut sessions = service.sessions(caller);
    if let Some(after) = after {
        sessions.retain(|session| session.as_str() > after);
    }
    for (place, session) in sessions.iter().enumerate() {
        if place >= MOST_SESSIONS || page.resources.len() >= MOST_LISTED {
            page.next_cursor = Some(sessions[place - 1].clone());
            break;
        }
        let Ok(workspace) = service.workspace(caller, session).await else { continue };
        let files = workspace.files();
        let links = files.iter().map(|(path, bytes)| link(session, path, *bytes));
        page.resources.extend(links);
    }
    page
}

/// Returns the resource of this address.
///
/// # Errors
/// There is no such resource, or a program runs in its session.
pub(super) async fn read_address(
    service: &Service,
    caller: &Caller,
    address: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let unknown = |why: &str| ErrorData::resource_not_found(why.to_owned(), None);
    let Some((session, path)) = parse(address) else {
        return Err(unknown(&format!("resources have addresses of the form {}", TEMPLATE)));
    };
    let bytes =
        read(service, caller, &session, &path).await.map_err(|problem| match problem.kind {
            ProblemKind::Usage => unknown(&problem.message),
            _ => ErrorData::internal_error(problem.message, None),
        })?;
    Ok(ReadResourceResult::new(vec![resource(address, &path, bytes)]))
}

/// Returns the contents of a session's file.
///
/// # Errors
/// There is no such session or file, or a program runs in the session.
pub(super) async fn read(
    service: &Service,
    caller: &Caller,
    session: &str,
    path: &str,
) -> Result<Vec<u8>, Problem> {
    let workspace = service.workspace(caller, session).await?;
    workspace.read(path).ok_or_else(|| {
        let files = workspace.files();
        let names: Vec<&str> = files.iter().take(NAMED).map(|(path, _)| path.as_str()).collect();
        let has = match (files.len(), names.join(", ")) {
            (0, _) => "it has no files".to_owned(),
            (count, names) if count > NAMED => format!("it has {count} files, such as {names}"),
            (_, names) => format!("it has {names}"),
        };
        let message = format!("there is no file `{path}` in the session `{session}`; {has}");
        Problem::new(ProblemKind::Usage, message).with_reason("no_file")
    })
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

    #[test]
    fn only_what_begins_as_an_image_is_one() {
        assert_eq!(image_type(b"\x89PNG\r\n\x1a\nrest"), Some("image/png"));
        assert_eq!(image_type(b"RIFF0000WEBP"), Some("image/webp"));
        for other in [&b""[..], b"\x89PNG", b"RIFF0000WAVE", b"<svg/>", b"RIFF"] {
            assert_eq!(image_type(other), None);
        }
        let mut large = b"\xff\xd8\xff".to_vec();
        assert_eq!(image_type(&large), Some("image/jpeg"));
        large.resize(MOST_IMAGE_BYTES + 1, 0);
        assert_eq!(image_type(&large), None);
    }

    #[test]
    fn files_are_texts_or_base64() {
        assert_eq!((file_type("a/b.CSV"), file_type("a.b/c")), (Some("text/csv"), None));
        let text = resource("u", "a.json", b"{}".to_vec());
        assert_eq!(text, ResourceContents::text("{}", "u").with_mime_type("application/json"));
        let blob = resource("u", "a", vec![0xff]);
        let expected = ResourceContents::blob("/w==", "u");
        assert_eq!(blob, expected.with_mime_type("application/octet-stream"));
    }

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
