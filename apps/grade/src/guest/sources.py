"""The source of tests: what it defines and asks for, and how its assertions become tests."""

import ast
import contextlib


class _Marker(ast.NodeTransformer):
    """Makes each assertion a test of its own, so that the others run after one that failed."""

    def __init__(self):
        self.count = 0

    def visit_Assert(self, node):
        self.count += 1
        return _within(node, "__hatchery_site__", self.count)

    def visit_Expr(self, node):
        # `numpy.testing.assert_equal(…)` and its like.
        called = node.value.func if isinstance(node.value, ast.Call) else None
        name = getattr(called, "attr", getattr(called, "id", ""))
        return self.visit_Assert(node) if name.startswith("assert") else node

    def _leave(self, node):
        # A `try` or a `with` may expect what an assertion raises.
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _leave
    visit_Try = visit_TryStar = visit_With = visit_AsyncWith = _leave


# Functions of Python that tests call by others, with their numbers of arguments.
_WATCHED_CALLS = (("type", 1), ("setattr", 3), ("delattr", 2))
_WITH_STATEMENTS = (ast.mod, ast.stmt, ast.excepthandler, ast.match_case)


class _Setter(ast.NodeTransformer):
    """Notes which attributes are set, of what has a name."""

    def visit_Assign(self, node):
        targets = getattr(node, "targets", None) or [node.target]
        for target in targets:
            if not isinstance(target, ast.Attribute):
                continue
            path = ast.unparse(target.value)
            if all(map(str.isidentifier, path.split("."))) and path.partition(".")[0] not in ("self", "cls"):
                owner = ast.parse(path, mode="eval").body
                return _within(node, "__hatchery_set__", [owner, ast.Constant(target.attr)])
        return node

    def visit(self, node):
        # Expressions set no attributes.
        return super().visit(node) if isinstance(node, _WITH_STATEMENTS) else node

    visit_AugAssign = visit_Delete = visit_Assign


def _within(node, name, given, body=None):
    """Returns a `with` around a statement, or around a body."""
    call = ast.Call(ast.Name(name, ast.Load()), given if type(given) is list else [ast.Constant(given)], [])
    return ast.copy_location(ast.With([ast.withitem(call)], body or [node]), node)


def _prepared(tree, check=None, marker=None):
    """Returns the source of tests ready to run: with marked assertions, in the module and in the function
    that checks a candidate, and with notes of which test functions the source itself calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            node.level = 0  # all modules stand side by side
        elif isinstance(node, ast.If):
            node.test = _Main().visit(node.test)
        elif isinstance(node, ast.Call) and (getattr(node.func, "id", ""), len(node.args)) in _WATCHED_CALLS:
            node.func.id = f"__hatchery_{node.func.id}__"
    for node in _functions(tree):
        if node.name == check or node.name.startswith("test"):
            if node.name == check and marker is not None:
                node.body = [marker.visit(inner) for inner in node.body]
            skipped = ast.get_docstring(node) is not None
            if node.body[skipped:]:
                body = _within(node.body[skipped], "__hatchery_call__", node.name, node.body[skipped:])
                node.body = [*node.body[:skipped], body]
    if marker is not None:
        tree.body = [marker.visit(node) for node in tree.body]
    return ast.fix_missing_locations(_Setter().visit(tree))


def _functions(tree):
    """Yields the functions of a module, also those under a condition, but none within others."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.stmt) and not isinstance(node, (ast.ClassDef, ast.AsyncFunctionDef)):
            yield from _functions(node)


class _Main(ast.NodeTransformer):
    """Makes `__name__ == "__main__"` true."""

    def visit_Compare(self, node):
        is_main = ast.unparse(node) in ("__name__ == '__main__'", "'__main__' == __name__")
        return ast.copy_location(ast.Constant(True), node) if is_main else node


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def _acts(tree):
    """Returns whether source does anything but to define."""
    return any(
        _acts(node) if isinstance(node, ast.ClassDef) else not _only_defines(node) for node in tree.body
    )


def _only_defines(node):
    if isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign)):
        # Marks and fixtures of pytest may be called.
        calls = [ast.unparse(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)]
        return all(call.startswith(("pytest.", "mark.", "fixture", "param")) for call in calls)
    return isinstance(node, (*_DEFINITIONS, ast.Pass))


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


def _imported_names(trees):
    """Returns the names that tests take from the module `solution`."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    modules = {"solution"}
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {each.asname for each in node.names if each.name == "solution" and each.asname}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "solution":
            yield from (alias.name for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in modules:
                yield node.attr


def _loaded(tree):
    """Returns the names that source reads, also in examples of its docstrings."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and ">>> " in node.value:
            for line in map(str.strip, node.value.splitlines()):
                with contextlib.suppress(SyntaxError):
                    names |= _loaded(ast.parse(line[4:])) if line.startswith(">>> ") else set()
    return names


def _quoted(tree):
    """Returns the names in the texts of source: of what is looked up by name, or run by `exec` or `eval`."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            with contextlib.suppress(SyntaxError, ValueError, RecursionError):
                names |= _loaded(ast.parse(node.value.strip()))
    return names


def _parsed(name, source):
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        verb = "isn't" if name != "tests" else "aren't"
        raise Unsupported(f"the {name} {verb} Python: {_told_syntax(error)}") from None


def _parsed_prompt(prompt):
    """Returns a prompt as source, with a body if its last function has none; `None` if it isn't Python."""
    for body in ("", "\n    pass\n", "\n        pass\n"):
        try:
            return ast.parse(prompt + body)
        except SyntaxError:
            continue
    return None


def _told_syntax(error):
    return f"{error.msg} (line {error.lineno})" if isinstance(error, SyntaxError) else str(error)
