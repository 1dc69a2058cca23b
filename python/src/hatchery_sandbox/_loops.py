"""Waiting on an event loop, asyncio's or trio's, for what happens in other threads."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent import futures
from functools import partial
from typing import Any, TypeVar

from hatchery_sandbox._functions import StartCoroutine
from hatchery_sandbox._future import Future
from hatchery_sandbox._threads import AsyncCall, start_on

T = TypeVar("T")


def _loop() -> asyncio.AbstractEventLoop | None:
    """Returns asyncio's loop that runs this; `None` under trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        pass
    if trio := sys.modules.get("trio"):
        try:
            trio.lowlevel.current_trio_token()
            return None
        except RuntimeError:
            pass
    raise RuntimeError("there is no running event loop of asyncio or trio")


class Waker:
    """Wakes the task that has made it, from any thread."""

    def __init__(self) -> None:
        self._asyncio = _loop()
        self._event: Any
        if self._asyncio is None:
            trio = sys.modules["trio"]
            self._trio: Any = trio
            self._event = trio.Event()
            self._token = trio.lowlevel.current_trio_token()
        else:
            self._event = asyncio.Event()

    def wake(self) -> None:
        """Wakes the task, or keeps it from falling asleep next."""
        try:
            if self._asyncio is None:
                self._token.run_sync_soon(self._set, idempotent=True)
            else:
                self._asyncio.call_soon_threadsafe(self._set)
        except RuntimeError:
            pass  # the loop has ended, and the task with it

    def _set(self) -> None:
        self._event.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Waits until woken, or for so many seconds."""
        if self._asyncio is None:
            with self._trio.move_on_after(float("inf") if seconds is None else seconds):
                await self._event.wait()
            self._event = self._trio.Event()
            return
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except asyncio.TimeoutError:
            pass
        self._event.clear()


async def wait_until_done(future: futures.Future[Any]) -> None:
    """Waits for an end, whatever it is."""
    waker = Waker()
    add = future.call_when_done if isinstance(future, Future) else future.add_done_callback
    add(lambda _: waker.wake())
    while not future.done():
        await waker.wait()


async def wait_for(future: futures.Future[T], cancel: bool = True) -> T:
    """Returns the result of a future. If the task is cancelled, so is the future, unless others
    wait for it, too (`cancel=False`)."""
    try:
        await wait_until_done(future)
    except BaseException:
        if cancel:
            future.cancel()
        raise
    if future.cancelled() and _loop() is not None:
        raise asyncio.CancelledError
    return future.result()


def start_coroutine() -> StartCoroutine:
    """Returns what calls async functions on the loop that runs this, for other threads."""
    loop = _loop()
    if loop is not None:
        return partial(start_on, loop)
    trio: Any = sys.modules["trio"]
    token = trio.lowlevel.current_trio_token()

    def start(call: AsyncCall) -> Callable[[], object]:
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await call()

        token.run_sync_soon(trio.lowlevel.spawn_system_task, run)
        return lambda: token.run_sync_soon(scope.cancel)

    return start
