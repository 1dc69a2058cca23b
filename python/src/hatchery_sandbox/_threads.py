"""Threads for functions that programs call: they never hold up the end of the process."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any

_IDLE_SECONDS = 30.0


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
                    # Whoever counts on this thread has put work, or is about to.
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

    def start(self, coroutine: Coroutine[Any, Any, None]) -> Callable[[], object]:
        """Runs a coroutine, and returns what cancels it."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = self._loop.run_forever
                threading.Thread(target=run, name="hatchery-loop", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).cancel


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


def start_coroutine(coroutine: Coroutine[Any, Any, None]) -> Callable[[], object]:
    """Runs a coroutine on this process's background loop, and returns what cancels it."""
    return _shared.loop.start(coroutine)
