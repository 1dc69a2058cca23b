"""What a model reads of an outcome."""

import pytest

from hatchery_sandbox import Limits, describe


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("print('hello'); 6 * 7", "hello\n42"),
        ("x = 1", "(no output)"),
        ("None", "(no output)"),
        ("import sys; print('a'); print('b', file=sys.stderr); 'c'", "a\nb\n'c'"),
        ("raise SystemExit('enough')", "enough"),
        ("import os; os._exit(3)", "the program left with the code 3"),
    ],
)
def test_outcomes_in_words(pool, program, told):
    outcome = pool.run(program)
    assert describe(outcome) == told or (not outcome.success and told in describe(outcome))


def test_why_it_ended_is_said(pool):
    raised = describe(pool.run("print('seen'); 1 / 0"))
    assert raised.startswith("seen\nTraceback") and raised.endswith("ZeroDivisionError: division by zero")
    assert "limit of 500 ms" in describe(pool.run("while True: pass", timeout=0.5))
    dropped = pool.run("print('x' * 5000)", limits=Limits(output=1000))
    assert describe(dropped).endswith("(output beyond the limit was dropped)")
    drawn = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    assert describe(pool.run(drawn)) == "(1 figure was shown)"


def test_the_middle_is_left_out(pool):
    outcome = pool.run("print('first', 'x' * 20_000, 'last'); raise ValueError('why')")
    whole = describe(outcome, None)
    assert len(whole) > 20_000
    for limit in (100, 250, 1000, 15_000):
        told = describe(outcome, limit)
        assert len(told) <= limit
        assert "characters left out" in told and told.endswith("why")
    assert "first" in describe(outcome, 1000) and "last" in describe(outcome, 1000)
    assert "Traceback" in describe(outcome, 1000)
    assert describe(outcome, len(whole)) == whole
    # A long error has room beside its output, too.
    long = describe(pool.run("print('seen'); raise ValueError('x' * 5000 + 'end')"), 400)
    assert "seen" in long and long.endswith("end") and len(long) <= 400
    with pytest.raises(ValueError, match="at least 100"):
        describe(outcome, 99)
