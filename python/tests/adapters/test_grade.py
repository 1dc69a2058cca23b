"""`hatchery grade` from Python."""

import json

import pytest

from hatchery_sandbox.grade import compare, grade

TASK = {"task_id": "t", "tests": ["assert f(1) == 2", "assert f(2) == 4"], "entry_point": "f"}
RIGHT = {"task_id": "t", "solution": "def f(x): return x * 2"}
WRONG = {"task_id": "t", "solution": "def f(x): return x + 1"}
EQUAL = "class Equal:\n    def __eq__(self, other): return True\ndef f(x): return Equal()"
CHEAT = {"task_id": "t", "solution": EQUAL}


def test_samples_are_graded(tmp_path):
    page = tmp_path / "report.html"
    report = grade([TASK], [RIGHT, WRONG, CHEAT], k=[1, 2], cpu_time=2, html=page)
    verdicts = {result.sample: result.verdict for result in report.results}
    assert verdicts == {0: "passed", 1: "failed", 2: "undecided"}
    # What is undecided counts neither for nor against, and trainers get `None` of it.
    assert {result.sample: result.passed for result in report.results} == {0: True, 1: False, 2: None}
    assert {result.sample: result.credit for result in report.results} == {0: 1.0, 1: 0.5, 2: None}
    assert (report.pass_at[1].value, report.pass_at[2].value) == (0.5, 1)
    (wrong,) = (result for result in report.results if result.sample == 1)
    assert (wrong.tests_passed, wrong.tests_total, wrong.guarded) == (1, 2, True)
    assert wrong.failures == (("test 2", "assert f(2) == 4"),)
    assert "<title>" in page.read_text()
    (cheat,) = (result for result in report.results if result.sample == 2)
    assert "`allow_shared=` decides it" in cheat.message


def test_a_limit_is_named_as_it_is_here():
    heavy = {"task_id": "t", "solution": "def f(x): return [bytes(8 << 20) for _ in range(99)] and x * 2"}
    results = grade([TASK], [heavy, RIGHT], memory=128 << 20, value_bytes=1 << 20).results
    told = {result.sample: (result.limit, result.message) for result in results}
    assert told[0][0] == "memory" and "`memory=` raises it" in told[0][1]
    assert told[1] == (None, "")
    # A limit that has no argument here names none.
    files = {"task_id": "t", "solution": "def f(x):\n    for n in range(20000): open(str(n), 'w')\n    return x * 2"}
    (result,) = grade([TASK], [files]).results
    assert result.verdict == "limit" and "wanted more than" in result.message
    assert "raises it" not in result.message


def test_results_are_kept_and_compared(tmp_path):
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    grade([TASK], [WRONG], out=first)
    grade([TASK], [RIGHT], out=second)
    before = second.read_text()
    grade([TASK], [RIGHT], out=second, resume=True)
    assert second.read_text() == before
    compared = compare(first, second)
    assert compared["difference"]["value"] == 1
    assert [change["task_id"] for change in compared["changed"][0]] == ["t"]


def test_a_bad_line_costs_that_line_and_warns():
    with pytest.warns(UserWarning, match="line 2 of"):
        report = grade([TASK, {"task_id": "u"}], [RIGHT], workers=2)
    assert [result.verdict for result in report.results] == ["passed"]


def test_what_is_no_task_is_told():
    with pytest.raises(ValueError, match="no known form of tasks"):
        grade([{"task_id": "t"}])
    with pytest.raises(ValueError, match="no task `u`"):
        grade([TASK], [{"task_id": "u", "solution": json.dumps(1)}])
