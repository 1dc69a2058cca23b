"""EvalPlus with sandboxes: its command and its functions, for HumanEval+ and MBPP+.

```
python -m hatchery_sandbox.evalplus --dataset humaneval --samples samples.jsonl
```

takes what `evalplus.evaluate` takes, and so does `evaluate` here. The engine of `hatchery grade` judges,
by EvalPlus's rules: outputs are compared in an interpreter that a solution can't reach, and where what
is expected isn't known to it. A solution that can't be decided has the status
`undecided`, the log says why, and no pass@k includes it. Unlike with EvalPlus, right solutions of HumanEval/32 pass.

A solution first runs on all inputs at once. If that takes too long, or the solution ends the program,
it runs again on fewer inputs, at last on one at a time, each with its own limit. Limits are CPU time, so
verdicts don't depend on how busy the machine is, and three times EvalPlus's, since a program takes up to
that much longer in WebAssembly. A sandbox has 1 GiB of memory where EvalPlus allows 4 GiB. The canonical
solutions, which are part of the data set, run on the host, as EvalPlus does it. `evalperf` stays as it is.
"""

from __future__ import annotations

import functools
import importlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hatchery_sandbox import _grading
from hatchery_sandbox._errors import UnsupportedValueError
from hatchery_sandbox._pool import Pool
from hatchery_sandbox._values import tagged

__all__ = ["evaluate", "install", "untrusted_check"]

logger = logging.getLogger("hatchery_sandbox")

_SLOWER = 3.0
"""How much longer a program may take than EvalPlus allows."""
_MOST_SECONDS = 60.0
"""CPU time of a solution on all inputs, unless `EVALPLUS_TIMEOUT_PER_TASK` says another; times
`_SLOWER`."""
_MOST_TOLD = 20
"""Failed tests that a line of results names."""

PASS, FAIL, TIMEOUT, UNDECIDED = "pass", "fail", "timeout", "undecided"


def evaluate(*arguments: Any, pool: Pool | None = None, **keywords: Any) -> None:
    """Does what `evalplus.evaluate.evaluate` does, in sandboxes.

    Args:
        pool: Grades with the packages and the Python build of this pool. Default: one of its own, with
            a worker for each CPU.
    """
    evaluation: Any = importlib.import_module("evalplus.evaluate")
    earlier = {name: getattr(evaluation, name) for name in _REPLACED}
    install(pool=pool)
    try:
        evaluation.evaluate(*arguments, **keywords)
    finally:
        vars(evaluation).update(earlier)


def install(*, pool: Pool | None = None) -> None:
    """Makes `evalplus.evaluate` use sandboxes from here on in this process.

    Args:
        pool: As for `evaluate`.
    """
    evaluation: Any = importlib.import_module("evalplus.evaluate")
    evaluation.untrusted_check = functools.partial(untrusted_check, pool=pool)
    # Its processes would start a pool each. Threads share one, and only wait for it.
    evaluation.ProcessPoolExecutor = ThreadPoolExecutor
    evaluation.estimate_pass_at_k = _estimate


_REPLACED = ("untrusted_check", "ProcessPoolExecutor", "estimate_pass_at_k")


