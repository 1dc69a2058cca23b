"""Serves a candidate: runs its code, then does what the judge asks, one request after the other.

All of this is in reach of the candidate, which may answer what it likes. It never learns what the
judge makes of its answers.
"""

import builtins
import sys
import types

# Objects that the judge may refer to.
_MOST_OBJECTS = 100_000


class _Ended(BaseException):
    """The judge has no more requests."""


class _Server:
    def __init__(self, exchange):
        self._exchange = exchange
        self._objects = []
        self._numbers = {}

    def load(self, code, name):
        """Runs the candidate's code as a module; returns the answer to the first request."""
        self.module = sys.modules[name] = types.ModuleType(name)
        try:
            exec(compile(code, f"<{name}>", "exec"), self.module.__dict__)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return self._raised(error)
        return ["ready"]

    def serve(self, loaded):
        """Answers requests until there are no more."""
        self._exchange(None)
        answer = loaded
        while True:
            request = self._exchange(answer)
            answer = self._answer(request)

    def _answer(self, request):
        try:
            return self._perform(*request)
        except (KeyboardInterrupt, _Ended):
            raise
        except BaseException as error:
            return self._raised(error)

    def _perform(self, operation, *rest):
        if operation == "call":
            return self._call(*rest)
        if operation == "name":
            return self._name(*rest)
        target, *rest = (self._unpack(item) for item in rest)
        return ["value", self._pack(_OPERATIONS[operation](target, *rest))]

    def _name(self, name):
        scope = vars(self.module)
        if name not in scope:
            return ["missing"]
        return ["value", self._pack(scope[name])]

    def _call(self, target, args, keywords, in_place):
        given = [self._unpack(item) for item in args]
        named = {name: self._unpack(item) for name, item in keywords}
        called = self._unpack(target)
        value = called(*given, **named)
        is_made = isinstance(called, type) and called.__module__ == self.module.__name__
        # What a class of the candidate makes stays here even if it is a list: it has methods.
        value = self._opaque(value) if is_made and _may_change(value) else self._pack(value)
        if not in_place:
            return ["value", value]
        return ["value", value, [self._pack(item) for item in given]]

    def _pack(self, value):
        is_known = id(value) in self._numbers and _may_change(value)
        return self._opaque(value) if is_known else pack(value, self._opaque)

    def _opaque(self, value):
        number = self._numbers.get(id(value))
        if number is None:
            if len(self._objects) >= _MOST_OBJECTS:
                raise MemoryError(f"tests hold at most {_MOST_OBJECTS} objects of a candidate")
            number = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        kind = "class" if isinstance(value, type) else "object"
        return {"ref": [number, kind, type(value).__name__[:100]]}

    def _unpack(self, packed):
        return unpack(packed, self._resolve)

    def _resolve(self, name, content):
        if name == "ref":
            return self._objects[content]
        if name == "function":
            return _Function(self, content)
        raise Malformed(name)

    def call_back(self, number, args, keywords):
        """Calls a function of the tests."""
        packed = [[name, self._pack(item)] for name, item in keywords.items()]
        request = self._exchange(["callback", number, [self._pack(item) for item in args], packed])
        while request[0] != "result":
            request = self._exchange(self._answer(request))
        _, is_success, content = request
        if is_success:
            return self._unpack(content)
        names, args = content
        raise _exception(names, args)

    def _raised(self, error):
        names = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
        try:
            args = [pack(item) for item in error.args]
            if len(to_text(args)) > 10_000:
                raise NotPlain("it is long")
        except Exception:
            args = [str(error)[:1000]]
        return ["raise", type(error).__name__[:100], names, args]


def _may_change(value):
    return isinstance(value, (list, dict, set))


def _exception(names, args):
    kind = getattr(builtins, names[0], None) if names else None
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = Exception
    return kind(*(unpack(item) for item in args))


class _Function:
    """A function of the tests, as an argument."""

    def __init__(self, server, number):
        self._server, self._number = server, number

    def __call__(self, *args, **keywords):
        return self._server.call_back(self._number, args, keywords)


def _next(target):
    try:
        return [next(target)]
    except StopIteration:
        return []


_OPERATIONS = {
    "get": getattr,
    "set": setattr,
    "delete": delattr,
    "length": len,
    "truth": bool,
    "item": lambda target, key: target[key],
    "set_item": lambda target, key, value: target.__setitem__(key, value),
    "delete_item": lambda target, key: target.__delitem__(key),
    "iterate": iter,
    "next": _next,
    "text": str,
    "repr": repr,
    "enter": lambda target: target.__enter__(),
    "leave": lambda target: target.__exit__(None, None, None),
}


def _exchange(answer):
    """Gives an answer to the judge, and returns its next request."""
    from hatchery import host

    text = host.hatchery_grade_next(answer=None if answer is None else to_text(answer))
    if text is None:
        raise _Ended
    return from_text(text)


def serve_candidate(code, name="solution"):
    """Serves until the judge has no more requests."""
    server = _Server(_exchange)
    try:
        server.serve(server.load(code, name))
    except _Ended:
        pass
