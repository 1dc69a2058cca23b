"""Runs a candidate's code as a module, beside which its tests will run."""


def load(code):
    """Returns the limit of the sandbox that keeps the code from running; `None` if it has run."""
    import sys
    import types

    module = sys.modules["solution"] = types.ModuleType("solution")
    module.__file__ = "/workspace/solution.py"
    try:
        keep_source(code, module.__file__)
        code = watched(code.removeprefix("\ufeff"), "<solution>")
        module.__hatchery_ordered__ = ordered_noted(lambda: setattr(module, "__hatchery_order__", HASHES))
        exec(code, module.__dict__)
    except Exception as error:
        limit = limit_of(error)
        if limit is None:
            raise
        return limit
