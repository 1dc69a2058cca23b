//! Kernels against plain calculations in the same order, with forged arguments, and stopped.

use std::sync::Arc;
use std::thread;

use super::*;
use crate::interrupt::gate::Gate;
use crate::interrupt::reason::StopReason;
use crate::memory::WASM_PAGE_BYTES;

/// Numbers that look random: SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns a double, which is sometimes a zero with a sign.
    fn double(&mut self) -> f64 {
        match self.below(8) {
            0 => 0.0,
            1 => -0.0,
            _ => (self.next().cast_signed() as f64) / 1e15,
        }
    }

    fn doubles(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.double()).collect()
    }
}

struct Guest {
    gate: Arc<Gate>,
    passage: ThreadGate,
    memory: Arc<GuestMemory>,
}

impl Guest {
    fn new(pages: usize) -> Self {
        let memory = Arc::new(GuestMemory::new(pages * WASM_PAGE_BYTES).unwrap());
        let gate = Arc::new(Gate::new());
        gate.guard(Arc::clone(&memory));
        gate.begin();
        Self { passage: ThreadGate::of_main(Arc::clone(&gate)), gate, memory }
    }

    fn run(&self, kernel: Kernel, at: u32, count: u32) -> Result<bool, Stopped> {
        self.run_on(kernel, [at, count, 0])
    }

    fn run_on(&self, kernel: Kernel, operands: [u32; 3]) -> Result<bool, Stopped> {
        self.gate.guest(|| run(kernel, &self.memory, &self.passage, operands))?
    }

    /// Computes exponentials of powers that are `step` bytes apart.
    fn exp(&self, [source, target]: [u64; 2], count: u64, step: u64) -> Result<bool, Stopped> {
        self.put(0, [source | target << 32, count, step | step << 32]);
        self.run_on(Kernel::Exp, [0, 8, 16])
    }

    fn put(&self, at: u32, words: impl IntoIterator<Item = u64>) {
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        self.memory.write(at, &bytes).unwrap();
    }

    fn bits(&self, at: u32, count: usize) -> Vec<u64> {
        let mut bytes = vec![[0; 8]; count];
        self.memory.read(at, bytes.as_flattened_mut()).unwrap();
        bytes.into_iter().map(u64::from_le_bytes).collect()
    }
}

fn bits(doubles: &[f64]) -> impl Iterator<Item = u64> {
    doubles.iter().map(|double| double.to_bits())
}

/// Packs `count` rows of this length in pairs.
fn packed(rows: &[f64], count: usize, depth: usize) -> Vec<f64> {
    let pairs = (0..count).step_by(2).flat_map(|row| {
        let next = (count - row).min(2);
        (0..depth).flat_map(move |at| (0..next).map(move |next| (row + next) * depth + at))
    });
    pairs.map(|place| rows[place]).collect()
}

#[test]
fn a_product_is_that_of_the_guest_bit_for_bit() {
    let (guest, mut numbers) = (Guest::new(1), Numbers(1));
    for (rows, columns, depth) in [
        (1, 1, 1),
        (2, 2, 2),
        (8, 2, 16),
        (9, 3, 17),
        (12, 5, 3),
        (19, 4, 30),
        (7, 7, 1),
        (3, 6, 5),
    ] {
        let step = rows + 2;
        let (left, right) = (numbers.doubles(rows * depth), numbers.doubles(columns * depth));
        let (before, factor) = (numbers.doubles(columns * step), numbers.double());
        let left_at = 1024;
        let right_at = left_at + 8 * left.len() as u64;
        let sum_at = right_at + 8 * right.len() as u64;
        guest.put(left_at as u32, bits(&packed(&left, rows, depth)));
        guest.put(right_at as u32, bits(&packed(&right, columns, depth)));
        guest.put(sum_at as u32, bits(&before));
        let counts = [rows as u64, columns as u64, depth as u64, factor.to_bits()];
        guest.put(0, counts.into_iter().chain([left_at, right_at, sum_at, step as u64]));
        assert_eq!(guest.run(Kernel::Gemm, 0, 0), Ok(true));
        let mut expected = before;
        for column in 0..columns {
            for row in 0..rows {
                let product = |at: usize| left[row * depth + at] * right[column * depth + at];
                let in_order = |places: &mut dyn Iterator<Item = usize>| {
                    places.fold(0.0, |sum, at| sum + product(at))
                };
                let is_paired = row < rows / 2 * 2 && column < columns / 2 * 2;
                let whole = depth / 2 * 2;
                let sum = match is_paired {
                    true => {
                        let even = in_order(&mut (0..whole).step_by(2));
                        let odd = in_order(&mut (1..whole).step_by(2));
                        (whole..depth).fold(even + odd + 0.0, |sum, at| sum + product(at))
                    }
                    false => in_order(&mut (0..depth)),
                };
                let place = &mut expected[column * step + row];
                *place += factor * sum;
            }
        }
        let found = guest.bits(sum_at as u32, columns * step);
        assert!(found.into_iter().eq(bits(&expected)), "{rows} {columns} {depth}");
    }
}

