//! Products of matrices and vectors, with the order of additions that the build's OpenBLAS has.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls AVX2 code on such CPUs"))]

use std::array;
use std::ops::Range;

use super::operands::{DOUBLE_BYTES, Double, lend};
use crate::memory::GuestMemory;

/// Products of a piece of work: a millisecond.
const PIECE: u64 = 1 << 22;
/// The most products of an operand that can't be divided: ten milliseconds.
const MOST_UNDIVIDED: u64 = 1 << 25;
/// The most doubles of an operand, more than a memory has. No calculation with fewer overflows.
const MOST_DOUBLES: u64 = 1 << 29;

/// The arguments of a function, which begins by storing each as 8 bytes.
struct Arguments<const N: usize>([[u8; 8]; N]);

impl<const N: usize> Arguments<N> {
    fn read(memory: &GuestMemory, at: u32) -> Option<Self> {
        let mut bytes = [[0; 8]; N];
        memory.read(at, bytes.as_flattened_mut())?;
        Some(Self(bytes))
    }

    /// Returns a number of something; `None` if it isn't positive.
    fn count(&self, place: usize) -> Option<u64> {
        let count = i32::try_from(self.address(place)).ok()?;
        u64::try_from(count).ok().filter(|count| *count > 0)
    }

    fn address(&self, place: usize) -> u64 {
        u64::from_le_bytes(self.0[place]) & u64::from(u32::MAX)
    }

    fn double(&self, place: usize) -> f64 {
        f64::from_le_bytes(self.0[place])
    }
}

/// Returns where `count` doubles from this address on are.
fn doubles(at: u64, count: u64) -> Range<u64> {
    at..at + count * DOUBLE_BYTES
}

/// Divides columns, each with this many products, into pieces that begin at multiples of `unit`.
fn pieces(columns: u64, products: u64, unit: u64) -> impl Iterator<Item = Range<u64>> {
    let each = (PIECE / products / unit).max(1) * unit;
    (0..columns.div_ceil(each)).map(move |piece| piece * each..columns.min((piece + 1) * each))
}

/// A product of two blocks that is added to a matrix.
///
/// Rows of the first block are packed in pairs: both first elements, both second ones, and so on.
/// If their number is odd, the last row follows by itself. So are the columns of the second block.
pub(super) struct Gemm {
    rows: u64,
    columns: u64,
    depth: u64,
    factor: f64,
    left: u64,
    right: u64,
    sum: u64,
    /// From one column of the sum to the next.
    step: u64,
}

impl Gemm {
    /// Reads the arguments. Returns nothing if the operands aren't of a usual form and in memory.
    pub(super) fn read(memory: &GuestMemory, at: u32) -> Option<Self> {
        let arguments = Arguments::<8>::read(memory, at)?;
        let gemm = Self {
            rows: arguments.count(0)?,
            columns: arguments.count(1)?,
            depth: arguments.count(2)?,
            factor: arguments.double(3),
            left: arguments.address(4),
            right: arguments.address(5),
            sum: arguments.address(6),
            step: arguments.count(7)?,
        };
        let is_usual = gemm.step >= gemm.rows
            && gemm.rows * gemm.depth <= MOST_UNDIVIDED
            && gemm.columns * gemm.depth.max(gemm.step) <= MOST_DOUBLES;
        is_usual.then_some(())?;
        gemm.lend(memory, &(0..gemm.columns), |_, _| ())?;
        Some(gemm)
    }

    pub(super) fn pieces(&self) -> impl Iterator<Item = Range<u64>> {
        pieces(self.columns, self.rows * self.depth, 2)
    }

    /// Adds these columns.
    pub(super) fn add(&self, memory: &GuestMemory, columns: Range<u64>) {
        // It was in memory when it was read. So it is now, unless the run is stopped.
        let _ = self.lend(memory, &columns, |[left, right], sum| {
            let rows = self.rows as usize;
            let blocks = PackedBlocks {
                depth: self.depth as usize,
                factor: self.factor,
                left: left.as_chunks().0,
                right: right.as_chunks().0,
            };
            let columns = sum.as_chunks_mut().0.chunks_mut(self.step as usize);
            blocks.add_all(columns.map(|column| &mut column[..rows]));
        });
    }

