"""The pool of this process for agents that are given none."""

from __future__ import annotations

import atexit
import os
import threading

from hatchery_sandbox._async import AsyncPool
from hatchery_sandbox._pool import Pool

_pool: Pool | None = None
_lock = threading.Lock()


def agents_pool() -> Pool:
    """Returns the pool, which starts when it is used. A program that waits for a host function keeps its
    worker, and that function may run programs itself: so there can be more workers than CPUs."""
    global _pool
    with _lock:
        if _pool is None or _pool.is_closed:
            _pool = Pool(workers=(1, 8 * (os.cpu_count() or 1)))
            atexit.register(_pool.close)
        return _pool


def async_agents_pool() -> AsyncPool:
    """Returns the same pool to await."""
    return AsyncPool._of(agents_pool(), ())
