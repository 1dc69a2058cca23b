"""EvalPlus with sandboxes: its command and its functions, for HumanEval+ and MBPP+.

```
python -m hatchery_sandbox.evalplus --dataset humaneval --samples samples.jsonl
```

takes what `evalplus.evaluate` takes, and so does `evaluate` here. Solutions run in sandboxes, where the
expected outputs aren't, and what they return is compared on the host by EvalPlus's own code.

A solution first runs on all inputs at once. If that takes too long, or the solution ends the program,
it runs again input by input, each with its own limit. Limits are CPU time, so verdicts don't depend on
how busy the machine is, and three times EvalPlus's, since a program takes up to that much longer in
WebAssembly. A sandbox has 1 GiB of memory where EvalPlus allows 4 GiB. The canonical solutions, which
are part of the data set, run on the host, as EvalPlus does it. `evalperf` stays as it is.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import os
import types
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hatchery_sandbox import _grading
from hatchery_sandbox._errors import SandboxFailedError
from hatchery_sandbox._job import Limits
from hatchery_sandbox._outcome import Outcome
from hatchery_sandbox._pool import Pool

__all__ = ["evaluate", "install", "untrusted_check"]

_SLOWER = 3.0
"""How much longer a program may take than EvalPlus allows."""
_MOST_SECONDS = 60.0
"""CPU time of a solution on all inputs, unless `EVALPLUS_TIMEOUT_PER_TASK` says another; times
`_SLOWER`."""
_WALL_FACTOR = 10
_LEAST_WALL_SECONDS = 20.0
_TRIES = 3
_LIMITS = Limits(result=64 << 20)
"""Outputs of a thousand inputs are long, and a solution whose output is cut would fail."""

PASS, FAIL, TIMEOUT = "pass", "fail", "timeout"


def evaluate(*arguments: Any, pool: Pool | None = None, **keywords: Any) -> None:
    """Does what `evalplus.evaluate.evaluate` does, in sandboxes.

    Args:
        pool: Runs solutions in this pool. Default: one of its own, with a worker for each CPU.
    """
    evaluation: Any = importlib.import_module("evalplus.evaluate")
    earlier = {name: getattr(evaluation, name) for name in _REPLACED}
    install(pool=pool)
    try:
        evaluation.evaluate(*arguments, **keywords)
    finally:
        for name, value in earlier.items():
            setattr(evaluation, name, value)


def install(*, pool: Pool | None = None) -> None:
    """Makes `evalplus.evaluate` use sandboxes from here on in this process.

    Args:
        pool: As for `evaluate`.
    """
    evaluation: Any = importlib.import_module("evalplus.evaluate")
    evaluation.untrusted_check = functools.partial(untrusted_check, pool=pool)
    # Its processes would start a pool each. Threads share one, and only wait for it.
    evaluation.ProcessPoolExecutor = ThreadPoolExecutor


_REPLACED = ("untrusted_check", "ProcessPoolExecutor")


def untrusted_check(
    dataset: str,
    code: str,
    inputs: Sequence[Any],
    entry_point: str,
    expected: Sequence[Any],
    atol: float,
    ref_time: Sequence[float],
    fast_check: bool = False,
    min_time_limit: float = 1.0,
    gt_time_limit_factor: float = 4.0,
    *,
    pool: Pool | None = None,
) -> tuple[str, list[bool]]:
    """Runs a solution on inputs and compares what it returns, as `evalplus.eval` does.

    Args:
        dataset: `humaneval` or `mbpp`: some of their functions are compared in a way of their own.
        code: The solution, which is not trusted.
        inputs: Lists of arguments.
        entry_point: The function of the solution that is called.
        expected: What it should return for each input.
        atol: By how much numbers may differ.
        ref_time: How long the canonical solution takes for each input, in seconds.
        fast_check: Whether the first wrong output ends the check.
        min_time_limit: The least limit for an input, in seconds; see the module for what it means.
        gt_time_limit_factor: How many times as long as the canonical solution an input may take.
        pool: Runs it in this pool instead of one of its own.

    Returns:
        `pass`, `fail` or `timeout`, and whether each output that was looked at is right.
    """
    limits = [
        max(min_time_limit, gt_time_limit_factor * seconds) * _SLOWER for seconds in ref_time
    ]
    most = float(os.environ.get("EVALPLUS_TIMEOUT_PER_TASK", _MOST_SECONDS)) * _SLOWER
    solution = _Solution(pool or _grading.shared_pool(), code, entry_point)
    compare = functools.partial(_compare, dataset, entry_point, inputs, expected, limits, atol)
    for attempt in range(_TRIES):
        try:
            ends = solution.run_together(inputs, min(limits, default=min_time_limit * _SLOWER))
            if ends is not None:
                return compare(fast_check, ends)
            budget = min(sum(limits), most) + _SLOWER
            with contextlib.closing(solution.run_apart(inputs, limits, budget)) as apart:
                return _follow(compare, fast_check, apart)
        except SandboxFailedError:
            # It says nothing about the solution.
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


class _Failure(Exception):
    """What a solution has for an input in place of an output."""


class _TooLong(Exception):
    """A solution has used up its time for all inputs."""


class _Undefined(Exception):
    """A solution has no function to call."""


def _follow(
    compare: Callable[[bool, list[Any]], tuple[str, list[bool]]],
    fast_check: bool,
    apart: Iterator[Any],
) -> tuple[str, list[bool]]:
    """Returns the verdict on outputs that come one by one."""
    ends: list[Any] = []
    try:
        for end in apart:
            ends.append(end)
            # Nothing more is run than is looked at.
            if fast_check and isinstance(end, _Failure):
                break
    except _Undefined:
        return FAIL, []
    except _TooLong:
        verdict, details = compare(fast_check, ends)
        is_over = fast_check and verdict == FAIL and not all(details)
        return (FAIL if is_over else TIMEOUT), details
    return compare(fast_check, ends)


class _Solution:
    """A solution, and how it is run."""

    def __init__(self, pool: Pool, code: str, entry_point: str) -> None:
        self._pool = pool
        self._given = {"hatchery_code": code, "hatchery_entry_point": entry_point}

    def run_together(self, inputs: Sequence[Any], seconds: float) -> list[Any] | None:
        """Returns an output or a failure for each input; `None` if it must be run input by
        input to know."""
        given = {**self._given, "hatchery_inputs": json.dumps([_pack(given) for given in inputs])}
        program = f"{_GUEST}\n_define()\n_call_all(hatchery_inputs)"
        outcome = self._pool.run(program, variables=given, **_options(seconds))
        ends = _ends(outcome)
        return ends if ends is not None and len(ends) == len(inputs) else None

    def run_apart(
        self, inputs: Sequence[Any], limits: Sequence[float], budget: float
    ) -> Generator[Any, None, None]:
        """Yields an output or a failure for one input after the other.

        Raises:
            _Undefined: There is no function to call.
            _TooLong: So many seconds of CPU time are used up.
        """
        with self._pool.session() as session:
            program = f"{_GUEST}\n_define()"
            outcome = session.run(program, variables=self._given, **_options(budget))
            spent = _spent(outcome)
            if outcome.timed_out:
                raise _TooLong
            if not outcome.passed:
                raise _Undefined
            for given, limit in zip(inputs, limits):
                left = budget - spent
                if left <= 0:
                    raise _TooLong
                variables = {"hatchery_inputs": json.dumps([_pack(given)])}
                options = _options(min(limit, left))
                outcome = session.run("_call_all(hatchery_inputs)", variables=variables, **options)
                spent += _spent(outcome)
                if outcome.timed_out and limit > left:
                    raise _TooLong
                ends = _ends(outcome)
                yield ends[0] if ends else _Failure()


def _options(seconds: float) -> Any:
    wall = max(seconds * _WALL_FACTOR, _LEAST_WALL_SECONDS)
    return {"cpu_time": seconds, "timeout": wall, "limits": _LIMITS, "contents": False}


def _spent(outcome: Outcome) -> float:
    """Returns the CPU time that a run took, in seconds.

    Raises:
        SandboxFailedError: The sandbox failed.
    """
    if outcome.status == "sandbox_failed":
        outcome.raise_for_status()
    return outcome.usage.cpu_ms / 1e3


def _ends(outcome: Outcome) -> list[Any] | None:
    """Returns what a program has sent: a solution can have forged it, but doesn't know what is
    expected."""
    _spent(outcome)
    if not outcome.passed or not isinstance(outcome.value, bytes):
        return None
    try:
        sent = json.loads(outcome.value)
        return [_Failure() if end is None else _unpack(end[0]) for end in sent]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def _compare(
    dataset: str,
    entry_point: str,
    inputs: Sequence[Any],
    expected: Sequence[Any],
    limits: Sequence[float],
    atol: float,
    fast_check: bool,
    ends: Sequence[Any],
) -> tuple[str, list[bool]]:
    """Compares outputs by the code of EvalPlus, which calls a function and then compares: here the
    function returns what the solution has returned."""
    evaluation: Any = importlib.import_module("evalplus.eval")
    following = iter(ends)

    def replay(*_: Any) -> Any:
        end = next(following)
        if isinstance(end, _Failure):
            raise end
        return end

    replaced: dict[str, Any] = {
        "exec": lambda _, scope: scope.update({entry_point: replay}),
        "create_tempdir": contextlib.nullcontext,
        "reliability_guard": lambda **_: None,
        "swallow_io": contextlib.nullcontext,
        "time_limit": contextlib.nullcontext,
    }
    execute = evaluation.unsafe_execute
    if unknown := replaced.keys() - {"exec"} - execute.__globals__.keys():
        raise RuntimeError(f"this version of evalplus has no `{min(unknown)}`; 0.3.1 has")
    compare = types.FunctionType(execute.__code__, {**execute.__globals__, **replaced})
    state, progress = types.SimpleNamespace(value=3), types.SimpleNamespace(value=0)
    details = [False] * len(inputs)
    seen = inputs[: len(ends)]
    compare(
        dataset, entry_point, "", seen, expected, limits, atol, fast_check, state, details, progress
    )
    looked_at = details[: progress.value]
    if state.value == 0 and len(looked_at) == len(inputs) and all(looked_at):
        return PASS, looked_at
    return FAIL, looked_at


# What follows runs in sandboxes, too, so it uses nothing of this module.


def _pack(value: Any) -> Any:
    """Returns a value as JSON that keeps types apart. What isn't made of built-in types, or of
    NumPy's, becomes something that equals nothing."""
    kind = type(value)
    if value is None or kind in (bool, float, str):
        return value
    if kind is int:
        return value if value.bit_length() < 10_000 else {"hex": hex(value)}
    for base, name in ((list, "list"), (tuple, "tuple"), (set, "set"), (frozenset, "frozenset")):
        if isinstance(value, base):
            packed: Any = {name: [_pack(item) for item in value]}
            return packed if kind is base else {"of": packed}
    if isinstance(value, dict):
        packed = {"dict": [[_pack(key), _pack(item)] for key, item in value.items()]}
        return packed if kind is dict else {"of": packed}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if kind in (bytes, bytearray):
        return {kind.__name__: value.hex()}
    if kind is range:
        return {"range": [value.start, value.stop, value.step]}
    if kind.__module__ == "numpy":
        if kind.__name__ == "ndarray":
            return {"array": _pack(value.tolist())}
        return {"of": _pack(value.item())}
    for plain in (bool, int, float, str):
        if isinstance(value, plain):
            return {"of": _pack(plain(value))}
    return {"other": None}


