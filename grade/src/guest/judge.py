"""The judge's side: stand-ins for what the candidate defines, in an interpreter where none of its code
runs.

A stand-in sends plain data to the candidate's interpreter and builds the answer of types from
`values.py` alone. What isn't plain stays there, and is an `Opaque` here: it can be called, iterated
and indexed, all of which gives plain data again. It can't be compared, ordered or calculated with,
since then the candidate would decide what its own answer is worth.
"""

import builtins
import functools
import types

_EXCEPTIONS = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception)
}
# Tests may expect that a function leaves the program.
_EXCEPTIONS["SystemExit"] = SystemExit
# These would end a `map`, a `zip` or a loop of the tests as if nothing were left to check.
del _EXCEPTIONS["StopIteration"], _EXCEPTIONS["StopAsyncIteration"]
_FUNCTIONS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.MethodWrapperType, functools.partial,
)
# What functions may change of their arguments.
_CHANGEABLE = (list, bytearray, dict, set)
# Attributes of functions and classes that tests read.
_READABLE = ("__name__", "__doc__", "__qualname__")


class CandidateGone(BaseException):
    """The candidate's interpreter has ended."""


class CandidateExit(BaseException):
    """The candidate raised what no test expects: neither an `Exception` nor a `SystemExit`."""


class NotForwarded(BaseException):
    """An operation on an object of the candidate that the tests can't have. No `except Exception` of
    tests catches it."""


class NotGiven(BaseException):
    """An object of the tests that the candidate can't be given. No `except Exception` of tests catches
    it."""


class Link:
    """The exchange with the candidate."""

    def __init__(self, exchange, in_place):
        self._exchange = exchange
        self.in_place = in_place
        self._functions = {}
        self._count = 0
        # Whether the candidate has sent anything but values, so that it can't pass.
        self.is_broken = False
        # Objects whose attributes tests may use: instances of classes that the task asks for.
        self._instances = set()

    def begin(self):
        """Waits until the candidate's code has run.

        Returns:
            `None`, or what it raised.
        """
        answer = self._sent(["begin"])
        if answer[0] == "ready":
            return None
        _, name, _, args = answer
        detail = ", ".join(str(item) for item in args) if type(args) is list else ""
        return f"{name}: {detail}" if detail else str(name)

    def name(self, name, may_be_class=True):
        """Returns what the candidate calls this, in a list; an empty one if there is no such name.

        Args:
            may_be_class: Whether the tests may use attributes of the instances, if it is a class.
        """
        answer = self._sent(["name", name])
        if answer[0] == "missing":
            return []
        return [self._value(answer, lambda kind: may_be_class and kind == "class")]

    def call(self, target, args, keywords):
        """Calls an object of the candidate."""
        before = self._functions
        self._functions = dict(before)
        try:
            packed = [self._pack(item) for item in args]
            named = [[name, self._pack(item)] for name, item in keywords.items()]
            request = ["call", _ref(target), packed, named, self.in_place]
            is_owner = target._hatchery_is_class or target._hatchery_number in self._instances
            answer = self._sent(request)
            value = self._value(answer, lambda kind: is_owner)
            if self.in_place and len(answer) == 3:
                for item, sent, received in zip(args, packed, answer[2]):
                    if sent != received and type(item) in _CHANGEABLE:
                        _replace(item, unpack(received, self._resolver(lambda kind: is_owner)))
            return value
        finally:
            self._functions = before

    def ask(self, operation, target, *rest):
        """Performs an operation on an object of the candidate."""
        request = [operation, _ref(target), *(self._pack(item) for item in rest)]
        is_instance = target._hatchery_number in self._instances
        return self._value(self._sent(request), lambda kind: is_instance)

    def allows_attributes(self, target):
        return target._hatchery_is_class or target._hatchery_number in self._instances

    def _sent(self, request):
        try:
            return self._exchanged(request)
        except Malformed:
            self.is_broken = True
            raise

    def _exchanged(self, request):
        answer = self._checked(from_text(self._exchange(to_text(request))))
        while answer[0] == "callback":
            answer = self._checked(from_text(self._exchange(to_text(self._called_back(*answer[1:])))))
        return answer

    def _checked(self, answer):
        if type(answer) is not list or not answer or answer[0] not in _FORMS:
            raise Malformed("the candidate sent what is no answer")
        if len(answer) not in _FORMS[answer[0]]:
            raise Malformed("the candidate sent what is no answer")
        return answer

    def _called_back(self, number, args, keywords):
        """Calls a function of the tests for the candidate."""
        if type(number) is not int or number not in self._functions:
            raise Malformed("the candidate called what it wasn't given")
        function = self._functions[number]
        given = unpack(args, self._resolver(lambda kind: False))
        named = {name: unpack(item, self._resolver(lambda kind: False)) for name, item in keywords}
        try:
            return ["result", True, self._pack(function(*given, **named))]
        except (Exception, NotForwarded, NotGiven) as error:
            names = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
            return ["result", False, [names, [str(error)]]]

    def _value(self, answer, is_owned):
        try:
            if answer[0] == "value":
                return unpack(answer[1], self._resolver(is_owned))
            if answer[0] != "raise":
                raise Malformed("the candidate sent what is no answer")
            error = _exception(answer)
        except Malformed:
            self.is_broken = True
            raise
        raise error

    def _resolver(self, is_owned):
        def resolve(name, content):
            if name != "ref" or type(content) is not list or len(content) != 3:
                raise Malformed("the candidate sent what is no value")
            number, kind, text = content
            if type(number) is not int or type(kind) is not str or type(text) is not str:
                raise Malformed("the candidate sent what is no value")
            if kind != "class" and is_owned(kind):
                self._instances.add(number)
            return Opaque(self, number, kind == "class" and is_owned(kind), text)

        return resolve

    def _pack(self, value):
        try:
            return pack(value, self._opaque)
        except NotPlain as error:
            raise NotGiven(str(error)) from None

    def _opaque(self, value):
        if type(value) is Opaque:
            return _ref(value)
        if isinstance(value, _FUNCTIONS):
            self._count += 1
            self._functions[self._count] = value
            return {"function": self._count}
        raise NotPlain(f"an object of the type `{type(value).__name__}` can't be given to a candidate")


