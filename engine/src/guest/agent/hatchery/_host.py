"""The functions of the host: `from hatchery import host`, then `host.price(item="x")`.

A call begins in the host and gets a ticket; the caller waits in the host until it ends. So plain
and awaited calls are the same to the host, and many can be in flight at once. The list of functions
is fetched when a program first uses it in a run.
"""

import _sitebuiltins
import builtins
import sys
import types
from _frozen_importlib import ModuleSpec

import hatchery
from hatchery._describe import NO_KEYS
from hatchery._wire import CALL, CANCEL, FUNCTIONS, WAIT, WAKE, decode_request, encode_json

# Integers that arrive unchanged.
SMALLEST_INTEGER = -(1 << 63)
LARGEST_INTEGER = (1 << 64) - 1
# Deeper arguments are refused, as the host refuses them.
DEEPEST_ARGUMENT = 100


class HostFunctionError(Exception):
    """A function of the host failed. `type` is the name that the host gave the error."""

    type = "HostFunctionError"


class HostLimitError(HostFunctionError):
    """A call of a host function exceeded a limit of the run."""

    type = "HostLimitError"


class Bridge:
    """The calls in flight, and the connection to the host."""

    def __init__(self):
        self._call = None
        # Descriptions of the functions by name, if this run has fetched them.
        self._table = None
        # The Python functions made from them.
        self._made = {}
        # The futures of awaited calls, by ticket.
        self.awaited = {}
        # Answers to calls of other threads that a wait for any call has received, by ticket.
        self._strays = {}
        # Exceptions of the host's own types, by name.
        self._types = {}
        # Whether this turn is a session's, and the event loop that is kept (`_loop.py`).
        self.is_session = False
        self.loop = None

    def connect(self, call):
        self._call = call

    def begin_turn(self, is_session):
        """Discards the state of the last run: calls end with the run that made them."""
        if self.is_session is not is_session:  # a write would dirty a page
            self.is_session = is_session
        if self._table is not None:
            self._table, self._made = None, {}
        if self._strays:
            self._strays = {}
        if self.awaited:
            awaited, self.awaited = self.awaited, {}
            for future in awaited.values():
                try:
                    error = HostFunctionError("the run that made this call has ended")
                    settle(future, error)
                except Exception:
                    pass  # its loop was closed, or is the program's own

    def catch_up(self):
        """Lets a session's tasks run as far as they can, before and after the turn's own work."""
        if self.is_session and self.loop is not None:
            self.loop.catch_up()

    def table(self):
        if self._table is None:
            answer = decode_request(self._call(FUNCTIONS))
            self._table = {function["name"]: function for function in answer}
        return self._table

    def function(self, name):
        """Returns the function of this name; `None` if the host has none."""
        made = self._made.get(name)
        if made is None and name in self.table():
            made = self._made[name] = make_function(self._table[name])
        return made

    def is_tagged(self, name):
        """Whether a function takes and returns what JSON can't hold."""
        return name in self.table() and self._table[name].get("tagged", False)

    def result(self, name, result):
        """Returns the object for the result of a function."""
        return untagged(result) if self.is_tagged(name) else result

    def begin(self, name, arguments):
        """Begins a call; returns its ticket."""
        if self.is_tagged(name):
            arguments = {key: tagged(key, value) for key, value in arguments.items()}
        else:
            check(arguments, DEEPEST_ARGUMENT)
        frame = encode_json({"name": name, "arguments": arguments})
        ticket = decode_request(self._call(CALL + frame.encode()))
        if type(ticket) is int:
            return ticket
        raise self.error(*ticket)

    def wait(self, timeout=None, ticket=0):
        """Waits until calls have ended, the ticket's or any, for at most `timeout` seconds.

        Returns a list of tickets, each with whether the call succeeded and with its result. It is
        empty after a timeout or an interrupt.
        """
        nanoseconds = -1 if timeout is None else round_up(timeout)
        body = nanoseconds.to_bytes(8, "little", signed=True) + ticket.to_bytes(4, "little")
        answer = self._call(WAIT + body)
        return decode_request(answer) if answer else ()

    def wake(self):
        """Ends another thread's wait for any call, or else its next one."""
        self._call(WAKE)

    def cancel(self, ticket):
        self._call(CANCEL + ticket.to_bytes(4, "little"))

    def call(self, name, arguments):
        """Calls a function and waits until it ends."""
        ticket = self.begin(name, arguments)
        try:
            while True:
                ended = self.wait(ticket=ticket)
                if not ended and ticket in self._strays:
                    ended = [self._strays.pop(ticket)]
                for _, is_success, result in ended:
                    ticket = None
                    if is_success:
                        return self.result(name, result)
                    raise self.error(*result)
        finally:
            if ticket is not None:
                self.cancel(ticket)

    async def call_async(self, name, arguments):
        """Like `call`, but lets other tasks of the event loop run."""
        loop = sys.modules["asyncio"].get_running_loop()
        if not getattr(loop, "waits_in_host", False):
            raise RuntimeError("host functions can only be awaited on the sandbox's own event loop")
        future = loop.create_future()
        ticket = self.begin(name, arguments)
        awaited = self.awaited
        awaited[ticket] = future
        try:
            return self.result(name, await future)
        finally:
            # Still there if the task was cancelled.
            if awaited.get(ticket) is future:
                del awaited[ticket]
                if awaited is self.awaited:
                    self.cancel(ticket)

    def dispatch(self, ended):
        """Passes the results of ended calls to those who await them."""
        for ticket, is_success, result in ended:
            future = self.awaited.pop(ticket, None)
            if future is None and hatchery._has_threads:
                self._strays[ticket] = ticket, is_success, result
                continue
            if future is None or future.done():
                continue
            if is_success:
                future.set_result(result)
            else:
                settle(future, self.error(*result))

    def error(self, name, message):
        """Returns the exception of this name: Python's own, or a `HostFunctionError`."""
        if name == "HostLimitError":
            return HostLimitError(message)
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return kind(message)
            except TypeError:
                pass  # it needs more than a message
        if name == "HostFunctionError":
            return HostFunctionError(message)
        kind = self._types.get(name)
        if kind is None:
            members = {"__module__": "hatchery", "type": name}
            kind = self._types[name] = type(name, (HostFunctionError,), members)
        return kind(message)


