"""Stand-ins: objects here for objects of the other side, which may be called, iterated and so on.

Both sides of a grading run have this code. They exchange requests and answers, one at a time. The side
that waits for an answer may be asked meanwhile, and answers first. Each class of the other side gets one
here with the same name, documentation and special methods, so that `len`, `for`, `with`, `await` and
`isinstance` find what they would find natively.
"""

import abc
import contextlib
import sys
import threading
import types
import weakref

_MOST_OBJECTS = 100_000
# Special methods that a stand-in has if its object has them.
_ORDER = "lt le gt ge".split()
_BINARY = (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod divmod rdivmod pow rpow "
    "matmul rmatmul and rand or ror xor rxor lshift rlshift rshift rrshift "
    "iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift"
).split()
_UNARY = "neg pos abs invert int float complex index round trunc floor ceil".split()
_OTHERS = (
    "call len bool getitem setitem delitem iter next reversed contains str repr format enter exit await "
    "aiter anext aenter aexit get set delete set_name hash eq fspath bytes init"
).split()
_SPECIAL = [f"__{name}__" for name in _ORDER + _BINARY + _UNARY + _OTHERS]
# What a value of a derived class is, too: it is sent with the values of the first, and asked for by the
# tests for those of the others.
_CONSTANT = (str, int, float, complex, bytes, tuple, frozenset)
_PLAIN = (*_CONSTANT, list, dict, set, bytearray)
# Exceptions that would end a `map`, a `zip` or a loop of the tests as if nothing were left to check.
_ENDINGS = (StopIteration, StopAsyncIteration)
# Modules whose classes are a side's own.
_OWN = ("solution", "tests", "__main__")


# Types of `builtins` that have no name there.
_HIDDEN = {kind.__name__: kind for kind in vars(types).values() if isinstance(kind, type)}
_FUNCTION_TYPES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)


class Refused(BaseException):
    """What an object of the other side can't be used for, or an object that can't be given to it. No
    `except Exception` of tests catches it."""


# What exceptions keep beside their arguments and attributes.
_KEPT_APART = ((OSError, ("filename",)), (SyntaxError, ("msg", "filename", "lineno", "offset", "text")))


def _made_of(error):
    """Returns arguments and attributes of an exception of a library; `None` if it doesn't tell."""
    try:
        _, args, *rest = error.__reduce__()
        attributes = rest[0] if rest else None
        if isinstance(error, BaseExceptionGroup):
            args = (error.message, error.exceptions)  # and no list, which is filled later
    except Exception:
        return None
    attributes = dict(attributes) if type(attributes) is dict else {}
    for kind, names in _KEPT_APART:
        told = ((name, getattr(error, name, None)) for name in names if isinstance(error, kind))
        attributes |= {name: value for name, value in told if value is not None}
    others = (BaseException, types.TracebackType)  # they may lead back to this one
    told = ((str(name), value) for name, value in attributes.items() if not isinstance(value, others))
    return (tuple(args), tuple(told))


def _error_with(kind, args):
    for base in kind.__mro__:
        with contextlib.suppress(TypeError):  # a class of C may be made by one of those above it only
            made = base.__new__(kind)
            break
    made.args = args
    return made


