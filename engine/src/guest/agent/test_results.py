"""Tests what the agent reports: rich forms, displays, figures, exceptions.

A small stand-in for matplotlib is enough here; the tests of the library have the real one.
"""

import json
import os
import shutil
import sys
import tempfile

import test_agent
from hatchery import _describe, _display
from hatchery._wire import DISPLAY, REPLY

PNG = "b'\\x89PNG'"
# The parts of matplotlib that `hatchery._display` uses.
MATPLOTLIB = {
    "__init__": "",
    "backend_bases": "class FigureManagerBase:\n    def show(self): raise OSError('no display')\n",
    "_pylab_helpers": """
class Gcf:
    figs = []
    get_all_fig_managers = classmethod(lambda cls: list(cls.figs))
    destroy = classmethod(lambda cls, manager: cls.figs.remove(manager))
""",
    "figure": """
class Figure:
    stale, data = True, b'PNG'
    def savefig(self, target, format): target.write(self.data); self.stale = True
""",
    "pyplot": """
from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.figure import Figure
class Manager(FigureManagerBase):
    def __init__(self, figure): self.canvas = self; self.figure = figure
def figure():
    Gcf.figs.append(Manager(Figure()))
    return Gcf.figs[-1].figure
def show(): [manager.show() for manager in list(Gcf.figs)]
""",
}


class Door(test_agent.Door):
    """A host that keeps replies with their buffers, and displays."""

    def __init__(self):
        super().__init__()
        self.displays = []
        self.refuses = False

    def call(self, frame):
        if frame[:1] == DISPLAY:
            if self.refuses:
                raise OSError
            header, buffers = test_agent.parts(REPLY + frame[1:])
            self.displays.append(forms(header, buffers))
            return b""
        if frame[:1] == REPLY:
            header, buffers = test_agent.parts(frame)
            header["forms"] = forms(header, buffers)
            self.replies.append(header)
            return b""
        return super().call(frame)


def forms(header, buffers):
    listed = header.get("bundle", [])
    assert [index for *_, index in listed] == list(range(len(buffers)))
    kinds = {"text": lambda data: data.decode(), "bytes": bytes}
    return {mime: kinds[kind](buffers[index]) for mime, kind, index in listed}


def texts_of(told):
    """Returns the bytes of an exception's details, without its type, message and traceback."""
    notes, frames = told.get("notes", ()), told.get("frames", ())
    texts = [*notes, *told.get("syntax", {}).values()]
    texts += [text for frame in frames for text in frame.values()]
    size = sum(len(text.encode()) for text in texts if isinstance(text, str))
    linked = [told.get("cause"), told.get("context"), *told.get("group", ())]
    for one in filter(None, linked):
        size += texts_of(one) + len(one["type"].encode()) + len(one["message"].encode())
    return size


