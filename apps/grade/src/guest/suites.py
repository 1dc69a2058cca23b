"""Runs the tests of a task with stand-ins for what a candidate defines, and reports each."""

import ast
import builtins
import contextlib
import functools
import importlib.machinery
import re
import sys
import types


class _Site:
    """One assertion in the source of the tests."""

    def __init__(self, suite, name):
        self._suite, self._name = suite, name

    def __enter__(self):
        self._suite.report.declare(self._name)
        self._before = self._suite.uses()
        return self

    def __exit__(self, kind, error, _):
        self._suite.uses_of_sites += self._suite.uses() - self._before
        if error is None:
            self._suite.report.put(self._name, None)
            return False
        if not isinstance(error, _FAILURES):
            return False
        self._suite.fail(self._name, error)
        return True


_ERROR_NUMBERS = "errors of the system have other numbers in the sandbox"
# What asserts facts of a machine: what is in its line, and in the tests.
_FACTS = (
    (r"elapsed|duration|took|_time\b|time\(\)|_counter|monotonic|timeit", r"time\(\)|_counter|monotonic|timeit",
     "programs take longer in the sandbox"),
    ("getsizeof", "", "objects are smaller in the sandbox"),
    ("[eE]rrno", "", _ERROR_NUMBERS),
)
# What both sides share in another way.
_STREAMS = ("stdin", "stdout", "stderr", "path")


