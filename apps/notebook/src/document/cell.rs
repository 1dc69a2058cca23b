//! One cell of a notebook.

use std::time::Duration;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What the tag that limits a cell's time begins with.
const TIME_LIMIT: &str = "timeout=";

/// A JSON object with its fields in their order.
pub(super) type Fields = IndexMap<String, Box<RawValue>>;

/// A field as it is written.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Field<'a> {
    Kept(&'a RawValue),
    Cells(&'a [DocumentCell]),
    Count(Option<usize>),
    Outputs(&'a [Value]),
    Fields(IndexMap<&'a str, Field<'a>>),
    Values(&'a IndexMap<String, Value>),
    Value(Value),
}

#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum DocumentCell {
    /// Text, or code that isn't run because it is empty or tagged `skip-execution`.
    Other(Box<RawValue>),
    Code(CodeCell),
}

/// A cell that is run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CodeCell {
    fields: Fields,
    /// The source as written.
    pub source: String,
    /// The tags in the cell's metadata.
    pub tags: Vec<String>,
    /// The most time that it may take: the tag `timeout=…`, such as `timeout=10s`. It lowers the
    /// limit of the command, and can't raise it.
    pub time_limit: Option<Duration>,
    /// The count under which it ran, if it did.
    pub execution_count: Option<usize>,
    /// Its outputs, as nbformat has them. Empty until it runs.
    pub outputs: Vec<Value>,
    /// The outputs that are in the notebook's file.
    pub recorded: Vec<Value>,
    /// Whether the cell has an execution count in the notebook's file.
    pub was_run: bool,
    /// Whether it isn't in the notebook's file, so that its fields have no indentation.
    is_new: bool,
}

impl DocumentCell {
    pub(super) fn read(raw: Box<RawValue>) -> Result<Self, String> {
        let fields: Fields =
            serde_json::from_str(raw.get()).map_err(|_| "it is not an object".to_owned())?;
        let kind: String = parsed(&fields, "cell_type").ok_or("it has no `cell_type`")?;
        if kind != "code" {
            return Ok(Self::Other(raw));
        }
        let source = source_of(&fields)
            .ok_or("its `source` is neither a string nor an array of strings".to_owned())?;
        let tags = tags(&fields);
        let is_run = !source.trim().is_empty() && !tags.iter().any(|tag| tag == "skip-execution");
        if !is_run {
            return Ok(Self::Other(raw));
        }
        let time_limit = tags.iter().find_map(|tag| tag.strip_prefix(TIME_LIMIT));
        let time_limit = time_limit.map(|text| {
            let problem = format!(
                "its tag `{TIME_LIMIT}{text}` has no valid time; write one such as `timeout=10s`"
            );
            time(text).ok_or(problem)
        });
        let time_limit = time_limit.transpose()?;
        let recorded = parsed(&fields, "outputs").unwrap_or_default();
        let was_run = parsed::<u64>(&fields, "execution_count").is_some();
        Ok(Self::Code(CodeCell {
            fields,
            recorded,
            was_run,
            source,
            tags,
            time_limit,
            execution_count: None,
            outputs: Vec::new(),
            is_new: false,
        }))
    }

    pub(super) fn view(&self) -> View {
        match self {
            Self::Code(cell) => View {
                is_code: true,
                source: cell.source.clone(),
                count: cell.execution_count,
                outputs: cell.outputs.clone(),
            },
            Self::Other(raw) => {
                let fields = fields_of(raw);
                View {
                    is_code: parsed::<String>(&fields, "cell_type").as_deref() == Some("code"),
                    source: source_of(&fields).unwrap_or_default(),
                    count: None,
                    outputs: parsed(&fields, "outputs").unwrap_or_default(),
                }
            }
        }
    }

    /// Returns whether the cell has this tag.
    pub(super) fn has_tag(&self, name: &str) -> bool {
        match self {
            Self::Code(cell) => cell.has_tag(name),
            Self::Other(raw) => tags(&fields_of(raw)).iter().any(|tag| tag == name),
        }
    }

    pub(super) fn has_id(&self, id: &str) -> bool {
        let own: Option<String> = match self {
            Self::Code(cell) => parsed(&cell.fields, "id"),
            Self::Other(raw) => parsed(&fields_of(raw), "id"),
        };
        own.as_deref() == Some(id)
    }
}

/// A cell as a reader sees it.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) is_code: bool,
    pub(crate) source: String,
    pub(crate) count: Option<usize>,
    pub(crate) outputs: Vec<Value>,
}

