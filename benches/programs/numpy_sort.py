"""NumPy: sorting, finding and counting, in doubles and in integers."""

import numpy as np

from measure import measure

DRAW = np.random.default_rng(3)
REALS = DRAW.random(100_000)
WHOLE = DRAW.integers(0, 5_000, 100_000, dtype=np.int64)


def work(scale):
    total = 0
    for _ in range(max(1, round(6 * scale))):
        ordered = np.sort(REALS)
        order = np.argsort(WHOLE, kind="stable")
        places = np.searchsorted(ordered, REALS[:20_000])
        values, counts = np.unique(WHOLE, return_counts=True)
        total += int(order[::1_000].sum()) + int(places.sum(dtype=np.int64)) + int(counts.max())
    return f"{total} {len(values)}"


measure(work)
