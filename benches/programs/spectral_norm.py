"""Nested generator expressions over floats: the largest singular value of an infinite matrix."""

from measure import measure


def entry(i, j):
    return 1.0 / ((i + j) * (i + j + 1) // 2 + i + 1)


def times(vector):
    size = range(len(vector))
    return [sum(entry(i, j) * vector[j] for j in size) for i in size]


def times_transposed(vector):
    size = range(len(vector))
    return [sum(entry(j, i) * vector[j] for j in size) for i in size]


def work(scale):
    u = [1.0] * max(2, round(130 * scale**0.5))
    for _ in range(10):
        v = times_transposed(times(u))
        u = times_transposed(times(v))
    by = sum(a * b for a, b in zip(u, v))
    return f"{(by / sum(b * b for b in v)) ** 0.5:.9f}"


measure(work)
