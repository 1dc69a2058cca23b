"""A code executor of AutoGen: blocks of Python run in a session of a sandbox.

```
from hatchery_sandbox.autogen import HatcheryCodeExecutor

async with HatcheryCodeExecutor() as executor:
    agent = CodeExecutorAgent("coder", code_executor=executor)
```
"""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

from hatchery_sandbox._async import AsyncPool, AsyncSession
from hatchery_sandbox._describe import describe
from hatchery_sandbox._shared import async_agents_pool

_PYTHON = ("python", "python3", "py", "")
_TIMED_OUT = 124
"""The exit code that AutoGen's own executors give to code that takes too long."""


class HatcheryCodeExecutor(CodeExecutor):
    """Runs blocks of Python in one session, whose variables and files stay until `restart`."""

    def __init__(
        self, pool: AsyncPool | None = None, *, limit: int | None = 10_000, **options: Any
    ) -> None:
        """
        Args:
            pool: The pool to use, which stays open. Default: one of this process, shared by all.
            limit: The most characters of the output of each block.
            options: Those of jobs, such as `timeout` in seconds.
        """
        self._pool = pool
        self._limit = limit
        self._options = options
        self._session: AsyncSession | None = None
        self.figures: list[bytes] = []
        """The figures that blocks have shown since the last start, as PNG."""

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Runs blocks one after another until one fails. Cancelling ends the block that runs.

        Raises:
            asyncio.CancelledError: It was cancelled.
            PoolError: The sandbox failed.
        """
        if self._session is None:
            await self.start()
        session = self._session
        assert session is not None
        texts: list[str] = []
        code = 0
        for block in code_blocks:
            if block.language.lower() not in _PYTHON:
                texts.append(f"there is only Python here, not {block.language}")
                code = 1
                break
            running = asyncio.ensure_future(session.run(block.code, **self._options))
            cancellation_token.link_future(running)
            outcome = await running
            if outcome.status == "sandbox_failed":
                outcome.raise_for_status()
            self.figures += outcome.figures
            texts.append(describe(outcome, self._limit))
            if not outcome.success:
                code = _TIMED_OUT if outcome.timed_out else outcome.exit_code or 1
                break
        return CodeResult(exit_code=code, output="\n".join(texts))

    async def start(self) -> None:
        """Opens the session, unless it is open."""
        if self._session is None:
            pool = self._pool or async_agents_pool()
            self._session = await pool.session()

    async def stop(self) -> None:
        """Closes the session; the pool stays open."""
        session, self._session = self._session, None
        if session is not None:
            await session.__aexit__()

    async def restart(self) -> None:
        """Makes the session a fresh one."""
        self.figures.clear()
        if self._session is None:
            await self.start()
        else:
            await self._session.reset()
