"""How a job ended."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, Literal

from hatchery_sandbox import _values
from hatchery_sandbox._errors import (
    InvalidJobError,
    LimitError,
    MemoryLimitError,
    PoolError,
    ProgramExitedError,
    ProgramRaisedError,
    ProgramTamperedError,
    RefusedError,
    SandboxFailedError,
    TimeLimitError,
    UnknownSessionError,
    UnsupportedValueError,
)
from hatchery_sandbox._frames import Message

Status = Literal[
    "completed", "raised", "exited", "limit", "cancelled", "tampered", "sandbox_failed", "not_run"
]


_CRASHES = (134, 139)
"""The exit codes of programs that aborted or crashed their interpreter."""

_TOO_BIG = "array is too big; `arr.size"
"""How NumPy says that an array is larger than the addresses of an interpreter, which are of 32 bits."""


@dataclass(frozen=True)
class ProgramException:
    """An exception of a program, as data: nothing of it was unpickled."""

    type: str
    """The name of its class."""
    message: str
    traceback: str
    """As Python prints it."""
    details: dict[str, Any]
    """All that is known: `module`, `notes`, `frames`, `cause`, `context` and so on."""


@dataclass(frozen=True)
class LimitHit:
    """A limit that a program reached."""

    limit: str
    """Which one: `wall`, `cpu`, `memory`, `output` and so on."""
    allowed: int
    """Milliseconds for times, bytes for sizes, otherwise a number."""
    used: int
    """In the same unit."""


@dataclass(frozen=True)
class Request:
    """A request of a program over HTTP, or a connection that failed before one."""

    method: str
    """Empty for a connection."""
    url: str
    """As the program wrote it, with placeholders instead of secrets."""
    status: int | None
    """That of the response, once it has come."""
    failure: dict[str, str] | None
    """Why it was refused or failed: `kind`, one word, and `message`."""
    bytes_up: int
    bytes_down: int
    seconds: float
    """From the request's head to the end of the response."""
    is_whole: bool
    """Whether the response came to its end."""


@dataclass(frozen=True)
class ChangedFile:
    """A file that a program created, modified or deleted."""

    path: str
    """Relative to the working directory."""
    change: Literal["created", "modified", "deleted"]
    data: bytes | None
    """Its contents; `None` if it was deleted or if contents weren't asked for."""
    size: int
    """In bytes."""

    @property
    def text(self) -> str:
        """Its contents as text in UTF-8."""
        return (self.data or b"").decode()


@dataclass(frozen=True)
class Usage:
    """What a job used."""

    queue_ms: float
    wall_ms: float
    cpu_ms: float
    peak_memory_bytes: int
    output_bytes: int
    host_calls: int
    file_growth_bytes: int


