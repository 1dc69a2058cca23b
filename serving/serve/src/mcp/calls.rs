//! The tools.

use std::time::Duration;

use hatchery::event::{Event, EventKind};
use hatchery::wire::{Intake, InvalidJob, Problem, ProblemKind};
use hatchery::{Job, Outcome, Ticket};
use rmcp::model::{
    CallToolResult, ContentBlock, JsonObject, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::content::{self, InSession, image, image_type, read, resource};
use super::tools::{MOST_FORKS, NEW, Naming};
use crate::caller::{Caller, unguessable};
use crate::service::Service;

/// The longest text of a file that `read_file` returns.
const MOST_TEXT_BYTES: usize = 256 << 10;

/// The longest other file that it returns.
const MOST_BLOB_BYTES: usize = 1 << 20;

/// A call of a tool: who calls, and on what.
pub(super) struct ToolCall<'a> {
    pub(super) service: &'a Service,
    pub(super) caller: &'a Caller,
    pub(super) naming: Naming,
    pub(super) arguments: JsonObject,
}

impl ToolCall<'_> {
    /// Calls the tool of this name; `None` if there is none.
    pub(super) async fn make(
        self,
        name: &str,
        context: &RequestContext<RoleServer>,
        progress: &mut Progress,
    ) -> Option<CallToolResult> {
        let result = match name {
            "run_python" => {
                let ran = self.run_python(context, progress).await;
                return Some(ran.unwrap_or_else(|problem| content::not_run(&problem)));
            }
            "fork_session" => self.fork_session().await,
            "reset_session" => self.reset_session().await,
            "list_packages" => self.list_packages().await,
            "read_file" => self.read_file().await,
            _ => return None,
        };
        Some(result.unwrap_or_else(|problem| content::refused(&problem)))
    }

    async fn run_python(
        mut self,
        context: &RequestContext<RoleServer>,
        progress: &mut Progress,
    ) -> Result<CallToolResult, Problem> {
        let named = take_text(&mut self.arguments, "session")?;
        let python = match self.has_pythons() {
            true => take_text(&mut self.arguments, "python")?,
            false => None,
        };
        let job = self.job()?;
        let job = python.iter().fold(job, |job, python| job.python(python.as_str()));
        let session = match named {
            Some(name) => Some(self.enter(name, python.as_deref()).await?),
            None => None,
        };
        let name = session.as_ref().map(|session| session.name.as_str());
        let submitted = self.service.submit(self.caller, job, name).await;
        let ticket = submitted.map_err(|problem| self.explained(problem, name))?;
        let outcome = follow(ticket, session.is_some(), context, progress).await;
        Ok(content::of_outcome(&outcome, session.as_ref()))
    }

    /// Whether callers choose among several Python builds.
    fn has_pythons(&self) -> bool {
        self.service.pool().pythons().nth(1).is_some()
    }

    /// Makes a job of the arguments. A model wrote them, so they only lower limits.
    fn job(&mut self) -> Result<Job, Problem> {
        let arguments = Value::Object(std::mem::take(&mut self.arguments));
        let sent = Intake::TOOL.job(arguments).map_err(|error| match error {
            InvalidJob::Unknown { field, mut known } => {
                known.push("session".to_owned());
                known.extend(self.has_pythons().then(|| "python".to_owned()));
                InvalidJob::Unknown { field, known }
            }
            error => error,
        });
        let sent = sent.map_err(|error| usage(error.to_string()))?;
        let job = Job::from_wire(sent, &Intake::TOOL).map_err(|error| error.problem())?;
        Ok(self.caller.own(job))
    }

    /// Returns the session that a call names, and opens it on this Python build if the name may be
    /// new.
    async fn enter(&self, name: String, python: Option<&str>) -> Result<InSession, Problem> {
        let service = self.service;
        if name == NEW {
            let name = unguessable();
            service.open(self.caller, &name, python).await?;
            return Ok(InSession { name, is_new: true });
        }
        match service.session(self.caller, &name) {
            Ok(_) => {}
            Err(problem) if self.naming == Naming::Random => {
                return Err(self.explained(problem, Some(&name)));
            }
            Err(problem) if problem.reason.as_deref() == Some("no_session") => {
                match service.open(self.caller, &name, python).await {
                    // Another call has opened it meanwhile.
                    Err(problem) if problem.reason.as_deref() == Some("session_exists") => {}
                    opened => opened?,
                }
            }
            Err(problem) => return Err(problem),
        }
        Ok(InSession { name, is_new: false })
    }

    /// Says what to do about a session that is gone or never was. One that is gone is closed, so that
    /// its name is free.
    fn explained(&self, mut problem: Problem, session: Option<&str>) -> Problem {
        let reason = problem.reason.as_deref();
        let Some(session) = session else { return problem };
        let is_gone = reason == Some("session_gone");
        if !is_gone && reason != Some("no_session") {
            return problem;
        }
        if is_gone {
            // Another call may have closed it already.
            let _ = self.service.close(self.caller, session);
        }
        problem.message += match (is_gone, self.naming) {
            (true, Naming::Free) => {
                ". Its variables and files are lost; the next call that names it starts afresh"
            }
            (true, Naming::Random) => {
                ". Its variables and files are lost; give \"new\" to open another one"
            }
            (false, Naming::Free) => "; `run_python` opens a session when it first names it",
            (false, Naming::Random) => {
                "; give `run_python` the session \"new\" to open one, then the name in its result"
            }
        };
        problem
    }

    async fn fork_session(mut self) -> Result<CallToolResult, Problem> {
        let count = match self.arguments.remove("count") {
            None | Some(Value::Null) => None,
            Some(count) => {
                let count = count.as_u64().and_then(|count| usize::try_from(count).ok());
                let is_valid = |count: &usize| (1..=MOST_FORKS).contains(count);
                Some(count.filter(is_valid).ok_or_else(|| {
                    usage(format!("`count` is a whole number from 1 to {MOST_FORKS}"))
                })?)
            }
        };
        let optional = (self.naming == Naming::Free).then_some("name");
        let ([session], name) = texts(self.arguments.clone(), ["session"], optional)?;
        let names = match (name.filter(|name| name != NEW), count) {
            (Some(name), None | Some(1)) => vec![name],
            (Some(name), Some(count)) => {
                (1..=count).map(|number| format!("{name}-{number}")).collect()
            }
            (None, count) => (0..count.unwrap_or(1)).map(|_| unguessable()).collect(),
        };
        let forked = self.service.fork_as(self.caller, &session, &names).await;
        forked.map_err(|problem| self.explained(problem, Some(&session)))?;
        let text = match &names[..] {
            [name] => format!("Opened the session `{name}`, which continues from `{session}`."),
            names => format!(
                "Opened {} sessions that continue from `{session}`: `{}`.",
                names.len(),
                names.join("`, `")
            ),
        };
        Ok(structured(text, json!({ "session": names[0], "sessions": names })))
    }

    async fn reset_session(self) -> Result<CallToolResult, Problem> {
        let ([session], _) = texts(self.arguments.clone(), ["session"], None)?;
        let reset = self.service.reset(self.caller, &session).await;
        reset.map_err(|problem| self.explained(problem, Some(&session)))?;
        let text = format!("The session `{session}` is empty: no variables, no files.");
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
    }

    async fn list_packages(self) -> Result<CallToolResult, Problem> {
        let optional = self.has_pythons().then_some("python");
        let ([], python) = texts(self.arguments, [], optional)?;
        let packages = self.service.packages(python).await?;
        let mut packages: Vec<_> =
            packages.iter().map(|package| (&package.name, package.version.as_deref())).collect();
        packages.sort_unstable();
        let line = |(name, version): &(&String, Option<&str>)| match version {
            Some(version) => format!("{name} {version}"),
            None => (*name).clone(),
        };
        let text = packages.iter().map(line).collect::<Vec<_>>().join("\n");
        let packages: Vec<Value> = packages
            .iter()
            .map(|(name, version)| json!({ "name": name, "version": version }))
            .collect();
        Ok(structured(text, json!({ "packages": packages })))
    }

    async fn read_file(self) -> Result<CallToolResult, Problem> {
        let ([session, path], _) = texts(self.arguments.clone(), ["session", "path"], None)?;
        let read = read(self.service, self.caller, &session, &path).await;
        let bytes = read.map_err(|problem| self.explained(problem, Some(&session)))?;
        let length = bytes.len();
        let block = match image_type(&bytes) {
            Some(name) => image(&bytes, name),
            None => match String::from_utf8(bytes) {
                Ok(text) if length <= MOST_TEXT_BYTES => ContentBlock::text(text),
                Err(error) if length <= MOST_BLOB_BYTES => {
                    let uri = super::content::of_file(&session, &path);
                    ContentBlock::resource(resource(&uri, &path, error.into_bytes()))
                }
                _ => {
                    let message = format!(
                        "`{path}` has {length} bytes, too many to return; read a part of it with \
                         `run_python`"
                    );
                    return Err(Problem::new(ProblemKind::Refused, message));
                }
            },
        };
        Ok(CallToolResult::success(vec![block]))
    }
}

