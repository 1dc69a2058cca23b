//! JSON numbers on their way between host and guest.
//!
//! Whole numbers are exact, however many digits they have; all others are the nearest float, as in
//! Python's own `json`. A number that can't be passed like this is refused, and never becomes
//! another number.
//!
//! `serde_json` keeps the digits of whole numbers beyond 64 bits if its feature
//! `arbitrary_precision` is on anywhere in the program. Otherwise it reads them as floats. The
//! guest learns this (`hatchery/_wire.py`), and then sends no such numbers.

use std::sync::LazyLock;

use serde_json::{Number, Value as Json};

/// The most digits of a whole number for a program, the same as CPython's own limit for texts.
const MOST_DIGITS: usize = 4300;

/// Bits of a digit of CPython's `marshal` (`PyLong_MARSHAL_SHIFT`).
pub(crate) const DIGIT_BITS: u32 = 15;

/// Whether `serde_json` keeps whole numbers of any length.
pub(crate) static ARE_ALL_EXACT: LazyLock<bool> = LazyLock::new(|| {
    let beyond = "18446744073709551616";
    serde_json::from_str::<Number>(beyond).is_ok_and(|number| number.to_string() == beyond)
});

/// A whole number in `marshal`'s form: digits of 15 bits, the lowest first, and the sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LongInteger {
    pub(crate) digits: Vec<u16>,
    pub(crate) is_negative: bool,
}

impl LongInteger {
    /// Parses a decimal number; `None` if there is more than digits and a sign.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let decimals = whole(text)?.as_bytes();
        // Nine decimals at a time: together with a digit they fit into 64 bits.
        let mut digits: Vec<u16> = Vec::with_capacity(decimals.len() / 4 + 1);
        for chunk in decimals.chunks(9) {
            let value = chunk.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
            let mut carry = value;
            for digit in &mut digits {
                carry += u64::from(*digit) * 10_u64.pow(chunk.len() as u32);
                *digit = (carry & ((1 << DIGIT_BITS) - 1)) as u16;
                carry >>= DIGIT_BITS;
            }
            while carry > 0 {
                digits.push((carry & ((1 << DIGIT_BITS) - 1)) as u16);
                carry >>= DIGIT_BITS;
            }
        }
        Some(Self { digits, is_negative: text.starts_with('-') })
    }
}

fn is_of_64_bits(number: &Number) -> bool {
    number.as_i64().is_some() || number.as_u64().is_some()
}

fn is_whole(number: &Number) -> bool {
    is_of_64_bits(number) || whole(&number.to_string()).is_some()
}

/// Returns the digits of a whole number; `None` if it has a fraction or an exponent.
fn whole(text: &str) -> Option<&str> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.bytes().all(|digit| digit.is_ascii_digit()).then_some(digits)
}

/// Checks that every number of a value can be passed to a guest; else returns why not.
pub(crate) fn check(json: &Json) -> Result<(), String> {
    match json {
        Json::Number(number) if !is_of_64_bits(number) => check_text(&number.to_string()),
        Json::Array(items) => items.iter().try_for_each(check),
        Json::Object(items) => items.values().try_for_each(check),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => Ok(()),
    }
}

fn check_text(text: &str) -> Result<(), String> {
    match whole(text) {
        Some(digits) if digits.len() > MOST_DIGITS => Err(format!(
            "a whole number of {} digits; at most {MOST_DIGITS} are allowed",
            digits.len()
        )),
        None if text.parse().is_ok_and(f64::is_infinite) => {
            Err("a number that is too large for a float; write whole numbers with all digits"
                .to_owned())
        }
        _ => Ok(()),
    }
}

/// Rewrites the floats of a value from a guest as `serde_json` writes them, so that equal values
/// compare equal: Python writes 10²² as `1e+22`. Fails if a number isn't a float.
pub(crate) fn normalise(json: &mut Json) -> Result<(), String> {
    match json {
        Json::Number(number) if !is_whole(number) => {
            let float = number.as_f64().and_then(Number::from_f64);
            *number = float.ok_or("a number isn't a float")?;
            Ok(())
        }
        Json::Array(items) => items.iter_mut().try_for_each(normalise),
        Json::Object(items) => items.values_mut().try_for_each(normalise),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => Ok(()),
    }
}

