"""Functions of this process that programs call."""

import asyncio
import contextvars
import os
import sys
import threading

import pytest

from hatchery_sandbox import AsyncPool, HostError, HostFunction, Pool

CALL = "from hatchery import host\n"


def price(item: str, /, count: int = 1, *, currency: str = "EUR") -> str:
    """What an item costs."""
    return f"{count * len(item)} {currency}"


def test_signatures_and_docstrings_are_taken_over(pool):
    lent = [price]
    assert pool.run(CALL + "host.price('chair', 2)", functions=lent).value == "10 EUR"
    assert pool.run(CALL + "host.price(item='a', currency='USD')", functions=lent).value == "1 USD"
    told = pool.run(CALL + "[host.price.__doc__, str(__import__('inspect').signature(host.price))]", functions=lent)
    doc, signature = told.value
    assert "What an item costs." in doc
    assert "item" in signature and "count" in signature
    assert pool.run(CALL + "host.price()", functions=lent).exception.type == "TypeError"


def test_async_functions_are_called_side_by_side(pool):
    arrived = []
    both = threading.Event()

    async def meet(name: str) -> str:
        arrived.append(name)
        while len(arrived) < 2:
            await asyncio.sleep(0.001)
        both.set()
        return name.upper()

    program = CALL + "import asyncio\nawait asyncio.gather(host.meet.aio('a'), host.meet.aio('b'))"
    assert pool.run(program, functions=[meet]).value == ["A", "B"]
    assert both.is_set()


def test_plain_functions_are_called_side_by_side(pool):
    barrier = threading.Barrier(4)

    def meet(n: int) -> int:
        barrier.wait(20)
        return n

    program = CALL + "import asyncio\nawait asyncio.gather(*(host.meet.aio(n) for n in range(4)))"
    assert pool.run(program, functions=[meet]).value == [0, 1, 2, 3]


def test_programs_learn_only_what_is_for_them(pool, caplog):
    def fail(how: str) -> None:
        if how == "said":
            raise HostError("KeyError", "sofa")
        raise {"seen": LookupError, "secret": ValueError}[how]("the password is x")

    lent = [HostFunction(fail, raises=(LookupError,))]
    said = pool.run(CALL + "host.fail('said')", functions=lent).exception
    assert (said.type, said.message) == ("KeyError", "'sofa'")
    seen = pool.run(CALL + "host.fail('seen')", functions=lent).exception
    assert (seen.type, seen.message) == ("LookupError", "the password is x")
    secret = pool.run(CALL + "host.fail('secret')", functions=lent).exception
    assert "password" not in secret.traceback and "fail failed" in secret.message
    assert "the password is x" in caplog.text


def test_arguments_and_results_are_what_variables_can_be(pool):
    numpy = pytest.importorskip("numpy")
    pandas = pytest.importorskip("pandas")
    given = []

    def keep(value, other={1: (2,)}):
        given.append(value)
        return [value, other]

    for value in [{"a": [1, None]}, {1, 2}, (1, 2), b"x", float("inf"), 2**80, {"$set": 1}, {1: "a"}]:
        outcome = pool.run(CALL + "host.keep(x)", functions=[keep], variables={"x": value})
        assert outcome.get_value() == [value, {1: (2,)}] and given[-1] == value
    frame = pandas.DataFrame({"a": pandas.array([1, None], "Int64")}, index=[("x", 1), ("y", 2)])
    program = CALL + "[host.keep(f)[0].equals(f), float(host.keep({'n': n})[0]['n'].sum())]"
    variables = {"f": frame, "n": numpy.ones(3)}
    assert pool.run(program, functions=[keep], variables=variables).value == [True, 3.0]
    pandas.testing.assert_frame_equal(given[-2], frame)
    assert numpy.array_equal(given[-1]["n"], numpy.ones(3))
    bad = {"bad": lambda: object()}
    assert pool.run(CALL + "host.bad()", functions=bad).exception.type == "RuntimeError"
    assert pool.run(CALL + "host.keep(object())", functions=[keep]).exception.type == "TypeError"


def leave():
    sys.exit(1)


async def await_cancelled():
    task = asyncio.create_task(asyncio.sleep(9))
    task.cancel()
    await task


async def leave_async():
    sys.exit(1)


def interrupt():
    raise KeyboardInterrupt


