"""Which tests of a task passed, and what is reported of those that didn't."""

import sys

# Failures that are described, and the length of a description.
_MOST_FAILURES = 20
_LONGEST_MESSAGE = 300
# What fails one test and lets the others run.
_FAILURES = (Exception, SystemExit, CandidateExit, Malformed, Refused, Skip, Fail, ExpectedFailure)
# Items of a list that are looked at.
_MOST_ITEMS = 100
# Names of files in tracebacks: of tests, and of a candidate whose tests run beside it.
_TESTS, _SOLUTION = "<tests", "<solution>"


class Report:
    """Which tests passed."""

    def __init__(self):
        self._tests = {}
        self._skipped = {}
        self.is_complete = True
        self.problem = None
        # Is called when a test failed.
        self.note = lambda: None

    def declare(self, name):
        """Counts a test, which hasn't passed so far."""
        self._tests.setdefault(name, None)

    def put(self, name, failure):
        """Notes that a test passed (`None`) or failed. A test that failed once has failed."""
        if failure:
            self.note()
        if self._tests.get(name) is None or not self._tests[name]:
            self._tests[name] = failure or ""

    def skip(self, name, reason, group=None):
        """Notes that a test, or all of a group that weren't reached, count neither way."""
        names = [name]
        if group is not None:
            waiting = [each for each, failure in self._tests.items() if failure is None]
            names = [each for each in waiting if each.startswith(group)]
        for each in names:
            if not self._tests.get(each):
                self._tests.pop(each, None)
        self._skipped[name] = reason

    def interrupt(self, name, failure):
        """Notes that the tests couldn't go on."""
        self.note()
        self.is_complete = False
        self._tests[name] = failure

    def has_tests(self):
        """Returns whether there are tests, reached or not."""
        return bool(self._tests)

    def is_reached(self):
        """Returns whether any test ran."""
        return any(failure is not None for failure in self._tests.values())

    def forgive(self):
        """Counts each `assert` that wasn't reached as passed, in tests that ran to their end."""
        if self.is_complete:
            for name, failure in self._tests.items():
                if failure is None and name.startswith("assert "):
                    self._tests[name] = ""

    def message(self):
        """Returns the report as text."""
        if not self._tests and self.problem is None:
            self.problem = "the task has no tests"
            if self._skipped:
                name, reason = next(iter(self._skipped.items()))
                self.problem = f"all tests are skipped; `{name}`: {reason}"
        failures = [
            [name[:100], ("it wasn't reached" if failure is None else failure)[:_LONGEST_MESSAGE]]
            # What failed before what wasn't reached because of it.
            for name, failure in sorted(self._tests.items(), key=lambda test: test[1] is None)
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
    if isinstance(error, (CandidateExit, Malformed, Refused, Fail)):
        return text  # their names mean nothing to a reader
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _frames(error):
    """Yields the files and lines of an exception's traceback, from the outside in."""
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next


def _misusing(error):
    """Returns the library whose code failed with an object of another library that is the candidate's, which
    natively is no stand-in."""
    frames, traceback = [], error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    exchange = _told.__code__.co_filename
    while frames and frames[-1].f_code.co_filename == exchange:
        frames.pop()  # the candidate's interpreter has raised it
    own = (_TESTS, "<task>", exchange)
    name = str(frames[-1].f_globals.get("__name__")).partition(".")[0] if frames else ""
    if not frames or frames[-1].f_code.co_filename.startswith(own) or name in _JUDGING:
        return None
    for frame in frames:
        if not frame.f_code.co_filename.startswith(own):
            owner = frame.f_locals.get("self")
            held = {} if type(type(owner)) is StandInClass else getattr(owner, "__dict__", {})
            if any(map(_is_foreign, [*frame.f_locals.values(), *held.values()])):
                return name
    return None


def _is_foreign(value):
    """Returns whether a value stands for an object of the candidate whose class a library defines."""
    if type(value) in (list, tuple):
        return any(type(type(item)) is StandInClass and _is_foreign(item) for item in value[:_MOST_ITEMS])
    kind = type(value)
    return type(kind) is StandInClass and kind._hatchery_names[0] not in (*_OWN, "builtins")


def _is_good_exit(error):
    """Returns whether this is a `sys.exit()` of the tests that tells of no failure."""
    return isinstance(error, SystemExit) and error.code in (None, 0) and _raised_by_tests(error)


def _raised_by_tests(error):
    """Returns whether the tests themselves raised this, in no call of the candidate."""
    of_others = {_SOLUTION, _told.__code__.co_filename}
    for file in reversed([file for file, _ in _frames(error)]):
        if file.startswith(_TESTS):
            return True
        if file in of_others:
            break
    return False
