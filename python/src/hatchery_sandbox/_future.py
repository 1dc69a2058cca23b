"""A job in progress, and its end."""

from __future__ import annotations

import contextvars
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent import futures
from functools import partial
from typing import Any, Generic, TypeVar

from hatchery_sandbox import _events
from hatchery_sandbox._client import Client
from hatchery_sandbox._errors import HatcheryError, PoolError
from hatchery_sandbox._frames import Message
from hatchery_sandbox._functions import FunctionSet, failure
from hatchery_sandbox._outcome import Outcome
from hatchery_sandbox._threads import start_thread

logger = logging.getLogger("hatchery_sandbox")

T = TypeVar("T")

# The states of futures in the standard library, which has no public names for them.
_PENDING, _FINISHED = "PENDING", "FINISHED"

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

    def send(
        self,
        client: Client,
        message: Message,
        attachments: Sequence[bytes],
        is_attended: bool = False,
        is_kept: bool = True,
    ) -> None:
        """Sends the job whose events and end this gets.

        Args:
            is_attended: Whether its caller waits for it next.
            is_kept: Whether this lives until the job's end, also if its caller drops it.
        """
        self._client = client
        is_attended = is_attended and self._is_silent
        reference = (lambda: self) if is_kept else weakref.ref(self)
        self._number = client.run(message, attachments, reference, is_attended)

    @property
    def _is_silent(self) -> bool:
        """Whether only the end of the job is reported."""
        return self._log is None and self._functions is None

    def _attend(self) -> None:
        """Reads until the job has ended, in the thread that waits for it, where that can be."""
        if self._client is not None and self._is_silent:
            self._client.attend(self._number, self)

    def settle(self, message: Message) -> bool:
        raise NotImplementedError

    def interrupt(self) -> None:
        """Raises `KeyboardInterrupt` in the program, as Ctrl-C does. What it makes of that is its
        outcome. Nothing happens if the job has ended."""
        self._command("interrupt")

    def stop(self) -> None:
        """Stops the program at once, by force. Its session is as it was before the job."""
        self._command("stop")

    def log(self) -> _events.EventLog:
        """Returns the events of the job, which must be asked for."""
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

        name, arguments = message["name"], message["arguments"]
        answer = _Answer(client, call, name)
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

    def forget(self, error: PoolError) -> None:
        """Fails in a forked child, which can't learn how the job ends."""
        if self._log is not None:
            self._log.forget()
        self._end(error)


class _Answer:
    """Answers a call of a function once; also if it is dropped, as by an event loop that ends before
    the function has begun."""

    def __init__(self, client: Client, call: int, name: str) -> None:
        self._client = client
        self._call = call
        self._name = name
        self._is_given = False

    def __call__(self, result: Message) -> None:
        self._is_given = True
        try:
            self._client.answer(self._call, result)
        except ValueError as error:  # it is too long
            message = f"the host function's result: {error}"
            self._client.answer(self._call, failure("ValueError", message))

    def __del__(self) -> None:
        if not self._is_given:
            message = f"the event loop ended before the host function {self._name} could run"
            result = failure("RuntimeError", message)
            self._client.soon(partial(self._client.answer, self._call, result))


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

    def settle(self, message: Message) -> bool:
        self._ended = Outcome(message["result"], message.get("data"), message.get("files"))
        return True

    def wait(self, seconds: float = -1) -> bool:
        """Waits for the end, and returns whether it has come."""
        if self._ended is not None:
            return True
        if self._client is not None:
            self._client.wake()
        return self._is_under_way.acquire(timeout=seconds)

    def outcome(self) -> Outcome:
        """Waits for the end.

        Raises:
            PoolError: The pool couldn't run the job.
        """
        if self._ended is None:
            self._attend()
        self.wait()
        if isinstance(self._ended, Outcome):
            return self._ended
        assert self._ended is not None, "it has ended"
        raise self._ended

    def cancel(self) -> None:
        """Cancels the job."""
        self._command("cancel")


