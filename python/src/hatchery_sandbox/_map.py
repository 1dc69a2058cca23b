"""Many jobs, a bounded number of which is under way at once. Whoever drives it does the waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Union

from hatchery_sandbox._errors import RefusedError
from hatchery_sandbox._future import Future
from hatchery_sandbox._job import Job
from hatchery_sandbox._outcome import Outcome
from hatchery_sandbox._progress import Bar

Step = Union[Outcome, float, None]
"""What comes next: an outcome, or to wait until woken, or at most for so many seconds."""

_WINDOW = 512
"""Jobs that are under way at once: enough for any number of workers."""
_RETRY_SECONDS = 0.05

_PASSING = frozenset(
    ("queue_full", "queue_bytes", "tenant_queue_full", "tenant_queue_bytes", "memory", "requests")
)
"""Reasons of refusals that pass by themselves."""


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
    under_way: dict[Future[Outcome], tuple[int, Union[str, Job]]] = {}
    held: dict[int, Outcome] = {}
    taken = yielded = 0
    has_more = True

    def end(future: Future[Outcome]) -> None:
        ended.append(future)
        wake()

    def begin(index: int, job: Union[str, Job]) -> None:
        future = start(index, job)
        under_way[future] = index, job
        future.add_done_callback(lambda _: end(future))

    try:
        while True:
            # Outcomes that wait for an earlier one count, so that one slow job doesn't fill memory.
            while has_more and len(under_way) + len(held) < _WINDOW:
                job = next(jobs, None)
                if job is None:
                    has_more = False
                    break
                begin(taken, job)
                taken += 1
            if not under_way:
                return
            while not ended:
                yield None
            future = ended.popleft()
            index, job = under_way.pop(future)
            try:
                outcome = future.result()
            except RefusedError as refused:
                if refused.reason not in _PASSING:
                    raise
                yield refused.retry_after or _RETRY_SECONDS
                begin(index, job)
                continue
            bar.update(1)
            if not ordered:
                yield outcome
                continue
            held[index] = outcome
            while yielded in held:
                yield held.pop(yielded)
                yielded += 1
    finally:
        for future in under_way:
            future.cancel()
        bar.close()
