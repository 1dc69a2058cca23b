"""The interpreter of DSPy, with the real package and a model that says what the test says."""

import json

import pytest

dspy = pytest.importorskip("dspy")

from dspy.primitives.code_interpreter import (  # noqa: E402
    CodeExecutionError,
    CodeInterpreter,
    CodeInterpreterError,
    FinalOutput,
)
from dspy.utils import DummyLM  # noqa: E402
from outlier import ANSWER, CSV, DRAW, FIND, FOUND, SHAPE  # noqa: E402

from hatchery_sandbox import Pool  # noqa: E402
from hatchery_sandbox.dspy import HatcheryInterpreter  # noqa: E402


def test_it_is_a_code_interpreter(pool):
    with HatcheryInterpreter(pool) as interpreter:
        assert isinstance(interpreter, CodeInterpreter)
        interpreter.start()
        assert interpreter("x = 20; print('hello')") == "hello"
        assert interpreter("x + n", {"n": 2}) == "22"
        assert interpreter("y = 1") is None
    with pytest.raises(CodeInterpreterError, match="shut down"):
        interpreter("x")


def test_errors_are_of_three_kinds(pool):
    with HatcheryInterpreter(pool, cpu_time=1) as interpreter:
        interpreter("x = 1")
        with pytest.raises(SyntaxError, match="invalid syntax"):
            interpreter("def (:")
        with pytest.raises(CodeExecutionError, match="seen\n(.|\n)*ZeroDivisionError"):
            interpreter("print('seen'); 1 / 0")
        with pytest.raises(CodeExecutionError, match="SyntaxError"):
            interpreter("exec('def (:')")
        with pytest.raises(CodeExecutionError, match="cpu limit of 1 s"):
            interpreter("while True: pass")
        # Recoverable ones leave the variables there.
        assert interpreter("x") == "1"
        for given in ({"a b": 1}, {"x": object()}):
            with pytest.raises(CodeInterpreterError, match="`a b`|`x`"):
                interpreter("x", given)


def test_a_lost_sandbox_ends_the_interpreter():
    interpreter = HatcheryInterpreter(Pool(binary="/bin/false"))
    with pytest.raises(CodeInterpreterError, match="the sandbox failed"):
        interpreter("1")
    with pytest.raises(CodeInterpreterError, match="shut down"):
        interpreter("1")


def test_submit_ends_the_code_with_typed_values(pool):
    interpreter = HatcheryInterpreter(pool)
    assert interpreter("SUBMIT(3); print('not reached')") == FinalOutput({"output": 3})
    interpreter.output_fields = [{"name": "total", "type": "int"}, {"name": "names", "type": "list"}]
    caught = "try:\n    SUBMIT(7, names=['a', (1, 2)])\nexcept Exception:\n    print('caught')"
    assert interpreter(caught) == FinalOutput({"total": 7, "names": ["a", (1, 2)]})
    with pytest.raises(CodeExecutionError, match="names"):
        interpreter("SUBMIT(7)")
    with pytest.raises(CodeExecutionError, match="SUBMIT can't pass this on"):
        interpreter("SUBMIT(7, [object()])")
    large = interpreter("SUBMIT(1, ['x' * 1000] * 9000)")
    assert large.output["names"] == ["x" * 1000] * 9000
    interpreter("for name in [*globals()]:\n    if 'atchery' in name:\n        del globals()[name]")
    assert interpreter("SUBMIT(1, [])") == FinalOutput({"total": 1, "names": []})
    assert interpreter("import inspect; str(inspect.signature(SUBMIT))") == "'(total: int, names: list)'"


def test_tools_run_here(pool):
    class Price:
        def __init__(self, value):
            self.value = value

        def __str__(self):
            return f"{self.value} euros"

    def price(item: str, count: int = 1) -> object:
        """What an item costs."""
        if item == "sofa":
            raise LookupError("no sofas")
        return Price(count * len(item))

    async def shout(text: str) -> str:
        return text.upper()

    tools = {"price": price, "shout": shout, "__hidden__": lambda **given: given}
    with HatcheryInterpreter(pool, tools) as interpreter:
        assert interpreter("price('chair', count=2)") == "'10 euros'"
        assert interpreter("shout(text='a')") == "'A'"
        assert interpreter("globals()['__hidden__'](a=1)") == "{'a': 1}"
        assert interpreter("price.__doc__") == "'What an item costs.'"
        with pytest.raises(CodeExecutionError, match="no sofas"):
            interpreter("price('sofa')")
        interpreter.tools["twice"] = lambda x: 2 * x
        assert interpreter("twice(x=[1])") == "[1, 1]"
        interpreter.tools["inner"] = lambda: interpreter("1")
        with pytest.raises(CodeExecutionError, match="a tool can't use it"):
            interpreter("inner()")


def test_callbacks_are_called(pool):
    class Heard(dspy.utils.callback.BaseCallback):
        def __init__(self):
            self.names = []

        def on_interpreter_execute_start(self, call_id, instance, inputs):
            self.names.append(inputs["code"])

        def on_interpreter_tool_call_start(self, call_id, instance, inputs):
            self.names.append(inputs["tool_name"])

    heard = Heard()
    with HatcheryInterpreter(pool, {"f": lambda: 1}, callbacks=[heard]) as interpreter:
        interpreter("f()")
    assert heard.names == ["f()", "f"]


def answers(*steps):
    return DummyLM([{"reasoning": "go on", "code": f"```python\n{step}\n```"} for step in steps])


def test_a_recursive_model_finds_an_outlier(pool):
    load = "import io, pandas as pd\nframe = pd.read_csv(io.StringIO(table))\nprint(frame.shape)"
    query = "kind = llm_query(prompt='What is ' + str(outlier.value) + '?')\nprint(kind)"
    final = "SUBMIT(outlier.sensor, float(outlier.value), len(frame))"
    lm = answers(load, FIND, DRAW, query, final)
    sub = DummyLM([{"text": "a broken sensor"}])
    rlm = dspy.RLM(
        "table: str, question: str -> sensor: str, value: float, rows: int",
        sub_lm=sub,
        interpreter_factory=HatcheryInterpreter.factory(pool),
    )
    with dspy.context(lm=lm):
        found = rlm(table=CSV, question="Which sensor is an outlier?")
    assert (found.sensor, found.value, found.rows) == (ANSWER, 97.5, 10)
    outputs = [step["output"] for step in found.trajectory]
    assert SHAPE in outputs[0] and FOUND in outputs[1] and "(1 figure was shown)" in outputs[2]
    assert "broken sensor" in outputs[3]
    assert "compiled to WebAssembly" in json.dumps(lm.history[0]["messages"])


def test_sub_agents_have_interpreters_of_their_own(pool):
    # The outer program waits for the inner one, in another session.
    outer = "import dspy\ninner = dspy.RLM('context -> length: int')\nprint(inner(context=text).length)"
    lm = answers(outer, "SUBMIT(len(context))", "SUBMIT(int('4'))")
    with dspy.context(lm=lm, interpreter_factory=HatcheryInterpreter.factory(pool)):
        found = dspy.RLM("text -> length: int")(text="four")
    assert found.length == 4
    assert "4" in found.trajectory[0]["output"]