class _Nothing:
    """Stands for all that a candidate defines while tests are looked at and nothing is run."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_, **__):
        return self

    def __iter__(self):
        return iter(())

    def __mro_entries__(self, _):
        return ()


class Suite:
    """The tests of a task in a namespace of their own."""

    def __init__(self, task, source_of, beside=None, uses=None, refuse=None, patch=None, meet=None):
        self._task = task
        # Returns what the candidate calls a name, in a list; an empty one if it has no such name.
        # Its second argument is whether that may be a class, whose instances have attributes.
        self._source_of = source_of
        # The candidate's own namespace, if its tests run beside it.
        self._beside = beside
        # Returns how often the tests have used the candidate so far, if that is known.
        self.uses = uses or (lambda: 0)
        self._counts_uses = uses is not None
        # Says that the tests need the candidate's own interpreter, if they aren't there.
        self._refuse = refuse
        # Notes a limit of the sandbox.
        self._meet = meet
        # Tells the candidate of an attribute that the tests change, if it is in another interpreter.
        self._patch = patch
        self.uses_of_sites = 0
        # Attributes of modules and classes that the tests have set.
        self.changed_names = set()
        self.report = Report()
        self._module = sys.modules["tests"] = types.ModuleType("tests")
        self._module.__file__ = "/workspace/tests.py"
        self._scope = self._module.__dict__
        # Test functions that the source of the tests has called itself.
        self._done = set()

    def run(self):
        """Runs the tests."""
        with self._surroundings():
            try:
                self._run()
            except Limited as error:
                self._meet(str(error))
            except Unsupported as error:
                self.report.problem = str(error)

    def check(self):
        """Looks for what can't be run, without a candidate; the report's `problem` tells of it."""
        self._source_of = lambda *_: [_Nothing()]
        with self._surroundings():
            try:
                trees = self._trees()
                if self._task["calls"] is None:
                    self._look_at(trees)
            except Limited:
                pass  # its samples are undecided
            except Unsupported as error:
                self.report.problem = str(error)

    def _look_at(self, trees):
        before = dict(self._scope)
        for node in (node for tree in trees for node in tree.body):
            if not _only_defines(node):
                defines = any(isinstance(each, _DEFINITIONS) for each in ast.walk(node))
                if defines or "fixture" in ast.unparse(node):
                    return  # what it defines isn't known
                continue
            try:
                exec(compile(ast.Module([node], []), f"{_TESTS}>", "exec"), self._scope)
            except ModuleNotFoundError as error:
                raise _missing(error) from None
            except _FAILURES:
                return  # it needs what a candidate gives
        self._collected(before).find()

    def _collected(self, before):
        made = {name: value for name, value in self._scope.items()
                if name not in before or value is not before[name]}
        return Collection(self._scope, made, self.report, self.fail, self._patch)

    @contextlib.contextmanager
    def _surroundings(self):
        """Gives tests the module `pytest`, and makes calls that would run them do nothing, since they run
        anyway."""
        texts = "".join([*self._task["tests"], self._task["setup"], self._task["helpers"]])
        kept = sys.modules.get("pytest")
        with contextlib.ExitStack() as stack:
            if "pytest" in texts:
                sys.modules["pytest"] = pytest_module(self._patch)
                stack.callback(sys.modules.pop, "pytest")
                if kept is not None:
                    stack.callback(sys.modules.__setitem__, "pytest", kept)
            for name, function, other in (
                ("unittest", "main", _run_nothing), ("doctest", "testmod", self._test_examples),
            ):
                if name in texts:
                    _replace(stack, importlib.import_module(name), function, other)
            if "TextTestRunner" in texts:
                _replace(stack, sys.modules["unittest"].TextTestRunner, "run", self._run_suite)
            yield

    def _run_suite(self, runner, run, *args, **keywords):
        """`TextTestRunner.run`, whose failures count, also of a class that isn't at the top."""
        result = run(runner, *args, **keywords)
        for test, told in (*result.failures, *result.errors):
            name = getattr(test, "_testMethodName", None)
            self.report.put(f"{type(test).__name__}.{name}" if name else test.id(), told.splitlines()[-1])
        return result

    def _test_examples(self, testmod, module=None, *args, **keywords):
        """`doctest.testmod`, of which a failure counts."""
        results = testmod(module or sys.modules[self._scope["__name__"]], *args, **keywords)
        if results.attempted:
            told = f"{results.failed} of {results.attempted} examples failed"
            self.report.put("doctest", told if results.failed else None)
        return results

    def _trees(self):
        """Reads the sources, runs the task's own code, and puts what the candidate defines in the place of
        what it is asked for."""
        task = self._task
        setup = _parsed("setup", task["setup"])
        trees = [_parsed("tests", source) for source in task["tests"]]
        if task["has_solution"]:
            helpers = _parsed("task's own solution", task["helpers"])
        else:
            helpers = _parsed_prompt(task["helpers"]) or ast.Module([], [])
        with_pytest = (setup, *trees) if "pytest" in "".join([*task["tests"], task["setup"]]) else ()
        for node in (node for tree in with_pytest for node in ast.walk(tree)):
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == "pytest":
                getattr(pytest_module(), node.attr)  # which raises if it isn't there
        self._prepare(helpers, [setup, *trees])
        return [setup, *trees]

    def _run(self):
        setup, *trees = self._trees()
        if self._task["calls"] is not None:
            run_calls(self.report, self._task, self._own, self._entries, self._scope)
            return
        before, check = dict(self._scope), self._task["check"]
        self._scope |= {
            "__hatchery_site__": lambda number: _Site(self, f"assert {number}"),
            "__hatchery_call__": self._noting,
            "__hatchery_type__": _type_of,
            "__hatchery_set__": self._setting,
            "__hatchery_setattr__": functools.partial(self._change, setattr),
            "__hatchery_delattr__": functools.partial(self._change, delattr),
        }
        self._read = {}
        # What attributes were that the tests have set, by their owner and name.
        self._changed = {}
        try:
            self._exec("setup", setup, _prepared(setup), self._task["setup"])
        except _FAILURES as error:
            self._end(error)
            if not _is_good_exit(error):
                return
        at_first = self.uses()
        if len(trees) == 1:
            self._run_module(trees[0], check)
        else:
            self._run_list(trees)
        uses = self.uses() - at_first - self.uses_of_sites
        collection = self._collected(before)
        collection.find(self._done)
        if len(trees) > 1 and collection:
            for place, tree in enumerate(trees):
                if not _acts(tree):
                    self.report.skip(f"test {place + 1}", "it only defines")
        collection.run()
        if not self.report.is_reached():
            acts = uses if self._counts_uses else any(map(_acts, trees)) or check is not None
            if acts:
                self.report.put("tests", None)
            elif self.report.is_complete and self.report.has_tests():
                self.report.problem = "its tests ran to their end without testing a candidate"
        self.report.forgive()

    @contextlib.contextmanager
    def _noting(self, name):
        yield
        self._done.add(name)

    @contextlib.contextmanager
    def _setting(self, target, name):
        """Tells the candidate what the tests make of an attribute, such as one of a module."""
        is_known = isinstance(target, (type, types.ModuleType)) and type(target) is not StandInClass
        if not is_known or target is sys and name in _STREAMS:
            yield
            return
        before = getattr(target, name, _MISSING)
        yield
        now = getattr(target, name, _MISSING)
        if now is before:
            return
        self.changed_names.add(f"{_path_of(target)}.{name}")
        if self._patch is None:
            return
        original = self._changed.setdefault((id(target), name), before)
        if original is not before:
            self._patch("undo", target, name)
        if now is _MISSING:
            self._patch("delete", target, name)
        elif now is not original:
            self._patch("set", target, name, now)
        if now is original:
            del self._changed[id(target), name]
            if original is before:
                return

    def _change(self, change, target, name, *value):
        with self._setting(target, name):
            change(target, name, *value)

    def _exec(self, name, tree, prepared, source):
        """Runs source, and keeps it for messages."""
        file = f"{_TESTS}>" if name == "tests" else f"{_TESTS}: {name}>"
        keep_source(source, file)
        self._read[file] = tree
        try:
            code = compile(prepared, file, "exec")
        except SyntaxError as error:
            raise Unsupported(f"the tests aren't Python: {_told_syntax(error)}") from None
        exec(code, self._scope)

    def fail(self, name, error):
        """Notes that a test failed, or that it skips itself."""
        if isinstance(error, Unsupported):
            raise error
        if isinstance(error, (Skip, ExpectedFailure)):
            self.report.skip(name, str(error))
        else:
            self.report.put(name, self._told(error))

    def _told(self, error):
        """Describes a failure. A bare `assert` is described by its source.

        Raises:
            Unsupported: The tests lack a module, or something that they use.
        """
        if isinstance(error, ModuleNotFoundError) and _raised_by_tests(error):
            raise _missing(error)
        limit = self._meet and self._fact_in(error)
        if limit:
            self._meet(limit)
        doubt = self._refuse and self._doubt_of(error)
        if doubt:
            with contextlib.suppress(Refused):
                self._refuse(doubt)
        if isinstance(error, AssertionError) and not error.args:
            for place in reversed(list(_frames(error))):
                file, line = place
                if file.startswith(_TESTS):
                    found = (node for node in ast.walk(self._read[file]) if isinstance(node, ast.Assert))
                    found = next((node for node in found if node.lineno == line), None)
                    return "AssertionError" if found is None else ast.unparse(found)
        return _told(error)

    def _doubt_of(self, error):
        """Returns why a failure may not be the candidate's, if there is a reason."""
        library = _misusing(error)
        if library:
            return f"`{library}` can't use an object of the candidate that isn't in its own interpreter"
        if isinstance(error, ImportError) and error.name in sys.modules and not _raised_by_tests(error):
            return f"the candidate imports `{error.name}`, a module of the tests' own"
        if isinstance(error, AttributeError) and _raised_by_tests(error):
            owners = (error.obj, getattr(error.obj, "__self__", None))
            if any(type(type(owner)) is StandInClass for owner in owners):
                return "an object of the candidate has attributes only in its own interpreter"
        if any("__dict__" in line or "vars(" in line or "getmembers" in line for line in self._lines_of(error)):
            return "what a class of the candidate's defines is known only in its own interpreter"
        return None

    def _lines_of(self, error):
        """Returns the lines of the tests that a failure went through."""
        return [linecache.getline(file, line or 0) for file, line in _frames(error) if file.startswith(_TESTS)]

    def _fact_in(self, error):
        """Returns the fact of this machine from which a failure may come, if it may."""
        told, lines = _told(error), self._lines_of(error)
        if "numpy" in sys.modules and (any("int64" in line for line in lines) or "int32" in told and "int64" in told):
            return NARROW
        if not isinstance(error, AssertionError):
            return None
        line, sources = "".join(lines), "".join([self._task["setup"], *self._task["tests"]])
        for in_line, in_tests, fact in _FACTS:
            if re.search(in_line, line) and re.search(in_tests, sources):
                return fact
        return _ERROR_NUMBERS if told.count("[Errno ") > 1 else None

    def _end(self, error):
        """Notes that the source of the tests ended by an exception."""
        if _is_good_exit(error):
            return
        skip = sys.modules["unittest"].SkipTest if "unittest" in sys.modules else Skip
        if isinstance(error, (Skip, skip)):
            self.report.skip("tests", str(error))
            return
        lines = [line for file, line in _frames(error) if file.startswith(_TESTS)]
        self.report.interrupt(f"line {lines[0]}" if lines else "tests", self._told(error))

    def _prepare(self, helpers, trees):
        try:
            exec(compile(helpers, "<task>", "exec"), self._scope)
        except _FAILURES as error:
            limit = limit_of(error)
            if limit is not None:
                raise Limited(limit) from None
            raise Unsupported(f"the task's own code raises {_told(error)}") from None
        self._own = dict(self._scope)
        entry = self._task["entry_point"]
        names_solution = "solution" in "".join([*self._task["tests"], self._task["setup"]])
        imported = set(_imported_names(trees)) if names_solution else set()
        calls = self._task["calls"]
        if calls is not None and calls["rules"] != "evalplus":
            names = [entry, "Solution"]
        elif entry is not None:
            # It may be a method: `Solution().f`.
            classes = {name for name in _defined(helpers) if isinstance(self._own.get(name), type)}
            classes &= set().union(*(_loaded(tree) for tree in trees)) if classes else set()
            names = sorted({entry.partition(".")[0].partition("(")[0]} | imported | classes)
        else:
            loaded = set().union(*(_loaded(tree) for tree in trees))
            defined = _defined(helpers)
            if self._task["helpers"].strip():
                names = sorted(loaded & defined | imported)
            else:
                bound = set().union(*(_bound(tree) for tree in trees))
                known = {*dir(builtins), *self._scope, "__file__"}
                names = sorted(loaded - bound - known | imported)
        self._enter(names)
        if not names and not self._enter(sorted(set().union(*map(_quoted, trees)) - {"solution"})):
            raise Unsupported("the tests use nothing that a candidate defines")
        if self._beside is not None:
            # Tests that patch a name of their module mean the candidate's.
            names = {name: value for name, value in self._scope.items() if name not in self._beside}
            self._beside.update(names)
            self._module, self._scope = sys.modules["tests"], self._beside
        else:
            # For tests that import what they test.
            solution = sys.modules["solution"] = types.ModuleType("solution")
            solution.__spec__ = importlib.machinery.ModuleSpec("solution", None)
            vars(solution).update(self._entries)
            solution.__getattr__ = self._attribute
        self._scope.setdefault("__file__", "tests.py")

    def _enter(self, names):
        """Gives the tests what the candidate defines of these names; returns whether that is anything."""
        self._entries = {}
        for name in names:
            may_be_class = name not in self._own or isinstance(self._own[name], type)
            found = self._source_of(name, may_be_class)
            self._scope.pop(name, None)
            if found:
                self._entries[name] = self._scope[name] = found[0]
        return bool(self._entries)

    def rebind(self, names):
        """Gives names the values that they have in the candidate's module now."""
        for name, value in names:
            before = self._entries.get(name, _MISSING)
            for scope in (self._entries, self._scope, vars(sys.modules["solution"])):
                if scope.get(name) is before:
                    scope[name] = value

    def _attribute(self, name):
        """Returns what else the candidate defines."""
        found = [] if name.startswith("__") else self._source_of(name, False)
        if not found:
            raise AttributeError(f"module 'solution' has no attribute '{name}'")
        return found[0]

    def _run_list(self, trees):
        for place, tree in enumerate(trees):
            self.report.declare(f"test {place + 1}")
        for place, tree in enumerate(trees):
            name = f"test {place + 1}"
            try:
                self._exec(name, tree, _prepared(tree), self._task["tests"][place])
            except _FAILURES as error:
                if not _is_good_exit(error):
                    self.fail(name, error)
                    continue
            self.report.put(name, None)

    def _run_module(self, tree, check):
        marker = _Marker()
        # Another tree, since messages repeat what stands in this one.
        prepared = _prepared(_parsed("tests", self._task["tests"][0]), check, marker)
        for place in range(marker.count):
            self.report.declare(f"assert {place + 1}")
        try:
            self._exec("tests", tree, prepared, self._task["tests"][0])
            if check in self._scope and check not in self._done:
                self._check(self._scope[check])
        except _FAILURES as error:
            self._end(error)

    def _check(self, check):
        entry = self._task["entry_point"]
        candidate, kept = eval(entry, dict(self._entries)), self._scope.get(entry)
        if self._beside is None and self._task["has_solution"] and entry in self._own:
            # A function that compares with the function's own name compares with the task's solution.
            self._scope[entry] = self._own[entry]
        try:
            if check(candidate) is False:
                raise AssertionError(f"`{self._task['check']}` returned False")
        finally:
            if kept is not None:
                self._scope[entry] = kept

