//! pass@k and its interval.
//!
//! pass@k is the unbiased estimator of Chen et al., "Evaluating Large Language Models Trained on Code"
//! (2021): for each task `1 - C(n - c, k) / C(n, k)` with n samples of which c pass, averaged over
//! tasks. Its 95 % interval is Wilson's score interval (Wilson 1927) for pass@1 with one sample of each
//! task, which is a plain proportion; otherwise it is the percentile bootstrap over tasks (Efron 1979).

use serde::{Deserialize, Serialize};

/// Bootstrap resamples: the ends of an interval then vary by less than a hundredth of its width.
const RESAMPLES: usize = 10_000;

/// Half of what a 95 % interval leaves out.
const TAIL: f64 = 0.025;

/// The quantile of the normal distribution for a 95 % interval.
const Z: f64 = 1.959_963_984_540_054;

/// An estimate with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
    /// How the interval was computed.
    pub method: Method,
}

/// How an interval was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Method {
    /// Wilson's score interval.
    Wilson,
    /// The percentile bootstrap over tasks.
    Bootstrap,
}

/// Samples of one task, and how many of them passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Count {
    /// Samples.
    pub total: u64,
    /// Samples that passed.
    pub passed: u64,
}

impl Count {
    /// Creates one.
    pub fn new(total: u64, passed: u64) -> Self {
        Self { total, passed }
    }
}

/// Returns the estimate of pass@k for one task: how likely one of k of its samples passes.
///
/// ```
/// use grade::statistics::{Count, pass_at_k};
///
/// assert_eq!(pass_at_k(Count::new(2, 1), 1), 0.5);
/// assert_eq!(pass_at_k(Count::new(2, 1), 2), 1.0);
/// ```
pub fn pass_at_k(count: Count, k: u64) -> f64 {
    let Count { total, passed } = count;
    let failed = total.saturating_sub(passed);
    if failed < k {
        return 1.0;
    }
    let none = (failed + 1..=total).map(|number| 1.0 - k as f64 / number as f64);
    1.0 - none.product::<f64>()
}

/// Returns pass@k over tasks with its interval; `None` if there is no task, or one has fewer than k
/// samples.
pub fn estimate(counts: &[Count], k: u64) -> Option<Estimate> {
    if k == 0 || counts.is_empty() || counts.iter().any(|count| count.total < k) {
        return None;
    }
    if k == 1 && counts.iter().all(|count| count.total == 1) {
        let passed = counts.iter().map(|count| count.passed).sum();
        return Some(wilson(passed, counts.len() as u64));
    }
    let values: Vec<f64> = counts.iter().map(|&count| pass_at_k(count, k)).collect();
    bootstrap(&values)
}

/// Returns a proportion with Wilson's score interval. `total` isn't 0.
pub fn wilson(passed: u64, total: u64) -> Estimate {
    let (n, p) = (total as f64, passed as f64 / total as f64);
    let spread = Z * Z / n;
    let centre = (p + spread / 2.0) / (1.0 + spread);
    let half = Z / (1.0 + spread) * (p * (1.0 - p) / n + spread / (4.0 * n)).sqrt();
    let (low, high) = ((centre - half).max(0.0), (centre + half).min(1.0));
    Estimate { value: p, low, high, method: Method::Wilson }
}

/// Returns the mean of values with its percentile bootstrap interval; `None` without values. The same
/// values give the same interval.
pub fn bootstrap(values: &[f64]) -> Option<Estimate> {
    if values.is_empty() {
        return None;
    }
    let n = values.len() as f64;
    let value = values.iter().sum::<f64>() / n;
    let mut random = Random(0);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| values.iter().map(|_| values[random.below(values.len())]).sum::<f64>() / n)
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |part: f64| means[((RESAMPLES - 1) as f64 * part).round() as usize];
    Some(Estimate { value, low: at(TAIL), high: at(1.0 - TAIL), method: Method::Bootstrap })
}

/// SplitMix64 (Steele, Lea and Flood 2014), which is enough to pick tasks.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_at_k_is_the_share_of_subsets_with_a_pass() {
        for total in 1..8_u64 {
            for passed in 0..=total {
                for k in 1..=total {
                    let subsets =
                        (0_u32..1 << total).filter(|set| u64::from(set.count_ones()) == k);
                    let (mut all, mut with) = (0.0, 0.0);
                    for set in subsets {
                        all += 1.0;
                        with += f64::from(u8::from(set & ((1 << passed) - 1) != 0));
                    }
                    let estimated = pass_at_k(Count::new(total, passed), k);
                    assert!((estimated - with / all).abs() < 1e-12, "{total} {passed} {k}");
                }
            }
        }
    }

    #[test]
    fn wilsons_interval_is_that_of_published_examples() {
        // Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        for (passed, total, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let found = wilson(passed, total);
            assert!((found.low - low).abs() < 1e-4, "{found:?}");
            assert!((found.high - high).abs() < 1e-4, "{found:?}");
        }
    }

    #[test]
    fn a_bootstrap_is_near_the_normal_interval_and_repeatable() {
        let values: Vec<f64> = (0..400).map(|place| f64::from(u8::from(place % 4 == 0))).collect();
        let found = bootstrap(&values).unwrap();
        let half = Z * (0.25 * 0.75 / 400.0_f64).sqrt();
        assert_eq!(found.value, 0.25);
        assert!((found.low - (0.25 - half)).abs() < 0.005, "{found:?}");
        assert!((found.high - (0.25 + half)).abs() < 0.005, "{found:?}");
        assert_eq!(bootstrap(&values), Some(found));
    }

    #[test]
    fn an_estimate_needs_k_samples_of_each_task() {
        let counts = [Count::new(3, 1), Count::new(2, 2)];
        assert!(estimate(&counts, 2).is_some_and(|found| found.method == Method::Bootstrap));
        assert_eq!(estimate(&counts, 3), None);
        assert_eq!(estimate(&[], 1), None);
    }
}
