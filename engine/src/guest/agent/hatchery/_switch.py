"""Threads on one stack: a thread runs while another one waits.

A thread is a generator, which yields what it waits for (`_suspend.py`). The main thread's waits run
the others. So does a wait in code that can't be suspended, such as a sort key: what it waits for
must then come from threads that are not below it on the stack.
"""

import _thread
import collections
import contextvars
import functools
import itertools
import os
import sys
import types
import weakref

from hatchery import _locks, _system

# A thread that doesn't wait lets others run after so many seconds, as `sys.getswitchinterval` says.
SLICE = 0.005
# Between the numbers of threads.
STEP = 4096
MOST_THREADS = 10_000
# What the threads of pools wait to do.
POOL = "run a call"
SLEEP = "sleep"
ONE_STACK = "deadlock: the sandbox has one stack for all threads, and {}"
BELOW = (
    "{} waits on top of {}, which could go on. Code that Python's C code calls can't be suspended;"
    " a build with threads can do it (docs/guide/builds.md)"
)
# The arguments of the locals that exist, by `LocalKey`.
LOCALS = {}


class Wait:
    """What a thread waits for, and the time at which it stops waiting."""

    def __init__(self, name, is_ready, timeout=None):
        self.name = name
        self.is_ready = is_ready
        self.deadline = None if timeout is None else _locks.monotonic() + timeout

    def is_over(self):
        """Whether it is there. To ask lets no other thread run."""
        global asking
        before, asking = asking, True
        try:
            return self.is_ready()
        finally:
            asking = before

    def is_due(self):
        return self.deadline is not None and self.deadline <= _locks.monotonic()


class Task:
    """A thread, with what CPython keeps for each."""

    def __init__(self, ident, body=None, is_daemon=True):
        self.ident = ident
        self.is_daemon = is_daemon
        self.is_done = False
        # Released at the end (CPython 3.12).
        self.sentinel = None
        self._body = body
        self.wait = None if body is None else next(body)
        self._context = contextvars.Context()
        self._locals = {}
        self._hooks = None, None
        self._loop = None
        # That of its process, if it isn't the program's own (`_processes.py`).
        self.space = None if body is None else current.space

    def step(self):
        """Runs the thread until it waits, on top of the one that runs."""
        global current, began
        queue.remove(self)
        below, current, began = current, self, _locks.monotonic()
        below._leave()
        self._enter(below)
        is_over = True
        try:
            self.wait = self._context.run(self._body.send, self.wait.is_over())
            is_over = False
        except StopIteration:
            pass
        finally:
            self._leave()
            current, began = below, _locks.monotonic()
            below._enter(self)
            if is_over:
                self._end()
            else:
                queue.append(self)

    def _end(self):
        self.is_done, self._body = True, None
        if self.sentinel is not None and self.sentinel.locked():
            self.sentinel.release()

    def drop(self):
        """Ends the thread where it waits. It is kept, so that it runs no `finally`."""
        queue.remove(self)
        dropped.append(self._body)
        self._end()
        if "threading" in sys.modules:
            sys.modules["threading"]._active.pop(self.ident, None)

    def move(self, space):
        """Makes the thread, which runs, the first one of a process."""
        exchange(self.space, space)
        self.space = space

    def _leave(self):
        self._hooks = sys.gettrace(), sys.getprofile()
        known = [(key, key()) for key in list(LOCALS)]
        self._locals = {key: dict(names(one)) for key, one in known if one is not None}
        events = sys.modules.get("asyncio.events")
        self._loop = None if events is None else events._get_running_loop()

    def _enter(self, other):
        if self.space is not other.space:
            exchange(other.space, self.space)
        trace, profile = self._hooks
        if sys.gettrace() is not trace:
            sys.settrace(trace)
        if sys.getprofile() is not profile:
            sys.setprofile(profile)
        for key, (args, options) in list(LOCALS.items()):
            if (one := key()) is None:
                continue
            names(one).clear()
            if key in self._locals:
                names(one).update(self._locals[key])
            elif type(one).__init__ is not object.__init__:
                one.__init__(*args, **options)
        events = sys.modules.get("asyncio.events")
        if events is not None and events._get_running_loop() is not self._loop:
            events._set_running_loop(self._loop)


def exchange(old, new):
    """Replaces the global variables of a process by those of another one."""
    from multiprocessing import process

    old, new, names = old or main_space, new or main_space, sys.modules["__main__"].__dict__
    old.names, old.process = dict(names), process._current_process
    names.clear()
    names.update(new.names)
    process._current_process = new.process


