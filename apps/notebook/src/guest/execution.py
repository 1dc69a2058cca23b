"""Runs source in the notebook's namespace, and passes values of expressions to the display hook."""

import __future__
import ast
import linecache
import sys

from hatchery._agent import run_coroutine
from hatchery._compile import awaits

# Compiler flags of every `from __future__ import …`.
FUTURE = 0
for _name in __future__.all_feature_names:
    FUTURE |= getattr(__future__, _name).compiler_flag
# Which expressions of a cell are displayed.
INTERACTIVITIES = ("all", "last", "last_expr", "none", "last_expr_or_assign")

# The imports from `__future__` so far, which apply to all later cells.
future = 0


def namespace():
    return sys.modules["__main__"].__dict__


def parse(source, filename):
    """Parses a source, and registers its lines for tracebacks."""
    linecache.cache[filename] = len(source), None, source.splitlines(True), filename
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | future
    return compile(source, filename, "exec", flags, dont_inherit=True)


def run_code(tree, filename, mode, names):
    """Runs a part of a program, and returns the value if it is an expression."""
    global future
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | future
    code = compile(tree, filename, mode, flags, dont_inherit=True)
    future |= code.co_flags & FUTURE
    value = eval(code, names)
    return run_coroutine(value) if awaits(code) else value


def run_shown(tree, filename, interactivity):
    """Runs a program, and passes the values that `interactivity` selects to `sys.displayhook`."""
    nodes, names = tree.body, namespace()
    if not nodes:
        return
    if interactivity == "last_expr_or_assign":
        name = assigned(nodes[-1])
        if name is not None:
            nodes.append(ast.copy_location(ast.Expr(ast.copy_location(name, nodes[-1])), nodes[-1]))
        interactivity = "last_expr"
    if interactivity == "last_expr":
        interactivity = "last" if isinstance(nodes[-1], ast.Expr) else "none"
    shown = {"all": len(nodes), "last": 1, "none": 0}[interactivity]
    quiet, shown = nodes[: len(nodes) - shown], nodes[len(nodes) - shown :]
    if quiet:
        run_code(ast.Module(quiet, tree.type_ignores), filename, "exec", names)
    for node in shown:
        run_code(ast.Interactive([node]), filename, "single", names)


def assigned(node):
    """Returns a node that reads the name a statement assigns to; `None` unless it is one name."""
    if isinstance(node, ast.Assign):
        target = node.targets[-1]
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        target = node.target
    else:
        return None
    return ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else None


def run_value(source, filename, names=None):
    """Runs a program and returns the value of its last expression, or `None`."""
    tree = parse(source, filename)
    names = namespace() if names is None else names
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    if tree.body:
        run_code(tree, filename, "exec", names)
    return None if last is None else run_code(last, filename, "eval", names)
