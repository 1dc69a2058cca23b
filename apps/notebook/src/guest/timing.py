"""`%time` for programs that may await. `%timeit` is the same as at the prompt."""

from hatchery_notebook.execution import parse, run_value
from hatchery_timing import measured, timeit

__all__ = ["timed", "timeit"]

FILENAME = "<timed>"


def timed(source):
    """Runs a program, prints how long it took, and returns the value of its last expression."""
    parse(source, FILENAME)
    return measured(lambda: run_value(source, FILENAME))
