//! Encodes values for a guest; `to_object` in `agent/hatchery/_values.py` is the other side.

use super::{Array, Column, Frame, Tagged, Value, Variables};
use crate::run::value::marshal::Marshal;

/// Encodes a value as a list whose first item names the kind of the rest.
pub(crate) fn encoded(value: &Value) -> Marshal<'_> {
    match value {
        Value::Json(json) => Marshal::List(vec!["plain".into(), json.into()]),
        Value::Bytes(bytes) => Marshal::List(vec!["plain".into(), bytes.as_slice().into()]),
        Value::Array(array) => encoded_array(array),
        Value::Frame(frame) => encoded_frame(frame),
        Value::Tagged(tagged) => encoded_tagged(tagged),
    }
}

pub(crate) fn encoded_all(variables: &Variables) -> Marshal<'_> {
    Marshal::dict(variables.iter().map(|(name, value)| (name.as_str(), encoded(value))))
}

fn encoded_array(array: &Array) -> Marshal<'_> {
    let shape = array.shape().iter().map(|length| Marshal::from(*length)).collect();
    Marshal::List(vec![
        "array".into(),
        array.dtype().into(),
        Marshal::List(shape),
        array.data().into(),
    ])
}

fn encoded_tagged(tagged: &Tagged) -> Marshal<'_> {
    let attachments = tagged.attachments().map(Marshal::from).collect();
    Marshal::List(vec!["tagged".into(), tagged.tree().into(), Marshal::List(attachments)])
}

fn encoded_frame(frame: &Frame) -> Marshal<'_> {
    let columns = frame.columns().iter();
    let columns = columns
        .map(|(name, column)| Marshal::List(vec![name.as_str().into(), encoded_column(column)]));
    Marshal::List(vec![
        "frame".into(),
        frame.index_name().into(),
        frame.index().map_or(Marshal::None, encoded_column),
        Marshal::List(columns.collect()),
    ])
}

fn encoded_column(column: &Column) -> Marshal<'_> {
    let texts = match column {
        Column::Array(array) => return encoded_array(array),
        Column::Strings(texts) => texts,
    };
    let mut lengths = Vec::with_capacity(4 * texts.len());
    let mut bytes = Vec::new();
    for text in texts {
        // A guest has no room for texts of 2 GiB, together or alone.
        let length = text.as_ref().map_or(-1, |text| i32::try_from(text.len()).unwrap_or(i32::MAX));
        lengths.extend(length.to_le_bytes());
        bytes.extend(text.iter().flat_map(|text| text.bytes()));
    }
    Marshal::List(vec!["strings".into(), lengths.into(), bytes.into()])
}
