//! What a cell's job reports, as messages to those that subscribe.

use hatchery::event::Stream;
use notebook::{CellEvent, Problem, joined};
use serde_json::{Value, json};

use crate::message::Message;
use crate::sockets::IoPub;

/// Output of this many bytes is published before more is added to it.
const MOST_HELD: usize = 64 << 10;

/// Publishes the outputs of one cell.
#[derive(Debug)]
pub(crate) struct Outputs<'a> {
    iopub: &'a IoPub,
    request: &'a Message,
    /// The cell's number.
    number: u64,
    /// Output to a stream that was not published yet.
    pub(crate) held: Option<(Stream, String)>,
    /// The beginning of a character of each stream, standard output first.
    begun: [Vec<u8>; 2],
    /// What follows the place of the error, which is known only when the job has ended.
    after_error: Option<Vec<CellEvent>>,
    /// The text of the last result, for the history.
    pub(crate) result: Option<String>,
}

impl<'a> Outputs<'a> {
    pub(crate) fn new(iopub: &'a IoPub, request: &'a Message, number: u64) -> Self {
        let begun = [Vec::new(), Vec::new()];
        Self { iopub, request, number, held: None, begun, after_error: None, result: None }
    }

    /// Publishes an event, or keeps it until the error is known that comes before it.
    pub(crate) async fn take(&mut self, event: CellEvent) {
        match &mut self.after_error {
            Some(kept) => kept.push(event),
            None => self.publish(event).await,
        }
    }

    /// Publishes a text as if the program had written it.
    pub(crate) async fn say(&mut self, stream: Stream, text: &str) {
        let bytes = text.as_bytes().to_vec();
        self.take(CellEvent::Stream { stream, bytes }).await;
    }

    /// Publishes what remains, with the error in its place.
    pub(crate) async fn finish(&mut self, problem: Option<&Problem>) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = std::mem::take(&mut self.begun[stream as usize]);
            if !rest.is_empty() {
                self.hold(stream, &String::from_utf8_lossy(&rest)).await;
            }
        }
        self.flush().await;
        if let Some(problem) = problem {
            let content = error_of(problem);
            self.iopub.publish(self.request, "error", &content).await;
        }
        for event in self.after_error.take().unwrap_or_default() {
            self.publish(event).await;
        }
        self.flush().await;
    }

    /// Publishes the output that was held.
    pub(crate) async fn flush(&mut self) {
        let Some((stream, text)) = self.held.take() else { return };
        let content = json!({ "name": stream.name(), "text": text });
        self.iopub.publish(self.request, "stream", &content).await;
    }

    /// Adds output to what is held. Pieces that follow each other soon are one message, since front
    /// ends keep each message as an output of its own.
    async fn hold(&mut self, stream: Stream, text: &str) {
        if self.held.as_ref().is_some_and(|(of, held)| *of != stream || held.len() > MOST_HELD) {
            self.flush().await;
        }
        self.held.get_or_insert_with(|| (stream, String::new())).1.push_str(text);
    }

    async fn publish(&mut self, event: CellEvent) {
        let (kind, content) = match event {
            CellEvent::Stream { stream, bytes } => {
                let text = self.complete(stream, bytes);
                if !text.is_empty() {
                    self.hold(stream, &text).await;
                }
                return;
            }
            CellEvent::Display { data, metadata, display_id } => {
                let transient =
                    display_id.map_or_else(|| json!({}), |id| json!({ "display_id": id }));
                ("display_data", shown(data, metadata, "transient", transient))
            }
            CellEvent::Update { display_id, data, metadata } => {
                let transient = json!({ "display_id": display_id });
                ("update_display_data", shown(data, metadata, "transient", transient))
            }
            CellEvent::Result { data, metadata } => {
                let content = shown(data, metadata, "execution_count", self.number.into());
                self.result = content["data"]["text/plain"].as_str().map(str::to_owned);
                ("execute_result", content)
            }
            CellEvent::Clear { wait } => ("clear_output", json!({ "wait": wait })),
            CellEvent::Failed => {
                self.after_error = Some(Vec::new());
                return;
            }
            // The first attempt has been seen, and its outputs are no longer those of the cell.
            CellEvent::Restarted => ("clear_output", json!({ "wait": false })),
            _ => return,
        };
        self.flush().await;
        self.iopub.publish(self.request, kind, &content).await;
    }

    /// Returns the text of a piece of output, and keeps a character that is incomplete at its end.
    fn complete(&mut self, stream: Stream, bytes: Vec<u8>) -> String {
        let begun = &mut self.begun[stream as usize];
        begun.extend(bytes);
        let end = complete_length(begun);
        let rest = begun.split_off(end);
        let text = String::from_utf8_lossy(begun).into_owned();
        *begun = rest;
        text
    }
}