def _replace(stack, owner, name, other):
    """Replaces an attribute until a stack ends, with a function that is given what it was."""
    original = getattr(owner, name)
    stack.callback(setattr, owner, name, original)
    setattr(owner, name, functools.partialmethod(other, original) if isinstance(owner, type)
            else functools.partial(other, original))


def _path_of(owner):
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__


def _run_nothing(*_, **__):
    return types.SimpleNamespace(result=sys.modules["unittest"].TestResult())


def _missing(error):
    """Returns that tests import a module that isn't there."""
    return Unsupported(
        f"the tests import `{error.name}`, which the image doesn't have (`--packages common` or `--package` "
        "adds it); what a candidate defines they import from `solution`"
    )


class _Counted:
    """An exchange that counts what the tests ask of the candidate."""

    def __init__(self, exchange):
        self._exchange, self.count = exchange, 0

    def __call__(self, text):
        self.count += 1
        return self._exchange(text)


def judge(task_text):
    """Runs the tests of a task against the candidate at the other end; returns the report as text."""
    task = from_text(task_text)
    exchange = _Counted(exchange_by_host)
    link = Link(exchange, task)
    try:
        loaded = link.begin()
        if link.doubt is not None:
            return to_text({"undecided": link.doubt, "limit": link.limit})
        if loaded is not None:
            is_source = loaded.startswith(("SyntaxError", "IndentationError", "TabError"))
            if is_source and task["completes"] and not _parsed_prompt(task["helpers"]):
                report = Report()
                report.problem = "its prompt isn't Python, so no completion of it is a program"
                return report.message()
            return to_text({"load": loaded[:_LONGEST_MESSAGE]})
        suite = Suite(
            task,
            link.name,
            uses=lambda: exchange.count,
            refuse=link.refuse,
            patch=link.patch,
            meet=link.meet,
        )
        suite.report.note = link.note
        link.surroundings.rebind = suite.rebind
        suite.run()
    except CandidateGone as error:
        return to_text({"gone": str(error)})
    except Malformed as error:
        return to_text({"load": str(error)[:_LONGEST_MESSAGE]})
    suite.report.is_complete &= not link.is_broken
    undecided = None if link.is_broken else link.undecided()
    limit = link.limit or (undecided if undecided in (ORDER, NO_FLOAT_ERRORS) else None)
    report = from_text(suite.report.message())
    is_sure = link.is_sure(report["complete"] and report["passed"] == report["total"])
    told = {"undecided": undecided, "limit": limit, "kinds": sorted(link.used), "sure": is_sure}
    return to_text({**report, **told})


def check(task_text):
    """Looks for what can't be run in the tests of a task; returns that, or `None`."""
    suite = Suite(from_text(task_text), None)
    suite.check()
    return suite.report.problem