    fn lend(
        &self,
        memory: &GuestMemory,
        columns: &Range<u64>,
        work: impl FnOnce([&[u8]; 2], &mut [u8]),
    ) -> Option<()> {
        let (first, count) = (columns.start, columns.end - columns.start);
        let left = doubles(self.left, self.rows * self.depth);
        let right = doubles(self.right + first * self.depth * DOUBLE_BYTES, count * self.depth);
        let sum = doubles(
            self.sum + first * self.step * DOUBLE_BYTES,
            (count - 1) * self.step + self.rows,
        );
        lend(memory, [&left, &right], &sum, work)
    }
}

/// Pairs of rows that are multiplied at once.
const PANELS: usize = 4;

/// The elements of a product in two rows, for both columns of a pair.
type Products = [[f64; 2]; 2];

struct PackedBlocks<'a> {
    depth: usize,
    factor: f64,
    left: &'a [Double],
    right: &'a [Double],
}

impl<'a> PackedBlocks<'a> {
    fn add_all<'b>(&self, columns: impl Iterator<Item = &'b mut [Double]>) {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2.
            return unsafe { avx2::add_all(self, columns) };
        }
        self.add_portably(columns);
    }

    fn add_portably<'b>(&self, columns: impl Iterator<Item = &'b mut [Double]>) {
        self.add_with(columns, products, products);
    }

    /// Adds the product to these columns, with functions for one pair of rows and for several.
    #[inline(always)]
    fn add_with<'b>(
        &self,
        mut columns: impl Iterator<Item = &'b mut [Double]>,
        several: impl Fn([&[[Double; 4]]; PANELS], &[[Double; 4]]) -> [Products; PANELS],
        one: impl Fn([&[[Double; 4]]; 1], &[[Double; 4]]) -> [Products; 1],
    ) {
        let mut right = self.right;
        while let Some(first) = columns.next() {
            let Some(second) = columns.next() else {
                let column = &right[..self.depth];
                self.add_column(first, |depth| column[depth]);
                return;
            };
            let pair;
            (pair, right) = right.split_at(2 * self.depth);
            let whole = pair.as_chunks().0;
            let rows = first.len();
            let mut row = 0;
            while rows - row >= 2 * PANELS {
                let panels = array::from_fn(|panel| self.panel(row + 2 * panel));
                for sums in several(panels, whole) {
                    self.add_products(row, sums, pair, [first, second]);
                    row += 2;
                }
            }
            while rows - row >= 2 {
                let [sums] = one([self.panel(row)], whole);
                self.add_products(row, sums, pair, [first, second]);
                row += 2;
            }
            if row < rows {
                for (number, column) in [first, second].into_iter().enumerate() {
                    let sum = self.in_order(|depth| {
                        (self.left[row * self.depth + depth], pair[2 * depth + number])
                    });
                    self.add_to(&mut column[row], sum);
                }
            }
        }
    }

    /// Returns a pair of rows, by two elements of each.
    fn panel(&self, row: usize) -> &'a [[Double; 4]] {
        self.left[row * self.depth..][..2 * self.depth].as_chunks().0
    }

    /// Adds the products of a pair of rows and one of columns, with the last element of each if
    /// their number is odd.
    #[inline(always)]
    fn add_products(
        &self,
        row: usize,
        sums: Products,
        pair: &[Double],
        columns: [&mut [Double]; 2],
    ) {
        for (number, (column, sums)) in columns.into_iter().zip(sums).enumerate() {
            for (next, sum) in sums.into_iter().enumerate() {
                let last = self.depth - 1;
                let sum = match self.depth % 2 {
                    0 => sum,
                    _ => {
                        let left = self.left[row * self.depth + 2 * last + next];
                        sum + value(left) * value(pair[2 * last + number])
                    }
                };
                self.add_to(&mut column[row + next], sum);
            }
        }
    }

    /// Adds the product to the last column of an odd number.
    fn add_column(&self, column: &mut [Double], right: impl Fn(usize) -> Double) {
        let rows = column.len();
        for (row, place) in column.iter_mut().enumerate() {
            let sum = self.in_order(|depth| {
                let is_last = row + 1 == rows && rows % 2 == 1;
                let left = match is_last {
                    true => row * self.depth + depth,
                    false => row / 2 * 2 * self.depth + 2 * depth + row % 2,
                };
                (self.left[left], right(depth))
            });
            self.add_to(place, sum);
        }
    }

    fn in_order(&self, factors: impl Fn(usize) -> (Double, Double)) -> f64 {
        (0..self.depth).fold(0.0, |sum, depth| {
            let (left, right) = factors(depth);
            sum + value(left) * value(right)
        })
    }

    fn add_to(&self, place: &mut Double, sum: f64) {
        *place = (self.factor * sum + value(*place)).to_le_bytes();
    }
}

