//! Values that programs receive and return, without a detour through text.
//!
//! JSON and bytes are plain. Arrays are NumPy's: a type, a shape and the items' raw bytes in C
//! order. Frames are pandas': columns of equal length. The same constructors check values from a
//! guest (`value/reply.rs`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::run::message::encoding::text;
pub use dtype::Element;

pub(crate) mod dtype;
pub(crate) mod marshal;
pub(crate) mod number;
pub(crate) mod reply;
pub(crate) mod request;

/// The variables of a program, by name.
pub type Variables = BTreeMap<String, Value>;

/// A value that passes between the host and a program. Any serde format can store it; JSON in it is
/// then text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, derive_more::From)]
#[non_exhaustive]
pub enum Value {
    /// A JSON value: in Python `None`, `bool`, `int`, `float`, `str`, `list` and `dict`. Whole
    /// numbers are exact up to 4,300 digits, but `serde_json` only keeps those beyond 64 bits with
    /// its feature `arbitrary_precision`.
    #[from(serde_json::Value, &str, String, bool, i32, i64, u32, u64, f64)]
    Json(#[serde(with = "text")] serde_json::Value),
    /// `bytes`.
    #[from]
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    /// A `numpy.ndarray`.
    #[from]
    Array(Array),
    /// A `pandas.DataFrame` of plain columns.
    #[from]
    Frame(Frame),
    /// Anything else that can be passed, such as sets, tuples, dates and other frames.
    Tagged(Tagged),
}

/// A value that JSON can't hold, as JSON with tags: `{"$set": [1, 2]}`. `_tagged.py` in the folder
/// `engine/src/guest/agent/hatchery` describes the tags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tagged {
    tree: Box<str>,
    attachments: Vec<ByteBuf>,
}

impl Tagged {
    /// Creates a value from a JSON text and the bytes that it refers to by number. Whether it is
    /// valid shows where it becomes an object.
    pub fn new(tree: impl Into<String>, attachments: Vec<Vec<u8>>) -> Self {
        let attachments = attachments.into_iter().map(ByteBuf::from).collect();
        Self { tree: tree.into().into(), attachments }
    }

    /// Returns the JSON text.
    pub fn tree(&self) -> &str {
        &self.tree
    }

    /// Returns the bytes to which the text refers.
    pub fn attachments(&self) -> impl Iterator<Item = &[u8]> {
        self.attachments.iter().map(|bytes| bytes.as_slice())
    }
}

/// A NumPy array: a type, a shape and raw bytes.
///
/// ```
/// # use engine as hatchery;
/// let array = hatchery::Array::from_slice(&[1.0, 2.5]);
/// assert_eq!((array.dtype(), array.shape()), ("<f8", &[2][..]));
/// assert_eq!(array.to_vec::<f64>(), Some(vec![1.0, 2.5]));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ArrayParts")]
pub struct Array {
    // Boxed, since every verdict holds these.
    dtype: Box<str>,
    shape: Box<[usize]>,
    #[serde(with = "serde_bytes")]
    data: Vec<u8>,
}

/// An array that has to be checked.
#[derive(Deserialize)]
struct ArrayParts {
    dtype: String,
    shape: Vec<usize>,
    #[serde(with = "serde_bytes")]
    data: Vec<u8>,
}

impl TryFrom<ArrayParts> for Array {
    type Error = InvalidValue;

    fn try_from(parts: ArrayParts) -> Result<Self, InvalidValue> {
        Self::new(parts.dtype, parts.shape, parts.data)
    }
}

/// A pandas frame: columns of equal length with unique names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "FrameParts")]
pub struct Frame {
    index: Option<Box<Column>>,
    index_name: Option<String>,
    columns: Vec<(String, Column)>,
}

/// A frame that has to be checked.
#[derive(Deserialize)]
struct FrameParts {
    index: Option<Column>,
    index_name: Option<String>,
    columns: Vec<(String, Column)>,
}

impl TryFrom<FrameParts> for Frame {
    type Error = InvalidValue;

    fn try_from(parts: FrameParts) -> Result<Self, InvalidValue> {
        let frame = Self::new(parts.columns)?;
        match parts.index {
            Some(index) => frame.with_index(parts.index_name, index),
            None => Ok(frame),
        }
    }
}

/// A column of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::From)]
#[non_exhaustive]
pub enum Column {
    /// Items of one type, in an array of one dimension.
    #[from]
    Array(Array),
    /// Texts, some of which may be missing.
    Strings(Vec<Option<String>>),
}

