"""From a program's source to code that runs it, and code that gives the value it ends in.

A syntax tree would do for every program. It takes longer than all else that is done for a short
one, so that there is none where the last line tells enough.
"""

import __future__
import ast
import re

# Compiler flags of every `from __future__ import …`.
FUTURE_FLAGS = 0
for _name in __future__.all_feature_names:
    FUTURE_FLAGS |= getattr(__future__, _name).compiler_flag
# A code's flag: calling it makes a coroutine (`inspect.CO_COROUTINE`).
COROUTINE = 0x80
# The name that a program which awaits leaves its value in, from its end until that is taken.
RESULT = "__hatchery_result__"

# Texts of a line that has no `\`, no three quotes in a row, and no `{` if there is a text in it.
find_texts = re.compile(r"'[^']*'|\"[^\"]*\"").sub
# What a line begins with that is, whatever follows, no expression: a word, or targets and `=`. In
# front of a `=` there is neither a call nor a `lambda`, so that it is none of a parameter.
is_statement = re.compile(
    r"(?:import|from|def|class|if|elif|else|for|while|with|try|except|finally|pass|del|global"
    r"|nonlocal|assert|raise|return|break|continue)\b"
    r"|(?!.*\blambda\b)[\w .,:'\[\]+*/%&|^@-]*(?<![:<>!=])=(?!=)"
).match


def compile_program(source, filename, is_expression=False):
    """The code of all but the last expression, and the code of that; each may be `None`.

    A program that awaits outside of functions is in the first one alone, which leaves the value as
    `RESULT`; the second one then is that name, or `None` without a last expression.
    """
    if is_expression:
        # Blanks in front are skipped, as `eval` does.
        source = source.lstrip(" \t")
        return None, compile(source, filename, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if is_one_assignment(source):
        return compile(source, filename, "exec", dont_inherit=True), None
    kind, at = end_of(source)
    if kind == "statement":
        return compile(source, filename, "exec", dont_inherit=True), None
    if kind == "expression":
        try:
            # Empty lines keep the numbers of the lines.
            above = "\n" * source.count("\n", 0, at)
            last = compile(above + source[at:], filename, "eval", dont_inherit=True)
            body = compile(source[:at], filename, "exec", dont_inherit=True) if at else None
            return body, last
        except SyntaxError:
            pass  # its tree tells whether it is one, and how to say so
    return compile_tree(source, filename)


def is_one_assignment(source):
    """Whether the program certainly is one line that begins with a name and ` = `, and no more."""
    name, equals, rest = source.partition(" = ")
    if not equals or not name.isidentifier():
        return False
    is_line = "\n" not in rest and "\r" not in rest and ";" not in rest
    return is_line and "await" not in rest and "async" not in rest


def end_of(source):
    """What the last line certainly is: a `statement` or the end of one, or, if it can be compiled
    by itself, an `expression`, and where that begins; or `unknown`.

    What a line is depends on what is open above it: brackets, a text of many lines, a `\\` at the
    end. In a program that can be compiled nothing is open at the end. So a line without a `\\` and
    without three quotes in a row, whose brackets are closed in it, begins where nothing is open.
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


def awaits(code):
    """Whether running the code makes a coroutine, which has to be run."""
    return bool(code.co_flags & COROUTINE)


def compile_tree(source, filename):
    """Compiles any program, by way of its syntax tree."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(source, filename, "exec", ast.PyCF_ONLY_AST | flags, dont_inherit=True)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body.pop()
    body = compile(tree, filename, "exec", flags, dont_inherit=True)
    if last is None:
        return body, None
    # `from __future__ import …` at the top holds for the last expression as well.
    future = body.co_flags & FUTURE_FLAGS
    value = compile(ast.Expression(last.value), filename, "eval", flags | future, dont_inherit=True)
    if not awaits(body) and not awaits(value):
        return body, value
    # What is awaited in one part may have been begun in the other, so both are one coroutine.
    name = ast.copy_location(ast.Name(RESULT, ast.Store()), last)
    tree.body.append(ast.copy_location(ast.Assign([name], last.value), last))
    return compile(tree, filename, "exec", flags, dont_inherit=True), RESULT