fn value(double: Double) -> f64 {
    f64::from_le_bytes(double)
}

/// Returns the products of pairs of rows and one of columns. Elements with even numbers and those
/// with odd ones are added apart.
fn products<const N: usize>(panels: [&[[Double; 4]]; N], pair: &[[Double; 4]]) -> [Products; N] {
    panels.map(|panel| {
        let mut sums = [[[0.0; 2]; 2]; 2];
        for (left, right) in panel.iter().zip(pair) {
            let (left, right) = (left.map(value), right.map(value));
            for (parity, sums) in sums.iter_mut().enumerate() {
                for (column, sums) in sums.iter_mut().enumerate() {
                    for (row, sum) in sums.iter_mut().enumerate() {
                        *sum += left[2 * parity + row] * right[2 * parity + column];
                    }
                }
            }
        }
        let [even, odd] = sums;
        // The last addition makes a negative zero positive.
        array::from_fn(|column| array::from_fn(|row| even[column][row] + odd[column][row] + 0.0))
    })
}

/// The same with vectors of 4 doubles.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256d, _mm_add_pd, _mm_cvtsd_f64, _mm_setzero_pd, _mm_unpackhi_pd, _mm256_add_pd,
        _mm256_castpd256_pd128, _mm256_extractf128_pd, _mm256_movedup_pd, _mm256_mul_pd,
        _mm256_permute_pd, _mm256_set_pd, _mm256_setzero_pd,
    };

    use super::{Double, PackedBlocks, Products, value};

    #[target_feature(enable = "avx2")]
    pub(super) fn add_all<'a>(
        blocks: &PackedBlocks<'_>,
        columns: impl Iterator<Item = &'a mut [Double]>,
    ) {
        blocks.add_with(
            columns,
            |rows, pair| products(rows, pair),
            |rows, pair| products(rows, pair),
        );
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn products<const N: usize>(
        panels: [&[[Double; 4]]; N],
        pair: &[[Double; 4]],
    ) -> [Products; N] {
        let panels = panels.map(|panel| &panel[..pair.len()]);
        let mut sums = [[_mm256_setzero_pd(); 2]; N];
        for (place, right) in pair.iter().enumerate() {
            let right = load(right);
            // Each column's element beside itself, for the two rows.
            let columns = [_mm256_movedup_pd(right), _mm256_permute_pd::<0b1111>(right)];
            for (sums, panel) in sums.iter_mut().zip(panels) {
                let left = load(&panel[place]);
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = _mm256_add_pd(*sum, _mm256_mul_pd(left, column));
                }
            }
        }
        sums.map(|sums| {
            sums.map(|sum| {
                let (even, odd) = (_mm256_castpd256_pd128(sum), _mm256_extractf128_pd::<1>(sum));
                let both = _mm_add_pd(_mm_add_pd(even, odd), _mm_setzero_pd());
                [_mm_cvtsd_f64(both), _mm_cvtsd_f64(_mm_unpackhi_pd(both, both))]
            })
        })
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(doubles: &[Double; 4]) -> __m256d {
        let [first, second, third, fourth] = doubles.map(value);
        _mm256_set_pd(fourth, third, second, first)
    }
}

/// Products of a matrix's columns and a vector, which are added to another vector.
pub(super) struct GemvT {
    rows: u64,
    columns: u64,
    factor: f64,
    matrix: u64,
    /// From one column to the next.
    step: u64,
    vector: u64,
    sum: u64,
    /// From one element of the sum to the next.
    sum_step: u64,
}

