//! Files of the default context, as E2B's daemon `envd` serves them: `/files` for contents, and the
//! calls of its service `Filesystem` as JSON for the rest. The SDK speaks to port 49983 for these.
//!
//! A job of the context does the work. So paths mean what they mean to a cell, and the limits of
//! the context hold.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hatchery::wire::{self, Problem, ProblemKind};
use hatchery::{Outcome, Verdict};
use memchr::memmem::{Finder, find};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::request::{Refused, Sent, in_form};
use super::contexts::Contexts;
use super::sandboxes::{Visit, code_form};
use crate::answer::json as json_answer;
use crate::caller::Caller;
use crate::facades::run::failure;

/// What the job runs.
const PROGRAM: &str = include_str!("files.py");

/// The deepest list.
const MOST_DEPTH: u32 = 64;

pub(super) fn routes() -> Router<Arc<Contexts>> {
    let calls = Router::new().route("/filesystem.Filesystem/{method}", post(call));
    let contents = Router::new().route("/files", get(download).post(upload));
    in_form(contents, code_form).merge(in_form(calls, call_form))
}

/// Returns why a request about files failed, as the program names it.
fn named(reason: &str, message: String) -> Refused {
    let status = match reason {
        "not_found" => StatusCode::NOT_FOUND,
        "already_exists" => StatusCode::CONFLICT,
        "permission_denied" => StatusCode::FORBIDDEN,
        "no_space" => StatusCode::INSUFFICIENT_STORAGE,
        "invalid_argument" => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Refused::new(status, message)
}

pub(super) fn internal(message: impl Into<String>) -> Refused {
    Refused::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}

/// Connect, the protocol of the calls, names its errors.
pub(super) fn call_form(refused: &Refused) -> Response {
    let status = if refused.is_unreadable { StatusCode::BAD_REQUEST } else { refused.status };
    json_answer(status, &call_error(refused))
}

/// What Connect says of a call that failed.
pub(super) fn call_error(refused: &Refused) -> Value {
    let code = match refused.status {
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::CONFLICT => "already_exists",
        StatusCode::FORBIDDEN => "permission_denied",
        StatusCode::INSUFFICIENT_STORAGE | StatusCode::TOO_MANY_REQUESTS => "resource_exhausted",
        StatusCode::NOT_IMPLEMENTED => "unimplemented",
        StatusCode::INTERNAL_SERVER_ERROR => "internal",
        StatusCode::BAD_GATEWAY => "unavailable",
        StatusCode::GATEWAY_TIMEOUT => "deadline_exceeded",
        _ => "invalid_argument",
    };
    json!({ "code": code, "message": refused.message })
}

async fn download(
    State(contexts): State<Arc<Contexts>>,
    visit: Visit,
    request: Request,
) -> Result<Response, Refused> {
    let contents = contexts.read(&visit, path_of(&request)).await?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], contents).into_response())
}