def surrogate():
    return os.fsdecode(b"\xe9.txt")


def raise_surrogate():
    raise HostError("ValueError", "\ud800")


def raise_no_texts():
    raise HostError(5, object())


class Unprintable(Exception):
    def __str__(self):
        raise OSError


def raise_unprintable():
    raise Unprintable


def too_long():
    return "x" * (65 << 20)


@pytest.mark.parametrize(
    "function",
    [
        leave,
        leave_async,
        await_cancelled,
        interrupt,
        surrogate,
        raise_surrogate,
        raise_no_texts,
        HostFunction(raise_unprintable, name="raise_unprintable", raises=(Unprintable,)),
        too_long,
    ],
)
def test_each_call_is_answered(pool, function):
    """A call without an answer would end at a limit, which says nothing of whose fault it is."""
    name = getattr(function, "name", None) or function.__name__
    program = f"{CALL}try: host.{name}()\nexcept Exception as error: said = str(error)\nsaid"
    outcome = pool.run(program, functions=[function], timeout=20)
    assert outcome.success and outcome.value, outcome
    # The thread or the loop that it ran in goes on.
    assert pool.run(CALL + "[host.f(), host.g()]", functions={"f": lambda: 1, "g": one}).value == [1, 1]


async def one():
    return 1


def test_a_call_on_a_loop_that_has_ended_is_answered():
    async def submit(pool):
        async def late():
            return 1

        return pool._submit(CALL + "import time; time.sleep(0.5); host.late()", {}, functions=[late])

    pool = AsyncPool(workers=1)
    future = asyncio.run(submit(pool))
    try:
        assert future.result(60).exception.type == "RuntimeError"
    finally:
        pool.close()


def test_a_call_whose_loop_ends_before_its_first_step_is_answered():
    """The loop has taken the call, and is closed before it has begun it."""
    called = threading.Event()

    async def late():
        return 1

    class Loop(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, *args, **options):
            handle = super().call_soon_threadsafe(*args, **options)
            called.set()
            return handle

    async def submit(pool):
        return pool._submit(CALL + "host.late()", {}, functions=[late])

    pool, loop = AsyncPool(workers=1, timeout=60), Loop()
    future = loop.run_until_complete(submit(pool))
    try:
        assert called.wait(60)
        loop.close()
        exception = future.result(20).exception
        assert exception.type == "RuntimeError" and "event loop ended" in exception.message
    finally:
        pool.close()


def test_functions_of_a_pool_a_session_and_a_job():
    def who() -> str:
        return "pool"

    with Pool(workers=1, functions=[who]) as pool:
        program = CALL + "host.who()"
        assert pool.run(program).value == "pool"
        with pool.session(functions={"who": lambda: "session"}) as session:
            assert session.run(program).value == "session"
            assert session.fork().run(program).value == "session"
            assert session.run(program, functions={"who": lambda: "job"}).value == "job"


def test_functions_that_cannot_be_lent_are_refused(pool):
    for function, text in [
        (lambda *args: 1, "by name"),
        (lambda x=object(): 1, "default of `x`"),
    ]:
        with pytest.raises((TypeError, ValueError), match=text):
            pool.run("1", functions={"f": function})
    with pytest.raises(ValueError, match="call"):
        pool.run("1", functions=[lambda: 1])
    with pytest.raises(ValueError, match="same name"):
        pool.run("1", functions=[price, price])
    with pytest.raises(TypeError, match="callable"):
        pool.run("1", functions={"f": 3})


def test_a_timeout_ends_the_call(pool):
    released = threading.Event()
    lent = [HostFunction(released.wait, name="wait", timeout=0.1)]
    try:
        outcome = pool.run(CALL + "host.wait()", functions=lent)
        assert outcome.exception.type == "TimeoutError"
    finally:
        released.set()


def test_an_async_call_that_nobody_waits_for_is_cancelled(pool):
    ended = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    lent = [HostFunction(wait, timeout=0.1)]
    assert pool.run(CALL + "host.wait()", functions=lent).exception.type == "TimeoutError"
    assert ended.wait(20)


def test_functions_see_the_context_of_whoever_submits(pool):
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    user.set("ada")
    assert pool.run(CALL + "host.user()", functions={"user": lambda: user.get()}).value == "ada"
