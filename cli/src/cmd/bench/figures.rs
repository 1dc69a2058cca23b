//! The figures of the benchmark, and the samples that were taken of each.

use std::collections::BTreeMap;

use crate::terminal;

/// Rounds without which nothing is reported.
pub(super) const LEAST_ROUNDS: usize = 5;

/// Something that is measured in every round; [`Figure::TABLE`] says of each what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Figure {
    FirstOutcome,
    Fresh,
    FreshScience,
    Turn,
    OneWorker,
    AllCpus,
    TurnFrame,
    ForkFrame,
    SaveFrame,
    ReviveFrame,
    Fib,
    FibPython3,
    Numpy,
}

impl Figure {
    /// Every figure, in the order in which they are reported. Each has its field, the words for its
    /// row, what it counts, and how many samples a round takes.
    const TABLE: [(Self, &'static str, &'static str, Unit, usize); 13] = [
        (Self::FirstOutcome, "first_outcome", "process, to its first outcome", Unit::Millis, 1),
        (Self::Fresh, "fresh", "fresh job", Unit::Millis, 100),
        (
            Self::FreshScience,
            "fresh_numpy_pandas",
            "fresh job with numpy and pandas",
            Unit::Millis,
            100,
        ),
        (Self::Turn, "turn", "turn of a session", Unit::Millis, 100),
        (Self::OneWorker, "throughput_one_worker", "fresh jobs, one worker", Unit::Rate, 5),
        (Self::AllCpus, "throughput_all_cpus", "fresh jobs, a worker per CPU", Unit::Rate, 5),
        (Self::TurnFrame, "turn_frame", "turn with a frame of 100,000 rows", Unit::Millis, 20),
        (Self::ForkFrame, "fork_frame", "fork of that session", Unit::Millis, 5),
        (Self::SaveFrame, "save_frame", "save to a file", Unit::Millis, 1),
        (Self::ReviveFrame, "revive_frame", "revive from there, and a turn", Unit::Millis, 1),
        (Self::Fib, "fib", "fib(27)", Unit::Millis, 1),
        (Self::FibPython3, "fib_python3", "fib(27) in python3", Unit::Millis, 1),
        (Self::Numpy, "numpy", "numpy, elementwise and products", Unit::Millis, 1),
    ];

    pub(super) fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.into_iter().map(|(figure, ..)| figure)
    }

    pub(super) fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    pub(super) fn title(self) -> &'static str {
        Self::TABLE[self as usize].2
    }

    pub(super) fn unit(self) -> Unit {
        Self::TABLE[self as usize].3
    }

    pub(super) fn each_round(self) -> usize {
        Self::TABLE[self as usize].4
    }

    /// Returns whether there are enough samples for the 99th percentile.
    pub(super) fn has_tail(self) -> bool {
        self.each_round() >= 100
    }

    /// Returns whether the CPU time of its jobs is measured.
    pub(super) fn has_cpu(self) -> bool {
        use Figure::{AllCpus, Fresh, FreshScience, OneWorker, Turn, TurnFrame};
        matches!(self, Fresh | FreshScience | Turn | TurnFrame | OneWorker | AllCpus)
    }
}

/// A figure over another one: its field, the two figures, and what it says, with `{}` for the number.
pub(super) type Ratio = (&'static str, Figure, Figure, &'static str);

/// Every ratio, in the order in which they are reported.
pub(super) const RATIOS: [Ratio; 3] = [
    ("turn_to_fresh", Figure::Turn, Figure::Fresh, "a turn takes {} times as long as a fresh job"),
    (
        "throughput_all_cpus_to_one_worker",
        Figure::AllCpus,
        Figure::OneWorker,
        "a worker per CPU runs {} times as many jobs as one worker",
    ),
    (
        "fib_to_python3",
        Figure::Fib,
        Figure::FibPython3,
        "fib(27) takes {} times as long as in python3",
    ),
];

/// What was measured so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples {
    values: BTreeMap<Figure, Vec<f64>>,
    /// Milliseconds of CPU time per job, at least one sample for each round.
    cpu: BTreeMap<Figure, Vec<f64>>,
}

impl Samples {
    /// Adds a sample, in the figure's unit.
    pub(super) fn push(&mut self, figure: Figure, value: f64) {
        self.values.entry(figure).or_default().push(value);
    }

    /// Adds the CPU time per job of some jobs, in milliseconds.
    pub(super) fn push_cpu(&mut self, figure: Figure, millis: f64) {
        self.cpu.entry(figure).or_default().push(millis);
    }

