"""Sorting with keys: records by several fields, and a merge of sorted runs."""

import heapq
import operator
import random

from measure import measure

DRAW = random.Random(11)
ROWS = [
    (int(DRAW.random() * 500), f"n{int(DRAW.random() * 90_000):05d}", DRAW.random())
    for _ in range(20_000)
]


def work(scale):
    total = 0
    for _ in range(max(1, round(2 * scale))):
        by_name = sorted(ROWS, key=lambda row: (row[1], -row[0]))
        by_group = sorted(by_name, key=operator.itemgetter(0, 2))
        by_number = sorted(ROWS, key=lambda row: row[2], reverse=True)
        merged = list(heapq.merge(*(sorted(ROWS[i::4]) for i in range(4))))
        assert merged == sorted(ROWS)
        for rows in (by_name, by_group, by_number):
            total += sum(place * row[0] for place, row in enumerate(rows[::97]))
    return total


measure(work)
