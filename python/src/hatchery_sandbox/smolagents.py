"""An executor for agents of smolagents: their code runs in a sandbox, their tools run here.

```
from hatchery_sandbox.smolagents import HatcheryExecutor

agent = CodeAgent(tools=[…], model=model, executor=HatcheryExecutor())
```
"""

from __future__ import annotations

import inspect
from typing import Any

from smolagents.local_python_executor import CodeOutput, PythonExecutor

from hatchery_sandbox._describe import describe
from hatchery_sandbox._errors import HatcheryError
from hatchery_sandbox._functions import HostFunction, Lent
from hatchery_sandbox._pool import Pool
from hatchery_sandbox._session import Session

_FINAL = "final_answer"

# What is defined in each session: tools are called by their names, as smolagents' own executors
# have them, and the final answer ends the program whatever it catches.
_PRELUDE = """
from hatchery import host as _hatchery_host
class _HatcheryFinalAnswer(BaseException):
    pass
def final_answer(answer=None):
    global _hatchery_answer
    _hatchery_answer = answer
    raise _HatcheryFinalAnswer
"""


class HatcheryExecutor(PythonExecutor):
    """Runs an agent's code in a session, whose variables stay from step to step.

    Tools are host functions: they run in this process, with arguments and results as JSON. Only they
    reach what this process reaches.
    """

    def __init__(self, pool: Pool | None = None, timeout: float | None = None) -> None:
        """
        Args:
            pool: The pool to use, which stays open. Default: one of its own, with one worker.
            timeout: Seconds that a step may take. Default: the pool's.
        """
        self._pool = Pool(workers=1) if pool is None else pool
        self._owns_pool = pool is None
        self._timeout = timeout
        self._tools: dict[str, Lent] = {}
        self._open: Session | None = None

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Gives tools to the code; the agent calls this."""
        self._tools.update(
            {name: _lent(name, tool) for name, tool in tools.items() if name != _FINAL}
        )
        names = "".join(f"{name} = _hatchery_host.{name}\n" for name in self._tools)
        self._run(names)

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Sets variables of the code; the agent calls this."""
        # Arguments, so that they become variables of the session.
        given = {f"_hatchery_{name}": value for name, value in variables.items()}
        self._run("".join(f"{name} = _hatchery_{name}\n" for name in variables), variables=given)

    def __call__(self, code_action: str) -> CodeOutput:
        """Runs a step.

        Raises:
            HatcheryError: The code raised, or reached a limit; the agent tells its model.
        """
        options: dict[str, Any] = {"functions": self._tools}
        if self._timeout is not None:
            options["timeout"] = self._timeout
        outcome = self._session().run(code_action, **options)
        exception = outcome.exception
        if exception is not None and exception.type == "_HatcheryFinalAnswer":
            answer = self._session().run("_hatchery_answer")
            value = answer.value if answer.has_value else answer.repr
            return CodeOutput(output=value, logs=outcome.stdout, is_final_answer=True)
        try:
            outcome.raise_for_status()
        except HatcheryError as error:
            raise type(error)(describe(outcome, None), outcome) from None
        value = outcome.value if outcome.has_value else outcome.repr
        return CodeOutput(output=value, logs=outcome.stdout, is_final_answer=False)

    def cleanup(self) -> None:
        """Closes the session, and the pool if it is its own."""
        if self._open is not None and not self._pool.is_closed:
            self._open.close()
        self._open = None
        if self._owns_pool:
            self._pool.close()

    def _session(self) -> Session:
        if self._open is None:
            self._open = self._pool.session()
            self._open.run(_PRELUDE).raise_for_status()
        return self._open

    def _run(self, code: str, **options: Any) -> None:
        self._session().run(code, functions=self._tools, **options).raise_for_status()


def _lent(name: str, tool: Any) -> HostFunction:
    # What a tool raises is for the model to read.
    inputs = getattr(tool, "inputs", None)
    if inputs is None:
        return HostFunction(tool, name=name, raises=(Exception,))

    def call(**arguments: Any) -> Any:
        return tool(**arguments)

    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(name, told) for name, told in inputs.items()]
    )
    call.__doc__ = tool.description
    return HostFunction(call, name=name, raises=(Exception,))


def _parameter(name: str, told: dict[str, Any]) -> inspect.Parameter:
    default = None if told.get("nullable") else inspect.Parameter.empty
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=default, annotation=str(told.get("type", "")))
