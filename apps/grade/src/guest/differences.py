"""The order of sets, which differs from a machine with 64 bits and raises nothing.

Calls around expressions of a program note when it sees one.
"""

import ast
import linecache

# Calls by which a program sees the order of what it passes.
_ORDERED_BY = frozenset(
    "array asarray chain choice combinations dict enumerate extend filter from_iterable fromkeys iter join list map "
    "permutations print product repr sample Series str sum tuple zip DataFrame".split()
)
# Calls that return no set.
_UNORDERED_BY = frozenset("dict enumerate items len list map open range reversed sorted split tuple values zip".split())
_NO_SETS = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp, ast.GeneratorExp, ast.JoinedStr)
# The file of a program with standard input.
_PROGRAM = "main.py"
HASHES = "hashes have 32 bits there, on which the order of a set depends"
ORDER = f"it reached a limit of the sandbox: {HASHES}"
# No width changes the hashes of integers below.
_LARGEST_INT32 = (1 << 31) - 1


class _Watched(ast.NodeTransformer):
    """Puts calls around what may be a set."""

    def visit_Call(self, node):
        self.generic_visit(node)
        is_method = isinstance(node.func, ast.Attribute)
        name = node.func.attr if is_method else getattr(node.func, "id", "")
        if name in _ORDERED_BY:
            node.args = [arg if isinstance(arg, ast.Starred) else self._ordered(arg) for arg in node.args]
        elif is_method and name == "pop" and not node.args:
            node.func.value = self._ordered(node.func.value)
        return node

    def visit_For(self, node):
        self.generic_visit(node)
        node.iter = self._ordered(node.iter)
        return node

    def visit_Starred(self, node):
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = self._ordered(node.value)
        return node

    def visit_FormattedValue(self, node):
        self.generic_visit(node)
        node.value = self._ordered(node.value)
        return node

    visit_comprehension = visit_For

    def _ordered(self, node):
        name = getattr(getattr(node, "func", None), "attr", getattr(getattr(node, "func", None), "id", ""))
        if isinstance(node, _NO_SETS) or name in _UNORDERED_BY:
            return node
        return _called("__hatchery_ordered__", node)


def _called(name, node):
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), [node], []), node)


def keep_source(source, file):
    """Gives tracebacks and `inspect` the source of a program that is no file."""
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)


def watched(source, file):
    """Returns the code of a program that notes what differs."""
    keep_source(source, file)
    try:
        tree = ast.parse(source, file)
        has_sets = any(
            isinstance(node, (ast.Set, ast.SetComp)) or getattr(node, "id", "") in ("set", "frozenset")
            for node in ast.walk(tree)
        )
        watched = _Watched().visit(tree) if has_sets else tree
        return compile(ast.fix_missing_locations(watched), file, "exec")
    except RecursionError:
        return compile(source, file, "exec")


def ordered_noted(note):
    """Returns what calls `note` once a program sees the order of a set which depends on the width of hashes.

    Hashes of texts are random on other machines as well, so nothing that is right depends on them.
    """

    def ordered(value):
        if type(value) in (set, frozenset) and len(value) > 1 and any(map(_has_hash_of_width, value)):
            note()
        return value

    return ordered


def _has_hash_of_width(item):
    kind = type(item)
    if kind is int:
        return not -_LARGEST_INT32 < item < _LARGEST_INT32
    if kind is float:
        return item == item and not (item.is_integer() and abs(item) < _LARGEST_INT32)
    if kind in (tuple, frozenset):
        leaves = list(item)
        for leaf in leaves:
            if type(leaf) in (tuple, frozenset):
                leaves += leaf
        return all(type(leaf) in (int, float, bool, type(None), tuple, frozenset) for leaf in leaves)
    return kind is complex or kind.__module__ in ("decimal", "fractions")


def limit_met(source, scope):
    """Runs a program in `scope`. Returns the first limit of the sandbox that it meets; `None` without one."""
    met = []
    watch_limits((_PROGRAM,), met.append)
    scope["__hatchery_ordered__"] = ordered_noted(lambda: met.append(HASHES))
    try:
        exec(watched(source.removeprefix("\ufeff"), _PROGRAM), scope)
    except KeyboardInterrupt:
        raise
    except BaseException:
        pass  # it ends as it did before
    return met[0] if met else None