#[test]
fn products_with_a_vector_are_those_of_the_guest_bit_for_bit() {
    let (guest, mut numbers) = (Guest::new(1), Numbers(2));
    for (rows, columns, step, sum_step) in [(1, 1, 1, 1), (40, 8, 40, 1), (33, 19, 35, 3)] {
        let matrix = numbers.doubles(columns * step);
        let (vector, factor) = (numbers.doubles(rows), numbers.double());
        let before = numbers.doubles(columns * sum_step);
        let matrix_at = 1024;
        let vector_at = matrix_at + 8 * matrix.len() as u64;
        let sum_at = vector_at + 8 * vector.len() as u64;
        guest.put(matrix_at as u32, bits(&matrix));
        guest.put(vector_at as u32, bits(&vector));
        guest.put(sum_at as u32, bits(&before));
        let counts = [rows as u64, columns as u64, 0, factor.to_bits(), matrix_at, step as u64];
        guest.put(0, counts.into_iter().chain([vector_at, 1, sum_at, sum_step as u64]));
        assert_eq!(guest.run(Kernel::GemvT, 0, 0), Ok(true));
        let mut expected = before;
        for column in 0..columns {
            let product = |row: usize| matrix[column * step + row] * vector[row];
            let sum = (0..rows).fold(0.0, |sum, row| sum + product(row));
            let place = &mut expected[column * sum_step];
            *place += factor * sum;
        }
        let found = guest.bits(sum_at as u32, columns * sum_step);
        assert!(found.into_iter().eq(bits(&expected)), "{rows} {columns}");
    }
}

#[test]
fn numbers_are_sorted_unless_their_order_depends_on_the_algorithm() {
    let (guest, mut numbers) = (Guest::new(1), Numbers(3));
    let words: Vec<u64> = (0..300).map(|_| numbers.next()).collect();
    let sorted = |kind, count| {
        guest.put(64, words.iter().copied());
        assert_eq!(guest.run(Kernel::Sort(kind), 64, count), Ok(true));
        guest.bits(64, words.len())
    };
    let mut expected = words.clone();
    expected.sort_unstable();
    assert_eq!(sorted(NumberType::U64, 300), expected);
    expected.sort_unstable_by_key(|word| word.cast_signed());
    assert_eq!(sorted(NumberType::I64, 300), expected);
    let halves = |words: &[u64]| -> Vec<u32> {
        words.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]).collect()
    };
    let mut expected = halves(&words);
    expected.sort_unstable();
    assert_eq!(halves(&sorted(NumberType::U32, 600)), expected);
    expected.sort_unstable_by_key(|word| word.cast_signed());
    assert_eq!(halves(&sorted(NumberType::I32, 600)), expected);

    let mut doubles: Vec<f64> = (0..300).map(|_| numbers.double() + 0.0).collect();
    doubles[7] = f64::NEG_INFINITY;
    guest.put(64, bits(&doubles));
    assert_eq!(guest.run(Kernel::Sort(NumberType::F64), 64, 300), Ok(true));
    let mut expected = doubles.clone();
    expected.sort_by(f64::total_cmp);
    assert!(guest.bits(64, 300).into_iter().eq(bits(&expected)));
    for unclear in [f64::NAN, -0.0] {
        doubles[200] = unclear;
        guest.put(64, bits(&doubles));
        assert_eq!(guest.run(Kernel::Sort(NumberType::F64), 64, 300), Ok(false));
        assert!(guest.bits(64, 300).into_iter().eq(bits(&doubles)));
    }
    let singles = |unclear: f32| {
        let single = |number: u64| u64::from((number as f32).to_bits());
        let last = u64::from(unclear.to_bits()) << 32;
        guest.put(64, [single(3), single(2) << 32 | single(1), last]);
        guest.run(Kernel::Sort(NumberType::F32), 64, 6)
    };
    assert_eq!([singles(1.5), singles(f32::NAN), singles(-0.0)], [Ok(true), Ok(false), Ok(false)]);
}