def _define() -> None:
    scope: dict[str, Any] = {}
    given = globals()
    exec(given["hatchery_code"], scope)
    given["hatchery_function"] = scope[given["hatchery_entry_point"]]


def _call_all(inputs: str) -> bytes:
    function = globals()["hatchery_function"]
    ends: list[Any] = []
    for arguments in json.loads(inputs):
        given = _unpack(arguments)
        try:
            ends.append([_pack(function(*given))])
        except KeyboardInterrupt:
            raise
        except BaseException:
            ends.append(None)
    return json.dumps(ends).encode()


def _unpack(packed: Any) -> Any:
    """Returns the value of what `_pack` returned, of built-in types alone."""
    if not isinstance(packed, dict):
        return packed
    ((name, content),) = packed.items()
    if name in ("set", "frozenset", "dict") and len(content) > 1000:
        keys = [_unpack(item[0] if name == "dict" else item) for item in content]
        if len({hash(key) for key in keys}) * 2 < len(keys):
            raise ValueError("this was made to keep the host busy with equal hashes")
    if name in ("list", "tuple", "set", "frozenset"):
        made: Any = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[name]
        return made([_unpack(item) for item in content])
    if name == "dict":
        return {_unpack(key): _unpack(item) for key, item in content}
    if name == "of":
        value = _unpack(content)
        # Equal to what it was made of, but of another type; nothing derives from these two.
        if value is None or isinstance(value, bool):
            return value
        return type("Other", (type(value),), {})(value)
    if name == "hex":
        return int(content, 16)
    if name == "complex":
        return complex(*content)
    if name in ("bytes", "bytearray"):
        raw = bytes.fromhex(content)
        return raw if name == "bytes" else bytearray(raw)
    if name == "range":
        return range(*content)
    if name == "array":
        return __import__("numpy").array(_unpack(content))
    return object()


_GUEST = "\n".join(
    ["import json", "from typing import Any"]
    + [inspect.getsource(function) for function in (_pack, _unpack, _define, _call_all)]
)


def main() -> None:
    """Does what the command `evalplus.evaluate` does, in sandboxes."""
    install()
    importlib.import_module("evalplus.evaluate").main()


if __name__ == "__main__":
    main()