/// Waits for a job's end, and tells of its progress meanwhile. If the client gives up, the program is
/// interrupted: a session keeps its variables.
async fn follow(
    mut ticket: Ticket,
    is_in_session: bool,
    context: &RequestContext<RoleServer>,
    progress: &mut Progress,
) -> Outcome {
    let mut events = ticket.events();
    let mut has_events = progress.to.is_some();
    let mut is_wanted = true;
    loop {
        tokio::select! {
            outcome = ticket.outcome() => return outcome,
            () = context.ct.cancelled(), if is_wanted => {
                is_wanted = false;
                match is_in_session {
                    true => ticket.interrupt(),
                    false => ticket.cancel(),
                }
            }
            event = events.next(), if has_events => match event {
                Some(event) => progress.note(event),
                None => has_events = false,
            },
            () = progress.tick() => {}
        }
    }
}

fn structured(text: String, json: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json);
    result
}

/// The characters of a field's name that an error shows.
const SHOWN: usize = 40;

/// Takes a field that is a text; one that is `null` is not given.
///
/// # Errors
/// It is something else.
pub(super) fn take_text(
    arguments: &mut JsonObject,
    field: &str,
) -> Result<Option<String>, Problem> {
    match arguments.remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(usage(format!("`{field}` must be a string"))),
    }
}

