//! Values of programs as JSON with attachments: in messages of frames and in recordings.

use engine::{Array, Column, Frame, InvalidValue, Tagged, Value};
use wire::message::{ColumnData, Data, NamedColumn};
use wire::{Problem, ProblemKind};

/// The attachments that came with a message; each can be used once.
#[derive(Debug)]
pub struct Attached(Vec<Option<Vec<u8>>>);

impl Attached {
    /// Creates them from their bytes.
    pub fn new(attachments: Vec<Vec<u8>>) -> Self {
        Self(attachments.into_iter().map(Some).collect())
    }

    /// Takes an attachment.
    ///
    /// # Errors
    /// There is no such attachment, or it was taken before.
    pub fn take(&mut self, number: usize) -> Result<Vec<u8>, Problem> {
        let count = self.0.len();
        self.0.get_mut(number).and_then(Option::take).ok_or_else(|| {
            usage(format!(
                "there is no attachment {number}: the message has {count}, and each can be used once"
            ))
        })
    }

    /// Takes what a value needs.
    ///
    /// # Errors
    /// The data is invalid, or an attachment is missing.
    pub fn value(&mut self, data: Data) -> Result<Value, Problem> {
        let invalid = |error: InvalidValue| usage(error.to_string());
        Ok(match data {
            Data::Bytes { attachment } => Value::Bytes(self.take(attachment)?),
            Data::Array { dtype, shape, attachment } => {
                Value::Array(Array::new(dtype, shape, self.take(attachment)?).map_err(invalid)?)
            }
            Data::Frame { columns, index, index_name } => {
                let columns = columns
                    .into_iter()
                    .map(|NamedColumn { name, column }| Ok((name, self.column(column)?)));
                let columns: Vec<(String, Column)> = columns.collect::<Result<_, Problem>>()?;
                let frame = Frame::new(columns).map_err(invalid)?;
                Value::Frame(match index {
                    None => frame,
                    Some(index) => {
                        frame.with_index(index_name, self.column(index)?).map_err(invalid)?
                    }
                })
            }
            Data::Tagged { tree, attachments } => {
                let tree = String::from_utf8(self.take(tree)?);
                let tree = tree.map_err(|_| usage("a tagged value isn't UTF-8".to_owned()))?;
                let attachments = attachments.into_iter().map(|number| self.take(number));
                Value::Tagged(Tagged::new(tree, attachments.collect::<Result<_, Problem>>()?))
            }
            _ => return Err(usage("this Hatchery doesn't know such data".to_owned())),
        })
    }

    fn column(&mut self, column: ColumnData) -> Result<Column, Problem> {
        Ok(match column {
            ColumnData::Strings { strings } => Column::Strings(strings),
            ColumnData::Array { dtype, attachment } => {
                let array = Array::from_bytes(dtype, self.take(attachment)?);
                Column::Array(array.map_err(|error| usage(error.to_string()))?)
            }
        })
    }
}

/// Returns how a value is sent, and puts its bytes behind the other attachments; `None` for JSON.
pub fn data_of<'a>(value: &'a Value, attachments: &mut Vec<&'a [u8]>) -> Option<Data> {
    Some(match value {
        Value::Json(_) => return None,
        Value::Bytes(bytes) => Data::Bytes { attachment: attach(bytes, attachments) },
        Value::Array(array) => Data::Array {
            dtype: array.dtype().to_owned(),
            shape: array.shape().to_vec(),
            attachment: attach(array.data(), attachments),
        },
        Value::Frame(frame) => {
            let columns = frame.columns().iter().map(|(name, column)| {
                Some(NamedColumn { name: name.clone(), column: column_of(column, attachments)? })
            });
            Data::Frame {
                columns: columns.collect::<Option<_>>()?,
                index: frame.index().and_then(|index| column_of(index, attachments)),
                index_name: frame.index_name().map(str::to_owned),
            }
        }
        Value::Tagged(tagged) => {
            let tree = attach(tagged.tree().as_bytes(), attachments);
            let its = tagged.attachments().map(|bytes| attach(bytes, attachments));
            Data::Tagged { tree, attachments: its.collect() }
        }
        _ => return None,
    })
}

fn column_of<'a>(column: &'a Column, attachments: &mut Vec<&'a [u8]>) -> Option<ColumnData> {
    match column {
        Column::Array(array) => Some(ColumnData::Array {
            dtype: array.dtype().to_owned(),
            attachment: attach(array.data(), attachments),
        }),
        Column::Strings(strings) => Some(ColumnData::Strings { strings: strings.clone() }),
        _ => None,
    }
}

/// Puts bytes behind the attachments, and returns their place.
pub fn attach<'a>(bytes: &'a [u8], attachments: &mut Vec<&'a [u8]>) -> usize {
    attachments.push(bytes);
    attachments.len() - 1
}

fn usage(message: String) -> Problem {
    Problem::new(ProblemKind::Usage, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(value: &Value) -> Value {
        let mut attachments = Vec::new();
        let data = data_of(value, &mut attachments).unwrap();
        Attached::new(attachments.into_iter().map(<[u8]>::to_vec).collect()).value(data).unwrap()
    }

    #[test]
    fn values_come_back_as_they_were() {
        let texts = Array::new("<U3", [2], vec![65; 24]).unwrap();
        let columns = [
            ("x", Column::Array(Array::from_slice(&[1.0, 2.0]))),
            ("s", Column::Strings(vec![Some("a".to_owned()), None])),
            ("t", Column::Array(texts)),
            ("d", Column::Array(Array::new("<M8[ns]", [2], vec![0; 16]).unwrap())),
            ("c", Column::Array(Array::new("<c16", [2], vec![0; 32]).unwrap())),
        ];
        let frame = Frame::new(columns).unwrap();
        let index = Column::Array(Array::from_slice(&[7_i64, 8]));
        for value in [
            Value::Bytes(b"raw".to_vec()),
            Value::Array(Array::from_slice(&[1_i64, 2, 3, 4]).reshape([2, 2]).unwrap()),
            Value::Frame(frame.clone()),
            Value::Tagged(Tagged::new(r#"{"$bytes": 1}"#, vec![b"a".to_vec(), b"bc".to_vec()])),
            Value::Frame(frame.with_index(Some("i".to_owned()), index).unwrap()),
        ] {
            assert_eq!(there_and_back(&value), value);
        }
    }

    #[test]
    fn data_that_does_not_fit_is_refused() {
        let column = |dtype: &str| {
            let column = ColumnData::Array { dtype: dtype.to_owned(), attachment: 0 };
            let columns = vec![NamedColumn { name: "x".to_owned(), column }];
            let data = Data::Frame { columns, index: None, index_name: None };
            Attached::new(vec![vec![0; 12]]).value(data).map_err(|problem| problem.message)
        };
        assert!(column("<f4").is_ok());
        assert!(column("<f8").unwrap_err().contains("bytes"));
        assert!(column("object").unwrap_err().contains("supported type of items"));
        let twice = Data::Array { dtype: "<f8".to_owned(), shape: vec![1], attachment: 0 };
        let mut attached = Attached::new(vec![vec![0; 8]]);
        attached.value(twice.clone()).unwrap();
        assert!(attached.value(twice).unwrap_err().message.contains("used once"));
    }
}
