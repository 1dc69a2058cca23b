//! Turns the events of a cell's job into the cell's outputs, in the format of nbformat.

use hatchery::event::{EventKind, Stream};
use hatchery::outcome::{MimeBundle, MimeData};
use hatchery::{Exception, LimitHit, Outcome, Verdict};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::escapes::harmless;

/// The longest message about a problem outside the notebook, in characters.
const MOST_CHARACTERS: usize = 200;

/// The form that says what to do with a display. The guest's `showing.py` defines the same name,
/// and describes its contents.
const CONTROL: &str = "application/vnd.hatchery.notebook+json";

/// What to do with a display.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Control {
    kind: Kind,
    metadata: Map<String, Value>,
    display_id: Option<String>,
    wait: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// Display it.
    #[default]
    Display,
    /// Display it as the value of an expression of the cell.
    Result,
    /// Replace the displays of this id.
    Update,
    /// Clear the cell's outputs.
    Clear,
    /// The cell has failed: insert the problem here, perhaps before further outputs.
    Failed,
}

/// The outputs of one cell, in order. Uninterrupted output to one stream is one output.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    /// The cell's number, from 1.
    number: usize,
    finished: Vec<Value>,
    /// Output to a stream since the last output of another kind.
    said: Option<(Stream, Vec<u8>)>,
    /// The displays with an id: the id, and the index of the output.
    places: Vec<(String, usize)>,
    updates: Vec<Update>,
    /// Whether the next output replaces all earlier ones.
    clears_next: bool,
    /// The index of the output, `Null` so far, that the problem fills.
    problem_at: Option<usize>,
}

/// All outputs of a cell that has ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) outputs: Vec<Value>,
    /// The displays with an id: the id, and the index of the output.
    pub(super) places: Vec<(String, usize)>,
    /// New contents for displays of earlier cells.
    pub(super) updates: Vec<Update>,
}

/// New contents for all displays of an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) display_id: String,
    data: Value,
    metadata: Value,
}

impl Update {
    /// Writes the contents into an output.
    pub(super) fn apply(&self, output: &mut Value) {
        output["data"] = self.data.clone();
        output["metadata"] = self.metadata.clone();
    }
}

/// Why a cell did not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// The name of an exception's class, without its module.
    pub(super) name: String,
    pub(super) message: String,
    pub(super) traceback: String,
}

impl Outputs {
    pub(super) fn of_cell(number: usize) -> Self {
        Self { number, ..Self::default() }
    }

    /// Handles the next event.
    pub(super) fn take(&mut self, event: EventKind) {
        match event {
            EventKind::Output { stream, bytes } => self.say(stream, &bytes),
            EventKind::Display(bundle) => self.show(data_of(&bundle), control_of(&bundle)),
            _ => {}
        }
    }

    /// Adds output to a stream.
    pub(super) fn say(&mut self, stream: Stream, bytes: &[u8]) {
        self.clear_if_due();
        if self.said.as_ref().is_some_and(|(last, _)| *last != stream) {
            self.flush();
        }
        self.said.get_or_insert_with(|| (stream, Vec::new())).1.extend_from_slice(bytes);
    }

    /// Adds a display, or changes earlier ones.
    fn show(&mut self, data: Value, control: Control) {
        let Control { kind, metadata, display_id, wait } = control;
        match kind {
            Kind::Display => {
                let output = json!({
                    "data": data,
                    "metadata": metadata,
                    "output_type": "display_data",
                });
                self.push(output);
                self.places.extend(display_id.map(|id| (id, self.finished.len() - 1)));
            }
            Kind::Result => self.push(json!({
                "data": data,
                "execution_count": self.number,
                "metadata": metadata,
                "output_type": "execute_result",
            })),
            Kind::Update => {
                let display_id = display_id.unwrap_or_default();
                let update = Update { display_id, data, metadata: metadata.into() };
                for (_, at) in self.places.iter().filter(|(id, _)| *id == update.display_id) {
                    update.apply(&mut self.finished[*at]);
                }
                self.updates.push(update);
            }
            Kind::Clear => {
                self.clears_next = true;
                if !wait {
                    self.clear_if_due();
                }
            }
            Kind::Failed => {
                self.push(Value::Null);
                self.problem_at = Some(self.finished.len() - 1);
            }
        }
    }

    /// Adds the problem that the cell failed with.
    pub(super) fn take_problem(&mut self, problem: &Problem) {
        let traceback: Vec<&str> = problem.traceback.lines().collect();
        let output = json!({
            "ename": problem.name,
            "evalue": problem.message,
            "output_type": "error",
            "traceback": traceback,
        });
        match self.problem_at.take() {
            Some(at) => self.finished[at] = output,
            None => self.push(output),
        }
    }

    /// Returns the outputs once the cell has ended.
    pub(super) fn finish(mut self) -> Finished {
        self.flush();
        if let Some(at) = self.problem_at {
            // The program reported a failure itself, without one.
            self.finished.remove(at);
            self.places.retain_mut(|(_, place)| {
                *place -= usize::from(*place > at);
                true
            });
        }
        let Self { finished: outputs, places, updates, .. } = self;
        Finished { outputs, places, updates }
    }

