"""Tests the agent on this machine's own CPython: `python3 -m unittest` in this folder."""

import builtins
import contextlib
import importlib.util
import io
import json
import linecache
import marshal
import os
import pathlib
import shutil
import sys
import tempfile
import types
import unittest
import unittest.mock
import warnings
import weakref

from hatchery import _agent, _compile, _describe, _image, _packages, _streams, _values, _warnings
from hatchery._agent import Agent
from hatchery._wire import FETCH, HAS_STDIN, HELLO, LAST, PROGRAM_BEGINS, PROGRAM_OVER, REHEARSE, REPLY, RESEED
from hatchery._wire import TAKES_ALL_INTEGERS, encode_json, reply_frame


class Door:
    """A host that hands out requests and keeps the replies."""

    def __init__(self):
        self.requests = []
        self.replies = []
        self.frames = []
        # Raised when the program is over, like an interrupt that comes too late.
        self.late = None

    def call(self, frame):
        self.frames.append(frame[:1])
        if frame == FETCH:
            return marshal.dumps(self.requests.pop(0))
        if frame == PROGRAM_OVER and self.late:
            late, self.late = self.late, None
            raise late
        if frame[:1] in (HELLO, PROGRAM_BEGINS, PROGRAM_OVER):
            return b""
        assert frame[:1] == REPLY
        header, self.buffers = parts(frame)
        assert self.buffers or "buffers" not in header
        header.pop("buffers", None)
        self.replies.append(header)
        return b""


class Raw(io.RawIOBase):
    """Reads like a descriptor."""

    def __init__(self, content):
        self.content = io.BytesIO(content)

    def readable(self):
        return True

    def readinto(self, buffer):
        return self.content.readinto(buffer)


class Exits:
    """Replaces `atexit`."""

    def __init__(self, functions):
        self.functions = functions[:]

    def _ncallbacks(self):
        return len(self.functions)

    def register(self, function):
        self.functions.append(function)

    def unregister(self, function):
        self.functions = [one for one in self.functions if not (one is function or one == function)]

    def _run_exitfuncs(self):
        for function in reversed(self.functions):
            function()


def parts(frame):
    """Returns the header of a reply and its buffers."""
    end = 5 + int.from_bytes(frame[1:5], "little")
    header, buffers = json.loads(frame[5:end]), []
    for length in header.get("buffers", ()):
        buffers.append(frame[end : end + length])
        end += length
    assert frame[:1] == REPLY and end == len(frame)
    return header, buffers


def request_for(
    source, filename=None, args=(), env=(), given=None, last=False, reseed=False, rehearse=False,
    result_bytes=1 << 20, data_bytes=1 << 20, is_wide=False, code=None, stdin=0, has_stdin=False,
):
    """Returns what the host sends for a run."""
    moment = HAS_STDIN * has_stdin | LAST * last | RESEED * reseed | REHEARSE * rehearse | TAKES_ALL_INTEGERS * is_wide
    around = [filename, list(args), dict(env), given]
    return source, moment, result_bytes, data_bytes, around if any(around) else None, code, stdin


class AgentCase(unittest.TestCase):
    """Runs programs on its own agent."""

    def setUp(self):
        saved = (sys.modules["__main__"], sys.argv, dict(os.environ), sys.stdin)
        self.addCleanup(self.restore, *saved)
        self.door = Door()
        self.agent = Agent(self.door.call, {"BASE": "1"})

    def restore(self, main, argv, environment, stdin):
        sys.modules["__main__"] = main
        sys.argv = argv
        os.environ.clear()
        os.environ.update(environment)
        sys.stdin = stdin

    def run_program(self, source, **changes):
        self.door.requests.append(request_for(source, **changes))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.agent.turn()
        self.out, self.err = out.getvalue(), err.getvalue()
        return self.door.replies.pop()


