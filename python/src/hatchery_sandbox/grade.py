"""Grades generated code against tests that it can't reach, by the command `hatchery grade`.

```
from hatchery_sandbox.grade import grade

report = grade("HumanEval.jsonl.gz", [{"task_id": "HumanEval/0", "completion": "    return False"}])
print(report.pass_at[1], [result.verdict for result in report.results])
```

Tasks have the form of a data set, such as human-eval, EvalPlus, BigCodeBench, DS-1000 or
LiveCodeBench, or a plain one; the guide lists them. A candidate and its tests run in two
interpreters, so it can't pass by patching, forging or reading anything. The command starts a
separate pool, with two workers for each sample that is graded at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Union

from hatchery_sandbox._errors import PoolError
from hatchery_sandbox._grading import UNDECIDED, in_python
from hatchery_sandbox._process import find_binary

__all__ = ["Estimate", "Report", "Result", "compare", "grade"]

PathLike = Union[str, "os.PathLike[str]"]
Lines = Union[PathLike, Iterable[Mapping[str, Any]]]

_GRADED = (0, 1)
"""Exit codes after which there is a report: all passed, or not."""


@dataclass(frozen=True)
class Estimate:
    """An estimate with its 95 % interval, each from 0 to 1."""

    value: float
    low: float
    high: float
    method: str
    """How the interval was computed: `wilson` or `bootstrap`."""


@dataclass(frozen=True)
class Result:
    """The verdict on a sample."""

    task_id: str
    sample: int
    """Its number among the samples of its task, from 0."""
    verdict: str
    """`passed`, `failed`, `undecided`, `error` (its code can't be run), `task_error` (its task can't be
    graded), `limit` or `sandbox`."""
    limit: str | None
    """Which limit it reached."""
    message: str
    tests_passed: int
    tests_total: int
    guarded: bool
    """Whether the tests ran where the candidate can't reach them."""
    cpu_ms: float
    failures: tuple[tuple[str, str], ...] = field(repr=False)
    """The first tests that failed, with what was wrong."""

    @property
    def passed(self) -> bool | None:
        """Whether all tests passed; `None` if nothing is known of the sample: `undecided`, `task_error` or
        `sandbox`."""
        return None if self.verdict in (*UNDECIDED, "sandbox") else self.verdict == "passed"

    @property
    def credit(self) -> float | None:
        """The part of the tests that passed, from 0 to 1; `None` if nothing is known of the sample."""
        if self.passed is None:
            return None
        return 1.0 if self.passed else self.tests_passed / max(self.tests_total, 1)


@dataclass(frozen=True)
class Report:
    """The report on all samples."""

    pass_at: dict[int, Estimate]
    """pass@k for each k for which there are enough samples of every task."""
    credit: Estimate | None
    """The mean part of tests that pass, over tasks."""
    results: tuple[Result, ...]
    """Each sample, as graded: not in the order of the samples."""


