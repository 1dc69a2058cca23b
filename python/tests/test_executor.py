"""Functions by the interface of `concurrent.futures`."""

import asyncio
import concurrent.futures
import functools
import json
import math
import operator
import statistics

import pytest

from hatchery_sandbox import Executor, ProgramRaisedError, UnsendableError, UnsupportedValueError

SCALE = 10
TABLE = {"a": [1, 2]}


def scaled(x, by=SCALE):
    return helper(x) * by


def helper(x):
    """Calls back, too."""
    return math.floor(x) if x >= 0 else -scaled(-x, 1)


def looked_up(key):
    return [json.dumps(TABLE[key]), statistics.mean(TABLE[key])]


def fails():
    raise KeyError("gone")


def annotated(x: "NoSuchType") -> "list[NoSuchType]":
    return [x]


@pytest.fixture(scope="module")
def executor(pool):
    with Executor(pool) as executor:
        yield executor


def test_functions_of_modules_are_sent_by_name(executor):
    assert executor.submit(math.gcd, 12, 18).result() == 6
    assert executor.submit(operator.add, "a", "b").result() == "ab"
    assert executor.submit(sorted, [2, 1], reverse=True).result() == [2, 1]
    assert list(executor.map(math.sqrt, [1, 4, 9])) == [1, 2, 3]


def test_other_functions_are_sent_as_source(executor):
    assert executor.submit(scaled, 2.5).result() == 20
    assert executor.submit(scaled, -2.5, by=2).result() == -4
    assert executor.submit(looked_up, "a").result() == ["[1, 2]", 1.5]
    assert executor.submit(annotated, 1).result() == [1]


def test_arrays_pass(executor):
    numpy = pytest.importorskip("numpy")

    def double(x):
        return x * 2

    result = executor.submit(double, numpy.arange(3)).result()
    assert result.tolist() == [0, 2, 4]
    assert executor.submit(numpy.linalg.norm, numpy.array([3.0, 4.0])).result() == 5


def test_what_cannot_be_sent_is_refused_with_what_to_do(executor):
    captured = 3

    def closure():
        return captured

    class Thing:
        def method(self):
            return 1

    @functools.lru_cache
    def cached():
        return 1

    def needs_object():
        return LOCK

    async def coroutine():
        return 1

    for function, text in [
        (closure, "closure over captured.*argument"),
        (Thing().method, "method"),
        (Thing, "plain function"),
        (lambda: 1, "lambda.*def"),
        (functools.partial(scaled, 1), "partial.*arguments"),
        (cached, "plain function"),
        (needs_object, "LOCK.*argument"),
        (coroutine, "plain function"),
    ]:
        with pytest.raises(UnsendableError, match=text):
            executor.submit(function)


LOCK = object()


def test_exceptions_are_the_programs(executor):
    with pytest.raises(ProgramRaisedError, match="KeyError: 'gone'") as raised:
        executor.submit(fails).result()
    assert raised.value.exception.type == "KeyError"

    def returns_set():
        return {1}

    def returns_iterator():
        return iter([1])

    assert executor.submit(returns_set).result() == {1}
    with pytest.raises(UnsupportedValueError, match="type list_iterator"):
        executor.submit(returns_iterator).result()


def test_the_tools_of_the_standard_library_work(executor):
    futures = [executor.submit(scaled, n) for n in range(20)]
    assert {f.result() for f in concurrent.futures.as_completed(futures)} == set(range(0, 200, 10))
    assert not concurrent.futures.wait(futures).not_done

    async def main():
        loop = asyncio.get_running_loop()
        calls = (loop.run_in_executor(executor, scaled, n) for n in range(20))
        return await asyncio.gather(*calls)

    assert asyncio.run(main()) == list(range(0, 200, 10))


def test_shutdown_is_as_in_the_standard_library():
    def wait():
        import time

        time.sleep(0.1)
        return 1

    def forever():
        while True:
            pass

    with Executor(workers=1) as executor:
        futures = [executor.submit(wait) for _ in range(3)]
    assert [future.result() for future in futures] == [1, 1, 1]
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(wait)
    executor = Executor(workers=1)
    waited, endless = executor.submit(wait), executor.submit(forever)
    assert waited.result() == 1
    executor.shutdown(cancel_futures=True)
    assert endless.cancelled()
    executor = Executor(workers=1)
    late = executor.submit(wait)
    executor.shutdown(wait=False)
    assert late.result() == 1


def test_a_call_that_nobody_waits_for_runs():
    seen = []

    def note(n):
        seen.append(n)

    def call(n):
        from hatchery import host

        host.note(n=n)

    with Executor(workers=1, functions=[note]) as executor:
        for n in range(3):
            executor.submit(call, n)
    assert seen == [0, 1, 2]
