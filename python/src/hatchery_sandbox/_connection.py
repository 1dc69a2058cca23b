"""Ways to a server: what can be read from, written to, and closed."""

from __future__ import annotations

import abc
import os
import select
import socket

from hatchery_sandbox._errors import StartError


class Connection(abc.ABC):
    """A server on the other end of two streams."""

    descriptor: int
    """Where its frames are read, blocking."""

    @abc.abstractmethod
    def write(self, data: bytes | memoryview) -> int:
        """Writes what there is room for, and returns how many bytes that is.

        Raises:
            BlockingIOError: There is no room now.
            OSError: The server is gone.
        """

    @abc.abstractmethod
    def wait_for_room(self) -> None:
        """Waits until something can be written, or the server is gone."""

    @abc.abstractmethod
    def end(self) -> None:
        """Tells the server that nothing more comes, so that it ends what runs."""

    @abc.abstractmethod
    def disturb(self) -> None:
        """Makes the server end the connection; needs no lock and closes nothing."""

    @abc.abstractmethod
    def close(self) -> str:
        """Closes both streams after the server has ended its own, and returns why it has, if that
        is known."""

    @abc.abstractmethod
    def forget(self) -> None:
        """Closes what a forked child has inherited, so that only its parent has it."""


def wait_for_room(descriptor: int) -> None:
    """Waits until a descriptor can be written, or was closed."""
    if descriptor < 0:
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    poll.poll()


class Descriptor:
    """A file descriptor that is closed once."""

    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        """Closes it, unless that was done; -1 stands for it from then on."""
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)


class SocketConnection(Connection):
    """A server at a Unix socket, which other processes also use."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise StartError(
                f"nobody serves at {path} ({error.strerror or error}); start a server with "
                f"`hatchery serve --unix {path}`"
            ) from None
        self.descriptor = self._socket.fileno()

    def write(self, data: bytes | memoryview) -> int:
        return self._socket.send(data, socket.MSG_DONTWAIT)

    def wait_for_room(self) -> None:
        wait_for_room(self.descriptor)

    def end(self) -> None:
        self.disturb()

    def disturb(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended

    def close(self) -> str:
        self._socket.close()
        return f"the server at {self._path} has ended the connection"

    def forget(self) -> None:
        self._socket.close()
