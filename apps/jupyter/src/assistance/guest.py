"""Answers what a prompt or a front end asks a session: for completions and descriptions of names, and
whether an input is complete.

Installed in each session as the module `hatchery_prompt`. Names are looked up without running code
of the program: no property, no `__getattr__`, no `__dir__`, no `__repr__`.
"""

import builtins
import keyword
import sys
import types

# Attributes that C types compute without running code of a program.
COMPUTED = (types.GetSetDescriptorType, types.MemberDescriptorType)
MISSING = object()
MOST_NAMES = 1000

# Types whose texts run no code of a program, and those whose lengths don't.
PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))
COUNTED = (list, tuple, dict, set, frozenset, bytearray)
# Types of functions that aren't written in Python.
BUILT_IN = (
    types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.MethodDescriptorType, types.ClassMethodDescriptorType,
)
LONGEST_TEXT = 1000
LONGEST_DOC = 100_000
# Flags of code with `*args` and `**kwargs`.
VARIABLE, KEYWORDS = 4, 8

# What comes before the code of `%time` and `%timeit`, if anything.
MAGIC = r"(\s*%\w+\s+(-[nr]\s*\d+\s+)*)?"
compiler = None

ancestors_of = type.__dict__["__mro__"].__get__
names_of_class = type.__dict__["__dict__"].__get__
names_of_module = types.ModuleType.__dict__["__dict__"].__get__


def complete(dotted):
    """Returns the names that the last part of a dotted name could become, sorted."""
    *path, begun = dotted.split(".")
    names = attributes_of(value_of(path)) if path else top_names()
    found = {name for name in names if type(name) is str and name.startswith(begun)}
    if not path:
        found |= {word for word in keyword.kwlist if word.startswith(begun)}
    if not begun.startswith("_"):
        found = {name for name in found if not name.startswith("_")}
    return sorted(name for name in found if name.isidentifier())[:MOST_NAMES]


def modules(begun):
    """Returns the modules whose names begin so, as far as they are known without looking for them."""
    known = {*sys.stdlib_module_names, *(name.partition(".")[0] for name in list(sys.modules))}
    known = {name for name in known if name.startswith(begun) and name.isidentifier()}
    return sorted(known if begun.startswith("_") else {n for n in known if not n.startswith("_")})


def magics(begun, is_cell):
    """Returns the magics of a notebook whose names begin so."""
    shell = sys.modules.get("hatchery_notebook.shell")
    if shell is None:
        return []
    table = shell.shell.cell_magics if is_cell else shell.shell.line_magics
    return sorted(name for name in list(table) if type(name) is str and name.startswith(begun))


def value_of(path):
    """Returns what the parts of a dotted name refer to."""
    value = top_names().get(path[0], MISSING)
    for name in path[1:]:
        value = attribute_of(value, name)
    return value


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


def describe(dotted, with_source):
    """Describes what a dotted name refers to; `None` if it refers to nothing."""
    path = dotted.split(".")
    value = value_of(path)
    if value is MISSING:
        return None
    owner = value_of(path[:-1]) if path[1:] else MISSING
    kind = type(value)
    if kind in (staticmethod, classmethod):
        value = value.__func__
    is_bound = kind is classmethod or kind is not staticmethod and is_instance(owner)
    lines = []
    signature = signature_of(value, is_bound)
    if signature is not None:
        lines.append(f"Signature: {path[-1]}{signature}")
    lines.append(f"Type:      {name_of(type(value))}")
    shown = shown_of(value)
    if shown is not None:
        lines.append(f"Value:     {shown}")
    source = source_of(value) if with_source else None
    if source is not None:
        return "\n".join([*lines, "Source:", source])
    doc = attribute_of(value, "__doc__")
    if type(doc) is str and doc.strip():
        import inspect

        lines += ["Docstring:", inspect.cleandoc(doc[:LONGEST_DOC])]
    return "\n".join(lines)


def is_instance(owner):
    kind = type(owner)
    return owner is not MISSING and not issubclass(kind, (type, types.ModuleType))


def name_of(kind):
    name = type.__dict__["__name__"].__get__(kind)
    return name if type(name) is str else "type"


def shown_of(value):
    """Returns the text of a value whose text needs no code of the program."""
    if type(value) in PLAIN:
        text = repr(value)
        return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "..."
    if type(value) in COUNTED:
        return "1 element" if len(value) == 1 else f"{len(value)} elements"
    return None


def signature_of(value, is_bound):
    """Returns the parameters of a function or a class, in brackets."""
    if type(value) is types.MethodType:
        return signature_of(value.__func__, True)
    if type(value) is types.FunctionType:
        return parameters_of(value, is_bound)
    if issubclass(type(value), type):
        begin = attribute_of(value, "__init__")
        if type(begin) is types.FunctionType:
            return parameters_of(begin, True)
        text = type.__dict__["__text_signature__"].__get__(value)
    elif type(value) in BUILT_IN:
        text = value.__text_signature__
    else:
        return None
    if type(text) is not str:
        return None
    for first in ("$self, ", "$module, ", "$type, ", "$self", "$module", "$type"):
        text = text.replace(first, "")
    return text


def parameters_of(function, is_bound):
    code = function.__code__
    count, only = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    defaults = function.__defaults__ or ()
    parts = []
    for at, name in enumerate(names[:count]):
        missing = count - len(defaults)
        parts.append(name if at < missing else f"{name}={default_of(defaults[at - missing])}")
        if at + 1 == code.co_posonlyargcount:
            parts.append("/")
    rest = count + only
    if code.co_flags & VARIABLE:
        parts.append("*" + names[rest])
        rest += 1
    elif only:
        parts.append("*")
    keywords = function.__kwdefaults__ or {}
    for name in names[count : count + only]:
        parts.append(f"{name}={default_of(keywords[name])}" if name in keywords else name)
    if code.co_flags & KEYWORDS:
        parts.append("**" + names[rest])
    return f"({', '.join(parts[is_bound and count > 0 :])})"


def default_of(value):
    text = shown_of(value) if type(value) in PLAIN else None
    return "..." if text is None else text


def source_of(value):
    """Returns the source of a function, if it is known."""
    if type(value) is types.MethodType:
        value = value.__func__
    if type(value) is not types.FunctionType:
        return None
    import inspect
    import linecache

    lines = linecache.getlines(value.__code__.co_filename)[value.__code__.co_firstlineno - 1 :]
    return "".join(inspect.getblock(lines)) if lines else None


def is_complete(code):
    """Says whether a cell is `complete`, `incomplete` or `invalid`, and how its next line begins."""
    if code.lstrip().startswith("%%"):
        return ["complete", ""]
    tree = parsed(translated(code))
    last = code.rpartition("\n")[2]
    if tree is False:
        return ["invalid", ""]
    if tree is not None and not (tree and is_block(tree.body[-1]) and last.strip()):
        return ["complete", ""]
    written = code.rstrip().rpartition("\n")[2]
    deeper = "    " if written.endswith(":") else ""
    return ["incomplete", written[: len(written) - len(written.lstrip())] + deeper]


def translated(code):
    """Returns a cell with its magics as Python."""
    translation = sys.modules.get("hatchery_notebook.translation")
    try:
        return translation.translate(code)[0] if translation else code
    except SyntaxError:
        return code


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