class Peer:
    """One side of the exchange."""

    # What ends the whole exchange when it is raised.
    fatal = (KeyboardInterrupt,)

    def __init__(self, exchange, first):
        # Sends a text, and returns the other side's next one.
        self._exchange = exchange
        # Held by the thread whose message was sent last, until its answer has come. Without it, threads
        # may ask while another one does what the other side has asked for.
        self._turn = threading.Condition()
        # How many requests of the other side are being done, the newest of which is answered first.
        self._depth = 0
        self._shared = Shared(first)
        self._objects, self._numbers, self._count = {}, {}, 0
        self._stand_ins, self._kinds = weakref.WeakValueDictionary(), {}
        # Functions and coroutines of this side that stand for those of the other one.
        self._theirs = weakref.WeakKeyDictionary()
        self._described, self._new, self._released = set(), {}, set()
        # Files and the like, if both sides share them.
        self.surroundings = None

    def ask(self, *request):
        """Has the other side do something; returns what it returns, or raises what it raises."""
        with self._turn:
            text = self.written("ask", *request)
            while True:
                head = self.read(self._exchange(text))
                if head[0] == "value" and len(head) == 2:
                    return head[1]
                if head[0] == "raise" and len(head) == 2 and isinstance(head[1], BaseException):
                    raise head[1]
                if head[0] == "refuse" and len(head) == 2 and type(head[1]) is str:
                    self.refuse(head[1])
                text = self.answer_to(head)

    def answer_to(self, head):
        """Returns the answer to a request, as text. Other threads may ask meanwhile."""
        if head[0] != "ask" or len(head) < 2 or type(head[1]) is not str:
            raise Malformed("the candidate sent an invalid answer")
        try:
            self._depth = depth = self._depth + 1
            self._turn.release()
            try:
                result = self.perform(*head[1:])
            finally:
                self._turn.acquire()
                self._turn.wait_for(lambda: self._depth == depth)
                self._depth -= 1
                self._turn.notify_all()
            return self.written("value", result)
        except self.fatal:
            raise
        except Refused as error:
            return self.written("refuse", str(error))
        except BaseException as error:
            return self.written("raise", error)

    def refuse(self, reason):
        raise Refused(reason)

    def waits(self):
        """Is called while a coroutine of the other side waits for something."""

    def written(self, *head):
        """Returns a message as text."""
        news = None if self.surroundings is None else self.surroundings.told()
        released, self._released = self._released, set()
        self._new = {}
        return Writer(self._shared, self._node).message([*head, news, tuple(released)])

    def read(self, text):
        """Returns the head of a message."""
        values = Reader(self._shared, self._resolve, text).values()
        if len(values) < 3 or type(values[-1]) is not tuple:
            raise Malformed("the candidate sent an invalid message")
        *head, news, released = values
        for number in released:
            self._numbers.pop(id(self._objects.pop(number, None)), None)
        if self.surroundings is not None and news:
            self.surroundings.take(news)
        return head

    # Objects of this side.

    def _node(self, value):
        theirs = self.number_of(value)
        return self.given(value) if theirs is None else ("yours", theirs)

    def given(self, value):
        """Returns the parts of the node of an object of this side."""
        if isinstance(value, type):
            return ("class", self.description(value))
        if isinstance(value, BaseException):
            kind = self.description(type(value))
            made_of = None if type(value).__module__ in _OWN else _made_of(value)
            links = (value.__cause__, value.__context__)
            links = tuple(None if link is value or isinstance(link, _ENDINGS) else link for link in links)
            links += (value.__suppress_context__,)
            return ("exception", self.number(value), kind, tuple(value.args), links, made_of)
        if type(value) is types.CoroutineType:
            return ("coroutine", self.number(value), value.__name__)
        base = _plain_base(type(value))
        plain = _as_plain(base, value) if base in _CONSTANT else None
        return ("object", self.number(value), self.description(type(value)), plain)

    def number(self, value):
        """Returns the number of an object of this side."""
        number = self._numbers.get(id(value))
        if number is None:
            if len(self._objects) >= _MOST_OBJECTS:
                self.refuse(f"tests and a candidate hold at most {_MOST_OBJECTS} objects of each other")
            number = self._count = self._count + 1
            self._objects[number] = value
            self._numbers[id(value)] = number
        return number

    def _object(self, number):
        if type(number) is not int or number not in self._objects:
            raise Malformed("the candidate sent a reference that it never got")
        return self._objects[number]

    def number_of(self, value):
        """Returns the number of the object that a value here stands for; `None` for other values."""
        kind = type(value)
        if kind is Theirs:
            return value.number
        if kind is StandInClass:
            return value._hatchery_class if value._hatchery_peer is self else None
        if type(kind) is StandInClass:
            return value._hatchery_number if kind._hatchery_peer is self else None
        if kind is types.CoroutineType or kind is types.FunctionType:
            return self._theirs.get(value)
        return None

    def description(self, kind):
        """Returns what the other side gets of a class: only its number, if it knows the class."""
        if kind in self._new:
            return self._new[kind]  # the same one in a message, in which nothing is first
        number = self.number(kind)
        if kind in self._described:
            return (number,)
        told = tuple(
            (base.__module__, base.__qualname__) if _is_elementary(base) else self.description(base)
            for base in kind.__bases__
            if base is not object
        )
        special = tuple(name for name in _SPECIAL if _is_defined(kind, name))
        if _has_own_check(kind):
            special += ("__instancecheck__",)
        base = _plain_base(kind)
        is_plain = base in _CONSTANT or base is not None and kind.__eq__ is base.__eq__
        name = base.__name__ if is_plain else None
        doc = kind.__doc__ if type(kind.__doc__) is str else None
        self._described.add(kind)
        self._new[kind] = (
            number,
            kind.__name__,
            kind.__qualname__,
            kind.__module__,
            told,
            special,
            doc,
            name,
        )
        return self._new[kind]

    # Objects of the other side.

    def _resolve(self, name, parts):
        if name == "yours":
            return self._object(*parts)
        if name == "class":
            return self._class(*parts)
        if name == "exception":
            number, kind, args, links, made_of = parts
            made = self._stand_in(number, self._class(kind), args, made_of=made_of)
            made.__cause__, made.__context__, made.__suppress_context__ = links
            return made
        if name == "coroutine":
            number, told = parts
            made = _awaited(self, number)
            made.__name__ = made.__qualname__ = told
            self._theirs[made] = number
            return made
        if name == "object":
            number, kind, plain = parts
            return self._stand_in(number, self._class(kind), plain=plain)
        return self.resolve(name, parts)

    def resolve(self, name, parts):
        raise Malformed(f"the candidate sent an invalid value: `{name[:40]}`")

    def _stand_in(self, number, kind, args=(), plain=None, made_of=None):
        made = self._stand_ins.get(number)
        if made is not None:
            return made
        if type(number) is not int:
            raise Malformed("the candidate sent an invalid value")
        if issubclass(kind, BaseException):
            made = self.exception(kind, args, made_of)
            if type(kind) is not StandInClass:
                return made
            made.__dict__["_hatchery_number"] = number
        elif issubclass(kind, _CONSTANT):
            made = _constant(kind, plain)
            made.__dict__["_hatchery_number"] = number
            return made
        else:
            made = object.__new__(kind)
            object.__setattr__(made, "_hatchery_number", number)
        self._stand_ins[number] = made
        self._released.discard(number)
        return made

    def exception(self, kind, args, made_of):
        """Returns an exception that the other side has raised or given.

        Args:
            args: Its `args`.
            made_of: What it is made of, if it is one of a library: arguments of its class, and attributes.
        """
        if type(kind) is StandInClass or made_of is None:
            return _error_with(kind, args)
        try:
            made = kind(*made_of[0])
        except Exception:
            made = _error_with(kind, args)  # it needs other arguments
        for name, value in made_of[1]:
            if name == "__notes__" or not name.startswith("__"):
                with contextlib.suppress(AttributeError):
                    setattr(made, name, value)
        return made

    def local_class(self, module, qualname):
        """Returns a class of this side that is the same as one of the other side, if there is one."""
        found = resolved(module, qualname)
        found = _HIDDEN.get(qualname) if module == "builtins" and found is None else found
        return found if isinstance(found, type) and found is not type else None

    def _class(self, description):
        number, *rest = description
        if number not in self._kinds:
            self._kinds[number] = self._made_class(number, *rest)
        return self._kinds[number]

    def _made_class(self, number, name, qualname, module, bases, special, doc, plain):
        local = self.local_class(module, qualname)
        if local is not None and issubclass(local, BaseException):
            return local
        found, registered = [], []
        for base in bases:
            known = self._class(base) if type(base[0]) is int else self.local_class(*base)
            if type(known) is StandInClass or known is not None and issubclass(known, BaseException):
                found.append(known)
            elif type(known) is abc.ABCMeta:
                registered.append(known)
        is_error = any(issubclass(base, BaseException) for base in found)
        constant = next((base for base in _CONSTANT if base.__name__ == plain), None)
        if constant is not None:
            found = [StandInConstant, constant]
        elif not any(type(base) is StandInClass for base in found):
            found.insert(0, StandInError if is_error else StandIn)
        space = {name: _FORWARDERS[name] for name in special if name in _FORWARDERS}
        if "__eq__" in space and "__hash__" not in space:
            space["__hash__"] = None
        is_function = local in _FUNCTION_TYPES
        if is_function and "__get__" in space:
            space["__get__"] = _bound_method
        told = _Told if is_function else lambda name, value: value
        space |= {
            "__module__": told("__module__", module),
            "__qualname__": qualname,
            "__doc__": told("__doc__", doc),
            "_hatchery_peer": self,
            "_hatchery_names": (module, qualname),
            "_hatchery_class": number,
            "_hatchery_plain": plain,
            "_hatchery_checks": "__instancecheck__" in special,
        }
        if local is types.GeneratorType:
            space["__copy__"] = _Uncopied()
        if not is_error and constant is None:
            space["__slots__"] = ()
        try:
            made = type.__new__(StandInClass, name, tuple(found), space)
        except TypeError:  # its bases don't go together here
            found = [StandInError, Exception] if is_error else [StandIn]
            space.setdefault("__slots__", ())
            made = type.__new__(StandInClass, name, tuple(found), space)
        for known in registered:
            known.register(made)
        return made

    # What is done to stand-ins. The judge allows less.

    def use(self, name, target, *args):
        """Calls a special method of an object of the other side."""
        return self.ask("special", target, name, *args)

    def get(self, target, name):
        return self.ask("get", target, name)

    def set(self, target, name, value):
        self.ask("set", target, name, value)

    def call(self, target, args, keywords):
        return self.ask("call", target, args, keywords)

    # What the other side asks for.

    def perform(self, operation, *rest):
        return _OPERATIONS[operation](*rest)


