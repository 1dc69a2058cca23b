"""A job under way."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, Generic, TypeVar

from hatchery_sandbox import _events
from hatchery_sandbox._client import Client
from hatchery_sandbox._errors import PoolError
from hatchery_sandbox._frames import Message
from hatchery_sandbox._functions import FunctionSet
from hatchery_sandbox._outcome import Outcome

T = TypeVar("T")

_cancelling = threading.Lock()


class Future(futures.Future[T], Generic[T]):
    """A job under way: a `concurrent.futures.Future` that can also be interrupted and watched.

    Callbacks run in the thread that reads from the server, so they must not wait for other jobs.
    `running()` is false until the job has ended, because nobody is told when it starts; `events`
    tells.
    """

    def __init__(
        self,
        convert: Callable[[Outcome], T],
        functions: FunctionSet | None = None,
        log: _events.EventLog | None = None,
        index: int | None = None,
    ) -> None:
        super().__init__()
        self._convert = convert
        self._functions = functions
        self._context = contextvars.copy_context() if functions else None
        self._log = log
        self._index = index
        self._client: Client | None = None
        self._number = 0
        self._is_given_up = False

    def interrupt(self) -> None:
        """Raises `KeyboardInterrupt` in the program, as Ctrl-C does. What it makes of that is its
        outcome. Nothing happens if the job has ended."""
        self._command("interrupt")

    def stop(self) -> None:
        """Stops the program at once, by force. Its session is as it was before the job."""
        self._command("stop")

    def cancel(self) -> bool:
        """Cancels the job, also one that runs: its program ends, and `result` raises
        `concurrent.futures.CancelledError`. In a session the program is interrupted, and its
        variables stay. Returns false if the job has ended before.
        """
        with _cancelling:
            is_first, self._is_given_up = not self._is_given_up, True
        if not is_first:
            return self.cancelled()
        if not super().cancel():
            return False
        self.set_running_or_notify_cancel()
        self._command("cancel")
        return True

    def events(self) -> _events.EventLog:
        """Returns what happens in the job, from its start to its end; iterating waits.

        Raises:
            ValueError: The job wasn't submitted with `events=True`.
        """
        if self._log is None:
            raise ValueError("submit the job with events=True to follow its events")
        return self._log

    def _command(self, command: str) -> None:
        if self._client is not None:
            self._client.command(command, self._number)

    # A `Handler`, in the reading thread.

    def happen(self, message: Message, attachments: Sequence[bytearray]) -> None:
        if message["type"] == "event":
            event = _events.load(message["event"], attachments)
            if self._log is not None and event is not None:
                self._log.add(event)
            return
        client, call = self._client, message["call"]
        if client is None or self._functions is None or self._context is None:
            return

        def answer(result: Message) -> None:
            client.answer(call, result)

        name, arguments = message["name"], message["arguments"]
        client.called(call, self._functions.call(name, arguments, answer, self._context))

    def succeed(self, message: Message, attachments: Sequence[bytearray]) -> None:
        outcome = Outcome(
            message["result"],
            message.get("data"),
            message.get("files"),
            attachments,
            self._index,
        )
        try:
            result = self._convert(outcome)
        except BaseException as error:
            self._end(error)
            return
        self._settle(self.set_result, result)

    def fail(self, error: PoolError) -> None:
        self._end(error)

    def _end(self, error: BaseException) -> None:
        self._settle(self.set_exception, error)

    def _settle(self, set: Callable[[Any], None], end: object) -> None:
        try:
            set(end)
        except futures.InvalidStateError:
            pass  # it was cancelled
        if self._log is not None:
            self._log.end()


def submit(
    client: Client, message: Message, attachments: Sequence[bytes], future: Future[T]
) -> Future[T]:
    """Sends a job, of which this future tells."""
    future._client = client
    future._number = client.run(message, attachments, future)
    return future
