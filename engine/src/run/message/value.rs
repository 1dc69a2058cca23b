//! Values.

use serde::{Deserialize, Serialize};

use super::encoding::{InvalidMessage, Text};
use crate::run::value::{Array, Column, Frame, InvalidValue, Tagged, Value};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum WireValue {
    Json(Text<serde_json::Value>),
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    Array(WireArray),
    Frame {
        index: Option<WireColumn>,
        index_name: Option<String>,
        columns: Vec<(String, WireColumn)>,
    },
    Tagged {
        tree: String,
        attachments: Vec<serde_bytes::ByteBuf>,
    },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct WireArray {
    dtype: String,
    shape: Vec<usize>,
    #[serde(with = "serde_bytes")]
    data: Vec<u8>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum WireColumn {
    Array(WireArray),
    Strings(Vec<Option<String>>),
}

impl From<&Value> for WireValue {
    fn from(value: &Value) -> Self {
        match value {
            Value::Json(json) => Self::Json(Text(json.clone())),
            Value::Bytes(bytes) => Self::Bytes(bytes.clone()),
            Value::Array(array) => Self::Array(array.into()),
            Value::Frame(frame) => Self::Frame {
                index: frame.index().map(WireColumn::from),
                index_name: frame.index_name().map(str::to_owned),
                columns: frame
                    .columns()
                    .iter()
                    .map(|(name, column)| (name.clone(), column.into()))
                    .collect(),
            },
            Value::Tagged(tagged) => Self::Tagged {
                tree: tagged.tree().to_owned(),
                attachments: tagged.attachments().iter().cloned().map(Into::into).collect(),
            },
        }
    }
}

impl From<&Array> for WireArray {
    fn from(array: &Array) -> Self {
        let (dtype, shape) = (array.dtype().to_owned(), array.shape().to_vec());
        Self { dtype, shape, data: array.data().to_vec() }
    }
}

impl From<&Column> for WireColumn {
    fn from(column: &Column) -> Self {
        match column {
            Column::Array(array) => Self::Array(array.into()),
            Column::Strings(strings) => Self::Strings(strings.clone()),
        }
    }
}

impl TryFrom<WireValue> for Value {
    type Error = InvalidMessage;

    fn try_from(sent: WireValue) -> Result<Self, InvalidMessage> {
        let value = || -> Result<Self, InvalidValue> {
            Ok(match sent {
                WireValue::Json(Text(json)) => Self::Json(json),
                WireValue::Bytes(bytes) => Self::Bytes(bytes),
                WireValue::Array(array) => Self::Array(array.try_into()?),
                WireValue::Frame { index, index_name, columns } => {
                    let columns: Result<Vec<(String, Column)>, InvalidValue> = columns
                        .into_iter()
                        .map(|(name, column)| Ok((name, column.try_into()?)))
                        .collect();
                    let frame = Frame::new(columns?)?;
                    Self::Frame(match index {
                        Some(index) => frame.with_index(index_name, index.try_into()?)?,
                        None => frame,
                    })
                }
                WireValue::Tagged { tree, attachments } => {
                    let attachments = attachments.into_iter().map(serde_bytes::ByteBuf::into_vec);
                    Self::Tagged(Tagged::new(tree, attachments.collect()))
                }
            })
        };
        value().map_err(|error| InvalidMessage::because("an invalid value", &error))
    }
}

impl TryFrom<WireArray> for Array {
    type Error = InvalidValue;

    fn try_from(sent: WireArray) -> Result<Self, InvalidValue> {
        Self::new(sent.dtype, sent.shape, sent.data)
    }
}

impl TryFrom<WireColumn> for Column {
    type Error = InvalidValue;

    fn try_from(sent: WireColumn) -> Result<Self, InvalidValue> {
        match sent {
            WireColumn::Array(array) => Ok(Self::Array(array.try_into()?)),
            WireColumn::Strings(strings) => Ok(Self::Strings(strings)),
        }
    }
}