class Outcome:
    """How a job ended: its value and output, or why it has none.

    A program that raises is a result like any other; `raise_for_status` makes it an exception.
    In a notebook it shows what the program printed and displayed. What comes from the program is
    escaped there, and its HTML can't run scripts.
    """

    __slots__ = ("_attachments", "_data", "_error", "_files", "_result", "index")

    def __init__(
        self,
        result: Message,
        data: Message | None = None,
        files: dict[str, int] | None = None,
        attachments: Sequence[bytearray] = (),
        index: int | None = None,
    ) -> None:
        self._result = result
        self._data = data
        self._files = files or {}
        self._attachments = attachments
        self._error: PoolError | None = None
        self.index = index
        """The place of its job among those that `map` was given, from 0."""

    @classmethod
    def not_run(cls, error: PoolError, index: int | None = None) -> Outcome:
        """Returns the outcome of a job that the pool couldn't run."""
        outcome = cls(_result_of(error), index=index)
        outcome._error = error
        return outcome

    @property
    def status(self) -> Status:
        """How it ended, in one word: `not_run` if the pool couldn't run it, which only `map` has as
        an outcome."""
        status: Status = self._result["status"]
        return status

    @property
    def success(self) -> bool:
        """Whether the program ran to its end, or left with `sys.exit(0)`."""
        return bool(self._result["success"])

    @property
    def passed(self) -> bool:
        """Whether the program ran to its very end, so that all of it has run. What grades code
        uses this: a program that calls `sys.exit(0)` is a success but hasn't passed."""
        return bool(self._result["passed"])

    @property
    def value(self) -> Any:
        """The value of the last expression: what JSON can hold, and what variables can be beside
        that, such as tuples, sets, dates, bytes, arrays and frames. `None` if it is `None`, or
        something else: then `value_missing` says why, and `get_value` raises.

        Raises:
            UnsupportedValueError: It is an array or a frame, and NumPy or pandas isn't here.
        """
        plain = self._result["value"]
        if self._data is None:
            return plain
        if plain is not None and self._data["kind"] == "array":
            return plain  # a number of NumPy
        return _values.load(self._data, self._attachments)

    @property
    def value_missing(self) -> str | None:
        """Why `value` isn't what the last expression is, in words; `None` if it is."""
        if self.has_value:
            return None
        reason = self._result.get("value_missing") or "it can't be passed"
        return f"the value {_cut(self.repr or '', 60)} isn't here: {reason}"

    def get_value(self) -> Any:
        """Returns `value` if it is what the last expression is, and raises otherwise.

        Raises:
            UnsupportedValueError: It can't be passed, or is larger than a limit; the text says why.
            HatcheryError: The program wasn't a success; see `raise_for_status`.
        """
        self.raise_for_status()
        if (reason := self.value_missing) is not None:
            raise UnsupportedValueError(reason)
        return self.value

    @property
    def has_value(self) -> bool:
        """Whether `value` is what the last expression is: false if only its `repr` is known."""
        return self._data is not None or self._result["value"] is not None or self.repr is None

    @property
    def repr(self) -> str | None:
        """The `repr` of the last expression, unless that is `None`."""
        text: str | None = self._result["repr"]
        return text

    @property
    def stdout(self) -> str:
        """What the program wrote to standard output."""
        return str(self._result["stdout"])

    @property
    def stderr(self) -> str:
        """What the program wrote to standard error."""
        return str(self._result["stderr"])

    @property
    def truncated(self) -> bool:
        """Whether output beyond the limit was dropped."""
        return bool(self._result["truncated"])

    @property
    def bundle(self) -> dict[str, str]:
        """The last expression in the forms that notebooks know: MIME types and texts, bytes in
        base64. Made by the program: don't trust its HTML."""
        return dict(self._result["bundle"] or {})

    @property
    def displays(self) -> list[dict[str, str]]:
        """What the program displayed, each in forms as in `bundle`."""
        return list(self._result["displays"])

    @property
    def figures(self) -> list[bytes]:
        """The displays that are PNG images."""
        images = (display.get("image/png") for display in self.displays)
        return [base64.b64decode(image) for image in images if image]

    @property
    def files(self) -> dict[str, ChangedFile]:
        """Files that the program created, modified or deleted, by path."""
        return {file["path"]: self._changed_file(file) for file in self._result["files"]}

    def _changed_file(self, file: Message) -> ChangedFile:
        place = self._files.get(file["path"])
        data = None if place is None else bytes(self._attachments[place])
        return ChangedFile(file["path"], file["change"], data, file["bytes"])

    @property
    def exception(self) -> ProgramException | None:
        """The exception that ended the program."""
        error = self._result["error"]
        if not error or error["kind"] != "exception":
            return None
        traceback = str(self._result["exception"])
        return ProgramException(error["type"], error["message"], traceback, dict(error))

    @property
    def limit(self) -> LimitHit | None:
        """The limit that ended the program."""
        error = self._result["error"]
        if not error or error["kind"] != "limit":
            return None
        return LimitHit(error["limit"], error["allowed"], error["used"])

    def _ran_out_of_memory(self) -> bool:
        """Whether it ended because it got no more memory, which Python tells as `MemoryError`, and
        as a crash where it finds no memory for that."""
        has_met = any(hit.limit == "memory" for hit in self.limits_met)
        if self.status == "exited":
            return has_met and self.exit_code in _CRASHES
        exception = self.exception
        if exception is None:
            return False
        if exception.message.startswith(_TOO_BIG):
            return True
        if not exception.type.endswith("MemoryError"):
            return False
        # One request may be more than any interpreter can address. A program may also raise it.
        frames = exception.details.get("frames") or [{}]
        return has_met or not str(frames[-1].get("source_line", "")).lstrip().startswith("raise")

    @property
    def limits_met(self) -> list[LimitHit]:
        """Limits that the program reached without ending."""
        hits = self._result["limits_met"]
        return [LimitHit(hit["limit"], hit["allowed"], hit["used"]) for hit in hits]

    @property
    def requests(self) -> list[Request]:
        """The program's requests over HTTP, in the order in which they began."""
        return [Request(**request) for request in self._result.get("requests", ())]

    @property
    def timed_out(self) -> bool:
        """Whether a limit on time or a deadline ended it."""
        return bool(self._result["timed_out"])

    @property
    def exit_code(self) -> int | None:
        """The code with which the program left, if it did."""
        code: int | None = self._result["exit_code"]
        return code

    @property
    def message(self) -> str | None:
        """Why it isn't a success, in words; or the argument of `sys.exit`."""
        error = self._result["error"]
        text: str | None = error["message"] if error else self._result["message"]
        return text

    @property
    def interrupted_at(self) -> str | None:
        """The traceback of where an interrupt ended the program."""
        text: str | None = self._result["interrupted_at"]
        return text

    @property
    def session_restored(self) -> bool:
        """Whether the program was ended by force, and its session is as it was before it."""
        return bool(self._result["session_restored"])

    @property
    def usage(self) -> Usage:
        """What the job used."""
        usage = self._result["usage"]
        return Usage(**{name: usage[name] for name in Usage.__dataclass_fields__})

    def to_dict(self) -> dict[str, Any]:
        """Returns the object that `hatchery tool schema --result` describes."""
        return dict(self._result)

    def raise_for_status(self) -> Outcome:
        """Returns this outcome if it is a success, and raises otherwise.

        Raises:
            ProgramError: The program raised an exception, left with another code than 0, or broke
                what its result is made of.
            LimitError: A limit ended the program.
            PoolError: The sandbox failed, or the pool couldn't run the job.
            concurrent.futures.CancelledError: The job was cancelled.
        """
        if self.success:
            return self
        if self._error is not None:
            raise self._error
        message = self.message or ""
        status = self.status
        if self._ran_out_of_memory():
            text = "the program needed more memory than it may have"
            raise MemoryLimitError(f"{text}: {message}" if message else text, self)
        if status == "raised":
            traceback = self._result["exception"] or message
            raise ProgramRaisedError(f"the program raised an exception\n{traceback.rstrip()}", self)
        if status == "exited":
            text = f"the program left with the code {self.exit_code}"
            raise ProgramExitedError(f"{text}: {message}" if message else text, self)
        if status == "limit":
            raise self._limit_error()(message, self)
        if status == "tampered":
            raise ProgramTamperedError(message, self)
        if status == "cancelled":
            raise CancelledError(message)
        if self._result["error"] and self._result["error"]["kind"] == "usage":
            raise InvalidJobError(message)
        if status == "completed":
            message = "the program ended by force, and its session is as it was before"
        raise SandboxFailedError(message, self)

    def _limit_error(self) -> type[LimitError]:
        if self.timed_out:
            return TimeLimitError
        limit = self.limit
        return MemoryLimitError if limit and limit.limit == "memory" else LimitError

    def __repr__(self) -> str:
        parts: list[str] = [self.status]
        if self.repr is not None:
            parts.append(f"value={_cut(self.repr, 60)}")
        if self.stdout:
            parts.append(f"stdout={_cut(repr(self.stdout), 60)}")
        if exception := self.exception:
            message = _cut(repr(exception.message), 80) if exception.message else ""
            parts.append(f"{exception.type}({message})")
        elif not self.success and self.message:
            parts.append(f"message={_cut(repr(self.message), 80)}")
        return f"<Outcome {' '.join(parts)}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        parts = []
        if self.stdout:
            parts.append(_preformatted(self.stdout))
        if self.stderr:
            parts.append(_preformatted(self.stderr, "color: #a00"))
        parts.extend(_shown(display) for display in self.displays)
        if self.bundle or self.repr is not None:
            parts.append(_shown({"text/plain": self.repr or "", **self.bundle}))
        if (reason := self.value_missing) is not None:
            parts.append(_preformatted(reason, "color: #777"))
        if not self.success:
            error = self._result["exception"] or self.message or self.status
            parts.append(_preformatted(error, "color: #a00"))
        return "\n".join(parts)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in self.__slots__}
        state["_attachments"] = list(self._attachments)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


