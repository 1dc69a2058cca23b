"""Many jobs, a bounded number of them in progress at once. The caller does the waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Union

from hatchery_sandbox._errors import (
    ConnectionLostError,
    InvalidJobError,
    PoolClosedError,
    PoolError,
    RefusedError,
    StartError,
)
from hatchery_sandbox._future import Future
from hatchery_sandbox._job import Job
from hatchery_sandbox._outcome import Outcome
from hatchery_sandbox._progress import Bar

Step = Union[Outcome, float, None]
"""What comes next: an outcome, or to wait until woken, or at most for so many seconds."""

_WINDOW = 512
"""Jobs in progress at once: enough for any number of workers."""
_RETRY_SECONDS = 0.05
_MOST_LOSSES = 10
"""How often one job is sent again after its server has ended, since it may be what ends it."""
_MOST_STARTS = 5
"""How often a server that has ended may fail to start again, one time after the other."""

PASSING = frozenset(
    ("queue_full", "queue_bytes", "tenant_queue_full", "tenant_queue_bytes", "memory", "requests")
)
"""Reasons of refusals that pass by themselves."""


class _Retries:
    """Decides which jobs are sent again."""

    def __init__(self) -> None:
        self._losses: dict[int, int] = {}
        self._failed_starts = 0

    def delay(self, index: int, error: Exception) -> float | None:
        """Returns after how many seconds the job with this index is sent again; `None` if it isn't.

        Raises:
            PoolError: No job can be run any more.
        """
        if isinstance(error, PoolClosedError):
            raise error
        if isinstance(error, RefusedError) and error.reason in PASSING:
            return error.retry_after or _RETRY_SECONDS
        if isinstance(error, ConnectionLostError):
            losses = self._losses[index] = self._losses.get(index, 0) + 1
            return _RETRY_SECONDS if losses <= _MOST_LOSSES else None
        if isinstance(error, StartError):
            self._failed_starts += 1
            # One that has never run won't run later either.
            if not self._losses or self._failed_starts > _MOST_STARTS:
                raise error
            return _RETRY_SECONDS * 2.0**self._failed_starts
        return None

    def end(self, index: int) -> None:
        """Says that the pool has run this job."""
        self._losses.pop(index, None)
        self._failed_starts = 0


def mapping(
    start: Callable[[int, Union[str, Job]], Future[Outcome]],
    jobs: Iterator[Union[str, Job]],
    ordered: bool,
    bar: Bar,
    wake: Callable[[], object],
) -> Generator[Step, None, None]:
    """Starts jobs as others end, and yields outcomes and when to wait. Cancels what is under way
    when it is closed."""
    ended: deque[Future[Outcome]] = deque()
    failed: deque[tuple[int, Union[str, Job], Exception]] = deque()
    under_way: dict[Future[Outcome], tuple[int, Union[str, Job]]] = {}
    again: list[tuple[int, Union[str, Job]]] = []
    seconds = 0.0
    held: dict[int, Outcome] = {}
    retries = _Retries()
    taken = yielded = 0
    has_more = True

    def end(future: Future[Outcome]) -> None:
        ended.append(future)
        wake()

    def begin(index: int, job: Union[str, Job]) -> None:
        try:
            future = start(index, job)
        except (TypeError, ValueError, OSError, PoolError) as error:
            failed.append((index, job, error))
            return
        under_way[future] = index, job
        future.call_when_done(lambda _: end(future))

    def take_ended() -> Outcome | None:
        future = ended.popleft()
        index, job = under_way.pop(future)
        try:
            outcome = future.result()
        except PoolError as error:
            failed.append((index, job, error))
            return None
        retries.end(index)
        return outcome

    try:
        while True:
            # Outcomes that wait for an earlier one count, so that one slow job doesn't fill memory.
            while has_more and len(under_way) + len(held) + len(failed) + len(again) < _WINDOW:
                try:
                    job = next(jobs)
                except StopIteration:
                    has_more = False
                    break
                begin(taken, job)
                taken += 1
            if ended:
                if (outcome := take_ended()) is None:
                    continue
            elif failed:
                index, job, error = failed.popleft()
                if (delay := retries.delay(index, error)) is not None:
                    again.append((index, job))
                    seconds = max(seconds, delay)
                    continue
                outcome = Outcome.not_run(_pool_error(error), index)
            elif again:
                yield seconds
                seconds, sent_again, again = 0.0, again, []
                for index, job in sent_again:
                    begin(index, job)
                continue
            elif under_way:
                yield None
                continue
            else:
                return
            bar.update(1)
            if not ordered:
                yield outcome
                continue
            held[outcome.index or 0] = outcome
            while yielded in held:
                yield held.pop(yielded)
                yielded += 1
    finally:
        for future in under_way:
            future.cancel()
        bar.close()


def _pool_error(error: Exception) -> PoolError:
    """Returns why a job wasn't run; an invalid option is a `TypeError` or so."""
    if isinstance(error, PoolError):
        return error
    invalid = InvalidJobError(str(error))
    invalid.__cause__ = error
    return invalid