/// Returns the approximate heap memory of a number, in bytes.
pub(crate) fn heap_bytes(number: &Number) -> usize {
    /// The smallest allocation.
    const LEAST: usize = 32;
    match number.as_i64().is_some() || number.is_f64() {
        true => LEAST,
        false => LEAST.max(number.to_string().len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::value::marshal::Marshal;

    fn number(text: &str) -> Number {
        serde_json::from_str(text).unwrap()
    }

    /// Converts the digits back to decimals.
    fn decimal(integer: &LongInteger) -> String {
        let mut decimals = vec![0_u8];
        for digit in integer.digits.iter().rev() {
            let mut carry = u32::from(*digit);
            for decimal in &mut decimals {
                carry += u32::from(*decimal) << DIGIT_BITS;
                *decimal = (carry % 10) as u8;
                carry /= 10;
            }
            while carry > 0 {
                decimals.push((carry % 10) as u8);
                carry /= 10;
            }
        }
        let sign = if integer.is_negative { "-" } else { "" };
        let digits = decimals.iter().rev().map(|decimal| char::from(b'0' + decimal));
        sign.chars().chain(digits).collect()
    }

    #[test]
    fn numbers_are_what_their_digits_say() {
        assert!(*ARE_ALL_EXACT, "the tests are built with the feature");
        for (text, expected) in [
            ("0", Marshal::Int(0)),
            ("-9223372036854775808", Marshal::Int(i64::MIN)),
            ("18446744073709551615", Marshal::Unsigned(u64::MAX)),
            ("1.5", Marshal::Float(1.5)),
            ("1e30", Marshal::Float(1e30)),
            ("0.1000000000000000055511151231257827", Marshal::Float(0.1)),
        ] {
            assert_eq!(Marshal::from(&number(text)), expected, "{text}");
        }
        for text in [
            "18446744073709551616".to_owned(),
            "-9223372036854775809".to_owned(),
            "12345678901234567890123".to_owned(),
            format!("1{}", "0".repeat(MOST_DIGITS - 1)),
            format!("-{}", "987654321".repeat(100)),
        ] {
            let Marshal::Long(integer) = Marshal::from(&number(&text)) else { panic!("{text}") };
            assert_eq!(decimal(&integer), text);
            assert!(integer.digits.last().is_some_and(|digit| *digit > 0), "{text}");
        }
    }

    #[test]
    fn what_would_become_another_number_is_refused() {
        let nested = |text: &str| serde_json::json!({ "a": [number(text)] });
        for text in ["1", "1e308", "123456789012345678901234567890"] {
            assert_eq!(check(&nested(text)), Ok(()), "{text}");
        }
        assert_eq!(check(&nested(&"9".repeat(MOST_DIGITS))), Ok(()));
        assert!(check(&nested(&"9".repeat(MOST_DIGITS + 1))).unwrap_err().contains("4301 digits"));
        assert!(check(&nested("1e400")).unwrap_err().contains("too large for a float"));
    }

    #[test]
    fn floats_are_written_as_here_and_whole_numbers_stay() {
        let mut json: Json = serde_json::from_str("[1e+22, 1e-07, 2.50, 7, 1e2]").unwrap();
        normalise(&mut json).unwrap();
        assert_eq!(json, serde_json::json!([1e22, 1e-7, 2.5, 7, 100.0]));
        let long = "[123456789012345678901234567890]";
        let mut json: Json = serde_json::from_str(long).unwrap();
        normalise(&mut json).unwrap();
        assert_eq!(json.to_string(), long);
        assert!(normalise(&mut serde_json::from_str("[1e400]").unwrap()).is_err());
    }
}
