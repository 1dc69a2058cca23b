"""The connection of a pool in this process: made when it is needed, and again after a fork or when
the server has ended."""

from __future__ import annotations

import atexit
import os
import threading
import weakref

from hatchery_sandbox._client import Client
from hatchery_sandbox._config import PoolConfig
from hatchery_sandbox._errors import PoolClosedError


class Launcher:
    """Has the client of a pool, and makes a new one where it must."""

    def __init__(self, config: PoolConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._client: Client | None = None
        self._is_closed = False
        _launchers.add(self)

    def client(self) -> Client:
        """Returns a client whose connection hasn't ended.

        Raises:
            PoolError: The pool is closed, or can't be started or reached.
        """
        client = self._client
        if client is not None and self._pid == os.getpid() and not client.is_lost():
            return client
        if self._pid != os.getpid():
            # The holder of the lock isn't in this process.
            self._lock, self._pid, self._client = threading.Lock(), os.getpid(), None
        with self._lock:
            if self._is_closed:
                raise PoolClosedError("the pool is closed")
            if self._client is None or self._client.lost is not None:
                self._client = Client(self._config.connect(), self._config.window)
            return self._client

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Ends the connection at once; the pool can't be used any more."""
        self._is_closed = True
        client = self._client
        if client is not None and self._pid == os.getpid():
            client.close()

    def current(self) -> Client | None:
        """Returns the client, if there is one in this process."""
        return self._client if self._pid == os.getpid() else None

    def disturb(self) -> None:
        """Makes the server end, for a pool without references."""
        client = self.current()
        if client is not None and client.lost is None:
            client.disturb()


_launchers: weakref.WeakSet[Launcher] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Ends the servers with this process. They would notice by themselves; so nobody has to look
    for them meanwhile."""
    for launcher in list(_launchers):
        launcher.close()
