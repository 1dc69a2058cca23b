"""Progress of `map`, by the protocol of tqdm: something with `update` and `close`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Protocol, Union


class Bar(Protocol):
    """Shows progress, such as `tqdm.tqdm(total=10)`."""

    def update(self, n: int, /) -> object: ...

    def close(self) -> object: ...


Progress = Union[bool, None, Bar, Callable[..., Bar]]
"""`True` for tqdm, if it is installed, and lines on standard error otherwise; a class such as
`tqdm.notebook.tqdm`, which is called with `total=…`; or a bar that was made already."""


class _NoBar:
    def update(self, n: int, /) -> None:
        pass

    def close(self) -> None:
        pass


class _Lines:
    """Says how far it is, at most once a second, on standard error."""

    def __init__(self, total: int | None) -> None:
        self._total = "" if total is None else f" of {total}"
        self._done = 0
        self._told_at = time.monotonic()

    def update(self, n: int, /) -> None:
        self._done += n
        if time.monotonic() - self._told_at >= 1:
            self._tell()

    def close(self) -> None:
        self._tell()

    def _tell(self) -> None:
        self._told_at = time.monotonic()
        print(f"jobs ended: {self._done}{self._total}", file=sys.stderr)


def bar(progress: Progress, total: int | None) -> Bar:
    """Returns what shows this progress."""
    if not progress:
        return _NoBar()
    if progress is True:
        try:
            tqdm: Any = __import__("tqdm.auto", fromlist=["tqdm"])
        except ImportError:
            return _Lines(total)
        made: Bar = tqdm.tqdm(total=total)
        return made
    if callable(progress) and not hasattr(progress, "n"):
        return progress(total=total)
    return progress  # type: ignore[return-value]
