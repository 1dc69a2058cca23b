"""What a call costs from one Python thread, next to a `ProcessPoolExecutor`, in one run.

Both have as many workers, and both call `math.gcd(12, 18)`, which costs nothing itself. A round trip
is a call that is waited for before the next; jobs per second are those of calls that are submitted
together. `math` is imported already in both. Rounds alternate, so that a busy machine slows both. The
third line is what the server alone takes: one thread writes a frame and reads the answer, without the
package's reading thread. What isn't measured: programs that do something, which takes longer in
WebAssembly.

    python benches/round_trip.py [--workers 2] [--calls 2000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any

import hatchery_sandbox
from hatchery_sandbox._config import PoolConfig
from hatchery_sandbox._frames import FrameReader, encode


def round_trips(executor: Executor, count: int) -> list[float]:
    """Returns the seconds of each of several calls, one after the other."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        assert executor.submit(math.gcd, 12, 18).result() == 6
        times.append(time.perf_counter() - began)
    return times


def calls_per_second(executor: Executor, count: int) -> float:
    """Returns how many calls end in a second if all are submitted together."""
    began = time.perf_counter()
    futures = [executor.submit(math.gcd, 12, 18) for _ in range(count)]
    assert all(future.result() == 6 for future in futures)
    return count / (time.perf_counter() - began)


class Server:
    """A server of our own, to which one thread speaks in frames."""

    def __init__(self, workers: int) -> None:
        self._connection = PoolConfig(workers=workers, preload=("math",)).connect()
        self._reader = FrameReader(self._connection.descriptor)
        self._ask({"type": "hello", "version": 1})

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self._connection.write(encode(message))
        return self._reader.read()[0][0]

    def round_trips(self, count: int) -> list[float]:
        """Returns the seconds of each of several calls, one after the other."""
        times = []
        call = {"function": "math:gcd", "args": [12, 18], "keywords": {}}
        for number in range(count):
            began = time.perf_counter()
            answer = self._ask({"type": "run", "id": number + 1, "job": {"call": call}})
            times.append(time.perf_counter() - began)
            assert answer["result"]["value"] == 6
        return times

    def close(self) -> None:
        """Ends the server."""
        self._connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    makers: dict[str, Callable[..., Any]] = {
        "ProcessPoolExecutor": lambda: ProcessPoolExecutor(arguments.workers),
        "hatchery": lambda: hatchery_sandbox.Executor(workers=arguments.workers, preload=["math"]),
    }
    trips: dict[str, list[float]] = {name: [] for name in makers}
    rates: dict[str, list[float]] = {name: [] for name in makers}
    executors: dict[str, Executor] = {name: make() for name, make in makers.items()}
    for executor in executors.values():
        round_trips(executor, 100)
    server = Server(arguments.workers)
    server.round_trips(100)
    alone: list[float] = []
    for _ in range(arguments.rounds):
        for name, executor in executors.items():
            trips[name] += round_trips(executor, arguments.calls // 10)
            rates[name].append(calls_per_second(executor, arguments.calls))
        alone += server.round_trips(arguments.calls // 10)
    for executor in executors.values():
        executor.shutdown()
    server.close()
    print(f"{'':20} {'round trip p50':>15} {'p99':>10} {'jobs/s':>10}")
    for name in makers:
        ordered = sorted(trips[name])
        middle, late = (ordered[int(len(ordered) * share)] * 1e6 for share in (0.5, 0.99))
        rate = statistics.median(rates[name])
        print(f"{name:20} {middle:12.0f} µs {late:7.0f} µs {rate:10.0f}")
    middle, late = statistics.median(alone) * 1e6, statistics.quantiles(alone, n=100)[-1] * 1e6
    print(f"{'frames, one thread':20} {middle:12.0f} µs {late:7.0f} µs")
    ours, theirs = statistics.median(trips["hatchery"]), statistics.median(trips["ProcessPoolExecutor"])
    rate = statistics.median(rates["ProcessPoolExecutor"]) / statistics.median(rates["hatchery"])
    print(f"hatchery takes {ours / theirs:.2f} times as long for one, {rate:.2f} times for many")


if __name__ == "__main__":
    main()
