"""A job under way, and its end."""

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


class _Running:
    """What the client tells of a job: its events, its calls of functions, and its end."""

    def __init__(
        self,
        functions: FunctionSet | None = None,
        log: _events.EventLog | None = None,
        index: int | None = None,
    ) -> None:
        self._functions = functions
        self._context = contextvars.copy_context() if functions else None
        self._log = log
        self._index = index
        self._client: Client | None = None
        self._number = 0

    def send(self, client: Client, message: Message, attachments: Sequence[bytes]) -> None:
        """Sends the job of which this is told."""
        self._client = client
        self._number = client.run(message, attachments, self)

    def interrupt(self) -> None:
        """Raises `KeyboardInterrupt` in the program, as Ctrl-C does. What it makes of that is its
        outcome. Nothing happens if the job has ended."""
        self._command("interrupt")

    def stop(self) -> None:
        """Stops the program at once, by force. Its session is as it was before the job."""
        self._command("stop")

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

    def _end(self, end: Outcome | PoolError) -> None:
        raise NotImplementedError

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
        result, data, files = message["result"], message.get("data"), message.get("files")
        self._end(Outcome(result, data, files, attachments, self._index))
        if self._log is not None:
            self._log.end()

    def fail(self, error: PoolError) -> None:
        self._end(error)
        if self._log is not None:
            self._log.end()


class Call(_Running):
    """A job that its caller waits for. Nothing here is harmed if a signal's handler raises in the
    main thread at any moment, unlike the condition in futures of the standard library."""

    def __init__(
        self,
        functions: FunctionSet | None = None,
        log: _events.EventLog | None = None,
    ) -> None:
        super().__init__(functions, log)
        self._ended: Outcome | PoolError | None = None
        self._is_under_way = threading.Lock()
        self._is_under_way.acquire()

    def _end(self, end: Outcome | PoolError) -> None:
        if self._ended is None:
            self._ended = end
            self._is_under_way.release()

    def wait(self, seconds: float = -1) -> bool:
        """Waits for the end, and returns whether it has come."""
        return self._ended is not None or self._is_under_way.acquire(timeout=seconds)

    def outcome(self) -> Outcome:
        """Waits for the end.

        Raises:
            PoolError: The pool couldn't run the job.
        """
        self.wait()
        if isinstance(self._ended, Outcome):
            return self._ended
        assert self._ended is not None, "it has ended"
        raise self._ended

    def cancel(self) -> None:
        """Cancels the job."""
        self._command("cancel")


class Future(_Running, futures.Future[T], Generic[T]):
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
        futures.Future.__init__(self)
        _Running.__init__(self, functions, log, index)
        self._convert = convert
        self._is_given_up = False

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

    def _end(self, end: Outcome | PoolError) -> None:
        try:
            if isinstance(end, PoolError):
                self.set_exception(end)
                return
            try:
                result = self._convert(end)
            except Exception as error:
                self.set_exception(error)
                return
            self.set_result(result)
        except futures.InvalidStateError:
            pass  # it was cancelled
