"""Threads for functions that programs call: they never hold up the end of the process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any

_IDLE_SECONDS = 30.0

AsyncCall = Callable[[], Coroutine[Any, Any, None]]


class DaemonThreads:
    """Runs callables side by side, in threads that end after a rest. Unlike an executor's, they
    aren't waited for when the process ends."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def start(self, work: Callable[[], None]) -> None:
        """Runs this in a thread. It must not raise."""
        with self._lock:
            has_idle = self._idle > 0
            if has_idle:
                self._idle -= 1
        self._waiting.put(work)
        if not has_idle:
            threading.Thread(target=self._work, name="hatchery-function", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                work = self._waiting.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    # A caller that counts on this thread has put work, or is about to.
                    if self._idle > 0:
                        self._idle -= 1
                        return
                continue
            work()
            with self._lock:
                self._idle += 1


class BackgroundLoop:
    """An event loop in a thread of its own, for coroutines of programs without one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, call: AsyncCall) -> Callable[[], object]:
        """Calls an async function, and returns what cancels that."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = self._loop.run_forever
                threading.Thread(target=run, name="hatchery-loop", daemon=True).start()
        return start_on(self._loop, call)


def start_on(loop: asyncio.AbstractEventLoop, call: AsyncCall) -> Callable[[], object]:
    """Calls an async function on a loop of another thread, and returns what cancels that. A loop that
    ends before it begins drops the function.

    Raises:
        RuntimeError: The loop has ended.
    """
    tasks: list[asyncio.Task[None]] = []
    loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(call())))

    def cancel() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: tasks[0].cancel())

    return cancel


class _Shared:
    """The threads of this process; a forked child gets its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.threads = DaemonThreads()
        self.loop = BackgroundLoop()


_shared = _Shared()


def _renew() -> None:
    global _shared
    _shared = _Shared()


os.register_at_fork(after_in_child=_renew)


def start_thread(work: Callable[[], None]) -> None:
    """Runs this in a thread of this process."""
    _shared.threads.start(work)


def start_coroutine(call: AsyncCall) -> Callable[[], object]:
    """Calls an async function on this process's background loop, and returns what cancels that."""
    return _shared.loop.start(call)
