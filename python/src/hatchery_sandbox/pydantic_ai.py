"""Code mode for agents of Pydantic AI: the model writes a script that calls its tools as functions.

```
from hatchery_sandbox.pydantic_ai import CodeMode

agent = Agent(model, tools=[…], capabilities=[CodeMode(pool)])
```

The script runs in a sandbox; the tools run here, by way of the agent, with its validation, retries and
limits.
"""

from __future__ import annotations

import copy
import keyword
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.function_signature import FunctionSignature
from pydantic_ai.messages import BinaryContent, ToolCallPart, ToolReturn
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import ToolDenied, ToolSelector, matches_tool_selector
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from hatchery_sandbox._async import AsyncPool, AsyncSession
from hatchery_sandbox._describe import describe
from hatchery_sandbox._functions import HostFunction
from hatchery_sandbox._outcome import Outcome
from hatchery_sandbox._shared import async_agents_pool

_NAME = "run_code"
_DESCRIPTION = """\
Runs a Python program in a sandbox and returns what it prints and the value of its last expression.
Variables and files stay from call to call. There is no network, and there are no files of the host.\
"""
_FUNCTIONS = """

The program can call these functions directly; don't define or import them. Pass arguments by name.
Print only what you need of their results.
"""


class _Arguments(TypedDict):
    code: str


_ARGUMENTS = TypeAdapter(_Arguments)


@dataclass
class CodeMode(AbstractCapability[Any]):
    """Puts the agent's tools into one tool, `run_code`, whose programs call them as functions.

    Each run of the agent has a session of its own. Figures that a program shows become images for the
    model.
    """

    pool: AsyncPool | None = None
    """The pool to use, which stays open. Default: one of this process, shared by all."""
    _: KW_ONLY
    tools: ToolSelector[Any] = "all"
    """Which tools become functions, as Pydantic AI selects tools; others stay as they are."""
    limit: int | None = 10_000
    """The most characters that a call returns."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of jobs, such as `timeout` in seconds, which includes waiting for tools."""

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Wraps the agent's tools; the agent calls this."""
        return CodeModeToolset(toolset, self.pool, self.tools, self.limit, self.options)


@dataclass(kw_only=True)
class _RunCode(ToolsetTool[Any]):
    inner: dict[str, ToolsetTool[Any]]
    """The tools that programs can call, by the names that they have there."""


