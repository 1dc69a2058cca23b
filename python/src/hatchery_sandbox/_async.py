"""A pool of sandboxes for programs with an event loop: asyncio's or trio's."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent import futures
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hatchery_sandbox import _job, _progress
from hatchery_sandbox._config import Isolation, PathLike, SessionSettings
from hatchery_sandbox._errors import PoolError, RefusedError
from hatchery_sandbox._events import Event
from hatchery_sandbox._explore import Exploration, Explored, Keep
from hatchery_sandbox._functions import Functions, FunctionSet
from hatchery_sandbox._future import Future
from hatchery_sandbox._job import Job, JobOptions, Limits
from hatchery_sandbox._loops import Waker, start_coroutine, wait_for, wait_until_done
from hatchery_sandbox._map import mapping
from hatchery_sandbox._outcome import Outcome
from hatchery_sandbox._pool import Pool, drain_message, same
from hatchery_sandbox._session import Action, close_when_dropped, new_name, opening

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class AsyncFuture(Awaitable[T], Generic[T]):
    """A job in progress. Awaiting it gives its outcome; if that is cancelled, so is the job.

    The job is also cancelled if this is dropped before its end, unless it is a turn of a session
    whose events aren't followed. `asyncio.wait` takes it as it is; `asyncio.ensure_future` makes a task
    of it.
    """

    def __init__(self, future: Future[T]) -> None:
        self._future = future
        self._callbacks: list[Callable[[AsyncFuture[T]], object]] = []

    def __await__(self) -> Generator[Any, None, T]:
        return self._wait().__await__()

    async def _wait(self) -> T:
        return await wait_for(self._future)

    def done(self) -> bool:
        """Whether it has ended."""
        return self._future.done()

    def result(self) -> T:
        """Returns its outcome.

        Raises:
            TimeoutError: It hasn't ended.
        """
        return self._future.result(timeout=0)

    def add_done_callback(self, callback: Callable[[AsyncFuture[T]], object]) -> None:
        """Has asyncio's running loop call this when the job has ended, or soon if it has.

        Raises:
            RuntimeError: asyncio runs no loop in this thread.
        """
        loop = asyncio.get_running_loop()
        self._callbacks.append(callback)

        def end(_: futures.Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._call, callback)

        self._future.add_done_callback(end)

    def remove_done_callback(self, callback: Callable[[AsyncFuture[T]], object]) -> int:
        """Removes a callback; returns how often it was there."""
        count = len(self._callbacks)
        self._callbacks = [each for each in self._callbacks if each != callback]
        return count - len(self._callbacks)

    def _call(self, callback: Callable[[AsyncFuture[T]], object]) -> None:
        if callback in self._callbacks:
            self._callbacks.remove(callback)
            callback(self)

    def interrupt(self) -> None:
        """Raises `KeyboardInterrupt` in the program; see `Future.interrupt`."""
        self._future.interrupt()

    def stop(self) -> None:
        """Stops the program at once, by force."""
        self._future.stop()

    def cancel(self) -> bool:
        """Cancels the job, also one that runs; see `Future.cancel`."""
        return self._future.cancel()

    async def events(self) -> AsyncIterator[Event]:
        """Yields what happens in the job, from its start to its end. If the task is cancelled that
        waits for them, so is the job.

        Raises:
            ValueError: The job wasn't submitted with `events=True`.
        """
        log = self._future.log()
        waker = Waker()
        log.wake(waker.wake)
        count = 0
        while True:
            events, is_over = log.after(count)
            for event in events:
                yield event
            count += len(events)
            if is_over:
                return
            try:
                await waker.wait()
            except BaseException:
                self._future.cancel()
                raise


class AsyncPool:
    """A `Pool` whose methods are awaited, under asyncio or trio.

    ```
    async with AsyncPool() as pool:
        first, second = await asyncio.gather(pool.run("1 + 1"), pool.run("2 + 2"))
    ```

    Cancelling a task that awaits a job cancels the job. Async host functions run on the loop that
    submits the job, plain ones in threads.
    """

    def __init__(
        self,
        *,
        workers: int | tuple[int, int] | None = None,
        queue: int | None = None,
        preload: Sequence[str] | str = (),
        setup: str | PathLike | None = None,
        packages: Sequence[str | PathLike] | str | PathLike = (),
        packages_common: bool = False,
        requirements: Sequence[str | PathLike] | str | PathLike = (),
        package_index: str | PathLike | None = None,
        timeout: float | None = None,
        limits: Limits | None = None,
        functions: Functions = (),
        python: str | PathLike | None = None,
        pythons: Mapping[str, str | PathLike] | None = None,
        binary: str | PathLike | None = None,
        isolation: Isolation | None = None,
        mounts: Mapping[str, str | PathLike] | None = None,
        allow_connect: Sequence[str] | str = (),
        egress: Sequence[str] | str = (),
        secrets: Sequence[str] | str = (),
        http_roots: Sequence[str | PathLike] | str | PathLike = (),
        sessions: SessionSettings | None = None,
    ) -> None:
        """Takes what `Pool` does."""
        self._pool = Pool(
            workers=workers,
            queue=queue,
            preload=preload,
            setup=setup,
            packages=packages,
            packages_common=packages_common,
            requirements=requirements,
            package_index=package_index,
            timeout=timeout,
            limits=limits,
            python=python,
            pythons=pythons,
            binary=binary,
            isolation=isolation,
            mounts=mounts,
            allow_connect=allow_connect,
            egress=egress,
            secrets=secrets,
            http_roots=http_roots,
            sessions=sessions,
        )
        self._functions = functions

    @classmethod
    def connect(cls, path: str | PathLike, *, functions: Functions = ()) -> AsyncPool:
        """Returns a pool that `hatchery serve --unix PATH` shares among processes."""
        return cls._of(Pool.connect(path), functions)

    @classmethod
    def _of(cls, pool: Pool, functions: Functions) -> AsyncPool:
        own = cls.__new__(cls)
        own._pool, own._functions = pool, functions
        return own

    async def start(self) -> AsyncPool:
        """Starts the pool, and waits until it is ready; see `Pool.start`."""
        await self._hello()
        return self

    def close(self) -> None:
        """Ends the pool at once, with the jobs that run."""
        self._pool.close()

    async def __aenter__(self) -> AsyncPool:
        try:
            return await self.start()
        except BaseException:
            self.close()
            raise

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        client = self._pool._launcher.current()
        if kind is None and client is not None:
            for waiting in client.under_way():
                await wait_until_done(waiting)
        self.close()

    def submit(
        self, job: str | Job, /, *, events: bool = False, **options: Unpack[JobOptions]
    ) -> AsyncFuture[Outcome]:
        """Submits a program, and returns at once; see `Pool.submit`."""
        return AsyncFuture(self._submit(job, options, events=events))

    def _submit(
        self,
        job: str | Job,
        options: JobOptions,
        *,
        events: bool = False,
        session: str | None = None,
        functions: Functions = (),
        index: int | None = None,
    ) -> Future[Outcome]:
        lent = None
        if self._functions or functions:
            lent = self._set(self._functions).merged(self._set(functions))
        return self._pool._submit(
            same,
            job,
            options,
            events=events,
            session=session,
            functions=lent,
            lend=self._set,
            index=index,
        )

    def _set(self, functions: Functions) -> FunctionSet:
        return FunctionSet(functions, start_coroutine())

    async def run(
        self,
        job: str | Job,
        /,
        *,
        on_event: Callable[[Event], object] | None = None,
        **options: Unpack[JobOptions],
    ) -> Outcome:
        """Runs a program in a fresh interpreter, and returns how it ended; see `Pool.run`."""
        return await _run(self._submit(job, options, events=on_event is not None), on_event)

    async def map(
        self,
        jobs: Iterable[str | Job],
        /,
        *,
        ordered: bool = False,
        progress: _progress.Progress = None,
        **options: Unpack[JobOptions],
    ) -> AsyncIterator[Outcome]:
        """Runs many programs, and yields how each ended; see `Pool.map`."""
        _job.prepare("", options, None)
        total = len(jobs) if isinstance(jobs, Sequence) else None
        bar = _progress.bar(progress, total)

        def start(index: int, job: str | Job) -> Future[Outcome]:
            return self._submit(job, options, index=index)

        waker = Waker()
        steps = mapping(start, iter(jobs), ordered, bar, waker.wake)
        try:
            for step in steps:
                if isinstance(step, Outcome):
                    yield step
                else:
                    await waker.wait(step)
        finally:
            steps.close()

    async def session(
        self, name: str | None = None, *, functions: Functions = (), python: str | None = None
    ) -> AsyncSession:
        """Opens a session; see `Pool.session`."""
        session = AsyncSession(self, name or new_name(), functions)
        await self.request({"type": "session", "session": session.name, "action": opening(python)})
        return session if name else close_when_dropped(session, self._pool)

    async def revive(
        self, name: str | None, state: bytes, *, functions: Functions = ()
    ) -> AsyncSession:
        """Opens a session with a state that `AsyncSession.save` has returned."""
        session = AsyncSession(self, name or new_name(), functions)
        await self.request({"type": "session", "session": session.name, "action": "revive"}, [state])
        return session if name else close_when_dropped(session, self._pool)

    def attach(self, name: str, *, functions: Functions = ()) -> AsyncSession:
        """Returns a session that is open already."""
        return AsyncSession(self, name, functions)

    async def sessions(self) -> list[str]:
        """Returns the names of the open sessions."""
        names, _ = await self.request({"type": "sessions"})
        return list(names)

    async def drain(self, timeout: float | None = None) -> None:
        """Waits until all jobs have ended, then ends the pool; see `Pool.drain`."""
        if not self.is_closed and self._pool._launcher.current() is not None:
            await self.request(drain_message(timeout))
        self.close()

    async def explain(self, future: AsyncFuture[Any]) -> Any:
        """Returns why a job waits; `None` if it has ended."""
        explanation, _ = await self.request({"type": "explain", "run": future._future._number})
        return explanation

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, so that it can't be used any more."""
        return self._pool.is_closed

    async def pythons(self) -> list[str]:
        """Returns the names of its Python builds, the default one first."""
        return list((await self._hello())["pythons"])

    async def preload(self) -> list[str]:
        """Returns the modules that every program finds imported."""
        return list((await self._hello())["preload"])

    async def _hello(self) -> dict[str, Any]:
        return await wait_for(self._pool._launcher.client().hello, cancel=False)

    async def status(self) -> dict[str, Any]:
        """Returns the status of the pool, as docs/status.md describes it."""
        status, _ = await self.request({"type": "status"})
        return dict(status)

    async def request(
        self, message: dict[str, Any], attachments: Sequence[bytes] = ()
    ) -> tuple[Any, Sequence[bytearray]]:
        """Sends a message of the protocol other than for a job, and waits for its answer."""
        request = self._pool._launcher.client().request(message, attachments)
        return await wait_for(request, cancel=False)

    def __reduce__(self) -> tuple[Callable[..., AsyncPool], tuple[object, ...]]:
        return AsyncPool._of, (self._pool, self._functions)

    def __repr__(self) -> str:
        return f"<Async{repr(self._pool)[1:]}"


