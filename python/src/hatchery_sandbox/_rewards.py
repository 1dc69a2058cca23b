"""Rewards of generated programs, for trainers."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hatchery_sandbox import _grading
from hatchery_sandbox._errors import InvalidJobError, PoolClosedError, PoolError, StartError
from hatchery_sandbox._pool import Pool

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger("hatchery_sandbox")

_BLOCK = re.compile(r"```(?:python|python3|py)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_SAMPLE = ("completion", "solution", "program", "code")
"""The fields of a sample for `hatchery grade`; all others are its task's."""


def rewards(
    samples: Iterable[Mapping[str, Any]],
    *,
    pool: Pool | None = None,
    cpu_time: float = 10.0,
    partial: bool = False,
    attempts: int = 3,
    **options: Unpack[_grading.Options],
) -> list[float | None]:
    """Returns the reward of each sample: 1.0 if its program passes all tests of its task, otherwise 0.0.

    It is `None` if that isn't known: the engine can't decide the sample, its task can't be graded, or the
    sandbox or the server failed each time. So a failure that isn't the program's is never a reward. The
    log of `hatchery_sandbox` has the reason.

    ```
    rewards([{"answer": "```python\\ndef double(x): return 2 * x\\n```", "tests": "assert double(2) == 4"}])
    ```

    The tests run in an interpreter that the program can't reach. See the guide on grading for the forms
    of tasks.

    Args:
        samples: The fields of a task, such as `tests`, and an `answer`: what the model wrote, as text or
            as messages, whose last block of Python is the program. With a `solution` or a `completion` in
            place of it, that is the program, or what follows the task's `prompt`.
        pool: Grades with the packages and the Python build of this pool. Default: one of this process.
        cpu_time: CPU time of each program on all its tests, in seconds.
        partial: Whether a reward is the part of the tests that pass.
        attempts: How often a sample is tried while the sandbox or the server fails, at least 1.
        options: See `hatchery_sandbox.grade.grade`.

    Raises:
        ValueError: A sample has no answer.
        StartError, PoolClosedError: There is no pool, after all attempts.
    """
    requests = [_request(sample, cpu_time, options) for sample in samples]
    found: list[float | None] = [None] * len(requests)
    left = list(range(len(requests)))
    for attempt in range(attempts):
        is_last = attempt == attempts - 1
        failed = []
        graded = _grading.lines(pool or _grading.shared_pool(), (requests[index] for index in left))
        for place, line in graded:
            index = left[place]
            if isinstance(line, PoolClosedError) or (is_last and isinstance(line, StartError)):
                raise line
            if not isinstance(line, PoolError):
                found[index] = _reward(index, line, partial)
            elif isinstance(line, InvalidJobError) or is_last:
                logger.warning("sample %d has no reward: %s", index, line)
            else:
                failed.append(index)
        left = sorted(failed)
        if not left:
            break
    return found


def _request(
    sample: Mapping[str, Any], cpu_time: float, options: _grading.Options
) -> dict[str, Any]:
    task = {"task_id": "sample", **sample}
    if "answer" in sample:
        program = {"solution": code_of(task.pop("answer"))}
        return _grading.message(task, program, cpu_time, options)
    name = next((name for name in _SAMPLE if name in sample), None)
    if name is None:
        raise ValueError(
            "a sample needs an `answer`, a `solution` or a `completion` beside the fields of its task; "
            f"it has {', '.join(sample) or 'nothing'}"
        )
    return _grading.message(task, {name: task.pop(name)}, cpu_time, options)


def code_of(answer: str | Iterable[Mapping[str, Any]]) -> str:
    """Returns the program in what a model wrote: the last block of Python after its thoughts, or all of
    it if there is no block. Of messages, it is that of the last one."""
    text = answer if isinstance(answer, str) else _text(list(answer)[-1].get("content"))
    text = text.rpartition("</think>")[2]
    blocks = _BLOCK.findall(text)
    return str(blocks[-1]) if blocks else text


def _text(content: Any) -> str:
    """Returns the text of a message, whose content may be in parts."""
    if isinstance(content, (list, tuple)):
        return "".join(part if isinstance(part, str) else part.get("text") or "" for part in content)
    return content or ""


def _reward(index: int, line: Mapping[str, Any], partial: bool) -> float | None:
    if line["verdict"] in _grading.UNDECIDED:
        logger.warning("sample %d has no reward: %s: %s", index, line["verdict"], line["message"])
        return None
    if line["verdict"] == "passed":
        return 1.0
    return line["tests_passed"] / max(line["tests_total"], 1) if partial else 0.0
