"""What notebooks expect of IPython, as far as a sandbox can give it.

A session of a notebook imports this package first; its host calls the functions below. It gives
programs `get_ipython()`, and modules of IPython unless the image has a real one.
"""

import builtins

import hatchery._display
from hatchery_notebook import modules, shell, showing
from hatchery_notebook.randomness import go_on, remember

__all__ = ["go_on", "remember", "run_cell"]


def run_cell(source, written, number, is_quiet):
    """Runs a cell: its source without IPython's additions, and as it is written."""
    shell.get_ipython().run_notebook_cell(source, written, number, is_quiet)


def begin():
    shell.start()
    modules.install()
    builtins.get_ipython = shell.get_ipython
    builtins.display = showing.display
    hatchery._display.figure_showers.append(showing.show_figure)


begin()