def untrusted_check(
    dataset: str,
    code: str,
    inputs: Sequence[Any],
    entry_point: str,
    expected: Sequence[Any],
    atol: float,
    ref_time: Sequence[float],
    fast_check: bool = False,
    min_time_limit: float = 1.0,
    gt_time_limit_factor: float = 4.0,
    *,
    pool: Pool | None = None,
) -> tuple[str, list[bool]]:
    """Runs a solution on inputs and compares what it returns, as `evalplus.eval` does.

    Args:
        dataset: `humaneval` or `mbpp`.
        code: The solution, which is not trusted.
        inputs: Lists of arguments.
        entry_point: The function of the solution that is called. Some are compared in a way of their own.
        expected: What it should return for each input.
        atol: By how much numbers may differ.
        ref_time: How long the canonical solution takes for each input, in seconds.
        fast_check: Whether the first wrong output ends the check.
        min_time_limit: The least limit for an input, in seconds; see the module for what it means.
        gt_time_limit_factor: How many times as long as the canonical solution an input may take.
        pool: As for `evaluate`.

    Returns:
        `pass`, `fail`, `timeout` or `undecided`, and whether each output that was looked at is right.
    """
    try:
        given = [json.dumps([tagged("an input", value) for value in each]) for each in inputs]
        outputs = [json.dumps(tagged("an expected output", value)) for value in expected]
    except UnsupportedValueError as error:
        return _undecided(entry_point, str(error))
    task = {"task_id": f"{dataset}: {entry_point}", "prompt": "", "entry_point": entry_point, "atol": atol}
    limits = [max(min_time_limit, gt_time_limit_factor * time) * _SLOWER for time in ref_time]
    most = float(os.environ.get("EVALPLUS_TIMEOUT_PER_TASK", _MOST_SECONDS)) * _SLOWER
    left = min(sum(limits), most) + _SLOWER

    def grade(begin: int, end: int, seconds: float) -> dict[str, Any]:
        nonlocal left
        part = {**task, "base_input": given[begin:end], "expected": outputs[begin:end]}
        line = _grading.grade_one(pool, part, {"solution": code}, min(seconds, left))
        left -= line["cpu_ms"] / 1e3
        return line

    details: list[bool] = []
    count, is_loaded = len(given), False
    while len(details) < len(given):
        begin, end = len(details), min(len(details) + count, len(given))
        limit, allowed = min(limits[begin:end]), left
        if left <= 0:
            return TIMEOUT, details
        line = grade(begin, end, limit)
        if line["verdict"] in _grading.UNDECIDED:
            return _undecided(entry_point, line["message"]) if all(details) else (FAIL, details)
        if line["verdict"] == "error" or line["message"].startswith("call: "):
            return FAIL, []
        is_late = line.get("limit") in _grading.TIME_LIMITS
        if is_late and not is_loaded and left > 0:
            # Without inputs, the code alone runs, which may never end.
            is_loaded = grade(0, 0, left).get("limit") is None
            if not is_loaded:
                return TIMEOUT, []
        found = _details(line, end - begin, fast_check)
        if found is None and end - begin > 1:
            count = min(_MOST_TOLD, (end - begin) // 8) or 1
            continue
        if is_late and limit > allowed:
            return TIMEOUT, details
        details += found or [False]
        if fast_check and not all(details):
            return FAIL, details[: details.index(False) + 1]
    return PASS if all(details) else FAIL, details


def _details(line: dict[str, Any], count: int, fast_check: bool) -> list[bool] | None:
    """Returns whether each output is right; `None` if the line doesn't tell."""
    wrong = {int(failure["test"].split()[1]) - 1 for failure in line.get("failures", ())}
    if line["tests_total"] != count:
        return None
    if not fast_check and len(wrong) != count - line["tests_passed"]:
        return None
    return [place not in wrong for place in range(count)]


def _undecided(entry_point: str, why: str) -> tuple[str, list[bool]]:
    logger.warning("a solution of `%s` is undecided: %s", entry_point, why)
    return UNDECIDED, []


def _estimate(total: Any, correct: Any, k: int) -> Any:
    """Estimates pass@k for each problem, as `evalplus.eval` does, without undecided solutions."""
    frame = sys._getframe(1)
    while frame.f_back is not None and "results" not in frame.f_locals:
        frame = frame.f_back  # of a comprehension
    names = ["base_status"] if correct is frame.f_locals["base_correct"] else ["base_status", "plus_status"]
    tasks = frame.f_locals["results"]["eval"].values()
    decided = [sum(_is_decided({each[name] for name in names}) for each in task) for task in tasks]
    kept = [place for place, count in enumerate(decided) if count >= k]
    evaluation: Any = importlib.import_module("evalplus.eval")
    return evaluation.estimate_pass_at_k([decided[place] for place in kept], correct[kept], k)


def _is_decided(statuses: set[str]) -> bool:
    return UNDECIDED not in statuses or bool(statuses & {FAIL, TIMEOUT})


def main() -> None:
    """Does what the command `evalplus.evaluate` does, in sandboxes."""
    install()
    importlib.import_module("evalplus.evaluate").main()


if __name__ == "__main__":
    main()