def grade(
    tasks: Lines,
    samples: Lines | None = None,
    *,
    k: Sequence[int] = (1, 10, 100),
    cpu_time: float = 40.0,
    timeout: float | None = None,
    memory: int | None = None,
    value_bytes: int | None = None,
    at_once: int | None = None,
    workers: int | None = None,
    allow_shared: bool = False,
    check_solutions: bool = True,
    challenge: bool = False,
    preload: Sequence[str] = (),
    out: PathLike | None = None,
    resume: bool = False,
    html: PathLike | None = None,
    binary: PathLike | None = None,
) -> Report:
    """Grades samples of tasks.

    Args:
        tasks: A file of JSON lines, which may be compressed by gzip or zstd, or the tasks.
        samples: The same for samples. Default: the programs that stand in the tasks.
        k: For which numbers of samples to estimate pass@k.
        cpu_time: CPU time of each sample on all its tests, in seconds.
        timeout: Wall time of each sample, in seconds. Default: ten times the CPU time, and at least 20.
        memory: Memory of each interpreter, in bytes. Default: that of `hatchery grade`.
        value_bytes: The largest value that a sample and its tests can pass each other, in bytes.
            Default: that of `hatchery grade`.
        at_once: Samples that are graded at once. Default: the number of CPUs.
        workers: The number of workers instead: a sample and its tests have one each.
        allow_shared: Whether tests that need the candidate's own interpreter run there, unguarded.
        check_solutions: Whether the tasks' own solutions are graded first.
        challenge: Whether MBPP's `challenge_test_list` is run, too.
        preload: Modules that are imported once for all samples.
        out: A file for the results, written as they come.
        resume: Whether results that are in `out` are kept.
        html: A file for the report as a page of HTML.
        binary: The program `hatchery`, as for `Pool`.

    Warns:
        UserWarning: Lines of the tasks or the samples can't be used; the others are graded.

    Raises:
        ValueError: The tasks or the samples can't be read, or none can be used.
        PoolError: The samples can't be graded.
    """
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(out) if out is not None else Path(folder, "results.jsonl")
        report = Path(folder, "report.json")
        command = [_file(folder, "tasks.jsonl", tasks)]
        if samples is not None:
            command.append(_file(folder, "samples.jsonl", samples))
        options = {
            "--out": kept,
            "--json": report,
            "-k": ",".join(map(str, k)),
            "--cpu-time": _seconds(cpu_time),
            "--timeout": None if timeout is None else _seconds(timeout),
            "--memory": None if memory is None else f"{memory}B",
            "--value-bytes": None if value_bytes is None else f"{value_bytes}B",
            "--at-once": at_once,
            "--workers": workers,
            "--preload": ",".join(preload) or None,
            "--html": html,
        }
        flags = {
            "--allow-shared": allow_shared,
            "--no-solutions": not check_solutions,
            "--challenge": challenge,
            "--resume": resume,
        }
        command += [f"{name}={value}" for name, value in options.items() if value is not None]
        command += [name for name, is_set in flags.items() if is_set]
        _run(binary, command, report)
        made = json.loads(report.read_text(encoding="utf-8"))
        lines = kept.read_text(encoding="utf-8").splitlines()
    pass_at = {int(number): Estimate(**estimate) for number, estimate in made["pass_at"].items()}
    credit = Estimate(**made["credit"]) if made["credit"] else None
    return Report(pass_at, credit, tuple(_result(json.loads(line)) for line in lines))


def compare(first: PathLike, second: PathLike, *, binary: PathLike | None = None) -> dict[str, Any]:
    """Compares two files of results: pass@1 of each, their paired difference with its interval, and
    the tasks that changed, as `hatchery grade --compare` does.

    Raises:
        ValueError: They can't be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "comparison.json")
        _run(binary, ["--compare", str(first), str(second), "--json", str(path)], path)
        compared: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return compared


def _run(binary: PathLike | None, arguments: Sequence[str], made: Path) -> None:
    command = [find_binary(binary), "--quiet", "grade", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode in _GRADED:
        return
    told = in_python(done.stderr.decode(errors="replace").strip())
    if done.returncode == 2 and made.exists():
        warnings.warn(told, stacklevel=3)
        return
    if done.returncode == 2:
        raise ValueError(told)
    raise PoolError(told or f"`hatchery grade` ended with the code {done.returncode}")


def _file(folder: str, name: str, lines: Lines) -> str:
    if isinstance(lines, (str, os.PathLike)):
        return os.fspath(lines)
    path = Path(folder, name)
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(dict(line)) + "\n")
    return str(path)


def _seconds(seconds: float) -> str:
    return f"{round(seconds * 1e9)}ns"


def _result(line: dict[str, Any]) -> Result:
    given: dict[str, Any] = {each.name: line.get(each.name) for each in fields(Result)}
    failures = tuple((each["test"], in_python(each["message"])) for each in line.get("failures", ()))
    given.update(message=in_python(line.get("message", "")), failures=failures)
    return Result(**given)
