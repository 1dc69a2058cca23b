//! What the host computes for NumPy equals what the guest computes itself, bit for bit. Parts below
//! the sizes for which the host is called show the latter.

use serde_json::json;

use crate::support::{mapped, value, without_kernels};

/// Multiplies as a whole, and in tiles.
const PRODUCTS: &str = r"
import numpy as np

draw = np.random.default_rng(1)
equal = []
for rows, columns, depth in [(64, 48, 96), (66, 67, 101), (200, 130, 64), (34, 7, 100)]:
    left, right = draw.standard_normal((rows, depth)), draw.standard_normal((depth, columns))
    whole, tiles = left @ right, np.empty((rows, columns))
    for row in range(0, rows, 4):
        for column in range(0, columns, 4):
            part = np.ascontiguousarray(right[:, column : column + 4])
            tiles[row : row + 4, column : column + 4] = left[row : row + 4] @ part
    vector = draw.standard_normal(depth)
    products = np.concatenate([left[row : row + 4] @ vector for row in range(0, rows, 4)])
    equal += [whole.tobytes() == tiles.tobytes(), (left @ vector).tobytes() == products.tobytes()]
equal
";

const SORTED: &str = r"
import math
import numpy as np

draw = np.random.default_rng(2)
equal = []
for kind in ['i4', 'u4', 'i8', 'u8', 'f4', 'f8']:
    numbers = (draw.standard_normal(5_000) * 1e6).astype(kind)
    equal.append(np.sort(numbers).tolist() == sorted(numbers.tolist()))
numbers[17] = math.nan
numbers[18:20] = [0.0, -0.0]
ordered = np.sort(numbers)
equal.append(bool(np.isnan(ordered[-1]) and np.all(ordered[:-2] <= ordered[1:-1])))
equal
";

#[test]
fn products_are_the_same_in_one_piece_and_in_tiles() {
    let mut slot = mapped().start().unwrap();
    assert_eq!(value(&mut slot, PRODUCTS), json!(vec![true; 8]));
}

#[test]
fn arrays_are_sorted() {
    let mut slot = mapped().start().unwrap();
    assert_eq!(value(&mut slot, SORTED), json!(vec![true; 7]));
}

/// Products, solutions and orders of many sizes and layouts, as one hash.
const HASHED: &str = r"
import hashlib
import numpy as np

draw, hashed = np.random.default_rng(3), hashlib.sha256()
for size in [6, 7, 16, 33, 100, 257, 400]:
    left, right = draw.standard_normal((2, size, size + 3))
    for product in [left @ right.T, left.T @ right, left[:, ::2] @ right.T[::2], left @ right[0],
                    right[1, :size] @ left, np.linalg.solve(left[:, :size], right[:, 0])]:
        hashed.update(product.tobytes())
    for kind in ['i4', 'u4', 'i8', 'u8', 'f4', 'f8']:
        numbers = (draw.standard_normal(size * 50) * 1e3).astype(kind)
        for given in [numbers, numbers[::-3], np.sort(numbers), np.repeat(numbers[:9], size)]:
            hashed.update(np.sort(given).tobytes())
bits = draw.integers(0, 2**64, 20_000, np.uint64).view(float)
near = np.array([0, 1, 512, 708.4, 709.8, 745.2, 1024, 2.2250738585072014e-308, 5e-324, np.inf])
near = np.concatenate([near, np.nextafter(near, 0), np.nextafter(near, np.inf)])
for powers in [bits, near, -near, draw.random(20_000) * 1600 - 800, draw.standard_normal(20_000),
               draw.standard_normal(20_000) * 2.0**-53, bits[::2]]:
    powers = np.resize(powers, max(len(powers), 100))
    results = powers.copy()
    for given in [powers, results]:
        with np.errstate(all='ignore'):
            np.exp(given, out=results)
        # What a NaN's bits are is left open.
        results[np.isnan(results)] = 0.5
        hashed.update(results.tobytes())
hashed.hexdigest()
";

#[test]
fn results_are_the_same_with_and_without_the_kernels() {
    let [mut with, mut without] = [mapped().start().unwrap(), without_kernels().start().unwrap()];
    assert_eq!(value(&mut with, HASHED), value(&mut without, HASHED));
}
