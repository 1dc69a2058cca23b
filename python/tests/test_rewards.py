"""Rewards of generated programs."""

import logging

import pytest

from hatchery_sandbox import Pool, RefusedError, SandboxFailedError, StartError, _grading, rewards
from hatchery_sandbox._rewards import code_of

TASK = {"tests": ["assert double(2) == 4", "assert double('a') == 'aa'"]}
RIGHT = "def double(x): return x + x"
HALF = "def double(x): return int(x) * 2"


def answer(code):
    return f"<think>```python\nno\n```</think>Here it is:\n```python\n{code}\n```\nIt doubles."


def test_answers_are_rewarded(pool):
    samples = [
        {**TASK, "answer": answer(RIGHT)},
        {**TASK, "answer": [{"role": "user", "content": "go"}, {"content": answer(HALF)}]},
        {**TASK, "answer": "I don't know."},
        {**TASK, "answer": answer("def double(x):\n    while True: pass")},
        {**TASK, "solution": RIGHT},
        {
            "prompt": "def double(x):\n",
            "entry_point": "double",
            "test": "def check(f):\n    assert f(1) == 2\n",
            "completion": "    return 2 * x",
        },
        {"tests": [{"stdin": "1 2", "stdout": "3"}], "answer": "print(sum(map(int, input().split())))"},
    ]
    found = rewards(samples, pool=pool, cpu_time=1)
    assert found == [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    assert rewards(samples[:3], pool=pool, partial=True) == [1.0, 0.5, 0.0]
    assert rewards([], pool=pool) == []


def test_what_isnt_known_is_no_reward(pool, caplog):
    equal = "class Equal:\n    def __eq__(self, other): return True\ndef double(x): return Equal()"
    samples = [
        {**TASK, "answer": answer(equal)},
        {"tests": "def (:", "answer": answer(RIGHT)},
        {"no": "tests", "answer": answer(RIGHT)},
        {**TASK, "answer": answer(RIGHT)},
    ]
    with caplog.at_level(logging.WARNING, "hatchery_sandbox"):
        assert rewards(samples, pool=pool) == [None, None, None, 1.0]
    told = [record.message for record in caplog.records]
    assert len(told) == 3 and all("has no reward" in text for text in told)
    with pytest.raises(ValueError, match="a sample needs an `answer`"):
        rewards([TASK], pool=pool)


def test_a_failure_of_ours_is_tried_again_and_never_zero(pool, monkeypatch, caplog):
    real = _grading._line
    failures = [SandboxFailedError("it died"), RefusedError("full")]

    def line(done):
        return failures.pop() if failures else real(done)

    monkeypatch.setattr(_grading, "_line", line)
    sample = {**TASK, "answer": answer(RIGHT)}
    # Two fail once each.
    assert rewards([sample, sample], pool=pool) == [1.0, 1.0]
    failures += [SandboxFailedError("again")] * 3
    with caplog.at_level(logging.WARNING, "hatchery_sandbox"):
        assert rewards([sample], pool=pool) == [None]
    assert not failures and "again" in caplog.text


def test_without_a_pool_nothing_is_rewarded():
    with pytest.raises(StartError):
        rewards([{**TASK, "answer": "x"}], pool=Pool(binary="/bin/false"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x = 1", "x = 1"),
        ("```python\na\n```\nthen\n```py\nb\n```", "b"),
        ("```\na\n```", "a"),
        ("```python\ncut off", "cut off"),
        ([{"content": [{"type": "text", "text": "```python\nc\n```"}]}], "c"),
        ([{"content": None}], ""),
    ],
)
def test_the_program_of_an_answer(text, code):
    assert code_of(text) == code
