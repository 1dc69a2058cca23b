"""The engine of papermill, with the real package."""

import io

import pytest

papermill = pytest.importorskip("papermill")
nbformat = pytest.importorskip("nbformat")

from hatchery_sandbox.papermill import HatcheryEngine  # noqa: E402


@pytest.fixture
def execute(pool, tmp_path):
    papermill.engines.papermill_engines.register("hatchery", HatcheryEngine)

    def run(*cells, **options):
        notebook = nbformat.v4.new_notebook()
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "x", "language": "python"}
        notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
        notebook.cells[0].metadata.tags = ["parameters"]
        path, out = tmp_path / "in.ipynb", tmp_path / "out.ipynb"
        nbformat.write(notebook, path)
        try:
            papermill.execute_notebook(
                path, out, engine_name="hatchery", pool=pool, progress_bar=False, **options
            )
        finally:
            run.notebook = nbformat.read(out, 4)
        return run.notebook

    return run


def test_cells_show_what_they_show(execute):
    text = io.StringIO()
    notebook = execute(
        "n = 1",
        "print('a'); display(2); print('b'); import pandas as pd; pd.DataFrame({'n': [n]})",
        parameters={"n": 5},
        stdout_file=text,
    )
    nbformat.validate(notebook)
    outputs = notebook.cells[2].outputs
    kinds = [output.output_type for output in outputs]
    assert kinds == ["stream", "display_data", "stream", "execute_result"]
    assert "5" in outputs[3].data["text/html"]
    assert text.getvalue() == "a\nb\n"
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3]


def test_a_cell_that_fails_ends_the_notebook(execute):
    with pytest.raises(papermill.PapermillExecutionError) as raised:
        execute("x = 1", "1 / 0", "print('never')")
    assert (raised.value.ename, raised.value.evalue) == ("ZeroDivisionError", "division by zero")
    with pytest.raises(papermill.PapermillExecutionError, match="wall limit"):
        execute("x = 1", "while True: pass", execution_timeout=1)
    execute("x = 1", "import sys; sys.exit(0)")
