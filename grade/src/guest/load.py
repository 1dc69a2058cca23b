"""Runs a candidate's code as a module, beside which its tests will run."""


def load(code):
    import sys
    import types

    module = sys.modules["solution"] = types.ModuleType("solution")
    exec(compile(code, "<solution>", "exec"), module.__dict__)