def pickled(value):
    """Returns an object as bytes, in which modules are their names."""
    import copyreg
    import importlib
    import io
    import pickle

    file = io.BytesIO()
    pickler = pickle.Pickler(file)
    by_name = {types.ModuleType: lambda module: (importlib.import_module, (module.__name__,))}
    pickler.dispatch_table = {**copyreg.dispatch_table, **by_name}
    pickler.dump(value)
    return file.getvalue()


def resolved(module, qualname):
    """Returns what a loaded module of a library has under a name; `None` if it has nothing."""
    found = None if module in _OWN else sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def _is_elementary(kind):
    return kind.__module__ in ("builtins", "abc", "typing", "collections.abc")


def _is_defined(kind, name):
    """Returns whether a class has a special method that its values don't have here anyway."""
    for base in kind.__mro__:
        if name in vars(base):
            return base not in (object, BaseException, Exception, type, *_CONSTANT)
    return False


# The classes of which a class is made.
_order_of = vars(type)["__mro__"].__get__


_bases_of = vars(type)["__bases__"].__get__


def _without_own(classes):
    """Returns classes without those that only stand-ins have."""
    return tuple(kind for kind in classes if kind not in (_Attributes, StandIn, StandInError, StandInConstant))


def _has_own_check(kind):
    """Returns whether a class says by itself what its instances are."""
    if type(kind) is abc.ABCMeta:
        own = (base for base in kind.__mro__[:-1] if not _is_elementary(base))
        return any("__subclasshook__" in vars(base) for base in own) or bool(abc._get_dump(kind)[0])
    return _is_defined(type(kind), "__instancecheck__")