class Future(_Running, futures.Future[T], Generic[T]):
    """A job in progress: a `concurrent.futures.Future` that can also be interrupted and watched.

    If it is dropped before its end, the job is cancelled, unless it has a callback or is a turn of a
    session whose events aren't followed. Callbacks of jobs that have ended run in a thread of their
    own, so they may run further jobs. `running()` is false until the job has ended; `events` reports
    its start. If a signal's handler raises in the middle of `result`, the future may stay locked, as
    any of the standard library; `Pool.run` doesn't have this problem.
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
        self._to_call: list[Callable[[futures.Future[T]], object]] = []
        """Callbacks that the reading thread leaves to another one."""

    def __del__(self) -> None:
        # Any lock may be held where this is called.
        client = self._client
        if client is not None and client.lost is None and self._state == _PENDING:
            client.soon(partial(client.command, "cancel", self._number))

    def events(self) -> _events.Events:
        """Returns what happens in the job, from its start to its end; iterating waits.

        Raises:
            ValueError: The job wasn't submitted with `events=True`.
        """
        return _events.Events(self.log(), self)

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

    def result(self, timeout: float | None = None) -> T:
        """Returns what the job has returned; waits for it."""
        if timeout is None and self._state == _PENDING:
            self._attend()
        if self._state == _FINISHED and self._exception is None and self._result is not None:
            return self._result
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Returns what went wrong, if anything did; waits for the job's end."""
        if timeout is None and self._state == _PENDING:
            self._attend()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[futures.Future[T]], object]) -> None:
        """Calls this with the future once the job has ended; see above for the thread."""
        client = self._client
        if client is None:
            super().add_done_callback(fn)
            return
        called = client.promise()

        def call(future: futures.Future[T]) -> None:
            try:
                fn(future)
            finally:
                called.set_result(None)

        def call_elsewhere(future: futures.Future[T]) -> None:
            if client.is_reader():
                # It would keep the client from reading, for which the callback may wait.
                self._to_call.append(call)
            else:
                call(future)

        self.call_when_done(call_elsewhere)

    def call_when_done(self, fn: Callable[[futures.Future[T]], object]) -> None:
        """As `add_done_callback`, for what never waits: it may be called in the reading thread."""
        client = self._client
        if client is not None and self not in client.kept:
            client.kept.add(self)
            super().add_done_callback(client.kept.discard)
        super().add_done_callback(fn)
        if client is not None:
            client.wake()

    def _call_all(self, callbacks: Sequence[Callable[[futures.Future[T]], object]]) -> None:
        for callback in callbacks:
            try:
                callback(self)
            except BaseException:  # such as `sys.exit`, which would skip the others
                logger.exception("a callback of %r failed", self)

    def settle(self, message: Message) -> bool:
        outcome = Outcome(
            message["result"], message.get("data"), message.get("files"), index=self._index
        )
        try:
            result = self._convert(outcome)
        except (HatcheryError, futures.CancelledError):
            # Others may be what a signal's handler raises, which is for this thread alone.
            return False
        # The lock itself: if the handler of a signal raises while a condition is entered, that stays
        # locked. What the standard library does here has that flaw.
        with vars(self._condition)["_lock"]:
            callbacks: list[Any] = vars(self)["_done_callbacks"]
            if self._state != _PENDING or self._waiters or callbacks:
                return False
            self._result = result
            self._state = _FINISHED
            self._condition.notify_all()
        return True

    def _end(self, end: Outcome | PoolError) -> None:
        self._settle_with(end)
        if self._to_call:
            callbacks, self._to_call = self._to_call, []
            start_thread(lambda: self._call_all(callbacks))

    def _settle_with(self, end: Outcome | PoolError) -> None:
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
            # It was cancelled, or a signal's handler has cut `settle` short.
            with self._condition:
                self._condition.notify_all()

    def forget(self, error: PoolError) -> None:
        # The holder of its lock isn't in this process, and its callbacks are the parent's.
        self._condition = threading.Condition()
        vars(self)["_done_callbacks"].clear()
        super().forget(error)
