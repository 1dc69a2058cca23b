"""Waits of a program: for time, locks, queues and threads.

The types of locks, queues and threads' handles get other methods, which apply to all instances. A program that
has started no thread waits for no other: a timed wait sleeps, and one without end is refused. With threads, the
main one waits in parts. In between CPython raises what an interrupt asks for, and a timer's handler runs. Other
threads wait as in CPython. To acquire a free lock costs one more call than in CPython.
"""

import _thread
import functools
import sys
import time

import hatchery

DEADLOCK = "deadlock: the program has one thread, so no other thread can {}"
NO_THREADS = (
    "can't start new thread: the sandbox has one thread; use asyncio for concurrent waits, and"
    " several jobs for parallel computation"
)
# The longest part of a wait, in seconds. An interrupt ends a wait of CPython only if it has a time.
LONGEST = 1 << 20
# How long the main thread sleeps between two looks at a thread that it joins: CPython's own wait goes on after an
# interrupt.
SHORTEST_JOIN, LONGEST_JOIN = 0.0002, 0.02

# The thread that handles signals, and the timer of the module `signal`, once a program has set it.
MAIN, timer = _thread.get_ident(), None
# Whether the program has started no thread yet.
is_alone = True
plain_sleep = time.sleep


def wait(part, seconds=None, nobody=None):
    """Calls `part` with the seconds to wait until it returns true or the time is over. Returns its result.

    A handler of the timer runs in between. Without both, nobody ends the wait, if `nobody` says what they could do.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        due = timer.due if timer is not None and _thread.get_ident() == MAIN else None
        ends = [at for at in (end, due) if at is not None]
        is_endless = nobody is not None and not ends
        left = 0 if is_endless else min(ends) - time.monotonic() if ends else LONGEST
        result = part(min(max(left, 0), LONGEST))
        if timer is not None and not result:
            timer.ring()
        if result or end is not None and time.monotonic() >= end:
            return result
        if is_endless:
            raise RuntimeError(DEADLOCK.format(nobody))


def block(take, seconds, nobody):
    """Waits with `take`, which takes seconds, or `None` for no end."""
    if is_alone:
        return wait(lambda part: plain_sleep(part) or take(0), seconds, nobody=nobody)
    return wait(take, seconds) if _thread.get_ident() == MAIN else take(seconds)


def sleep(*seconds):
    if timer is None or _thread.get_ident() != MAIN or len(seconds) != 1 or not seconds[0] > 0:
        return plain_sleep(*seconds)
    wait(plain_sleep, *seconds)


sleep.__doc__, sleep.__module__ = plain_sleep.__doc__, "time"


def lock_methods(take, new_lock):
    """Returns `acquire` and `__enter__` of locks with this `acquire`."""

    def acquire(self, blocking=True, timeout=-1):
        if not blocking:
            return take(self, blocking, timeout)
        if timeout != -1:
            # A free lock refuses invalid timeouts.
            take(new_lock(), blocking, timeout)
        return take(self, False) or waited(self, None if timeout == -1 else timeout)

    def __enter__(self):
        return take(self, False) or waited(self, None)

    def waited(self, seconds):
        return block(lambda part: take(self, True, -1 if part is None else part), seconds, "release the lock")

    return acquire, __enter__


def queue_method(take, empty):
    """Returns `get` of simple queues with this `get`, which raises `empty` when the time is over."""

    def get(self, block=True, timeout=None):
        if not block:
            return take(self, block, timeout)
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        got = waited(self, timeout)
        return got[0] if got else take(self, False)

    def waited(self, seconds):
        def part(seconds):
            try:
                return [take(self, seconds != 0, seconds)]
            except empty:
                return None

        return part(0) or block(part, seconds, "put something into the queue")

    return get


def join_method(take, is_done):
    """Returns `join` of threads' handles with this `join`."""

    def join(self, timeout=None):
        if _thread.get_ident() != MAIN or is_done(self):
            return take(self, timeout)
        take(self, 0)  # refuses what it would refuse
        pause = SHORTEST_JOIN

        def part(seconds):
            nonlocal pause
            plain_sleep(min(seconds, pause))
            pause = min(2 * pause, LONGEST_JOIN)
            return is_done(self)

        if wait(part, timeout):
            take(self)

    return join


def shutdown_function(plain):
    """Returns `_shutdown`, the wait for all threads but daemons."""

    def _shutdown():
        threading = sys.modules["threading"]
        for thread in threading.enumerate():
            if not thread.daemon and thread is not threading.current_thread():
                thread.join()
        plain()

    return _shutdown


def start_thread(*args, **kwargs):
    """Replaces the functions that start threads."""
    raise RuntimeError(NO_THREADS)


def starter(start):
    """Returns a function that starts threads with `start`."""

    @functools.wraps(start)
    def started(*args, **kwargs):
        global is_alone
        # Before the start: the thread may run, and wait, before this one goes on.
        before, is_alone = is_alone, False
        try:
            return start(*args, **kwargs)
        except RuntimeError:
            is_alone = before
            raise

    return started


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
    """Replaces the methods that wait, and the functions that start threads."""
    import _queue

    queue, handle = _queue.SimpleQueue, getattr(_thread, "_ThreadHandle", None)
    for kind, new, names in (
        (_thread.LockType, _thread.allocate_lock, ("acquire", "acquire_lock")),
        (_thread.RLock, _thread.RLock, ("acquire",)),
    ):
        acquire, enter = lock_methods(kind.acquire, new)
        replace(kind, [(acquire, names), (enter, ("__enter__",))])
    replace(queue, [(queue_method(queue.get, _queue.Empty), ("get",))])
    if handle is not None:
        replace(handle, [(join_method(handle.join, handle.is_done), ("join",))])
        _thread._shutdown = shutdown_function(_thread._shutdown)
    # `threading`, which is imported later, takes them from here.
    for name in ("start_new_thread", "start_new", "start_joinable_thread"):
        if not hatchery._has_threads:
            setattr(_thread, name, start_thread)
        elif hasattr(_thread, name):
            setattr(_thread, name, starter(getattr(_thread, name)))


if sys.platform in ("wasi", "emscripten"):
    try:
        install()
    except (AttributeError, ImportError, KeyError, ValueError):
        pass  # another kind of build, which waits in its own way
