//! Collects the events of a cell as the cell's outputs, in the format of nbformat.

use hatchery::event::Stream;
use serde_json::{Value, json};

use crate::event::{CellEvent, lines};
use crate::problem::Problem;

/// The outputs of one cell, in order. Uninterrupted output to one stream is one output.
#[derive(Debug, Default)]
pub struct Outputs {
    /// The cell's number, from 1.
    number: usize,
    /// The finished outputs, as nbformat has them.
    pub finished: Vec<Value>,
    /// Output to a stream since the last output of another kind.
    said: Option<(Stream, Vec<u8>)>,
    /// The displays with an id: the id, and the index of the output.
    pub places: Vec<(String, usize)>,
    /// New contents, also for displays of earlier cells.
    pub updates: Vec<Update>,
    /// Whether the next output replaces all earlier ones.
    clears_next: bool,
    /// The index of the output, `Null` so far, that the problem fills.
    problem_at: Option<usize>,
}

/// New contents for all displays of an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The id.
    pub display_id: String,
    data: Value,
    metadata: Value,
}

impl Update {
    /// Writes the contents into an output.
    pub fn apply(&self, output: &mut Value) {
        output["data"] = self.data.clone();
        output["metadata"] = self.metadata.clone();
    }
}

impl Outputs {
    /// Begins the outputs of a cell with this number, counted from 1.
    pub fn of_cell(number: usize) -> Self {
        Self { number, ..Self::default() }
    }

    /// Handles the next event.
    pub fn take(&mut self, event: CellEvent) {
        match event {
            CellEvent::Stream { stream, bytes } => self.say(stream, &bytes),
            CellEvent::Display { data, metadata, display_id } => {
                let output = json!({
                    "data": data,
                    "metadata": metadata,
                    "output_type": "display_data",
                });
                self.push(output);
                self.places.extend(display_id.map(|id| (id, self.finished.len() - 1)));
            }
            CellEvent::Result { data, metadata } => self.push(json!({
                "data": data,
                "execution_count": self.number,
                "metadata": metadata,
                "output_type": "execute_result",
            })),
            CellEvent::Update { display_id, data, metadata } => {
                let update = Update { display_id, data, metadata };
                for (_, at) in self.places.iter().filter(|(id, _)| *id == update.display_id) {
                    update.apply(&mut self.finished[*at]);
                }
                self.updates.push(update);
            }
            CellEvent::Clear { wait } => {
                self.clears_next = true;
                if !wait {
                    self.clear_if_due();
                }
            }
            CellEvent::Failed => {
                self.push(Value::Null);
                self.problem_at = Some(self.finished.len() - 1);
            }
            CellEvent::Restarted => *self = Self::of_cell(self.number),
        }
    }

    /// Adds output to a stream.
    pub fn say(&mut self, stream: Stream, bytes: &[u8]) {
        self.clear_if_due();
        if self.said.as_ref().is_some_and(|(last, _)| *last != stream) {
            self.flush();
        }
        self.said.get_or_insert_with(|| (stream, Vec::new())).1.extend_from_slice(bytes);
    }

    /// Adds the problem that the cell failed with.
    pub fn take_problem(&mut self, problem: &Problem) {
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
    pub fn finish(mut self) -> Self {
        self.flush();
        if let Some(at) = self.problem_at {
            // The program reported a failure itself, without one.
            self.finished.remove(at);
            self.places.retain_mut(|(_, place)| {
                *place -= usize::from(*place > at);
                true
            });
        }
        self
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
        let (name, text) = (stream.name(), String::from_utf8_lossy(&bytes));
        self.finished.push(json!({ "name": name, "output_type": "stream", "text": lines(&text) }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(outputs: &mut Outputs, stream: Stream, text: &str) {
        outputs.take(CellEvent::Stream { stream, bytes: text.as_bytes().to_vec() });
    }

    fn data(text: &str) -> Value {
        json!({ "text/plain": lines(text) })
    }

    fn shown(outputs: &mut Outputs, text: &str, display_id: Option<&str>) {
        let display_id = display_id.map(str::to_owned);
        outputs.take(CellEvent::Display { data: data(text), metadata: json!({}), display_id });
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
            shown(&mut outputs, text, Some(id));
        }
        let (display_id, metadata) = ("1".to_owned(), json!({}));
        outputs.take(CellEvent::Update { display_id, data: data("d"), metadata });
        let finished = outputs.finish();
        assert_eq!(texts(&finished.finished), ["d", "b", "d"]);
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
        outputs.take(CellEvent::Clear { wait: false });
        said(&mut outputs, Stream::Stdout, "b");
        outputs.take(CellEvent::Clear { wait: true });
        assert!(outputs.said.is_some());
        shown(&mut outputs, "c", None);
        outputs.take(CellEvent::Clear { wait: true });
        assert_eq!(texts(&outputs.finish().finished), ["c"]);
    }

    #[test]
    fn a_problem_comes_where_the_cell_failed() {
        let mut outputs = Outputs::default();
        shown(&mut outputs, "a", None);
        outputs.take(CellEvent::Failed);
        shown(&mut outputs, "figure", Some("f"));
        outputs.take_problem(&Problem::new("E", String::new()));
        assert_eq!(texts(&outputs.finish().finished), ["a", "E", "figure"]);
        let mut forged = Outputs::default();
        forged.take(CellEvent::Failed);
        shown(&mut forged, "a", Some("a"));
        let finished = forged.finish();
        assert_eq!((finished.finished.len(), finished.places), (1, vec![("a".to_owned(), 0)]));
    }

    #[test]
    fn pieces_of_a_stream_are_one_output_and_the_order_stays() {
        let mut outputs = Outputs::of_cell(3);
        said(&mut outputs, Stream::Stdout, "of an attempt that the sandbox lost");
        outputs.take(CellEvent::Restarted);
        // A character whose bytes come in two pieces.
        for bytes in [b"a\n\xc3".to_vec(), b"\xa9".to_vec()] {
            outputs.take(CellEvent::Stream { stream: Stream::Stdout, bytes });
        }
        said(&mut outputs, Stream::Stderr, "e\n");
        said(&mut outputs, Stream::Stdout, "b");
        let (data_of_none, metadata) = (json!({}), json!({}));
        outputs.take(CellEvent::Display { data: data_of_none, metadata, display_id: None });
        said(&mut outputs, Stream::Stdout, "c");
        outputs.take(CellEvent::Result { data: data("1\n2"), metadata: json!({}) });
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
        assert_eq!(outputs.finish().finished, expected);
    }
}