class StandInClass(type):
    """A class of the other side."""

    _hatchery_checks = False

    __annotations__ = property(lambda cls: cls._hatchery_peer.get(cls, "__annotations__"))
    __mro__ = property(lambda cls: _without_own(_order_of(cls)))
    __bases__ = property(lambda cls: _without_own(_bases_of(cls)) or (object,))
    __base__ = property(lambda cls: cls.__bases__[0])
    __subclasses__ = property(lambda cls: cls._hatchery_peer.get(cls, "__subclasses__"))

    def mro(cls):
        # Python asks for it while it makes the class.
        return type.mro(cls) if _order_of(cls) is None else list(cls.__mro__)

    def __new__(cls, name, bases, space):
        for base in bases:
            if type(base) is StandInClass and "_hatchery_peer" in vars(base):
                base._hatchery_peer.refuse(
                    f"`{name}`, a class of the tests, derives from the candidate's `{base.__name__}`"
                )
        return type.__new__(cls, name, bases, space)

    def __call__(cls, *args, **keywords):
        return cls._hatchery_peer.call(cls, args, keywords)

    def __getattr__(cls, name):
        if name == "__signature__":
            return _signature(cls._hatchery_peer, cls)
        return cls._hatchery_peer.get(cls, name)

    def __setattr__(cls, name, value):
        cls._hatchery_peer.set(cls, name, value)

    def __delattr__(cls, name):
        cls._hatchery_peer.ask("delete", cls, name)

    def __instancecheck__(cls, value):
        is_here = type.__instancecheck__(cls, value)
        return is_here or cls._hatchery_checks and cls._hatchery_peer.use("__instancecheck__", cls, value)

    def __iter__(cls):
        return iter(cls._hatchery_peer.ask("iterate", cls))

    def __bool__(cls):
        return True

    def __len__(cls):
        return cls._hatchery_peer.ask("length", cls)

    def __getitem__(cls, key):
        return cls._hatchery_peer.ask("item", cls, key)

    def __contains__(cls, item):
        return any(item is one or item == one for one in cls)

    def __repr__(cls):
        return cls._hatchery_peer.ask("repr", cls)

    def __dir__(cls):
        return cls._hatchery_peer.ask("dir", cls)