_FORMS = {"ready": (1,), "missing": (1,), "value": (2, 3), "raise": (4,), "callback": (4,)}


def _ref(target):
    return {"ref": target._hatchery_number}


def _exception(answer):
    """Returns the exception that an answer tells of: of a built-in type."""
    _, name, names, args = answer
    if type(names) is not list or type(args) is not list:
        raise Malformed("the candidate sent what is no exception")
    args = [unpack(item) for item in args]
    for known in names:
        kind = _EXCEPTIONS.get(known) if type(known) is str else None
        if kind is not None:
            try:
                return kind(*args)
            except TypeError:
                continue  # it needs other arguments
    return CandidateExit(f"it raised {name}: {args}"[:1000])


def _replace(item, received):
    """Makes an argument what the candidate left of it."""
    if type(item) is not type(received):
        raise Malformed("the candidate changed the type of an argument")
    if type(item) in (list, bytearray):
        item[:] = received
    else:
        item.clear()
        item.update(received)


class Opaque:
    """An object of the candidate."""

    __slots__ = ("_hatchery_link", "_hatchery_number", "_hatchery_is_class", "_hatchery_kind")
    __hash__ = None

    def __init__(self, link, number, is_class, kind):
        put = object.__setattr__
        put(self, "_hatchery_link", link)
        put(self, "_hatchery_number", number)
        put(self, "_hatchery_is_class", is_class)
        put(self, "_hatchery_kind", kind)

    def __call__(self, *args, **keywords):
        return self._hatchery_link.call(self, args, keywords)

    def __getattr__(self, name):
        self._hatchery_check(name)
        return self._hatchery_link.ask("get", self, name)

    def __setattr__(self, name, value):
        self._hatchery_check(name)
        self._hatchery_link.ask("set", self, name, value)

    def __delattr__(self, name):
        self._hatchery_check(name)
        self._hatchery_link.ask("delete", self, name)

    def _hatchery_check(self, name):
        if name in _READABLE:
            return
        if name.startswith("__") or not self._hatchery_link.allows_attributes(self):
            kind = self._hatchery_kind
            raise AttributeError(f"an object of the candidate, of its type `{kind}`, gives no `{name}`")

    def __len__(self):
        return _length(self._hatchery_link.ask("length", self))

    def __bool__(self):
        answer = self._hatchery_link.ask("truth", self)
        if type(answer) is not bool:
            raise Malformed("the candidate sent what is no truth")
        return answer

    def __getitem__(self, key):
        return self._hatchery_link.ask("item", self, key)

    def __setitem__(self, key, value):
        self._hatchery_link.ask("set_item", self, key, value)

    def __delitem__(self, key):
        self._hatchery_link.ask("delete_item", self, key)

    def __iter__(self):
        return _items_of(self._hatchery_link, self._hatchery_link.ask("iterate", self))

    def __next__(self):
        return _next_of(self._hatchery_link, self)

    def __str__(self):
        return _text_of(self._hatchery_link.ask("text", self))

    def __repr__(self):
        return _text_of(self._hatchery_link.ask("repr", self))

    def __enter__(self):
        return self._hatchery_link.ask("enter", self)

    def __exit__(self, *_):
        self._hatchery_link.ask("leave", self)


def _refuse(operation):
    def refuse(self, *_):
        raise NotForwarded(
            f"an object of the candidate, of its type `{self._hatchery_kind}`, can't be used with "
            f"`{operation}`: the candidate would decide what its own answer is worth"
        )

    return refuse


for _name in (
    "eq ne lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod divmod "
    "rdivmod pow rpow matmul rmatmul and rand or ror xor rxor lshift rlshift rshift rrshift neg pos abs "
    "invert int float complex index round trunc floor ceil bytes format contains hash fspath reversed "
    "instancecheck subclasscheck iadd isub imul length_hint"
).split():
    if f"__{_name}__" not in ("__hash__", "__length_hint__"):
        setattr(Opaque, f"__{_name}__", _refuse(f"__{_name}__"))
del Opaque.__contains__  # `in` looks through the items, here


def _length(answer):
    if type(answer) is not int:
        raise Malformed("the candidate sent what is no length")
    return answer


def _text_of(answer):
    if type(answer) is not str:
        raise Malformed("the candidate sent what is no text")
    return answer


def _next_of(link, iterator):
    items = link.ask("next", iterator)
    if type(items) is not list or len(items) > 1:
        raise Malformed("the candidate sent what is no item")
    if not items:
        raise StopIteration
    return items[0]


def _items_of(link, iterator):
    if type(iterator) is not Opaque:
        yield from iterator
        return
    while True:
        items = link.ask("next", iterator)
        if type(items) is not list or len(items) > 1:
            raise Malformed("the candidate sent what is no item")
        if not items:
            return
        yield items[0]


def exchange_by_host(text):
    """Sends a request to the candidate's interpreter, and returns its answer."""
    from hatchery import HostFunctionError, host

    try:
        return host.hatchery_grade_ask(request=text)
    except HostFunctionError as error:
        if error.type == "CandidateGone":
            raise CandidateGone(str(error)) from None
        raise