/// Powers whose exponentials are special, and many others.
fn powers(numbers: &mut Numbers) -> Vec<f64> {
    let near = [0.0, 2_f64.powi(-54), 512.0, 708.4, 709.8, 745.2, 1024.0, 5e-324, f64::MAX];
    let near = near.into_iter().flat_map(|one| [one, one.next_down(), one.next_up()]);
    let mut all: Vec<f64> = near.chain([f64::INFINITY]).flat_map(|one| [one, -one]).collect();
    all.push(f64::NAN);
    for _ in 0..4000 {
        let unit = numbers.below(1 << 53) as f64 / (1_u64 << 53) as f64;
        all.extend([unit * 1600.0 - 800.0, f64::from_bits(numbers.next())]);
    }
    all
}

/// Whether they are the build's, bit for bit, is tested by `engine/tests/image/kernels.rs`.
#[test]
fn exponentials_are_those_of_each_power() {
    let (guest, mut numbers) = (Guest::new(4), Numbers(5));
    let powers = powers(&mut numbers);
    let count = powers.len() as u64;
    let (source, target) = (1024, 1024 + 8 * count);
    for results in [target, source] {
        guest.put(source as u32, bits(&powers));
        assert_eq!(guest.exp([source, results], count, 8), Ok(true));
        let found = guest.bits(results as u32, powers.len());
        for (power, found) in powers.iter().zip(found) {
            let (found, expected) = (f64::from_bits(found), power.exp());
            let is_near = found.to_bits().abs_diff(expected.to_bits()) <= 1
                || (found.is_nan() && expected.is_nan());
            assert!(is_near, "exp({power:e}) = {found:e}, not {expected:e}");
        }
    }
    // Other steps and operands that overlap or are elsewhere are left to the guest.
    assert_eq!(guest.exp([source, target], 4, 16), Ok(false));
    assert_eq!(guest.exp([source, source + 8], 4, 8), Ok(false));
    assert_eq!(guest.exp([source, 4 << 16], 4, 8), Ok(false));
}

