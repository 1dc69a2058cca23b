"""A state that lives from job to job."""

from __future__ import annotations

import contextlib
import os
import queue
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, Union

from hatchery_sandbox._errors import PoolError, RefusedError
from hatchery_sandbox._events import Event
from hatchery_sandbox._explore import Exploration, Explored, Keep
from hatchery_sandbox._frames import Message
from hatchery_sandbox._functions import Functions, FunctionSet
from hatchery_sandbox._future import Future
from hatchery_sandbox._job import Job, JobOptions
from hatchery_sandbox._outcome import Outcome

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from hatchery_sandbox._async import AsyncSession
    from hatchery_sandbox._launcher import Launcher
    from hatchery_sandbox._pool import Pool

S = TypeVar("S", "Session", "AsyncSession")
Action = Union[str, Message]


class Session:
    """Keeps variables, modules, files and random numbers from job to job. Its jobs run one at a
    time, in the order in which they were submitted.

    ```
    with pool.session() as session:
        session.run("x = 42")
        print(session.run("x * 2").value)
    ```

    It stays open until `close` or the end of its pool: there can
    be thousands. One that was opened without a name is closed when it has no more references.
    """

    def __init__(self, pool: Pool, name: str, functions: Functions = ()) -> None:
        self._pool = pool
        self.name = name
        """Its name in the pool."""
        self._functions = FunctionSet(functions) if functions else None
        self._lent = functions
        self._is_closed = False
        self._closing: weakref.finalize[Any, Any] | None = None

    def run(
        self,
        job: str | Job,
        /,
        *,
        on_event: Callable[[Event], object] | None = None,
        **options: Unpack[JobOptions],
    ) -> Outcome:
        """Runs a program in this session, and returns how it ended; see `Pool.run`."""
        return self._pool._run(
            job, options, on_event, session=self.name, functions=self._functions
        )

    def shell(self, command: str, /, **options: Unpack[JobOptions]) -> Outcome:
        """Runs a command of the sandbox's shell among the session's files; see `Job.shell`."""
        return self.run(Job.shell(command), **options)

    def submit(
        self, job: str | Job, /, *, events: bool = False, **options: Unpack[JobOptions]
    ) -> Future[Outcome]:
        """Submits a program that runs after those before it; see `Pool.submit`."""
        return self._pool._submit(
            _same, job, options, events=events, session=self.name, functions=self._functions
        )

    def fork(self, name: str | None = None) -> Session:
        """Opens another session that continues from this one's state.

        Raises:
            RefusedError: A job of this session waits or runs, or there is such a session.
        """
        opened = Session(self._pool, name or new_name(), self._lent)
        self._act({"fork": {"to": opened.name}})
        return opened if name else close_when_dropped(opened, self._pool)

    def fork_many(self, count: int) -> list[Session]:
        """Opens so many sessions that continue from this one's state: all of them, or none. They
        share its memory. Each is named by the first session of its tree, a tilde and a number, and
        closed when it has no more references.

        Raises:
            RefusedError: A job of this session waits or runs, or there is no room for all.
        """
        names, _ = self._act({"fork_many": {"count": count}})
        forks = (Session(self._pool, name, self._lent) for name in names)
        return [close_when_dropped(fork, self._pool) for fork in forks]

    def explore(
        self,
        candidates: Iterable[str | Job],
        /,
        *,
        keep: Keep = "succeeded",
        **options: Unpack[JobOptions],
    ) -> Iterator[Explored[Session]]:
        """Runs each program on a fork of its own of this session's present state, and yields how
        each ended, in the order of their ends. Forks are opened as there is room for them, so run
        nothing in this session meanwhile.

        Args:
            keep: Which forks stay open, as `Explored.survivor`: `"all"`, `"none"`, those whose
                program `"succeeded"`, a number for the first so many of these, or a function of
                the outcome. The others are closed at once.
            options: As for `run`, for every program.

        Raises:
            RefusedError: A job of this session waits or runs, or there is no room for a fork while
                no other candidate runs.
        """
        exploration: Exploration[Session] = Exploration(candidates, keep)
        ended: queue.SimpleQueue[Future[Outcome]] = queue.SimpleQueue()

        def submit(fork: Session, candidate: str | Job) -> Future[Outcome]:
            future = fork.submit(candidate, **options)
            future.call_when_done(lambda _: ended.put(future))
            return future

        try:
            while True:
                while wanted := exploration.wanted():
                    try:
                        exploration.begin(self.fork_many(wanted), submit)
                    except RefusedError as refused:
                        exploration.was_refused(refused)
                if exploration.is_over:
                    return
                if (explored := exploration.end(ended.get())) is not None:
                    yield explored
        finally:
            exploration.close()

    def checkpoint(self, name: str | None = None) -> str:
        """Captures the state, and returns the name to `restore` it by. An earlier checkpoint of
        this name is dropped."""
        name = name or new_name()
        self._act({"checkpoint": {"checkpoint": name}})
        return name

    def restore(self, checkpoint: str) -> None:
        """Makes the state what it was at a checkpoint of this session."""
        self._act({"restore": {"checkpoint": checkpoint}})

    def reset(self) -> None:
        """Makes the state that of a fresh session."""
        self._act("reset")

    def save(self, path: str | os.PathLike[str] | None = None) -> bytes:
        """Returns the state as bytes for `Pool.revive`, and writes them to a file if one is named.
        They can be revived by this user, on this machine and with the same preloads."""
        _, attachments = self._act("save")
        state = bytes(attachments[0])
        if path is not None:
            with open(path, "wb") as file:
                file.write(state)
        return state

    def workspace(self) -> dict[str, bytes]:
        """Returns its files, by their paths in the working directory."""
        places, attachments = self._act("workspace")
        return {path: bytes(attachments[place]) for path, place in places.items()}

    def close(self) -> None:
        """Closes it once its jobs have ended, and drops its state and its checkpoints. Nothing
        happens if this has closed it before."""
        if not self._is_closed:
            self._act("close")
            self._is_closed = True
            if self._closing is not None:
                self._closing.detach()

    def _act(self, action: Action) -> tuple[Any, Any]:
        return self._pool.request({"type": "session", "session": self.name, "action": action})

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._pool.is_closed:
            # A session that its server has lost is closed.
            with contextlib.suppress(PoolError):
                self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a session can't be pickled; pass its pool and its name, and use attach")

    def __repr__(self) -> str:
        return f"<Session {self.name}>"


def close_when_dropped(session: S, pool: Pool) -> S:
    """Returns a session that is closed once it has no more references."""
    session._closing = weakref.finalize(session, _close, pool._launcher, session.name)
    session._closing.atexit = False
    return session


def _close(launcher: Launcher, name: str) -> None:
    client = launcher.current()
    if client is not None and client.lost is None:
        message = {"type": "session", "session": name, "action": "close"}
        client.soon(lambda: client.request(message))


def _same(outcome: Outcome) -> Outcome:
    return outcome


def opening(python: str | None) -> Action:
    """Returns the action that opens a session on this build."""
    return "open" if python is None else {"open_on": {"python": python}}


def new_name() -> str:
    """Returns a name that no other session has."""
    return uuid.uuid4().hex
