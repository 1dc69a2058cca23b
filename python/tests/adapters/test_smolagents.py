"""The executor of smolagents, with the real package and a model that says what the test says."""

import pytest

smolagents = pytest.importorskip("smolagents")

from hatchery_sandbox import ProgramError  # noqa: E402
from hatchery_sandbox.smolagents import HatcheryExecutor  # noqa: E402


class Scripted(smolagents.Model):
    """A model with given answers."""

    def __init__(self, steps):
        super().__init__(model_id="scripted")
        self.steps = iter(steps)
        self.heard = []

    def generate(self, messages, **_):
        self.heard.append(str(messages[-1].content))
        content = f"Thought: go on\n<code>\n{next(self.steps)}\n</code>"
        return smolagents.ChatMessage(role="assistant", content=content)


@smolagents.tool
def price(item: str) -> int:
    """Returns what an item costs.

    Args:
        item: The item.
    """
    if item == "sofa":
        raise ValueError("no sofas")
    return len(item)


def test_an_agent_runs_to_its_end(pool):
    model = Scripted(
        [
            "x = price('chair')\nprint('it costs', x)",
            "price(item='sofa')",
            "import os; os.system('ls')",
            "final_answer({'total': x * n})",
        ]
    )
    executor = HatcheryExecutor(pool)
    agent = smolagents.CodeAgent(tools=[price], model=model, executor=executor)
    assert agent.run("How much?", additional_args={"n": 2}) == {"total": 10}
    assert "it costs 5" in model.heard[1]
    assert "no sofas" in model.heard[2]
    executor.cleanup()


def test_errors_and_final_answers(pool):
    executor = HatcheryExecutor(pool)
    executor.send_tools({"price": price})
    executor.send_variables({"n": 2})
    assert executor("n + 1").output == 3
    with pytest.raises(ProgramError, match="seen\n(.|\n)*ZeroDivisionError"):
        executor("print('seen'); 1 / 0")
    answer = executor("try:\n    final_answer(7)\nexcept Exception:\n    pass")
    assert (answer.output, answer.is_final_answer) == (7, True)
    executor.cleanup()