_NOT_RUN: Message = {
    "status": "not_run",
    "success": False,
    "passed": False,
    "stdout": "",
    "stderr": "",
    "truncated": False,
    "exception": None,
    "value": None,
    "repr": None,
    "bundle": None,
    "displays": [],
    "files": [],
    "exit_code": None,
    "message": None,
    "interrupted_at": None,
    "session_restored": False,
    "timed_out": False,
    "limits_met": [],
    "execution_time": 0.0,
    "usage": dict.fromkeys(Usage.__dataclass_fields__, 0),
}


def _result_of(error: PoolError) -> Message:
    """Returns the result of a job that wasn't run, as of `hatchery tool schema --result`."""
    if isinstance(error, (InvalidJobError, UnknownSessionError, UnsupportedValueError)):
        kind = "usage"
    else:
        kind = "refused" if isinstance(error, RefusedError) else "sandbox"
    return {**_NOT_RUN, "error": {"kind": kind, "message": str(error)}}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _preformatted(text: str, style: str = "") -> str:
    return f'<pre style="{style}">{html.escape(text)}</pre>'


def _shown(bundle: dict[str, str]) -> str:
    """Returns what a program displays as HTML that can do nothing to the page around it."""
    for kind in ("image/png", "image/jpeg"):
        if kind in bundle:
            return _image(kind, base64.b64decode(bundle[kind]))
    if "image/svg+xml" in bundle:
        # An image runs no scripts.
        return _image("image/svg+xml", bundle["image/svg+xml"].encode())
    if "text/html" in bundle:
        page = html.escape(bundle["text/html"])
        style = "border: 0; width: 100%; height: 20em; resize: vertical"
        return f'<iframe sandbox="" srcdoc="{page}" style="{style}"></iframe>'
    return _preformatted(bundle.get("text/plain", ""))


def _image(kind: str, contents: bytes) -> str:
    return f'<img src="data:{kind};base64,{base64.b64encode(contents).decode()}">'
