"""Answers what the prompt asks a session: for completions, and whether an input is complete.

Installed in each session as the module `hatchery_prompt`. Names are looked up without running code
of the program: no property, no `__getattr__`, no `__dir__`.
"""

import builtins
import keyword
import sys
import types

# Attributes that C types compute without running code of a program.
COMPUTED = (types.GetSetDescriptorType, types.MemberDescriptorType)
MISSING = object()
MOST_NAMES = 1000

# What comes before the code of `%time` and `%timeit`, if anything.
MAGIC = r"(\s*%\w+\s+(-[nr]\s*\d+\s+)*)?"
compiler = None

ancestors_of = type.__dict__["__mro__"].__get__
names_of_class = type.__dict__["__dict__"].__get__
names_of_module = types.ModuleType.__dict__["__dict__"].__get__


def complete(dotted):
    """Returns the names that the last part of a dotted name could become, sorted."""
    *path, begun = dotted.split(".")
    names = top_names()
    if path:
        value = names.get(path[0], MISSING)
        for name in path[1:]:
            value = attribute_of(value, name)
        names = attributes_of(value)
    found = {name for name in names if type(name) is str and name.startswith(begun)}
    if not path:
        found |= {word for word in keyword.kwlist if word.startswith(begun)}
    if not begun.startswith("_"):
        found = {name for name in found if not name.startswith("_")}
    return sorted(name for name in found if name.isidentifier())[:MOST_NAMES]


def top_names():
    return {**builtins.__dict__, **names_of_module(sys.modules["__main__"])}


def attributes_of(value):
    """Returns the attributes by name; those of the value itself come before those of its class."""
    if value is MISSING:
        return {}
    kinds = [type(value)]
    if issubclass(type(value), type):
        kinds.append(value)
    names = {}
    for kind in kinds:
        for one in reversed(ancestors_of(kind)):
            names.update(names_of_class(one))
    names.update(own_names(value))
    return names


def own_names(value):
    """Returns the `__dict__` of a value that is not a class."""
    if issubclass(type(value), type):
        return {}
    for one in ancestors_of(type(value)):
        found = names_of_class(one).get("__dict__")
        if found is not None:
            own = found.__get__(value) if type(found) in COMPUTED else None
            return own if type(own) is dict else {}
    return {}


def attribute_of(value, name):
    """Returns an attribute, if that needs no code of the program."""
    found = attributes_of(value).get(name, MISSING)
    if type(found) in COMPUTED and name not in own_names(value):
        try:
            return found.__get__(value)
        except Exception:
            return MISSING
    return MISSING if type(found) is property else found


def judge(before, typed):
    """Says what a typed line makes of the lines before it.

    `open`: they go on. `block`: they go on until an empty line. `whole`: they are complete, or wrong.
    `apart`: they have ended before it. The line may be several, which are judged by the last.
    """
    import re

    text = before + typed
    text = text[re.match(MAGIC, text).end() :]
    before = text[: len(text) - len(typed)] if before else ""
    line = typed.partition("\n")[0]
    if before and line.strip() and line[0] not in " \t\f#":
        block = last_block(before)
        if block and parsed(block + line, "single") is False:
            return "apart"
    tree = parsed(text)
    if tree is None:
        return "open"
    has_content = text.rpartition("\n")[2].strip()
    return "block" if tree and is_block(tree.body[-1]) and has_content else "whole"


def last_block(text):
    """Returns the last statement of a text, if it is a block to which a line could be added."""
    last = text.rstrip().rpartition("\n")[2]
    indentation = last[: len(last) - len(last.lstrip())]
    for content in ("", indentation + " pass\n"):
        tree = parsed(text + content)
        if tree and is_block(tree.body[-1]):
            lines = [part.lineno for part in (tree.body[-1], *decorators(tree.body[-1]))]
            return "".join(text.splitlines(keepends=True)[min(lines) - 1 :])
    return None


def is_block(statement):
    return hasattr(statement, "body") or hasattr(statement, "cases")


def decorators(statement):
    return getattr(statement, "decorator_list", [])


def parsed(text, symbol="exec"):
    """Returns the tree of a text, `None` if it is incomplete, and `False` if it is wrong."""
    global compiler
    if compiler is None:
        import ast
        import codeop

        compiler = codeop.CommandCompiler()
        compiler.compiler.flags |= ast.PyCF_ONLY_AST
    try:
        return compiler(text, "<input>", symbol)
    except (SyntaxError, ValueError, OverflowError, RecursionError):
        return False
