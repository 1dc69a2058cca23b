"""Tests code that was compiled ahead: it runs as the program does."""

import sys
import types
import warnings

import test_agent
from hatchery import _compile
from hatchery._agent import Agent
from hatchery._wire import COMPILE_WORD, REPLY, encode_request

# Programs that are compiled ahead.
PROGRAMS = (
    "", "x = 1", "1 + 1", "x = 1\nx + 1", "'doc'", "def f(): return 1\nf()", "# nothing", "1 / 0",
    "def f():\n    '''Doc.'''\n    return lambda: [1 / y for y in (1, 0)]\n\nf()()",
    "class A:\n    def f(self):\n        raise ValueError('x' * 3)\nA().f()",
    "try:\n    {}['a']\nexcept KeyError as e:\n    raise RuntimeError('b') from e",
    "def f(a, /, b, *c, d=1, **e): return a, b, c, d, e\nf(1, 2, 3, d=4, f=5)",
    "print('a'); print('b', end='')", "__import__('sys').stderr.write('x'); None",
    "import inspect\ndef f(): pass\ninspect.getsource(f)", "raise SystemExit(3)",
    "from __future__ import annotations\ndef f(x: no_such_name): pass\nstr(f.__annotations__)",
    "1.5, -0.0, 1e300, 2j, b'\\0\\xff', 'ä', '\\ud800'.isascii(), ..., None, True, 10 ** 20",
    "(1, 2.5, ('a', b'b'), {1, 2} | {3})", "x = 'abc'; y = 'ab' 'c'; x is y", "x = 1000\nx", "-0.0",
    "x = 1000.5; y = 1000.5; x is y", "x = 1e9\n(x, 1e9)[0] is x", "def f(): return 'a b'\nx = 'a b'\nf() is x",
    "[x for x in {1, 2, 3}]", "(x := 'a') in {'a'}", "f'{1!r:>5}'", "x = 1\n\n\n(x +\n  1 / 0)",
    "def g():\n    yield 1\n    yield from (2, 3)\nlist(g())",
    "match (1, 2):\n    case (a, b): print(a, b)", "def f():\n    f()\nf()", "(lambda: 1)()",
    "import __main__; __main__.__dict__.get('__file__')", "global x; x = 1; x",
    "class A:\n    x: int = 1\n    def f(self): return __class__\nA().f().__name__",
    "import sys\nsys._getframe().f_code.co_filename", "assert 1 == 2, 'no'", "a\u0301 = 1\ná",
    "x = [\n    1,\n    2,\n][\n    5\n]", "try:\n    1 / 0\nfinally:\n    print(1)", "__name__",
)


class CodeTest(test_agent.AgentCase):
    def code(self, source, is_expression=False):
        """Returns what the agent compiles the program to."""
        posted = []
        request = encode_request((source, is_expression))

        def call(frame):
            posted.append(frame)
            return request

        agent = Agent(call, {})
        with warnings.catch_warnings():
            status = agent.reactor_turn(COMPILE_WORD, {})
        self.assertEqual((status, posted[-1][:1]), ((0, False), REPLY), source)
        return posted[-1][1:]

    def end(self, source, code, **changes):
        """Runs a program on a new agent; returns all that it tells."""
        self.agent = Agent(self.door.call, {"BASE": "1"})
        reply = self.run_program(source, last=True, code=code, **changes)
        return reply, self.out, self.err

    def test_programs_run_the_same(self):
        for source in PROGRAMS:
            code = self.code(source)
            self.assertNotEqual(code, b"", source)
            for name in None, "dir/prog.py":
                plain, ahead = (self.end(source, one, filename=name) for one in (None, code))
                self.assertEqual(plain, ahead, source)

    def test_every_part_has_the_programs_name(self):
        source = "def f():\n    class A:\n        g = lambda: (yield)\n    return A\nf"
        body, last, _ = _compile.read_code(self.code(source), source, "other.py")
        found, pending = set(), [body, last]
        while pending:
            code = pending.pop()
            found.add((code.co_name, code.co_filename))
            pending += [one for one in code.co_consts if type(one) is types.CodeType]
        self.assertEqual(found, {(name, "other.py") for name in ("<module>", "f", "A", "<lambda>")})

    def test_an_expression_job_has_its_own_code(self):
        given = {"expression": True}
        for source in "1 + 1", "  [x\nfor x in 'ab']", "1 / 0":
            code = self.code(source, True)
            plain, ahead = (self.end(source, one, given=given) for one in (None, code))
            self.assertEqual(plain, ahead, source)
        self.assertEqual(self.code("x = 1", True), b"")

    def test_what_each_run_must_compile_has_no_code(self):
        for source in (
            # Invalid.
            "f(", "return", "x = 1 2", "'''", "nonlocal x", "def f(x, x): pass", "\0",
            "(" * 300 + ")" * 300,
            # Gives a warning.
            "x = '\\d'", "1 is 1", "x = 1\n'\\d'", "[0x1for x in y]", "assert (1, 'x')",
            # Depends on a setting.
            "x = " + "9" * 700,
            # The set would have another order.
            "for x in {24, 16, 8, 0}: print(x)", "def f():\n    for x in {8, 0}: print(x)",
        ):
            self.assertEqual(self.code(source), b"", source)

    def test_awaiting_programs_keep_their_result(self):
        body, last, _ = _compile.read_code(self.code("await f()"), "await f()", "x")
        self.assertTrue(_compile.awaits(body))
        self.assertIs(last, _compile.RESULT)

    def test_hooks_see_that_it_is_compiled(self):
        seen, is_over = [], False

        def hook(event, arguments):
            if event == "compile" and not is_over:
                seen.append(arguments)

        code = self.code("x = 1")
        sys.addaudithook(hook)
        for one in None, code:
            self.end("x = 1", one)
        is_over = True
        self.assertEqual(seen, [(b"x = 1", "<job>")] * 2)

    def test_it_says_whether_lines_may_be_shown_later(self):
        for source, is_gone in (
            ("x = 1", True),
            ("x = 1\nx + 1", True),
            ("def f(): pass", False),
            ("try:\n    1 / 0\nexcept ValueError: pass", False),
            ("x = 1\nlambda: x", False),
            ("await f()", False),
        ):
            self.assertIs(_compile.read_code(self.code(source), source, "<job>")[2], is_gone, source)
