"""asyncio's event loop in the sandbox: it waits in the host, for its timers and for host functions.

There are no sockets, pipes, processes, signals and threads here, so nothing else wakes it up.
"""

import atexit
import errno
import sys

from asyncio import base_events, events, tasks
from hatchery._host import bridge


class HostSelector:
    """Waits where other event loops wait for sockets."""

    def select(self, timeout=None):
        if timeout is None or timeout > 0 or bridge.awaited:
            bridge.dispatch(bridge.wait(timeout))
        return ()


class HostLoop(base_events.BaseEventLoop):
    """An event loop that waits in the host."""

    waits_in_host = True

    def __init__(self, selector=None):
        super().__init__()
        self._selector = HostSelector()

    def _process_events(self, event_list):
        pass

    def _write_to_self(self):
        # Nobody waits while somebody else runs.
        pass

    def run_in_executor(self, executor, func, *args):
        if executor is None:
            raise RuntimeError("the sandbox has no threads to run this in")
        return super().run_in_executor(executor, func, *args)


def refuse(what, names):
    """Has methods of the loop say what there is not."""
    for name in names.split():

        async def method(self, *args, **kwargs):
            raise OSError(errno.ENOTSUP, f"the sandbox has no {what}")

        method.__name__ = name
        method.__qualname__ = f"HostLoop.{name}"
        setattr(HostLoop, name, method)


refuse(
    "network",
    "create_connection create_server create_datagram_endpoint create_unix_connection"
    " create_unix_server connect_accepted_socket getaddrinfo getnameinfo start_tls sendfile"
    " sock_accept sock_connect sock_recv sock_recv_into sock_recvfrom sock_recvfrom_into"
    " sock_sendall sock_sendfile sock_sendto",
)
refuse("pipes", "connect_read_pipe connect_write_pipe")
refuse("processes", "subprocess_exec subprocess_shell")

# The loop of `run`, once there is one.
_kept = None


def run(coroutine):
    """Runs a coroutine to its end, on a loop that stays for the next one.

    Tasks that it leaves are paused until then. A host function that such a task awaits fails: calls
    end with the run that made them.
    """
    global _kept
    if _kept is None or _kept.is_closed():
        if _kept is None:
            atexit.register(close)
        _kept = HostLoop()
    loop = _kept
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
    """Cancels what `run` has left, and closes its loop, as `asyncio.run` does at its end."""
    global _kept
    loop, _kept = _kept, None
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


def install():
    """Makes this the event loop of `asyncio.run` and all else that asks for a new one."""
    loops = sys.modules.get("asyncio.unix_events")
    if loops is None:
        return
    name = "_DefaultEventLoopPolicy"
    policy = getattr(loops, name, None) or loops.DefaultEventLoopPolicy
    policy._loop_factory = HostLoop
    for module in (loops, sys.modules["asyncio"]):
        for name in ("SelectorEventLoop", "EventLoop"):
            if name in module.__dict__:
                setattr(module, name, HostLoop)


install()