/// A value that can't be passed to a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidValue {
    /// The type of an array is invalid.
    #[error(
        "`{0}` isn't a supported type of items: use NumPy's `typestr` in little-endian \
         order, such as <f8, <i4, |b1, <U5 or <M8[ns]"
    )]
    Dtype(String),
    /// An array has the wrong number of bytes.
    #[error("an array of {dtype} with the shape {shape:?} doesn't have {bytes} bytes")]
    Length {
        /// The type of the items.
        dtype: String,
        /// The shape.
        shape: Vec<usize>,
        /// The number of bytes.
        bytes: usize,
    },
    /// An array has too many dimensions.
    #[error("an array has at most {MOST_DIMENSIONS} dimensions")]
    Dimensions,
    /// The column of this name is invalid, or the index, which has none.
    #[error(
        "column `{0}` doesn't fit the frame: names must be unique, and all columns of the same \
         length"
    )]
    Column(String),
}

/// The most dimensions of an array: every NumPy accepts this many.
pub const MOST_DIMENSIONS: usize = 32;

impl Array {
    /// Creates an array of items of `dtype`, a NumPy `typestr` such as `<f8`, in C order.
    ///
    /// Valid types are `|b1`, integers, floats and complex numbers (`i`, `u`, `f`, `c`). So are
    /// texts of fixed length (`<U5`, `|S5`), and dates and durations with a unit (`<M8[ns]`,
    /// `<m8[s]`).
    ///
    /// # Errors
    /// The type is invalid, there are more than [`MOST_DIMENSIONS`], or the number of bytes doesn't
    /// match the shape.
    pub fn new(
        dtype: impl Into<String>,
        shape: impl Into<Vec<usize>>,
        data: impl Into<Vec<u8>>,
    ) -> Result<Self, InvalidValue> {
        let (dtype, shape, data) = (dtype.into(), shape.into(), data.into());
        if shape.len() > MOST_DIMENSIONS {
            return Err(InvalidValue::Dimensions);
        }
        if data_len(&dtype, &shape)? != Some(data.len()) {
            return Err(InvalidValue::Length { dtype, shape, bytes: data.len() });
        }
        Ok(Self { dtype: dtype.into(), shape: shape.into(), data })
    }

    /// Creates an array of one dimension.
    pub fn from_slice<T: Element>(items: &[T]) -> Self {
        let mut data = Vec::with_capacity(size_of_val(items));
        items.iter().for_each(|item| item.put(&mut data));
        Self { dtype: T::DTYPE.into(), shape: [items.len()].into(), data }
    }

    /// Creates an array of one dimension from its items' bytes, little-endian.
    ///
    /// # Errors
    /// The type is invalid, or the bytes end within an item.
    pub fn from_bytes(
        dtype: impl Into<String>,
        data: impl Into<Vec<u8>>,
    ) -> Result<Self, InvalidValue> {
        let (dtype, data) = (dtype.into(), data.into());
        let size = dtype::item_bytes(&dtype).ok_or_else(|| InvalidValue::Dtype(dtype.clone()))?;
        Self::new(dtype, [data.len() / size], data)
    }

    /// Returns the same items in another shape.
    ///
    /// # Errors
    /// The shape has a different number of items.
    pub fn reshape(self, shape: impl Into<Vec<usize>>) -> Result<Self, InvalidValue> {
        Self::new(self.dtype, shape, self.data)
    }

    /// Returns the type of the items, as in NumPy's `dtype.str`.
    pub fn dtype(&self) -> &str {
        &self.dtype
    }

    /// Returns the number of items in each dimension; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the items' bytes, little-endian, in C order.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Returns the items' bytes without a copy.
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// Returns the items in C order, if they have this type.
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        let is_same = *self.dtype == *T::DTYPE;
        is_same.then(|| self.data.chunks_exact(size_of::<T>()).map(T::take).collect())
    }
}

/// Returns the length of an array in bytes; `None` if it exceeds any memory.
fn data_len(dtype: &str, shape: &[usize]) -> Result<Option<usize>, InvalidValue> {
    let size = dtype::item_bytes(dtype).ok_or_else(|| InvalidValue::Dtype(dtype.to_owned()))?;
    // Even in an empty array, each dimension must be a length that an array can have.
    let longest = shape
        .iter()
        .filter(|length| **length != 0)
        .try_fold(size, |bytes, length| bytes.checked_mul(*length))
        .filter(|bytes| isize::try_from(*bytes).is_ok());
    Ok(longest.map(|bytes| if shape.contains(&0) { 0 } else { bytes }))
}

