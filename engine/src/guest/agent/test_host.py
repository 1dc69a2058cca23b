"""Tests host functions and the event loop, with a host of a few lines."""

import asyncio
import contextlib
import inspect
import io
import json
import marshal
import pydoc
import subprocess
import sys
import time
import unittest

import hatchery
from hatchery import _late, _loop, host
from hatchery._host import bridge, round_up
from hatchery._wire import CALL, CANCEL, FUNCTIONS, WAIT

PRICE = {
    "name": "price",
    "doc": "What so many of an item cost.",
    "parameters": [["item", "str", False, None], ["count", "int", True, 1]],
    "returns": "float",
}
ANY = {"name": "echo", "doc": "", "parameters": None, "returns": ""}
TAGGED = {
    "name": "keep",
    "doc": "",
    "parameters": [["value", "", True, {"$set": [1]}]],
    "returns": "",
    "tagged": True,
}


class Host:
    """A host whose clock advances with each wait, and whose calls take as long as they say."""

    def __init__(self):
        self.now = 0.0
        self.calls = {}
        self.tickets = 0
        self.tables = 0
        self.cancelled = []
        self.interrupts = False

    def call(self, frame):
        kind, body = frame[:1], frame[1:]
        if kind == FUNCTIONS:
            self.tables += 1
            return marshal.dumps([PRICE, ANY, TAGGED])
        if kind == CALL:
            return marshal.dumps(self.begin(**json.loads(body)))
        if kind == CANCEL:
            ticket = int.from_bytes(body, "little")
            self.cancelled.append(ticket)
            self.calls.pop(ticket, None)
            return b""
        assert kind == WAIT and len(body) == 12
        ticket = int.from_bytes(body[8:], "little")
        return self.wait(int.from_bytes(body[:8], "little", signed=True), ticket)

    def begin(self, name, arguments):
        if arguments.get("refuse"):
            return ["HostLimitError", "too many"]
        self.tickets += 1
        end = self.now + arguments.get("seconds", 0)
        answer = True, arguments["value"] if name == "keep" else arguments
        if "error" in arguments:
            answer = False, arguments["error"]
        self.calls[self.tickets] = end, *answer
        return self.tickets

    def wait(self, nanoseconds, ticket):
        if self.interrupts:
            raise KeyboardInterrupt
        wanted = {one: self.calls[one] for one in self.calls if ticket in (0, one)}
        until = min((call[0] for call in wanted.values()), default=float("inf"))
        if nanoseconds >= 0:
            until = min(until, self.now + nanoseconds / 1e9)
        assert until < float("inf"), "nothing would end this wait"
        self.now = max(self.now, until)
        ended = [one for one in wanted if wanted[one][0] <= self.now]
        return marshal.dumps([[one, *self.calls.pop(one)[1:]] for one in ended]) if ended else b""


