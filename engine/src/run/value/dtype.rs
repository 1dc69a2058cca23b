//! The item types of arrays, and the Rust types among them.

/// Units of dates and durations.
const UNITS: [&str; 13] = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"];

/// Returns the bytes of one item; `None` if the type can't be passed.
pub(crate) fn item_bytes(dtype: &str) -> Option<usize> {
    let (order, rest) = dtype.split_at_checked(1)?;
    let (kind, size) = rest.split_at_checked(1)?;
    let (size, unit) = match size.split_once('[') {
        Some((size, unit)) => (size, Some(unit.strip_suffix(']')?)),
        None => (size, None),
    };
    if size.starts_with('0') || !size.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let size: usize = size.parse().ok()?;
    let is_known = match (order, kind, size, unit) {
        ("|", "b" | "i" | "u", 1, None) | ("|", "S", _, None) | ("<", "U", _, None) => true,
        ("<", "i" | "u", 2 | 4 | 8, None) => true,
        ("<", "f", 2 | 4 | 8, None) | ("<", "c", 8 | 16, None) => true,
        ("<", "M" | "m", 8, Some(unit)) => UNITS.contains(&unit),
        _ => false,
    };
    let width = if kind == "U" { 4 } else { 1 };
    is_known.then(|| size.checked_mul(width)).flatten()
}

/// A Rust type that is also a NumPy type.
pub trait Element: sealed::Encoded {}

impl<T: sealed::Encoded> Element for T {}

pub(crate) mod sealed {
    /// What arrays need to know about an item.
    pub trait Encoded: Copy {
        /// NumPy's name of the type.
        const DTYPE: &'static str;

        /// Appends the item, little-endian.
        fn put(self, data: &mut Vec<u8>);

        /// Reads the item from exactly its bytes.
        fn take(bytes: &[u8]) -> Self;
    }
}

macro_rules! elements {
    ($($type:ty = $dtype:literal),*) => {$(
        impl sealed::Encoded for $type {
            const DTYPE: &'static str = $dtype;

            fn put(self, data: &mut Vec<u8>) {
                data.extend(self.to_le_bytes());
            }

            fn take(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("as many bytes as the item has"))
            }
        }
    )*};
}

elements!(
    i8 = "|i1",
    u8 = "|u1",
    i16 = "<i2",
    u16 = "<u2",
    i32 = "<i4",
    u32 = "<u4",
    i64 = "<i8",
    u64 = "<u8",
    f32 = "<f4",
    f64 = "<f8"
);

impl sealed::Encoded for bool {
    const DTYPE: &'static str = "|b1";

    fn put(self, data: &mut Vec<u8>) {
        data.push(self.into());
    }

    fn take(bytes: &[u8]) -> Self {
        bytes != [0]
    }
}
