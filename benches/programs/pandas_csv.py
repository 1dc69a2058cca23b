"""pandas: writing a CSV and reading it again, with dates, numbers and text."""

import io

import numpy as np
import pandas as pd

from measure import measure

SIZE = 6_000
FRAME = pd.DataFrame(
    {
        "when": pd.date_range("2026-01-01", periods=SIZE, freq="h"),
        "number": np.arange(SIZE, dtype=np.int64) * 37 % 1_009,
        "share": np.round(np.random.default_rng(9).random(SIZE), 6),
        "label": [f"label {n % 101}" for n in range(SIZE)],
    }
)


def work(scale):
    total = 0
    for _ in range(max(1, round(6 * scale))):
        text = FRAME.to_csv(index=False)
        again = pd.read_csv(io.StringIO(text), parse_dates=["when"])
        total += len(text) + int(again.number.sum()) + int(again.when.dt.day.sum())
    return f"{total} {again.share.sum():.4f}"


measure(work)
