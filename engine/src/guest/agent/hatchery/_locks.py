"""Waits without threads: where a lock or a queue would have to wait, other threads run.

Most builds have no threads, and their C library ends the interpreter where a lock would have to
wait. So the types of locks and queues get other methods, which apply to all instances. Acquiring a
free lock costs one more call than before. Waits and threads are in `_switch.py`, which is imported
when they are first needed. A build with threads keeps its own.
"""

import sys
from time import monotonic
from time import sleep as pause

import hatchery

DEADLOCK = "deadlock: the sandbox has no other thread that could {}"


def lock_methods(take, is_locked, new_lock):
    """Returns `acquire` and `__enter__` of locks, which use the type's own methods."""

    def acquire(self, blocking=True, timeout=-1):
        if timeout != -1:
            if not is_locked(self):
                return take(self, blocking, timeout)
            # A free lock refuses invalid timeouts.
            take(new_lock(), blocking, timeout)
        elif take(self, False):
            return True
        elif not blocking:
            return False
        wait("release the lock", lambda: not is_locked(self), None if timeout == -1 else timeout)
        return take(self, False)

    def __enter__(self):
        return take(self, False) or acquire(self)

    return acquire, __enter__


def queue_method(take, is_empty):
    """Returns `get` of simple queues."""

    def get(self, block=True, timeout=None):
        if block and is_empty(self):
            if timeout is not None and timeout < 0:
                raise ValueError("'timeout' must be a non-negative number")
            wait("put something into the queue", lambda: not is_empty(self), timeout)
            block = False
        return take(self, block, timeout)

    return get


def wait(name, is_ready, timeout):
    """Runs other threads until this one is ready, or the time is over."""
    from hatchery import _switch

    if timeout == 0:
        return False
    return _switch.wait(name, is_ready, timeout)


# Whether threads share this stack.
is_installed = False


def sleep(*seconds):
    later(*seconds)


# What `sleep` does: it lets other threads run once there are any.
later = pause


def has_threads():
    """Whether there may be threads that run, or wait on one stack."""
    return hatchery._has_threads or later is not pause


def finish_threads(is_last):
    """Waits for the threads on this stack, or after a turn until each waits for another."""
    if later is not pause and is_last and "threading" in sys.modules:
        try:
            sys.modules["threading"]._shutdown()
        except RuntimeError:
            drop_threads()  # they wait for each other, which is said once
            raise
    elif later is not pause:
        from hatchery import _switch

        _switch.settle()


def drop_threads():
    """Ends the threads on this stack, after an interrupt."""
    if later is not pause:
        from hatchery import _switch

        for task in list(_switch.queue):
            task.drop()


def start_new_thread(*args):
    from hatchery import _switch

    return _switch.start_new_thread(*args)


def start_joinable_thread(*args, **options):
    from hatchery import _switch

    return _switch.start_joinable_thread(*args, **options)


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


def install():
    """Replaces the methods that would wait forever."""
    global is_installed
    import _queue
    import _thread
    import time

    lock = _thread.LockType
    acquire, enter = lock_methods(lock.acquire, lock.locked, _thread.allocate_lock)
    replace(lock, [(acquire, ("acquire", "acquire_lock")), (enter, ("__enter__",))])
    queue = _queue.SimpleQueue
    replace(queue, [(queue_method(queue.get, queue.empty), ("get",))])
    time.sleep, sleep.__module__ = sleep, "time"
    # `threading`, which is imported later, takes them from here.
    _thread.start_new_thread = _thread.start_new = start_new_thread
    _thread.start_joinable_thread = start_joinable_thread
    is_installed = True


if sys.platform == "wasi" and not hatchery._has_threads:
    try:
        install()
    except (AttributeError, ImportError, ValueError):
        pass  # another kind of build, which waits in its own way
