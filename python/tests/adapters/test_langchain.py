"""The tool of LangChain, with the real package."""

import asyncio

import pytest

pytest.importorskip("langchain_core")

from hatchery_sandbox import AsyncPool  # noqa: E402
from hatchery_sandbox.langchain import python_tool  # noqa: E402


def test_a_tool_runs_programs(pool):
    with pool.session() as session:
        tool = python_tool(session, timeout=5)
        assert tool.invoke({"code": "x = 2; print('hello'); x"}) == "hello\n2"
        assert "ZeroDivisionError" in tool.invoke({"code": "1 / 0"})
        assert tool.invoke({"code": "x * 4"}) == "8"
    call = {"type": "tool_call", "id": "1", "name": "run_python", "args": {"code": "'v'"}}
    message = python_tool(pool).invoke(call)
    assert message.content == "'v'" and message.artifact.value == "v"
    assert set(tool.args) == {"code"}


def test_a_tool_is_awaited():
    async def main():
        async with AsyncPool(workers=1) as pool:
            return await python_tool(pool).ainvoke({"code": "1 + 1"})

    assert asyncio.run(main()) == "2"
