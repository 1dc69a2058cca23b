"""A stand-in for IPython in notebooks, as far as a sandbox allows.

A notebook's session imports this package first; the host calls the functions below. The package
provides `get_ipython()`, and IPython's modules unless the image has the real ones.
"""

import builtins
import os

import hatchery._display
from hatchery_notebook import modules, shell, showing
from hatchery_notebook.randomness import go_on, remember

__all__ = ["go_on", "remember", "run_cell", "start"]


def run_cell(written, number, stores_history=True, is_silent=False):
    """Runs a cell, given its source as written."""
    shell.get_ipython().run_notebook_cell(written, number, stores_history, is_silent)


def start():
    """Begins a session that continues from the state after `begin`, in its own working folder."""
    shell.get_ipython().folders[:] = [os.getcwd()]


def begin():
    shell.start()
    modules.install()
    builtins.get_ipython = shell.get_ipython
    builtins.display = showing.display
    hatchery._display.figure_showers.append(showing.show_figure)


begin()