impl Frame {
    /// Creates a frame of these columns, in this order, with rows numbered from 0.
    ///
    /// # Errors
    /// A name comes twice, an array doesn't have one dimension, or the lengths of columns differ.
    pub fn new(
        columns: impl IntoIterator<Item = (impl Into<String>, Column)>,
    ) -> Result<Self, InvalidValue> {
        let columns: Vec<(String, Column)> =
            columns.into_iter().map(|(name, column)| (name.into(), column)).collect();
        let mut names = std::collections::HashSet::new();
        let rows = columns.first().and_then(|(_, column)| column.rows());
        for (name, column) in &columns {
            if column.rows().is_none() || column.rows() != rows || !names.insert(name) {
                return Err(InvalidValue::Column(name.clone()));
            }
        }
        Ok(Self { index: None, index_name: None, columns })
    }

    /// Names the rows.
    ///
    /// # Errors
    /// The index doesn't have one dimension, or its length differs from that of the columns.
    pub fn with_index(mut self, name: Option<String>, index: Column) -> Result<Self, InvalidValue> {
        let rows = self.columns.first().map_or(index.rows(), |(_, column)| column.rows());
        if index.rows().is_none() || index.rows() != rows {
            return Err(InvalidValue::Column(String::new()));
        }
        (self.index_name, self.index) = (name, Some(Box::new(index)));
        Ok(self)
    }

    /// Returns the names of the rows, unless they are numbered from 0.
    pub fn index(&self) -> Option<&Column> {
        self.index.as_deref()
    }

    /// Returns the name of the index.
    pub fn index_name(&self) -> Option<&str> {
        self.index_name.as_deref()
    }

    /// Returns the columns in order.
    pub fn columns(&self) -> &[(String, Column)] {
        &self.columns
    }

    /// Returns the column with this name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|(own, _)| own == name).map(|(_, column)| column)
    }
}

impl Column {
    /// Returns the items, if the column is an array of this type.
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        match self {
            Self::Array(array) => array.to_vec(),
            Self::Strings(_) => None,
        }
    }

    /// Returns its length; `None` for an array that doesn't have one dimension.
    fn rows(&self) -> Option<usize> {
        match self {
            Self::Array(array) => match array.shape() {
                [rows] => Some(*rows),
                _ => None,
            },
            Self::Strings(texts) => Some(texts.len()),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Array(array) => array.data.len(),
            Self::Strings(texts) => {
                let text =
                    |text: &Option<String>| TEXT_BYTES + text.as_ref().map_or(0, String::len);
                texts.iter().map(text).sum()
            }
        }
    }
}

/// The memory of a text in a column, besides its own bytes.
const TEXT_BYTES: usize = size_of::<Option<String>>();

impl Value {
    /// Returns the approximate size of the value in memory, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Json(json) => json_bytes(json),
            Self::Bytes(bytes) => bytes.len(),
            Self::Array(array) => array.data.len(),
            Self::Frame(Frame { index, columns, .. }) => {
                let columns = columns.iter().map(|(name, column)| name.len() + column.bytes());
                columns.sum::<usize>() + index.as_ref().map_or(0, |index| index.bytes())
            }
            Self::Tagged(Tagged { tree, attachments }) => {
                tree.len() + attachments.iter().map(|bytes| bytes.len()).sum::<usize>()
            }
        }
    }
}

/// Returns the approximate size of a JSON value in memory, in bytes. Lists and objects that aren't
/// empty have spare capacity.
pub(crate) fn json_bytes(json: &serde_json::Value) -> usize {
    use serde_json::Value as Json;
    const LIST_BYTES: usize = 4 * size_of::<Json>();
    const OBJECT_BYTES: usize = 11 * (size_of::<String>() + size_of::<Json>());
    size_of::<Json>()
        + match json {
            Json::String(text) => text.len(),
            Json::Number(number) => number::heap_bytes(number),
            Json::Array(items) if !items.is_empty() => {
                LIST_BYTES + items.iter().map(json_bytes).sum::<usize>()
            }
            Json::Object(items) if !items.is_empty() => {
                let item = |(name, item): (&String, &Json)| name.len() + json_bytes(item);
                OBJECT_BYTES + items.iter().map(item).sum::<usize>()
            }
            _ => 0,
        }
}

impl<T: Into<String>> FromIterator<Option<T>> for Column {
    fn from_iter<I: IntoIterator<Item = Option<T>>>(texts: I) -> Self {
        Self::Strings(texts.into_iter().map(|text| text.map(Into::into)).collect())
    }
}

#[cfg(test)]
pub(crate) mod tests;
