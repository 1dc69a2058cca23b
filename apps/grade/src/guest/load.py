"""Runs a candidate's code as a module, beside which its tests will run."""


def load(code):
    import sys
    import types

    module = sys.modules["solution"] = types.ModuleType("solution")
    module.__file__ = "/workspace/solution.py"
    exec(compile(code.removeprefix("\ufeff"), "<solution>", "exec"), module.__dict__)
