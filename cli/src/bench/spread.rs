//! How samples spread, and how that is written. Pure.

/// The mean of samples, and percentiles: each is the least sample that this part of them did not
/// exceed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub(crate) struct Spread {
    /// The number of samples.
    pub(crate) samples: usize,
    /// Their sum over their number.
    pub(crate) mean: f64,
    /// Of 5 percent.
    pub(crate) p5: f64,
    /// The median.
    pub(crate) p50: f64,
    /// Of 95 percent.
    pub(crate) p95: f64,
    /// Of 99 percent.
    pub(crate) p99: f64,
}

impl Spread {
    /// Returns the spread of these samples; `None` if there are fewer than `least`, or none.
    ///
    /// ```
    /// let spread = bench::Spread::of(&[3.0, 1.0, 2.0], 3).expect("they are enough");
    /// assert_eq!((spread.p5, spread.p50, spread.p95), (1.0, 2.0, 3.0));
    /// assert_eq!(bench::Spread::of(&[1.0], 3), None);
    /// ```
    pub(crate) fn of(samples: &[f64], least: usize) -> Option<Self> {
        if samples.len() < least.max(1) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        Some(Self { samples: sorted.len(), mean, p5: at(5), p50: at(50), p95: at(95), p99: at(99) })
    }
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Unit {
    /// Milliseconds.
    Millis,
    /// Jobs per second.
    Rate,
}

impl Unit {
    /// Returns the ending of a field's name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Millis => "ms",
            Self::Rate => "per_second",
        }
    }

    /// Formats values for a row of a table, in the unit that suits the first of them.
    pub(crate) fn row<const COUNT: usize>(self, values: [f64; COUNT]) -> [String; COUNT] {
        let (factor, unit) = match (self, values.first()) {
            (Self::Rate, _) => (1.0, "/s"),
            (Self::Millis, Some(1_000.0..)) => (1e-3, " s"),
            (Self::Millis, Some(1.0..)) => (1.0, " ms"),
            (Self::Millis, _) => (1e3, " µs"),
        };
        values.map(|value| format!("{}{unit}", digits(value * factor)))
    }
}

/// Formats a number with about three digits.
pub(crate) fn digits(value: f64) -> String {
    // From where the number is rounded to one with another digit before the point.
    let decimals = match value {
        99.95.. => 0,
        9.995.. => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_and_in_order() {
        let samples: Vec<f64> = (1..=1_000).rev().map(f64::from).collect();
        let Spread { samples, mean, p5, p50, p95, p99 } = Spread::of(&samples, 1_000).unwrap();
        assert_eq!((samples, mean), (1_000, 500.5));
        assert_eq!((p5, p50, p95, p99), (50.0, 500.0, 950.0, 990.0));
        let Spread { samples, mean, p5, p50, p95, p99 } = Spread::of(&[4.0, 1.0, 2.5], 3).unwrap();
        assert_eq!((samples, mean), (3, 2.5));
        assert_eq!((p5, p50, p95, p99), (1.0, 2.5, 4.0, 4.0));
        let spread = Spread::of(&[7.0], 1).unwrap();
        assert_eq!((spread.p5, spread.p50, spread.p99), (7.0, 7.0, 7.0));
    }

    #[test]
    fn too_few_samples_have_no_spread() {
        assert_eq!(Spread::of(&[1.0, 2.0], 3), None);
        assert_eq!(Spread::of(&[], 0), None);
    }

    #[test]
    fn a_row_has_one_unit_and_three_digits() {
        assert_eq!(Unit::Millis.row([0.3124, 0.2, 1.25]), ["312 µs", "200 µs", "1250 µs"]);
        assert_eq!(Unit::Millis.row([1.0, 0.951, 12.34]), ["1.00 ms", "0.95 ms", "12.3 ms"]);
        assert_eq!(Unit::Millis.row([1_500.0, 999.0]), ["1.50 s", "1.00 s"]);
        assert_eq!(Unit::Rate.row([4_321.6, 99.9]), ["4322/s", "99.9/s"]);
        assert_eq!(Unit::Millis.row([]), [""; 0]);
        assert_eq!([99.94, 99.96, 9.994, 9.996].map(digits), ["99.9", "100", "9.99", "10.0"]);
    }
}
