//! From what happens in a cell's job to the outputs of the cell, as nbformat has them.

use hatchery::{EventKind, Exception, LimitHit, MimeBundle, MimeData, Outcome, Stream, Verdict};
use serde_json::{Map, Value, json};

use crate::escapes::harmless;

/// What is said of a problem outside of the notebook.
const MOST_CHARACTERS: usize = 200;

/// Outputs of one cell, in order. What one stream says without a break is one output.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    finished: Vec<Value>,
    /// What a stream has said since the last output of another kind.
    said: Option<(Stream, Vec<u8>)>,
}

/// What a cell ended in that isn't a success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// The name of an exception's class, without its module.
    pub(super) name: String,
    pub(super) message: String,
    pub(super) traceback: String,
}

impl Outputs {
    /// Takes what happened next.
    pub(super) fn take(&mut self, event: EventKind) {
        match event {
            EventKind::Output { stream, bytes } => self.say(stream, &bytes),
            EventKind::Display(bundle) => {
                let data = data_of(&bundle, None);
                self.push(json!({ "data": data, "metadata": {}, "output_type": "display_data" }));
            }
            _ => {}
        }
    }

    /// Takes what a stream was given.
    pub(super) fn say(&mut self, stream: Stream, bytes: &[u8]) {
        if self.said.as_ref().is_some_and(|(last, _)| *last != stream) {
            self.flush();
        }
        self.said.get_or_insert_with(|| (stream, Vec::new())).1.extend_from_slice(bytes);
    }

    /// Takes the value that the cell ends in.
    pub(super) fn take_result(&mut self, repr: &str, bundle: &MimeBundle, execution_count: usize) {
        self.push(json!({
            "data": data_of(bundle, Some(repr)),
            "execution_count": execution_count,
            "metadata": {},
            "output_type": "execute_result",
        }));
    }

    /// Takes what the cell failed with.
    pub(super) fn take_problem(&mut self, problem: &Problem) {
        let traceback: Vec<&str> = problem.traceback.lines().collect();
        self.push(json!({
            "ename": problem.name,
            "evalue": problem.message,
            "output_type": "error",
            "traceback": traceback,
        }));
    }

    /// All of them, ended.
    pub(super) fn finish(mut self) -> Vec<Value> {
        self.flush();
        self.finished
    }

    fn push(&mut self, output: Value) {
        self.flush();
        self.finished.push(output);
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
    /// What kept a cell from its end; `None` if it came there.
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

    /// One with no traceback of the program's.
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
    /// On one line of a terminal, of which the program decides nothing but the words.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = self.message.lines().next().unwrap_or_default();
        let separator = if line.is_empty() { "" } else { ": " };
        let text = format!("{}{separator}{line}", self.name);
        let shown: String = harmless(&text).chars().take(MOST_CHARACTERS).collect();
        formatter.write_str(&shown)
    }
}

/// The forms of an object as notebooks hold them: texts as lines, JSON as itself, bytes in base64.
fn data_of(bundle: &MimeBundle, repr: Option<&str>) -> Value {
    let encoded = serde_json::to_value(bundle).unwrap_or_default();
    let mut data = Map::new();
    for (name, form) in bundle.iter() {
        let form = match form {
            MimeData::Text(text) if is_json(name) => {
                serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str()))
            }
            MimeData::Text(text) => lines(text),
            MimeData::Bytes(_) => encoded[name].clone(),
        };
        data.insert(name.to_owned(), form);
    }
    if let Some(repr) = repr {
        data.insert("text/plain".to_owned(), lines(repr));
    }
    Value::Object(data)
}

fn is_json(mime_type: &str) -> bool {
    mime_type == "application/json"
        || mime_type.starts_with("application/") && mime_type.ends_with("+json")
}

/// A text as an array of its lines with their ends.
fn lines(text: &str) -> Value {
    text.split_inclusive('\n').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(outputs: &mut Outputs, stream: Stream, text: &str) {
        outputs.take(EventKind::Output { stream, bytes: text.as_bytes().to_vec() });
    }

    #[test]
    fn pieces_of_a_stream_are_one_output_and_the_order_stays() {
        let mut outputs = Outputs::default();
        outputs.take(EventKind::Started);
        // A character whose bytes come in two pieces.
        outputs.take(EventKind::Output { stream: Stream::Stdout, bytes: b"a\n\xc3".to_vec() });
        outputs.take(EventKind::Output { stream: Stream::Stdout, bytes: b"\xa9".to_vec() });
        said(&mut outputs, Stream::Stderr, "e\n");
        said(&mut outputs, Stream::Stdout, "b");
        outputs.take(EventKind::Display(MimeBundle::default()));
        said(&mut outputs, Stream::Stdout, "c");
        outputs.take_result("1\n2", &MimeBundle::default(), 3);
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
        assert_eq!(outputs.finish(), expected);
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