    fn push(&mut self, output: Value) {
        self.clear_if_due();
        self.flush();
        self.finished.push(output);
    }

    fn clear_if_due(&mut self) {
        if std::mem::take(&mut self.clears_next) {
            self.finished.clear();
            self.places.clear();
            self.said = None;
            self.problem_at = None;
        }
    }

    fn flush(&mut self) {
        let Some((stream, bytes)) = self.said.take() else { return };
        let name = match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        let text = String::from_utf8_lossy(&bytes);
        self.finished.push(json!({ "name": name, "output_type": "stream", "text": lines(&text) }));
    }
}

impl Problem {
    /// Returns why a cell did not complete; `None` if it did.
    pub(super) fn of(outcome: &Outcome) -> Option<Self> {
        let problem = match &outcome.verdict {
            Verdict::Completed { .. } => return None,
            Verdict::Raised(exception) => Self::of_exception(exception),
            Verdict::Exited { code, message } => {
                let message = message.clone().unwrap_or_else(|| code.to_string());
                Self::new("SystemExit", message)
            }
            Verdict::Limit(hit) => Self::of_limit(hit, outcome.interrupted_at.as_ref()),
            Verdict::Cancelled => {
                let traceback = outcome.interrupted_at.as_ref().map(|at| at.traceback.clone());
                let problem = Self::new("KeyboardInterrupt", String::new());
                Self { traceback: traceback.unwrap_or_default(), ..problem }
            }
            Verdict::Tampered(tampering) => Self::new("Tampered", tampering.to_string()),
            Verdict::SandboxFailed(failure) => Self::new("SandboxFailed", failure.to_string()),
            verdict => Self::new(verdict.name(), String::new()),
        };
        Some(problem)
    }

    /// Creates a problem without a traceback of the program.
    pub(super) fn new(name: &str, message: String) -> Self {
        let traceback = match message.as_str() {
            "" => name.to_owned(),
            _ => format!("{name}: {message}"),
        };
        Self { name: name.to_owned(), message, traceback }
    }

    fn of_exception(exception: &Exception) -> Self {
        let name = exception.type_name.rsplit('.').next().unwrap_or_default();
        Self {
            name: name.to_owned(),
            message: exception.message.clone(),
            traceback: exception.traceback.clone(),
        }
    }

    fn of_limit(hit: &LimitHit, place: Option<&Exception>) -> Self {
        let problem = Self::new("LimitReached", hit.to_string());
        let place = place.map(|exception| exception.traceback.as_str()).unwrap_or_default();
        Self { traceback: format!("{place}{}", problem.traceback), ..problem }
    }
}

impl std::fmt::Display for Problem {
    /// Formats one line, harmless for a terminal.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = self.message.lines().next().unwrap_or_default();
        let separator = if line.is_empty() { "" } else { ": " };
        let text = format!("{}{separator}{line}", self.name);
        let shown: String = harmless(&text).chars().take(MOST_CHARACTERS).collect();
        formatter.write_str(&shown)
    }
}

/// Returns the forms of an object as in notebooks: texts as lines, JSON as itself, bytes in base64.
fn data_of(bundle: &MimeBundle) -> Value {
    let encoded = serde_json::to_value(bundle).unwrap_or_default();
    let mut data = Map::new();
    for (name, form) in bundle.iter().filter(|(name, _)| *name != CONTROL) {
        let form = match form {
            MimeData::Text(text) if is_json(name) => {
                serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str()))
            }
            MimeData::Text(text) => lines(text),
            _ => encoded[name].clone(),
        };
        data.insert(name.to_owned(), form);
    }
    Value::Object(data)
}

/// Returns what to do with a display. Without control data, it is displayed.
fn control_of(bundle: &MimeBundle) -> Control {
    let control = bundle.text(CONTROL).and_then(|text| serde_json::from_str(text).ok());
    control.unwrap_or_default()
}

fn is_json(mime_type: &str) -> bool {
    mime_type == "application/json"
        || mime_type.starts_with("application/") && mime_type.ends_with("+json")
}

