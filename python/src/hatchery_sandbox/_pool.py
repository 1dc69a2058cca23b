"""A pool of sandboxes, for programs without an event loop."""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hatchery_sandbox import _config, _job, _progress
from hatchery_sandbox._config import Isolation, PathLike, PoolConfig, SessionSettings
from hatchery_sandbox._errors import PoolError
from hatchery_sandbox._events import Event, EventLog
from hatchery_sandbox._functions import Functions, FunctionSet
from hatchery_sandbox._future import Call, Future
from hatchery_sandbox._job import Job, JobOptions, Limits
from hatchery_sandbox._launcher import Launcher
from hatchery_sandbox._map import mapping
from hatchery_sandbox._outcome import Outcome
from hatchery_sandbox._session import Session, close_when_dropped, new_name, opening

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")

_ENDING_SECONDS = 2.0
"""How long an interrupted program may take to end, before its job is cancelled."""


class Pool:
    """Runs untrusted Python in sandboxes, many programs at once.

    ```
    with Pool(preload=["numpy"]) as pool:
        print(pool.run("6 * 7").value)
    ```

    It starts when it is first used, or at `with`, and ends at the end of `with`, at `close`, or with
    this process. It can be used from any thread. A pickled pool is its configuration: where it is
    unpickled, in another process, it starts when it is used.
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
        """
        Args:
            workers: Programs that run at once, or the least and the most, to follow the load.
                Default: the number of CPUs.
            queue: Jobs that may wait in the server; others wait in this process. Default: 10,000.
            preload: Modules that every program finds imported already. With `"auto"` those that
                programs without a session import, once that pays, hidden until they do.
            setup: A Python file that runs before; programs see the names that it defines.
            packages: Pure-Python wheels, or folders of Python code, that programs can import.
            packages_common: Whether programs can import the common packages, such as requests, Flask,
                pytest and xarray, which pip fetches once. Default: no.
            requirements: Files of lines such as `NAME==VERSION --hash=sha256:…`, which pip fetches.
            package_index: A folder of wheels for these, or of Pyodide's packages with
                `pyodide-lock.json`. Names in that file need no hash, and bring what they depend on.
            timeout: Seconds that a program may take. Default: 30.
            limits: Other limits of programs.
            functions: Functions of this process that programs can call.
            python: The default Python build: a WebAssembly file with its library beside it, their
                folder, a wheel with one, or `pyodide`, CPython 3.14 from npm. Default: the build
                that Hatchery fetches.
            pythons: Further builds, by the names with which jobs and sessions ask for them.
            binary: The path of the binary `hatchery`. Default: that of `HATCHERY_BINARY`, of the
                runtime's wheel, or on the PATH.
            isolation: Where interpreters run: `threads`, or `process`, in processes of their own
                that the system confines as far as it can; `process-strict` fails where it can't.
                Default: that of `HATCHERY_ISOLATION`, or `threads`.
            mounts: Folders of this machine that programs can read, by their paths there.
            allow_connect: Where programs may connect to over TCP, such as `example.com:443`, in
                builds with sockets. Default: nowhere.
            egress: HTTP requests that programs may make, as methods and a URL, such as
                `GET,POST https://api.example.com/v1/*`. Default: none.
            secrets: Secrets that programs use without seeing them, such as
                `API_KEY=env:API_KEY@https://api.example.com` or `API_KEY=file:PATH@https://…`. The
                program's variable of that name holds a placeholder, which is replaced in the
                headers of requests to that host alone.
            http_roots: Files in PEM with certificates that these requests trust besides those of
                the system.
            sessions: What becomes of sessions.
        """
        self._open(
            PoolConfig(
                workers=workers,
                queue=queue,
                preload=(preload,) if isinstance(preload, str) else tuple(preload),
                setup=None if setup is None else os.path.abspath(setup),
                packages=_config.paths(packages),
                packages_common=packages_common,
                requirements=_config.paths(requirements),
                package_index=None if package_index is None else os.path.abspath(package_index),
                timeout=timeout,
                limits=limits,
                python=None if python is None else _config.build(python),
                pythons=tuple(
                    (name, _config.build(path)) for name, path in (pythons or {}).items()
                ),
                binary=None if binary is None else os.fspath(binary),
                isolation=isolation,
                mounts=tuple(
                    (path, os.path.abspath(folder)) for path, folder in (mounts or {}).items()
                ),
                allow_connect=(allow_connect,)
                if isinstance(allow_connect, str)
                else tuple(allow_connect),
                egress=(egress,) if isinstance(egress, str) else tuple(egress),
                secrets=(secrets,) if isinstance(secrets, str) else tuple(secrets),
                http_roots=_config.paths(http_roots),
                sessions=sessions,
                functions=functions,
            ),
            uuid.uuid4().hex,
        )

    @classmethod
    def connect(cls, path: str | PathLike, *, functions: Functions = ()) -> Pool:
        """Returns a pool that `hatchery serve --unix PATH` shares among processes."""
        pool = cls.__new__(cls)
        config = PoolConfig(socket=os.path.abspath(path), functions=functions)
        pool._open(config, uuid.uuid4().hex)
        return pool

    def _open(self, config: PoolConfig, token: str) -> None:
        self._config = config
        self._token = token
        self._functions = FunctionSet(config.functions) if config.functions else None
        self._launcher = Launcher(config)
        self._finalizer = weakref.finalize(self, self._launcher.disturb)
        self._finalizer.atexit = False
        _pools[token] = self

    def start(self) -> Pool:
        """Starts the pool, and waits until it is ready. The first start on a machine compiles
        Python, which takes one or two minutes.

        Raises:
            StartError: It can't be started or reached.
        """
        self._launcher.client().hello.result()
        return self

    def close(self) -> None:
        """Ends the pool at once, with the jobs that run; their futures get `PoolClosedError`."""
        self._launcher.close()
        _pools.pop(self._token, None)

    def drain(self, timeout: float | None = None) -> None:
        """Waits until all jobs have ended, then ends the pool. Only for a pool that this process started.

        Args:
            timeout: Seconds after which jobs that still run are cancelled. Default: none.
        """
        client = self._launcher.current()
        if client is not None and client.lost is None and not self._launcher.is_closed:
            client.request(drain_message(timeout)).result()
        self.close()

    def __enter__(self) -> Pool:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # As an executor, it waits for what was submitted, unless something went wrong.
        client = self._launcher.current()
        if kind is None and client is not None:
            client.wait()
        self.close()

    # Jobs

    def run(
        self,
        job: str | Job,
        /,
        *,
        on_event: Callable[[Event], object] | None = None,
        **options: Unpack[JobOptions],
    ) -> Outcome:
        """Runs a program in a fresh interpreter, and returns how it ended.

        Ctrl-C also raises `KeyboardInterrupt` in the program; the pool stays usable.

        Args:
            job: The program, or a `Job`.
            on_event: Is called, in this thread, with what happens in the job as it happens.
            options: See `JobOptions`.

        Raises:
            PoolError: The pool couldn't run it. What the program does, and what a limit ends, is an
                outcome and raises nothing.
        """
        return self._run(job, options, on_event)

    def submit(
        self, job: str | Job, /, *, events: bool = False, **options: Unpack[JobOptions]
    ) -> Future[Outcome]:
        """Submits a program, and returns at once. `events=True` lets its events be followed.

        Keep the future, or give it a callback, for as long as the job shall run: dropping it cancels
        the job.

        Raises:
            PoolError: The pool is closed, or can't be started or reached.
            TypeError, ValueError: An option can't be sent.
        """
        return self._submit(same, job, options, events=events)

    def _run(
        self,
        job: str | Job,
        options: JobOptions,
        on_event: Callable[[Event], object] | None,
        *,
        session: str | None = None,
        functions: FunctionSet | None = None,
    ) -> Outcome:
        client = self._launcher.client()
        message, attachments, functions = self._prepare(
            job, options, session, functions, FunctionSet
        )
        if on_event is not None:
            message["events"] = True
        call = Call(functions, None if on_event is None else EventLog())
        try:
            call.send(client, message, attachments, is_attended=True)
            if on_event is not None:
                for event in call.log():
                    on_event(event)
            return call.outcome()
        except PoolError:
            raise
        except BaseException:
            # The program is interrupted as this thread is, and its end awaited.
            call.interrupt()
            if not call.wait(_ENDING_SECONDS):
                call.cancel()
            raise

    def _submit(
        self,
        convert: Callable[[Outcome], T],
        job: str | Job,
        options: JobOptions,
        *,
        events: bool = False,
        session: str | None = None,
        functions: FunctionSet | None = None,
        lend: Callable[[Functions], FunctionSet] = FunctionSet,
        index: int | None = None,
        is_kept: bool = False,
    ) -> Future[T]:
        client = self._launcher.client()
        message, attachments, functions = self._prepare(job, options, session, functions, lend)
        if events:
            message["events"] = True
        future = Future(convert, functions, EventLog() if events else None, index)
        # Later turns see what a turn did, though nobody reads its outcome.
        is_kept = is_kept or (session is not None and not events)
        future.send(client, message, attachments, is_kept=is_kept)
        return future

    def _prepare(
        self,
        job: str | Job,
        options: JobOptions,
        session: str | None,
        functions: FunctionSet | None,
        lend: Callable[[Functions], FunctionSet],
    ) -> tuple[dict[str, Any], list[bytes], FunctionSet | None]:
        prepared = _job.prepare(job, options, session)
        if limits := self._config.job_limits:
            wire = prepared.message["job"]
            wire["limits"] = {**limits, **wire.get("limits", {})}
        functions = join(self._functions, functions)
        if prepared.functions:
            functions = join(functions, lend(prepared.functions))
        if functions is not None:
            prepared.message["functions"] = functions.descriptions
        return prepared.message, prepared.attachments, functions

    def map(
        self,
        jobs: Iterable[str | Job],
        /,
        *,
        ordered: bool = False,
        progress: _progress.Progress = None,
        **options: Unpack[JobOptions],
    ) -> Iterator[Outcome]:
        """Runs many programs, and yields how each ended; `Outcome.index` says which it is.

        Jobs are taken as others end, so there may be any number of them. A job that the pool refuses
        because it is full, or loses with its server, is submitted again. One that the pool can't
        run is an outcome, too, with the status `not_run`, whose `raise_for_status` raises the
        reason. Ending the iteration cancels the jobs in progress.

        Args:
            jobs: Programs, or `Job`s.
            ordered: Whether outcomes come in the order of the jobs, or as they end.
            progress: `True` for a bar of tqdm, or a class or an object like one.
            options: What all jobs are given, see `JobOptions`.

        Raises:
            PoolError: The pool was closed, or can't be started.
            TypeError, ValueError: An option for all jobs can't be sent.
        """
        _job.prepare("", options, None)
        total = len(jobs) if isinstance(jobs, Sequence) else None
        return _map(self, iter(jobs), ordered, _progress.bar(progress, total), options)

    # Sessions

    def session(
        self, name: str | None = None, *, functions: Functions = (), python: str | None = None
    ) -> Session:
        """Opens a session: its variables, modules and files stay from job to job.

        Args:
            name: Its name, which no open session has. Default: a random one, and the session is
                closed when nobody refers to it any more.
            functions: Functions that its programs can call, beside those of the pool.
            python: The name of its Python build, which never changes. Default: the default one.

        Raises:
            RefusedError: There is such a session, or there are too many.
            PoolError: The pool has no such build.
        """
        session = Session(self, name or new_name(), functions)
        self.request({"type": "session", "session": session.name, "action": opening(python)})
        return session if name else close_when_dropped(session, self)

    def revive(
        self, name: str | None, state: bytes | str | PathLike, *, functions: Functions = ()
    ) -> Session:
        """Opens a session with a state that `Session.save` has returned or written.

        Raises:
            PoolError: The state is of another image or another user, or was changed.
            OSError: The file can't be read.
        """
        if not isinstance(state, (bytes, bytearray)):
            with open(state, "rb") as file:
                state = file.read()
        session = Session(self, name or new_name(), functions)
        self.request({"type": "session", "session": session.name, "action": "revive"}, [bytes(state)])
        return session if name else close_when_dropped(session, self)

    def attach(self, name: str, *, functions: Functions = ()) -> Session:
        """Returns a session that is open already, such as one that another process has opened."""
        return Session(self, name, functions)

    def sessions(self) -> list[str]:
        """Returns the names of the open sessions."""
        names, _ = self.request({"type": "sessions"})
        return list(names)

    # The pool

    def status(self) -> dict[str, Any]:
        """Returns the status of the pool, as docs/status.md describes it."""
        status, _ = self.request({"type": "status"})
        return dict(status)

    def explain(self, future: Future[Any]) -> Any:
        """Returns why a job waits; `None` if it has ended."""
        explanation, _ = self.request({"type": "explain", "run": future._number})
        return explanation

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, so that it can't be used any more."""
        return self._launcher.is_closed

    @property
    def pythons(self) -> list[str]:
        """The names of its Python builds, the default one first. Waits until the pool is ready."""
        return list(self._launcher.client().hello.result()["pythons"])

    @property
    def preload(self) -> list[str]:
        """The modules that every program finds imported. Waits until the pool is ready."""
        return list(self._launcher.client().hello.result()["preload"])

    def request(
        self, message: dict[str, Any], attachments: Sequence[bytes] = ()
    ) -> tuple[Any, Sequence[bytearray]]:
        """Sends a message of the protocol other than for a job, and waits for its answer."""
        return self._launcher.client().request(message, attachments).result()

    def __reduce__(self) -> tuple[Callable[..., Pool], tuple[object, ...]]:
        return unpickled, (self._config, self._token)

    def __repr__(self) -> str:
        given = [
            f"{name}={value!r}"
            for name, value in vars(self._config).items()
            if value not in (None, ())
        ]
        return f"<Pool {' '.join(given)}>" if given else "<Pool>"


