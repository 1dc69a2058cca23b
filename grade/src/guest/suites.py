"""Runs the tests of a task with stand-ins for what a candidate defines, and reports each."""

import ast
import builtins
import copy
import math
import sys
import types

# Failures that are described, and the length of a description.
_MOST_FAILURES = 20
_LONGEST_MESSAGE = 300
# What fails one test and lets the others run.
_FAILURES = (Exception, SystemExit, CandidateExit, Malformed, NotForwarded, NotGiven)
# Flags of functions that a call only begins: they have a `yield`, are `async`, or both.
_UNRUN = 0x20 | 0x80 | 0x200


class Report:
    """Which tests passed."""

    def __init__(self):
        self._tests = {}
        self.is_complete = True
        self.problem = None

    def declare(self, name):
        """Counts a test, which hasn't passed so far."""
        self._tests.setdefault(name, None)

    def put(self, name, failure):
        """Notes that a test passed (`None`) or failed. A test that failed once has failed."""
        if self._tests.get(name) is None or not self._tests[name]:
            self._tests[name] = failure or ""

    def interrupt(self, name, failure):
        """Notes that the tests couldn't go on."""
        self.is_complete = False
        self._tests[name] = failure

    def message(self):
        """Returns the report as text."""
        failures = [
            [name[:100], ("it wasn't reached" if failure is None else failure)[:_LONGEST_MESSAGE]]
            for name, failure in self._tests.items()
            if failure != ""
        ]
        passed = len(self._tests) - len(failures)
        return to_text(
            {
                "total": len(self._tests),
                "passed": passed,
                "complete": self.is_complete and self.problem is None,
                "problem": self.problem,
                "failures": failures[:_MOST_FAILURES],
            }
        )


def _told(error):
    try:
        text = str(error)
    except _FAILURES:
        text = ""  # it has an enormous number, or an object of the candidate that refuses
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _is_unrun(function):
    """Returns whether a call of a test's function would only begin it."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_flags & _UNRUN != 0


class _Site:
    """One `assert` in the source of the tests."""

    def __init__(self, report, name, node):
        self._report, self._name, self._node = report, name, node

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if error is None:
            self._report.put(self._name, None)
            return False
        if not isinstance(error, _FAILURES):
            return False
        is_bare = kind is AssertionError and not error.args
        told = ast.unparse(self._node) if is_bare else _told(error)
        self._report.put(self._name, told)
        return True


class _Marker(ast.NodeTransformer):
    """Makes each `assert` a test of its own, so that the others run after one that failed."""

    def __init__(self, sites):
        self._sites = sites

    def visit_Assert(self, node):
        place = len(self._sites)
        self._sites.append(node)
        call = ast.Call(
            ast.Name("__hatchery_site__", ast.Load()), [ast.Constant(place)], []
        )
        return ast.copy_location(ast.With([ast.withitem(call)], [node]), node)

    def _leave(self, node):
        # A `try` or a `with` may expect what an `assert` raises.
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _leave
    visit_Try = visit_TryStar = visit_With = visit_AsyncWith = _leave


def _mark(tree, check):
    """Marks the asserts of the module and of the function that checks a candidate."""
    sites = []
    marker = _Marker(sites)
    body = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == check:
            node.body = [marker.visit(inner) for inner in node.body]
        else:
            node = marker.visit(node)
        body.append(node)
    tree.body = body
    return ast.fix_missing_locations(tree), sites


def _defined(tree):
    """Returns the names that a module's source defines at its top."""
    names = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif not isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= _bound(node)
    return names


def _bound(tree):
    """Returns all names that source binds anywhere."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names


def _imported_names(tree):
    """Returns the names that tests take from the module `solution`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "solution":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "solution":
                yield node.attr


