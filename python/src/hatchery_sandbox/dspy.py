"""An interpreter for DSPy: the code of `RLM` and other modules runs in a sandbox, their tools run here.

```
from hatchery_sandbox.dspy import HatcheryInterpreter

dspy.configure(interpreter_factory=HatcheryInterpreter.factory(pool))
```
"""

from __future__ import annotations

import asyncio
import inspect
import keyword
import threading
from collections.abc import Callable, Mapping
from typing import Any

from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError, FinalOutput
from dspy.utils.callback import with_callbacks
from pydantic_core import PydanticSerializationError, to_jsonable_python

from hatchery_sandbox._describe import describe
from hatchery_sandbox._errors import PoolError, UnsupportedValueError
from hatchery_sandbox._functions import HostFunction
from hatchery_sandbox._job import Limits
from hatchery_sandbox._outcome import Outcome
from hatchery_sandbox._pool import Pool
from hatchery_sandbox._session import Session
from hatchery_sandbox._shared import agents_pool
from hatchery_sandbox._values import tagged

# Before each execution, since code may have changed any name.
_PRELUDE = """\
from hatchery import host as _hatchery_host
class _HatcherySubmit(BaseException):
    pass
def _hatchery_submit(answer):
    global _hatchery_answer
    _hatchery_answer = answer
    raise _HatcherySubmit
"""
_ANSWER_BYTES = 64 << 20
_TYPES = frozenset(("str", "int", "float", "bool", "list", "dict"))