/// Forged arguments change nothing but what a kernel may write to, and none hangs.
/// `HATCHERY_FUZZ_CALLS` sets the number of calls.
#[test]
fn fuzzed_arguments_reach_nothing_else() {
    let calls =
        std::env::var("HATCHERY_FUZZ_CALLS").map_or(300_000, |calls| calls.parse().unwrap());
    let (guest, mut numbers) = (Guest::new(1), Numbers(4));
    let end = WASM_PAGE_BYTES as u64;
    let before: Vec<u64> = (0..end / 8).map(|_| numbers.next()).collect();
    guest.put(0, before.iter().copied());
    let mut content = guest.bits(0, before.len());
    let mut done = 0;
    for _ in 0..calls {
        let argument = |numbers: &mut Numbers| match numbers.below(6) {
            0 => numbers.next(),
            1 => end - numbers.below(64),
            2 => u64::from(u32::MAX) - numbers.below(1 << 10),
            3 => numbers.below(end),
            _ => numbers.below(24),
        };
        let at = match numbers.below(8) {
            0 => argument(&mut numbers) as u32,
            _ => 8 * numbers.below(end / 8 - 10) as u32,
        };
        let mut words: [u64; 10] = std::array::from_fn(|_| argument(&mut numbers));
        let kernel = match numbers.below(5) {
            0 => Kernel::Sort(NumberType::I64),
            1 => Kernel::Sort(NumberType::F32),
            2 => Kernel::Gemm,
            3 => Kernel::GemvT,
            _ => Kernel::Exp,
        };
        let mut count = argument(&mut numbers) as u32;
        let mut steps = argument(&mut numbers) as u32;
        if kernel == Kernel::Exp && numbers.below(8) > 0 {
            // Addresses, their number, and steps that are right.
            (count, steps) = (at.wrapping_add(8), at.wrapping_add(16));
            words[0] = words[0] & u64::from(u32::MAX) | argument(&mut numbers) << 32;
            words[2] = 8 | 8 << 32;
        }
        // The arguments of sorts are none that memory holds.
        if !matches!(kernel, Kernel::Sort(_)) && u64::from(at) + 80 <= end && at % 8 == 0 {
            guest.put(at, words);
            content[at as usize / 8..][..10].copy_from_slice(&words);
        }
        let before_call = |at: u32| content.get(at as usize / 8).copied().unwrap_or(0);
        let (addresses, number) = (before_call(at), before_call(count) as u32);
        let is_done = guest.run_on(kernel, [at, count, steps]).unwrap();
        done += u64::from(is_done);
        let low = |place: usize| u64::from(words[place] as u32);
        // What may have changed: from an address on, and how many bytes.
        let written = match kernel {
            _ if !is_done => 0..0,
            Kernel::Sort(NumberType::F32) => u64::from(at)..u64::from(at) + 4 * u64::from(count),
            Kernel::Sort(_) => u64::from(at)..u64::from(at) + 8 * u64::from(count),
            Kernel::Gemm => low(6)..low(6) + 8 * ((low(1) - 1) * low(7) + low(0)),
            Kernel::GemvT => low(8)..low(8) + 8 * ((low(1) - 1) * low(9) + 1),
            Kernel::Exp => (addresses >> 32)..(addresses >> 32) + 8 * u64::from(number),
        };
        assert!(written.end <= end, "{kernel:?} {at} {count} {words:?}");
        let after = guest.bits(0, before.len());
        let kept = |place: &u64| 8 * place + 8 <= written.start || 8 * place >= written.end;
        if is_done {
            let places = 0..end / 8;
            let same = |place: u64| content[place as usize] == after[place as usize];
            assert!(places.filter(kept).all(same), "{kernel:?} {at} {count} {words:?}");
            // Numbers that grow without bound tell nothing.
            guest.put(0, before.iter().copied());
            content.copy_from_slice(&before);
        } else {
            assert!(content == after, "{kernel:?} {at} {count} {words:?}");
        }
    }
    assert!(done > calls / 1000, "{done} of {calls}");
}

#[test]
fn a_stop_ends_a_kernel() {
    for _ in 0..200 {
        let guest = Guest::new(4);
        guest.gate.end();
        let run = guest.gate.begin();
        guest.put(0, [64, 64, 64, 1_f64.to_bits(), 1 << 10, 1 << 16, 1 << 17, 64]);
        let (powers, results) = (1 << 10, 1 << 16);
        guest.put(64, [powers | results << 32, 1 << 13, 8 | 8 << 32]);
        let stopper = {
            let gate = Arc::clone(&guest.gate);
            thread::spawn(move || gate.stop(run, StopReason::Cancelled))
        };
        while guest.run(Kernel::Gemm, 0, 0).is_ok()
            && guest.run_on(Kernel::Exp, [64, 72, 80]) == Ok(true)
        {}
        assert!(stopper.join().unwrap());
    }
}
