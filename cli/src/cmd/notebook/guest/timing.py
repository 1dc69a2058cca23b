"""How long cells take: `%time`, of programs that may await. `%timeit` is as at the prompt."""

from hatchery_notebook.execution import parse, run_value
from hatchery_timing import measured, timeit

__all__ = ["timed", "timeit"]

FILENAME = "<timed>"


def timed(source):
    """Runs a program, says how long that took, and gives the value that it ends in."""
    parse(source, FILENAME)
    return measured(lambda: run_value(source, FILENAME))
