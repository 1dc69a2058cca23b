"""The code executor of AutoGen, with the real package and a scripted model."""

import asyncio

import pytest

pytest.importorskip("autogen_agentchat")

from autogen_agentchat.agents import CodeExecutorAgent  # noqa: E402
from autogen_agentchat.messages import TextMessage  # noqa: E402
from autogen_core import CancellationToken  # noqa: E402
from autogen_core.code_executor import CodeBlock, CodeExecutor  # noqa: E402
from autogen_ext.models.replay import ReplayChatCompletionClient  # noqa: E402
from autogen_ext.tools.code_execution import PythonCodeExecutionTool  # noqa: E402
from outlier import ANSWER, CSV, DRAW, FIND, FOUND, LOAD, SHAPE  # noqa: E402

from hatchery_sandbox import AsyncPool  # noqa: E402
from hatchery_sandbox.autogen import HatcheryCodeExecutor  # noqa: E402


def with_executor(main, **options):
    async def run():
        async with AsyncPool(workers=1, preload=["numpy", "pandas"]) as pool:
            async with HatcheryCodeExecutor(pool, **options) as executor:
                assert isinstance(executor, CodeExecutor)
                await main(executor)

    asyncio.run(run())


async def result_of(executor, *blocks, token=None):
    blocks = [CodeBlock(block, "python") if isinstance(block, str) else block for block in blocks]
    return await executor.execute_code_blocks(blocks, token or CancellationToken())


def test_blocks_run_in_one_session():
    async def main(executor):
        ended = await result_of(executor, "x = 1\nprint('a')", CodeBlock("print(x)", "py"))
        assert (ended.exit_code, ended.output) == (0, "a\n1")
        ended = await result_of(executor, "1 / 0", "print('not reached')")
        assert ended.exit_code == 1 and "ZeroDivisionError" in ended.output
        assert "not reached" not in ended.output
        assert (await result_of(executor, "import sys; sys.exit(3)")).exit_code == 3
        assert (await result_of(executor, "while True: pass")).exit_code == 124
        ended = await result_of(executor, CodeBlock("ls", "bash"))
        assert (ended.exit_code, ended.output) == (1, "there is only Python here, not bash")
        await executor.restart()
        assert "NameError" in (await result_of(executor, "x")).output

    with_executor(main, cpu_time=1)


def test_cancelling_ends_a_block_and_keeps_the_session():
    async def main(executor):
        await result_of(executor, "x = 1")
        token = CancellationToken()
        asyncio.get_running_loop().call_later(0.3, token.cancel)
        with pytest.raises(asyncio.CancelledError):
            await result_of(executor, "while True: pass", token=token)
        assert (await result_of(executor, "x")).output == "1"

    with_executor(main)


def test_an_agent_finds_an_outlier():
    async def main(executor):
        # The table is in the message, as a block of its own.
        blocks = [f"open('readings.csv', 'w').write({CSV!r})\n{LOAD}", FIND, DRAW]
        answers = [f"```python\n{block}\n```" for block in blocks] + [f"It is {ANSWER}."]
        turns = [answer for code in answers for answer in (code, "the output is as expected")]
        model = ReplayChatCompletionClient(turns)
        agent = CodeExecutorAgent("analyst", code_executor=executor, model_client=model)
        token = CancellationToken()
        told = []
        for _ in blocks:
            message = TextMessage(content="go on", source="user")
            told += [repr(event) async for event in agent.on_messages_stream([message], token)]
        for expected in (SHAPE, FOUND, "(1 figure was shown)"):
            assert any(expected in text for text in told)
        assert executor.figures[0].startswith(b"\x89PNG")

    with_executor(main)


def test_its_tool_runs_code():
    async def main(executor):
        tool = PythonCodeExecutionTool(executor)
        result = await tool.run_json({"code": "print(6 * 7)"}, CancellationToken())
        assert (result.success, result.output) == (True, "42")

    with_executor(main)
