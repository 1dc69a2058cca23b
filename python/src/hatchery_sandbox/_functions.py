"""Functions of this process that programs call: `from hatchery import host`."""

from __future__ import annotations

import contextvars
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Union

from hatchery_sandbox import _threads
from hatchery_sandbox._errors import HostError
from hatchery_sandbox._frames import Message, printable
from hatchery_sandbox._values import tagged, untagged

logger = logging.getLogger("hatchery_sandbox")

StartCoroutine = Callable[[_threads.AsyncCall], Callable[[], object]]
"""Calls an async function somewhere, and returns what cancels that."""

Answer = Callable[[Message], None]
"""Takes the `value` or the `error` of a call."""


@dataclass(frozen=True)
class HostFunction:
    """A host function with options beyond its signature.

    Without options, a plain callable is enough: its name, its parameters with their types and
    defaults, and its docstring are used. Arguments and results are what variables of
    programs can be: JSON, sets, dates, arrays, frames and so on.
    """

    function: Callable[..., Any]
    """A plain function, which runs in a thread, or an async one."""
    name: str | None = None
    """What programs call it. Default: its own name."""
    timeout: float | None = None
    """Seconds after which a call raises `TimeoutError` in the program. Default: none."""
    raises: tuple[type[Exception], ...] = ()
    """Exceptions that the program may see, with their texts. Of others it learns only that there
    was one, because texts of exceptions can hold what isn't for it. `HostError` is always seen."""


Lent = Union[Callable[..., Any], HostFunction]
"""A function that can be lent to programs."""

Functions = Union[Iterable[Lent], Mapping[str, Lent]]
"""Functions that are lent to programs, optionally by the names that programs call them."""


class FunctionSet:
    """The functions that one job can call."""

    def __init__(
        self, functions: Functions, start_coroutine: StartCoroutine = _threads.start_coroutine
    ) -> None:
        named = functions.items() if isinstance(functions, Mapping) else ((None, f) for f in functions)
        lent = [_Described(name, function) for name, function in named]
        self._by_name = {function.name: function for function in lent}
        if len(self._by_name) < len(lent):
            raise ValueError("two functions have the same name; give names by a dictionary")
        self._start_coroutine = start_coroutine
        self.descriptions = [function.description for function in lent]

    def merged(self, other: FunctionSet) -> FunctionSet:
        """Returns a set with these functions and others, of which the others go first."""
        merged = FunctionSet((), other._start_coroutine)
        merged._by_name = {**self._by_name, **other._by_name}
        merged.descriptions = [function.description for function in merged._by_name.values()]
        return merged

    def call(
        self, name: str, arguments: Message, answer: Answer, context: contextvars.Context
    ) -> Callable[[], object] | None:
        """Calls a function in a thread or on a loop, and returns what cancels it, if anything."""
        function = self._by_name.get(name)
        if function is None:
            answer(failure("AttributeError", f"there is no function `{name}`"))
            return None
        # What the function changes in its context is for itself.
        context = context.copy()
        try:
            if function.is_async:
                call = partial(function.call_async, arguments, answer)
                return context.run(self._start_coroutine, call)
            _threads.start_thread(lambda: context.run(function.call, arguments, answer))
        except RuntimeError as error:
            # The loop has ended, or no thread can be started.
            answer(failure("RuntimeError", f"the host function {name} can't be called: {error}"))
        return None


class _Described:
    """A function and how programs see it."""

    def __init__(self, name: str | None, lent: Lent) -> None:
        host = lent if isinstance(lent, HostFunction) else HostFunction(lent)
        if not callable(host.function):
            raise TypeError(f"a host function must be callable, not {host.function!r}")
        self.name = str(name or host.name or getattr(host.function, "__name__", ""))
        if not self.name.isidentifier():
            raise ValueError(
                f"`{self.name}` can't be called by name; give one: HostFunction(…, name='…')"
            )
        self._function = host.function
        self._raises = host.raises
        call = getattr(host.function, "__call__", None)
        self.is_async = inspect.iscoroutinefunction(host.function) or (
            inspect.iscoroutinefunction(call)
        )
        self._leading, parameters, returns = _parameters(self.name, host.function)
        self.description: Message = {"name": self.name, "returns": returns, "tagged": True}
        if parameters is not None:
            self.description["parameters"] = parameters
        if doc := inspect.getdoc(host.function):
            self.description["doc"] = doc
        if host.timeout is not None:
            self.description["timeout"] = host.timeout

    def call(self, arguments: Message, answer: Answer) -> None:
        try:
            leading, arguments = self._given(arguments)
            result = self._value(self._function(*leading, **arguments))
        except BaseException as error:
            # Also `sys.exit`: it would end this thread alone, and the program would wait.
            result = self._raised(error)
        answer(result)

    async def call_async(self, arguments: Message, answer: Answer) -> None:
        try:
            leading, arguments = self._given(arguments)
            result = self._value(await self._function(*leading, **arguments))
        except BaseException as error:
            answer(self._raised(error))
            # The loop must learn of a cancellation; what ends programs isn't for it.
            if not isinstance(error, (Exception, SystemExit, KeyboardInterrupt)):
                raise
            return
        answer(result)

    def _given(self, arguments: Message) -> tuple[list[Any], Message]:
        """Returns the positional and the other arguments."""
        arguments = {name: untagged(tree) for name, tree in arguments.items()}
        return [arguments.pop(name) for name in self._leading], arguments

    def _value(self, result: object) -> Message:
        return {"value": tagged(f"the result of {self.name}", result)}

    def _raised(self, error: BaseException) -> Message:
        try:
            if isinstance(error, HostError):
                return failure(error.kind, error.message)
            if isinstance(error, self._raises):
                is_plain = len(error.args) == 1 and isinstance(error.args[0], str)
                return failure(type(error).__name__, error.args[0] if is_plain else str(error))
            if isinstance(error, (Exception, SystemExit, KeyboardInterrupt)):
                logger.error("the host function %s failed", self.name, exc_info=error)
                return failure("RuntimeError", f"the host function {self.name} failed")
        except Exception:  # its texts raise, too
            logger.exception("the host function %s failed", self.name)
            return failure("RuntimeError", f"the host function {self.name} failed")
        return failure("RuntimeError", f"the host function {self.name} was cancelled")


def failure(kind: object, message: object) -> Message:
    """Returns the answer to a call that raises an exception in the program."""
    return {"error": {"type": printable(kind), "message": printable(message)}}


def _parameters(
    name: str, function: Callable[..., Any]
) -> tuple[list[str], list[Message] | None, str]:
    """Returns the names of positional-only parameters, the parameters as programs see them, and
    the type of the result."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return [], None, ""
    parameters: list[Message] | None = []
    leading = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise TypeError(
                f"`{name}` takes `*{parameter.name}`, but programs pass arguments by name; give it "
                "a parameter that is a list"
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            parameters = None
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            leading.append(parameter.name)
        if parameters is not None:
            parameters.append(_parameter(name, parameter))
    return leading, parameters, _hint(signature.return_annotation, signature.empty)


def _parameter(name: str, parameter: inspect.Parameter) -> Message:
    described: Message = {"name": parameter.name}
    if hint := _hint(parameter.annotation, parameter.empty):
        described["hint"] = hint
    if parameter.default is not parameter.empty:
        described["default"] = tagged(
            f"the default of `{parameter.name}` of `{name}`", parameter.default
        )
    return described


def _hint(annotation: object, empty: object) -> str:
    if annotation is empty:
        return ""
    if isinstance(annotation, str):
        return annotation
    return inspect.formatannotation(annotation)