class AgentTest(AgentCase):
    def test_values(self):
        for source, value in [
            ("1 + 1", 2),
            ("'ä'", "ä"),
            ("[1, 2.5, None, True, {'a': 'b'}]", [1, 2.5, None, True, {"a": "b"}]),
            ("(1, 2)", [1, 2]),
            ("2**64 - 1", 2**64 - 1),
        ]:
            with self.subTest(source):
                reply = self.run_program(source)
                self.assertEqual(reply["kind"], "completed")
                self.assertTrue(reply["has_value"])
                self.assertEqual(reply["value"], value)
                self.assertEqual(reply["repr"], repr(eval(source)))

    def test_values_that_are_not_json_have_only_a_repr(self):
        for source in [
            "float('nan')",
            "float('inf')",
            "2**64",
            "{1: 2, '1': 3}",
            "{(1, 2): 3}",
            "{float('nan'): 1}",
            "{2**64: 1}",
            "{1, 2}",
            "__import__('datetime').date(2026, 1, 1)",
            "__import__('decimal').Decimal(1)",
            "b'x'",
            "'\\ud800'",
            "object",
            "x = []; x.append(x); x",
            "10**5000",
        ]:
            with self.subTest(source):
                reply = self.run_program(source)
                self.assertEqual(reply["kind"], "completed")
                self.assertFalse(reply["has_value"])
                self.assertIsInstance(reply["repr"], str)

    def test_integers_are_as_large_as_the_host_takes_them(self):
        for source, value in [
            ("2**64", 2**64),
            ("[-2**200, {'a': 10**4000}]", [-(2**200), {"a": 10**4000}]),
            ("{2**64: 1}", {str(2**64): 1}),
        ]:
            self.assertFalse(self.run_program(source)["has_value"], source)
            self.assertEqual(self.run_program(source, is_wide=True)["value"], value)
        for source in ("10**5000", "{'$serde_json::private::Number': '1'}", "float('inf')"):
            reply = self.run_program(source, is_wide=True)
            self.assertEqual((reply["kind"], reply["has_value"]), ("completed", False), source)

    def test_subclasses_become_base_types_and_keys_become_strings(self):
        lying = "__int__ = __str__ = __repr__ = __iter__ = items = __len__ = lambda *a: 1 / 0"
        for source, value in [
            ("{1: 2, None: {True: 3}, 2.5: 4}", {"1": 2, "null": {"true": 3}, "2.5": 4}),
            ("import collections as c\nc.Counter('aab')", {"a": 2, "b": 1}),
            ("import collections as c\nc.namedtuple('P', 'x y')(1, {2: 3})", [1, {"2": 3}]),
            ("import enum\nclass E(enum.IntEnum): A = 1\n[E.A, {E.A: E.A}]", [1, {"1": 1}]),
            *(
                (f"class A({kind}):\n  {lying}\n[A({given!r})]", [given])
                for kind, given in [("int", 5), ("float", 2.5), ("str", "ä"), ("list", [1]), ("dict", {"a": 1})]
            ),
        ]:
            with self.subTest(source):
                reply = self.run_program(source)
                self.assertEqual((reply["has_value"], reply.get("value")), (True, value))

    def test_scalars_of_numpy_are_numbers(self):
        with unittest.mock.patch.dict(sys.modules, numpy=types.ModuleType("numpy")) as modules:
            numpy = modules["numpy"]
            numpy.generic = type("generic", (), {"item": lambda self: self.plain})
            numpy.ndarray = type("ndarray", (), {})
            self.agent.main.scalar = self.scalar_of(numpy)
            for plain, value in [(5, 5), (2.5, 2.5), (True, True), ("ä", "ä")]:
                reply = self.run_program(f"[scalar({plain!r}), {{scalar({plain!r}): 1}}]")
                key = str(value).replace("True", "true")
                self.assertEqual(reply["value"], [value, {key: 1}])
            for plain in ("1j", "b'x'", "float('nan')", "[1]", "2**64"):
                self.assertFalse(self.run_program(f"[scalar({plain})]")["has_value"], plain)
            numpy.generic = 5
            self.assertFalse(self.run_program("[scalar(1)]")["has_value"])

    def scalar_of(self, numpy):
        scalar = type("scalar", (numpy.generic,), {})

        def make(plain):
            made = scalar()
            made.plain = plain
            return made

        return make

    def test_no_last_expression_and_none(self):
        self.assertEqual(
            self.run_program("x = 1"),
            {"kind": "completed", "has_value": False, "value": None, "repr": None},
        )
        self.assertEqual(
            self.run_program("None"),
            {"kind": "completed", "has_value": True, "value": None, "repr": None},
        )

    def test_a_large_value_is_left_out_and_its_repr_cut(self):
        reply = self.run_program("'a' * 5000", result_bytes=100)
        self.assertFalse(reply["has_value"])
        self.assertIn("more characters", reply["repr"])
        self.assertLess(len(reply["repr"]), 200)
        self.assertEqual(reply["result_left_out"], 5002)
        for source, size in [("'ä' * 50", 102), ("list(range(50))", 190), ("'a' * 99", 101)]:
            self.assertEqual(self.run_program(source, result_bytes=100)["result_left_out"], size)
        for source in ("'a' * 98", "[float('nan')] * 999", "object()"):
            self.assertNotIn("result_left_out", self.run_program(source, result_bytes=100))

    def test_a_repr_that_raises(self):
        reply = self.run_program("class A:\n  def __repr__(self): raise ValueError\nA()")
        self.assertEqual(reply["repr"], "<unprintable A: ValueError>")

    def test_an_exception_shows_the_program_and_not_the_agent(self):
        reply = self.run_program("def f():\n    raise ValueError('test error')\nf()")
        self.assertEqual(reply["kind"], "raised")
        self.assertEqual(reply["type"], "ValueError")
        self.assertEqual(reply["message"], "test error")
        lines = reply["traceback"].splitlines()
        self.assertEqual(lines[0], "Traceback (most recent call last):")
        self.assertEqual(lines[-1], "ValueError: test error")
        self.assertIn("    raise ValueError('test error')", lines)
        self.assertNotIn("hatchery", reply["traceback"])

    def test_an_import_of_a_missing_module_comes_with_advice(self):
        for source, expected in [
            ("import nowhere.at.all", "`nowhere` is not in this image"),
            ("import _multiprocessing_nowhere", "`_multiprocessing_nowhere` is not in this image"),
            ("raise ModuleNotFoundError('x', name='_ctypes')", "loads no native libraries"),
            ("raise ModuleNotFoundError('x', name='_socket')", "no network"),
            ("raise ModuleNotFoundError('x', name='ensurepip')", "from outside."),
            ("raise ModuleNotFoundError('x', name='turtledemo')", "a part of Python that this build leaves out"),
            ("raise ModuleNotFoundError('x', name='_testcapi')", "a part of Python that this build leaves out"),
            ("raise ModuleNotFoundError('x', name='test.support')", "a part of Python that this build leaves out"),
            ("raise ModuleNotFoundError('x', name='torch')", "loads no native libraries"),
            ("raise ModuleNotFoundError('x', name='requests')", "`requests` is not in this image, and the sandbox has no network."),
            (
                "try:\n    import nowhere\nexcept ImportError as e:\n    raise ImportError('get it') from e",
                "`nowhere` is not in this image",
            ),
        ]:
            with self.subTest(source):
                reply = self.run_program(source)
                self.assertIn(expected, reply["advice"]["text"])
                self.assertNotIn(expected, reply["message"] + reply["traceback"])

    def test_machine_code_that_a_wheel_lacks_here_is_named(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(_packages, "_SITE", folder):
            os.mkdir(f"{folder}/fast-1.2.dist-info")
            with open(f"{folder}/fast-1.2.dist-info/RECORD", "w") as file:
                file.write("_other.abi3.so,,\nfast/__init__.py,,\nfast/_inner.cpython-314-x86_64-linux-gnu.so,sha256=x,9\n")
            said = "`{}` is machine code of fast 1.2, which has no wheel for this build."
            for source, name in [
                ("raise ModuleNotFoundError(name='fast._inner')", "fast._inner"),
                ("raise ModuleNotFoundError(name='_other')", "_other"),
                ("e = ImportError(name='fast')\ne.name_from = '_inner'\nraise e", "fast._inner"),
            ]:
                with self.subTest(source):
                    self.assertEqual({"text": said.format(name)}, self.run_program(source)["advice"])
            self.assertEqual("package", self.run_program("import fast2")["advice"]["remedy"])
            with open(f"{folder}/_other.abi3.so", "w"):
                self.assertEqual("package", self.run_program("import _other")["advice"]["remedy"])

    def test_advice_names_the_remedy_that_the_host_puts_into_words(self):
        for source, remedy in [
            ("raise ModuleNotFoundError('x', name='socket')", "data"),
            ("raise ModuleNotFoundError('x', name='requests')", "data"),
            ("raise ModuleNotFoundError('x', name='pip')", "package"),
            ("import nowhere", "package"),
            ("raise ModuleNotFoundError('x', name='_ctypes')", None),
            ("input()", "input"),
            ("import getpass, io\ngetpass._raw_input('', io.StringIO(), io.StringIO())", "input"),
            ("e = Exception()\ne._hatchery_remedy = 'data'\nraise e", "data"),
            ("from hatchery import _network\nraise _network.refused(PermissionError, 2, 'x', 'connection')", "connection"),
            ("import urllib.error\ne = OSError()\ne._hatchery_remedy = 'data'\nraise urllib.error.URLError(e)", "data"),
        ]:
            self.assertEqual(self.run_program(source)["advice"].get("remedy"), remedy, source)
        for source in ("raise EOFError('Ran out of input')", "raise EOFError", "1 / 0", "e = Exception()\ne._hatchery_remedy = 5\nraise e"):
            self.assertNotIn("advice", self.run_program(source), source)

    def test_a_missing_file_is_named_as_its_user_names_it(self):
        for path, expected in [
            ("data.csv", "data.csv"),
            ("./data.csv", "data.csv"),
            ("/workspace/d/e.csv", "d/e.csv"),
            ("../e.csv", "../e.csv"),
            ("/home/me/e.csv", "/home/me/e.csv"),
        ]:
            source = f"raise FileNotFoundError(44, 'No such file', {path!r})"
            self.assertEqual(self.run_program(source)["advice"], {"remedy": "file", "path": expected})
        source = "raise FileNotFoundError('data.csv not found.')"
        self.assertEqual(self.run_program(source)["advice"], {"remedy": "file", "path": "data.csv"})
        for path in ("/usr/share/x", "/tmp/x", "", "a" * 200, "a\nb", b"x", 5):
            source = f"raise FileNotFoundError(44, 'No such file', {path!r})"
            self.assertNotIn("advice", self.run_program(source), path)
        self.assertNotIn("advice", self.run_program("raise FileNotFoundError"))

    def test_errors_of_the_program_come_without_advice(self):
        for source in ("import os\nos.nothing", "(5).fork", "raise OSError(58, 'x')", "raise OSError"):
            self.assertNotIn("advice", self.run_program(source), source)

    def test_what_the_build_lacks_comes_with_advice(self):
        def of_pillow(source):
            return f"exec({source!r}, {{'__name__': 'PIL.Image'}})"

        path = "/usr/local/lib/python315.zip/statsmodels/datasets/spector/spector.csv"
        for source, expected in [
            (f"raise FileNotFoundError({path!r})", "The build leaves `statsmodels/datasets/spector/spector.csv` out"),
            (f"raise FileNotFoundError(44, 'x', {path!r})", "The build leaves `statsmodels"),
            (of_pillow("raise ImportError(\"cannot import name '_imagingft' from 'PIL'\")"), "in fonts from files"),
            (of_pillow("raise OSError('decoder jpeg not available')"), "can write but not read JPEG"),
            (of_pillow("raise KeyError('WEBP')"), "doesn't support AVIF"),
            ("import sqlite3\nraise sqlite3.OperationalError('database is locked')", "No other thread"),
        ]:
            self.assertIn(expected, self.run_program(source)["advice"]["text"], source)
        for source in ("raise FileNotFoundError", "raise OSError(2)", "raise KeyError(7)", "{}['WEBP']"):
            self.assertNotIn("advice", self.run_program(source), source)

    def test_no_advice_is_given_on_other_imports(self):
        for source in [
            "import json.nowhere",
            "from json import nowhere",
            "raise ModuleNotFoundError",
            "raise ModuleNotFoundError('x', name=7)",
            "raise ModuleNotFoundError('x', name='x' * 1000)",
            "class E(ModuleNotFoundError):\n    name = 'nowhere'\nraise E",
            "x = ImportError()\nx.__cause__ = x\nraise x",
            "try:\n    import nowhere\nexcept ImportError as e:\n    raise ValueError from e",
        ]:
            with self.subTest(source):
                reply = self.run_program(source)
                self.assertEqual(reply["kind"], "raised")
                self.assertNotIn("advice", reply)

    def test_a_program_that_spoils_what_advice_needs_gets_its_traceback(self):
        names = sys.stdlib_module_names
        try:
            reply = self.run_program("import sys\nsys.stdlib_module_names = None\nimport nowhere")
        finally:
            sys.stdlib_module_names = names
        self.assertIn("line 3, in <module>", reply["traceback"])

    def test_exceptions_of_every_shape(self):
        for source, name, message in [
            ("1/0", "ZeroDivisionError", "division by zero"),
            ("import json; json.loads('{')", "json.decoder.JSONDecodeError", None),
            ("class E(Exception): pass\nraise E('x')", "E", "x"),
            ("raise KeyboardInterrupt", "KeyboardInterrupt", ""),
            ("raise BaseException('b')", "BaseException", "b"),
            ("def f(): f()\nf()", "RecursionError", None),
            ("x = ", "SyntaxError", None),
            ("raise ExceptionGroup('g', [ValueError(1)])", "ExceptionGroup", None),
            ("raise ValueError('\\ud800')", "ValueError", "\\ud800"),
            ("'a'.b", "AttributeError", None),
            ("class E(Exception):\n def __str__(s): 1/0\nraise E", "E", None),
        ]:
            with self.subTest(source):
                reply = self.run_program(source)
                self.assertEqual((reply["kind"], reply["type"]), ("raised", name))
                if message is not None:
                    self.assertEqual(reply["message"], message)
                self.assertIn(name.rpartition(".")[2], reply["traceback"])

    def test_exits(self):
        for source, code, message in [
            ("import sys; sys.exit()", 0, None),
            ("import sys; sys.exit(0)", 0, None),
            ("import sys; sys.exit(3)", 3, None),
            ("import sys; sys.exit(True)", 1, None),
            ("import sys; sys.exit(-1)", 255, None),
            ("import sys; sys.exit(256)", 0, None),
            ("import sys; sys.exit(2**32 + 5)", 5, None),
            ("import sys; sys.exit(2**64)", 255, None),
            ("import sys; sys.exit(-2**63)", 0, None),
            ("import sys; sys.exit(-2**70)", 255, None),
            ("import sys; sys.exit('bye')", 1, "bye"),
            ("raise SystemExit(4)", 4, None),
            ("exit(5)", 5, None),
        ]:
            with self.subTest(source):
                reply = self.run_program(source)
                self.assertEqual(reply, {"kind": "exited", "code": code, "message": message})
                self.assertEqual(self.err, message + "\n" if message else "")

    def test_state_stays_between_turns(self):
        self.run_program("x = 42")
        self.assertEqual(self.run_program("x * 2")["value"], 84)

    def test_surroundings(self):
        source = "import os, sys\n[sys.argv, os.environ['A'], os.environ['BASE'], len(os.environ)]"
        reply = self.run_program(source, filename="dir/x.py", args=["1"], env={"A": "b"})
        self.assertEqual(reply["value"], [["dir/x.py", "1"], "b", "1", 2])
        for name, path in [("y.py", "/workspace/y.py"), ("/script/z.py", "/script/z.py")]:
            self.assertEqual(self.run_program("__file__", filename=name)["value"], path)
        self.assertEqual(self.run_program("__file__")["type"], "NameError")
        for name in (None, "-"):
            self.assertEqual(self.run_program("__file__", filename=name, last=True)["value"], "/workspace/main.py")
        self.assertEqual(self.run_program("__name__")["value"], "__main__")
        is_main = "import sys\nvars(sys.modules['__main__']) is globals()"
        self.assertIs(self.run_program(is_main)["value"], True)

    def test_dataclasses_and_pickles_find_main(self):
        source = (
            "import dataclasses, pickle\n@dataclasses.dataclass\nclass P:\n    x: int\n"
            "pickle.loads(pickle.dumps(P(3))).x"
        )
        self.assertEqual(self.run_program(source)["value"], 3)

    def test_future_imports_hold_for_the_last_expression(self):
        source = "from __future__ import annotations\n(lambda: 1)()"
        self.assertEqual(self.run_program(source)["value"], 1)

    def test_tracebacks_of_earlier_turns_keep_their_lines(self):
        self.run_program("def f():\n    raise ValueError('from the first')")
        reply = self.run_program("f()")
        self.assertIn("    raise ValueError('from the first')", reply["traceback"])
        self.assertIn("<job 2>", reply["traceback"])

    def test_exit_functions_run_after_the_last_turn_only(self):
        source = "import atexit; atexit.register(print, 'bye')"
        self.run_program(source)
        self.assertEqual(self.out, "")
        self.run_program("pass", last=True)
        self.assertEqual(self.out, "bye\n")

    def test_logging_is_shut_down_if_there_are_handlers(self):
        import logging

        def refuse():
            raise AssertionError

        for callbacks, made, ends in [
            ([logging.shutdown], [], 0),
            ([logging.shutdown], [logging.StreamHandler()], 1),
            ([logging.shutdown, refuse], [], None),
            ([refuse], [], None),
            ([], [], None),
        ]:
            exits, ended = Exits(callbacks), []
            shutdown = lambda: ended.append(list(handlers))
            exits.functions = [shutdown if one is logging.shutdown else one for one in exits.functions]
            last, handlers = logging._defaultLastResort, []
            handlers.append(weakref.ref(last))
            with (
                unittest.mock.patch.object(_streams, "atexit", exits),
                unittest.mock.patch.object(logging, "shutdown", shutdown),
                unittest.mock.patch.object(logging, "_handlerList", handlers),
            ):
                before = exits.functions[:]
                end = _streams.ease_logging()
                self.assertEqual(end is None, ends is None)
                for _ in range(3):
                    _streams.run_functions(end or (lambda: None))
                self.assertEqual(ended, [])
                if ends is None:
                    self.assertTrue(all(a is b for a, b in zip(exits.functions, before, strict=True)))
                    continue
                handlers += [weakref.ref(one) for one in made]
                _streams.run_exit_functions()
                self.assertEqual(len(ended), ends)
                with contextlib.redirect_stderr(io.StringIO()):
                    _streams.run_exit_functions()
                self.assertEqual(len(ended), 2 * ends + (not ends))
                _streams.atexit.unregister(shutdown)
                self.assertEqual(exits.functions, [])
                exits.functions = [shutdown]
                _streams.ease_logging()
                self.assertEqual(exits.functions[0] is shutdown, bool(made))

    def test_a_turn_keeps_its_lines_only_if_they_can_be_shown_later(self):
        linecache.clearcache()
        for number in range(10):
            self.assertEqual(self.run_program(f"x = {number}\nx")["value"], number)
            self.run_program(f"x = {number}")
            self.run_program("1/0")
            linecache.cache.pop("<job %d>" % self.agent._surroundings.turns)
        self.assertEqual([name for name in linecache.cache if name.startswith("<job")], [])
        for source, failing in [
            ("def f():\n    1/0  # here", "f()"),
            ("g = lambda: 1/0  # here", "g()"),
            ("try:\n    1/0  # here\nexcept ZeroDivisionError as error:\n    e = error", "raise e"),
            ("import contextlib\nwith contextlib.suppress(KeyError):\n    h = lambda: 1/0  # here", "h()"),
        ]:
            self.run_program(source)
            self.assertIn("1/0  # here", self.run_program(failing)["traceback"])
        # Also while it runs.
        reply = self.run_program("import traceback\n''.join(traceback.format_stack())  # here")
        self.assertIn("# here", reply["value"])

    def test_a_low_recursion_limit_does_not_keep_the_agent_from_answering(self):
        limit = sys.getrecursionlimit()
        self.addCleanup(sys.setrecursionlimit, limit)
        reply = self.run_program("import sys; sys.setrecursionlimit(60); [[[1]]]")
        self.assertEqual(reply["value"], [[[1]]])

    def test_main_is_as_cpython_has_it(self):
        self.assertIs(self.run_program("__builtins__.print is print")["value"], True)
        source = "x: int = 1\nimport sys\nlist(sys.modules['__main__'].__annotations__)"
        self.assertEqual(self.run_program(source)["value"], ["x"])

    def test_lines_are_pythons(self):
        reply = self.run_program("x = 'a\u2028b'\n1/0")
        self.assertIn("    1/0", reply["traceback"])

    def test_what_a_turn_sets_stays_until_a_job_is_given_its_own(self):
        self.run_program(
            "import io, os, sys; sys.argv = ['x', '--n']; os.environ['SET'] = '1'; __file__ = 'f'\n"
            "sys.stdin = io.StringIO('a\\nb\\n'); input()"
        )
        seen = "[sys.argv, os.environ.get('SET'), os.environ.get('LENT'), __file__, sys.stdin.readline()]"
        self.assertEqual(self.run_program(seen)["value"], [["x", "--n"], "1", None, "f", "b\n"])
        reply = self.run_program(seen, args=["-v"], env={"SET": "2", "LENT": "3"}, has_stdin=True)
        self.assertEqual(reply["value"][:4], [["", "-v"], "2", "3", "f"])
        self.assertIs(sys.stdin, self.agent._surroundings._stdin)
        self.assertEqual(self.run_program(seen)["value"][:3], [[""], "1", None])
        self.run_program("os.environ['LENT'] = 'kept'", env={"LENT": "3"})
        self.assertEqual(self.run_program("os.environ['LENT']")["value"], "kept")

    def test_a_prompts_lines_are_no_files(self):
        for name, first in [("<input-3>", ""), ("-", "-")]:
            reply = self.run_program("import sys; sys.argv, '__file__' in globals()", filename=name)
            self.assertEqual(reply["value"], [[first], False])

    def test_a_byte_order_mark_begins_no_line(self):
        mark = "\ufeff"
        for source in (f"{mark}x = 1\nx", f"{mark}1", f"{mark}# comment\n1"):
            self.assertEqual(self.run_program(source)["value"], 1)
            self.assertTrue(_compile.code_of(source, False))

    def test_excepthook_reports_what_nothing_caught(self):
        hook = "import sys\ndef hook(t, v, tb):\n    {}\nsys.excepthook = hook\nraise KeyError('k')"
        self.addCleanup(setattr, sys, "excepthook", sys.excepthook)
        reply = self.run_program(hook.format("print(t.__name__, v, tb.tb_lineno, v.__traceback__ is tb)"), last=True)
        self.assertEqual((reply["type"], reply["traceback"], self.out), ("KeyError", "", "KeyError 'k' 5 True\n"))
        reply = self.run_program(hook.format("sys.exit(3)"), given={"prompt": True})
        self.assertEqual((reply["kind"], reply["code"]), ("exited", 3))
        reply = self.run_program(hook.format("1 / 0"), last=True)
        self.assertRegex(self.err, r"(?s)^Error in sys.excepthook:\n.*ZeroDivisionError.*Original exception was:\n$")
        self.assertNotIn("During handling", self.err)
        self.assertIn("raise KeyError", reply["traceback"])
        # A session over an interface goes on, as in a notebook.
        self.assertIn("raise KeyError", self.run_program(hook.format("print(1)"))["traceback"])

    def test_files_open_at_the_end_are_written(self):
        # A `TemporaryDirectory` would be removed by the exit functions that the last turn runs.
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, "out")
        self.run_program(f"f = open({path!r}, 'w'); f.write('hello')", last=True)
        with open(path) as file:
            self.assertEqual(file.read(), "hello")

    def test_cut_keeps_whole_characters(self):
        self.assertEqual(_describe.cut("äöü", 6), "äöü")
        self.assertEqual(_describe.cut("äöü", 3), "ä… (2 more characters)")

    def test_the_program_is_framed_and_the_type_is_announced(self):
        self.run_program("1")
        frames = [HELLO, FETCH, PROGRAM_BEGINS, PROGRAM_OVER, REPLY]
        self.assertEqual(self.door.frames, frames)

    def test_warnings_name_no_file_of_ours(self):
        show = unittest.mock.patch.object(warnings, "_showwarnmsg", warnings._showwarnmsg)
        self.enterContext(show)
        _warnings.adapt(warnings)
        source = (
            "import warnings\nwith warnings.catch_warnings(record=True) as seen:\n"
            " warnings.simplefilter('always')\n warnings.warn('far', stacklevel=3)\n"
            " warnings.warn('here')\n[[one.filename, one.lineno] for one in seen]"
        )
        self.assertEqual(self.run_program(source)["value"], [["<sys>", 0], ["<job>", 5]])

    def test_a_late_interrupt_ends_the_program(self):
        self.door.late = KeyboardInterrupt()
        reply = self.run_program("1")
        self.assertEqual((reply["kind"], reply["type"]), ("raised", "KeyboardInterrupt"))
        self.assertEqual(self.door.frames[-3:], [PROGRAM_OVER, PROGRAM_OVER, REPLY])
        self.assertEqual(self.run_program("2")["value"], 2)

    def test_an_interrupt_in_a_repr_ends_the_program(self):
        source = "class A:\n    def __repr__(self):\n        raise KeyboardInterrupt\nA()"
        self.assertEqual(self.run_program(source)["type"], "KeyboardInterrupt")
        source = (
            "class E(Exception):\n    def __str__(self):\n        raise KeyboardInterrupt\n"
            "raise E()"
        )
        self.assertEqual(self.run_program(source)["type"], "KeyboardInterrupt")

    def test_a_very_deep_traceback_is_shortened_in_the_middle(self):
        source = "def f(n):\n    if n: f(n - 1)\n    else: 1 / 0\nf(500)"
        reply = self.run_program(source)
        self.assertIn("302 frames in the middle are left out", reply["traceback"])
        self.assertTrue(reply["traceback"].endswith("ZeroDivisionError: division by zero\n"))
        self.assertIn("line 4, in <module>", reply["traceback"])
        self.assertIn("line 3, in f", reply["traceback"])

    def test_exceptions_and_exits_that_lie_are_described_nevertheless(self):
        raising = "property(lambda self: 1 / 0)"
        for source, kind, name in [
            (f"class E(Exception): __traceback__ = {raising}\nraise E", "raised", "E"),
            ("class E(Exception): __traceback__ = 5\nraise E", "raised", "E"),
            ("class M(type):\n    __module__ = property(lambda c: 1 / 0)\n"
             "class E(Exception, metaclass=M): pass\nraise E", "raised", "E"),
            ("class S(str):\n    def encode(self, *a): 1 / 0\n"
             "class E(Exception):\n    def __str__(self): return S('x')\nraise E", "raised", "E"),
            (f"class E(SystemExit): code = {raising}\nraise E(3)", "exited", 1),
            ("class E(SystemExit): code = 6\nraise E", "exited", 6),
            ("class I(int): __and__ = lambda s, o: 999\nraise SystemExit(I(5))", "exited", 5),
            ("class A: __class__ = int\nraise SystemExit(A())", "exited", 1),
            ("import sys\nclass W:\n    def write(self, text): raise SystemExit\n"
             "sys.stderr = W()\nsys.exit('x')", "exited", 1),
        ]:
            reply = self.run_program(source)
            found = reply["type"] if kind == "raised" else reply.get("code")
            self.assertEqual((reply["kind"], str(found).split(".")[-1]), (kind, str(name)), source)
            sys.stderr = sys.__stderr__

    def test_streams_that_a_program_replaces_are_its_own(self):
        host = sys.stdout
        self.run_program("import io, sys\nsys.stdout = io.StringIO()\nprint('kept')")
        self.assertIs(sys.stdout, host)
        self.assertEqual(self.run_program("sys.stdout.getvalue()")["value"], "kept\n")
        self.assertEqual(self.run_program("del sys.stdout, sys.__stderr__\n5")["value"], 5)
        sys.__stderr__ = sys.stderr

    def test_finalisers_of_the_last_run_find_their_names(self):
        source = (
            "x = 5\nclass A:\n    def __del__(self): print('bye', x)\na = A()\na.itself = a\n"
            "def g():\n    try: yield\n    finally: print('closed', x)\nh = g()\nnext(h)"
        )
        self.run_program(source, last=True)
        self.assertEqual(sorted(self.out.splitlines()), ["bye 5", "closed 5"])

    def test_what_keeps_the_namespace_alive_keeps_nothing_open(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, "f")
        source = (
            f"import builtins\nheld = [open({path!r}, 'w')]\nheld[0].write('text')\n"
            "def keep(): pass\nbuiltins.kept = keep"
        )
        self.run_program(source, last=True)
        with open(path) as file:
            self.assertEqual(file.read(), "text")

    def test_running_out_of_memory_ends_the_program_and_not_the_agent(self):
        originals = _agent.RESERVE_BYTES, _agent.BEGINNING_BYTES
        _agent.RESERVE_BYTES = _agent.BEGINNING_BYTES = 1 << 62
        try:
            self.run_program("1")  # leaves no room for the next one to begin in
            reply = self.run_program("2")
        finally:
            _agent.RESERVE_BYTES, _agent.BEGINNING_BYTES = originals
        self.assertEqual((reply["kind"], reply["type"]), ("raised", "MemoryError"))
        self.door.requests.clear()
        self.assertEqual(self.run_program("2")["value"], 2)

    def test_an_exception_is_not_lost_when_an_allocation_fails(self):
        failing = "import _testcapi\n_testcapi.set_nomemory({0}, {0} + 1)\nraise ValueError"
        try:
            import _testcapi
        except ImportError:
            self.skipTest("this CPython has no _testcapi")
        self.addCleanup(_testcapi.remove_mem_hooks)
        self.agent._displays.finish = lambda is_interrupted: _testcapi.remove_mem_hooks()
        for number in range(1, 60):
            reply = self.run_program(failing.format(number))
            self.assertIn(reply["type"], ("ValueError", "MemoryError"), number)

    def test_a_run_without_memory_to_describe_its_end_still_ends(self):
        def fails(*arguments):
            raise MemoryError

        for name in ("describe_exception", "describe_value", "flush_streams"):
            original = getattr(_agent, name)
            setattr(_agent, name, fails)
            try:
                reply = self.run_program("1 / 0" if name == "describe_exception" else "1")
            finally:
                setattr(_agent, name, original)
            self.assertEqual((reply["kind"], reply["type"]), ("raised", "MemoryError"), name)
            self.assertEqual(self.run_program("2")["value"], 2)

    def test_streams_that_a_program_closed_are_open_for_the_next(self):
        opened = []
        original = _streams.open_streams
        _streams.open_streams = lambda: opened.append(True)
        saved = sys.__stdout__
        try:
            self.run_program("1")
            self.assertEqual(opened, [])
            sys.__stdout__ = io.StringIO()
            sys.__stdout__.close()
            self.run_program("1")
            self.assertEqual(opened, [True])
        finally:
            sys.__stdout__, _streams.open_streams = saved, original

    def test_the_agent_works_without_its_modules(self):
        ours = {name: sys.modules[name] for name in sys.modules if name.split(".")[0] == "hatchery"}
        self.addCleanup(sys.modules.update, ours)
        source = (
            "import gc, sys\nfor name in list(sys.modules):\n"
            "    if name.split('.')[0] == 'hatchery': {}\ngc.collect()"
        )
        for damage in ("sys.modules[name] = None", "del sys.modules[name]"):
            self.run_program(source.format(damage))
            self.assertEqual(self.run_program("1 + 1")["value"], 2)
            self.assertEqual(self.run_program("1 / 0", last=True)["type"], "ZeroDivisionError")

    def test_a_request_that_cannot_be_read_is_answered(self):
        self.agent._decode = lambda frame: 1 / 0
        self.assertEqual(self.run_program("1")["type"], "ZeroDivisionError")
        self.agent._decode = marshal.loads
        self.door.requests.clear()
        self.assertEqual(self.run_program("2")["value"], 2)

    def test_the_agents_frames_are_known_in_every_file(self):
        for function in (Agent.turn, _describe.cut, _image.prepare, _streams.clear, reply_frame):
            self.assertTrue(_describe.is_ours(function.__code__))
        self.assertFalse(_describe.is_ours(compile("", "hatchery/x.py", "exec")))
        self.assertFalse(_describe.is_ours(json.loads.__code__))

    def test_a_reply_carries_buffers_behind_its_header(self):
        buffers = [b"abc", b"", memoryview(bytes(8)).cast("d")]
        frame = reply_frame({"kind": "x"}, encode_json, buffers)
        self.assertEqual(parts(frame), ({"kind": "x", "buffers": [3, 0, 8]}, [b"abc", b"", bytes(8)]))
        self.assertEqual(reply_frame({}, encode_json), b"\x02\x02\x00\x00\x00{}")
        self.assertEqual(parts(_agent.NO_ROOM)[0]["type"], "MemoryError")

    def given(self, source="", **given):
        return self.run_program(source, given=given)

    def test_the_last_value_at_a_prompt_is_the_underscore(self):
        self.addCleanup(vars(builtins).pop, "_", None)
        self.given("6 * 7", prompt=True)
        self.given("None", prompt=True)
        self.given("x = 5", prompt=True)
        self.assertEqual(self.given("[_]", prompt=True)["value"], [42])
        self.run_program("1")
        self.assertEqual(self.given("_", prompt=True)["value"], [42])
        self.given("_ = 'own'; 1", prompt=True)
        self.assertEqual(self.given("_", prompt=True)["value"], "own")

    def test_lines_of_the_host_are_standard_input(self):
        from hatchery import _stdin

        for module in (builtins, io):
            self.addCleanup(setattr, module, "open", open)
        given = ["a\n", "", "b\n", "no end", ""]
        stream = _stdin.open_lines(lambda name, arguments: given.pop(0), "read")
        with unittest.mock.patch("sys.stdin", stream), contextlib.redirect_stdout(io.StringIO()) as shown:
            self.assertEqual(input("name? "), "a")
            self.assertRaises(EOFError, input)
            self.assertEqual([input(), stream.read()], ["b", "no end"])
            # As at a terminal, more may follow an end of file.
            given += ["x" * 10_000 + "\n", None]
            self.assertEqual(len(stream.readline()), 10_001)
            self.assertRaises(KeyboardInterrupt, input)
        self.assertEqual(shown.getvalue(), "name? ")
        given[:] = ["c\n", "", "d\n", "e\n", ""]
        self.assertEqual(open("/dev/stdin").read(), "c\n")
        self.assertEqual(list(pathlib.Path("/dev/fd/0").open("rb")), [b"d\n", b"e\n"])
        self.assertEqual(pathlib.Path(os.devnull).read_text(), "")
        self.assertRaises(FileNotFoundError, open, "nowhere")

    def test_a_program_reads_from_a_function(self):
        with unittest.mock.patch.object(self.agent._bridge, "call", lambda name, arguments: f"{name}\n"):
            for module in (builtins, io):
                self.addCleanup(setattr, module, "open", open)
            self.assertEqual(self.given("input()", stdin="lines")["value"], "lines")
        self.assertEqual(self.run_program("import sys; type(sys.stdin.buffer.raw).__name__")["value"], "FileIO")

    def test_streams_are_as_cpython_opens_them(self):
        for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
            self.addCleanup(setattr, sys, name, getattr(sys, name))
        _streams.open_streams()
        for stream, name, mode in (
            (_streams.open_stdin(), "<stdin>", "r"), (sys.stdout, "<stdout>", "w"), (sys.stderr, "<stderr>", "w"),
        ):
            self.assertEqual((stream.name, stream.buffer.name, stream.mode), (name, name, mode))
        text = _streams.text_stream(io.BufferedReader(Raw(b"a\r\nb\rc\n")), "stdin")
        self.assertEqual(list(text), ["a\r\n", "b\rc\n"])

    def test_standard_input_stays_open_while_nothing_reads_it(self):
        streams = []
        for number in (7, 7, 8, 0, 0):
            self.run_program("import sys", stdin=number)
            streams.append(sys.stdin)
        first, second, third, fourth, fifth = streams
        self.assertIs(first, second)
        self.assertEqual(len({id(stream) for stream in (second, third, fourth, fifth)}), 4)
        self.run_program("sys.stdin.close()", stdin=9)
        self.run_program("pass", stdin=9)
        self.assertFalse(sys.stdin.closed)

    def test_given_variables_are_set_and_stay(self):
        variables = {"x": ["plain", {"a": [1, 2.5, None]}], "y": ["plain", b"raw"]}
        self.assertEqual(self.given("x['a'], y == b'raw'", variables=variables)["value"], [[1, 2.5, None], True])
        self.assertEqual(self.run_program("x")["value"], {"a": [1, 2.5, None]})

    def test_an_expression_job_is_exactly_one_expression(self):
        for source, value in [("1 + 1", 2), ("  (\n3)", 3), ("'a'\n", "a")]:
            self.assertEqual(self.given(source, expression=True)["value"], value)
        for source in ("x = 1", "1; 2", "1\n2", "", "import sys"):
            self.assertEqual(self.given(source, expression=True)["type"], "SyntaxError", source)

    def test_functions_of_modules_are_called(self):
        def call(module, function, *args, **keywords):
            args = [["plain", value] for value in args]
            keywords = {name: ["plain", value] for name, value in keywords.items()}
            return self.given(call={"module": module, "function": function, "args": args, "keywords": keywords})

        self.assertEqual(call("json", "dumps", [1], indent=1)["value"], "[\n 1\n]")
        self.assertEqual(call("os.path", "join", "a", "b")["value"], "a/b")
        self.run_program("class A:\n    def f(x): return x * 2\ndef g(): 1 / 0")
        self.assertEqual(call("__main__", "A.f", 4)["value"], 8)
        self.assertIn("in g\n", call("__main__", "g")["traceback"])
        self.assertEqual(call("json", "nothing")["type"], "AttributeError")
        self.assertEqual(call("no_such_module", "f")["type"], "ModuleNotFoundError")

    def test_a_script_finds_its_folder_first(self):
        self.addCleanup(sys.path.__setitem__, slice(None), list(sys.path))
        reply = self.run_program(
            "import sys; (__file__, sys.path[0], sys.argv[0])",
            filename="dir/x.py", given={"script": "x.py"},
        )
        self.assertEqual(reply["value"], ["/script/x.py", "/script", "dir/x.py"])
        self.given("1", script="y.py")
        self.assertEqual(sys.path.count("/script"), 1)

    def test_the_working_directory_is_the_jobs(self):
        self.addCleanup(os.chdir, os.getcwd())
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.assertEqual(self.given("import os; os.getcwd()", workdir=folder)["value"], os.path.realpath(folder))
        self.assertEqual(self.given("1", workdir="/no/such/folder")["type"], "FileNotFoundError")

    def test_bytes_travel_beside_the_reply(self):
        for source in ("b'abc'", "bytearray(b'abc')", "memoryview(b'a_b_c_')[::2]"):
            reply = self.run_program(source)
            self.assertEqual((reply["data"], self.door.buffers), ({"kind": "bytes"}, [b"abc"]), source)
        reply = self.run_program("b'abc'", data_bytes=2)
        self.assertEqual((reply["data_left_out"], self.door.buffers), (3, []))
        self.assertIn("500 bytes in all", self.run_program("b'a' * 500", result_bytes=100)["repr"])
        for source in ("1", "None", "x = b'1'", "object()", "[1, {'a': 2.5}]", "{'$set': [1]}"):
            self.assertNotIn("data", self.run_program(source), source)

    def test_what_json_cannot_hold_is_tagged(self):
        for source, tree in (
            ("(1, 2)", {"$tuple": [1, 2]}), ("{1, 2}", {"$set": [1, 2]}), ("{1: 'a'}", {"$dict": [[1, "a"]]}),
            ("[float('nan')]", [{"$float": "nan"}]), ("{'$set': (1,)}", {"$dict": [["$set", {"$tuple": [1]}]]}),
            ("[b'xyz']", [{"$bytes": 0}]), ("2**70", {"$int": hex(2**70)}),
            ("[10**5000]", [{"$int": hex(10**5000)}]),
            ("import decimal; decimal.Decimal('1.10')", {"$decimal": "1.10"}),
        ):
            reply = self.run_program(source)
            self.assertEqual(reply["data"], {"kind": "tagged"}, source)
            self.assertEqual(json.loads(self.door.buffers[0]), tree, source)
            back = _values.to_object(["tagged", self.door.buffers[0].decode(), self.door.buffers[1:]])
            self.assertEqual(reply["repr"], _describe.repr_of(back))
        reply = self.run_program("[1, {'a': object()}]")
        self.assertIn("its part `[1]['a']` is of the type object", reply["missing"])
        self.assertIn("is a set", self.run_program("{1}")["missing"].replace("of the type", "a"))
        self.assertEqual(self.run_program("(1, 2)").get("missing"), None)
        reply = self.run_program("{1, 2, 3}", data_bytes=5)
        self.assertIn("more than the limit", reply["missing"])
        reply = self.run_program("'a' * 500", result_bytes=100)
        self.assertIn("its JSON has 502 bytes", reply["missing"])
        self.assertIn("nested", self.run_program("x = []; x.append(x); x")["missing"])

    def test_programs_compile_as_their_syntax_trees_do(self):
        for source in [
            "", "\n", "# x", "1", "x", "x = 1", "x: int = 1", "x[0] = 1", "x += 1", "x == 1", "x[a:=1]",
            "f(a=1)", "f(\na=1)", "f(\n  a\n)", "if x:\n    y", "if x: y", "x; y", "x = 1; y", "'doc'",
            "'''\nx = 1\n'''", "'''\nx'''", "x + \\\ny", "x = \\\ny", "f(\nx = \")\", y = \"(\" )",
            "lambda x=1: x", "[lambda x=1: x]", "print('(')", "f(\n')' '(')", "*a, b",
            "@f\ndef g(): pass", "for x in y:\n    pass\nelse:\n    x", "import x", "imports", "x  # y",
            "x = '#'", "d['a'] = 1", "d['a'] == 1", "x if y else z", "x\r\ny", "x\ry = 1", "not x", "x,", "pass",
            "x = y; z", "x = y # ; z", "x = 'a;b'; c", "x = y = z", "x = y == z", "x = y\nz", "x = y\rz", "ä = 1",
            "x = lambda: y", "x = (1,\n 2)", "x = {1: 2}", "x =  1", "x = 1\f",
            "match (x)", "type (x)", "case", "x\n\n  ", "yield_ = 1", "{1: 2}", "{\n1: 2}", "a, b = 1, 2", "a, b == c",
        ]:
            kind, at = _compile.end_of(source)
            tree = _compile.ast.parse(source)
            is_expression = bool(tree.body) and type(tree.body[-1]) is _compile.ast.Expr
            body, value = _compile.compile_program(source, "f")
            self.assertEqual(value is not None, is_expression, source)
            if kind != "unknown" and is_expression:
                self.assertEqual((kind, source.count("\n", 0, at) + 1), ("expression", tree.body[-1].lineno), source)
        self.assertEqual(self.run_program("\n\nimport sys\nsys._getframe().f_lineno")["value"], 4)
        for source in ("f(", "x = ", "x = 1 2", "if = 1", "x = (", "x = \\", "x = = 1", "if x:", "1 +", "x y", "f(\nx)\ny)", "return", "'''\nx"):
            with self.assertRaises(SyntaxError, msg=source):
                _compile.compile_program(source, "f")

    def test_a_stream_that_holds_text_back_is_flushed(self):
        held, through = (
            io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=passes) for passes in (False, True)
        )
        names = {"stdout": held, "stderr": through, "__stdout__": held, "__stderr__": through}
        with (
            unittest.mock.patch.dict(_streams.OPENED, {"stdout": held, "stderr": through}),
            unittest.mock.patch.dict(sys.__dict__, names),
        ):
            held.write("a")
            through.write("b")
            _streams.flush_streams()
            self.assertEqual((held.buffer.getvalue(), through.buffer.getvalue()), (b"a", b"b"))
            through.reconfigure(write_through=False)
            through.write("c")
            held.detach()
            _streams.flush_streams()
            self.assertEqual(through.buffer.getvalue(), b"bc")

    def test_code_that_runs_execute_is_moved(self):
        functions = (Agent.turn, Agent._serve, _compile.read_code, *_image.UNREHEARSED)
        before = [function.__code__ for function in functions]
        for function, code in zip(functions, before, strict=True):
            self.addCleanup(setattr, function, "__code__", code)
        profiled = []
        sys.setprofile(lambda *event: profiled.append(event))
        try:
            _image.gather_code(self.agent, _compile.code_of("x = 1", False))
            self.assertIsNotNone(sys.getprofile())
        finally:
            sys.setprofile(None)
        for function, code in zip(functions, before, strict=True):
            self.assertIsNot(function.__code__, code)
            self.assertEqual(function.__code__, code)
        self.assertEqual(self.run_program("6 * 7")["value"], 42)

    def test_filling_holes_comes_to_an_end(self):
        filled = _image.fill_holes()
        self.assertLessEqual(len(filled), _image.MOST_HOLES)
        self.assertLessEqual({type(one) for one in filled}, {bytes, object})
        self.assertLessEqual(max(map(sys.getsizeof, filled)), _image.LARGEST_HOLE + sys.getsizeof(b""))

    def test_awaiting_outside_of_functions(self):
        loop = types.ModuleType("hatchery._loop")
        loop.run = run_to_the_end
        saved = sys.modules.get("hatchery._loop")
        if saved is None:
            sys.modules["hatchery._loop"] = loop
            self.addCleanup(sys.modules.pop, "hatchery._loop")
        self.run_program("async def f(x): return x")
        for source, value in [
            ("await f(1)", 1),
            ("x = await f(2)\nx + 1", 3),
            ("x = 3\n[await f(x), x]", [3, 3]),
            ("[y async for y in (x async for x in g())]", [1]),
            ("y = [await f(n) for n in range(2)]", None),
        ]:
            source = "async def g(): yield 1\n" + source
            self.assertEqual(self.run_program(source)["value"], value, source)
        self.assertNotIn(_compile.RESULT, self.agent.main.__dict__)
        self.assertEqual(self.given("await f(4)", expression=True)["value"], 4)
        call = {"module": "__main__", "function": "f", "args": [["plain", 5]], "keywords": {}}
        self.assertEqual(self.given(call=call)["value"], 5)
        self.assertEqual(self.run_program("def f(): await g()")["type"], "SyntaxError")
        lines = self.run_program("x = 1\nawait f(1 / 0)")["traceback"].splitlines()
        self.assertEqual(lines[1], '  File "<job 10>", line 2, in <module>')
        self.assertEqual(self.given(call={**call, "args": []})["type"], "TypeError")