def drain_message(timeout: float | None) -> dict[str, Any]:
    """Returns the message that asks a server to end after its jobs."""
    return {"type": "drain"} if timeout is None else {"type": "drain", "seconds": timeout}


def same(outcome: Outcome) -> Outcome:
    """Returns the outcome as it is."""
    return outcome


def join(first: FunctionSet | None, then: FunctionSet | None) -> FunctionSet | None:
    """Returns the functions of both; of those with the same name, the later ones."""
    if first is None or then is None:
        return first or then
    return first.merged(then)


def _map(
    pool: Pool, jobs: Iterator[str | Job], ordered: bool, bar: _progress.Bar, options: JobOptions
) -> Iterator[Outcome]:
    def start(index: int, job: str | Job) -> Future[Outcome]:
        return pool._submit(same, job, options, index=index)

    woken = threading.Event()
    steps = mapping(start, jobs, ordered, bar, woken.set)
    try:
        for step in steps:
            if isinstance(step, Outcome):
                yield step
            else:
                woken.wait(step)
                woken.clear()
    finally:
        steps.close()


_pools: weakref.WeakValueDictionary[str, Pool] = weakref.WeakValueDictionary()
_kept: dict[str, Pool] = {}


def unpickled(config: PoolConfig, token: str) -> Pool:
    """Returns this process's pool for one that was pickled: the same one each time."""
    pool = _pools.get(token)
    if pool is None:
        pool = Pool.__new__(Pool)
        pool._open(config, token)
        # Otherwise, unpickling it for each task would start a server for each.
        _kept[token] = pool
    return pool
