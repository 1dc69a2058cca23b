"""pandas: a time series with rolling windows, resampling and shifts."""

import numpy as np
import pandas as pd

from measure import measure

TIMES = pd.date_range("2026-01-01", periods=40_000, freq="min")
SERIES = pd.Series(np.random.default_rng(8).random(40_000), index=TIMES)


def work(scale):
    total = 0.0
    for _ in range(max(1, round(12 * scale))):
        rolling = SERIES.rolling(60)
        change = SERIES.pct_change().abs().clip(upper=10)
        hours = SERIES.resample("h").agg(["mean", "max"])
        weighted = SERIES.ewm(span=30).mean()
        total += rolling.mean().sum() + rolling.std().max() + change.sum()
        total += hours["max"].sum() + weighted.iloc[-1] + SERIES.shift(7).sum()
    return f"{total:.4f}"


measure(work)