/// Returns a text as an array of its lines with their ends.
fn lines(text: &str) -> Value {
    text.split_inclusive('\n').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(outputs: &mut Outputs, stream: Stream, text: &str) {
        outputs.take(EventKind::Output { stream, bytes: text.as_bytes().to_vec() });
    }

    /// Displays a text, with control data.
    fn shown(outputs: &mut Outputs, text: &str, control: Value) {
        let control = serde_json::from_value(control).unwrap();
        outputs.show(json!({ "text/plain": lines(text) }), control);
    }

    /// Returns the texts of displays and streams.
    fn texts(outputs: &[Value]) -> Vec<String> {
        let text = |output: &Value| output["data"]["text/plain"][0].as_str().map(str::to_owned);
        let said = |output: &Value| output["text"][0].as_str().map(str::to_owned);
        let name = |output: &Value| output["ename"].as_str().map(str::to_owned);
        outputs.iter().filter_map(|one| text(one).or(said(one)).or(name(one))).collect()
    }

    #[test]
    fn updates_take_the_place_of_what_was_shown_under_their_id() {
        let mut outputs = Outputs::default();
        for (text, id) in [("a", "1"), ("b", "2"), ("c", "1")] {
            shown(&mut outputs, text, json!({ "display_id": id }));
        }
        shown(&mut outputs, "d", json!({ "kind": "update", "display_id": "1" }));
        let finished = outputs.finish();
        assert_eq!(texts(&finished.outputs), ["d", "b", "d"]);
        // For outputs of earlier cells.
        let [update] = &finished.updates[..] else { panic!("{finished:?}") };
        let mut earlier = json!({ "data": {}, "metadata": { "k": 1 } });
        update.apply(&mut earlier);
        assert_eq!(earlier, json!({ "data": { "text/plain": ["d"] }, "metadata": {} }));
        let places = [("1", 0), ("2", 1), ("1", 2)].map(|(id, at)| (id.to_owned(), at));
        assert_eq!(finished.places, places);
    }

    #[test]
    fn outputs_are_cleared_at_once_or_by_the_next_one() {
        let mut outputs = Outputs::default();
        said(&mut outputs, Stream::Stdout, "a");
        shown(&mut outputs, "", json!({ "kind": "clear" }));
        said(&mut outputs, Stream::Stdout, "b");
        shown(&mut outputs, "", json!({ "kind": "clear", "wait": true }));
        assert!(outputs.said.is_some());
        shown(&mut outputs, "c", json!({}));
        shown(&mut outputs, "", json!({ "kind": "clear", "wait": true }));
        assert_eq!(texts(&outputs.finish().outputs), ["c"]);
    }

    #[test]
    fn a_problem_comes_where_the_cell_failed() {
        let mut outputs = Outputs::default();
        shown(&mut outputs, "a", json!({}));
        shown(&mut outputs, "", json!({ "kind": "failed" }));
        shown(&mut outputs, "figure", json!({ "display_id": "f" }));
        outputs.take_problem(&Problem::new("E", String::new()));
        assert_eq!(texts(&outputs.finish().outputs), ["a", "E", "figure"]);
        let mut forged = Outputs::default();
        shown(&mut forged, "", json!({ "kind": "failed" }));
        shown(&mut forged, "a", json!({ "display_id": "a" }));
        let finished = forged.finish();
        assert_eq!((finished.outputs.len(), finished.places), (1, vec![("a".to_owned(), 0)]));
    }

    #[test]
    fn pieces_of_a_stream_are_one_output_and_the_order_stays() {
        let mut outputs = Outputs::of_cell(3);
        outputs.take(EventKind::Started);
        // A character whose bytes come in two pieces.
        outputs.take(EventKind::Output { stream: Stream::Stdout, bytes: b"a\n\xc3".to_vec() });
        outputs.take(EventKind::Output { stream: Stream::Stdout, bytes: b"\xa9".to_vec() });
        said(&mut outputs, Stream::Stderr, "e\n");
        said(&mut outputs, Stream::Stdout, "b");
        outputs.take(EventKind::Display(MimeBundle::default()));
        said(&mut outputs, Stream::Stdout, "c");
        shown(&mut outputs, "1\n2", json!({ "kind": "result" }));
        outputs.take_problem(&Problem::new("Name", "why".to_owned()));
        let stream = |name: &str, lines: &[&str]| json!({ "name": name, "output_type": "stream", "text": lines });
        let expected = [
            stream("stdout", &["a\n", "é"]),
            stream("stderr", &["e\n"]),
            stream("stdout", &["b"]),
            json!({ "data": {}, "metadata": {}, "output_type": "display_data" }),
            stream("stdout", &["c"]),
            json!({
                "data": { "text/plain": ["1\n", "2"] },
                "execution_count": 3,
                "metadata": {},
                "output_type": "execute_result",
            }),
            json!({
                "ename": "Name",
                "evalue": "why",
                "output_type": "error",
                "traceback": ["Name: why"],
            }),
        ];
        assert_eq!(outputs.finish().outputs, expected);
    }

    #[test]
    fn problems_are_named_as_notebooks_name_them() {
        let exception = Exception::new("numpy.linalg.LinAlgError", "Singular\nmatrix", "Trace\n");
        let outcome = Outcome::not_run(Verdict::Raised(Box::new(exception)));
        let problem = Problem::of(&outcome).unwrap();
        assert_eq!(problem.to_string(), "LinAlgError: Singular");
        assert_eq!(
            (problem.message.as_str(), problem.traceback.as_str()),
            ("Singular\nmatrix", "Trace\n")
        );
        let loud = Problem::new("E", format!("\x1b[2J{}", "x".repeat(300)));
        assert_eq!(loud.to_string(), format!("E: \\x1b[2J{}", "x".repeat(190)));
        let left = Outcome::not_run(Verdict::Exited { code: 3, message: None });
        assert_eq!(Problem::of(&left).unwrap().to_string(), "SystemExit: 3");
        let cancelled = Problem::of(&Outcome::not_run(Verdict::Cancelled)).unwrap();
        assert_eq!(cancelled.to_string(), "KeyboardInterrupt");
    }
}
