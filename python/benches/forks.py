"""What a fork of a live session costs through the Python client: one by one, many at once, and a turn in
each. The session has pandas and a frame of 100,000 rows.

    python benches/forks.py [--binary PATH] [--count 5000]
"""

from __future__ import annotations

import argparse
import time

from hatchery_sandbox import Pool

FRAME = """
import numpy, pandas
df = pandas.DataFrame({"a": numpy.arange(100_000), "b": numpy.arange(100_000) * 0.5})
"""


def percentiles(times: list[float]) -> str:
    times.sort()
    at = [times[(len(times) - 1) * part // 100] * 1e3 for part in (50, 99)]
    return f"p50 {at[0]:.3f} ms, p99 {at[1]:.3f} ms"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary")
    parser.add_argument("--count", type=int, default=5000)
    arguments = parser.parse_args()
    preload = ["numpy", "pandas"]
    with Pool(workers=2, preload=preload, binary=arguments.binary) as pool, pool.session() as session:
        session.run(FRAME).raise_for_status()
        times, forks = [], []
        for _ in range(arguments.count):
            began = time.perf_counter()
            forks.append(session.fork())
            times.append(time.perf_counter() - began)
        print(f"{arguments.count} forks, one by one: {percentiles(times)}")
        forks.clear()
        pool.run("1")
        began = time.perf_counter()
        forks = session.fork_many(arguments.count)
        print(f"at once: {arguments.count / (time.perf_counter() - began):.0f} forks a second")
        times = []
        for number, fork in enumerate(forks):
            began = time.perf_counter()
            outcome = fork.run(f"int(df.a[{number}]) + 1")
            times.append(time.perf_counter() - began)
            assert outcome.value == number + 1
        print(f"a turn in each: {percentiles(times)}")


if __name__ == "__main__":
    main()
