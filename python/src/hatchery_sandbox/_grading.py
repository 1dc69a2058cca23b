"""Verdicts on programs, for what grades generated code."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hatchery_sandbox import _progress
from hatchery_sandbox._errors import SandboxFailedError
from hatchery_sandbox._job import Job
from hatchery_sandbox._outcome import Outcome
from hatchery_sandbox._pool import Pool

_TRIES = 3
_WALL_FACTOR = 10
"""How many times the CPU time a program may take in all, so that a busy machine changes no verdict:
only a program that waits for something is ended by this."""
_LEAST_WALL_SECONDS = 20.0

PRELOAD = ("collections", "copy", "functools", "itertools", "math", "random", "re", "string", "typing")
"""What most samples import, so that it is imported once for all."""

_pool: Pool | None = None


@dataclass(frozen=True)
class Verdict:
    """What became of a program."""

    passed: bool
    """Whether it ran to its very end: a call of `sys.exit(0)` isn't one."""
    result: str
    """`passed`, `timed out` or `failed: …`."""


def shared_pool(workers: int | None = None) -> Pool:
    """Returns the pool of this process for grading, with at most one worker for each CPU."""
    global _pool
    if _pool is None or _pool.is_closed:
        cpus = os.cpu_count() or 1
        _pool = Pool(workers=min(workers or cpus, cpus), preload=PRELOAD)
        atexit.register(_pool.close)
    return _pool


def job(program: str, timeout: float) -> Job:
    """Returns the job for a program that may take this many seconds of CPU time."""
    wall = max(timeout * _WALL_FACTOR, _LEAST_WALL_SECONDS)
    return Job(program, cpu_time=timeout, timeout=wall, contents=False)


def verdict(outcome: Outcome) -> Verdict:
    """Returns the verdict on a program.

    Raises:
        SandboxFailedError: The sandbox failed, which says nothing about the program.
    """
    if outcome.status == "sandbox_failed":
        outcome.raise_for_status()
    if outcome.passed:
        return Verdict(True, "passed")
    if outcome.timed_out:
        return Verdict(False, "timed out")
    exception = outcome.exception
    return Verdict(False, f"failed: {exception.message if exception else outcome.message}")


def grade_one(pool: Pool, program: str, timeout: float) -> Verdict:
    """Runs a program, again if the sandbox fails."""
    for _ in range(_TRIES - 1):
        outcome = pool.run(job(program, timeout))
        if outcome.status != "sandbox_failed":
            return verdict(outcome)
    return verdict(pool.run(job(program, timeout)))


def grade(
    pool: Pool, programs: Iterable[str], timeout: float, progress: _progress.Progress = None
) -> Iterator[tuple[int, Verdict]]:
    """Runs many programs, and yields the place and the verdict of each as it ends."""
    kept = list(programs)
    jobs = [job(program, timeout) for program in kept]
    for outcome in pool.map(jobs, progress=progress):
        assert outcome.index is not None, "map numbers outcomes"
        try:
            yield outcome.index, verdict(outcome)
        except SandboxFailedError:
            yield outcome.index, grade_one(pool, kept[outcome.index], timeout)


def pass_at_k(total: int, correct: int, k: int) -> float:
    """Returns the estimate of pass@k: how likely one of k of these samples is correct."""
    if total - correct < k:
        return 1.0
    failing = 1.0
    for number in range(total - correct + 1, total + 1):
        failing *= 1.0 - k / number
    return 1.0 - failing