class ResultsTest(test_agent.AgentCase):
    def setUp(self):
        super().setUp()
        self.door = Door()
        self.agent = test_agent.Agent(self.door.call, {"BASE": "1"})

    def forms_of(self, body, **changes):
        source = "class A:\n" + "".join(f"    {line}\n" for line in body.splitlines()) + "A()"
        reply = self.run_program(source, **changes)
        self.assertEqual(reply["kind"], "completed", reply)
        return reply["forms"]

    def test_forms_of_the_last_expression(self):
        for body, expected in [
            ("def _repr_html_(self): return '<b>ä\\ud800'", {"text/html": "<b>ä\\ud800"}),
            (f"def _repr_png_(self): return {PNG}", {"image/png": b"\x89PNG"}),
            ("def _repr_png_(self): return 'iVBO\\nRw=='", {"image/png": b"\x89PNG"}),
            ("def _repr_png_(self): return b'x', {'width': 5}", {"image/png": b"x"}),
            ("def _repr_json_(self): return {'a': [1]}", {"application/json": '{"a": [1]}'}),
            ("_repr_latex_ = lambda self: '$x$'\n_repr_markdown_ = lambda self: '*x*'",
             {"text/latex": "$x$", "text/markdown": "*x*"}),
            ("def _repr_mimebundle_(self, include, exclude):\n"
             "    return {'text/plain': 'x', 'image/png': b'x', 'a/b+json': [1]}, {}\n"
             "def _repr_html_(self): return 'h'\n_repr_png_ = 5",
             {"image/png": b"x", "a/b+json": "[1]", "text/html": "h"}),
            ("def _repr_mimebundle_(self): return {'text/html': 'h'}", {"text/html": "h"}),
        ]:
            self.assertEqual(self.forms_of(body), expected, body)

    def test_invalid_forms_are_left_out(self):
        for body in [
            "def _repr_html_(self): 1 / 0",
            "def _repr_html_(self): raise SystemExit(3)",
            "def _repr_html_(self): raise GeneratorExit",
            "def _repr_html_(self): return self._repr_html_()",
            "def _repr_html_(self): return 5",
            "def _repr_html_(self): return 'x' * 2000",
            "def _repr_png_(self): return 'no base64!'",
            "def _repr_json_(self): return {1: float('nan')}",
            "_repr_html_ = property(lambda self: 1 / 0)",
            "def _repr_mimebundle_(self, **k): return {5: 'x', 'a b/c': 'x', 'ab': 'x', 'a/ä': 'x'}",
            "def _repr_mimebundle_(self, **k): return 'text/html'",
            "__getattr__ = lambda self, name: lambda: 'everything'",
        ]:
            self.assertEqual(self.forms_of(body, result_bytes=1000), {}, body)
        for source in [
            "class M(type): __hash__ = None\nclass A(metaclass=M): _repr_html_ = lambda self: 'x'\nA()",
            "class A: _repr_html_ = lambda self: 'x'\nA",
            "class A(int): __len__ = None\nA(5)",
        ]:
            reply = self.run_program(source)
            self.assertEqual((reply["kind"], reply["forms"]), ("completed", {}), source)

    def test_forms_together_stay_within_the_limit(self):
        body = "_repr_html_ = lambda self: 'h' * 600\n_repr_png_ = lambda self: b'p' * 600"
        self.assertEqual(list(self.forms_of(body, result_bytes=1000)), ["text/html"])
        left_out = self.run_program("A()", result_bytes=1000)["result_left_out"]
        self.assertEqual(left_out, 1200 + len("text/html") + len("image/png"))
        self.assertNotIn("result_left_out", self.run_program("A()"))

    def test_an_interrupt_in_a_form_ends_the_program(self):
        source = "class A:\n def _repr_html_(self): raise KeyboardInterrupt\nA()"
        self.assertEqual(self.run_program(source)["type"], "KeyboardInterrupt")

    def test_displays(self):
        self.run_program("from hatchery import display as d\nd is display and display(1, 'a')")
        self.run_program("class A: _repr_html_ = lambda self: '<b>'\ndisplay(A())")
        self.run_program("display({'text/html': 'x', 5: 6}, {}, 7, raw=True)")
        plain, html, raw = self.door.displays[:2], self.door.displays[2], self.door.displays[3:]
        self.assertEqual(plain, [{"text/plain": "1"}, {"text/plain": "'a'"}])
        self.assertEqual((html["text/html"], raw), ("<b>", [{"text/html": "x"}]))
        self.assertTrue(html["text/plain"].startswith("<__main__.A object"))
        self.door.refuses = True
        self.assertEqual(self.run_program("display(1)\n2")["value"], 2)
        reply = self.run_program("display(1, 2, on=3)")
        self.assertEqual((reply["type"], len(reply["frames"])), ("TypeError", 1))

    def with_matplotlib(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        os.mkdir(os.path.join(folder, "matplotlib"))
        for name, source in MATPLOTLIB.items():
            with open(os.path.join(folder, "matplotlib", f"{name}.py"), "w") as file:
                file.write(source)
        sys.path.insert(0, folder)
        self.addCleanup(sys.path.remove, folder)
        names = [name for name in sys.modules if name.split(".")[0] == "matplotlib"]
        self.addCleanup(lambda: [sys.modules.pop(f"matplotlib.{name}", 0) for name in MATPLOTLIB])
        self.addCleanup(sys.modules.pop, "matplotlib", None)
        self.assertEqual(names, [])

    def test_figures_are_shown_once_and_closed(self):
        self.with_matplotlib()
        plt = "import matplotlib.pyplot as plt\n"
        for source, count in [
            ("plt.figure(); plt.figure()", 2),
            ("plt.figure(); plt.show(); display(1); plt.figure()", 3),
            ("display(plt.figure())", 1),
            ("f = plt.figure(); plt.show(); plt.show(); plt.figure(); plt.show()", 2),
            ("f = plt.figure(); plt.show(); f.savefig(__import__('io').BytesIO(), 'png'); assert plt.Gcf.figs", 1),
            ("f = plt.figure(); display(f); f.data = b'other'; f.stale = True", 2),
            ("plt.figure(); 1 / 0", 1),
            ("plt.figure(); raise KeyboardInterrupt", 0),
            ("plt.figure().data = 5", 0),
            ("plt.figure(); del plt.Gcf.figs[0].canvas", 0),
            ("plt.Gcf.get_all_fig_managers = None", 0),
        ]:
            self.door.displays.clear()
            self.run_program(f"{plt}{source}\nNone")
            self.assertEqual(len(self.door.displays), count, source)
            if source.startswith("plt.figure(); plt.show"):
                kinds = [list(shown)[-1] for shown in self.door.displays]
                self.assertEqual(kinds, ["image/png", "text/plain", "image/png"])
                self.assertEqual(sys.modules["matplotlib.backend_bases"].__loader__.__class__.__name__,
                                 "SourceFileLoader")
            if "data = 5" in source:
                self.assertIn("a figure can't be shown: TypeError", self.err)
            sys.modules["matplotlib.pyplot"].Gcf.figs.clear()

    def test_a_figure_as_the_last_expression_is_not_shown_again(self):
        self.with_matplotlib()
        reply = self.run_program("import matplotlib.pyplot as plt\nplt.figure()")
        self.assertEqual((reply["forms"], self.door.displays), ({"image/png": b"PNG"}, []))
        # One with its own picture shows that, once.
        source = (
            "import matplotlib.figure as f\n"
            "class Own(f.Figure): _repr_png_ = lambda self: b'own'\ndisplay(Own())\nOwn()"
        )
        reply = self.run_program(source)
        self.assertEqual(reply["forms"], {"image/png": b"own"})
        self.assertEqual(self.door.displays[0]["image/png"], b"own")

    def test_exceptions_have_frames_notes_and_chains(self):
        source = (
            "def f():\n    try:\n        1 / 0\n    except ZeroDivisionError as error:\n"
            "        error.add_note('ä')\n        raise KeyError('k') from error\n"
            "try:\n    f()\nexcept KeyError:\n    raise ValueError"
        )
        reply = self.run_program(source, filename="x.py")
        self.assertEqual((reply["type"], reply["message"]), ("ValueError", ""))
        [frame] = reply["frames"]
        self.assertEqual((frame["file"], frame["line"], frame["function"]), ("x.py", 10, "<module>"))
        self.assertEqual((frame["source_line"], frame["column"]), ("raise ValueError", 4))
        context = reply["context"]
        self.assertEqual((context["type"], context["message"]), ("KeyError", "'k'"))
        self.assertEqual([frame["line"] for frame in context["frames"]], [8, 6])
        self.assertNotIn("context", context)
        self.assertEqual(context["cause"]["notes"], ["ä"])
        self.assertEqual(context["cause"]["type"], "ZeroDivisionError")
        reply = self.run_program("try:\n 1 / 0\nexcept ArithmeticError:\n raise OSError from None")
        self.assertFalse({"cause", "context"} & set(reply))

    def test_groups_and_syntax_errors(self):
        reply = self.run_program("raise ExceptionGroup('g', [OSError('a'), ValueError('b')])")
        self.assertEqual([one["type"] for one in reply["group"]], ["OSError", "ValueError"])
        reply = self.run_program("x = 1\ny = = 2")
        expected = {"file": "<job 2>", "line": 2, "column": 5, "text": "y = = 2\n"}
        self.assertEqual(reply["syntax"] | {"text": "y = = 2\n"}, expected)
        # Some errors have no source line, and some a line number that is not a string.
        reply = self.run_program("x = 1\nbreak")
        self.assertEqual((reply["syntax"]["line"], reply["syntax"]["text"]), (2, "break"))
        self.assertIn("\n    break\n    ^^^^^\n", reply["traceback"])
        reply = self.run_program("whle True:\n    pass")
        self.assertEqual(reply["syntax"]["line"], 1)
        lying = "e = SyntaxError('x')\ne.lineno, e.filename = {}, {}\nraise e"
        for line, name in [("10**30", "'<job>'"), ("-1", "'<job>'"), ("1", "[]"), ("'x'", "'<job>'")]:
            reply = self.run_program(lying.format(line, name))
            self.assertIn("SyntaxError: x", reply["traceback"])
            self.assertNotIn("no traceback", reply["traceback"])
        source = "e = SyntaxError('x')\ne.lineno, e.text, e.offset, e.filename = 'x', 5, -10**9, []\nraise e"
        self.assertNotIn("line", self.run_program(source).get("syntax", {}))

    def test_chains_and_groups_are_described_up_to_a_limit(self):
        long = "e = None\nfor i in range(5000):\n    n = ValueError(i); n.{} = e; e = n\nraise e"
        for link in ("__cause__", "__context__"):
            reply = self.run_program(long.format(link))
            depth, told = 0, reply
            while told is not None:
                told = told.get(link.strip("_"))
                depth += 1
            self.assertEqual((depth, reply["message"]), (_describe.MOST_EXCEPTIONS, "4999"))
            self.assertTrue(reply["traceback"].endswith("ValueError: 4999\n"))
            count = f"n = 0\nwhile e: n += 1; e = e.{link}\nn"
            self.assertEqual(self.run_program(count)["value"], 5000, "the chain is whole again")
        for source in [
            "a = ValueError('a'); b = ValueError('b'); a.__context__ = b; b.__context__ = a\nraise a",
            "a = ValueError('a'); a.__cause__ = a\nraise a",
            "e = ValueError(1)\nfor i in range(1000): e = ExceptionGroup('g', [e])\nraise e",
            "raise ExceptionGroup('g', [ValueError(i) for i in range(3000)])",
            "e = ValueError(1)\ne.__notes__ = ['x' * 999] * 9999\nraise e",
            "class E(Exception): __notes__ = property(lambda self: 1 / 0)\nraise E",
            "class E(Exception): __cause__ = property(lambda self: 5)\nraise E",
        ]:
            reply = self.run_program(source, result_bytes=10_000)
            self.assertEqual(reply["kind"], "raised", source)
            self.assertLess(len(json.dumps(reply)), 6 * 40_000, source)

    def test_the_details_of_an_exception_stay_within_the_limit(self):
        source = "def f(n):\n    return f(n - 1) if n else 1 / 0\nf(150)"
        reply = self.run_program(source, result_bytes=2000)
        texts = [frame["file"] + frame["function"] for frame in reply["frames"]]
        self.assertLess(sum(map(len, texts)), 2000)
        self.assertEqual(len(self.run_program(source)["frames"]), 152)

    def test_notes_on_cuts_stay_within_the_limit_too(self):
        long = "SyntaxError('x', ('f' * 9999, 1, 1, 't' * 9999))"
        for source in [
            f"e = {long}\ne.add_note('n' * 9999)\nraise e",
            f"e = {long}\ne.__notes__ = 'n' * 9999\nraise e",
            f"raise OSError from {long}",
            f"e = {long}\ne.add_note('n' * 9999)\nraise OSError from e",
        ]:
            for cap in (100, 1000):
                reply = self.run_program(source, result_bytes=cap)
                # The host allows for one note on a cut.
                self.assertLessEqual(texts_of(reply), cap + 64, source)
        source = (
            "class M(type): __module__ = property(lambda self: exit())\n"
            "raise M('E' * 9999, (Exception,), {})"
        )
        reply = self.run_program(source, result_bytes=100)
        self.assertTrue(max(len(reply["type"].encode()), len(reply["traceback"].encode())) <= 164)

    def test_a_deep_cause_is_shortened(self):
        source = "def f(n): f(n + 1)\ntry:\n    f(0)\nexcept RecursionError as e:\n    raise OSError from e"
        reply = self.run_program(source)
        self.assertEqual(len(reply["cause"]["frames"]), _describe.MOST_FRAMES)

    def test_mime_types_are_those_that_the_host_accepts(self):
        self.assertTrue(_display.is_mime("application/vnd.x.v1+json"))
        for name in ("", "ab", "a b/c", "a/\n", "a/" + "b" * 254, 5, type("S", (str,), {})("a/b")):
            self.assertFalse(_display.is_mime(name), name)

