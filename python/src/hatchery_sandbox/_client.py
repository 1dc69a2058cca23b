"""One connection for many requests: sends them from any thread, and hands out the answers.

A separate thread reads, with one exception: while a single job is in progress and its caller waits
for it, the caller reads, which saves waking two threads. It leaves to the reading thread whatever
isn't its outcome. While nothing is in progress, nobody reads.

A sender writes a short frame at once if the socket takes it. Other threads write the rest, and jobs
that come while the server is busy, many at once. So no sender waits, the reading thread included.
No interrupt of the main thread can cut a frame in two: short writes are all or nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import queue
import select
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, Protocol, Union

from hatchery_sandbox._connection import Connection
from hatchery_sandbox._errors import (
    ConnectionLostError,
    PoolClosedError,
    PoolError,
    StartError,
    of_problem,
)
from hatchery_sandbox._frames import Frame, FrameError, FrameReader, Message, encode
from hatchery_sandbox._process import ChildProcess

logger = logging.getLogger("hatchery_sandbox")

VERSION = 1
"""The version of the format."""

_ATOMIC_BYTES = 4096
"""A write of so many bytes to a pipe is all or nothing (`PIPE_BUF`)."""

_BATCH_BYTES = 64 << 10
"""Short frames are written together up to this size."""

_WATCH_SECONDS = 0.002
"""How soon the reading thread looks for jobs whose callers have turned out not to read."""

_ENDED = getattr(select, "POLLRDHUP", 0)
"""What to ask of a connection to learn that it has ended, beside what is always told."""

_BUSY = 64
"""Jobs in progress that keep the server busy for a few milliseconds."""


class Handler(Protocol):
    """Receives what is reported of a request, in the reading thread. Exactly one of
    `succeed` and `fail` comes, and it is the last."""

    def happen(self, message: Message, attachments: Sequence[bytearray]) -> None:
        """Something has happened in a job, or its program calls a function."""

    def succeed(self, message: Message, attachments: Sequence[bytearray]) -> None:
        """The answer has come."""

    def fail(self, error: PoolError) -> None:
        """There will be no answer."""

    def forget(self, error: PoolError) -> None:
        """As `fail`, in a forked child: locks may stay held, and other threads don't exist."""


Reference = Callable[[], Union[Handler, None]]
"""Gives a handler, unless nobody has it any more."""


class Waited(Protocol):
    """A job whose caller waits for it."""

    def settle(self, message: Message) -> bool:
        """Its outcome has come, in the thread of its caller. Returns false, and has changed nothing,
        if it must be told in the reading thread. If the handler of a signal raises meanwhile,
        `succeed` gets the same message."""


class Request(futures.Future[tuple[Any, Sequence[bytearray]]]):
    """A request other than for a job: ends with a value and attachments."""

    def happen(self, message: Message, attachments: Sequence[bytearray]) -> None:
        pass

    def succeed(self, message: Message, attachments: Sequence[bytearray]) -> None:
        if not self.cancelled():
            self.set_result((message.get("value"), attachments))

    def fail(self, error: PoolError) -> None:
        if not self.cancelled():
            self.set_exception(error)

    def forget(self, error: PoolError) -> None:
        self._condition = threading.Condition()
        self.set_exception(error)

    def cancel(self) -> bool:
        # What was sent takes effect whether or not anybody waits for the answer.
        return False