class HatcheryInterpreter:
    """A `CodeInterpreter` of DSPy: a session, whose variables stay from call to call.

    Tools are host functions: they run in this process, in threads, and also when they are coroutines.
    `SUBMIT` ends the code at once, whatever it catches.
    """

    execution_instructions = (
        "Code runs in CPython with its standard library, numpy and pandas, compiled to WebAssembly. State "
        "persists across executions. There are no subprocesses, no network and no files of the host; files "
        "that the code writes persist. print() output is returned, and so is the value of the last "
        "expression. SUBMIT() stops execution immediately."
    )

    def __init__(
        self,
        pool: Pool | None = None,
        tools: Mapping[str, Callable[..., Any]] | None = None,
        output_fields: list[dict[str, Any]] | None = None,
        *,
        callbacks: list[Any] | None = None,
        **options: Any,
    ) -> None:
        """
        Args:
            pool: The pool to use, which stays open. Default: one of this process, shared by all.
            tools: Functions that the code can call, by their names.
            output_fields: What `SUBMIT` takes: a `name` and maybe a `type` each. Default: one `output`.
            callbacks: Callbacks of DSPy, beside its settings'.
            options: Those of jobs, such as `timeout` in seconds.
        """
        self.tools: dict[str, Callable[..., Any]] = dict(tools or {})
        """The tools, which may change between executions."""
        self.output_fields = output_fields
        self.callbacks = list(callbacks or [])
        self._pool = pool
        self._options = options
        self._session: Session | None = None
        self._has_ended = False
        self._running = threading.Lock()
        self._sent: dict[str, str] = {}
        """Texts that the session has already, by the names of their variables."""

    @classmethod
    def factory(cls, pool: Pool | None = None, **arguments: Any) -> Callable[[], HatcheryInterpreter]:
        """Returns an `interpreter_factory`, for DSPy's settings or a module, with these arguments."""

        def make() -> HatcheryInterpreter:
            return cls(pool, **arguments)

        make.execution_instructions = cls.execution_instructions  # type: ignore[attr-defined]
        return make

    @with_callbacks
    def start(self) -> None:
        """Opens the session, unless it is open.

        Raises:
            CodeInterpreterError: It was shut down, or the pool can't be started.
        """
        if self._has_ended:
            raise CodeInterpreterError("this interpreter was shut down; create a new one")
        if self._session is None:
            try:
                self._session = (self._pool or agents_pool()).session()
            except PoolError as error:
                raise self._ended(error) from error

    @with_callbacks
    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """Runs code, and returns what `SUBMIT` was given as a `FinalOutput`, or else the output as text,
        or `None` if there is none.

        Raises:
            CodeExecutionError: The code raised, or reached a limit; it can go on.
            CodeInterpreterError: The sandbox failed, or a variable can't be passed.
            SyntaxError: It isn't Python.
        """
        self.start()
        session = self._session
        assert session is not None
        if not self._running.acquire(blocking=False):
            raise CodeInterpreterError("this interpreter runs code already; a tool can't use it")
        try:
            functions = [self._lent(name, tool) for name, tool in self.tools.items()]
            head, given = self._head(variables or {})
            outcome = session.run(head, variables=given, functions=functions, **self._options)
            if outcome.success:
                outcome = session.run(code, functions=functions, **self._options)
            exception = outcome.exception
            if exception is not None and exception.type == "_HatcherySubmit":
                return self._submitted(session)
            if outcome.status == "sandbox_failed":
                outcome.raise_for_status()
        except UnsupportedValueError as error:
            raise CodeInterpreterError(str(error)) from error
        except PoolError as error:
            raise self._ended(error) from error
        finally:
            self._running.release()
        return self._result(outcome)

    @with_callbacks
    def invoke_tool(self, tool_name: str, kwargs: dict[str, Any]) -> Any:
        """Calls a tool for the code."""
        result = self.tools[tool_name](**kwargs)
        return asyncio.run(_wait(result)) if inspect.isawaitable(result) else result

    @with_callbacks
    def shutdown(self) -> None:
        """Closes the session; the pool stays open."""
        self._has_ended = True
        session, self._session = self._session, None
        if session is not None:
            session.__exit__()

    def __call__(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """Runs code; see `execute`."""
        return self.execute(code, variables)

    def __enter__(self) -> HatcheryInterpreter:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _ended(self, error: PoolError) -> CodeInterpreterError:
        self.shutdown()
        return CodeInterpreterError(f"the sandbox failed, and its variables are lost: {error}")

    def _head(self, variables: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Returns what defines tools, `SUBMIT` and variables before the code, and what it is given."""
        lines = [f"{name} = _hatchery_host.{_host_name(name)}" for name in self.tools]
        fields = self.output_fields or [{"name": "output"}]
        parameters = ", ".join(map(_parameter, fields))
        names = ", ".join(f"{field['name']!r}: {field['name']}" for field in fields)
        lines.append(f"def SUBMIT({parameters}):\n    _hatchery_submit({{{names}}})")
        given: dict[str, Any] = {}
        for name, value in variables.items():
            if not name.isidentifier() or keyword.iskeyword(name):
                raise CodeInterpreterError(f"`{name}` can't be the name of a variable")
            sent = f"_hatchery_sent_{name}"
            # `RLM` gives all its inputs each time, and they can be large.
            if not (isinstance(value, str) and self._sent.get(name) == value):
                given[f"_hatchery_given_{name}"] = _sendable(name, value)
                lines.append(f"{sent} = _hatchery_given_{name}")
            if isinstance(value, str):
                self._sent[name] = value
            else:
                self._sent.pop(name, None)
            lines.append(f"{name} = {sent}")
        return _PRELUDE + "\n".join(lines), given

    def _lent(self, name: str, tool: Callable[..., Any]) -> HostFunction:
        def call(**arguments: Any) -> Any:
            return _result_of(name, self.invoke_tool(name, arguments))

        signature = inspect.signature(tool)
        kept = [each for each in signature.parameters.values() if each.kind is not each.VAR_POSITIONAL]
        call.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        call.__doc__ = inspect.getdoc(tool)
        # What a tool raises is for the model to read.
        return HostFunction(call, name=_host_name(name), raises=(Exception,))

    def _submitted(self, session: Session) -> Any:
        answer = session.run(
            "_hatchery_answer", limits=Limits(result=_ANSWER_BYTES, result_data=_ANSWER_BYTES)
        )
        if (reason := answer.value_missing) is not None:
            raise CodeExecutionError(f"SUBMIT can't pass this on: {reason}")
        return FinalOutput(answer.get_value())

    def _result(self, outcome: Outcome) -> str | None:
        told = describe(outcome, None)
        if outcome.success:
            return None if told == "(no output)" else told
        exception = outcome.exception
        if exception is not None and not exception.details.get("frames"):
            if exception.type in ("SyntaxError", "IndentationError", "TabError"):
                raise SyntaxError(told)
        raise CodeExecutionError(told)


def _host_name(name: str) -> str:
    """Returns the name of a tool as a host function, which can't begin with two underscores."""
    return f"hatchery{name}" if name.startswith("__") else name


def _parameter(field: dict[str, Any]) -> str:
    hint = field.get("type")
    return f"{field['name']}: {hint}" if hint in _TYPES else str(field["name"])


def _sendable(name: str, value: Any) -> Any:
    """Returns a variable as programs can have it: what can't be passed as it is as JSON.

    Raises:
        CodeInterpreterError: It is neither.
    """
    try:
        tagged(f"the variable `{name}`", value)
        return value
    except UnsupportedValueError as error:
        try:
            return to_jsonable_python(value)
        except PydanticSerializationError:
            raise CodeInterpreterError(str(error)) from None


def _result_of(name: str, value: Any) -> Any:
    """Returns the result of a tool as programs can have it, at worst as text."""
    try:
        tagged(f"the result of {name}", value)
        return value
    except UnsupportedValueError:
        return to_jsonable_python(value, fallback=str)


async def _wait(awaitable: Any) -> Any:
    return await awaitable