@dataclass
class CodeModeToolset(WrapperToolset[Any]):
    """The same for one toolset, where an agent has several."""

    pool: AsyncPool | None = None
    tools: ToolSelector[Any] = "all"
    limit: int | None = 10_000
    options: dict[str, Any] = field(default_factory=dict)
    _open: list[AsyncSession] = field(default_factory=list, init=False, repr=False, compare=False)
    """The session of the run, once it is needed; the copies for each step share it."""

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        """Returns one with a session of its own."""
        made = self._around(await self.wrapped.for_run(ctx))
        made._open = []
        return made

    async def for_run_step(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        """Returns one for the tools of this step, with the same session."""
        wrapped = await self.wrapped.for_run_step(ctx)
        return self if wrapped is self.wrapped else self._around(wrapped)

    def _around(self, wrapped: AbstractToolset[Any]) -> CodeModeToolset:
        made = copy.copy(self)
        made.wrapped = wrapped
        return made

    async def __aexit__(self, *args: Any) -> bool | None:
        try:
            ended: bool | None = await self.wrapped.__aexit__(*args)
            return ended
        finally:
            while self._open:
                await self._open.pop().__aexit__()

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Returns `run_code` and the tools that stay as they are."""
        kept: dict[str, ToolsetTool[Any]] = {}
        inner: dict[str, ToolsetTool[Any]] = {}
        for name, tool in (await self.wrapped.get_tools(ctx)).items():
            called = _identifier(name)
            if called not in inner and await self._is_function(ctx, tool.tool_def):
                inner[called] = tool
            else:
                kept[name] = tool
        definition = ToolDefinition(
            name=_NAME,
            description=_DESCRIPTION + _catalog(inner),
            parameters_json_schema=_ARGUMENTS.json_schema(),
            metadata={"code_arg_name": "code", "code_arg_language": "python"},
            sequential=True,
        )
        run_code = _RunCode(
            toolset=self,
            tool_def=definition,
            max_retries=3,
            args_validator=_ARGUMENTS.validator,
            inner=inner,
        )
        return {**kept, _NAME: run_code}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Runs a program, or calls a tool that stayed as it is.

        Raises:
            PoolError: The sandbox failed; what the program does is for the model to read.
        """
        if not isinstance(tool, _RunCode):
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        calls = _Calls(self.wrapped, ctx, tool.inner)
        session = await self._session()
        functions = calls.functions()
        names = [f"{called} = _hatchery_host.{called}\n" for called in tool.inner]
        head = "".join(["from hatchery import host as _hatchery_host\n", *names])
        outcome = await session.run(head, functions=functions, **self.options)
        if outcome.success:
            outcome = await session.run(tool_args["code"], functions=functions, **self.options)
        if calls.exceeded is not None:
            raise calls.exceeded
        if outcome.status == "sandbox_failed":
            outcome.raise_for_status()
        return _returned(outcome, self.limit)

    async def _is_function(self, ctx: RunContext[Any], definition: ToolDefinition) -> bool:
        is_plain = definition.kind == "function" and definition.tool_kind is None
        runs_code = "code_arg_name" in (definition.metadata or {})
        if not is_plain or runs_code or not ctx.is_tool_available(definition):
            return False
        return bool(await matches_tool_selector(self.tools, ctx, definition))

    async def _session(self) -> AsyncSession:
        if not self._open:
            pool = self.pool or async_agents_pool()
            self._open.append(await pool.session())
        return self._open[0]


class _Calls:
    """The calls that one program makes."""

    def __init__(
        self, toolset: AbstractToolset[Any], ctx: RunContext[Any], inner: dict[str, ToolsetTool[Any]]
    ) -> None:
        manager = ctx.tool_manager
        assert manager is not None, "an agent that calls tools has a manager for them"
        self._ctx = ctx
        self._inner = inner
        self._tools = ToolManager(
            toolset=toolset,
            root_capability=manager.root_capability,
            ctx=ctx,
            tools={tool.tool_def.name: tool for tool in inner.values()},
        )
        self._count = 0
        self._pending = 0
        self.exceeded: UsageLimitExceeded | None = None
        """Ends the agent's run, whatever the program makes of it."""

    def functions(self) -> list[HostFunction]:
        return [
            HostFunction(self._function(tool), name=called, raises=(Exception,))
            for called, tool in self._inner.items()
        ]

    def _admit(self) -> None:
        """Counts this call and `run_code` itself before they have ended, as calls in progress count."""
        limits = self._ctx.usage_limits
        if limits is None or limits.tool_calls_limit is None:
            return
        count = self._ctx.usage.tool_calls + self._pending + 2
        try:
            limits.check_before_tool_call(replace(self._ctx.usage, tool_calls=count))
        except UsageLimitExceeded as error:
            self.exceeded = error
            raise

    def _function(self, tool: ToolsetTool[Any]) -> Callable[..., Any]:
        async def call(**arguments: Any) -> Any:
            self._count += 1
            self._admit()
            part = ToolCallPart(
                tool_name=tool.tool_def.name,
                args=arguments,
                tool_call_id=f"{self._ctx.tool_call_id}__{self._count}",
            )
            self._pending += 1
            try:
                result = await self._tools.handle_call(part, wrap_validation_errors=False)
            except UsageLimitExceeded as error:
                self.exceeded = error
                raise
            finally:
                self._pending -= 1
            if isinstance(result, ToolDenied):
                raise PermissionError(result.message)
            value = result.return_value if isinstance(result, ToolReturn) else result
            return to_jsonable_python(value, fallback=str)

        call.__doc__ = tool.tool_def.description
        return call


def _identifier(name: str) -> str:
    """Returns the name of a tool as that of a function."""
    found = re.sub(r"\W", "_", name, flags=re.ASCII)
    if found[:1].isdigit() or found.startswith("__"):
        found = f"tool_{found}"
    return f"{found}_" if keyword.iskeyword(found) else found


def _catalog(inner: dict[str, ToolsetTool[Any]]) -> str:
    if not inner:
        return ""
    definitions = {called: tool.tool_def for called, tool in inner.items()}
    signatures = [definition.function_signature for definition in definitions.values()]
    conflicting = FunctionSignature.get_conflicting_type_names(signatures)
    blocks = FunctionSignature.render_type_definitions(signatures, conflicting)
    blocks += [
        replace(definition, name=called).render_signature(
            "...", is_async=False, conflicting_type_names=conflicting
        )
        for called, definition in definitions.items()
    ]
    return f"{_FUNCTIONS}\n```python\n" + "\n\n".join(blocks) + "\n```"


def _returned(outcome: Outcome, limit: int | None) -> Any:
    text = describe(outcome, limit)
    images = [BinaryContent(figure, media_type="image/png") for figure in outcome.figures]
    return ToolReturn(text, content=images) if images else text
