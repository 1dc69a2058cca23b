//! Decodes values from a guest: a description and raw buffers, both untrusted. `describe` in
//! `agent/hatchery/_values.py` is the other side.

use serde::Deserialize;

use super::{Array, Column, Frame, TEXT_BYTES, Tagged, Value};

/// The guest's description of its buffers.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Description {
    Bytes {},
    Array {
        dtype: String,
        shape: Vec<usize>,
    },
    Frame {
        rows: usize,
        index_name: Option<String>,
        index: Option<ColumnDescription>,
        columns: Vec<(String, ColumnDescription)>,
    },
    /// The first buffer is the JSON text, the others are its attachments.
    Tagged {},
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum ColumnDescription {
    Array { dtype: String },
    Strings {},
}

/// Decodes a description and its buffers, which must match exactly and take at most `room` bytes.
pub(crate) fn parsed(
    description: serde_json::Value,
    buffers: &[&[u8]],
    room: usize,
) -> Result<Value, String> {
    let description: Description =
        serde_json::from_value(description).map_err(|error| error.to_string())?;
    if buffers.iter().map(|buffer| buffer.len()).sum::<usize>() > room {
        return Err("its data is larger than its limit".to_owned());
    }
    let mut buffers = Buffers { rest: buffers.iter(), room };
    let value = match description {
        Description::Bytes {} => Value::Bytes(buffers.next()?.to_vec()),
        Description::Array { dtype, shape } => Value::Array(array(dtype, shape, &mut buffers)?),
        Description::Frame { rows, index_name, index, columns } => {
            let index = index.map(|index| column(index, rows, &mut buffers)).transpose()?;
            let columns: Result<Vec<_>, String> = columns
                .into_iter()
                .map(|(name, told)| Ok((name, column(told, rows, &mut buffers)?)))
                .collect();
            let frame = Frame::new(columns?).map_err(|error| error.to_string())?;
            Value::Frame(match index {
                Some(index) => {
                    frame.with_index(index_name, index).map_err(|error| error.to_string())?
                }
                None => frame,
            })
        }
        Description::Tagged {} => {
            let tree = buffers.next()?.to_vec();
            let tree = String::from_utf8(tree).map_err(|error| error.to_string())?;
            let rest = std::mem::take(&mut buffers.rest);
            Value::Tagged(Tagged::new(tree, rest.map(|bytes| bytes.to_vec()).collect()))
        }
    };
    match buffers.rest.next() {
        None => Ok(value),
        Some(_) => Err("it has more buffers than its data".to_owned()),
    }
}

/// Buffers to be taken one after another, and the memory left for other data.
struct Buffers<'a> {
    rest: std::slice::Iter<'a, &'a [u8]>,
    room: usize,
}

impl<'a> Buffers<'a> {
    fn next(&mut self) -> Result<&'a [u8], String> {
        self.rest.next().copied().ok_or_else(|| "it has fewer buffers than its data".to_owned())
    }
}

fn array(dtype: String, shape: Vec<usize>, buffers: &mut Buffers<'_>) -> Result<Array, String> {
    Array::new(dtype, shape, buffers.next()?).map_err(|error| error.to_string())
}

fn column(
    description: ColumnDescription,
    rows: usize,
    buffers: &mut Buffers<'_>,
) -> Result<Column, String> {
    match description {
        ColumnDescription::Array { dtype } => Ok(array(dtype, vec![rows], buffers)?.into()),
        ColumnDescription::Strings {} => {
            let (lengths, texts) = (buffers.next()?, buffers.next()?);
            let needed = rows.checked_mul(TEXT_BYTES).filter(|needed| *needed <= buffers.room);
            buffers.room -= needed.ok_or("its texts are larger than their limit")?;
            strings(lengths, texts, rows)
        }
    }
}

/// Decodes texts of these lengths, 4 bytes each, where -1 stands for a missing text.
fn strings(lengths: &[u8], texts: &[u8], rows: usize) -> Result<Column, String> {
    let (lengths, behind) = lengths.as_chunks::<4>();
    if lengths.len() != rows || !behind.is_empty() {
        return Err("a column has another number of texts".to_owned());
    }
    let mut rest = std::str::from_utf8(texts).map_err(|error| error.to_string())?;
    let mut column = Vec::with_capacity(rows);
    for length in lengths {
        let length = i32::from_le_bytes(*length);
        if length == -1 {
            column.push(None);
            continue;
        }
        let cut = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
        let (text, behind) = cut.ok_or("the lengths of a column's texts don't add up")?;
        column.push(Some(text.to_owned()));
        rest = behind;
    }
    if !rest.is_empty() {
        return Err("a column has more than its texts".to_owned());
    }
    Ok(Column::Strings(column))
}
