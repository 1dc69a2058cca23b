"""Inspect AI's own checks of sandboxes, through ours."""

import asyncio
import inspect

import pytest

pytest.importorskip("inspect_ai")

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
        "test_exec_output",
        "test_exec_stderr",
        "test_exec_output_utf",
        "test_exec_stderr_utf",
        "test_exec_returncode",
        "test_exec_timeout_not_raised_on_fast_signal_death",
        "test_exec_timeout_kills_process",
        "test_exec_timeout_kills_child_processes",
        "test_exec_env_vars",
        "test_exec_input_binary",
        "test_exec_as_user",
        "test_cwd_custom",
    )
)
"""Checks of what there isn't: a shell, users, rights of files, other programs."""


@pytest.mark.parametrize("name", NAMES)
def test_self_check(name):
    if name in NEEDS_MORE:
        pytest.xfail("needs a shell, users or rights of files")

    async def main():
        async with AsyncPool(workers=1) as pool:
            environment = HatcherySandboxEnvironment(pool)
            check = getattr(checks, name)
            needed = {"sandbox_env": environment, "fixture": environment}
            parameters = inspect.signature(check).parameters
            await check(**{given: needed[given] for given in parameters})

    asyncio.run(main())


def test_an_evaluation_has_the_right_accuracy(tmp_path):
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import CORRECT, INCORRECT, Score, accuracy, scorer
    from inspect_ai.util import sandbox

    @scorer(metrics=[accuracy()])
    def runs():
        async def score(state, target):
            program = f"{state.output.completion}\nassert f({target.text}) == {target.text} ** 2"
            result = await sandbox().exec(["python", "-c", program], timeout=20)
            return Score(value=CORRECT if result.success else INCORRECT)

        return score

    def output(number):
        body = "x + 0" if number % 4 == 3 else "x * x"
        made = ModelOutput.from_content("mockllm/model", f"def f(x): return {body}")
        made.usage = ModelUsage()
        return made

    samples = [Sample(input="square", target=str(number + 3)) for number in range(12)]
    task = Task(dataset=samples, scorer=runs(), sandbox="hatchery")
    model = get_model("mockllm/model", custom_outputs=[output(number) for number in range(12)])
    (log,) = eval(task, model=model, display="none", log_dir=str(tmp_path), max_samples=1)
    assert log.status == "success", log.error
    assert log.results.scores[0].metrics["accuracy"].value == 0.75