/// Columns whose sums are computed at once.
const AT_ONCE: usize = 8;

impl GemvT {
    /// Reads the arguments. Returns nothing if the operands aren't of a usual form and in memory.
    pub(super) fn read(memory: &GuestMemory, at: u32) -> Option<Self> {
        let arguments = Arguments::<10>::read(memory, at)?;
        let gemv = Self {
            rows: arguments.count(0)?,
            columns: arguments.count(1)?,
            factor: arguments.double(3),
            matrix: arguments.address(4),
            step: arguments.count(5)?,
            vector: arguments.address(6),
            sum: arguments.address(8),
            sum_step: arguments.count(9)?,
        };
        let is_usual = arguments.count(7) == Some(1)
            && gemv.rows <= MOST_UNDIVIDED
            && gemv.columns * gemv.step.max(gemv.sum_step) <= MOST_DOUBLES;
        is_usual.then_some(())?;
        gemv.lend(memory, &(0..gemv.columns), |_, _| ())?;
        Some(gemv)
    }

    pub(super) fn pieces(&self) -> impl Iterator<Item = Range<u64>> {
        pieces(self.columns, self.rows, AT_ONCE as u64)
    }

    /// Adds the products of these columns.
    pub(super) fn add(&self, memory: &GuestMemory, columns: Range<u64>) {
        // As in `Gemm::add`.
        let _ = self.lend(memory, &columns, |[matrix, vector], sum| {
            let vector = vector.as_chunks().0;
            let (step, rows) = (self.step as usize, vector.len());
            let matrix: &[Double] = matrix.as_chunks().0;
            let column = |number: usize| &matrix[number * step..][..rows];
            let mut places = sum.as_chunks_mut().0.iter_mut().step_by(self.sum_step as usize);
            let mut put = |sums: &[f64]| {
                for (sum, place) in sums.iter().zip(&mut places) {
                    *place = (self.factor * sum + value(*place)).to_le_bytes();
                }
            };
            let count = (columns.end - columns.start) as usize;
            let apart = count - count % AT_ONCE;
            for first in (0..apart).step_by(AT_ONCE) {
                put(&sums::<AT_ONCE>(array::from_fn(|next| column(first + next)), vector));
            }
            (apart..count).for_each(|number| put(&sums([column(number)], vector)));
        });
    }

    fn lend(
        &self,
        memory: &GuestMemory,
        columns: &Range<u64>,
        work: impl FnOnce([&[u8]; 2], &mut [u8]),
    ) -> Option<()> {
        let (first, count) = (columns.start, columns.end - columns.start);
        let matrix = doubles(
            self.matrix + first * self.step * DOUBLE_BYTES,
            (count - 1) * self.step + self.rows,
        );
        let vector = doubles(self.vector, self.rows);
        let sum = doubles(
            self.sum + first * self.sum_step * DOUBLE_BYTES,
            (count - 1) * self.sum_step + 1,
        );
        lend(memory, [&matrix, &vector], &sum, work)
    }
}

/// Returns the product of each column and the vector.
#[inline(always)]
fn sums<const N: usize>(columns: [&[Double]; N], vector: &[Double]) -> [f64; N] {
    let columns = columns.map(|column| &column[..vector.len()]);
    let mut sums = [0.0; N];
    for (row, element) in vector.iter().enumerate() {
        for (sum, column) in sums.iter_mut().zip(columns) {
            *sum += value(column[row]) * value(*element);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_without_wide_vectors_computes_the_same() {
        let number = |place: usize| (1.0 / (place as f64 - 7.3)).to_le_bytes();
        for (rows, columns, depth) in [(9, 5, 17), (16, 4, 6)] {
            let left: Vec<Double> = (0..rows * depth).map(number).collect();
            let right: Vec<Double> = (0..columns * depth).rev().map(number).collect();
            let blocks = PackedBlocks { depth, factor: 0.7, left: &left, right: &right };
            let mut sums = [vec![number(3); rows * columns], vec![number(3); rows * columns]];
            let [first, second] = &mut sums;
            blocks.add_all(first.chunks_mut(rows));
            blocks.add_portably(second.chunks_mut(rows));
            assert_eq!(sums[0], sums[1]);
        }
    }
}
