"""The metric `code_eval` of Hugging Face's `evaluate` with sandboxes.

lm-eval and the bigcode harness load it while they are imported, so call `install()` before that:

```
import hatchery_sandbox.code_eval
hatchery_sandbox.code_eval.install()
```
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hatchery_sandbox import _grading
from hatchery_sandbox._pool import Pool

__all__ = ["CodeEval", "compute", "install"]


def compute(
    references: Sequence[str],
    predictions: Sequence[Sequence[str]],
    k: Sequence[int] = (1, 10, 100),
    num_workers: int = 4,
    timeout: float = 3.0,
    *,
    pool: Pool | None = None,
) -> tuple[dict[str, float], dict[int, list[tuple[int, dict[str, Any]]]]]:
    """Runs each task's test with each of its candidates.

    Args:
        references: A test for each task.
        predictions: The candidates for each task.
        k: For which numbers of samples to estimate pass@k; left out if a task has fewer.
        num_workers: Programs that run at once; never more than there are CPUs.
        timeout: Seconds of CPU time that a program may take.
        pool: Runs them in this pool instead.

    Returns:
        The estimates by name, and by task the number and the verdict of each candidate.
    """
    tasks = [
        (task, number, f"{candidate}\n{test}")
        for task, (candidates, test) in enumerate(zip(predictions, references))
        for number, candidate in enumerate(candidates)
    ]
    results: defaultdict[int, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    programs = (program for _, _, program in tasks)
    for index, verdict in _grading.grade(pool or _grading.shared_pool(num_workers), programs, timeout):
        task, number, _ = tasks[index]
        result = {
            "task_id": task,
            "passed": verdict.passed,
            "result": verdict.result,
            "completion_id": number,
        }
        results[task].append((number, result))
    for verdicts in results.values():
        verdicts.sort(key=lambda numbered: numbered[0])
    counts = [
        (len(verdicts), sum(result["passed"] for _, result in verdicts))
        for _, verdicts in sorted(results.items())
    ]
    averages = {
        f"pass@{most}": sum(_grading.pass_at_k(*count, most) for count in counts) / len(counts)
        for most in k
        if counts and all(total >= most for total, _ in counts)
    }
    return averages, results


class CodeEval:
    """What `evaluate.load("code_eval")` returns, as far as harnesses use it."""

    name = "code_eval"

    def compute(self, **arguments: Any) -> tuple[dict[str, float], dict[int, Any]]:
        """See `compute`."""
        return compute(**arguments)


def install() -> None:
    """Makes `evaluate.load("code_eval")` return this metric; all others are loaded as before."""
    evaluate: Any = __import__("evaluate")
    original = evaluate.load
    if getattr(original, "is_of_hatchery", False):
        return

    @functools.wraps(original)
    def load(path: str, *arguments: Any, **keywords: Any) -> Any:
        return CodeEval() if path == "code_eval" else original(path, *arguments, **keywords)

    load.is_of_hatchery = True  # type: ignore[attr-defined]
    evaluate.load = load
