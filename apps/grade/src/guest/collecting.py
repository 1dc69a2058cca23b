"""Finds the tests of a text by the rules of pytest and unittest, and runs them."""

import contextlib
import functools
import inspect
import itertools
import pkgutil
import types

# Scopes of fixtures, those that last longest first.
_SCOPES = ("session", "package", "module", "class", "function")
# Fixtures that are there without a definition.
_BUILT_IN = ("capfd", "caplog", "capsys", "monkeypatch", "recwarn", "tmp_path", "tmp_path_factory")
_NO_SKIP = type("_NoSkip", (BaseException,), {})


class _Item:
    """A test of pytest's kind with one set of arguments."""

    def __init__(self, name, function, owners, marks):
        self.name, self.function, self.owners, self.marks = name, function, owners, marks
        # Arguments by name, and for fixtures with parameters one of these, with its place.
        self.arguments, self.chosen = {}, {}

    @property
    def owner(self):
        return self.owners[-1] if self.owners else None


class _Request:
    """The fixture `request`."""

    def __init__(self, collection, item, instance, stack, fixture):
        self._collection, self._item, self._stack = collection, item, stack
        self.instance, self.cls, self.function = instance, item.owner, item.function
        self.node = _Node(item)
        self.scope = fixture.scope if fixture else "function"
        self.fixturename = fixture.name if fixture else None
        if fixture and fixture.name in item.chosen:
            self.param = item.chosen[fixture.name][1]

    def __getattr__(self, name):
        if name == "param":
            raise AttributeError(name)
        raise Unsupported(f"the tests use `request.{name}`, which grading doesn't have")

    def addfinalizer(self, finalizer):
        self._stack.callback(finalizer)

    def getfixturevalue(self, name):
        return self._collection.value_of(name, self._item, self.instance)


class _Node:
    """`request.node`."""

    def __init__(self, item):
        self.name, self.cls, self.function, self._marks = item.name, item.owner, item.function, item.marks

    def get_closest_marker(self, name):
        return next((mark for mark in reversed(self._marks) if mark.name == name), None)

    def __getattr__(self, name):
        raise Unsupported(f"the tests use `request.node.{name}`, which grading doesn't have")


