"""Compiles a program to code that runs it, and code for the value that it ends in.

Every program could be compiled through its syntax tree. For a short one that takes longer than all
the rest, so no tree is made where the last line tells enough.

The host keeps what programs compile to that run again and again, and sends it with them. Such code
is made ahead, by `code_of`, in an interpreter that runs nothing else.
"""

import __future__
import _imp
import ast
import re
import types
from sys import audit

from hatchery._wire import BYTE_ORDER_MARK, decode_request, encode_request

# Compiler flags of every `from __future__ import …`.
FUTURE_FLAGS = 0
for _name in __future__.all_feature_names:
    FUTURE_FLAGS |= getattr(__future__, _name).compiler_flag
# Set in code that creates a coroutine when it is called (`inspect.CO_COROUTINE`).
COROUTINE = 0x80
# Where a program that awaits leaves its value at its end, until the value is taken.
RESULT = "__hatchery_result__"
# The name in code that was made ahead; most programs have it anyway.
USUAL_NAME = "<job>"
# Larger integers aren't code that is made ahead: a program can limit how long literals may be, to
# no less than 640 digits.
MOST_BITS = 2000

# The strings in a line without `\`, three quotes in a row, or `{` together with a string.
find_texts = re.compile(r"'[^']*'|\"[^\"]*\"").sub
# The beginning of a line that is certainly no expression: a keyword, or targets and `=`. Before the
# `=` there is neither a call nor a `lambda`, so it doesn't belong to a parameter.
is_statement = re.compile(
    r"(?:import|from|def|class|if|elif|else|for|while|with|try|except|finally|pass|del|global"
    r"|nonlocal|assert|raise|return|break|continue)\b"
    r"|(?!.*\blambda\b)[\w .,:'\[\]+*/%&|^@-]*(?<![:<>!=])=(?!=)"
).match


def compile_program(source, filename, is_expression=False):
    """Returns the code of all but the last expression, and the code of that; each may be `None`.

    If the program awaits outside functions, the first code is all of it and leaves the value as
    `RESULT`; the second is then that name, or `None` without a last expression.
    """
    if is_expression:
        # `eval` skips leading blanks, too.
        source = source.lstrip(" \t")
        return None, compile(source, filename, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if is_one_assignment(source):
        return compile(source, filename, "exec", dont_inherit=True), None
    kind, at = end_of(source)
    if kind == "statement":
        return compile(source, filename, "exec", dont_inherit=True), None
    if kind == "expression":
        try:
            # Empty lines keep the line numbers.
            above = "\n" * source.count("\n", 0, at)
            last = compile(above + source[at:], filename, "eval", dont_inherit=True)
            body = compile(source[:at], filename, "exec", dont_inherit=True) if at else None
            return body, last
        except SyntaxError:
            pass  # the tree tells whether it is an expression, and which error to report
    return compile_tree(source, filename)


def code_of(source, is_expression):
    """Returns what the program compiles to, as bytes for `read_code`.

    Returns nothing if each run must compile the program itself: it is no valid program, compiling
    it gives a warning, or reading the code back would change it.
    """
    import warnings

    # The interpreter is reset after this.
    warnings.simplefilter("error")
    try:
        parts = parts_of(source.removeprefix(BYTE_ORDER_MARK), is_expression)
        code = encode_request(parts)
        return code if reads_back(parts, decode_request(code)) else b""
    except (SyntaxError, ValueError, RecursionError, MemoryError, Warning):
        return b""


def parts_of(source, is_expression=False):
    """Returns what `read_code` needs of a program: its code, and whether it leaves nothing."""
    body, last = compile_program(source, USUAL_NAME, is_expression)
    return body, last, leaves_nothing(body) and leaves_nothing(last)


def read_code(code, source, filename):
    """Returns what `compile_program` would, and whether the program leaves nothing."""
    # As compiling does, for the hooks of a session.
    audit("compile", source.encode(), filename)
    body, last, is_gone = decode_request(code)
    if filename != USUAL_NAME:
        for part in (body, last):
            if type(part) is types.CodeType:
                _imp._fix_co_filename(part, filename)
    # The agent compares it by identity.
    return body, RESULT if last == RESULT else last, is_gone


def reads_back(one, other):
    """Whether a constant is the same after `marshal`.

    That includes the order of a set, which a loop over a set of constants shows.
    """
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is types.CodeType:
        return one == other and reads_back(one.co_consts, other.co_consts)
    if kind is tuple or kind is frozenset:
        return len(one) == len(other) and all(map(reads_back, one, other))
    if kind is int:
        return one == other and one.bit_length() <= MOST_BITS
    return one == other


def is_one_assignment(source):
    """Whether the program is certainly a single line that begins with a name and ` = `."""
    name, equals, rest = source.partition(" = ")
    if not equals or not name.isidentifier():
        return False
    is_line = "\n" not in rest and "\r" not in rest and ";" not in rest
    return is_line and "await" not in rest and "async" not in rest


def end_of(source):
    """Returns what the last line certainly is: `statement`, `expression` or `unknown`.

    A statement may begin earlier. An expression comes with its beginning, and is one only if it can
    be compiled by itself. What a line is depends on what is open above it: brackets, a multi-line
    string, a `\\` at the end. At the end of a valid program nothing is open. So a line without `\\`
    or three quotes in a row, whose brackets match, begins where nothing is open.
    """
    end = len(source.rstrip(" \n"))
    at = source.rfind("\n", 0, end) + 1
    line = source[at:end]
    if at > 1 and source[at - 2] in "\\\r" or "await" in source or "async" in source:
        return "unknown", 0
    if "__future__" in source or "\\" in line or "\r" in line or '"""' in line or "'''" in line:
        return "unknown", 0
    if line == "":
        return "statement", 0
    code = line
    if "'" in line or '"' in line:
        if "{" in line:
            return "unknown", 0
        code = find_texts("''", line)
    if "#" in code or ";" in code or code.count("(") != code.count(")"):
        return "unknown", 0
    if code.count("[") != code.count("]") or code.count("{") != code.count("}"):
        return "unknown", 0
    if line[:1] in (" ", "\t") or is_statement(code):
        return "statement", 0
    return "expression", at


def leaves_nothing(code):
    """Whether nothing remains of this code after its run that could show its lines.

    It defines no function, and catches no exception, whose traceback could be kept.
    """
    if code is None:
        return True
    if type(code) is not types.CodeType or code.co_exceptiontable:
        return False
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            return False
    return True


def awaits(code):
    """Whether running the code creates a coroutine, which must then be run."""
    return bool(code.co_flags & COROUTINE)


def compile_tree(source, filename):
    """Compiles any program, through its syntax tree."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(source, filename, "exec", ast.PyCF_ONLY_AST | flags, dont_inherit=True)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body.pop()
    body = compile(tree, filename, "exec", flags, dont_inherit=True)
    if last is None:
        return body, None
    # `from __future__ import …` at the top applies to the last expression, too.
    future = body.co_flags & FUTURE_FLAGS
    value = compile(ast.Expression(last.value), filename, "eval", flags | future, dont_inherit=True)
    if not awaits(body) and not awaits(value):
        return body, value
    # One part may await what the other began, so both form one coroutine.
    name = ast.copy_location(ast.Name(RESULT, ast.Store()), last)
    tree.body.append(ast.copy_location(ast.Assign([name], last.value), last))
    return compile(tree, filename, "exec", flags, dont_inherit=True), RESULT