class HostTest(unittest.TestCase):
    def setUp(self):
        self.host = Host()
        bridge.begin_turn(False)
        bridge.connect(self.host.call)
        monotonic, time.monotonic = time.monotonic, lambda: self.host.now
        self.addCleanup(setattr, time, "monotonic", monotonic)

    def test_functions_look_like_python_functions(self):
        self.assertEqual(dir(host), ["echo", "keep", "price"])
        self.assertIs(host.price, host.price)
        signature = "(item: str, count: int = 1) -> float"
        for function in (host.price, host.price.aio):
            self.assertEqual(str(inspect.signature(function)), signature)
            self.assertEqual(function.__doc__, PRICE["doc"])
        text = pydoc.plain(pydoc.render_doc(host.price))
        self.assertIn("price" + signature, text)
        self.assertIn(PRICE["doc"], text)
        self.assertIn("price" + signature, pydoc.plain(pydoc.render_doc(host)))
        self.assertTrue(inspect.iscoroutinefunction(host.price.aio))
        self.assertEqual(self.host.tables, 1)
        with self.assertRaisesRegex(AttributeError, "no function 'prize'; available: echo, keep, price"):
            host.prize
        from hatchery.host import price

        self.assertIs(price, host.price)

    def test_calls(self):
        self.assertEqual(host.price("chair"), {"item": "chair", "count": 1})
        self.assertEqual(host.price(count=2, item="ä"), {"item": "ä", "count": 2})
        values = {"a": [1, (2, None)], "b": {"c": 2**64 - 1, "d": -(2**63)}}
        self.assertEqual(host.echo(**values), {"a": [1, [2, None]], "b": values["b"]})
        for call in (host.price, lambda: host.price("a", "b", "c"), lambda: host.price(colour=1)):
            self.assertRaises(TypeError, call)
        for value, error in [
            (2**64, OverflowError),
            (float("inf"), ValueError),
            ({1: 2}, TypeError),
            (b"", TypeError),
            (type("Sub", (int,), {})(1), TypeError),
        ]:
            self.assertRaises(error, host.echo, value=value)
        deep = []
        deep.append(deep)
        self.assertRaises(ValueError, host.echo, value=deep)

    def test_tagged_functions_take_more_than_json(self):
        for value in ((1, 2), {1: {b"x"}}, float("inf"), 2**70, [None, "a"], {"$set": 1}):
            self.assertEqual(host.keep(value), value)
        self.assertEqual(host.keep(), {1})
        self.assertEqual(self.run_async(host.keep.aio((1,))), (1,))
        with self.assertRaisesRegex(TypeError, "'value'.*type object"):
            host.keep(object())
        with self.assertRaisesRegex(TypeError, "not set"):
            host.echo(a={1})

    def test_errors(self):
        for name, kind in [
            ("ValueError", ValueError),
            ("HostFunctionError", hatchery.HostFunctionError),
            ("OutOfStock", hatchery.HostFunctionError),
            ("KeyboardInterrupt", hatchery.HostFunctionError),
            ("UnicodeDecodeError", hatchery.HostFunctionError),
            ("print", hatchery.HostFunctionError),
        ]:
            with self.assertRaises(kind) as caught:
                host.echo(error=[name, "why"])
            self.assertEqual((type(caught.exception).__name__, str(caught.exception)), (name, "why"))
            if kind is hatchery.HostFunctionError:
                self.assertEqual(caught.exception.type, name)
        self.assertRaises(hatchery.HostLimitError, host.echo, refuse=True)

    def test_an_interrupted_call_is_cancelled(self):
        self.host.interrupts = True
        self.assertRaises(KeyboardInterrupt, host.echo)
        self.assertEqual(self.host.cancelled, [1])

    def test_calls_at_once(self):
        async def main():
            return await asyncio.gather(*[host.echo.aio(seconds=1, i=i) for i in range(100)])

        results = self.run_async(main())
        self.assertEqual([result["i"] for result in results], list(range(100)))
        self.assertAlmostEqual(self.host.now, 1, places=6)

    def test_timers_and_calls_together(self):
        order = []

        async def sleep(seconds):
            await asyncio.sleep(seconds)
            order.append(seconds)

        async def call(seconds):
            await host.echo.aio(seconds=seconds)
            order.append(seconds)

        async def main():
            await asyncio.gather(call(3), sleep(2), call(1), sleep(4))
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(host.echo.aio(seconds=9), 1)
            with self.assertRaises(ZeroDivisionError):
                await host.echo.aio(error=["ZeroDivisionError", ""])
            with self.assertRaises(RuntimeError):
                await host.echo.aio(error=["StopIteration", ""])
            queue = asyncio.Queue()
            asyncio.get_running_loop().call_soon_threadsafe(queue.put_nowait, 7)
            return await queue.get()

        self.assertEqual(self.run_async(main()), 7)
        self.assertEqual(order, [1, 2, 3, 4])
        self.assertEqual(self.host.cancelled, [3])
        self.assertEqual((bridge.awaited, self.host.calls), ({}, {}))

    def test_what_the_sandbox_lacks_is_refused(self):
        async def network():
            await asyncio.open_connection("127.0.0.1", 80)

        async def processes():
            await asyncio.create_subprocess_exec("id")

        self.assertRaisesRegex(OSError, "no network", self.run_async, network())
        self.assertRaisesRegex(OSError, "no processes", self.run_async, processes())

    def test_calls_end_with_their_run(self):
        loop = _loop.HostLoop()
        task = loop.create_task(host.echo.aio(seconds=9))
        loop.run_until_complete(asyncio.sleep(1))
        self.assertEqual(len(bridge.awaited), 1)
        bridge.begin_turn(False)
        with self.assertRaisesRegex(hatchery.HostFunctionError, "has ended"):
            loop.run_until_complete(task)
        self.assertEqual(self.host.cancelled, [])
        loop.close()

    def test_a_loop_is_kept(self):
        self.addCleanup(_loop.close)
        seen = []

        async def background():
            try:
                while True:
                    seen.append(len(seen))
                    await asyncio.sleep(1)
            finally:
                seen.append("tidied")

        async def begin():
            global task
            task = asyncio.get_running_loop().create_task(background())
            return asyncio.get_running_loop()

        loop = _loop.run(begin())
        _loop.run(asyncio.sleep(2.5))
        self.assertEqual(seen, [0, 1, 2])

        async def interrupted():
            self.host.interrupts = True
            try:
                await asyncio.sleep(9)
            finally:
                self.host.interrupts = False
                seen.append("cancelled")

        def wait(*ignored):
            self.host.interrupts = False
            raise KeyboardInterrupt

        waits, self.host.wait = self.host.wait, wait
        with self.assertRaises(KeyboardInterrupt):
            _loop.run(interrupted())
        self.host.wait = waits
        self.assertEqual(seen[3:], ["cancelled"])
        self.assertIs(_loop.run(self.running()), loop)
        _loop.close()
        self.assertEqual(seen[-1], "tidied")
        self.assertTrue(loop.is_closed())

    def test_a_session_has_its_loop_while_nothing_is_awaited(self):
        self.addCleanup(_loop.close)
        self.addCleanup(bridge.begin_turn, False)
        find = asyncio.get_running_loop
        with self.assertRaisesRegex(RuntimeError, "no running event loop"):
            find()
        bridge.begin_turn(True)
        seen = []

        async def work():
            for _ in range(2):
                seen.append(self.host.now)
                await asyncio.sleep(1)
            return find()

        task = asyncio.create_task(work())
        future = asyncio.ensure_future(asyncio.sleep(0, "soon"))
        self.assertEqual((seen, future.done()), ([], False))
        self.assertEqual((len(asyncio.all_tasks()), asyncio.current_task()), (2, None))
        bridge.catch_up()
        self.assertEqual((seen, future.result()), ([0], "soon"))
        # The program's own loop runs beside it, and the task waits meanwhile.
        self.assertEqual(asyncio.run(asyncio.sleep(5, "own")), "own")
        self.assertEqual(seen, [0])
        bridge.begin_turn(True)
        bridge.catch_up()
        self.assertEqual((seen, task.done()), ([0, 5], False))

        async def wait():
            return await task

        self.assertIs(_loop.run(wait()), find())
        self.assertEqual(self.host.now, 6)

    def test_a_task_that_never_rests_does_not_block_a_turn(self):
        self.addCleanup(_loop.close)
        self.addCleanup(bridge.begin_turn, False)
        bridge.begin_turn(True)
        steps = []

        async def spin():
            while True:
                steps.append(None)
                await asyncio.sleep(0)

        asyncio.create_task(spin())
        bridge.catch_up()
        self.assertEqual(len(steps), _loop.MOST_STEPS)

    async def running(self):
        return asyncio.get_running_loop()

    def test_waits_are_never_too_short(self):
        self.assertEqual(round_up(1e-10), 1)
        self.assertEqual((round_up(0), round_up(-5), round_up(1.5)), (0, 0, 1_500_000_000))
        self.assertLess(round_up(float("inf")), 1 << 63)

    def test_asyncio_gets_the_loop_when_it_is_imported(self):
        before = "import sys, hatchery._late; hatchery._late.install({})\n"
        nothing = "assert 'asyncio' not in sys.modules and 'hatchery._loop' not in sys.modules\n"
        after = (
            "loop = asyncio.new_event_loop()\n"
            "assert type(loop) is asyncio.SelectorEventLoop is hatchery._loop.HostLoop\n"
            "assert 'Adapting' not in repr(sys.modules['asyncio.unix_events'].__spec__)\n"
        )
        for imports in ("import asyncio\n", "import hatchery._loop, asyncio\n"):
            code = before + nothing + imports + after
            report = subprocess.run(
                [sys.executable, "-B", "-c", code], capture_output=True, text=True
            )
            self.assertEqual(report.stderr, "", imports)

    def test_finders_that_find_nothing_are_skipped(self):
        before = sys.meta_path
        self.addCleanup(setattr, sys, "meta_path", before)
        sys.meta_path = [object(), *before]
        spec = _late.LateFinder({}).find_spec(_late.LOOPS, sys.modules["asyncio"].__path__)
        self.assertEqual((spec.name, type(spec.loader)), (_late.LOOPS, _late.AdaptingLoader))

    def run_async(self, coroutine):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            result = asyncio.run(coroutine)
        self.assertEqual(err.getvalue(), "")
        return result


if __name__ == "__main__":
    unittest.main()
