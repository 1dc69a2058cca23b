"""Pools of event loops."""

import asyncio
import threading

import pytest

from hatchery_sandbox import AsyncPool, Job, Output, Started

LOOPS = ["asyncio", "trio"]


def run(loop, function):
    if loop == "asyncio":
        return asyncio.run(function())
    return pytest.importorskip("trio").run(function)


@pytest.mark.parametrize("loop", LOOPS)
def test_jobs_sessions_and_maps_are_awaited(loop):
    async def main():
        async with AsyncPool(workers=2) as pool:
            assert (await pool.run("6 * 7")).value == 42
            # One write, since a line of `print` may come in parts.
            future = pool.submit("import sys; _ = sys.stdout.write('x\\n')", events=True)
            events = [event async for event in future.events()]
            assert events[0] == Started() and Output("stdout", b"x\n") in events
            assert (await future).stdout == "x\n"
            outcomes = [o async for o in pool.map((f"{n}" for n in range(700)), ordered=True)]
            assert [outcome.value for outcome in outcomes] == list(range(700))
            async with await pool.session() as session:
                await session.run("x = 1")
                fork = await session.fork()
                await fork.run("x = 2")
                forks = await session.fork_many(5)
                assert [(await fork.run("x")).value for fork in forks] == [1] * 5
                programs = ["x += 1; x", "x += 2; x", "1 / 0"]
                ends = [end async for end in session.explore(programs, keep=1)]
                assert sorted(end.candidate for end in ends) == [0, 1, 2]
                (survivor,) = [end.survivor for end in ends if end.survivor]
                assert (await survivor.run("x")).value in (2, 3)
                checkpoint = await session.checkpoint()
                await session.run("x = 3")
                await session.restore(checkpoint)
                assert (await session.run("x")).value == 1
                revived = await pool.revive(None, await fork.save())
                assert (await revived.run("x")).value == 2
                await session.run("open('f', 'w').write('y')")
                assert await session.workspace() == {"f": b"y"}
                await session.reset()
                assert session.name in await pool.sessions()
            seen = []
            await pool.run("print(1)", on_event=seen.append)
            assert seen[0] == Started()
            assert "workers" in await pool.status()
            late = pool.submit("import time; time.sleep(0.1); 5")
        assert (await late).value == 5

    run(loop, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_async_functions_run_on_the_callers_loop(loop):
    async def main():
        here = threading.get_ident()

        async def who(name: str) -> list:
            return [name, threading.get_ident() == here]

        def thread() -> bool:
            return threading.get_ident() != here

        async with AsyncPool(workers=1, functions=[who]) as pool:
            program = "from hatchery import host\n[host.who('a'), host.thread()]"
            outcome = await pool.run(program, functions=[thread])
            assert outcome.value == [["a", True], True]
            job = Job("from hatchery import host\nhost.own('b')", functions={"own": who})
            assert (await pool.run(job)).value == ["b", True]

    run(loop, main)


def test_cancelling_a_task_cancels_its_job():
    async def main():
        async with AsyncPool(workers=1) as pool:
            task = asyncio.create_task(pool.run("while True: pass"))
            started = pool.submit("1")  # waits for the first
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await started).value == 1
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(pool.run("while True: pass"), 0.2)
            results = await asyncio.gather(*(pool.run(f"{n}") for n in range(100)))
            assert [outcome.value for outcome in results] == list(range(100))

    asyncio.run(main())


def test_cancelling_a_trio_scope_cancels_its_job():
    trio = pytest.importorskip("trio")

    async def main():
        async with AsyncPool(workers=1) as pool:
            with trio.move_on_after(0.2) as scope:
                await pool.run("while True: pass")
            assert scope.cancelled_caught
            assert (await pool.run("1")).value == 1

    trio.run(main)


def test_without_a_loop_it_says_so():
    with pytest.raises(RuntimeError, match="loop"):
        AsyncPool(workers=1).submit("1").__await__().send(None)


LONG = "import time\ntime.sleep(60)"


def test_what_is_left_is_cancelled():
    """A job of which nobody can learn anything any more leaves its worker to others."""

    async def drop(pool):
        pool.submit(LONG)

    async def leave_stream(pool):
        async for _ in pool.submit(LONG, events=True).events():
            break

    async def cancel_stream(pool):
        async def consume():
            future = pool.submit(LONG, events=True)
            async for _ in future.events():
                pass

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(consume(), 0.5)

    async def main():
        async with AsyncPool(workers=1, timeout=60) as pool:
            await pool.run("1")
            for leave in (drop, leave_stream, cancel_stream):
                await leave(pool)
                assert (await asyncio.wait_for(pool.run("1"), 20)).value == 1
            # Not while somebody holds it.
            future = pool.submit("import time; time.sleep(0.3); 7", events=True)
            async for _ in future.events():
                break
            assert (await future).value == 7
            tasks = [asyncio.ensure_future(pool.submit(str(n))) for n in range(3)]
            done, _ = await asyncio.wait(tasks)
            assert {task.result().value for task in done} == {0, 1, 2}
            # Without tasks, too.
            done, _ = await asyncio.wait([pool.submit(str(n)) for n in range(3)])
            assert {future.result().value for future in done} == {0, 1, 2}
            first, rest = pool.submit("1"), pool.submit(LONG)
            wait = asyncio.wait([first, rest], return_when=asyncio.FIRST_COMPLETED)
            assert await wait == ({first}, {rest})
            rest.cancel()

    asyncio.run(main())


def test_what_is_left_under_trio_is_cancelled():
    trio = pytest.importorskip("trio")

    async def main():
        async with AsyncPool(workers=1) as pool:
            pool.submit(LONG)
            with trio.fail_after(20):
                assert (await pool.run("1")).value == 1

    trio.run(main)


def test_an_async_pool_has_what_a_pool_has():
    async def main():
        async with AsyncPool(workers=1, preload=["json"]) as pool:
            assert await pool.preload() == ["json"] and await pool.pythons()
            future = pool.submit(LONG)
            assert await pool.explain(future) is not None
            future.cancel()
            assert not pool.is_closed
            await pool.drain()
            assert pool.is_closed

    asyncio.run(main())
