//! Values in the format of Python's `marshal`, which the guest decodes without a parser of text.
//!
//! The layout is that of `Python/marshal.c` (`w_complex_object` and `r_object`). It uses codes that
//! every CPython from 3.11 to 3.15 reads, without references between objects (`FLAG_REF`).

use std::borrow::Cow;

use serde_json::{Number, Value as Json};

use super::number::{DIGIT_BITS, LongInteger};

#[derive(Debug, Clone, PartialEq, derive_more::From)]
pub(crate) enum Marshal<'a> {
    None,
    #[from]
    Bool(bool),
    Int(i64),
    /// An integer above the range of `Int`.
    Unsigned(u64),
    /// An integer beyond 64 bits.
    Long(LongInteger),
    Float(f64),
    #[from(&'a str)]
    Str(Cow<'a, str>),
    #[from(&'a [u8], Vec<u8>)]
    Bytes(Cow<'a, [u8]>),
    List(Vec<Marshal<'a>>),
    Tuple(Vec<Marshal<'a>>),
    /// In this order, with unique names.
    Dict(Vec<(Cow<'a, str>, Marshal<'a>)>),
}

impl<'a> Marshal<'a> {
    pub(crate) fn dict(items: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        Self::Dict(items.into_iter().map(|(name, value)| (Cow::Borrowed(name), value)).collect())
    }

    /// Encodes the value for `marshal.loads`, which refuses it if a part is longer than 2 GiB. A
    /// guest has no room for that.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        self.write(&mut bytes);
        bytes
    }

    /// Returns an upper bound on the length of the encoded value.
    pub(crate) fn encoded_len(&self) -> usize {
        match self {
            Self::None | Self::Bool(_) => 1,
            Self::Int(_) | Self::Unsigned(_) => 15,
            Self::Long(LongInteger { digits, .. }) => 5 + 2 * digits.len(),
            Self::Float(_) => 9,
            Self::Str(text) => 5 + text.len(),
            Self::Bytes(bytes) => 5 + bytes.len(),
            Self::List(items) | Self::Tuple(items) => {
                5 + items.iter().map(Self::encoded_len).sum::<usize>()
            }
            Self::Dict(items) => {
                let item_len =
                    |(name, value): &(Cow<'_, str>, Self)| 5 + name.len() + value.encoded_len();
                2 + items.iter().map(item_len).sum::<usize>()
            }
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::None => bytes.push(b'N'),
            Self::Bool(true) => bytes.push(b'T'),
            Self::Bool(false) => bytes.push(b'F'),
            Self::Int(number) => match i32::try_from(*number) {
                Ok(number) => {
                    bytes.push(b'i');
                    bytes.extend(number.to_le_bytes());
                }
                Err(_) => write_long(bytes, number.unsigned_abs(), *number < 0),
            },
            Self::Unsigned(number) => write_long(bytes, *number, false),
            Self::Long(LongInteger { digits, is_negative }) => {
                write_digits(bytes, digits.iter().copied(), *is_negative);
            }
            Self::Float(number) => {
                bytes.push(b'g');
                bytes.extend(number.to_le_bytes());
            }
            Self::Str(text) => write_sized(bytes, b'u', text.as_bytes()),
            Self::Bytes(content) => write_sized(bytes, b's', content),
            Self::List(items) | Self::Tuple(items) => {
                bytes.push(if matches!(self, Self::List(_)) { b'[' } else { b'(' });
                write_len(bytes, items.len());
                items.iter().for_each(|item| item.write(bytes));
            }
            Self::Dict(items) => {
                bytes.push(b'{');
                for (name, value) in items {
                    write_sized(bytes, b'u', name.as_bytes());
                    value.write(bytes);
                }
                bytes.push(b'0');
            }
        }
    }
}

fn write_long(bytes: &mut Vec<u8>, number: u64, is_negative: bool) {
    let count = (u64::BITS - number.leading_zeros()).div_ceil(DIGIT_BITS);
    let digit = |at| ((number >> (at * DIGIT_BITS)) & ((1 << DIGIT_BITS) - 1)) as u16;
    write_digits(bytes, (0..count).map(digit), is_negative);
}

/// Writes digits, the lowest first; the highest one isn't 0.
fn write_digits(
    bytes: &mut Vec<u8>,
    digits: impl ExactSizeIterator<Item = u16>,
    is_negative: bool,
) {
    bytes.push(b'l');
    let count = i32::try_from(digits.len()).expect("numbers are checked before they are encoded");
    // The number of digits carries the sign.
    bytes.extend((if is_negative { -count } else { count }).to_le_bytes());
    digits.for_each(|digit| bytes.extend(digit.to_le_bytes()));
}

fn write_sized(bytes: &mut Vec<u8>, code: u8, content: &[u8]) {
    bytes.push(code);
    write_len(bytes, content.len());
    bytes.extend(content);
}

/// Lengths are signed: one that is too large becomes a length that the guest refuses.
fn write_len(bytes: &mut Vec<u8>, length: usize) {
    bytes.extend(i32::try_from(length).unwrap_or(-1).to_le_bytes());
}

impl From<usize> for Marshal<'_> {
    /// Saturates at the largest value that fits.
    fn from(value: usize) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<&Number> for Marshal<'_> {
    /// A number beyond the range of floats becomes an infinity; `number::check` refuses it before.
    fn from(number: &Number) -> Self {
        if let Some(number) = number.as_i64() {
            return Self::Int(number);
        }
        if let Some(number) = number.as_u64() {
            return Self::Unsigned(number);
        }
        let text = number.to_string();
        match LongInteger::parse(&text) {
            Some(integer) => Self::Long(integer),
            None => Self::Float(text.parse().unwrap_or(f64::INFINITY)),
        }
    }
}

impl<'a> From<&'a Json> for Marshal<'a> {
    fn from(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::None,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => number.into(),
            Json::String(text) => text.as_str().into(),
            Json::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Json::Object(items) => {
                Self::dict(items.iter().map(|(name, value)| (name.as_str(), value.into())))
            }
        }
    }
}

