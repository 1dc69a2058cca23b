"""Waits of the one thread that there is: timed ones sleep, and those that nobody can end are refused.

The build has no threads, and its C library ends the interpreter where a lock would have to wait.
So the types of locks and queues get other methods, which hold for all of them, whoever made them and
when. A lock that is free costs one call more than it did.
"""

import sys

DEADLOCK = "deadlock: this interpreter has one thread, so nobody else could {}"
NO_THREADS = (
    "can't start new thread: this interpreter has one; use asyncio for what waits, and more jobs"
    " for what computes"
)


def lock_methods(take, is_locked, new_lock, sleep):
    """`acquire` and `__enter__` of locks, from what the type has and what waits."""

    def acquire(self, blocking=True, timeout=-1):
        if timeout == -1:
            if take(self, False):
                return True
            if not blocking:
                return False
            raise RuntimeError(DEADLOCK.format("release the lock"))
        if not is_locked(self):
            return take(self, blocking, timeout)
        # One that is free refuses what can't be waited for.
        take(new_lock(), blocking, timeout)
        sleep(timeout)
        return take(self, False)

    def __enter__(self):
        if take(self, False):
            return True
        raise RuntimeError(DEADLOCK.format("release the lock"))

    return acquire, __enter__


def queue_method(take, is_empty, sleep):
    """`get` of simple queues."""

    def get(self, block=True, timeout=None):
        if not block or not is_empty(self):
            return take(self, block, timeout)
        if timeout is None:
            raise RuntimeError(DEADLOCK.format("put something into the queue"))
        if timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        sleep(timeout)
        return take(self, False)

    return get


def start_thread(*args, **kwargs):
    """What stands in for the functions that start threads."""
    raise RuntimeError(NO_THREADS)


def replace(kind, methods):
    """Gives a type that can't be changed other methods."""
    import gc

    [namespace] = gc.get_referents(kind.__dict__)
    for method, names in methods:
        method.__qualname__ = f"{kind.__name__}.{names[0]}"
        method.__doc__ = namespace[names[0]].__doc__
        for name in names:
            namespace[name] = method


def install():
    """Replaces what would wait for ever."""
    import _queue
    import _thread
    import time

    lock = _thread.lock
    acquire, enter = lock_methods(lock.acquire, lock.locked, _thread.allocate_lock, time.sleep)
    replace(lock, [(acquire, ("acquire", "acquire_lock")), (enter, ("__enter__",))])
    queue = _queue.SimpleQueue
    replace(queue, [(queue_method(queue.get, queue.empty, time.sleep), ("get",))])
    # `threading` is imported later, and takes them from here.
    for name in ("start_new_thread", "start_new", "start_joinable_thread"):
        setattr(_thread, name, start_thread)
    # CPython remembers what it found in a type.
    sys._clear_internal_caches()


if sys.platform == "wasi":
    try:
        install()
    except (AttributeError, ImportError, ValueError):
        pass  # a build of another shape, which waits in its own way
