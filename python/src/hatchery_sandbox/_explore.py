"""Search by programs that run on forks of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, Union

from hatchery_sandbox._errors import RefusedError
from hatchery_sandbox._job import Job
from hatchery_sandbox._map import PASSING
from hatchery_sandbox._outcome import Outcome

if TYPE_CHECKING:
    from hatchery_sandbox._future import Future

S = TypeVar("S")

Keep = Union[Literal["all", "none", "succeeded"], int, Callable[[Outcome], bool]]
"""Which forks of an exploration stay open."""

_FEWEST, _MOST = 4, 64
"""Candidates that run at once: at first, and while there is room."""


@dataclass(frozen=True)
class Explored(Generic[S]):
    """How one candidate of an exploration ended."""

    candidate: int
    """Its place among the candidates, from 0."""
    outcome: Outcome
    """Its outcome."""
    survivor: S | None
    """Its fork, if that stays open."""


class Exploration(Generic[S]):
    """What is decided in an exploration. Callers open the forks, and wait for what runs there."""

    def __init__(self, candidates: Iterable[str | Job], keep: Keep) -> None:
        is_count = isinstance(keep, int) and not isinstance(keep, bool) and keep >= 0
        if keep not in ("all", "none", "succeeded") and not callable(keep) and not is_count:
            known = "'all', 'none', 'succeeded', a number or a function"
            raise ValueError(f"keep must be {known}, not {keep!r}")
        self._keep = keep
        self._candidates = enumerate(candidates)
        self._waiting: list[tuple[int, str | Job]] = []
        self._kept = 0
        self._width = _FEWEST
        self._running: dict[Future[Outcome], tuple[int, str | Job, S]] = {}

    @property
    def is_over(self) -> bool:
        """Whether nothing runs; what could run has begun before."""
        return not self._running

    def wanted(self) -> int:
        """Returns for how many candidates a fork is to be opened now."""
        count = max(0, self._width - len(self._running))
        while len(self._waiting) < count and (candidate := next(self._candidates, None)):
            self._waiting.append(candidate)
        return min(count, len(self._waiting))

    def begin(
        self, forks: Sequence[S], submit: Callable[[S, str | Job], Future[Outcome]]
    ) -> None:
        """Runs the next candidates on these forks."""
        for fork in forks:
            index, candidate = self._waiting.pop(0)
            self._running[submit(fork, candidate)] = index, candidate, fork

    def was_refused(self, refused: RefusedError) -> None:
        """Records that there is no room for the forks that are wanted.

        Raises:
            RefusedError: Waiting for what runs doesn't help.
        """
        if refused.reason == "session_busy" or (not self._running and self._width == 1):
            raise refused
        # There may be room for fewer, or once another candidate has ended.
        self._width = max(1, min(self._width // 2, len(self._running)))

    def end(self, future: Future[Outcome]) -> Explored[S] | None:
        """Records that a candidate has ended; `None` if it is tried again."""
        index, candidate, fork = self._running.pop(future)
        try:
            outcome = future.result()
        except RefusedError as refused:
            if refused.reason not in PASSING or not self._running:
                raise
            self._waiting.insert(0, (index, candidate))
            self._width = len(self._running)
            return None
        self._width = min(self._width + 2, _MOST)
        is_kept = self._keeps(outcome)
        self._kept += is_kept
        # What isn't kept closes with its last reference.
        return Explored(index, outcome, fork if is_kept else None)

    def _keeps(self, outcome: Outcome) -> bool:
        if callable(self._keep):
            return bool(self._keep(outcome))
        if isinstance(self._keep, int):
            return outcome.success and self._kept < self._keep
        return self._keep == "all" or (self._keep == "succeeded" and outcome.success)

    def close(self) -> None:
        """Cancels what still runs; its forks close."""
        for future in list(self._running):
            future.cancel()
        self._running.clear()
