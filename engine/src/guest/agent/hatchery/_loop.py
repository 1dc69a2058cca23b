"""asyncio's event loop in the sandbox: it waits in the host, for timers, host functions and sockets.

There are no pipes and processes here, so only other threads and the timer of `signal` can wake it up.

Everything that an interpreter awaits outside functions runs on one loop, kept by the `bridge`. In a
session it lives as long as the session's variables, even while no turn awaits anything: a task can
be created in one turn and awaited in a later one.
"""

import atexit
import errno
import functools
import selectors
import signal
import socket
import sys
import time

import hatchery
from asyncio import events, selector_events, tasks
from hatchery import _sockets, _waits
from hatchery._host import bridge
from hatchery._packages import _NO_NETWORK

NO_SOCKETS = f"{_NO_NETWORK} in its event loop: use sockets in threads"
# The most steps of the loop between a session's turns, if tasks always have more to do.
MOST_STEPS = 1000


class HostSelector(selectors._BaseSelectorImpl):
    """Waits in the host where other event loops wait for sockets, and for host functions, too."""

    def register(self, fileobj, events, data=None):
        if self._fileobj_lookup(fileobj) not in _sockets.STREAMS:
            # As for files. The sockets of other builds end up here, too.
            text = NO_SOCKETS if hasattr(socket, "socketpair") else "Operation not permitted"
            raise PermissionError(errno.EPERM, text)
        return super().register(fileobj, events, data)

    def select(self, timeout=None):
        keys, timer = self._fd_to_key, _waits.timer
        ready, _ = _sockets.look({fd: key.events for fd, key in keys.items()}) if keys else ((), ())
        if ready:
            timeout = 0
        elif keys:
            timeout = _sockets.sliced(timeout)
        if timer is not None and timer.due is not None:
            left = max(timer.due - time.monotonic(), 0)
            timeout = left if timeout is None else min(timeout, left)
        if timeout is None or timeout > 0 or bridge.awaited:
            bridge.dispatch(bridge.wait(timeout))
        if timer is not None:
            timer.ring()
        return [(keys[fd], events) for fd, events in ready.items()] if ready else ()


class HostLoop(selector_events.BaseSelectorEventLoop):
    """An event loop that waits in the host."""

    waits_in_host = True

    def __init__(self, selector=None):
        super().__init__(HostSelector())
        self._handled = set()

    def _make_self_pipe(self):
        pass

    _close_self_pipe = _make_self_pipe

    def _write_to_self(self):
        # Without threads there is no other one to wake.
        if hatchery._has_threads:
            bridge.wake()

    async def getaddrinfo(self, host, port, *, family=0, type=0, proto=0, flags=0):
        # Without a thread: the host looks names up when it connects.
        return socket.getaddrinfo(host, port, family, type, proto, flags)

    async def getnameinfo(self, sockaddr, flags=0):
        return socket.getnameinfo(sockaddr, flags)

    def run_in_executor(self, executor, func, *args):
        if executor is not None or hatchery._has_threads or self._default_executor is not None:
            return super().run_in_executor(executor, func, *args)
        # As Pyodide's own loop does: `asyncio.to_thread` works, and the others wait for it.
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            future.set_exception(error)
        return future

    def catch_up(self):
        """Runs tasks as far as possible without waiting, as if they had run in the background."""
        for _ in range(MOST_STEPS):
            if self.is_closed() or self.is_running() or not self._is_due():
                return
            # Stopping it first makes it do one step.
            self.stop()
            self.run_forever()

    def _is_due(self):
        timers = self._scheduled
        return bool(self._ready) or bool(timers) and timers[0].when() <= self.time()

    def add_signal_handler(self, sig, callback, *args):
        signal.signal(sig, lambda *_: self.call_soon(callback, *args))
        self._handled.add(sig)

    def remove_signal_handler(self, sig):
        if sig not in self._handled:
            return False
        self._handled.discard(sig)
        signal.signal(sig, signal.default_int_handler if sig == signal.SIGINT else signal.SIG_DFL)
        return True


def refuse(what, names):
    """Makes methods of the loop fail and say what the sandbox lacks."""
    for name in names.split():

        async def method(self, *args, **kwargs):
            raise OSError(errno.ENOTSUP, f"the sandbox has no {what}")

        method.__name__ = name
        method.__qualname__ = f"HostLoop.{name}"
        setattr(HostLoop, name, method)


refuse(
    "network but connections to what a job was granted",
    "create_server create_datagram_endpoint create_unix_connection create_unix_server connect_accepted_socket"
    " sock_accept sock_recvfrom sock_recvfrom_into sock_sendto",
)
refuse("pipes", "connect_read_pipe connect_write_pipe")
refuse("processes for asyncio: call `subprocess.run`, perhaps by `asyncio.to_thread`", "subprocess_exec subprocess_shell")


def kept_loop():
    """Returns the loop that is kept; creates it when it is first needed."""
    loop = bridge.loop
    if loop is None or loop.is_closed():
        if loop is None:
            atexit.register(close)
        loop = bridge.loop = HostLoop()
    return loop


def run(coroutine):
    """Runs a coroutine to its end, on the loop that is kept.

    Tasks that it leaves continue when the loop runs next. A host function that such a task awaits
    fails when the turn is over: calls end with the run that made them.
    """
    loop = kept_loop()
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        if not task.done():
            task.cancel()
            loop.run_until_complete(tasks.wait([task]))
        if not task.cancelled():
            task.exception()
        raise


def close():
    """Cancels what `run` has left and closes its loop, as `asyncio.run` does at its end."""
    loop, bridge.loop = bridge.loop, None
    if loop is None or loop.is_closed() or loop.is_running():
        return
    try:
        left = tasks.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(tasks.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


# Finds the running loop, as before `install`.
find_running_loop = events._get_running_loop


def get_running_loop():
    """Returns the running loop, or in a session its own loop, so that plain code can create tasks.

    `asyncio.run` still works in a session, whose own loop runs only while a turn awaits.
    """
    loop = find_running_loop()
    if loop is not None:
        return loop
    if bridge.is_session:
        return kept_loop()
    raise RuntimeError("no running event loop")


def of_running_loop(function):
    """Wraps a function of asyncio that takes a loop, to use that loop by default."""

    def with_loop(loop=None):
        return function(get_running_loop() if loop is None else loop)

    return functools.wraps(function)(with_loop)


def install():
    """Makes `asyncio.run` and others create this event loop, and makes a session's loop current."""
    loops = sys.modules.get("asyncio.unix_events")
    if loops is None:
        return
    name = "_DefaultEventLoopPolicy"
    policy = getattr(loops, name, None) or loops.DefaultEventLoopPolicy
    policy._loop_factory = HostLoop
    get_set_loop = policy.get_event_loop

    def get_event_loop(self):
        is_set = getattr(self._local, "_loop", None) is not None
        return kept_loop() if bridge.is_session and not is_set else get_set_loop(self)

    policy.get_event_loop = get_event_loop
    asyncio = sys.modules["asyncio"]
    events.get_running_loop = asyncio.get_running_loop = get_running_loop
    for name in ("all_tasks", "current_task"):
        function = of_running_loop(getattr(tasks, name))
        setattr(tasks, name, function)
        setattr(asyncio, name, function)
    for module in (loops, asyncio):
        for name in ("SelectorEventLoop", "EventLoop"):
            if name in module.__dict__:
                setattr(module, name, HostLoop)


install()
