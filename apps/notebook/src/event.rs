//! What a cell's job reports while it runs, in terms of Jupyter: streams, displays, results, updates
//! and clearing.

use std::fmt::Debug;

use hatchery::Ticket;
use hatchery::event::{EventKind, Stream};
use hatchery::outcome::{MimeBundle, MimeData};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::watch;

/// The form that says what to do with a display. The guest's `showing.py` defines the same name,
/// and describes its contents.
const CONTROL: &str = "application/vnd.hatchery.notebook+json";

/// A step of a cell that changes its outputs, in the order in which the program took them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CellEvent {
    /// The cell wrote to a stream. A character may come in two pieces.
    Stream {
        /// The stream.
        stream: Stream,
        /// The bytes, at most 64 KiB.
        bytes: Vec<u8>,
    },
    /// The cell displayed an object.
    Display {
        /// Its forms by MIME type: texts as nbformat's arrays of lines, JSON as itself, bytes in
        /// base64.
        data: Value,
        /// Metadata of the display, an object.
        metadata: Value,
        /// The id under which later updates replace it.
        display_id: Option<String>,
    },
    /// The cell showed the value of an expression.
    Result {
        /// Its forms, as for a display.
        data: Value,
        /// Metadata of the result, an object.
        metadata: Value,
    },
    /// All displays of this id, also of earlier cells, have new contents.
    Update {
        /// The id.
        display_id: String,
        /// The forms, as for a display.
        data: Value,
        /// Metadata, an object.
        metadata: Value,
    },
    /// The outputs of the cell are cleared.
    Clear {
        /// Whether only the next output clears them.
        wait: bool,
    },
    /// The cell has failed: its error belongs here, before the outputs that follow. These are such as
    /// the figures that it left open. The error itself is in the job's outcome.
    Failed,
    /// The sandbox failed, and the cell runs again: nothing before this counts.
    Restarted,
}

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

impl CellEvent {
    /// Returns what an event of a cell's job means for its outputs; `None` if nothing.
    pub fn of(event: EventKind) -> Option<Self> {
        match event {
            EventKind::Output { stream, bytes } => Some(Self::Stream { stream, bytes }),
            EventKind::Display(bundle) => {
                let control = bundle.text(CONTROL).and_then(|text| serde_json::from_str(text).ok());
                // Without control data, it is displayed.
                Some(Self::shown(data_of(&bundle), control.unwrap_or_default()))
            }
            EventKind::Retried => Some(Self::Restarted),
            _ => None,
        }
    }

    fn shown(data: Value, control: Control) -> Self {
        let Control { kind, metadata, display_id, wait } = control;
        let metadata = Value::Object(metadata);
        match kind {
            Kind::Display => Self::Display { data, metadata, display_id },
            Kind::Result => Self::Result { data, metadata },
            Kind::Update => {
                Self::Update { display_id: display_id.unwrap_or_default(), data, metadata }
            }
            Kind::Clear => Self::Clear { wait },
            Kind::Failed => Self::Failed,
        }
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

fn is_json(mime_type: &str) -> bool {
    mime_type == "application/json"
        || mime_type.starts_with("application/") && mime_type.ends_with("+json")
}

/// Returns a text as an array of its lines with their ends.
pub(crate) fn lines(text: &str) -> Value {
    text.split_inclusive('\n').collect()
}

/// Returns the forms of an object as messages have them: texts in one piece.
pub fn joined(data: Value) -> Value {
    let Value::Object(forms) = data else { return data };
    let joined = forms.into_iter().map(|(name, form)| {
        let lines = form.as_array().filter(|_| !name.ends_with("json"));
        let text: Option<String> =
            lines.and_then(|lines| lines.iter().map(Value::as_str).collect());
        (name, text.map_or(form, Value::from))
    });
    Value::Object(joined.collect::<Map<_, _>>())
}

/// A step of one notebook. As JSON it is an object whose `event` names it, except for
/// [`NotResumed`](Self::NotResumed) and [`Ended`](Self::Ended).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Progress {
    /// It runs from its start although a saved session was wanted, for this reason.
    #[serde(skip)]
    NotResumed(String),
    /// It begins.
    Started {
        /// How many code cells it has.
        cells: usize,
    },
    /// It continues from its saved session.
    Resumed {
        /// How many cells have run in it.
        done: usize,
    },
    /// It takes over the outputs and the state of further cells, which don't run.
    TakenOver {
        /// The first of them, counted from 1.
        first: usize,
        /// The last of them.
        last: usize,
        /// Where another notebook of this command ran them; otherwise an earlier command did.
        of_this_command: bool,
    },
    /// A cell starts.
    CellStarted {
        /// Its number, counted from 1.
        cell: usize,
    },
    /// A cell has ended, and the copy is about to have its outputs.
    CellEnded {
        /// Its number, counted from 1.
        cell: usize,
        /// How long it took, on the wall clock.
        seconds: f64,
        /// The class of the exception, or what else it failed with.
        failed: Option<String>,
    },
    /// No further cell runs.
    #[serde(skip)]
    Ended,
}

/// Shows the progress of notebooks. Called from the tasks that run them, so it must not block for
/// long.
pub trait Observer: Debug + Send + Sync {
    /// Takes note of a step. `notebook` is the place of the notebook's [`Task`](crate::Task) among
    /// those of the command.
    fn progress(&self, notebook: usize, step: &Progress);
}

/// Shows nothing.
impl Observer for () {
    fn progress(&self, _notebook: usize, _step: &Progress) {}
}

/// Interrupts or stops a program, depending on how often the user asked.
pub fn end_by(ticket: &Ticket, heard: u32) {
    match heard {
        1 => ticket.interrupt(),
        _ => ticket.stop(),
    }
}

/// Counts how often the user asked the notebooks to end, for example by Ctrl-C. The count only grows.
#[derive(Debug, Clone)]
pub struct Interrupts(pub watch::Receiver<u32>);

impl Interrupts {
    /// Returns the present count.
    pub fn count(&self) -> u32 {
        *self.0.borrow()
    }

    /// Waits until the count is above `heard`, and returns it. Never returns if nobody counts any
    /// more. Cancel-safe.
    pub async fn more_than(&mut self, heard: u32) -> u32 {
        let count = self.0.wait_for(|count| *count > heard).await.map(|count| *count);
        match count {
            Ok(count) => count,
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn control_data_decides_what_a_display_is() {
        let of =
            |control: Value| CellEvent::shown(json!({}), serde_json::from_value(control).unwrap());
        let plain = CellEvent::of(EventKind::Display(MimeBundle::default()));
        let expected =
            CellEvent::Display { data: json!({}), metadata: json!({}), display_id: None };
        assert_eq!((plain, of(json!({}))), (Some(expected.clone()), expected));
        assert_eq!(of(json!({ "kind": "clear", "wait": true })), CellEvent::Clear { wait: true });
        let updated = of(json!({ "kind": "update", "display_id": "a" }));
        assert!(matches!(updated, CellEvent::Update { display_id, .. } if display_id == "a"));
        assert_eq!(CellEvent::of(EventKind::Started), None);
    }

    #[test]
    fn texts_are_joined_and_json_stays() {
        let data = json!({
            "text/plain": ["a\n", "b"],
            "application/json": ["a", "b"],
            "application/vnd.plotly.v1+json": { "data": [] },
            "image/png": "iVBO",
        });
        let expected = json!({
            "text/plain": "a\nb",
            "application/json": ["a", "b"],
            "application/vnd.plotly.v1+json": { "data": [] },
            "image/png": "iVBO",
        });
        assert_eq!(joined(data), expected);
    }
}
