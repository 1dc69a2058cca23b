"""The metric `code_eval` of Hugging Face's `evaluate` with sandboxes.

lm-eval and the bigcode harness load it while they are imported, so call `install()` before that:

```
import hatchery_sandbox.code_eval
hatchery_sandbox.code_eval.install()
```

The engine of `hatchery grade` judges: tests run in an interpreter that a candidate can't reach. `passed`
is `None` if a candidate can't be decided. `result` then begins with `undecided: ` or, if its test can't
be run, `task_error: `. No pass@k includes such candidates.
"""

from __future__ import annotations

import functools
import importlib
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hatchery_sandbox import _grading
from hatchery_sandbox._pool import Pool

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["CodeEval", "compute", "install"]


def compute(
    references: Sequence[str],
    predictions: Sequence[Sequence[str]],
    k: Sequence[int] = (1, 10, 100),
    num_workers: int = 4,
    timeout: float = 3.0,
    *,
    pool: Pool | None = None,
    **options: Unpack[_grading.Options],
) -> tuple[dict[str, float], dict[int, list[tuple[int, dict[str, Any]]]]]:
    """Runs each task's test with each of its candidates.

    Args:
        references: A test for each task.
        predictions: The candidates for each task.
        k: For which numbers of samples to estimate pass@k; left out if a task has fewer.
        num_workers: Candidates that are graded at once; never more than there are CPUs.
        timeout: Seconds of CPU time that a program may take.
        pool: Grades with the packages and the Python build of this pool, as many candidates at once as
            it has workers.
        options: See `hatchery_sandbox.grade.grade`.

    Returns:
        The estimates by name, and by task the number and the verdict of each candidate.
    """
    given = [
        (task, number, {"task_id": task, "tests": test}, {"solution": candidate})
        for task, (candidates, test) in enumerate(zip(predictions, references))
        for number, candidate in enumerate(candidates)
    ]
    requests = (_grading.message(task, sample, timeout, options) for *_, task, sample in given)
    results: defaultdict[int, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    for index, verdict in _grading.grade(pool or _grading.shared_pool(num_workers), requests):
        task, number, *_ = given[index]
        result = {"task_id": task, **vars(verdict), "completion_id": number}
        results[task].append((number, result))
    for verdicts in results.values():
        verdicts.sort(key=lambda numbered: numbered[0])
    tasks = ([result["passed"] for _, result in results[task]] for task in sorted(results))
    return _grading.averages(tasks, k), results


class CodeEval:
    """What `evaluate.load("code_eval")` returns, as far as harnesses use it."""

    name = "code_eval"

    def compute(self, **arguments: Any) -> tuple[dict[str, float], dict[int, Any]]:
        """See `compute`."""
        return compute(**arguments)


def install() -> None:
    """Makes `evaluate.load("code_eval")` return this metric; all others are loaded as before."""
    evaluate: Any = importlib.import_module("evaluate")
    original = evaluate.load
    if getattr(original, "is_of_hatchery", False):
        return

    @functools.wraps(original)
    def load(path: str, *arguments: Any, **keywords: Any) -> Any:
        return CodeEval() if path == "code_eval" else original(path, *arguments, **keywords)

    load.is_of_hatchery = True  # type: ignore[attr-defined]
    evaluate.load = load