def settle(future, error):
    """Ends a future with an error."""
    if future.done():
        return
    if isinstance(error, StopIteration):
        # Futures refuse it.
        error = RuntimeError(f"StopIteration: {error}")
    future.set_exception(error)


def round_up(seconds):
    """Converts seconds to nanoseconds, rounded up so that no wait is too short, and capped."""
    return min(max(0, -int(-min(seconds, 1e10) * 1_000_000_000 // 1)), (1 << 63) - 1)


def check(value, depth):
    """Raises an exception unless JSON can hold the value; only tuples become lists."""
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return
    if kind is int:
        if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
            raise OverflowError("host functions take integers of at most 64 bits")
    elif kind is float:
        if value - value != 0.0:
            raise ValueError("host functions take no infinity and no NaN")
    elif kind not in (list, tuple, dict):
        raise TypeError(f"host functions take JSON values, not {kind.__name__}")
    elif depth == 0:
        raise ValueError(f"arguments of host functions can be nested at most {DEEPEST_ARGUMENT} deep")
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"keys for host functions must be strings, not {type(key).__name__}")
            if key.startswith(NO_KEYS):
                raise ValueError(f"no host function takes the key {key!r}")
            check(item, depth - 1)
    else:
        for item in value:
            check(item, depth - 1)


def tagged(name, value):
    """Returns an argument of a function that takes what JSON can't hold."""
    from hatchery._tagged import Encoder, Unsupported, inline

    try:
        return Encoder(inline).tree(value)
    except Unsupported as error:
        raise TypeError(f"the argument {name!r} can't be passed to the host: {error}") from None


def untagged(tree):
    from hatchery._tagged import Decoder

    return Decoder().value(tree)


class Hint:
    """The type of a parameter or a result, as the host writes it."""

    def __init__(self, text):
        self._text = text

    def __repr__(self):
        return self._text


def make_function(function):
    """Returns a Python function with the signature and documentation of a host function."""
    plain = define(function, "def", "", bridge.call, function["name"])
    plain.aio = define(function, "async def", "await ", bridge.call_async, f"{function['name']}.aio")
    return plain


def define(function, keyword, wait, call, qualified):
    name, parameters = function["name"], function["parameters"]
    scope = {"_hatchery_call": call, "_hatchery_name": name, "_hatchery_defaults": []}
    hints = {}
    if parameters is None:
        declared, arguments = "**arguments", "**arguments"
    else:
        declared = []
        for parameter, hint, has_default, default in parameters:
            if has_default:
                at = len(scope["_hatchery_defaults"])
                declared.append(f"{parameter}=_hatchery_defaults[{at}]")
                default = untagged(default) if function.get("tagged") else default
                scope["_hatchery_defaults"].append(default)
            else:
                declared.append(parameter)
            if hint:
                hints[parameter] = Hint(hint)
        declared = ", ".join(declared)
        arguments = ", ".join(f"{parameter!r}: {parameter}" for parameter, *_ in parameters)
    source = (
        f"{keyword} {name}({declared}):\n"
        f"    return {wait}_hatchery_call(_hatchery_name, {{{arguments}}})\n"
    )
    exec(compile(source, "<hatchery/host>", "exec"), scope)
    made = scope[name]
    made.__qualname__ = qualified
    made.__module__ = "hatchery.host"
    made.__doc__ = function["doc"] or None
    if function["returns"]:
        hints["return"] = Hint(function["returns"])
    made.__annotations__ = hints
    return made


class HostModule(types.ModuleType):
    """Functions that the host lends to this program; `dir(host)` lists them.

    Each call blocks until it has a result. `await host.NAME.aio(...)` lets other tasks run
    meanwhile.
    """

    def __getattr__(self, name):
        if name == "__all__":
            return sorted(bridge.table())
        if name.startswith("__"):
            raise AttributeError(f"module 'hatchery.host' has no attribute {name!r}")
        function = bridge.function(name)
        if function is None:
            there = ", ".join(sorted(bridge.table())) or "none"
            message = f"the host has no function {name!r}; available: {there}"
            raise AttributeError(message, name=name, obj=self)
        return function

    def __dir__(self):
        return sorted(bridge.table())


if not hasattr(builtins, "help"):
    # Some builds start without it.
    builtins.help = _sitebuiltins._Helper()
for _error in (HostFunctionError, HostLimitError):
    _error.__module__ = "hatchery"
    setattr(hatchery, _error.__name__, _error)

bridge = Bridge()
hatchery.host = sys.modules["hatchery.host"] = HostModule("hatchery.host", HostModule.__doc__)
hatchery.host.__package__ = "hatchery"
hatchery.host.__spec__ = ModuleSpec("hatchery.host", None)
