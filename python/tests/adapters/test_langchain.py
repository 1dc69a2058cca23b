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
    assert message.content == "'v'" and message.artifact["value"] == "v"
    assert set(tool.args) == {"code"}


@pytest.mark.parametrize("code", ["'v'", "2 ** 100", "[{'a': -2 ** 64}]", "{1, 2}", "1 / 0", "b'x'"])
def test_checkpointers_store_its_messages(pool, code):
    graph = pytest.importorskip("langgraph.graph")
    memory = pytest.importorskip("langgraph.checkpoint.memory")
    prebuilt = pytest.importorskip("langgraph.prebuilt")
    messages = pytest.importorskip("langchain_core.messages")

    call = {"type": "tool_call", "id": "1", "name": "run_python", "args": {"code": code}}
    builder = graph.StateGraph(graph.MessagesState)
    builder.add_node("tools", prebuilt.ToolNode([python_tool(pool)]))
    builder.add_edge(graph.START, "tools")
    agent = builder.compile(checkpointer=memory.InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}
    given = messages.AIMessage("", tool_calls=[call])
    kept = agent.invoke({"messages": [given]}, thread)["messages"][-1]
    assert kept == agent.get_state(thread).values["messages"][-1]
    assert kept.artifact["status"] in ("completed", "raised")
    assert kept.model_dump_json()


def test_a_tool_is_awaited():
    async def main():
        async with AsyncPool(workers=1) as pool:
            return await python_tool(pool).ainvoke({"code": "1 + 1"})

    assert asyncio.run(main()) == "2"