/// Reads arguments that are all texts: `required` fields, and an `optional` one.
///
/// # Errors
/// A field is missing, unknown, or no text.
pub(super) fn texts<const N: usize>(
    mut arguments: JsonObject,
    required: [&str; N],
    optional: Option<&str>,
) -> Result<([String; N], Option<String>), Problem> {
    let known: Vec<String> =
        required.iter().copied().chain(optional).map(|field| format!("`{field}`")).collect();
    let mut given: [String; N] = std::array::from_fn(|_| String::new());
    for (field, given) in required.into_iter().zip(&mut given) {
        let missing = || usage(format!("give `{field}`, a string"));
        *given = take_text(&mut arguments, field)?.ok_or_else(missing)?;
    }
    let more = optional.map(|field| take_text(&mut arguments, field)).transpose()?.flatten();
    match arguments.keys().next() {
        None => Ok((given, more)),
        Some(field) => {
            let field: String = field.chars().take(SHOWN).collect();
            let known = match known.is_empty() {
                true => "the tool has no arguments".to_owned(),
                false => format!("use {}", known.join(", ")),
            };
            Err(usage(format!("there is no field `{field}`; {known}")))
        }
    }
}

pub(super) fn usage(message: impl Into<String>) -> Problem {
    Problem::new(ProblemKind::Usage, message)
}

/// The shortest time between two notifications.
const TICK: Duration = Duration::from_millis(250);

