"""Functions in sandboxes, by the interface of `concurrent.futures`."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent import futures
from typing import Any, ParamSpec, TypeVar

from hatchery_sandbox import _source
from hatchery_sandbox._errors import UnsupportedValueError
from hatchery_sandbox._future import Future
from hatchery_sandbox._job import Job
from hatchery_sandbox._outcome import Outcome
from hatchery_sandbox._pool import Pool
from hatchery_sandbox._tagged import is_plain

P = ParamSpec("P")
T = TypeVar("T")


class Executor(futures.Executor):
    """Calls untrusted functions in sandboxes, like a `ProcessPoolExecutor`.

    ```
    with Executor(preload=["numpy"]) as executor:
        print(executor.submit(math.gcd, 12, 18).result())
    ```

    A function of the standard library, or of a module that is preloaded, is sent by name, any other
    one as its source, with the functions, imports and constants of its module that it uses. Methods,
    lambdas, closures and decorated functions are refused with the reason. Arguments and results are
    what variables of programs can be: JSON, tuples, sets, dates, arrays, frames and so on. Nothing
    is pickled, and what a function prints isn't shown.

    What a function raises is a `ProgramRaisedError`; see the three families of `HatcheryError`.
    """

    def __init__(self, pool: Pool | None = None, /, **options: Any) -> None:
        """
        Args:
            pool: The pool to use, which stays open. Default: one of its own.
            options: Those of `Pool`, for a pool of its own.
        """
        if pool is not None and options:
            raise TypeError("give the options to the pool, or no pool")
        self._pool = Pool(**options) if pool is None else pool
        self._owns_pool = pool is None
        self._lock = threading.Lock()
        # Without callbacks, so that a thread that waits for a call can read its result itself.
        self._submitted: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._last: set[futures.Future[Any]] = set()
        """The calls in progress at the shutdown."""
        self._is_shut_down = False
        self._modules: frozenset[str] | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Calls a function in a sandbox.

        Raises:
            TypeError: The function can't be sent; the text says why and what to do.
            RuntimeError: The executor was shut down.
            PoolError: The pool can't be started or reached.
        """
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            job = self._job(fn, args, kwargs)
            # A call that nobody waits for runs, as in any executor.
            future: Future[T] = self._pool._submit(_value, job, {}, is_kept=True)
            self._submitted.add(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls, and ends the pool if it is its own.

        Args:
            wait: Whether to wait for the calls in progress. Otherwise they continue, and the pool
                ends after the last.
            cancel_futures: Whether calls in progress are cancelled, also those that run.
        """
        with self._lock:
            self._is_shut_down = True
            under_way = [future for future in self._submitted if not future.done()]
            self._last.update(under_way)
        if cancel_futures:
            for future in under_way:
                future.cancel()
        for future in under_way:
            future.call_when_done(self._forget)
        if wait:
            futures.wait(under_way)
        self._end()

    def _forget(self, future: futures.Future[Any]) -> None:
        with self._lock:
            self._last.discard(future)
        self._end()

    def _end(self) -> None:
        with self._lock:
            is_over = not self._last
        if is_over and self._owns_pool:
            self._pool.close()

    def _job(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
        name = _source.importable_name(fn, self._importable())
        if name is not None and all(map(is_plain, (*args, *kwargs.values()))):
            return Job.call(name, *args, **kwargs)
        if name is None:
            function = _source.check(fn)
            program, called = _source.source_of(function), function.__name__
        else:
            module, _, called = name.partition(":")
            program = f"from {module} import {called}"
        variables = {f"hatchery_{at}": value for at, value in enumerate(args)}
        variables |= {f"hatchery_{key}": value for key, value in kwargs.items()}
        given = [f"hatchery_{at}" for at in range(len(args))]
        given += [f"{key}=hatchery_{key}" for key in kwargs]
        return Job(f"{program}\n{called}({', '.join(given)})", variables=variables)

    def _importable(self) -> frozenset[str]:
        if self._modules is None:
            self._modules = frozenset(name.partition(".")[0] for name in self._pool.preload)
        return self._modules


def _value(outcome: Outcome) -> Any:
    outcome.raise_for_status()
    if outcome.status != "completed":
        outcome_text = f"the function left with the code {outcome.exit_code}"
        raise UnsupportedValueError(outcome_text)
    return outcome.get_value()


