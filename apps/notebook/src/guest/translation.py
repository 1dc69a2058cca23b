"""Translates a cell to Python: IPython's additions to the language become calls of `get_ipython()`,
as in IPython itself.

A line is translated only where a statement can begin: not inside brackets or strings, and not after
a backslash. Lines keep their numbers. `shell.py` has the methods that are called.
"""

import ast
import re
import textwrap
import tokenize

# Cell magics that run their body like the rest of the notebook.
RUNNERS = ("capture", "time", "timeit")
# Tokens that belong to no statement.
BETWEEN = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)

# The prompts of Python, of which the second is an expression where the first isn't, and of IPython.
PYTHON_PROMPT = re.compile(r"[ \t]*>>>(?: |$)", re.MULTILINE)
PYTHON_PROMPTS = re.compile(r"^[ \t]*(?:>>>|\.\.\.)(?: |$)", re.MULTILINE)
IPYTHON_PROMPTS = re.compile(r"^(?:(?:\[nav\]|\[ins\])? ?In \[\d+\]:(?: |$)|[ \t]*\.{3,}: ?)", re.MULTILINE)
CELL_MAGIC = re.compile(r"([ \t\n]*)%%([^\n]*)\n?(.*)", re.DOTALL)
NAMED = re.compile(r"([^\W\d][^ \t]*)(.*)", re.DOTALL)
HELP = re.compile(r"(\?{0,2})([^\W\d][\w.\[\]]*)(\?{0,2})")
ASSIGNED = re.compile(r"([\w \t,.\[\]]*[\w,.\[\]][ \t]*=)\s*([%!].*)", re.DOTALL)


def translate(cell):
    """Returns the cell as Python, and whether it ends with `;`, so that its last value isn't
    displayed."""
    cell = unprompted(undented(cell.removeprefix("\ufeff").replace("\r\n", "\n")))
    match = CELL_MAGIC.fullmatch(cell)
    name, arguments = named(match[2]) if match else (None, "")
    if name is None:
        return translate_lines(cell)
    # IPython ends each body with a line end.
    body, is_quiet = match[3], False
    body += "\n" if body and not body.endswith("\n") else ""
    if name in RUNNERS:
        body, is_quiet = translate(body)
    return "\n" * match[1].count("\n") + call_of("run_cell_magic", name, arguments, body), is_quiet


def undented(cell):
    """Returns a cell without the indentation that all its lines share."""
    return textwrap.dedent(cell) if cell.lstrip("\n")[:1] in (" ", "\t") else cell


def unprompted(cell):
    """Returns a cell without the prompts with which it was copied from a terminal."""
    beginning = cell.lstrip("\n").split("\n", 2)[:2]
    if any(map(IPYTHON_PROMPTS.match, beginning)):
        return IPYTHON_PROMPTS.sub("", cell)
    has_prompts = PYTHON_PROMPT.search(cell) and not CELL_MAGIC.match(cell)
    if has_prompts and not is_python(translate_lines(cell)[0]):
        return PYTHON_PROMPTS.sub("", cell)
    return cell


def is_python(source):
    try:
        compile(source, "", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError:
        return False
    return True


def translate_lines(cell):
    lines, last = cell.split("\n"), ""
    number = 0
    while number < len(lines):
        first, python = number, translated(lines[number])
        if python is None:
            number, token = statement(lines, first)
            last = token or last
            continue
        # Only these lines continue after a backslash, whatever they contain.
        joined = lines[number]
        while joined.endswith("\\") and number + 1 < len(lines):
            number += 1
            joined = joined[:-1] + lines[number]
        number += 1
        lines[first:number] = [translated(joined) or python] + [""] * (number - first - 1)
        last = joined.rstrip()[-1:]
    return "\n".join(lines), last == ";"


def statement(lines, first):
    """Returns the number of the line after the statement that begins at `first`, and its last token.
    A statement that isn't complete takes all lines, since Python then refuses the cell."""
    last = ""
    source = (lines[number] + "\n" for number in range(first, len(lines)))
    try:
        for token in tokenize.generate_tokens(source.__next__):
            if token.type == tokenize.NEWLINE or token.type == tokenize.NL and not last:
                return first + token.start[0], last
            if token.type not in BETWEEN:
                last = token.string
    except (tokenize.TokenError, SyntaxError):
        pass
    return len(lines), last


def translated(line):
    """Returns the translation of a line; `None` if it is Python."""
    content = line.lstrip(" \t")
    indentation, content = line[: len(line) - len(content)], content.rstrip()
    assigned = ASSIGNED.fullmatch(content)
    if assigned:
        call = magic_or_command(assigned[2], "getoutput")
        return call and f"{indentation}{assigned[1]} {call}"
    call = magic_or_command(content, "system") or helped(content)
    return call and indentation + call


def magic_or_command(content, runs):
    """Translates `%name arguments`, `!command` and `!!command`."""
    if content.startswith("!!"):
        return call_of("getoutput", content[2:])
    if content.startswith("!"):
        # No command begins with `!=`.
        return None if content.startswith("!=") else call_of(runs, content[1:])
    if not content.startswith("%"):
        return None
    # A second `%` is a cell magic that isn't at the top of its cell.
    mark = "%" if content.startswith("%%") else ""
    name, arguments = named(content[1 + len(mark) :])
    if name is None or name.endswith("?"):
        return None
    return call_of("run_line_magic", mark + name, arguments)


def helped(content):
    """Translates `?name`, `name?` and the same with two marks."""
    match = HELP.fullmatch(content)
    if not match or bool(match[1]) == bool(match[3]):
        return None
    return call_of("run_line_magic", "pinfo2" if "??" in content else "pinfo", match[2])


def named(text):
    """Splits the name of a magic from its arguments; the name is `None` if there is none."""
    match = NAMED.fullmatch(text.rstrip())
    return (match[1], match[2].strip()) if match else (None, "")


def call_of(method, *arguments):
    return f"get_ipython().{method}({', '.join(map(repr, arguments))})"
