"""Recursive calls: Fibonacci numbers the slow way."""

from measure import measure


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def work(scale):
    return sum(fib(22) for _ in range(max(1, round(32 * scale))))


measure(work)
