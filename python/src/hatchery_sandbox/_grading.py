"""Generated programs graded by the engine of `hatchery grade`, for the graders of this package."""

from __future__ import annotations

import atexit
import itertools
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent import futures
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from hatchery_sandbox import _progress
from hatchery_sandbox._errors import PoolError, SandboxFailedError
from hatchery_sandbox._pool import Pool

if TYPE_CHECKING:
    from typing_extensions import Unpack

_WINDOW = 64
"""Samples that a server is asked to grade before it has answered."""
_OPTION = re.compile(r"`--([a-z-]+)`(?: \(`Settings::\w+`\))?")
_RAISED = re.compile(rf"; {_OPTION.pattern} raises it")
_RAISING = ("cpu-time", "memory", "timeout", "value-bytes")
UNDECIDED = ("undecided", "task_error")
"""Verdicts that say nothing about a sample."""
TIME_LIMITS = ("cpu", "wall")

_pool: Pool | None = None
_lock = threading.Lock()


class Options(TypedDict, total=False):
    """How samples are graded, as for `hatchery_sandbox.grade.grade`."""

    memory: int
    value_bytes: int
    allow_shared: bool


@dataclass(frozen=True)
class Verdict:
    """The verdict on a sample."""

    passed: bool | None
    """Whether all tests passed; `None` if that is undecided."""
    result: str
    """`passed`, `timed out`, `failed: …`, `undecided: …` or `task_error: …`."""


def shared_pool(workers: int | None = None) -> Pool:
    """Returns the pool of this process for what is given none, with at most one worker for each CPU."""
    global _pool
    with _lock:
        if _pool is None or _pool.is_closed:
            cpus = os.cpu_count() or 1
            _pool = Pool(workers=min(workers or cpus, cpus))
            atexit.register(_pool.close)
        return _pool


def message(
    task: Mapping[str, Any], sample: Mapping[str, Any], timeout: float, options: Options
) -> dict[str, Any]:
    """Returns the request to grade a sample that may take this many seconds of CPU time."""
    return {"type": "grade", "task": task, "sample": sample, "cpu_time": timeout, **options}


def checked(line: dict[str, Any]) -> dict[str, Any]:
    """Returns a line of results that says something about the sample or its task.

    Raises:
        SandboxFailedError: The sandbox failed each time.
    """
    line["message"] = in_python(line.get("message", ""))
    if line["verdict"] == "sandbox":
        raise SandboxFailedError(line["message"])
    return line


def verdict(line: dict[str, Any]) -> Verdict:
    """Returns the verdict of a line of results."""
    name, told = line["verdict"], line["message"]
    if name in UNDECIDED:
        return Verdict(None, f"{name}: {told}")
    if name == "passed":
        return Verdict(True, name)
    return Verdict(False, "timed out" if line.get("limit") in TIME_LIMITS else f"failed: {told}")


def lines(
    pool: Pool, requests: Iterable[dict[str, Any]], progress: _progress.Progress = None
) -> Iterator[tuple[int, dict[str, Any] | PoolError]]:
    """Grades many samples, and yields the place of each and its line of results as it ends, or why there
    is none."""
    following = enumerate(requests)
    bar = _progress.bar(progress, None)
    waiting: dict[futures.Future[Any], int] = {}
    try:
        while True:
            for index, request in itertools.islice(following, _WINDOW - len(waiting)):
                waiting[pool._launcher.client().request(request)] = index
            if not waiting:
                break
            for done in futures.wait(waiting, return_when=futures.FIRST_COMPLETED).done:
                yield waiting.pop(done), _line(done)
                bar.update(1)
    finally:
        bar.close()


def _line(done: futures.Future[Any]) -> dict[str, Any] | PoolError:
    try:
        return checked(done.result()[0])
    except PoolError as error:
        return error


def grade(
    pool: Pool, requests: Iterable[dict[str, Any]], progress: _progress.Progress = None
) -> Iterator[tuple[int, Verdict]]:
    """Grades many samples, and yields the place and the verdict of each as it ends.

    Raises:
        PoolError: One couldn't be graded.
    """
    for index, line in lines(pool, requests, progress):
        if isinstance(line, PoolError):
            raise line
        yield index, verdict(line)


def grade_one(
    pool: Pool | None,
    task: Mapping[str, Any],
    sample: Mapping[str, Any],
    timeout: float,
    **options: Unpack[Options],
) -> dict[str, Any]:
    """Grades a sample, and returns its line of results."""
    line, _ = (pool or shared_pool()).request(message(task, sample, timeout, options))
    return checked(line)


def pass_at_k(total: int, correct: int, k: int) -> float:
    """Returns the estimate of pass@k: how likely one of k of these samples is correct."""
    if total - correct < k:
        return 1.0
    failing = 1.0
    for number in range(total - correct + 1, total + 1):
        failing *= 1.0 - k / number
    return 1.0 - failing


def averages(tasks: Iterable[list[bool | None]], ks: Iterable[int]) -> dict[str, float]:
    """Returns the mean pass@k of what became of each task's samples, for each k for which every task
    has enough. Undecided samples count neither way, nor do tasks with fewer than k others."""
    every = list(tasks)
    found = {}
    for k in ks:
        if every and all(len(samples) >= k for samples in every):
            decided = [[one for one in samples if one is not None] for samples in every]
            each = [pass_at_k(len(them), sum(them), k) for them in decided if len(them) >= k]
            found[f"pass@{k}"] = sum(each) / len(each) if each else float("nan")
    return found


def in_python(told: str) -> str:
    """Returns a message that names options by the names that they have here, and none that isn't here."""
    told = _RAISED.sub(lambda match: match[0] if match[1] in _RAISING else "", told)
    return _OPTION.sub(lambda match: f"`{match[1].replace('-', '_')}=`", told)
