//! Formats numbers for people: three digits and a unit.

use std::time::Duration;

use bytesize::ByteSize;

/// The whole, in percent.
const FULL: f64 = 100.0;

/// Formats a time in seconds.
pub(crate) fn time(seconds: f64) -> String {
    for (factor, unit) in [(1e6, "µs"), (1e3, "ms")] {
        if seconds * factor < 999.5 {
            return format!("{} {unit}", three_digits(seconds * factor));
        }
    }
    if seconds < 59.95 {
        return format!("{} s", three_digits(seconds));
    }
    let whole = Duration::try_from_secs_f64(seconds.round()).unwrap_or(Duration::MAX);
    // The two largest units; the rest is below three digits.
    let long = humantime::format_duration(whole).to_string();
    long.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Formats a number of bytes.
pub(crate) fn bytes(bytes: u64) -> String {
    ByteSize::b(bytes).to_string()
}

/// Formats a count.
pub(crate) fn count(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}k", three_digits(count as f64 / 1e3)),
        _ => format!("{}M", three_digits(count as f64 / 1e6)),
    }
}

/// Formats a rate per second.
pub(crate) fn rate(rate: f64) -> String {
    if rate < 999.5 { three_digits(rate) } else { count(rate.round() as u64) }
}

/// Returns the share of `part` in `all`, from 0 to 1.
pub(crate) fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { (part as f64 / all as f64).min(1.0) }
}

/// Formats a share in percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0}%", share * FULL)
}

fn three_digits(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        ..9.995 => format!("{number:.2}"),
        ..99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (seconds, expected) in [
            (0.0, "0 µs"),
            (70.4e-6, "70.4 µs"),
            (999.6e-6, "1.00 ms"),
            (4.187e-3, "4.19 ms"),
            (0.2504, "250 ms"),
            (1.5, "1.50 s"),
            (59.94, "59.9 s"),
            (59.96, "1m"),
            (3723.4, "1h 2m"),
        ] {
            assert_eq!(time(seconds), expected, "{seconds}");
        }
        assert!(!time(f64::MAX).is_empty());
    }

    #[test]
    fn counts_are_short() {
        for (number, expected) in
            [(0, "0"), (9_999, "9999"), (12_345, "12.3k"), (999_400, "999k"), (12_345_678, "12.3M")]
        {
            assert_eq!(count(number), expected);
        }
        assert_eq!((rate(0.0), rate(0.5), rate(412.34)), ("0".into(), "0.50".into(), "412".into()));
        assert_eq!(rate(23_456.0), "23.5k");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!((percent(share(1, 3)), share(1, 0), share(3, 2)), ("33%".into(), 0.0, 1.0));
    }
}
