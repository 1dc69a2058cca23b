"""An engine of papermill: runs notebooks in sandboxes, without a kernel.

```
papermill --engine hatchery in.ipynb out.ipynb
```

Papermill's command passes no options to engines, so these variables of the environment have them:
`HATCHERY_PRELOAD` (modules such as `numpy,pandas`), `HATCHERY_SOCKET` (of `hatchery serve --unix`) and
`HATCHERY_FILES` (patterns such as `*.csv,data/*`: files of the working folder that the notebook gets a
copy of; none without it). From Python, `execute_notebook(…, engine_name="hatchery", pool=pool,
files=["*.csv"])` takes the same. Cells have what IPython gives them, as in `hatchery notebook run`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nbformat.v4 import new_output
from papermill.engines import Engine

from hatchery_sandbox._events import Display, Event, Output
from hatchery_sandbox._job import Job
from hatchery_sandbox._outcome import Outcome
from hatchery_sandbox._pool import Pool
from hatchery_sandbox._session import Session

_MOST_SECONDS = 365 * 86400.0
"""A cell's time unless papermill is given one: it has no limit."""


_CONTROL = "application/vnd.hatchery.notebook+json"
"""The form of a display that says what to do with it; `apps/notebook/src/guest/showing.py` describes it."""


class CellError(Exception):
    """A cell failed. Papermill raises its own exception from the notebook's error."""


class HatcheryEngine(Engine):
    """Runs the cells of a notebook in one session."""

    @classmethod
    def execute_managed_notebook(
        cls,
        nb_man: Any,
        kernel_name: str,
        log_output: bool = False,
        stdout_file: Any = None,
        stderr_file: Any = None,
        execution_timeout: float | None = None,
        pool: Pool | None = None,
        files: Sequence[str] | None = None,
        **_: Any,
    ) -> None:
        """Runs the cells until one fails."""
        with ExitStack() as stack:
            used = pool or stack.enter_context(_own_pool())
            session = stack.enter_context(used.session())
            copied = _files(_listed("HATCHERY_FILES") if files is None else files)
            session.run("", files=copied).raise_for_status()
            session._act("begin_notebook")
            shown: dict[str, list[Any]] = {}
            streams = {"stdout": stdout_file, "stderr": stderr_file}
            for index, cell in enumerate(nb_man.nb.cells):
                nb_man.cell_start(cell, index)
                try:
                    if cell.cell_type == "code" and cell.source.strip():
                        _Cell(nb_man, cell, streams, log_output, shown).run(session, execution_timeout)
                except CellError as error:
                    nb_man.cell_exception(cell, index, exception=error)
                    break
                finally:
                    nb_man.cell_complete(cell, index)

    @classmethod
    def nb_kernel_name(cls, nb: Any, name: str | None = None) -> str:
        """Returns what the notebook says; there is only one interpreter."""
        return name or nb.metadata.get("kernelspec", {}).get("name") or "python3"

    @classmethod
    def nb_language(cls, nb: Any, language: str | None = None) -> str:
        """Returns what the notebook says, or Python."""
        told = nb.metadata.get("language_info", nb.metadata.get("kernelspec", {}))
        return language or told.get("name" if "language_info" in nb.metadata else "language") or "python"


class _Cell:
    """Runs one cell and writes what it shows into it, as it happens."""

    def __init__(
        self,
        nb_man: Any,
        cell: Any,
        streams: dict[str, Any],
        log_output: bool,
        shown: dict[str, list[Any]],
    ) -> None:
        self._nb_man = nb_man
        self._cell = cell
        self._streams = streams
        self._log_output = log_output
        # The outputs of all cells that can be updated, by their ids.
        self._shown = shown
        self._clears_next = False
        cell.outputs = []

    def run(self, session: Session, timeout: float | None) -> None:
        count = sum(1 for cell in self._nb_man.nb.cells if cell.get("execution_count"))
        self._cell.execution_count = count + 1
        outcome = session.run(
            Job.call("hatchery_notebook:run_cell", self._cell.source, count + 1),
            on_event=self._happen,
            timeout=_MOST_SECONDS if timeout is None else timeout,
            contents=False,
        )
        if outcome.passed:
            return
        name, value, traceback = _error(outcome)
        self._show("error", ename=name, evalue=value, traceback=traceback.splitlines(keepends=True))
        if "raises-exception" not in self._cell.metadata.get("tags", []):
            raise CellError(f"{name}: {value}")

    def _happen(self, event: Event) -> None:
        if isinstance(event, Output):
            self._write(event.stream, event.text)
        elif isinstance(event, Display):
            self._display(dict(event.bundle))
        # Papermill decides how often the notebook is really saved.
        self._nb_man.autosave_cell()

    def _write(self, stream: str, text: str) -> None:
        if self._log_output:
            target = sys.stdout if stream == "stdout" else sys.stderr
            target.write(text)
        if (file := self._streams[stream]) is not None:
            file.write(text)
            file.flush()
        self._clear_if_due()
        outputs = self._cell.outputs
        if outputs and outputs[-1].output_type == "stream" and outputs[-1].name == stream:
            outputs[-1].text += text
        else:
            self._show("stream", name=stream, text=text)

    def _display(self, bundle: dict[str, str]) -> None:
        control = json.loads(bundle.pop(_CONTROL, "{}"))
        kind, key = control.get("kind", "display"), control.get("display_id")
        fields = {"data": _data(bundle), "metadata": control.get("metadata", {})}
        if kind == "result":
            self._show("execute_result", execution_count=self._cell.execution_count, **fields)
        elif kind == "display":
            self._show("display_data", **fields)
            if key is not None:
                self._shown.setdefault(key, []).append(self._cell.outputs[-1])
        elif kind == "update":
            for output in self._shown.get(key, ()):
                output.update(fields)
        elif kind == "clear":
            self._clears_next = True
            if not control.get("wait"):
                self._clear_if_due()

    def _show(self, kind: str, **fields: Any) -> None:
        self._clear_if_due()
        self._cell.outputs.append(new_output(kind, **fields))

    def _clear_if_due(self) -> None:
        if self._clears_next:
            self._clears_next = False
            self._cell.outputs.clear()


def _own_pool() -> Pool:
    if path := os.environ.get("HATCHERY_SOCKET"):
        return Pool.connect(path)
    return Pool(workers=1, preload=_listed("HATCHERY_PRELOAD"))


def _listed(variable: str) -> list[str]:
    return [part.strip() for part in os.environ.get(variable, "").split(",") if part.strip()]


def _files(patterns: Sequence[str]) -> dict[str, Path]:
    """Returns the files of the working folder that match; papermill has gone to `cwd`."""
    here = Path.cwd()
    found = (path for pattern in patterns for path in here.glob(pattern))
    return {str(path.relative_to(here)): path for path in found if path.is_file()}


def _data(bundle: dict[str, str]) -> dict[str, Any]:
    return {
        kind: json.loads(text) if kind == "application/json" or kind.endswith("+json") else text
        for kind, text in bundle.items()
    }


def _error(outcome: Outcome) -> tuple[str, str, str]:
    """Returns the name, the value and the traceback that a notebook has for a failed cell."""
    exception = outcome.exception
    if exception is not None:
        return exception.type, exception.message, exception.traceback
    if outcome.status == "exited":
        # `sys.exit()` and `sys.exit(0)` are the same to a process, and to papermill.
        value = outcome.message or str(outcome.exit_code or "")
        return "SystemExit", value, f"The program left:\nSystemExit: {value}\n"
    hit = outcome.limit
    name = f"Limit:{hit.limit}" if hit else outcome.status
    return name, outcome.message or "", outcome.message or ""