impl<'a, T: Into<Marshal<'a>>> From<Option<T>> for Marshal<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::value::tests::as_python_reads;

    const INTEGERS: [i64; 16] = [
        0,
        1,
        -1,
        i32::MAX as i64,
        i32::MIN as i64,
        i32::MAX as i64 + 1,
        i32::MIN as i64 - 1,
        (1 << 45) - 1,
        1 << 45,
        -(1 << 45),
        (1 << 60) - 1,
        1 << 60,
        -(1 << 60) - 1,
        i64::MAX,
        i64::MIN,
        i64::MIN + 1,
    ];

    #[test]
    fn codes_are_those_of_cpython() {
        for (value, expected) in [
            (Marshal::None, &b"N"[..]),
            (Marshal::Bool(true), b"T"),
            (Marshal::Bool(false), b"F"),
            (Marshal::Int(-2), b"i\xfe\xff\xff\xff"),
            (Marshal::Int(1 << 31), b"l\x03\0\0\0\0\0\0\0\x02\0"),
            (Marshal::Int(-(1 << 31) - 1), b"l\xfd\xff\xff\xff\x01\0\0\0\x02\0"),
            (Marshal::Unsigned(1 << 63), b"l\x05\0\0\0\0\0\0\0\0\0\0\0\x08\0"),
            (
                Marshal::Long(LongInteger { digits: vec![0, 0, 0, 0, 1 << 4], is_negative: true }),
                b"l\xfb\xff\xff\xff\0\0\0\0\0\0\0\0\x10\0",
            ),
            (Marshal::Float(1.0), b"g\0\0\0\0\0\0\xf0\x3f"),
            (Marshal::from("\u{e4}"), b"u\x02\0\0\0\xc3\xa4"),
            (Marshal::Bytes(Cow::Borrowed(b"\0\xff")), b"s\x02\0\0\0\0\xff"),
            (Marshal::List(vec![Marshal::None]), b"[\x01\0\0\0N"),
            (Marshal::Tuple(vec![Marshal::None, Marshal::Int(1)]), b"(\x02\0\0\0Ni\x01\0\0\0"),
            (Marshal::dict([("a", Marshal::None)]), b"{u\x01\0\0\0aN0"),
        ] {
            assert_eq!(value.encode(), expected, "{value:?}");
            assert!(value.encoded_len() >= expected.len(), "{value:?}");
        }
    }

    #[test]
    fn python_reads_whole_numbers_of_any_length() {
        let longest = "7".repeat(4300);
        let numbers = format!("[18446744073709551616,-12345678901234567890123,{longest}]");
        let json: Json = serde_json::from_str(&numbers).unwrap();
        assert_eq!(as_python_reads(&Marshal::from(&json).encode()).to_string(), numbers);
    }

    #[test]
    fn python_reads_what_was_meant() {
        let floats = [0.0, -2.5, 1e300, 0.1];
        let texts = ["", "a", "\u{0}\n\"\\", "\u{e4}\u{20ac}\u{1f600}\u{2028}"];
        let bytes: Vec<u8> = (0..=255).collect();
        let value = Marshal::dict([
            ("nothing", None::<&str>.into()),
            ("flags", Marshal::List(vec![true.into(), false.into()])),
            ("integers", Marshal::List(INTEGERS.map(Marshal::Int).into())),
            ("largest", Marshal::Unsigned(u64::MAX)),
            ("floats", Marshal::List(floats.map(Marshal::Float).into())),
            ("texts", Marshal::List(texts.map(Marshal::from).into())),
            ("bytes", Marshal::Bytes(Cow::Borrowed(&bytes))),
            ("empty", Marshal::List(vec![Marshal::List(Vec::new()), Marshal::dict([])])),
            ("tuples", Marshal::Tuple(vec![Marshal::Tuple(Vec::new()), Marshal::from("a")])),
            ("owned", Marshal::Str(Cow::Owned("x".repeat(300)))),
            ("", Marshal::dict([("n\u{e4}me", Marshal::from(7_usize))])),
        ]);
        let expected = serde_json::json!({
            "nothing": null,
            "flags": [true, false],
            "integers": INTEGERS,
            "largest": u64::MAX,
            "floats": floats,
            "texts": texts,
            "bytes": bytes,
            "empty": [[], {}],
            "tuples": [[], "a"],
            "owned": "x".repeat(300),
            "": {"n\u{e4}me": 7},
        });
        assert_eq!(as_python_reads(&value.encode()), expected);
        assert_eq!(as_python_reads(&Marshal::from(&expected).encode()), expected);
    }
}
