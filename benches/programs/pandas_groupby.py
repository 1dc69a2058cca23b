"""pandas: grouping by one and two keys, with several aggregates and a transformation."""

import numpy as np
import pandas as pd

from measure import measure

DRAW = np.random.default_rng(6)
SIZE = 50_000
FRAME = pd.DataFrame(
    {
        "region": DRAW.integers(0, 12, SIZE, dtype=np.int64),
        "product": DRAW.integers(0, 300, SIZE, dtype=np.int64),
        "units": DRAW.integers(1, 20, SIZE, dtype=np.int64),
        "price": DRAW.random(SIZE),
    }
)


def work(scale):
    total = 0.0
    for _ in range(max(1, round(10 * scale))):
        sums = FRAME.groupby("region").agg({"units": "sum", "price": ["mean", "max"]})
        both = FRAME.groupby(["region", "product"])["units"].sum()
        share = FRAME.units / FRAME.groupby("product")["units"].transform("sum")
        total += sums[("units", "sum")].iloc[3] + both.max() + share.sum() + len(both)
    return f"{total:.4f}"


measure(work)
