"""Functions of this process that programs call."""

import asyncio
import contextvars
import threading

import pytest

from hatchery_sandbox import HostError, HostFunction, Pool

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


def test_results_are_json(pool):
    functions = {"good": lambda: {"a": [1, None]}, "bad": lambda: object(), "nan": lambda: float("nan")}
    assert pool.run(CALL + "host.good()", functions=functions).value == {"a": [1, None]}
    for name in ("bad", "nan"):
        assert pool.run(CALL + f"host.{name}()", functions=functions).status == "raised"


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
        (lambda x=object(): 1, "default"),
        (print, "takes|name"),
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
