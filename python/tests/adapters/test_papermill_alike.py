"""The same notebooks by papermill's own engine, with IPython's kernel, and by ours, cell by cell."""

import contextlib
import re

import pytest

papermill = pytest.importorskip("papermill")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

from hatchery_sandbox.papermill import HatcheryEngine  # noqa: E402

STREAMS = "the kernel sends what it has of each stream, so lines of two of them lose their order"

NOTEBOOKS = {
    "values": [
        ("6 * 7", None),
        ("x = 1", None),
        ("x + 0.5", None),
        ("'text', \"it's\", b'raw', None, True", None),
        ("{'a': [1, 2], 'b': (3,)}", None),
        ("None", None),
        ("print(x); x", None),
        ("import fractions; fractions.Fraction(1, 3)", None),
        ("list(range(40))", None),
        ("set('hello')", None),
        ("int", None),
        ("_", None),
        ("%who_ls int", None),
        ("'quiet';", None),
        ("import asyncio\nawait asyncio.sleep(0, 'slept')", None),
    ],
    "prints": [
        ("print('a'); print('b', end='')", None),
        ("import sys\nprint('error', file=sys.stderr)", None),
        ("print('one')\nprint('two', file=sys.stderr)\nprint('three')", STREAMS),
        ("for i in range(1000): print(i)", None),
        ("sys.stdout.write('ü\\n')", None),
        ("print('\\x1b[31mred\\x1b[0m\\rback')", None),
    ],
    "displays": [
        ("from IPython.display import HTML, Markdown, display", None),
        ("HTML('<b>bold</b>')", None),
        ("Markdown('*text*')", None),
        ("display(1, 'b'); print('after')", None),
        ("class Own:\n def _repr_html_(self): return '<own>'\n def __repr__(self): return 'own'\nOwn()", None),
        ("display(Own())", None),
        (
            "class Bundle:\n def _repr_mimebundle_(self, **_): return {'text/plain': 'p', 'text/html': 'h'}\n"
            "Bundle()",
            None,
        ),
        ("display({'text/plain': 'raw', 'text/html': '<i>'}, raw=True)", None),
    ],
    "errors": [
        ("1 / 0", None),
        ("print('before')\nundefined", None),
        ("assert False, 'why'", None),
        ("class MyError(Exception): pass\nraise MyError('own') from ValueError('cause')", None),
        ("from missing import thing", None),
        ("int('x')", None),
        ("{}['k']", None),
        ("'still here'", None),
    ],
    "tables": [
        ("import numpy as np\nimport pandas as pd", None),
        ("frame = pd.DataFrame({'a': [1, 2, 3], 'b': ['x', 'y', 'z'], 'c': [0.5, None, 2.0]})\nframe", None),
        ("frame['a']", None),
        ("frame.describe()", None),
        ("frame.groupby('b').sum()", None),
        ("print(frame)\nframe.shape", None),
        ("display(frame)\nframe['c'].mean()", None),
        ("np.arange(12.0).reshape(3, 4)", None),
        ("pd.DataFrame({'n': range(100)})", None),
    ],
    "figures": [
        ("import matplotlib.pyplot as plt", None),
        ("figure, axes = plt.subplots()\naxes.plot([1, 2])\nplt.show()", None),
        ("plt.plot([1, 2]);", None),
        ("lines = plt.plot([1, 2])", None),
        ("figure", None),
    ],
    "ways": [
        ("%matplotlib inline", None),
        ("    x = 1\n    x", None),
        (">>> x + 1\n", None),
        ("%%writefile made.py\nvalue = 1", None),
        ("import made; made.value, Out[2]", None),
        ("handle = display('one', display_id=True)", None),
        ("handle.update('two')", None),
        ("from IPython.display import clear_output\nprint('gone')\nclear_output()\nprint('kept')", None),
        ("class Bad:\n def __repr__(self): raise ValueError('bad')\nBad()", None),
        ("get_ipython().__class__.__name__", None),
    ],
}
"""Cells, each with the reason if its outputs may differ."""


def outputs_of(cell):
    """Returns what a cell shows, without what varies from run to run."""
    shown = []
    for output in cell.outputs:
        if output.output_type == "stream":
            if shown and shown[-1][:2] == ("stream", output.name):
                shown[-1] = ("stream", output.name, shown[-1][2] + output.text)
            else:
                shown.append(("stream", output.name, output.text))
        elif output.output_type == "error":
            shown.append(("error", output.ename, output.evalue))
        else:
            data = {kind: plain(kind, text) for kind, text in output.data.items()}
            shown.append((output.output_type, data))
    return shown


def plain(kind, content):
    if kind == "image/png":
        return "an image"
    return re.sub(r" at 0x[0-9a-f]+", " at 0x…", content) if isinstance(content, str) else content


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_cells_show_what_jupyter_shows(pool, tmp_path, name):
    papermill.engines.papermill_engines.register("hatchery", HatcheryEngine)
    notebook = nbformat.v4.new_notebook()
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "x", "language": "python"}
    for source, _ in NOTEBOOKS[name]:
        cell = nbformat.v4.new_code_cell(source)
        cell.metadata.tags = ["raises-exception"]
        notebook.cells.append(cell)
    given = tmp_path / "given.ipynb"
    nbformat.write(notebook, given)

    def run(engine, **options):
        made = tmp_path / f"{engine}.ipynb"
        # Papermill runs all of them, raises the first error, and notes it in cells of its own.
        with contextlib.suppress(papermill.PapermillExecutionError):
            papermill.execute_notebook(
                given, made, engine_name=engine, progress_bar=False, cwd=tmp_path, **options
            )
        return [cell for cell in nbformat.read(made, 4).cells if cell.cell_type == "code"]

    theirs, ours = run("nbclient"), run("hatchery", pool=pool)
    assert len(theirs) == len(ours) == len(NOTEBOOKS[name])
    for (source, reason), wanted, found in zip(NOTEBOOKS[name], theirs, ours):
        is_alike = outputs_of(found) == outputs_of(wanted)
        told = f"{source}\n Jupyter: {outputs_of(wanted)}\n    ours: {outputs_of(found)}"
        assert is_alike or reason is not None, told
        # Otherwise the reason isn't needed any more.
        assert not is_alike or reason is None, f"{told}\n{reason}"
