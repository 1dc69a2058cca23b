"""Recursion with bit masks: the ways to put queens on a board so that none attacks another."""

from measure import measure


def count(full, columns, left, right):
    if columns == full:
        return 1
    free = full & ~(columns | left | right)
    ways = 0
    while free:
        place = free & -free
        free ^= place
        ways += count(full, columns | place, (left | place) << 1, (right | place) >> 1)
    return ways


def work(scale):
    return sum(count((1 << 8) - 1, 0, 0, 0) for _ in range(max(1, round(120 * scale))))


measure(work)