class LocalKey(weakref.ref):
    """A local by its identity, since a class derived from `threading.local` may have no hash."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Local(_thread._local):
    """`threading.local`: CPython's, which is known here so that each thread has its own values."""

    def __new__(kind, /, *args, **options):
        made = super().__new__(kind, *args, **options)
        LOCALS[LocalKey(made, LOCALS.pop)] = args, options
        return made


def names(local):
    return _thread._local.__getattribute__(local, "__dict__")


class Handle:
    """Replaces `_thread._ThreadHandle`."""

    def __init__(self, task=None):
        self._task = task

    ident = property(lambda self: 0 if self._task is None else self._task.ident)

    def is_done(self):
        if self._task is not None and not self._task.is_done and self._task is not current:
            give_way()  # in a loop, for example, until the thread is done
        return self._task is not None and self._task.is_done

    def join(self, timeout=None, /):
        if timeout is not None and timeout < 0:
            timeout = None
        wait("Thread.join", lambda: self._task.is_done, timeout)

    def _set_done(self):
        self._task.is_done = True


def start(function, args, options, is_daemon=True):
    from hatchery import _suspend, _waits

    if len(queue) >= MOST_THREADS:
        raise RuntimeError(f"can't start new thread: the sandbox has at most {MOST_THREADS} at once")
    task = Task(main.ident + STEP * next(counter), _suspend.body(function, args, options), is_daemon)
    _locks.later = sleep
    # It is first, so that `Thread.start`, which waits until it has begun, runs no other thread.
    queue.appendleft(task)
    return task


def start_new_thread(function, args, kwargs={}, /):
    if not callable(function):
        raise TypeError("first arg must be callable")
    if not isinstance(args, tuple):
        raise TypeError("2nd arg must be a tuple")
    if not isinstance(kwargs, dict):
        raise TypeError("optional 3rd arg must be a dictionary")
    return start(function, args, kwargs).ident


def start_bootstrap(bootstrap, args):
    """Starts a thread of `threading` (CPython 3.12)."""
    return start(bootstrap, args, {}, bootstrap.__self__.daemon).ident


def start_joinable_thread(function, handle=None, daemon=True):
    if not callable(function):
        raise TypeError("thread function must be callable")
    handle = Handle() if handle is None else handle
    handle._task = start(function, (), {}, daemon)
    return handle


def get_ident():
    return current.ident


def get_native_id():
    return os.getpid() + number(current)


def number(task):
    return (task.ident - main.ident) // STEP


def set_sentinel():
    """Returns a lock that is released when the thread ends (CPython 3.12)."""
    current.sentinel = _thread.allocate_lock()
    return current.sentinel


def wait(name, is_ready, timeout=None, idle=None):
    """Runs other threads until the wait is over; returns whether it is ready."""
    mine, has_run = Wait(name, is_ready, timeout), False
    stack.append((current, mine))
    try:
        while not mine.is_over():
            task = runnable()
            if mine.is_due() and (task is None or has_run and not is_before(task.wait, mine)):
                if name != SLEEP and idle is None and below_could():
                    raise RuntimeError(deadlock(mine))
                return False
            if task is None:
                pass_time(mine, idle)
            else:
                task.step()
                has_run = True
        return True
    finally:
        stack.pop()


def is_before(one, other):
    return one.deadline is not None and one.deadline < other.deadline


def runnable():
    """Returns the thread that can go on and waits longest; of those that are late, the latest one."""
    late = None
    for task in queue:
        if late is None and task.wait.is_over():
            return task
        if task.wait.is_due() and (late is None or is_before(task.wait, late.wait)):
            late = task
    return late


def pass_time(mine, idle):
    """Sleeps until the next time-out of a thread that can be resumed."""
    waits = mine, *(task.wait for task in queue)
    moments = [one.deadline for one in waits if one.deadline is not None]
    seconds = max(min(moments) - _locks.monotonic(), 0) if moments else None
    if idle is not None:
        idle(seconds)
    elif seconds is not None:
        _system.rest(_locks.pause, seconds)
    else:
        raise RuntimeError(deadlock(mine))


def deadlock(mine):
    """Returns what is said of a wait that can't end."""
    if not queue and len(stack) == 1:
        return _locks.DEADLOCK.format(mine.name)
    below = below_could()
    if below:
        return ONE_STACK.format(BELOW.format(told(current, mine), told(*below)))
    waits = [told(*one) for one in stack] + [told(task, task.wait) for task in queue]
    return ONE_STACK.format(f"each waits for another: {', '.join(waits)}")


