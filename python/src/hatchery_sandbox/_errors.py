"""Exceptions, in three families by their cause: the program, a limit, and the pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hatchery_sandbox._outcome import Outcome, ProgramException


class HatcheryError(Exception):
    """Anything that a job or its pool reports. Exactly one of three families: `ProgramError`,
    `LimitError` or `PoolError`."""


class ProgramError(HatcheryError):
    """The program raised, exited, or damaged its interpreter."""

    def __init__(self, message: str, outcome: Outcome | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome
        """The whole outcome."""


class ProgramRaisedError(ProgramError):
    """The program raised an exception. The text is the program's traceback."""

    @property
    def exception(self) -> ProgramException:
        """The exception as data."""
        exception = self.outcome.exception if self.outcome else None
        assert exception is not None, "the outcome says that the program raised"
        return exception


class ProgramExitedError(ProgramError):
    """The program left with another code than 0, by `sys.exit` or `os._exit`."""


class ProgramTamperedError(ProgramError):
    """The program damaged the interpreter that reports its result."""


class LimitError(HatcheryError):
    """A limit ended the program."""

    def __init__(self, message: str, outcome: Outcome | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome
        """The whole outcome."""

    @property
    def limit(self) -> str:
        """Which limit: `wall`, `cpu`, `memory`, `output` and so on."""
        hit = self.outcome.limit if self.outcome else None
        return hit.limit if hit else ""


class TimeLimitError(LimitError):
    """A limit on wall time or CPU time, or a deadline, ended the program."""


class MemoryLimitError(LimitError):
    """The program needed more memory than it may have: it ended by `MemoryError`, or, where not even
    that could be raised, by a crash."""

    @property
    def limit(self) -> str:
        return super().limit or "memory"


class PoolError(HatcheryError):
    """The pool couldn't run the job; the program isn't at fault."""


class StartError(PoolError):
    """The pool couldn't be started or reached."""


class PoolClosedError(PoolError):
    """The pool was closed by this process."""


class ConnectionLostError(PoolError):
    """The server ended, or the connection to it failed, while the job was in progress."""


class SandboxFailedError(PoolError):
    """The sandbox failed while it ran the job."""

    def __init__(self, message: str, outcome: Outcome | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome
        """The whole outcome."""


class RefusedError(PoolError):
    """The pool refused the job or the request, which may succeed later."""

    def __init__(
        self, message: str, reason: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        """One word, such as `queue_full`."""
        self.retry_after = retry_after
        """Seconds after which the same request may be accepted, if that is known."""


class InvalidJobError(PoolError, ValueError):
    """The job is invalid; the same job fails again."""


class UnknownSessionError(PoolError, LookupError):
    """There is no open session of this name: it was closed or lost, or never opened."""


class UnsupportedValueError(PoolError, TypeError):
    """A value can't pass between a program and its host."""


class HostError(Exception):
    """Raised by a host function, it is raised in the program as an exception of a type's name.

    ```
    raise HostError("KeyError", "sofa")
    ```
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        """The name of the exception's type in the program, such as `KeyError`."""
        self.message = message


def of_problem(problem: dict[str, Any]) -> PoolError:
    """Returns the exception for the `problem` of a refusal."""
    message = str(problem.get("message", "the request was refused"))
    # What was sent is a message to the server; its caller knows of a job.
    message = message.removeprefix("the message is invalid: ").replace("`deterministic.seed`", "`seed`")
    kind, reason = problem.get("kind"), problem.get("reason")
    if reason in ("no_session", "session_gone"):
        return UnknownSessionError(message)
    if kind == "usage":
        return InvalidJobError(message)
    if kind == "refused":
        return RefusedError(message, reason, problem.get("retry_after"))
    return SandboxFailedError(message)
