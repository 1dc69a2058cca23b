"""The module `pytest` as tests see it: its marks, fixtures and comparisons. `collecting.py` heeds them."""

import collections
import contextlib
import decimal
import functools
import io
import re
import sys
import types


class Skip(BaseException):
    """A test that skips itself."""


class ExpectedFailure(BaseException):
    """A test that says that it fails."""


class Fail(BaseException):
    """A test that fails by `pytest.fail`. As in pytest, no `except Exception` of tests catches it."""


class Unsupported(BaseException):
    """Something that tests use and that can't be graded. The candidate isn't to blame."""


class Limited(Unsupported):
    """Something that the sandbox lacks."""


class Fixture:
    """A function that `pytest.fixture` decorates."""

    def __init__(self, function, scope, params, autouse, name, ids):
        self.function, self.scope, self.autouse = function, scope, autouse
        self.name = name or function.__name__
        self.params = None if params is None else named_parameters([self.name], params, ids)
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __call__(self, *_, **__):
        raise Fail(f"the fixture `{self.name}` was called as a function")


def _fixture(function=None, *, scope="function", params=None, autouse=False, ids=None, name=None):
    if callable(scope):
        raise Unsupported("the tests have a fixture whose `scope` is a function")

    def decorate(function):
        if isinstance(function, (classmethod, staticmethod)):
            function = function.__func__
        return Fixture(function, scope, params, autouse, name, ids)

    return decorate if function is None else decorate(function)


class Parameter:
    """A set of arguments of `parametrize`."""

    def __init__(self, values, marks, name):
        self.values, self.marks, self.name = values, marks, name


def _param(*values, marks=(), id=None):
    marks = list(marks) if isinstance(marks, (list, tuple)) else [marks]
    return Parameter(values, [mark() if isinstance(mark, MarkName) else mark for mark in marks], id)


def named_parameters(names, sets, ids):
    """Returns sets of arguments, each with the text that pytest adds to a test's name."""
    made = []
    ids = ids if ids is None or callable(ids) else list(ids)
    for place, each in enumerate(sets):
        if not isinstance(each, Parameter):
            each = Parameter((each,) if len(names) == 1 else tuple(each), [], None)
        given = ids[place] if isinstance(ids, list) and place < len(ids) else None
        told = ((ids(value) if callable(ids) else None, value, name) for value, name in zip(each.values, names))
        name = each.name or given or "-".join(_told_value(*one, place) for one in told)
        made.append(Parameter(each.values, each.marks, str(name)))
    counts = collections.Counter(each.name for each in made)
    seen = collections.Counter()
    for each in made:
        if counts[each.name] > 1:
            seen[each.name] += 1
            each.name += f"{'_' * each.name[-1:].isdigit()}{seen[each.name] - 1}"
    return made


def _told_value(given, value, name, place):
    if given is not None:
        return str(given)
    if isinstance(value, str):
        return value.encode("unicode_escape").decode()
    if value is None or isinstance(value, (bool, int, float, complex)):
        return str(value)
    has_name = isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType))
    return value.__name__ if has_name else f"{name}{place}"


class Mark:
    """A mark with its arguments."""

    def __init__(self, name, args, keywords):
        self.name, self.args, self.kwargs = name, args, keywords

    def __call__(self, marked):
        own = vars(marked).get("pytestmark", [])
        marked.pytestmark = [*(own if isinstance(own, list) else [own]), self]
        return marked


class MarkName:
    """`pytest.mark.NAME`: a mark without arguments, or what makes one that has some."""

    def __init__(self, name):
        self._name = name

    def __call__(self, *args, **keywords):
        is_marked = len(args) == 1 and not keywords and isinstance(args[0], (types.FunctionType, type))
        mark = Mark(self._name, () if is_marked else args, keywords)
        return mark(args[0]) if is_marked else mark


class _Marks:
    def __getattr__(self, name):
        return MarkName(name)


class _Caught:
    """What `pytest.raises` caught."""

    def __init__(self):
        self.value = None

    @property
    def type(self):
        return type(self.value)

    @property
    def tb(self):
        return self.value.__traceback__

    typename = property(lambda self: self.type.__name__)

    def match(self, pattern):
        if not re.search(pattern, str(self.value)):
            raise Fail(f"{str(self.value)!r} doesn't match {pattern!r}")
        return True

    def exconly(self, tryshort=False):
        return f"{self.typename}: {self.value}"


class _Raises:
    def __init__(self, expected, match=None, check=None):
        self._expected, self._match, self._check = expected, match, check

    def __enter__(self):
        self._caught = _Caught()
        return self._caught

    def __exit__(self, kind, error, _):
        if error is None:
            raise Fail(f"it didn't raise {_names(self._expected)}")
        if not isinstance(error, self._expected):
            return False
        self._caught.value = error
        if self._match is not None:
            self._caught.match(self._match)
        if self._check is not None and not self._check(error):
            raise Fail("`check` of `pytest.raises` refuses the exception")
        return True


