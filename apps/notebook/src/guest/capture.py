"""Captures what a program prints and displays, and returns it as values."""

import io
import sys

from hatchery_notebook import showing


class RichOutput:
    """The forms of a displayed object."""

    def __init__(self, data=None, metadata=None, transient=None, update=False):
        self.data, self.metadata = data, metadata or {}
        self.transient, self.update = transient, update

    def display(self):
        showing.publish_display_data(
            self.data, self.metadata, transient=self.transient, update=self.update
        )

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.data, self.metadata


class CapturedIO:
    """Captured output and displays."""

    def __init__(self, stdout, stderr, outputs=None):
        self._stdout, self._stderr, self._outputs = stdout, stderr, outputs or []

    def __str__(self):
        return self.stdout

    @property
    def stdout(self):
        return self._stdout.getvalue() if self._stdout else ""

    @property
    def stderr(self):
        return self._stderr.getvalue() if self._stderr else ""

    @property
    def outputs(self):
        return [RichOutput(data, metadata) for data, metadata in self._outputs]

    def show(self):
        """Prints and displays it again."""
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        for output in self.outputs:
            output.display()

    __call__ = show


class capture_output:
    """A context that captures what a program prints and displays."""

    def __init__(self, stdout=True, stderr=True, display=True):
        self.stdout, self.stderr, self.display = stdout, stderr, display

    def __enter__(self):
        self._streams = sys.stdout, sys.stderr
        out, err = (io.StringIO() if wanted else None for wanted in (self.stdout, self.stderr))
        sys.stdout, sys.stderr = out or sys.stdout, err or sys.stderr
        outputs = None
        if self.display:
            outputs = []
            showing.captures.append(outputs)
        self._captured = CapturedIO(out, err)
        self._captured._outputs = outputs if outputs is not None else []
        return self._captured

    def __exit__(self, *error):
        showing.flush_figures()
        sys.stdout, sys.stderr = self._streams
        if self.display:
            showing.captures.pop()
