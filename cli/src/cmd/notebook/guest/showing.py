"""What a notebook's cells show, and how its host is told what to do with that.

A display is forms of an object. One form beside them, `CONTROL`, is for the host alone.
"""

import sys

import hatchery

# `cli/src/cmd/notebook/outputs.rs` has the same name. Its data is JSON with the fields `kind`, which is
# `display`, `result`, `update`, `clear` or `failed`; `metadata`, `display_id` and `wait`.
CONTROL = "application/vnd.hatchery.notebook+json"

# Where displays go in place of the notebook, innermost last: lists of forms and metadata.
captures = []
# How objects are shown; the shell's.
formatter = None


def send(forms, kind="display", metadata=None, **control):
    """Shows forms, or has the host do something with what was shown."""
    if captures and kind in ("display", "result"):
        captures[-1].append((forms, metadata or {}))
        return
    if captures and kind in ("update", "clear"):
        return
    if kind != "display" or metadata or control:
        forms = {**forms, CONTROL: {"kind": kind, "metadata": metadata or {}, **control}}
    hatchery.display(forms, raw=True)


def publish_display_data(data, metadata=None, *, transient=None, update=False, **ignored):
    """Shows forms of an object: a dictionary from MIME types to data."""
    display_id = (transient or {}).get("display_id")
    control = {} if display_id is None else {"display_id": str(display_id)}
    send(data, "update" if update else "display", metadata, **control)


def display(*objs, include=None, exclude=None, metadata=None, transient=None, display_id=None,
            raw=False, clear=False, update=False, **options):
    """Shows each object in the forms that it has; with `display_id` it can be updated later."""
    if display_id is not None:
        if display_id is True:
            display_id = new_id()
        transient = {**(transient or {}), "display_id": display_id}
        if not objs:
            # An empty place, for what is shown later.
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
    """Shows an object in the place of what was shown under this id."""
    display(obj, display_id=display_id, update=True, **options)


class DisplayHandle:
    """A place where something is shown, and can be replaced."""

    def __init__(self, display_id=None):
        self.display_id = display_id if display_id is not None else new_id()

    def __repr__(self):
        return f"<{type(self).__name__} display_id={self.display_id}>"

    def display(self, obj, **options):
        display(obj, display_id=self.display_id, **options)

    def update(self, obj, **options):
        update_display(obj, display_id=self.display_id, **options)


def clear_output(wait=False):
    """Takes away what the cell has shown; with `wait` when it shows something else."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    send({}, "clear", wait=bool(wait))


def new_id():
    import os

    return os.urandom(16).hex()


def show_figure(figure):
    display(figure, metadata={})


def flush_figures():
    """Shows the figures that are open, and closes them, as inline figures are at a cell's end."""
    windows = sys.modules.get("matplotlib._pylab_helpers")
    if windows is None:
        return
    for manager in windows.Gcf.get_all_fig_managers():
        show_figure(manager.canvas.figure)
    if windows.Gcf.figs:
        sys.modules["matplotlib.pyplot"].close("all")