async fn upload(
    State(contexts): State<Arc<Contexts>>,
    visit: Visit,
    request: Request,
) -> Result<Response, Refused> {
    Ok(json_answer(StatusCode::OK, &contexts.write(&visit, request).await?))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FileCall {
    path: String,
    depth: Option<u32>,
    source: String,
    destination: String,
}

async fn call(
    State(contexts): State<Arc<Contexts>>,
    Path(method): Path<String>,
    visit: Visit,
    Sent(_, FileCall { path, depth, source, destination }): Sent<FileCall>,
) -> Result<Response, Refused> {
    let (asked, member) = match method.as_str() {
        "Stat" => (json!({ "do": "stat", "path": path }), Some("entry")),
        "ListDir" => {
            let depth = depth.unwrap_or(1).clamp(1, MOST_DEPTH);
            (json!({ "do": "list", "path": path, "depth": depth }), Some("entries"))
        }
        "MakeDir" => (json!({ "do": "make", "path": path }), Some("entry")),
        "Move" => (json!({ "do": "move", "path": source, "to": destination }), Some("entry")),
        "Remove" => (json!({ "do": "remove", "path": path }), None),
        _ => return Err(unsupported(format!("this server has no `Filesystem/{method}`"))),
    };
    let done = contexts.ask(&visit, &asked, Bytes::new()).await?;
    let answer = member.map_or_else(|| json!({}), |member| json!({ member: done }));
    Ok(json_answer(StatusCode::OK, &answer))
}

pub(super) fn unsupported(message: String) -> Refused {
    Refused::new(StatusCode::NOT_IMPLEMENTED, message)
}

impl Contexts {
    async fn read(&self, visit: &Visit, path: Option<String>) -> Result<Vec<u8>, Refused> {
        let path = path.ok_or_else(no_path)?;
        // The program finds out why there is no file, and holds the turn.
        let asked = json!({ "do": "read", "path": path });
        let cell = self.enter_default(visit, job(&visit.caller, &asked, Bytes::new())?).await?;
        let mut cell = cell.ok_or_else(restarted)?;
        let found = done(&cell.ticket.outcome().await)?;
        let workspace = self.service.workspace(&visit.caller, &cell.session).await?;
        let contents = found.as_str().and_then(|path| workspace.read(path));
        contents.ok_or_else(|| Refused::bad(format!("{path}: not a file that can be sent")))
    }

    /// Writes what a request sends, and describes each file.
    async fn write(&self, visit: &Visit, request: Request) -> Result<Vec<Value>, Refused> {
        let path = path_of(&request);
        let headers = request.headers().clone();
        let body = Bytes::from_request(request, &()).await;
        let body =
            body.map_err(|rejection| Refused::new(rejection.status(), rejection.body_text()))?;
        let is_compressed = is_compressed(&headers)?;
        let mut written = Vec::new();
        for (path, contents) in files(&headers, path, &body)? {
            let asked = json!({ "do": "write", "path": path, "gzip": is_compressed });
            written.push(self.ask(visit, &asked, contents).await?);
        }
        Ok(written)
    }

    /// Does something in the default context, once its cells are done.
    async fn ask(&self, visit: &Visit, asked: &Value, contents: Bytes) -> Result<Value, Refused> {
        let cell = self.enter_default(visit, job(&visit.caller, asked, contents)?).await?;
        let mut cell = cell.ok_or_else(restarted)?;
        done(&cell.ticket.outcome().await)
    }
}

/// A job that does what is asked, with no trace among the names of the cells.
fn job(caller: &Caller, asked: &Value, contents: Bytes) -> Result<hatchery::Job, Refused> {
    // A text in JSON is one in Python as well.
    let quoted = |text: String| Value::from(text).to_string();
    let (program, asked) = (quoted(PROGRAM.to_owned()), quoted(asked.to_string()));
    let code = format!(
        "(lambda names: (exec({program}, names), names['answer'])[1])\
         ({{'asked': __import__('json').loads({asked})}})"
    );
    Ok(caller.job(wire::Job::code(&code))?.stdin(contents))
}

fn done(outcome: &Outcome) -> Result<Value, Refused> {
    if let Some(ending) = failure(outcome) {
        return Err(internal(format!("{}: {}", ending.name, ending.message)));
    }
    let Verdict::Completed { value: Some(value), .. } = &outcome.verdict else {
        return Err(internal("the answer is too long"));
    };
    match (value.get("done"), value.get("reason"), value.get("message")) {
        (Some(done), _, _) => Ok(done.clone()),
        (None, Some(Value::String(reason)), Some(Value::String(message))) => {
            Err(named(reason, message.clone()))
        }
        _ => Err(internal("cells have changed what the context's Python does")),
    }
}

fn path_of(request: &Request) -> Option<String> {
    let query = request.uri().query().unwrap_or_default();
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(name, _)| name == "path").map(|(_, path)| path.into_owned())
}

fn is_compressed(headers: &HeaderMap) -> Result<bool, Refused> {
    match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes()) {
        None | Some(b"identity") => Ok(false),
        Some(b"gzip") => Ok(true),
        Some(_) => Err(Refused::bad("only gzip is supported for compressed bodies")),
    }
}

