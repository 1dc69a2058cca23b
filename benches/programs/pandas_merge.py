"""pandas: joining tables by a key, then sorting and pivoting what came out."""

import numpy as np
import pandas as pd

from measure import measure

DRAW = np.random.default_rng(7)
ORDERS = pd.DataFrame(
    {
        "order": np.arange(30_000, dtype=np.int64),
        "customer": DRAW.integers(0, 4_000, 30_000, dtype=np.int64),
        "month": DRAW.integers(1, 13, 30_000, dtype=np.int64),
        "amount": DRAW.integers(1, 500, 30_000, dtype=np.int64),
    }
)
CUSTOMERS = pd.DataFrame(
    {
        "customer": np.arange(0, 5_000, dtype=np.int64)[::-1],
        "segment": np.arange(5_000, dtype=np.int64) % 9,
    }
)


def work(scale):
    total = 0
    for _ in range(max(1, round(10 * scale))):
        joined = ORDERS.merge(CUSTOMERS, on="customer", how="left")
        ordered = joined.sort_values(["segment", "amount", "order"])
        table = joined.pivot_table(index="segment", columns="month", values="amount", aggfunc="sum")
        total += int(ordered["order"].iloc[:100].sum()) + int(table.to_numpy().max())
    return f"{total} {len(joined)}"


measure(work)