class AsyncSession:
    """A `Session` whose methods are awaited."""

    def __init__(self, pool: AsyncPool, name: str, functions: Functions = ()) -> None:
        self._pool = pool
        self.name = name
        """Its name in the pool."""
        self._functions = functions
        self._is_closed = False
        self._closing: weakref.finalize[Any, Any] | None = None

    async def run(
        self,
        job: str | Job,
        /,
        *,
        on_event: Callable[[Event], object] | None = None,
        **options: Unpack[JobOptions],
    ) -> Outcome:
        """Runs a program in this session, and returns how it ended."""
        submitted = self._pool._submit(
            job,
            options,
            events=on_event is not None,
            session=self.name,
            functions=self._functions,
        )
        return await _run(submitted, on_event)

    async def shell(self, command: str, /, **options: Unpack[JobOptions]) -> Outcome:
        """Runs a command of the sandbox's shell among the session's files; see `Job.shell`."""
        return await self.run(Job.shell(command), **options)

    def submit(
        self, job: str | Job, /, *, events: bool = False, **options: Unpack[JobOptions]
    ) -> AsyncFuture[Outcome]:
        """Submits a program that runs after those before it."""
        return AsyncFuture(
            self._pool._submit(
                job, options, events=events, session=self.name, functions=self._functions
            )
        )

    async def fork(self, name: str | None = None) -> AsyncSession:
        """Opens another session that continues from this one's state."""
        opened = AsyncSession(self._pool, name or new_name(), self._functions)
        await self._act({"fork": {"to": opened.name}})
        return opened if name else close_when_dropped(opened, self._pool._pool)

    async def fork_many(self, count: int) -> list[AsyncSession]:
        """Opens so many sessions that continue from this one's state; see `Session.fork_many`."""
        names, _ = await self._act({"fork_many": {"count": count}})
        forks = (AsyncSession(self._pool, name, self._functions) for name in names)
        return [close_when_dropped(fork, self._pool._pool) for fork in forks]

    async def explore(
        self,
        candidates: Iterable[str | Job],
        /,
        *,
        keep: Keep = "succeeded",
        **options: Unpack[JobOptions],
    ) -> AsyncIterator[Explored[AsyncSession]]:
        """Runs each program on a fork of its own, and yields how each ended; see
        `Session.explore`."""
        exploration: Exploration[AsyncSession] = Exploration(candidates, keep)
        ended: deque[Future[Outcome]] = deque()
        waker = Waker()

        def submit(fork: AsyncSession, candidate: str | Job) -> Future[Outcome]:
            future = fork.submit(candidate, **options)._future

            def end(_: futures.Future[Outcome]) -> None:
                ended.append(future)
                waker.wake()

            future.call_when_done(end)
            return future

        try:
            while True:
                while wanted := exploration.wanted():
                    try:
                        exploration.begin(await self.fork_many(wanted), submit)
                    except RefusedError as refused:
                        exploration.was_refused(refused)
                if exploration.is_over:
                    return
                while not ended:
                    await waker.wait()
                if (explored := exploration.end(ended.popleft())) is not None:
                    yield explored
        finally:
            exploration.close()

    async def checkpoint(self, name: str | None = None) -> str:
        """Captures the state, and returns the name to `restore` it by."""
        name = name or new_name()
        await self._act({"checkpoint": {"checkpoint": name}})
        return name

    async def restore(self, checkpoint: str) -> None:
        """Makes the state what it was at a checkpoint of this session."""
        await self._act({"restore": {"checkpoint": checkpoint}})

    async def reset(self) -> None:
        """Makes the state that of a fresh session."""
        await self._act("reset")

    async def save(self) -> bytes:
        """Returns the state as bytes for `AsyncPool.revive`."""
        _, attachments = await self._act("save")
        return bytes(attachments[0])

    async def workspace(self) -> dict[str, bytes]:
        """Returns its files, by their paths in the working directory."""
        places, attachments = await self._act("workspace")
        return {path: bytes(attachments[place]) for path, place in places.items()}

    async def close(self) -> None:
        """Closes it once its jobs have ended, and drops its state and its checkpoints. Nothing
        happens if this has closed it before."""
        if not self._is_closed:
            await self._act("close")
            self._is_closed = True
            if self._closing is not None:
                self._closing.detach()

    async def _act(self, action: Action) -> tuple[Any, Any]:
        message = {"type": "session", "session": self.name, "action": action}
        return await self._pool.request(message)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._pool._pool.is_closed:
            # A session that its server has lost is closed.
            with contextlib.suppress(PoolError):
                await self.close()

    def __repr__(self) -> str:
        return f"<AsyncSession {self.name}>"


async def _run(
    future: Future[Outcome], on_event: Callable[[Event], object] | None
) -> Outcome:
    if on_event is not None:
        try:
            async for event in AsyncFuture(future).events():
                on_event(event)
        except BaseException:
            future.cancel()
            raise
    return await wait_for(future)

