//! One cell of a notebook.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A JSON object with its fields in their order.
pub(super) type Fields = IndexMap<String, Box<RawValue>>;

/// A field as it is written.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Field<'a> {
    Kept(&'a RawValue),
    Cells(&'a [Cell]),
    Count(Option<usize>),
    Outputs(&'a [Value]),
}

#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum Cell {
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
    /// The count under which it ran, if it did.
    pub execution_count: Option<usize>,
    /// Its outputs, as nbformat has them. Empty until it runs.
    pub outputs: Vec<Value>,
}

impl Cell {
    pub(super) fn read(raw: Box<RawValue>) -> Result<Self, String> {
        let fields: Fields =
            serde_json::from_str(raw.get()).map_err(|_| "it is not an object".to_owned())?;
        let kind: String = parsed(&fields, "cell_type").ok_or("it has no `cell_type`")?;
        if kind != "code" {
            return Ok(Self::Other(raw));
        }
        let source = match parsed(&fields, "source") {
            Some(Value::String(text)) => text,
            Some(Value::Array(lines)) if lines.iter().all(Value::is_string) => {
                lines.iter().filter_map(Value::as_str).collect()
            }
            _ => return Err("its `source` is neither a string nor an array of strings".to_owned()),
        };
        let metadata: Value = parsed(&fields, "metadata").unwrap_or_default();
        let tags = metadata["tags"].as_array().into_iter().flatten();
        let tags: Vec<String> = tags.filter_map(|tag| tag.as_str().map(str::to_owned)).collect();
        let is_run = !source.trim().is_empty() && !tags.iter().any(|tag| tag == "skip-execution");
        if !is_run {
            return Ok(Self::Other(raw));
        }
        Ok(Self::Code(CodeCell {
            fields,
            source,
            tags,
            execution_count: None,
            outputs: Vec::new(),
        }))
    }
}

impl CodeCell {
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
        written(&self.fields, [count, outputs]).serialize(serializer)
    }
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
