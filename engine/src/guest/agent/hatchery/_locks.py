"""Waits in a single thread: timed waits sleep, and waits that nobody can end are refused.

Some builds have no threads, and their C library ends the interpreter where a lock would have to
wait. In others, a program whose only thread waits would wait until its time limit. So the types of
locks and queues get other methods, which apply to all instances. Acquiring a free lock costs one
more call than before. They get their own methods back when a program starts its first thread. A
build whose threads run at the same time keeps its own.
"""

import functools
import sys

import hatchery

DEADLOCK = "deadlock: the program has one thread, so no other thread can {}"
NO_THREADS = (
    "can't start new thread: the sandbox has one thread; use asyncio for concurrent waits, and"
    " several jobs for parallel computation"
)


def lock_methods(take, is_locked, new_lock, sleep, is_single=lambda: True):
    """Returns `acquire` and `__enter__` of locks, which use the type's own methods and `sleep`.

    A program may keep a bound method beyond the time of a single thread.
    """

    def acquire(self, blocking=True, timeout=-1):
        if not is_single():
            return take(self, blocking, timeout)
        if timeout == -1:
            if take(self, False):
                return True
            if not blocking:
                return False
            raise RuntimeError(DEADLOCK.format("release the lock"))
        if not is_locked(self):
            return take(self, blocking, timeout)
        # A free lock refuses invalid timeouts.
        take(new_lock(), blocking, timeout)
        sleep(timeout)
        return take(self, False)

    def __enter__(self):
        if take(self, not is_single()):
            return True
        raise RuntimeError(DEADLOCK.format("release the lock"))

    return acquire, __enter__


def queue_method(take, is_empty, sleep, is_single=lambda: True):
    """Returns `get` of simple queues."""

    def get(self, block=True, timeout=None):
        if not block or not is_empty(self) or not is_single():
            return take(self, block, timeout)
        if timeout is None:
            raise RuntimeError(DEADLOCK.format("put something into the queue"))
        if timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        sleep(timeout)
        return take(self, False)

    return get


def start_thread(*args, **kwargs):
    """Replaces the functions that start threads."""
    raise RuntimeError(NO_THREADS)


def replace(kind, methods):
    """Replaces methods of a type that can't be changed."""
    for method, names in methods:
        method.__qualname__ = f"{kind.__name__}.{names[0]}"
        method.__doc__ = kind.__dict__[names[0]].__doc__
        put(kind, dict.fromkeys(names, method))


def put(kind, attributes):
    """Sets attributes of a type that can't be changed."""
    import gc

    [namespace] = gc.get_referents(kind.__dict__)
    namespace.update(attributes)
    # CPython caches the attributes of types; the function has this name from 3.13 on.
    getattr(sys, "_clear_internal_caches", getattr(sys, "_clear_type_cache", None))()


def first_start(start, waits):
    """Returns a function that starts threads, and ends the time of a single one before."""

    @functools.wraps(start)
    def started(*args, **kwargs):
        while waits:
            put(*waits.pop())
        return start(*args, **kwargs)

    return started


def install():
    """Replaces the methods that would wait forever."""
    import _queue
    import _thread
    import time

    lock, queue = _thread.LockType, _queue.SimpleQueue
    kept = ("acquire", "acquire_lock", "__enter__"), ("get",)
    kinds = zip((lock, queue), kept)
    waits = [(kind, {name: kind.__dict__[name] for name in names}) for kind, names in kinds]
    is_single = lambda: bool(waits)
    acquire, enter = lock_methods(
        lock.acquire, lock.locked, _thread.allocate_lock, time.sleep, is_single
    )
    replace(lock, [(acquire, ("acquire", "acquire_lock")), (enter, ("__enter__",))])
    replace(queue, [(queue_method(queue.get, queue.empty, time.sleep, is_single), ("get",))])
    # `threading`, which is imported later, takes them from here.
    for name in ("start_new_thread", "start_new", "start_joinable_thread"):
        if not hatchery._takes_turns:
            setattr(_thread, name, start_thread)
        elif hasattr(_thread, name):
            setattr(_thread, name, first_start(getattr(_thread, name), waits))


if sys.platform == "wasi" and (hatchery._takes_turns or not hatchery._has_threads):
    try:
        install()
    except (AttributeError, ImportError, KeyError, ValueError):
        pass  # another kind of build, which waits in its own way
