"""NumPy: what a call costs, with arrays of eight elements."""

import numpy as np

from measure import measure


def work(scale):
    a = np.arange(8, dtype=np.float64)
    mask = np.array([True, False] * 4)
    total = 0.0
    for number in range(max(1, round(20_000 * scale))):
        a[number % 8] = number % 5
        b = a * a + a
        total += b.cumsum()[-1] + b[mask][0] + float(b.max())
        if (b > 20).any():
            total += 1
    return f"{total:.3f}"


measure(work)