impl CodeCell {
    /// Creates a cell that isn't in the notebook's file.
    pub(super) fn injected(source: &str, tag: &str, id: Option<String>) -> Self {
        let lines = Value::from_iter(source.split_inclusive('\n'));
        let fields = [
            ("cell_type", Some(Value::from("code"))),
            ("execution_count", Some(Value::Null)),
            ("id", id.map(Value::from)),
            ("metadata", Some(json!({ "tags": [tag] }))),
            ("outputs", Some(json!([]))),
            ("source", Some(lines)),
        ];
        let raw = |(name, value): (&str, Option<Value>)| {
            Some((name.to_owned(), serde_json::value::to_raw_value(&value?).ok()?))
        };
        Self {
            fields: fields.into_iter().filter_map(raw).collect(),
            source: source.to_owned(),
            tags: vec![tag.to_owned()],
            time_limit: None,
            execution_count: None,
            outputs: Vec::new(),
            recorded: Vec::new(),
            was_run: false,
            is_new: true,
        }
    }

    /// Returns the cell as it is in the file, to be left out.
    pub(super) fn unchanged(&self) -> DocumentCell {
        let kept = self.fields.iter().map(|(name, value)| (name, Field::Kept(value)));
        let raw = serde_json::value::to_raw_value(&kept.collect::<IndexMap<_, _>>());
        DocumentCell::Other(raw.expect("raw JSON always serializes"))
    }

    /// Returns whether the cell has this tag.
    pub fn has_tag(&self, name: &str) -> bool {
        self.tags.iter().any(|tag| tag == name)
    }

    /// Returns whether the notebook continues if this cell raises: the tag `raises-exception`.
    pub fn may_raise(&self) -> bool {
        self.has_tag("raises-exception")
    }
}

impl Serialize for CodeCell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Both are required, but a file that Jupyter didn't write may lack them.
        let count = ("execution_count", Field::Count(self.execution_count));
        let outputs = ("outputs", Field::Outputs(&self.outputs));
        let fields = written(&self.fields, [count, outputs]);
        if self.is_new {
            let parsed = |(name, field)| match field {
                Field::Kept(raw) => {
                    (name, serde_json::from_str(raw.get()).map_or(Field::Kept(raw), Field::Value))
                }
                field => (name, field),
            };
            return fields
                .into_iter()
                .map(parsed)
                .collect::<IndexMap<_, _>>()
                .serialize(serializer);
        }
        fields.serialize(serializer)
    }
}

/// Returns the source of a cell.
fn source_of(fields: &Fields) -> Option<String> {
    text_of(&parsed(fields, "source")?)
}

/// Returns a text, which may be an array of lines.
pub(crate) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(lines) => lines.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

/// Reads a time above zero: a number and its unit, `ms`, `s`, `m` or `h`.
fn time(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let time = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
    (!time.is_zero()).then_some(time)
}

/// Returns the tags of a cell.
fn tags(fields: &Fields) -> Vec<String> {
    let metadata: Value = parsed(fields, "metadata").unwrap_or_default();
    let tags = metadata["tags"].as_array().into_iter().flatten();
    tags.filter_map(|tag| tag.as_str().map(str::to_owned)).collect()
}

fn fields_of(raw: &RawValue) -> Fields {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// Parses a field, if it exists and has that type.
pub(super) fn parsed<'a, T: Deserialize<'a>>(fields: &'a Fields, name: &str) -> Option<T> {
    fields.get(name).and_then(|value| serde_json::from_str(value.get()).ok())
}

/// Returns the fields with new values in the places of the old ones; new fields come last.
pub(super) fn written<'a>(
    fields: &'a Fields,
    new: impl IntoIterator<Item = (&'a str, Field<'a>)>,
) -> IndexMap<&'a str, Field<'a>> {
    let kept = fields.iter().map(|(name, value)| (name.as_str(), Field::Kept(value)));
    kept.chain(new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, expected) in
            [("10s", 10_000), ("250ms", 250), ("1.5m", 90_000), ("1h", 3_600_000)]
        {
            assert_eq!(time(text), Some(Duration::from_millis(expected)), "{text}");
        }
        for text in ["", "10", "s", "0s", "-1s", "1.2.3s", "1d", "1 s", "9e99h"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