def _names(kinds):
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    return " or ".join(getattr(kind, "__name__", "an exception") for kind in kinds)


def _raises(expected_exception=Exception, *args, match=None, check=None, **keywords):
    context = _Raises(expected_exception, match, check)
    if not args:
        return context
    with context as caught:
        args[0](*args[1:], **keywords)
    return caught


class _Warns:
    """`pytest.warns`."""

    def __init__(self, expected, match):
        self._expected, self._match = expected, match

    def __enter__(self):
        import warnings

        self._caught = warnings.catch_warnings(record=True)
        self._seen = self._caught.__enter__()
        warnings.simplefilter("always")
        return self._seen

    def __exit__(self, kind, error, _):
        self._caught.__exit__(kind, error, _)
        if error is not None:
            return False
        fitting = [warning for warning in self._seen if issubclass(warning.category, self._expected)]
        if self._match is not None:
            fitting = [warning for warning in fitting if re.search(self._match, str(warning.message))]
        if not fitting:
            raise Fail(f"it didn't warn of {_names(self._expected)}")
        return False


def _warns(expected_warning=Warning, *args, match=None, **keywords):
    context = _Warns(expected_warning, match)
    if not args:
        return context
    with context:
        return args[0](*args[1:], **keywords)


class Approx:
    """A value with a tolerance."""

    __array_ufunc__ = None
    __array_priority__ = 100
    __hash__ = None

    def __init__(self, expected, rel=None, abs=None, nan_ok=False):
        self.expected, self.rel, self.abs, self.nan_ok = expected, rel, abs, nan_ok

    def __repr__(self):
        return f"approx({self.expected!r})"

    def __eq__(self, actual):
        return self._is_near(actual, self.expected)

    def _is_near(self, actual, expected):
        if hasattr(expected, "dtype") and hasattr(expected, "tolist"):
            shape = getattr(actual, "shape", None)
            if shape is not None and expected.shape not in ((), shape):
                return False
            expected = expected.tolist()
        if hasattr(actual, "dtype") and hasattr(actual, "tolist"):
            actual = actual.tolist()
        if isinstance(expected, dict):
            return (
                isinstance(actual, dict)
                and actual.keys() == expected.keys()
                and all(self._is_near(actual[key], value) for key, value in expected.items())
            )
        if isinstance(expected, (list, tuple)):
            return (
                isinstance(actual, (list, tuple))
                and len(actual) == len(expected)
                and all(map(self._is_near, actual, expected))
            )
        return self._is_near_number(actual, expected)

    def _is_near_number(self, actual, expected):
        numbers = (int, float, complex, decimal.Decimal)
        if isinstance(expected, bool) or not isinstance(expected, numbers) or isinstance(actual, bool):
            return actual == expected
        if not isinstance(actual, numbers) and not hasattr(actual, "numerator"):
            return actual == expected
        if actual == expected:
            return True
        if expected != expected:
            return self.nan_ok and actual != actual
        if abs(expected) == float("inf"):
            return False
        number = decimal.Decimal if isinstance(expected, decimal.Decimal) else float
        absolute = number(1e-12 if self.abs is None else self.abs)
        relative = number(1e-6 if self.rel is None else self.rel) * abs(expected)
        if self.rel is None and self.abs is not None:
            return abs(expected - actual) <= absolute
        return abs(expected - actual) <= max(relative, absolute)


class MonkeyPatch:
    """`monkeypatch`: changes that are undone."""

    # Tells the candidate of an attribute, if it has another interpreter.
    patch = None

    def __init__(self):
        self._undo = []

    @classmethod
    @contextlib.contextmanager
    def context(cls):
        patch = cls()
        try:
            yield patch
        finally:
            patch.undo()

    def _tell(self, *change):
        if self.patch:
            self.patch(*change)

    def undo(self):
        while self._undo:
            self._undo.pop()()

    def setattr(self, target, name, *value, raising=True):
        from unittest import mock

        target, name, value = _target(target, (name, *value))
        patch = mock.patch.object(target, name, *value, create=not raising)
        patch.start()
        self._undo.append(patch.stop)

    def delattr(self, target, *name, raising=True):
        target, name, _ = _target(target, (*name, None) if name else (None,))
        if not hasattr(target, name) and not raising:
            return
        old = vars(target)[name]
        delattr(target, name)
        self._tell("delete", target, name)

        def restore():
            setattr(target, name, old)
            self._tell("undo", target, name)

        self._undo.append(restore)

    def setitem(self, mapping, key, value):
        self._keep_item(mapping, key)
        mapping[key] = value

    def delitem(self, mapping, key, raising=True):
        if key in mapping or raising:
            self._keep_item(mapping, key)
            del mapping[key]

    def _keep_item(self, mapping, key):
        if key in mapping:
            self._undo.append(lambda old=mapping[key]: mapping.__setitem__(key, old))
        else:
            self._undo.append(lambda: mapping.pop(key, None))

    def setenv(self, name, value, prepend=None):
        import os

        if prepend and name in os.environ:
            value = f"{value}{prepend}{os.environ[name]}"
        self.setitem(os.environ, name, str(value))

    def delenv(self, name, raising=True):
        import os

        self.delitem(os.environ, name, raising)

    def syspath_prepend(self, path):
        self._undo.append(lambda old=sys.path[:]: sys.path.__setitem__(slice(None), old))
        sys.path.insert(0, str(path))

    def chdir(self, path):
        import os

        self._undo.append(lambda old=os.getcwd(): os.chdir(old))
        os.chdir(path)