def _type_of(value):
    """`type` for tests, to which an object of the candidate may have the type of a library."""
    kind = type(value)
    return kind._hatchery_peer.type_of(kind) if type(kind) is StandInClass else kind


class _Told:
    """An attribute that functions have by themselves, not by their class."""

    def __init__(self, name, of_class):
        self._name, self._of_class = name, of_class

    def __get__(self, instance, owner):
        return self._of_class if instance is None else owner._hatchery_peer.get(instance, self._name)


class _Attributes:
    """Attributes of a stand-in: the object's own."""

    __slots__ = ()

    def __getattr__(self, name):
        peer = type(self)._hatchery_peer
        if name == "__signature__":
            return _signature(peer, self)
        if name in ("send", "throw", "close") and "__next__" in vars(type(self)):
            return lambda *args: _resumed(peer.ask("resume", self, name, args))
        return peer.get(self, name)

    @property
    def __class__(self):
        kind = type(self)
        return kind._hatchery_peer.local_class(*kind._hatchery_names) or kind

    def __copy__(self):
        return type(self)._hatchery_peer.ask("copy", self)

    def __deepcopy__(self, memo):
        return type(self)._hatchery_peer.ask("deepcopy", self)


class StandIn(_Attributes, metaclass=StandInClass):
    """An object of the other side."""

    __slots__ = ("_hatchery_number", "__weakref__")

    def __setattr__(self, name, value):
        type(self)._hatchery_peer.set(self, name, value)

    def __delattr__(self, name):
        type(self)._hatchery_peer.ask("delete", self, name)

    def __reduce_ex__(self, protocol):
        type(self)._hatchery_peer.refuse("the tests pickle an object of the candidate")

    def __dir__(self):
        return type(self)._hatchery_peer.ask("dir", self)

    def __del__(self):
        type(self)._hatchery_peer._released.add(self._hatchery_number)


class StandInError(_Attributes, metaclass=StandInClass):
    """An exception of a class of the other side."""


class StandInConstant(_Attributes, metaclass=StandInClass):
    """A text, a number or a tuple of a class of the other side."""


def _plain_base(kind):
    return next((base for base in _order_of(kind) if base in _PLAIN), None)


def _as_plain(base, value):
    """Returns a value as one of an elementary type."""
    if base is str:
        return str.__str__(value)
    if base in (int, float, complex, bytes):
        return getattr(base, {int: "__int__", float: "__float__"}.get(base, "__new__"))(
            *([value] if base in (int, float) else [base, value])
        )
    return base(base.__iter__(value))


def _constant(kind, plain):
    base = next((base for base in _CONSTANT if base.__name__ == kind._hatchery_plain), None)
    if base is None or type(plain) is not base:
        raise Malformed("the candidate sent an invalid value")
    return base.__new__(kind, plain)


def _forwarder(name):
    def forward(self, *args):
        return type(self)._hatchery_peer.use(name, self, *args)

    forward.__name__ = forward.__qualname__ = name
    return forward


_FORWARDERS = {name: _forwarder(name) for name in _SPECIAL}


