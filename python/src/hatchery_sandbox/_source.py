"""Functions as programs: by name if a sandbox can import them, as source otherwise."""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import inspect
import json
import sys
import textwrap
import types
from collections.abc import Callable, Collection
from typing import Any

_FUTURE_ANNOTATIONS = "from __future__ import annotations\n"


class UnsendableError(TypeError):
    """A function can't be sent to a sandbox; the text says why and what to do."""


def importable_name(function: Callable[..., Any], modules: Collection[str]) -> str | None:
    """Returns `module:name` for a function that sandboxes can import; these modules and those of
    the standard library can be."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not module or not name or "." in name or "<" in name:
        return None
    top = module.partition(".")[0]
    if top not in modules and top not in sys.stdlib_module_names:
        return None
    if top in ("__main__", "builtins"):
        return f"builtins:{name}" if top == "builtins" else None
    return f"{module}:{name}" if getattr(sys.modules.get(module), name, None) is function else None


@functools.lru_cache(maxsize=256)
def source_of(function: types.FunctionType) -> str:
    """Returns a program that defines a function and the functions, modules and constants of its
    module that it uses.

    Raises:
        UnsendableError: It can't be sent.
    """
    pieces: dict[str, str] = {}
    _collect(function, pieces, is_asked_for=True)
    is_lazy = function.__code__.co_flags & _annotations_flag()
    return (_FUTURE_ANNOTATIONS if is_lazy else "") + "\n".join(pieces.values())


def check(function: object) -> types.FunctionType:
    """Returns the function if it is a plain one.

    Raises:
        UnsendableError: It is a method, a class, a partial, or anything else.
    """
    name = getattr(function, "__qualname__", None) or repr(function)
    if inspect.ismethod(function):
        raise _refusal(name, "it is a method, whose object stays here", "send a plain function")
    if isinstance(function, functools.partial):
        raise _refusal(name, "it is a partial", "pass all arguments to submit")
    if not isinstance(function, types.FunctionType):
        raise _refusal(name, f"it is a {type(function).__name__}", "send a plain function")
    if function.__name__ == "<lambda>":
        raise _refusal(name, "a lambda has no source of its own", "define it with `def`")
    if function.__closure__:
        free = ", ".join(function.__code__.co_freevars)
        raise _refusal(
            name, f"it is a closure over {free}, which stays here", "pass that as an argument"
        )
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise _refusal(name, "it is no plain function", "send one that returns its result")
    return function


def _refusal(name: str, why: str, remedy: str) -> UnsendableError:
    return UnsendableError(f"`{name}` can't be sent to a sandbox: {why}; {remedy}")


def _collect(
    function: types.FunctionType, pieces: dict[str, str], is_asked_for: bool = False
) -> None:
    """Adds a function's definition and what it needs, in an order in which each is defined before
    it is used."""
    name = function.__name__
    if name in pieces:
        return
    tree, text = _definition(function)
    if isinstance(tree, ast.FunctionDef) and tree.decorator_list and is_asked_for:
        raise _refusal(name, "it has decorators, which may need more", "send what it calls")
    pieces[name] = ""  # functions may call each other
    own = pieces.pop(name)
    pieces[f"{name} "] = own
    for used in sorted(_globals_used(function.__code__) | _names_in_defaults(tree)):
        if used in function.__globals__:
            _add_global(function, used, function.__globals__[used], pieces)
        elif not hasattr(builtins, used):
            raise _refusal(name, f"it uses `{used}`, which isn't defined", "define it")
    del pieces[f"{name} "]
    pieces[name] = text


def _add_global(
    function: types.FunctionType, name: str, value: object, pieces: dict[str, str]
) -> None:
    if name in pieces or f"{name} " in pieces:
        return
    if isinstance(value, types.ModuleType):
        pieces[name] = f"import {value.__name__} as {name}"
        if value.__name__ == name.partition(".")[0]:
            pieces[name] = f"import {name}"
        return
    module = getattr(value, "__module__", None)
    if isinstance(value, (types.FunctionType, type, types.BuiltinFunctionType)):
        actual = getattr(value, "__qualname__", name)
        top = (module or "").partition(".")[0]
        is_own = module == function.__module__
        if isinstance(value, types.FunctionType) and is_own:
            if value.__name__ != name:
                raise _refusal(function.__name__, f"`{name}` is another name of `{actual}`", "use that")
            _collect(check(value), pieces)
            return
        if module and not is_own and top not in ("__main__", "builtins") and "." not in actual:
            pieces[name] = f"from {module} import {actual} as {name}"
            return
    try:
        text = json.dumps(value, allow_nan=False)
        if json.loads(text) != value:
            raise ValueError
    except (TypeError, ValueError):
        raise _refusal(
            function.__name__,
            f"it uses `{name}`, a {type(value).__name__} of its module, which stays here",
            "pass it as an argument",
        ) from None
    pieces[name] = f"{name} = {value!r}"


def _definition(function: types.FunctionType) -> tuple[ast.stmt, str]:
    try:
        text = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError):
        raise _refusal(
            function.__qualname__, "its source isn't known", "define it in a file or a notebook"
        ) from None
    return tree, text


def _globals_used(code: types.CodeType) -> set[str]:
    used = {
        str(instruction.argval)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            used |= _globals_used(constant)
    return used


def _names_in_defaults(tree: ast.stmt) -> set[str]:
    if not isinstance(tree, ast.FunctionDef):
        return set()
    around: list[ast.AST] = [*tree.decorator_list, *tree.args.defaults]
    around += [default for default in tree.args.kw_defaults if default is not None]
    inner = (node for part in around for node in ast.walk(part))
    return {node.id for node in inner if isinstance(node, ast.Name)}


def _annotations_flag() -> int:
    import __future__

    return __future__.annotations.compiler_flag