def below_could():
    """Returns the thread, with its wait, that could go on if it weren't below others on the stack."""
    return next((one for one in stack[:-1] if one[1].is_over()), None)


def told(task, wait):
    threading = sys.modules.get("threading")
    thread = threading._active.get(task.ident) if threading is not None else None
    return f"{task.ident if thread is None else thread.name} (to {wait.name})"


def is_duration(arguments):
    return len(arguments) == 1 and isinstance(arguments[0], (int, float)) and arguments[0] >= 0


def sleep(*seconds):
    if not is_duration(seconds):
        _locks.pause(*seconds)
    wait(SLEEP, lambda: False, *seconds)


def give_way(after=SLICE):
    """Lets another thread run if this one has had its time, in seconds."""
    task = runnable() if not asking and _locks.monotonic() - began >= after else None
    if task is not None:
        task.step()


def shutdown():
    """Waits for the threads that aren't daemons."""
    wait("end the threads", lambda: all(task.is_daemon for task in queue))


def settle():
    """Runs the threads of a turn until each that isn't a daemon waits for another."""
    goes_on = lambda wait: wait.deadline is not None or wait.is_over()
    wait("end the turn", lambda: not any(goes_on(task.wait) for task in queue if not task.is_daemon))


# The thread that runs, since when; the others, those that wait longest first; and the waits on the
# stack, with the threads that wait.
main = current = Task(_thread.get_ident())
began = 0.0
queue, stack, counter = collections.deque(), [], itertools.count(1)
# Whether it is being asked what a thread waits for.
asking = False
# Ended from outside; and where the program's own global variables are while another process runs.
dropped, main_space = [], types.SimpleNamespace()
if _locks.is_installed:
    _thread.get_ident = get_ident


def adapt(threading):
    """Lets `threading` start and switch threads here."""
    if not _locks.is_installed or not hasattr(threading, "_main_thread"):
        return
    of_main = dict.fromkeys(("_handle", "_os_thread_handle"), Handle(main))
    for owner, changes in (
        (threading._main_thread, of_main),
        (threading, {
            "_start_new_thread": start_bootstrap, "_start_joinable_thread": start_joinable_thread,
            "_ThreadHandle": Handle, "_make_thread_handle": lambda ident: Handle(Task(ident)),
            "get_ident": get_ident, "get_native_id": get_native_id, "_set_sentinel": set_sentinel,
            "_thread_shutdown": shutdown,
            # CPython's own knows one owner.
            "_CRLock": None,
            "local": Local,
        }),
    ):
        for name, value in changes.items():
            if hasattr(owner, name):
                setattr(owner, name, value)
    make = threading._make_invoke_excepthook

    def make_invoke_excepthook():
        invoke = make()

        def invoke_excepthook(thread):
            if issubclass(sys.exc_info()[0], KeyboardInterrupt):
                raise  # in the main thread, for which it is meant
            invoke(thread)

        return invoke_excepthook

    threading._make_invoke_excepthook = make_invoke_excepthook
    adapt_polled(threading)


# What the main thread may ask in a loop until it is so, by the module.
POLLED = {
    "threading": ("Event", "is_set"),
    "queue": ("Queue", "empty full qsize"),
    "concurrent.futures._base": ("Future", "done running"),
}


def adapt_polled(module):
    """Lets other threads run where the main one asks something in a loop."""
    kind, names = POLLED[module.__name__]
    kind = getattr(module, kind, None)
    for name in names.split() if _locks.is_installed and kind is not None else ():
        setattr(kind, name, polled(vars(kind)[name]))


def polled(method):
    @functools.wraps(method)
    def poll(self):
        if queue and current is main:
            give_way()
        return method(self)

    return poll


def adapt_pool(module):
    """Lets a pool's thread begin with a call where it is submitted, if it would soon."""
    pool = getattr(module, "ThreadPoolExecutor", None)
    if not _locks.is_installed or pool is None:
        return
    submit = pool.submit

    @functools.wraps(submit)
    def submit_and_begin(self, fn, /, *args, **kwargs):
        future = submit(self, fn, *args, **kwargs)
        ready = (task for task in queue if task.wait.name == POOL and task.wait.is_over())
        task = next(ready, None) if current is main else None
        if task is not None:
            task.step()
        return future

    pool.submit = submit_and_begin


ADAPT = {**dict.fromkeys(POLLED, adapt_polled), "threading": adapt, "concurrent.futures.thread": adapt_pool}