fn shown(data: Value, metadata: Value, name: &str, value: Value) -> Value {
    json!({ "data": joined(data), "metadata": metadata, name: value })
}

/// Returns how many of the bytes come before a character that is incomplete at their end.
fn complete_length(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last().map_or(&[][..], |last| last.invalid());
    let is_begun = std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
    bytes.len() - if is_begun { last.len() } else { 0 }
}

/// Returns the content of an error.
pub(crate) fn error_of(problem: &Problem) -> Value {
    let lines = colored(&problem.traceback);
    json!({ "ename": problem.name, "evalue": problem.message, "traceback": lines })
}

const FILE: &str = "\x1b[35m";
const NAME: &str = "\x1b[1;35m";
const PLACE: &str = "\x1b[1;31m";
const PLAIN: &str = "\x1b[0m";

/// Returns the lines of a traceback with colours. Escape sequences of the program's own stay: front
/// ends show colours and drop the rest.
pub(crate) fn colored(traceback: &str) -> Vec<String> {
    traceback.lines().map(line).collect()
}

fn line(line: &str) -> String {
    let marks = line.trim_start();
    if let Some(place) = place(line) {
        return place;
    }
    if !marks.is_empty() && marks.chars().all(|mark| "^~ ".contains(mark)) {
        return format!("{PLACE}{line}{PLAIN}");
    }
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|part| part.is_alphanumeric() || "_.".contains(part))
    };
    match line.split_once(": ") {
        Some((name, message)) if is_name(name) => {
            format!("{NAME}{name}{PLAIN}: {FILE}{message}{PLAIN}")
        }
        _ if is_name(line) => format!("{NAME}{line}{PLAIN}"),
        _ => line.to_owned(),
    }
}

/// Colours `  File "…", line 1, in f`; `None` for other lines.
fn place(line: &str) -> Option<String> {
    let (before, rest) = line.split_once("File \"")?;
    if !before.trim().is_empty() {
        return None;
    }
    let (file, rest) = rest.split_once("\", line ")?;
    let (number, function) = match rest.split_once(", in ") {
        Some((number, function)) => (number, format!(", in {FILE}{function}{PLAIN}")),
        None => (rest, String::new()),
    };
    Some(format!("{before}File {FILE}\"{file}\"{PLAIN}, line {FILE}{number}{PLAIN}{function}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole_and_wrong_ones_pass() {
        for (bytes, expected) in [
            (&b"a"[..], 1),
            (b"", 0),
            (b"a\xc3", 1),
            (b"a\xc3\xa9", 3),
            (b"\xf0\x9f\x98", 0),
            (b"\xff", 1),
            (b"\xffa\xc3", 2),
            (b"\xff\xff", 2),
        ] {
            assert_eq!(complete_length(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn places_marks_and_the_exception_have_colours() {
        let traceback = "Traceback (most recent call last):\n  \
                         File \"In[1]\", line 1, in <module>\n    1/0\n    ~^~\n\
                         ZeroDivisionError: division by zero\n";
        let shown = colored(traceback).join("\n");
        let shown = shown.replace(FILE, "<f>").replace(NAME, "<n>");
        let shown = shown.replace(PLACE, "<p>").replace(PLAIN, "<>");
        let expected = "Traceback (most recent call last):\n  \
                        File <f>\"In[1]\"<>, line <f>1<>, in <f><module><>\n    1/0\n\
                        <p>    ~^~<>\n\
                        <n>ZeroDivisionError<>: <f>division by zero<>";
        assert_eq!(shown, expected);
        assert_eq!(colored("KeyboardInterrupt"), [format!("{NAME}KeyboardInterrupt{PLAIN}")]);
        assert_eq!(colored("a text: of a program"), ["a text: of a program"]);
    }
}