    /// Returns the spread; `None` without the samples of five rounds.
    pub(super) fn spread(&self, figure: Figure) -> Option<Spread> {
        Spread::of(self.values.get(&figure)?, LEAST_ROUNDS * figure.each_round())
    }

    /// Returns the median of the CPU time per job in milliseconds, likewise.
    pub(super) fn cpu_millis(&self, figure: Figure) -> Option<f64> {
        Some(Spread::of(self.cpu.get(&figure)?, LEAST_ROUNDS)?.p50)
    }

    /// Returns the ratio of two figures, if both are known. Times are compared by their medians, and
    /// rates by all jobs, since their samples take equal times. A shared CPU may change between two
    /// speeds; then the ratio of medians would depend on which is more frequent.
    pub(super) fn ratio(&self, (_, over, under, _): &Ratio) -> Option<f64> {
        let value = |figure: Figure| {
            let spread = self.spread(figure)?;
            Some(match figure.unit() {
                Unit::Millis => spread.p50,
                Unit::Rate => spread.mean,
            })
        };
        Some(value(*over)? / value(*under)?)
    }
}

/// The mean of samples, and percentiles: each is the least sample that this part of them did not
/// exceed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    /// The number of samples.
    pub(super) samples: usize,
    pub(super) mean: f64,
    pub(super) p5: f64,
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
}

impl Spread {
    /// Returns the spread of these samples; `None` if there are fewer than `least`, or none.
    pub(super) fn of(samples: &[f64], least: usize) -> Option<Self> {
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
pub(super) enum Unit {
    Millis,
    /// Jobs per second.
    Rate,
}

impl Unit {
    /// Returns the ending of a field's name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Millis => "ms",
            Self::Rate => "per_second",
        }
    }

    /// Formats a value with its unit.
    pub(super) fn shown(self, value: f64) -> String {
        match self {
            Self::Millis => terminal::time(value / 1e3),
            Self::Rate => format!("{}/s", terminal::three_digits(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_names_of_their_own() {
        for names in [Figure::name, Figure::title] {
            let names: std::collections::BTreeSet<_> = Figure::all().map(names).collect();
            assert_eq!(names.len(), Figure::TABLE.len());
        }
        assert!(Figure::all().enumerate().all(|(place, figure)| figure as usize == place));
    }

    #[test]
    fn a_figure_is_known_after_the_least_number_of_rounds() {
        let mut samples = Samples::default();
        for round in 1..=LEAST_ROUNDS {
            assert_eq!(samples.spread(Figure::Turn), None);
            assert_eq!(samples.cpu_millis(Figure::Turn), None);
            assert_eq!(samples.ratio(&RATIOS[0]), None);
            for _ in 0..Figure::Turn.each_round() {
                samples.push(Figure::Turn, 3.0);
                samples.push(Figure::Fresh, 2.0);
            }
            samples.push_cpu(Figure::Turn, round as f64);
        }
        let spread = samples.spread(Figure::Turn).unwrap();
        assert_eq!((spread.samples, spread.p50), (LEAST_ROUNDS * 100, 3.0));
        assert_eq!(samples.cpu_millis(Figure::Turn), Some(3.0));
        assert_eq!(samples.ratio(&RATIOS[0]), Some(1.5));
        assert_eq!(samples.ratio(&RATIOS[2]), None);
    }

    #[test]
    fn times_are_compared_by_medians_and_rates_by_all_jobs() {
        let mut samples = Samples::default();
        // Most samples are equal, but one figure found a faster CPU in four of ten rounds.
        for round in 0..2 * LEAST_ROUNDS {
            let faster = if round <= LEAST_ROUNDS { 1.0 } else { 2.0 };
            for figure in [Figure::Turn, Figure::OneWorker] {
                (0..figure.each_round()).for_each(|_| samples.push(figure, 1.0));
            }
            for figure in [Figure::Fresh, Figure::AllCpus] {
                (0..figure.each_round()).for_each(|_| samples.push(figure, faster));
            }
        }
        assert_eq!(samples.ratio(&RATIOS[0]), Some(1.0));
        assert_eq!(samples.ratio(&RATIOS[1]), Some(1.4));
    }

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
    fn values_have_a_unit_and_three_digits() {
        let times = [0.3124, 1.25, 12.34, 1_500.0].map(|value| Unit::Millis.shown(value));
        assert_eq!(times, ["312 µs", "1.25 ms", "12.3 ms", "1.50 s"]);
        let rates = [4_321.6, 99.9].map(|value| Unit::Rate.shown(value));
        assert_eq!(rates, ["4322/s", "99.9/s"]);
    }
}
