"""A tool of LangChain that runs Python in a sandbox.

```
from hatchery_sandbox.langchain import python_tool

agent = create_agent(model, tools=[python_tool(pool)])
```
"""

from __future__ import annotations

from typing import Any

from langchain_core.tools import StructuredTool

from hatchery_sandbox._async import AsyncPool, AsyncSession
from hatchery_sandbox._describe import TOOL_DESCRIPTION, describe
from hatchery_sandbox._frames import Message
from hatchery_sandbox._outcome import Outcome
from hatchery_sandbox._pool import Pool
from hatchery_sandbox._session import Session


def python_tool(
    runner: Pool | Session | AsyncPool | AsyncSession,
    name: str = "run_python",
    *,
    limit: int | None = 10_000,
    **options: Any,
) -> StructuredTool:
    """Returns a tool that runs programs. The artifact of its messages is `Outcome.to_dict`, plain data
    that checkpointers can store.

    Args:
        runner: A pool, where each call starts fresh, or a session, whose variables stay.
        name: What the model calls it.
        limit: The most characters that a call returns.
        options: Those of jobs, such as `timeout` in seconds.
    """

    if isinstance(runner, (AsyncPool, AsyncSession)):
        waiting = runner

        async def run_async(code: str) -> tuple[str, Message]:
            outcome = await waiting.run(code, **options)
            return describe(outcome, limit), _artifact(outcome)

        return StructuredTool.from_function(
            coroutine=run_async,
            name=name,
            description=TOOL_DESCRIPTION,
            response_format="content_and_artifact",
        )
    plain = runner

    def run(code: str) -> tuple[str, Message]:
        outcome = plain.run(code, **options)
        return describe(outcome, limit), _artifact(outcome)

    return StructuredTool.from_function(
        run, name=name, description=TOOL_DESCRIPTION, response_format="content_and_artifact"
    )


def _artifact(outcome: Outcome) -> Message:
    result = outcome.to_dict()
    if not _is_storable(result["value"]):
        result["value"] = None
        result["value_missing"] = "it has integers beyond 64 bits"
    return result


def _is_storable(value: object) -> bool:
    """Whether MessagePack can hold a value of JSON."""
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 64
    if isinstance(value, dict):
        return all(map(_is_storable, value.values()))
    return not isinstance(value, list) or all(map(_is_storable, value))