def run_to_the_end(coroutine):
    """Runs a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits for something")


@unittest.skipUnless(importlib.util.find_spec("pandas"), "there is no pandas here")
class ArrayTest(unittest.TestCase):
    def passed(self, value, room=1 << 20):
        """Returns what a value becomes on its way to the host and back."""
        fields, buffers = _values.data_fields(value, None, room, encode_json)
        told, buffers = fields["data"], iter(buffers)
        rows = told.get("rows")

        def column(told):
            if told["kind"] == "array":
                return ["array", told["dtype"], told.get("shape", [rows]), next(buffers)]
            return ["strings", next(buffers), next(buffers)]

        if told["kind"] == "tagged":
            return _values.to_object(["tagged", next(buffers).decode(), list(buffers)])
        if told["kind"] == "array":
            return _values.to_object(column(told))
        index = told["index"] and column(told["index"])
        columns = [[name, column(one)] for name, one in told["columns"]]
        return _values.to_object(["frame", told["index_name"], index, columns])

    def test_arrays_come_back(self):
        import numpy

        for array in (
            numpy.arange(6.0).reshape(2, 3).T, numpy.array([True]), numpy.array(3), numpy.zeros((0, 3)),
            numpy.array(["a", "bcd"]), numpy.array([1], ">i4"), numpy.array(["2020-01-01"], "M8[D]"),
        ):
            back = self.passed(array)
            self.assertTrue((back == array).all() and back.shape == array.shape)
            self.assertTrue(back.flags.writeable and back.flags.owndata)
        for array in (numpy.array([object()]), numpy.zeros(2, [("a", "i4")]), numpy.ma.array([1])):
            self.assertEqual(list(self.fields(array)), ["missing"])
        if int(numpy.__version__.partition(".")[0]) >= 2:
            deep = numpy.zeros((1,) * 33)
            self.assertEqual(list(self.fields(deep)), ["missing"])
        self.assertEqual(self.fields(numpy.zeros(10), 10), {"data_left_out": 80})
        self.assertEqual(self.fields([numpy.zeros(10)], 90)["data_left_out"], 136)

    def test_frames_come_back(self):
        import pandas

        for frame in (
            pandas.DataFrame({"a": [1, 2], "b": ["x", None], "c": pandas.to_datetime(["2020", "2021"])}),
            pandas.DataFrame({"a": [1, 2]}, index=pandas.Index(["p", "q"], name="k")),
            pandas.DataFrame({"a": [True]}, index=pandas.to_datetime(["2020"])),
        ):
            pandas.testing.assert_frame_equal(self.passed(frame), frame)
        self.assertEqual(self.passed(pandas.DataFrame(index=range(5))).shape, (5, 0))
        days = pandas.date_range("2026", periods=2, tz="UTC")
        for frame in (
            pandas.DataFrame({1: [2]}), pandas.DataFrame([[1, 2]], columns=["a", "a"]),
            pandas.DataFrame({"a": pandas.Categorical(["x"])}), pandas.DataFrame({"a": [1, "x"]}),
            pandas.DataFrame({"a": [1], "b": [2]}).set_index(["a", "b"]),
            pandas.DataFrame({"a": pandas.Series(["x", None], dtype=object), "b": days}, index=days),
            pandas.DataFrame({"a": pandas.array([1, None], "Int64")}).T,
        ):
            pandas.testing.assert_frame_equal(self.passed(frame), frame)
        series = pandas.Series([1.5, None], name="s")
        pandas.testing.assert_series_equal(self.passed(series), series)
        bad = pandas.DataFrame({"a": [1, object()]})
        self.assertIn("`['a'][1]` is of the type object", self.fields(bad)["missing"])

    def fields(self, value, room=1 << 20):
        return _values.data_fields(value, None, room, encode_json)[0]


if __name__ == "__main__":
    unittest.main()
