"""Code mode for Pydantic AI, and its client of MCP, with the real package and a scripted model."""

import asyncio

import pytest

pytest.importorskip("pydantic_ai")

from outlier import ANSWER, CSV, DRAW, FIND, FOUND, LOAD, SHAPE  # noqa: E402
from pydantic import BaseModel  # noqa: E402
from pydantic_ai import Agent, ModelRetry  # noqa: E402
from pydantic_ai.exceptions import UsageLimitExceeded  # noqa: E402
from pydantic_ai.messages import (  # noqa: E402
    BinaryContent,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel  # noqa: E402
from pydantic_ai.toolsets import FunctionToolset  # noqa: E402
from pydantic_ai.usage import UsageLimits  # noqa: E402

from hatchery_sandbox import AsyncPool  # noqa: E402
from hatchery_sandbox._process import find_binary  # noqa: E402
from hatchery_sandbox.pydantic_ai import CodeMode, CodeModeToolset  # noqa: E402


def scripted(calls, seen, name="run_code"):
    """Returns a model that makes these calls one after another, then answers."""

    def answer(messages, info):
        seen.append((messages, info))
        place = len(seen) - 1
        if place == len(calls):
            return ModelResponse(parts=[TextPart(ANSWER)])
        call = calls[place]
        call = (name, {"code": call}) if isinstance(call, str) else call
        return ModelResponse(parts=[ToolCallPart(*call)])

    return FunctionModel(answer)


def returned(seen, kind=ToolReturnPart):
    messages, _ = seen[-1]
    return [part.content for message in messages for part in message.parts if isinstance(part, kind)]


def awaited(main):
    async def run():
        async with AsyncPool(workers=(1, 4), preload=["numpy", "pandas"]) as pool:
            await main(pool)

    asyncio.run(run())


class Reading(BaseModel):
    sensor: str
    value: float


def test_an_agent_finds_an_outlier_by_its_tools():
    async def main(pool):
        seen = []
        load = f"open('readings.csv', 'w').write(table(name='readings'))\n{LOAD}"
        note = "note(sensor=outlier.sensor, value=outlier.value)"
        agent = Agent(scripted([load, FIND, DRAW, note], seen), capabilities=[CodeMode(pool)])
        noted = []

        @agent.tool_plain
        def table(name: str) -> str:
            """Returns a table as CSV."""
            return CSV if name == "readings" else ""

        @agent.tool_plain
        async def note(sensor: str, value: float) -> Reading:
            """Notes a reading."""
            noted.append(sensor)
            return Reading(sensor=sensor, value=value)

        result = await agent.run("Which sensor is an outlier?")
        assert result.output == ANSWER and noted == [ANSWER]
        outputs = returned(seen)
        assert SHAPE in outputs[0] and FOUND in outputs[1]
        assert outputs[3] == "{'sensor': 's6', 'value': 97.5}"
        images = [part for content in returned(seen, UserPromptPart) for part in content]
        assert any(isinstance(part, BinaryContent) and part.media_type == "image/png" for part in images)
        (tool,) = seen[0][1].function_tools
        assert tool.name == "run_code"
        for told in ("def table(", "Returns a table as CSV.", "class Reading(TypedDict)", "value: float"):
            assert told in tool.description

    awaited(main)


def test_failures_are_for_the_model_to_read():
    async def main(pool):
        seen = []
        calls = ["print('seen'); 1 / 0", "half(n='x')", "half(n=1)", "half(n=4)"]
        calls += ["while True: pass", "x = 1", "x"]
        agent = Agent(
            scripted(calls, seen), capabilities=[CodeMode(pool, limit=400, options={"cpu_time": 1})]
        )

        @agent.tool_plain
        def half(n: int) -> int:
            if n % 2:
                raise ModelRetry("only even numbers")
            return n // 2

        await agent.run("go")
        raised, invalid, odd, even, endless, kept, found = returned(seen)
        assert raised.startswith("seen\n") and "ZeroDivisionError" in raised
        assert "valid integer" in invalid and "only even numbers" in odd
        assert (even, kept, found) == ("2", "(no output)", "1")
        assert "cpu limit of 1 s" in endless

        # Each run has variables of its own.
        again = []
        await Agent(scripted(["x"], again), capabilities=[CodeMode(pool)]).run("go")
        assert "NameError" in returned(again)[0]

    awaited(main)


def test_limits_of_the_agent_end_it():
    async def main(pool):
        seen = []
        code = "for n in range(9):\n    try:\n        f()\n    except Exception:\n        pass"
        agent = Agent(scripted([code], seen), capabilities=[CodeMode(pool)])
        calls = []
        agent.tool_plain(lambda: calls.append(1), name="f")
        with pytest.raises(UsageLimitExceeded):
            await agent.run("go", usage_limits=UsageLimits(tool_calls_limit=3))
        assert len(calls) <= 3

    awaited(main)


def test_some_tools_stay_as_they_are():
    async def main(pool):
        seen = []
        toolset = FunctionToolset()
        toolset.add_function(lambda: "here", name="my-tool")
        toolset.add_function(lambda: "plain", name="direct")
        wrapped = CodeModeToolset(toolset, pool, ["my-tool"])
        agent = Agent(scripted(["my_tool()", ("direct", {})], seen), toolsets=[wrapped])
        await agent.run("go")
        assert {tool.name for tool in seen[0][1].function_tools} == {"run_code", "direct"}
        assert returned(seen) == ["'here'", "plain"]

    awaited(main)


def test_its_client_of_mcp_runs_python():
    mcp = pytest.importorskip("pydantic_ai.mcp")
    transports = pytest.importorskip("fastmcp.client.transports")

    async def main():
        options = ["mcp", "--workers", "1", "--preload", "numpy,pandas"]
        transport = transports.StdioTransport(find_binary(None), options)
        server = mcp.MCPToolset(transport)
        seen = []
        files = {"readings.csv": CSV}
        calls = [
            ("run_python", {"code": LOAD, "session": "a", "files": files}),
            ("run_python", {"code": FIND, "session": "a"}),
            ("run_python", {"code": DRAW, "session": "a"}),
        ]
        async with server:
            agent = Agent(scripted(calls, seen), toolsets=[server])
            result = await agent.run("Which sensor is an outlier?")
        assert result.output == ANSWER
        loaded, found, _ = map(str, returned(seen))
        assert SHAPE in loaded and FOUND in found
        everything = returned(seen, UserPromptPart) + returned(seen)
        assert "image/png" in str(everything)

    asyncio.run(main())