/// After how many ticks without output a notification is sent all the same, so that clients see the
/// call is alive.
const SILENT_TICKS: u32 = 4;

/// The bytes of output in which the last line is sought, and the most characters of it that are
/// sent.
const TAIL_BYTES: usize = 800;
const MOST_CHARACTERS: usize = 200;

/// Notifies a client of a call's progress, if the client asked for it.
pub(super) struct Progress {
    to: Option<(Peer<RoleServer>, ProgressToken)>,
    ticks: Interval,
    began: Option<Instant>,
    silent: u32,
    /// The end of the output.
    tail: Vec<u8>,
    has_news: bool,
}

impl Progress {
    pub(super) fn new(context: &RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let to = token.map(|token| (context.peer.clone(), token));
        Self { to, ticks, began: None, silent: 0, tail: Vec::new(), has_news: false }
    }

    /// Notes what has happened in the job.
    pub(super) fn note(&mut self, event: Event) {
        let EventKind::Output { bytes, .. } = event.kind else { return };
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
        self.has_news = true;
    }

    /// Waits for the next moment at which something may be sent, and sends it if there is something
    /// to say. Never returns if the client wants nothing.
    pub(super) async fn tick(&mut self) {
        let Some((peer, token)) = &self.to else { return std::future::pending().await };
        let now = self.ticks.tick().await;
        let Some(began) = self.began else {
            self.began = Some(now);
            return;
        };
        self.silent += 1;
        if !self.has_news && self.silent < SILENT_TICKS {
            return;
        }
        self.silent = 0;
        let seconds = now.duration_since(began).as_secs_f64();
        let mut notification = ProgressNotificationParam::new(token.clone(), seconds);
        notification.message = self.has_news.then(|| last_line(&self.tail)).flatten();
        self.has_news = false;
        // A client that is gone ends the call in another way.
        let _ = peer.notify_progress(notification).await;
    }
}

/// Returns the last line that isn't blank, without control characters.
fn last_line(tail: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(tail);
    let line = text.rsplit(['\n', '\r']).find(|line| !line.trim().is_empty())?;
    let line = line.trim_end().chars().filter(|character| !character.is_control());
    Some(line.take(MOST_CHARACTERS).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(arguments: Value, optional: Option<&str>) -> String {
        let arguments = arguments.as_object().unwrap().clone();
        texts(arguments, ["session"], optional).unwrap_err().message
    }

    #[test]
    fn errors_name_the_field() {
        assert_eq!(problem(json!({}), None), "give `session`, a string");
        assert_eq!(problem(json!({"session": null}), None), "give `session`, a string");
        assert_eq!(problem(json!({"session": 1}), None), "`session` must be a string");
        let unknown = problem(json!({"session": "a", "nam": "b"}), Some("name"));
        assert_eq!(unknown, "there is no field `nam`; use `session`, `name`");
        let none = texts(json!({"a": 1}).as_object().unwrap().clone(), [], None).unwrap_err();
        assert_eq!(none.message, "there is no field `a`; the tool has no arguments");
    }

    #[test]
    fn optional_fields_may_be_left_out() {
        let given = json!({"session": "a", "name": null}).as_object().unwrap().clone();
        assert_eq!(texts(given, ["session"], Some("name")).unwrap(), (["a".to_owned()], None));
        let given = json!({"session": "a", "name": "b"}).as_object().unwrap().clone();
        let (session, name) = texts(given, ["session"], Some("name")).unwrap();
        assert_eq!((session, name), (["a".to_owned()], Some("b".to_owned())));
    }

    #[test]
    fn the_last_line_is_plain_and_short() {
        assert_eq!(last_line(b"a\n b\x1b[0m \n\n").as_deref(), Some(" b[0m"));
        assert_eq!(last_line(b"1 %\r2 %\r").as_deref(), Some("2 %"));
        assert_eq!(last_line(b" \n"), None);
        assert_eq!(last_line(&[b'x'; TAIL_BYTES]).unwrap().len(), MOST_CHARACTERS);
    }
}
