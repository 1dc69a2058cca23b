"""What happens in a job while it runs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Union

from hatchery_sandbox._frames import Message


@dataclass(frozen=True)
class Started:
    """An interpreter has taken the job."""


@dataclass(frozen=True)
class Output:
    """The program wrote to a stream."""

    stream: Literal["stdout", "stderr"]
    data: bytes
    """May end within a character."""

    @property
    def text(self) -> str:
        """The output as text; what isn't UTF-8 is replaced."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True)
class Display:
    """The program displayed an object."""

    bundle: dict[str, str]
    """Its forms: MIME types and texts, bytes in base64."""


@dataclass(frozen=True)
class HostCall:
    """The program called a function of the host."""

    name: str


@dataclass(frozen=True)
class Retried:
    """The sandbox failed, and the job runs again: nothing before this is part of its outcome."""


@dataclass(frozen=True)
class FileChanged:
    """A file was created, modified or deleted."""

    path: str
    change: Literal["created", "modified", "deleted"]


Event = Union[Started, Output, Display, HostCall, Retried, FileChanged]
"""Something that happened in a job."""


def load(event: Message, attachments: Sequence[bytearray]) -> Event | None:
    """Returns the event of a message; `None` if this version doesn't know it."""
    kind = event.get("kind")
    if kind == "output":
        return Output(event["stream"], bytes(attachments[event["attachment"]]))
    if kind == "started":
        return Started()
    if kind == "display":
        return Display(event["bundle"])
    if kind == "host_call":
        return HostCall(event["name"])
    if kind == "retried":
        return Retried()
    if kind == "file_changed":
        return FileChanged(event["path"], event["change"])
    return None


class EventLog:
    """The events of one job: one thread adds them, and any number of readers follow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._is_over = False
        self._wakers: list[Callable[[], None]] = []

    def add(self, event: Event) -> None:
        """Adds an event, and wakes those who wait for it."""
        with self._lock:
            self._events.append(event)
            wakers = list(self._wakers)
        for wake in wakers:
            wake()

    def end(self) -> None:
        """Says that no event follows."""
        with self._lock:
            self._is_over = True
            wakers = list(self._wakers)
        for wake in wakers:
            wake()

    def forget(self) -> None:
        """Ends it in a forked child, where nobody can hold its lock."""
        self._lock, self._is_over = threading.Lock(), True

    def after(self, count: int) -> tuple[list[Event], bool]:
        """Returns the events but the first `count`, and whether no more follow."""
        with self._lock:
            return self._events[count:], self._is_over

    def wake(self, waker: Callable[[], None]) -> None:
        """Calls this, in another thread, whenever there is something new."""
        with self._lock:
            self._wakers.append(waker)

    def __iter__(self) -> Iterator[Event]:
        woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.wake(lambda: woken.put(None))
        count = 0
        while True:
            events, is_over = self.after(count)
            yield from events
            count += len(events)
            if is_over:
                return
            woken.get()


class Events:
    """The events of a job. Following them keeps the job's future, which otherwise is cancelled."""

    def __init__(self, log: EventLog, job: object) -> None:
        self._log = log
        self._job = job

    def __iter__(self) -> Iterator[Event]:
        yield from self._log
