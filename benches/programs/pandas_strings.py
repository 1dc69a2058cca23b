"""pandas: columns of strings: splitting, matching, replacing, and values as categories."""

import pandas as pd

from measure import measure

NAMES = pd.Series([f"  Item-{n % 977:04d} / lot {n % 13} " for n in range(12_000)])


def work(scale):
    total = 0
    for _ in range(max(1, round(4 * scale))):
        clean = NAMES.str.strip().str.lower()
        parts = clean.str.split(" / ", expand=True)
        number = parts[0].str.extract(r"item-(\d+)")[0].astype("int64")
        renamed = clean.str.replace("lot", "batch")
        kinds = parts[1].astype("category")
        total += int(number.sum()) + int(renamed.str.len().sum()) + len(kinds.cat.categories)
        total += int(clean.str.contains("77").sum())
    return total


measure(work)