class Collection:
    """The tests of a text.

    Args:
        scope: The names of the text's module.
        made: Those of them that the text has defined.
        report: Where results go.
        fail: Notes a test's failure: called with its name and the exception.
        patch: Tells the candidate of an attribute that the tests change; `None` in its own interpreter.
    """

    def __init__(self, scope, made, report, fail, patch):
        self._scope, self._made, self._report = scope, made, report
        self._fail, self._patch = fail, patch
        self._items, self._cases = [], []
        self._fixtures = [value for value in made.values() if isinstance(value, Fixture)]
        self._values = {}
        self._module_stack, self._class_stack = contextlib.ExitStack(), contextlib.ExitStack()
        self._entered = ()

    # Finding them.

    def find(self, done=()):
        """Finds the tests, but for functions that are `done`.

        Raises:
            Unsupported: One of them can't be run.
        """
        for hook in ("pytest_generate_tests", "pytest_plugins", "pytest_collection_modifyitems"):
            if hook in self._made:
                raise Unsupported(f"the tests define `{hook}`, which grading ignores")
        marks = _marks_of(self._made)
        for name, value in self._made.items():
            if isinstance(value, type):
                self._find_in_class(name, (value,), marks)
            elif name.startswith("test") and _is_test(value):
                is_plain = not _marks_of(vars(value)) and not _wanted(value)
                if not (name in done and is_plain) and getattr(value, "__test__", True):
                    self._add(name, value, (), [*marks, *_marks_of(vars(value))])
        for name in self._case_names():
            self._report.declare(name)
        for item in self._items:
            self._report.declare(item.name)

    def __bool__(self):
        return bool(self._items or self._cases)

    def _find_in_class(self, name, owners, marks):
        kind = owners[-1]
        unittest = sys.modules.get("unittest")
        if unittest and issubclass(kind, unittest.TestCase):
            is_own = not kind.__module__.startswith("unittest") and kind not in self._cases
            if is_own and getattr(kind, "__test__", True):
                self._cases.append(kind)
            return
        if not name.rpartition(".")[2].startswith("Test") or not getattr(kind, "__test__", True):
            return
        members = {}
        for base in reversed(kind.__mro__):
            members.update(vars(base))
        methods = (types.FunctionType, staticmethod, classmethod)
        tests = [key for key in members if key.startswith("test") and isinstance(members[key], methods)]
        if tests and (kind.__init__ is not object.__init__ or kind.__new__ is not object.__new__):
            raise Unsupported(f"the test class `{name}` has a constructor, so pytest doesn't run its tests")
        marks = [*marks, *(mark for base in reversed(kind.__mro__) for mark in _marks_of(vars(base)))]
        for key in tests:
            function = members[key]
            own = _marks_of(vars(getattr(function, "__func__", function)))
            if getattr(function, "__test__", True):
                self._add(f"{name}.{key}", function, owners, [*marks, *own])
        for key, value in members.items():
            if isinstance(value, type) and key.startswith("Test"):
                self._find_in_class(f"{name}.{key}", (*owners, value), marks)

    def _add(self, name, function, owners, marks):
        """Adds a test with each of its sets of arguments."""
        plain = inspect.unwrap(getattr(function, "__func__", function))
        if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
            raise Unsupported(f"the test `{name}` has a `yield`, so a call doesn't run it")
        wanted = _wanted(function, is_method=bool(owners))
        sets = [list(self._parametrized(name, mark)) for mark in reversed(marks) if mark.name == "parametrize"]
        if not all(sets):
            self._report.skip(name, "it has an empty set of parameters")
            return
        given = {key for chosen in sets for _, arguments, _, _ in chosen for key in arguments}
        if given - set(wanted):
            unknown = sorted(given - set(wanted))[0]
            raise Unsupported(f"the test `{name}` is parametrized by `{unknown}`, which it doesn't take")
        indirect = {key for chosen in sets for _, _, choice, _ in chosen for key in choice}
        wanted = [key for key in wanted if key not in given]
        for fixture in self._closure(name, wanted, owners, marks):
            if fixture.params is not None and fixture.name not in indirect:
                sets.append([
                    (param.name, {}, {fixture.name: (place, param.values[0])}, param.marks)
                    for place, param in enumerate(fixture.params)
                ])
        if not all(sets):
            self._report.skip(name, "it has an empty set of parameters")
        for chosen in itertools.product(*sets):
            told = "-".join(each[0] for each in reversed(chosen))
            item = _Item(f"{name}[{told}]" if chosen else name, function, owners, list(marks))
            for _, arguments, choice, more in chosen:
                item.arguments |= arguments
                item.chosen |= choice
                item.marks += more
            item.wanted = wanted
            self._items.append(item)

    def _parametrized(self, name, mark):
        """Yields the sets of a `parametrize`: their names, arguments, values for fixtures, and marks."""
        names, sets, *rest = (*mark.args, *(mark.kwargs[key] for key in ("argnames", "argvalues")
                                            if key in mark.kwargs))
        if isinstance(names, str):
            names = [part.strip() for part in names.split(",") if part.strip()]
        indirect = mark.kwargs.get("indirect", rest[0] if rest else False)
        indirect = names if indirect is True else indirect or ()
        ids = mark.kwargs.get("ids", rest[1] if len(rest) > 1 else None)
        for place, each in enumerate(named_parameters(names, sets, ids)):
            if len(each.values) != len(names):
                found, wanted = _counted(each.values, "value"), _counted(names, "name")
                raise Unsupported(f"a set of parameters of the test `{name}` has {found} for {wanted}")
            pairs = dict(zip(names, each.values))
            chosen = {key: (place, value) for key, value in pairs.items() if key in indirect}
            arguments = {key: value for key, value in pairs.items() if key not in indirect}
            yield each.name, arguments, chosen, each.marks

    def _definitions(self, name, owners):
        """Returns the fixtures of a name that a test sees, the nearest first."""
        kinds = [vars(base) for owner in reversed(owners) for base in owner.__mro__]
        near = [value for members in kinds for value in members.values() if isinstance(value, Fixture)]
        return [fixture for fixture in (*near, *reversed(self._fixtures)) if fixture.name == name]

    def _automatic(self, owners):
        kinds = [vars(base) for owner in owners for base in reversed(owner.__mro__)]
        near = [value for members in kinds for value in members.values() if isinstance(value, Fixture)]
        return [fixture.name for fixture in (*self._fixtures, *near) if fixture.autouse]

    def _closure(self, name, wanted, owners, marks):
        """Returns the fixtures that a test needs, which are all known."""
        used = [key for mark in marks if mark.name == "usefixtures" for key in mark.args]
        waiting, found = [*self._automatic(owners), *used, *wanted], {}
        while waiting:
            key = waiting.pop(0)
            definitions = self._definitions(key, owners)
            if not definitions and key != "request" and key not in _BUILT_IN:
                raise Unsupported(
                    f"the test `{name}` takes `{key}`, a fixture that its text doesn't define and "
                    "grading doesn't have"
                )
            for fixture in definitions:
                if found.setdefault(id(fixture), fixture) is fixture:
                    if inspect.isasyncgenfunction(fixture.function):
                        raise Unsupported(f"the fixture `{key}` is `async` and has a `yield`")
                    more = _wanted(fixture.function, is_method=fixture not in self._fixtures)
                    waiting += [each for each in more if each != key]
        return list({fixture.name: fixture for fixture in found.values()}.values())

    def _case_names(self):
        if not self._cases:
            return
        loader = sys.modules["unittest"].TestLoader()
        for case in self._cases:
            # By name, since unittest imports asyncio for it.
            awaits = any(base.__name__ == "IsolatedAsyncioTestCase" for base in case.__mro__)
            members = [value for base in case.__mro__ for value in vars(base).values()]
            if self._automatic(()) or any(isinstance(value, Fixture) for value in members):
                raise Unsupported(
                    f"fixtures of pytest are for the `unittest.TestCase` `{case.__name__}`, too"
                )
            marks = [mark for base in case.__mro__ for mark in _marks_of(vars(base))]
            for name in loader.getTestCaseNames(case):
                function = getattr(case, name)
                for mark in (*marks, *_marks_of(vars(function))):
                    if mark.name in ("usefixtures", "filterwarnings"):
                        raise Unsupported(
                            f"`{mark.name}` is for the `TestCase` `{case.__name__}`, where grading ignores it"
                        )
                    if mark.name == "parametrize":
                        raise Unsupported(
                            f"`{case.__name__}.{name}` is parametrized, as no `TestCase` can be"
                        )
                    is_skipped = mark.name in ("skipif", "xfail") and self._holds(mark)
                    if mark.name == "skip" or is_skipped:
                        function.__unittest_skip__ = True
                        function.__unittest_skip_why__ = str(mark.kwargs.get("reason", ""))
                if inspect.iscoroutinefunction(function) and not awaits or _yields(function):
                    raise Unsupported(
                        f"the test `{case.__name__}.{name}` is `async` or has a `yield`, so a call "
                        "doesn't run it"
                    )
                if "load_tests" not in self._made:
                    yield f"{case.__name__}.{name}"

    # Running them.

    def run(self):
        """Runs the tests that were found."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._close_module)
            if self:
                self._set_up_module()
            self._run_cases()
            for item in self._items:
                self._run(item)

    def _close_module(self):
        try:
            with self._module_stack:
                self._class_stack.close()
        except _FAILURES as error:
            self._fail("teardown", error)

    def _run_cases(self):
        if not self._cases and "load_tests" not in self._made:
            return
        unittest = sys.modules["unittest"]
        loader, suite = unittest.TestLoader(), unittest.TestSuite()
        for case in self._cases:
            suite.addTests(loader.loadTestsFromTestCase(case))
        if "load_tests" in self._made:
            suite = self._made["load_tests"](loader, suite, None) or suite
        suite.run(_collector(self._report, self._fail, unittest))

    def _run(self, item):
        name = item.name
        try:
            for mark in item.marks:
                if mark.name == "skip" or mark.name == "skipif" and self._holds(mark):
                    raise Skip(str(mark.kwargs.get("reason", "")))
                if mark.kwargs.get("run") is False and mark in self._failing(item):
                    raise Skip("it is expected to fail, and isn't run")
            with _filtered([text for mark in item.marks if mark.name == "filterwarnings" for text in mark.args]):
                self._run_once(item)
        except (Skip, ExpectedFailure, _skip_of_unittest()) as error:
            self._report.skip(name, str(error))
        except _FAILURES as error:
            if self._expected(item, error):
                self._report.skip(name, "it is expected to fail")
            else:
                self._fail(name, error)
        else:
            if any(mark.kwargs.get("strict") for mark in self._failing(item)):
                self._report.put(name, "it passed unexpectedly")
            elif self._failing(item):
                self._report.skip(name, "it is expected to fail")
            else:
                self._report.put(name, None)

    def _holds(self, mark):
        conditions = [*mark.args, *([mark.kwargs["condition"]] if "condition" in mark.kwargs else ())]
        return not conditions or any(
            eval(each, self._scope) if isinstance(each, str) else each for each in conditions
        )

    def _failing(self, item):
        return [mark for mark in item.marks if mark.name == "xfail" and self._holds(mark)]

    def _expected(self, item, error):
        marks = self._failing(item)
        return any(isinstance(error, mark.kwargs.get("raises") or BaseException) for mark in marks)

    def _run_once(self, item):
        self._enter(item.owners)
        with contextlib.ExitStack() as stack:
            self._stack, self._active = stack, {}
            instance = item.owner() if item.owners else None
            self._set_up(item, instance)
            names = {*self._automatic(item.owners), *item.wanted}
            names |= {key for mark in item.marks if mark.name == "usefixtures" for key in mark.args}
            for key in sorted(sorted(names), key=lambda key: self._rank(key, item)):
                self.value_of(key, item, instance)
            arguments = item.arguments | {key: self.value_of(key, item, instance) for key in item.wanted}
            if _call(_bound_to(item.function, instance, item.owner), **arguments) is False:
                raise AssertionError("it returned False")

    def _rank(self, name, item):
        """Orders fixtures: those that last longest first, then those that nobody asks for."""
        definitions = self._definitions(name, item.owners)
        if not definitions:
            return len(_SCOPES), 1
        return _SCOPES.index(definitions[0].scope), not definitions[0].autouse

    def _enter(self, owners):
        """Sets up the module and the classes of the next test."""
        if self._entered == owners and owners:
            return
        stack, self._class_stack = self._class_stack, contextlib.ExitStack()
        self._entered = ()
        stack.close()
        for owner in owners:
            members = {key: getattr(owner, key) for key in ("setup_class", "teardown_class")
                       if hasattr(owner, key)}
            self._pair(self._class_stack, members, ("setup_class",), ("teardown_class",), owner)
        self._entered = owners

    def _set_up_module(self):
        # unittest has names of its own for this, which it heeds itself.
        of_unittest = ((), ()) if self._cases else (("setUpModule",), ("tearDownModule",))
        names = ("setup_module", *of_unittest[0]), ("teardown_module", *of_unittest[1])
        try:
            self._pair(self._module_stack, self._made, *names)
        except _FAILURES as error:
            self._fail("setup_module", error)

    def _set_up(self, item, instance):
        if not item.owners:
            self._pair(self._stack, self._made, ("setup_function",), ("teardown_function",), item.function)
            return
        names = ("setup_method", "setup"), ("teardown_method", "teardown")
        members = {key: getattr(instance, key) for key in (*names[0], *names[1]) if hasattr(instance, key)}
        # These two are nose's, and may be anything that takes arguments.
        plain = ("setup_method", "teardown_method")
        members = {key: value for key, value in members.items()
                   if key in plain or _is_function(value) and not _takes(value)}
        self._pair(self._stack, members, *names, item.function)

    def _pair(self, stack, members, before, after, given=None):
        """Calls what sets up, and keeps for the end what tears down."""
        found = [next((members[name] for name in names if _is_function(members.get(name))), None)
                 for names in (before, after)]
        if found[0] is not None:
            _call_with(found[0], given)
        if found[1] is not None:
            stack.callback(_call_with, found[1], given)

    def value_of(self, name, item, instance, outer=None):
        """Returns the value of a fixture, which is made when it is first asked for."""
        if name in item.arguments:
            return item.arguments[name]
        definitions = self._definitions(name, item.owners)
        if outer is not None:
            # A fixture that takes its own name extends the one that it hides.
            definitions = definitions[definitions.index(outer) + 1:]
        if not definitions:
            return self._built_in(name, item, instance, outer)
        fixture = definitions[0]
        place = item.chosen.get(name, (None, None))[0]
        kept, stack, key = self._active, self._stack, id(fixture)
        if fixture.scope == "class":
            kept, stack, key = self._values, self._class_stack, (id(fixture), item.owner or item, place)
        elif fixture.scope != "function":
            kept, stack, key = self._values, self._module_stack, (id(fixture), place)
        if key not in kept:
            kept[key] = self._made_by(fixture, item, instance, stack)
        return kept[key]

    def _made_by(self, fixture, item, instance, stack):
        is_method = fixture not in self._fixtures
        function = fixture.function
        arguments = {}
        for name in _wanted(function, is_method=is_method):
            if name == "request":
                arguments[name] = _Request(self, item, instance, stack, fixture)
            else:
                outer = fixture if name == fixture.name else None
                arguments[name] = self.value_of(name, item, instance, outer)
        bound = _bound_to(function, instance, item.owner) if is_method else function
        if not inspect.isgeneratorfunction(function):
            return _call(bound, **arguments)
        generator = bound(**arguments)
        value = next(generator)
        stack.callback(next, generator, None)
        return value

    def _built_in(self, name, item, instance, outer):
        if name == "request":
            return _Request(self, item, instance, self._stack, None)
        if name not in _BUILT_IN or outer is not None:
            raise Unsupported(f"the tests ask for the fixture `{name}`, which grading doesn't have")
        if name not in self._active:
            self._active[name] = self._made_built_in(name)
        return self._active[name]

    def _made_built_in(self, name):
        import pathlib
        import tempfile

        if name in ("capsys", "capfd"):
            return self._stack.enter_context(Captured())
        if name in ("caplog", "recwarn"):
            return self._stack.enter_context(Logged() if name == "caplog" else Warned())
        if name == "monkeypatch":
            return self._stack.enter_context(pytest_module(self._patch).MonkeyPatch.context())
        if name == "tmp_path":
            return pathlib.Path(tempfile.mkdtemp())
        return types.SimpleNamespace(
            mktemp=lambda name, numbered=True: pathlib.Path(tempfile.mkdtemp(prefix=name))
        )


def _marks_of(members, name=None):
    marks = members.get("pytestmark", [])
    marks = marks if isinstance(marks, (list, tuple)) else [marks]
    marks = [mark() if isinstance(mark, MarkName) else mark for mark in marks]
    return [mark for mark in marks if isinstance(mark, Mark) and name in (None, mark.name)]


def _wanted(function, is_method=False):
    """Returns the names of the fixtures that a function takes."""
    is_static = isinstance(function, staticmethod)
    function = getattr(function, "__func__", function)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = list(inspect.signature(function).parameters.values())
    if is_method and not is_static:
        parameters = parameters[1:]
    names = [each.name for each in parameters if each.kind in kinds and each.default is each.empty]
    # `mock.patch` gives the first ones.
    mock = sys.modules.get("unittest.mock")
    patches = [patch for patch in getattr(function, "patchings", ())
               if not patch.attribute_name and patch.new is mock.DEFAULT]
    return names[len(patches):]


def _is_test(value):
    """Returns whether what begins with `test` is a function, also one with arguments or a cache."""
    is_wrapped = isinstance(value, (functools.partial, functools._lru_cache_wrapper))
    return isinstance(value, types.FunctionType) or is_wrapped and inspect.isfunction(
        inspect.unwrap(getattr(value, "func", value))
    )


@contextlib.contextmanager
def _filtered(filters):
    """Heeds marks `filterwarnings`, such as `error::DeprecationWarning`."""
    if not filters:
        yield
        return
    import warnings

    with warnings.catch_warnings():
        for text in filters:
            action, message, category, module, line = (text.split(":", 4) + [""] * 4)[:5]
            path = category.strip() or "Warning"
            kind = pkgutil.resolve_name(path if "." in path else f"builtins.{path}")
            warnings.filterwarnings(action.strip(), message, kind, module, int(line or 0))
        yield


def _counted(things, noun):
    return f"{len(things)} {noun}{'s' * (len(things) != 1)}"


def _yields(function):
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _is_function(value):
    return isinstance(value, (types.FunctionType, types.MethodType, staticmethod, classmethod))


def _bound_to(function, instance, owner):
    return function.__get__(instance, owner) if instance is not None else function


def _call(function, /, *given, **arguments):
    value = function(*given, **arguments)
    if inspect.iscoroutine(value):
        import asyncio

        value = asyncio.run(value)
    return value


def _call_with(function, given):
    """Calls a function that sets up or tears down, with what it is for if it takes that."""
    _call(function, *([given] if _takes(function) else []))


def _takes(function):
    parameters = inspect.signature(function).parameters.values()
    return any(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters)


def _skip_of_unittest():
    unittest = sys.modules.get("unittest")
    return unittest.SkipTest if unittest else _NO_SKIP


def _collector(report, fail, unittest):
    """Returns a result of unittest that writes to the report."""

    class Collector(unittest.TestResult):
        def _name(self, test):
            method = getattr(test, "_testMethodName", None)
            return f"{type(test).__name__}.{method}" if method else str(test.id())

        def addSuccess(self, test):
            report.put(self._name(test), None)

        def addFailure(self, test, error):
            fail(self._name(test), error[1])

        addError = addFailure

        def addSubTest(self, test, subtest, error):
            if error is not None:
                fail(self._name(test), error[1])

        def addExpectedFailure(self, test, error):
            report.put(self._name(test), None)

        def addUnexpectedSuccess(self, test):
            report.put(self._name(test), "it passed unexpectedly")

        def addSkip(self, test, reason):
            # Of a class or the module: `setUpClass (tests.TestCases)`.
            name = self._name(test)
            kind = name.partition("(")[2].rstrip(")").rpartition(".")[2]
            report.skip(name, reason, f"{kind}." if kind and not name.startswith("setUpModule") else
                        "" if kind else None)

    return Collector()