/// Returns the files that a body has, with their paths.
fn files(
    headers: &HeaderMap,
    path: Option<String>,
    body: &Bytes,
) -> Result<Vec<(String, Bytes)>, Refused> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default();
    if content_type.eq_ignore_ascii_case("application/octet-stream") {
        return Ok(vec![(path.ok_or_else(no_path)?, body.clone())]);
    }
    let boundary = boundary(content_type).ok_or_else(|| {
        Refused::bad("send files as multipart/form-data or application/octet-stream")
    })?;
    let files = form_files(body, &boundary);
    let files = files.ok_or_else(|| Refused::bad("the form isn't complete"))?;
    // The path of the request is that of its only file.
    let only = path.filter(|_| files.len() == 1);
    let with_path =
        |file: FormFile| Ok((only.clone().or(file.name).ok_or_else(no_path)?, file.contents));
    files.into_iter().map(with_path).collect()
}

fn no_path() -> Refused {
    Refused::bad("the request names no path")
}

fn restarted() -> Refused {
    Refused::from(Problem::new(ProblemKind::Refused, "the context was restarted meanwhile"))
}

// Forms of files: `multipart/form-data`, as RFC 7578 has it, in bodies that are there already.
//
// The crate that axum has for this needs a library of encodings whose features would have wasmer
// built again.

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
pub(super) fn form_files(body: &Bytes, boundary: &str) -> Option<Vec<FormFile>> {
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

    #[test]
    fn files_have_the_paths_of_their_request_or_their_form() {
        let sent = |content_type: &str, path: Option<&str>, body: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
            let body = Bytes::copy_from_slice(body.as_bytes());
            let files = files(&headers, path.map(str::to_owned), &body);
            let files = files.map_err(|trouble| trouble.message)?;
            Ok(files.into_iter().map(|(path, _)| path).collect::<Vec<_>>())
        };
        let form = "multipart/form-data; boundary=b";
        let part = |name: &str| {
            let head = "Content-Disposition: form-data; name=\"file\"";
            format!("--b\r\n{head}{name}\r\n\r\ncontents\r\n")
        };
        let (one, other) = (part("; filename=\"a\""), part("; filename=\"c\""));
        let both = format!("{one}{other}--b--");
        let alone = format!("{one}--b--");
        let nameless = format!("{}--b--", part(""));
        let paths = |paths: &[&str]| Ok(paths.iter().map(|&path| path.to_owned()).collect());
        assert_eq!(sent(form, None, &both), paths(&["a", "c"]));
        assert_eq!(sent(form, Some("d"), &both), paths(&["a", "c"]));
        assert_eq!(sent(form, Some("d"), &alone), paths(&["d"]));
        assert_eq!(sent(form, Some("d"), &nameless), paths(&["d"]));
        assert_eq!(sent("application/octet-stream", Some("e"), ""), paths(&["e"]));
        for (content_type, path, body, expected) in [
            ("application/octet-stream", None, "", "names no path"),
            (form, None, nameless.as_str(), "names no path"),
            ("text/plain", Some("a"), "", "as multipart"),
            (form, None, &one, "isn't complete"),
        ] {
            let refused: String = sent(content_type, path, body).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn answers_that_cells_forge_are_no_files() {
        let of = |value: Value| {
            let bundle = hatchery::outcome::MimeBundle::default();
            let (value, repr, data, missing) = (Some(value), None, None, None);
            let verdict = Verdict::Completed { value, repr, bundle, data, missing };
            done(&Outcome::not_run(verdict)).map_err(|trouble| trouble.status.as_u16())
        };
        assert_eq!(of(json!({ "done": 1 })), Ok(json!(1)));
        assert_eq!(of(json!({ "reason": "not_found", "message": "" })), Err(404));
        assert_eq!(of(json!({ "reason": "new", "message": "" })), Err(500));
        for forged in [json!(1), json!({ "reason": 1, "message": 1 }), json!([])] {
            assert_eq!(of(forged), Err(500));
        }
    }

    fn shown(body: &str) -> Option<Vec<String>> {
        let files = form_files(&Bytes::copy_from_slice(body.as_bytes()), "b")?;
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