def _loaded(tree):
    return {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


class Suite:
    """The tests of a task in a namespace of their own."""

    def __init__(self, task, source_of, beside=None):
        self._task = task
        # Returns what the candidate calls a name, in a list; an empty one if it has no such name.
        # Its second argument is whether that may be a class, whose instances have attributes.
        self._source_of = source_of
        # The candidate's own namespace, if its tests run beside it.
        self._beside = beside
        self.report = Report()
        self._module = sys.modules["tests"] = types.ModuleType("tests")
        self._scope = self._module.__dict__
        self._scope["__hatchery_site__"] = self._site
        self._sites = []

    def run(self):
        """Runs the tests."""
        task = self._task
        try:
            trees = [ast.parse(source) for source in task["tests"]]
            helpers = ast.parse(task["helpers"])
            setup = ast.parse(task["setup"])
        except SyntaxError as error:
            self.report.problem = f"the tests aren't Python: {error}"
            return
        self._prepare(helpers, [setup, *trees])
        if self.report.problem is not None:
            return
        if task["calls"] is not None:
            self._run_calls(task["calls"])
            return
        try:
            exec(compile(setup, "<setup>", "exec"), self._scope)
        except _FAILURES as error:
            self.report.interrupt("setup", _told(error))
            return
        if len(trees) == 1:
            self._run_module(trees[0])
        else:
            self._run_list(trees)

    def _prepare(self, helpers, trees):
        """Runs the task's own code, then puts what the candidate defines in the place of what it is
        asked for."""
        try:
            exec(compile(helpers, "<task>", "exec"), self._scope)
        except _FAILURES as error:
            self.report.problem = f"the task's own code raises {_told(error)}"
            return
        self._own = dict(self._scope)
        entry = self._task["entry_point"]
        imported = {name for tree in trees for name in _imported_names(tree)}
        if entry is not None:
            names = sorted({entry} | imported)
        else:
            loaded = set().union(*(_loaded(tree) for tree in trees))
            defined = _defined(helpers)
            if self._task["helpers"].strip():
                names = sorted(loaded & defined | imported)
            else:
                bound = set().union(*(_bound(tree) for tree in trees))
                names = sorted(loaded - bound - set(dir(builtins)) - set(self._scope) | imported)
        if not names:
            self.report.problem = "the tests use nothing that a candidate defines"
            return
        self._entries = {}
        for name in names:
            self._scope.pop(name, None)
            may_be_class = name not in self._own or isinstance(self._own[name], type)
            found = self._source_of(name, may_be_class)
            if found:
                self._entries[name] = self._scope[name] = found[0]
        if self._beside is not None:
            # Tests that patch a name of their module mean the candidate's.
            names = {name: value for name, value in self._scope.items() if name not in self._beside}
            self._beside.update(names)
            self._module, self._scope = sys.modules["tests"], self._beside
            return
        # For tests that import what they test.
        solution = sys.modules["solution"] = types.ModuleType("solution")
        vars(solution).update(self._entries)

    def _site(self, place):
        return _Site(self.report, f"assert {place + 1}", self._sites[place])

    def _run_list(self, trees):
        for place, tree in enumerate(trees):
            self.report.declare(f"test {place + 1}")
        for place, tree in enumerate(trees):
            name = f"test {place + 1}"
            try:
                exec(compile(tree, f"<{name}>", "exec"), self._scope)
            except _FAILURES as error:
                text = ast.unparse(tree)
                told = text if isinstance(error, AssertionError) and not error.args else _told(error)
                self.report.put(name, told)
            else:
                self.report.put(name, None)

    def _run_module(self, tree):
        check = self._task["check"]
        tree, self._sites = _mark(tree, check)
        for place in range(len(self._sites)):
            self.report.declare(f"assert {place + 1}")
        before = set(self._scope)
        try:
            exec(compile(tree, "<tests>", "exec"), self._scope)
            if check is not None:
                entry = self._task["entry_point"]
                if entry not in self._entries:
                    raise NameError(f"name '{entry}' is not defined")
                if self._beside is None and self._task["has_solution"] and entry in self._own:
                    # Tests that compare with the function's own name compare with the task's solution.
                    self._scope[entry] = self._own[entry]
                self._scope[check](self._entries[entry])
        except _FAILURES as error:
            self.report.interrupt("tests", _told(error))
        made = [value for name, value in list(self._scope.items()) if name not in before]
        self._run_cases(made)
        self._run_functions(tree)
        self._forgive()

    def _forgive(self):
        """Counts what wasn't reached in tests that ran to their end, unless nothing was."""
        if not self.report.is_complete:
            return
        if all(failure is None for failure in self.report._tests.values()):
            return
        for name, failure in self.report._tests.items():
            if failure is None and name.startswith("assert "):
                self.report.put(name, None)

    def _run_functions(self, tree):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        names = [node.name for node in tree.body if isinstance(node, kinds)]
        for name in names:
            function = self._scope.get(name)
            is_test = name.startswith("test") and isinstance(function, types.FunctionType)
            if not is_test or function.__code__.co_argcount:
                continue
            if _is_unrun(function):
                self._refuse_unrun(name)
                return
            self.report.declare(name)
            try:
                function()
            except _FAILURES as error:
                self.report.put(name, _told(error))
            else:
                self.report.put(name, None)

    def _refuse_unrun(self, name):
        self.report.problem = f"the test `{name}` is `async` or has a `yield`, so that a call doesn't run it"

    def _run_cases(self, made):
        unittest = sys.modules.get("unittest")
        if unittest is None:
            return
        loader, result = unittest.TestLoader(), _collector(self.report, unittest)
        for case in made:
            is_case = isinstance(case, type) and issubclass(case, unittest.TestCase)
            if is_case and not case.__module__.startswith("unittest"):
                # By name, since unittest imports asyncio for it.
                awaits = any(base.__name__ == "IsolatedAsyncioTestCase" for base in case.__mro__)
                for name in loader.getTestCaseNames(case):
                    if _is_unrun(getattr(case, name)) and not awaits:
                        self._refuse_unrun(f"{case.__name__}.{name}")
                        return
                    self.report.declare(f"{case.__name__}.{name}")
                loader.loadTestsFromTestCase(case).run(result)

    def _run_calls(self, calls):
        """Compares what the candidate returns for each input with what the task's solution returns."""
        entry = self._task["entry_point"]
        own, function = self._own.get(entry), self._entries.get(entry)
        if own is None:
            self.report.problem = f"the task's solution has no `{entry}`"
            return
        if function is None:
            self.report.interrupt("call", f"NameError: name '{entry}' is not defined")
            return
        # A solution that calls itself calls itself, not the candidate.
        self._scope[entry] = own
        for place, given in enumerate(calls["inputs"]):
            self.report.declare(f"input {place + 1}")
        for place, given in enumerate(calls["inputs"]):
            name = f"input {place + 1}"
            try:
                expected = own(*copy.deepcopy(given))
            except _FAILURES as error:
                self.report.problem = f"the task's solution raises {_told(error)} for {name}"
                return
            try:
                value = function(*given)
            except _FAILURES as error:
                self.report.put(name, _told(error))
                continue
            try:
                is_right = _is_right(entry, given, value, expected, calls["atol"], self._own)
            except _FAILURES as error:
                self.report.put(name, _told(error))
                continue
            self.report.put(name, None if is_right else _wrong(value, expected, given))


def _wrong(value, expected, given):
    try:
        return f"{_short(value)} instead of {_short(expected)} for {_short(given)}"
    except _FAILURES:
        return "it is wrong"  # and enormous, or an object of the candidate that refuses


def _short(value):
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _is_right(entry, given, value, expected, atol, own):
    """Compares by EvalPlus's rules: equal, or floats that are near."""
    rule = _RULES.get(entry)
    if rule == "root" and "_poly" in own:
        return abs(own["_poly"](*copy.deepcopy(given), value)) <= max(atol, 1e-4)
    if rule == "root" and "poly" in own:
        return abs(own["poly"](*copy.deepcopy(given), value)) <= max(atol, 1e-4)
    if rule == "set":
        return set(value) == set(expected)
    if rule == "found":
        found = [one if type(one) is bool else one is not None for one in (value, expected)]
        return found[0] == found[1]
    if value == expected:
        return True
    if atol == 0 and _has_floats(expected):
        atol = 1e-6
    return atol != 0 and _is_near(value, expected, atol)


_RULES = {"find_zero": "root", "check_str": "found", "text_match_three": "found", "text_starta_endb": "found"}
_RULES |= dict.fromkeys(
    (
        "similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum",
        "intersection_array", "find_dissimilar", "Diff",
    ),
    "set",
)


def _has_floats(value):
    if isinstance(value, (list, tuple)):
        return bool(value) and all(_has_floats(item) for item in value)
    return isinstance(value, float)


def _is_near(value, expected, atol):
    if isinstance(expected, (list, tuple)):
        if type(value) is not type(expected) or len(value) != len(expected):
            return False
        return all(_is_near(one, other, atol) for one, other in zip(value, expected))
    if isinstance(expected, float) and type(value) in (int, float):
        return math.isclose(value, expected, rel_tol=1e-7, abs_tol=atol)
    return value == expected


def _collector(report, unittest):
    """Returns a result of unittest that writes to the report."""

    class Collector(unittest.TestResult):
        def _name(self, test):
            return f"{type(test).__name__}.{getattr(test, '_testMethodName', test)}"

        def addSuccess(self, test):
            report.put(self._name(test), None)

        def addFailure(self, test, error):
            report.put(self._name(test), _told(error[1]))

        addError = addFailure

        def addSubTest(self, test, subtest, error):
            if error is not None:
                report.put(self._name(test), _told(error[1]))

        def addExpectedFailure(self, test, error):
            report.put(self._name(test), None)

        def addUnexpectedSuccess(self, test):
            report.put(self._name(test), "it passed unexpectedly")

        def addSkip(self, test, reason):
            report.put(self._name(test), f"it was skipped: {reason}")

    return Collector()


def judge(task_text):
    """Runs the tests of a task against the candidate at the other end; returns the report as text."""
    task = from_text(task_text)
    link = Link(exchange_by_host, task["in_place"])
    try:
        loaded = link.begin()
        if loaded is not None:
            return to_text({"load": loaded[:_LONGEST_MESSAGE]})
        suite = Suite(task, link.name)
        suite.run()
    except CandidateGone as error:
        return to_text({"gone": str(error)})
    except Malformed as error:
        return to_text({"load": str(error)[:_LONGEST_MESSAGE]})
    suite.report.is_complete &= not link.is_broken
    return suite.report.message()