def _override(function):
    _FORWARDERS[function.__name__] = function


class _Uncopied:
    """`__copy__` of a generator, which has none."""

    def __get__(self, instance, owner):
        raise AttributeError("__copy__")


class _Init:
    """`__init__` of a class, which tests may call."""

    def __get__(self, instance, owner):
        return owner._hatchery_peer.get(owner if instance is None else instance, "__init__")


_FORWARDERS["__init__"] = _Init()


@_override
def __call__(self, *args, **keywords):
    return type(self)._hatchery_peer.call(self, args, keywords)


def _bound_method(self, instance, owner=None):
    return self if instance is None else types.MethodType(self, instance)


@_override
def __next__(self):
    return _resumed(type(self)._hatchery_peer.ask("resume", self, "__next__", ()))


def _resumed(answer):
    goes_on, value = answer
    if goes_on is not True:
        raise StopIteration(value) if value is not None else StopIteration
    return value


@_override
def __anext__(self):
    async def following():
        goes_on, value = await type(self)._hatchery_peer.ask("anext", self)
        if goes_on is not True:
            raise StopAsyncIteration
        return value

    return following()


@_override
def __await__(self):
    return _polled(type(self)._hatchery_peer, self)


class _Awaited:
    def __init__(self, peer, number):
        self._peer, self._number = peer, number

    def __await__(self):
        return _polled(self._peer, Theirs(self._number))


class Theirs:
    """An object of the other side that has no stand-in, by its number."""

    def __init__(self, number):
        self.number = number


async def _awaited(peer, number):
    return await _Awaited(peer, number)


def _polled(peer, target):
    """Waits for what the other side computes, while other tasks go on here."""
    is_done = False
    try:
        while True:
            is_done, value = peer.ask("await", target)
            if is_done:
                return value
            import asyncio

            peer.waits()
            yield from asyncio.sleep(0.001).__await__()
    finally:
        if not is_done:
            peer.ask("cancel", target)


def _signature(peer, target):
    """Returns the signature of a function or a class of the other side."""
    import inspect

    try:
        parameters, returned = peer.ask("signature", target)
        empty = inspect.Parameter.empty
        made = [
            inspect.Parameter(
                name,
                getattr(inspect.Parameter, kind),
                default=default[0] if default else empty,
                annotation=annotation[0] if annotation else empty,
            )
            for name, kind, default, annotation in parameters
        ]
        returned = returned[0] if returned else inspect.Signature.empty
        return inspect.Signature(made, return_annotation=returned)
    except (TypeError, ValueError):
        raise AttributeError("__signature__") from None


def _told_signature(target):
    import inspect

    signature = inspect.signature(target)
    empty = inspect.Parameter.empty

    def told(value):
        return () if value is empty else (value,)

    parameters = tuple(
        (it.name, it.kind.name, told(it.default), told(it.annotation)) for it in signature.parameters.values()
    )
    return parameters, told(signature.return_annotation)


def _resume(target, name, args):
    """Goes on with an iterator; returns whether there is an item, and the item."""
    try:
        value = next(target) if name == "__next__" else getattr(target, name)(*args)
        return (True, value)
    except StopIteration as stop:
        return (False, stop.value)


def _special(target, name, *args):
    for base in type(target).__mro__:
        if name in vars(base):
            found = vars(base)[name]
            bind = getattr(type(found), "__get__", None)
            return (found if bind is None else bind(found, target, type(target)))(*args)
    raise AttributeError(name)


def _plain(target):
    base = _plain_base(type(target))
    return dict(dict.items(target)) if base is dict else _as_plain(base, target)


def _copy(target):
    import copy

    return copy.copy(target)


def _deepcopy(target):
    import copy

    return copy.deepcopy(target)


_OPERATIONS = {
    "call": lambda target, args, keywords: target(*args, **keywords),
    "get": getattr,
    "set": setattr,
    "delete": delattr,
    "special": _special,
    "resume": _resume,
    "iterate": iter,
    "length": len,
    "item": lambda target, key: target[key],
    "repr": repr,
    "dir": dir,
    "plain": _plain,
    "copy": _copy,
    "deepcopy": _deepcopy,
    "signature": _told_signature,
}
