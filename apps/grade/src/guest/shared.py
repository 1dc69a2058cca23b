"""Tests beside their candidate, for tasks whose tests need one interpreter.

This can't be guarded: a candidate that knows how this works can pass. What is cheap to notice is
noticed: names of modules that tests rely on which are no longer what they were.
"""

_WATCHED = (
    "builtins", "json", "math", "os", "sys", "time", "types", "unittest", "unittest.case",
    "unittest.loader", "unittest.mock", "unittest.result", "unittest.suite",
)
# What programs change without meaning harm.
_FREE = {
    "sys": {
        "argv", "last_exc", "last_traceback", "last_type", "last_value", "modules", "path",
        "path_importer_cache", "ps1", "ps2", "stderr", "stdin", "stdout",
    },
    "builtins": {"_", "__warningregistry__"},
    # What it says in processes of the sandbox's `multiprocessing`.
    "os": {"getpid"},
    # What `mock_open` keeps.
    "unittest.mock": {"file_spec", "open_spec"},
}


def snapshot(_=None):
    """Returns the identities of what tests rely on, by name."""
    import sys

    seen = {}
    for module_name in _WATCHED:
        __import__(module_name)
        free = _FREE.get(module_name, ())
        for name, value in list(vars(sys.modules[module_name]).items()):
            if name in free or name.startswith("__warning"):
                continue
            seen[f"{module_name}.{name}"] = id(value)
            if isinstance(value, type) and module_name.startswith("unittest"):
                for inner, attribute in list(vars(value).items()):
                    seen[f"{module_name}.{name}.{inner}"] = id(attribute)
    seen["the trace function"] = 0 if sys.gettrace() is None else 1
    seen["the profile function"] = 0 if sys.getprofile() is None else 1
    return seen


def judge_beside(task_text, token):
    """Runs the tests; returns the report with what must not have changed before and after."""
    import sys

    before = snapshot()
    task = from_text(task_text)
    scope = vars(sys.modules["solution"])
    limits, failed = [], []
    source_of = lambda name, _: [scope[name]] if name in scope else []
    suite = Suite(task, source_of, scope, meet=limits.append)
    sources = "".join([task["setup"], *task["tests"]])

    def doubt():
        return next(filter(None, [*limits, scope.get("__hatchery_order__"), float_errors_lacking(sources)]), None)

    # Whether what failed came before a doubt, so that it decides.
    suite.report.note = lambda: failed.append(doubt() is None)
    watch_limits((_TESTS, _SOLUTION), limits.append)
    try:
        suite.run()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        suite.report.interrupt("tests", f"{type(error).__name__}: {error}")
    report = from_text(suite.report.message())
    if not any(failed) and (failed or limits):
        report |= {"undecided": f"it reached a limit of the sandbox: {doubt()}", "limit": doubt()}
    # What the tests have changed isn't the candidate's.
    after = snapshot() | {name: before[name] for name in suite.changed_names & before.keys()}
    return to_text([token, to_text(report), before, after])