class Client:
    """Speaks with one server. Starts to do so at once; `hello` ends when the server is ready."""

    def __init__(self, connection: Connection, window: int) -> None:
        self._connection = connection
        self._window = window
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._handlers: dict[int, Reference] = {}
        """Of jobs, those in the backlog included."""
        self.kept: set[object] = set()
        """Handlers that live on also where nobody else has them."""
        self._requests: dict[int, Request] = {}
        self._backlog: OrderedDict[int, bytes] = OrderedDict()
        self._unsent: deque[bytes | memoryview] = deque()
        self._to_do: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        """For the writing thread: what finalizers leave to it; `None` if something is unsent."""
        self._is_closing = False
        self._is_ending = False
        self._frames = FrameReader(connection.descriptor)
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_resting = False
        """Whether the reading thread waits for `_wakes`."""
        self._is_watching = False
        """Whether it also looks by itself, soon, for jobs whose callers don't read."""
        self._attending: object | None = None
        """Stands for the caller that reads, if one does."""
        self._promises: set[futures.Future[None]] = set()
        """Callbacks of jobs that haven't been called yet."""
        self._latest = 0
        self._calls: dict[int, Callable[[], object] | None] = {}
        self.lost: PoolError | None = None
        self.hello: futures.Future[Message] = futures.Future()
        """The server's first message."""
        self._reader = threading.Thread(target=self._read, name="hatchery-reader", daemon=True)
        writer = threading.Thread(target=self._write_all, name="hatchery-writer", daemon=True)
        writer.start()
        _clients.add(self)
        with self._lock:
            self._write(encode({"type": "hello", "version": VERSION, "client": "python"}))
        self._reader.start()

    # What others do, in any thread.

    def run(
        self,
        message: Message,
        attachments: Sequence[bytes],
        reference: Reference,
        is_attended: bool = False,
    ) -> int:
        """Sends a job, and returns its id. While many are in progress, it waits here.

        Args:
            is_attended: Whether the caller will `attend` or `wake` at once.

        Raises:
            TypeError, ValueError: The message can't be sent.
            PoolError: The connection has ended.
        """
        try:
            number = message["id"] = next(self._ids)
            frame = encode(message, attachments)
            with self._lock:
                if self.lost is not None:
                    raise self.lost
                sent = len(self._handlers) - len(self._backlog)
                self._handlers[number] = reference
                self._latest = number
                must_wake = not (is_attended or self._is_watching)
                if sent >= self._window:
                    self._backlog[number] = frame
                else:
                    # While the server has enough to do, many jobs are written at once.
                    self._write(frame, is_urgent=sent < _BUSY)
            if must_wake:
                self._wake()
        except BaseException:
            # Also an interrupt of the main thread: the job ends, as far as it was sent.
            self._handlers.pop(message.get("id", 0), None)
            if (handler := reference()) is not None:
                handler.fail(self.lost or PoolError("the job wasn't sent"))
            if self.lost is None:
                self.command("cancel", message.get("id", 0))
            raise
        return number

    def request(self, message: Message, attachments: Sequence[bytes] = ()) -> Request:
        """Sends a request other than for a job."""
        request, number = Request(), next(self._ids)
        frame = encode({**message, "id": number}, attachments)
        try:
            with self._lock:
                if self.lost is not None:
                    raise self.lost
                self._requests[number] = request
                self._write(frame)
        except BaseException:
            self._requests.pop(number, None)
            raise
        self._wake()
        return request

    def attend(self, number: int, waited: Waited) -> None:
        """Reads until a job has ended, if it is the only one in progress. Otherwise, and if anything
        else comes, the reading thread reads."""
        caller = object()
        try:
            with self._lock:
                is_alone = self._handlers.keys() == {number} and not self._requests
                if is_alone and self._is_resting and self._attending is None:
                    self._attending = caller
            if self._attending is caller:
                self._read_alone(number, waited)
        finally:
            # Nothing is called before it is reset, so no handler of a signal can get in between.
            if self._attending is caller:
                self._attending = None
            self.wake()

    def wake(self) -> None:
        """Makes the reading thread read, if anything is in progress."""
        if self._handlers or self._requests:
            self._wake()

    def is_lost(self) -> bool:
        """Whether the connection has ended. Nobody reads while nothing is under way, so this looks
        then."""
        if self._is_resting and self.lost is None and not self._handlers and not self._requests:
            poll = select.poll()
            poll.register(self._connection.descriptor, _ENDED)
            if poll.poll(0):
                self._end()
                self._reader.join()
        return self.lost is not None

    def command(self, command: str, number: int) -> None:
        """Sends `interrupt`, `cancel` or `stop` for a job."""
        with self._lock:
            if number in self._backlog:
                # The server hasn't heard of it.
                if command != "interrupt":
                    del self._backlog[number]
                    self._handlers.pop(number, None)
            elif self.lost is None:
                self._write(encode({"type": command, "id": number}))

    def soon(self, call: Callable[[], object]) -> None:
        """Calls this in the writing thread. For finalizers, which may run in the middle of anything:
        this takes no lock."""
        self._to_do.put(call)

    def close(self) -> None:
        """Ends the connection and with it everything that runs; waits until it has ended."""
        with self._lock:
            self._is_closing = True
            self._connection.end()
        self._end()
        if threading.current_thread() is not self._reader:
            self._reader.join()

    def under_way(self) -> list[futures.Future[Any]]:
        """Returns what a caller may wait for."""
        jobs = [reference() for reference in list(self._handlers.values())]
        waiting: list[object] = [*jobs, *self._requests.values(), *self._promises]
        return [one for one in waiting if isinstance(one, futures.Future) and not one.done()]

    def promise(self) -> futures.Future[None]:
        """Returns what counts as in progress until it has ended."""
        promise: futures.Future[None] = futures.Future()
        self._promises.add(promise)
        promise.add_done_callback(self._promises.discard)
        return promise

    def is_reader(self) -> bool:
        """Whether this runs in the reading thread."""
        return threading.current_thread() is self._reader

    def wait(self) -> None:
        """Waits until nothing is in progress."""
        # Callbacks may submit further jobs.
        while under_way := self.under_way():
            futures.wait(under_way)

    def disturb(self) -> None:
        """Makes the server end; for finalizers, which must not wait or lock."""
        self._connection.disturb()
        self._end()

    def forget(self) -> None:
        """Makes this client of the parent process unusable in a forked child."""
        self._lock = threading.Lock()
        self._is_resting = False
        self.lost = PoolClosedError("this pool's server belongs to the process that forked this one")
        self._connection.forget()
        handlers = self._take_all()
        self._promises.clear()
        self.kept.clear()
        for handler in handlers:
            with contextlib.suppress(futures.InvalidStateError):
                handler.forget(self.lost)

    # Writing; the lock is held.

    def _write(self, frame: bytes, is_urgent: bool = True) -> None:
        was_all_sent = not self._unsent
        if is_urgent and was_all_sent and len(frame) <= _ATOMIC_BYTES:
            try:
                written = self._connection.write(frame)
            except BlockingIOError:
                written = 0
            except OSError:
                return  # the reading thread finds out why
            if written == len(frame):
                return
            self._unsent.append(memoryview(frame)[written:])
        else:
            self._unsent.append(frame)
        if was_all_sent:
            self._to_do.put(None)

    def _write_all(self) -> None:
        """Writes what others couldn't, and does what they left; a thread of its own."""
        while True:
            call = self._to_do.get()
            if self.lost is not None:
                return
            if call is not None:
                with contextlib.suppress(PoolError):  # the connection has ended meanwhile
                    call()
            while self._write_next():
                self._connection.wait_for_room()

    def _write_next(self) -> bool:
        """Writes from what is unsent while there is room; returns whether something is left. Only
        for threads of this client, which no signal interrupts."""
        with self._lock:
            while self._unsent and self.lost is None and not self._is_closing:
                frame = self._unsent.popleft()
                if len(frame) < _BATCH_BYTES and self._unsent:
                    frame = self._batch(frame)
                self._unsent.appendleft(frame)
                try:
                    written = self._connection.write(frame)
                except BlockingIOError:
                    return True
                except OSError:
                    return False
                if written == len(frame):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = memoryview(frame)[written:]
        return False

    def _batch(self, first: bytes | memoryview) -> bytes:
        """Takes what is unsent, after a first piece, as long as it is short."""
        pieces, size = [first], len(first)
        while self._unsent and size + len(self._unsent[0]) <= _BATCH_BYTES:
            pieces.append(self._unsent.popleft())
            size += len(pieces[-1])
        return b"".join(pieces)

    # Reading, in the thread of a caller.

    def _read_alone(self, number: int, waited: Waited) -> None:
        try:
            message = self._frames.peek()
        except (FrameError, OSError):
            return  # the reading thread finds out why
        if message is None or message.get("type") != "outcome" or message.get("id") != number:
            return
        # In this order: until it is taken, the reading thread can do all of it again.
        if waited.settle(message):
            self._handlers.pop(number, None)
            self._frames.take_peeked()

    # Reading, in the reading thread.

    def _wake(self) -> None:
        if self._is_resting:
            self._wakes.put(None)

    def _end(self) -> None:
        """Makes the reading thread read to the end; takes no lock."""
        self._is_ending = True
        self._wakes.put(None)

    def _rest(self) -> None:
        """Waits until there is something to read that no caller reads.

        A caller that submits a job wakes this thread, and then often reads the answer itself. So once
        it was woken needlessly, further jobs don't wake it, and it checks for them by itself, as long
        as some come.
        """
        was_woken, seen = False, self._latest
        while True:
            with self._lock:
                is_needed = self._handlers or self._requests or not self.hello.done()
                is_idle = not (is_needed or self._is_ending)
                self._is_resting = is_idle or self._attending is not None
                self._is_watching = self._is_resting and was_woken and self._latest != seen
                if not self._is_resting:
                    return
                seen = self._latest
            with contextlib.suppress(queue.Empty):
                self._wakes.get(timeout=_WATCH_SECONDS if self._is_watching else None)
            was_woken = True

    def _read(self) -> None:
        why = ""
        try:
            while frames := self._frames.read():
                for frame in frames:
                    self._take(frame)
                if self._backlog:
                    self._refill()
                if self._unsent:
                    self._write_next()
                if not self._handlers:
                    self._rest()
        except (FrameError, OSError) as error:
            why = str(error)
        except BaseException as error:
            logger.exception("reading from the server failed")
            why = repr(error)
        self._lose(why)

    def _take(self, frame: Frame) -> None:
        """Hands a frame to its receiver."""
        message, attachments = frame
        kind = message["type"]
        try:
            if kind == "outcome":
                reference = self._handlers.pop(message["id"], _nobody)
                if (handler := reference()) is not None:
                    handler.succeed(message, attachments)
            elif kind in ("event", "call"):
                if (handler := self._handlers.get(message["id"], _nobody)()) is not None:
                    handler.happen(message, attachments)
            elif kind == "done":
                request = self._requests.pop(message["id"], None)
                if request is not None:
                    request.succeed(message, attachments)
            elif kind == "refused":
                self._refuse(message)
            elif kind == "call_dropped":
                if cancel := self._calls.pop(message["call"], None):
                    cancel()
            elif kind == "hello":
                if isinstance(self._connection, ChildProcess):
                    self._connection.is_ready()
                self.hello.set_result(message)
        except Exception:
            logger.exception("an answer of the server couldn't be handled")

    def _refuse(self, message: Message) -> None:
        error = of_problem(message["problem"])
        number = message.get("id")
        if number is None:
            logger.error("the server refused a message: %s", error)
            return
        handler = self._handlers.pop(number, _nobody)() or self._requests.pop(number, None)
        if handler is not None:
            handler.fail(error)

    def _take_all(self) -> list[Handler]:
        """Takes all handlers with something in progress."""
        jobs = [reference() for reference in self._handlers.values()]
        handlers = [*filter(None, jobs), *self._requests.values()]
        self._handlers, self._requests = {}, {}
        return handlers

    def _refill(self) -> None:
        with self._lock:
            while self._backlog and len(self._handlers) - len(self._backlog) < self._window:
                self._write(self._backlog.popitem(last=False)[1], is_urgent=False)

    def answer(self, call: int, answer: Message) -> None:
        """Answers a call of a function."""
        self._calls.pop(call, None)
        frame = encode({"type": "answer", "call": call, **answer})
        with self._lock:
            if self.lost is None:
                self._write(frame)

    def called(self, call: int, cancel: Callable[[], object] | None) -> None:
        """Remembers what cancels a call in progress."""
        if cancel is not None:
            self._calls[call] = cancel

    def _lose(self, why: str) -> None:
        """Fails everything in progress, once the connection has ended."""
        said = self._connection.close()
        said = f"{said} ({why})" if why else said
        is_started = self.hello.done()
        lost: PoolError
        with self._lock:
            if self._is_closing:
                lost = PoolClosedError("the pool was closed")
            elif is_started:
                lost = ConnectionLostError(said)
            else:
                lost = StartError(f"the pool couldn't be started: {said}")
            self.lost = lost
            self._backlog.clear()
            self._unsent.clear()
            handlers = self._take_all()
        self._to_do.put(None)
        if not is_started:
            self.hello.set_exception(lost)
        for cancel in list(self._calls.values()):
            if cancel is not None:
                cancel()
        for handler in handlers:
            try:
                handler.fail(lost)
            except Exception:
                logger.exception("a job's end couldn't be told")


def _nobody() -> None:
    """Replaces the handler of a job that isn't in progress."""


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _forget_all() -> None:
    for client in list(_clients):
        client.forget()
    _clients.clear()


# A child that held the other end open would keep the server from noticing its client's end.
os.register_at_fork(after_in_child=_forget_all)