def _target(target, rest):
    """Returns what `setattr` changes: an object and a name, or a dotted path to both."""
    if not isinstance(target, str):
        return target, rest[0], rest[1:]
    import pkgutil

    path, _, name = target.rpartition(".")
    return pkgutil.resolve_name(path), name, rest


class Captured:
    """`capsys`: what is printed."""

    Result = collections.namedtuple("CaptureResult", "out err")

    def __enter__(self):
        self._kept = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
        return self

    def __exit__(self, *_):
        sys.stdout, sys.stderr = self._kept

    def readouterr(self):
        texts = [stream.getvalue() for stream in (sys.stdout, sys.stderr)]
        for stream in (sys.stdout, sys.stderr):
            stream.seek(0)
            stream.truncate()
        return self.Result(*texts)

    @contextlib.contextmanager
    def disabled(self):
        streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self._kept
        try:
            yield
        finally:
            sys.stdout, sys.stderr = streams


class Logged:
    """`caplog`: what is logged."""

    def __init__(self):
        import logging

        self._logging = logging
        self.handler = logging.Handler(0)
        # What formats a record gives it its `message`.
        self.handler.emit = lambda record: self.records.append(record) or self.handler.format(record)
        self.handler.setFormatter(logging.Formatter("%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s"))
        self.records, self._levels = [], contextlib.ExitStack()

    def __enter__(self):
        self._logging.root.addHandler(self.handler)
        return self

    def __exit__(self, *_):
        self._levels.close()
        self._logging.root.removeHandler(self.handler)

    def set_level(self, level, logger=None):
        self._levels.enter_context(self.at_level(level, logger))

    @contextlib.contextmanager
    def at_level(self, level, logger=None):
        logger = self._logging.getLogger(logger)
        before = logger.level
        logger.setLevel(level)
        try:
            yield
        finally:
            logger.setLevel(before)

    def clear(self):
        self.records.clear()

    def get_records(self, when):
        return self.records if when == "call" else []

    messages = property(lambda self: [record.getMessage() for record in self.records])
    text = property(lambda self: "".join(self.handler.format(record) + "\n" for record in self.records))
    record_tuples = property(
        lambda self: [(record.name, record.levelno, record.getMessage()) for record in self.records]
    )


class Warned(list):
    """`recwarn`: what is warned of."""

    def __enter__(self):
        import warnings

        self._caught = warnings.catch_warnings(record=True)
        self._caught.__enter__()
        warnings._showwarnmsg_impl = self.append
        warnings.simplefilter("default")
        return self

    def __exit__(self, *error):
        self._caught.__exit__(*error)

    list = property(lambda self: self)

    def pop(self, category=Warning):
        found = [place for place, one in enumerate(self) if issubclass(one.category, category)]
        if not found:
            raise AssertionError(f"{category!r} not found in warning list")
        return super().pop(found[0])


def _ending(kind):
    def end(reason="", *_, msg=None, **__):
        raise kind(str(msg or reason))

    end.Exception = kind
    return end


def _importorskip(name, minversion=None, reason=None, **_):
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Skip(reason or str(error)) from None


class _Pytest(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise Unsupported(f"the tests use `pytest.{name}`, which grading doesn't have")


def pytest_module(patch=None):
    """Returns the module that tests import as `pytest`.

    Args:
        patch: Tells the candidate of an attribute that is deleted, if it has another interpreter.
    """
    module = _Pytest("pytest")
    vars(module).update(
        approx=Approx,
        deprecated_call=functools.partial(
            _warns, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)
        ),
        fail=_ending(Fail),
        fixture=_fixture,
        importorskip=_importorskip,
        main=lambda *_, **__: 0,  # the tests run anyway
        mark=_Marks(),
        MonkeyPatch=type("MonkeyPatch", (MonkeyPatch,), {"patch": patch and staticmethod(patch)}),
        param=_param,
        raises=_raises,
        skip=_ending(Skip),
        warns=_warns,
        xfail=_ending(ExpectedFailure),
        __version__="8.0.0",
        # Tests name these in annotations.
        CaptureFixture=Captured,
        LogCaptureFixture=Logged,
        WarningsRecorder=Warned,
        FixtureRequest=object,
        ExceptionInfo=_Caught,
    )
    return module
