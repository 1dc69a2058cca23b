"""Displays of a notebook's cells, and their control data for the host.

A display is a bundle of an object's forms. The additional form `CONTROL` is for the host alone.
"""

import sys

import hatchery
from hatchery._describe import describe_exception

# `apps/notebook/src/event.rs` defines the same name. Its data is JSON with the fields `kind`,
# one of `display`, `result`, `update`, `clear` and `failed`; `metadata`, `display_id` and `wait`.
CONTROL = "application/vnd.hatchery.notebook+json"

# The most bytes of a traceback that is printed.
MOST_TRACEBACK = 1 << 16

# Capture displays instead of the notebook, innermost last: lists of forms and metadata.
captures = []
# The shell's formatter.
formatter = None
# What the first display of the running cell raised that did; `None` if there is none.
failure = None


def fail(error):
    """Makes what a display raised the error of its cell, which runs on."""
    global failure
    if failure is None:
        failure = error
    else:
        print(describe_exception(error, MOST_TRACEBACK)["traceback"], end="", file=sys.stderr)


def send(forms, kind="display", metadata=None, **control):
    """Displays forms, or tells the host what to do with earlier displays."""
    if captures and kind in ("display", "result"):
        captures[-1].append((forms, metadata or {}))
        return
    if captures and kind in ("update", "clear"):
        return
    if kind != "display" or metadata or control:
        forms = {**forms, CONTROL: {"kind": kind, "metadata": metadata or {}, **control}}
    hatchery.display(forms, raw=True)


def publish_display_data(data, metadata=None, *, transient=None, update=False, **ignored):
    """Displays forms of an object: a dictionary from MIME types to data."""
    display_id = (transient or {}).get("display_id")
    control = {} if display_id is None else {"display_id": str(display_id)}
    send(data, "update" if update else "display", metadata, **control)


def display(*objs, include=None, exclude=None, metadata=None, transient=None, display_id=None,
            raw=False, clear=False, update=False, **options):
    """Displays each object in all its forms; a `display_id` allows later updates."""
    if display_id is not None:
        if display_id is True:
            display_id = new_id()
        transient = {**(transient or {}), "display_id": display_id}
        if not objs:
            # An empty display, to be updated later.
            objs, raw = ({},), True
    elif update:
        raise TypeError("display_id required for update_display")
    if clear:
        clear_output(wait=True)
    for one in objs:
        forms, notes = (one, {}) if raw else formatter.format(one, include, exclude)
        if forms or raw:
            notes = {**notes, **(metadata or {})}
            publish_display_data(forms, notes, transient=transient, update=update)
    return DisplayHandle(display_id) if display_id is not None else None


def update_display(obj, *, display_id=None, **options):
    """Replaces the display of this id."""
    display(obj, display_id=display_id, update=True, **options)


class DisplayHandle:
    """A display that can be updated."""

    def __init__(self, display_id=None):
        self.display_id = display_id if display_id is not None else new_id()

    def __repr__(self):
        return f"<{type(self).__name__} display_id={self.display_id}>"

    def display(self, obj, **options):
        display(obj, display_id=self.display_id, **options)

    def update(self, obj, **options):
        update_display(obj, display_id=self.display_id, **options)


def clear_output(wait=False):
    """Clears the output of the cell; with `wait`, when the next output comes."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    send({}, "clear", wait=bool(wait))


def new_id():
    import os

    return os.urandom(16).hex()


def show_figure(figure):
    display(figure, metadata={})


def flush_figures():
    """Displays and closes all open figures, as inline figures at the end of a cell."""
    windows = sys.modules.get("matplotlib._pylab_helpers")
    if windows is None:
        return
    for manager in windows.Gcf.get_all_fig_managers():
        show_figure(manager.canvas.figure)
    if windows.Gcf.figs:
        sys.modules["matplotlib.pyplot"].close("all")
