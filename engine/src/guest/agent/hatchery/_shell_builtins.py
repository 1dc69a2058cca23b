"""The commands that change the shell itself, such as `cd` and `export`."""

import os
import re

from hatchery._shell_grammar import parse
from hatchery._shell import HOME, MOST_CALLS, SPECIAL, Leave
from hatchery._shell_words import ShellError

NAME = re.compile(r"[A-Za-z_]\w*", re.A)
OPTIONS = {"errexit": "e", "nounset": "u", "xtrace": "x", "noglob": "f", "noclobber": "C", "allexport": "a"}


def write(shell, text):
    if 1 in shell.streams:
        shell.streams[1].write(text.encode("utf-8", "surrogateescape"))


def complain(shell, name, text, status=1):
    shell.tell(f"sh: {name}: {text}")
    return status


def number_of(args, default, name):
    if not args:
        return default
    if not re.fullmatch(r"\d{1,9}", args[0]):
        raise ShellError(f"{name}: Illegal number: {args[0]:.40}")
    return int(args[0])


def cd(shell, args):
    args = [arg for arg in args if arg not in ("-L", "-P", "--")]
    name = args[0] if args else shell.variables.get("HOME", HOME)
    if name == "-":
        name = shell.variables.get("OLDPWD", shell.folder)
        write(shell, f"{name}\n")
    path = os.path.normpath(os.path.join(shell.folder, name)) if name else shell.folder
    if not os.path.isdir(path):
        return complain(shell, "cd", f"can't cd to {name}", 2)
    shell.variables["OLDPWD"], shell.variables["PWD"], shell.folder = shell.folder, path, path
    return 0


def pwd(shell, args):
    write(shell, f"{shell.folder}\n")
    return 0


def export(shell, args):
    is_undone = args[:1] == ["-n"]
    args = [arg for arg in args if arg not in ("-p", "-n", "--")]
    if not args:
        for name in sorted(shell.exported & shell.variables.keys()):
            write(shell, f"export {name}={quoted(shell.variables[name])}\n")
    for arg in args:
        name = named(shell, arg, "export")
        (shell.exported.discard if is_undone else shell.exported.add)(name)
    return 0


def quoted(text):
    return "'" + text.replace("'", "'\"'\"'") + "'"


def named(shell, arg, command):
    """Returns the name of `NAME` or `NAME=VALUE`, and sets the value."""
    name, sign, value = arg.partition("=")
    if not NAME.fullmatch(name):
        raise ShellError(f"{command}: {name}: bad variable name")
    if sign:
        shell.set(name, value)
    return name


def readonly(shell, args):
    args = [arg for arg in args if arg != "-p"]
    if not args:
        for name in sorted(shell.fixed):
            write(shell, f"readonly {name}={quoted(shell.variables.get(name, ''))}\n")
    shell.fixed |= {named(shell, arg, "readonly") for arg in args}
    return 0


def local(shell, args):
    if not shell.locals:
        raise ShellError("local: not in a function")
    for arg in args:
        if arg[:1] == "-":
            continue
        name = arg.partition("=")[0]
        shell.locals[-1].setdefault(name, shell.variables.get(name))
        named(shell, arg, "local")
    return 0


def declare(shell, args):
    if any(re.fullmatch("-[a-zA-Z]*[aA]", arg) for arg in args):
        raise ShellError("declare: arrays are not available in this shell")
    if shell.locals:
        return local(shell, args)
    names = [named(shell, arg, "declare") for arg in args if arg[:1] != "-"]
    if any(re.fullmatch("-[a-z]*x", arg) for arg in args):
        shell.exported.update(names)
    if any(re.fullmatch("-[a-z]*r", arg) for arg in args):
        shell.fixed.update(names)
    return 0


def unset(shell, args):
    for arg in args:
        if arg in shell.fixed:
            raise ShellError(f"unset: {arg}: is read only")
        if "-f" not in args:
            shell.variables.pop(arg, None)
            shell.exported.discard(arg)
        if "-v" not in args and ("-f" in args or arg not in shell.variables):
            shell.functions.pop(arg, None)
    return 0


def set_options(shell, args):
    if not args:
        for name in sorted(shell.variables):
            write(shell, f"{name}={quoted(shell.variables[name])}\n")
    args = list(args)
    while args and args[0][:1] in ("-", "+") and len(args[0]) > 1:
        option = args.pop(0)
        if option == "--":
            shell.arguments = args
            return 0
        change = shell.options.add if option[0] == "-" else shell.options.discard
        for letter in option[1:]:
            if letter != "o":
                if letter not in "abefhmnuvxBCEH":
                    raise ShellError(f"set: Illegal option -{letter}")
                change(letter)
            elif args:
                name = args.pop(0)
                if name not in OPTIONS and name not in ("pipefail", "posix", "verbose", "vi", "emacs"):
                    raise ShellError(f"set: Illegal option -o {name:.40}")
                change(OPTIONS.get(name, name))
    if args:
        shell.arguments = args
    return 0


def shift(shell, args):
    count = number_of(args, 1, "shift")
    if count > len(shell.arguments):
        raise ShellError("shift: can't shift that many")
    del shell.arguments[:count]
    return 0


def leave(what, name):
    def left(shell, args):
        if what == "function" or what == "shell":
            status = number_of(args, shell.status, name)
            raise Leave(what, status & 0xFF)
        raise Leave(what, 0, max(number_of(args, 1, name), 1))

    return left


def evaluate(shell, args):
    text = " ".join(args)
    shell.calls += 1
    if shell.calls > MOST_CALLS:
        raise ShellError("eval: commands call each other too deep")
    shell.status = 0
    try:
        yield from shell.script(text)
    finally:
        shell.calls -= 1
    return shell.status


def execute(shell, args):
    if not args:
        return 0
    yield from shell.call(args)
    raise Leave("shell", shell.status)


def source(shell, args):
    if not args:
        raise ShellError(".: filename argument required")
    path = shell.path(args[0])
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise ShellError(f".: cannot open {args[0]}: {error.strerror}") from None
    before = shell.arguments
    if len(args) > 1:
        shell.arguments = args[1:]
    try:
        return (yield from evaluate(shell, [text]))
    except Leave as left:
        if left.what != "function":
            raise
        return left.status
    finally:
        shell.arguments = before


def trap(shell, args):
    if args[:1] == ["--"]:
        args = args[1:]
    if len(args) < 2:
        if not args and shell.trap:
            write(shell, f"trap -- {quoted(shell.trap)} EXIT\n")
        return 0
    # No other signal reaches a command.
    if {"EXIT", "0"} & set(args[1:]):
        parse(args[0])
        shell.trap = None if args[0] == "-" else args[0]
    return 0


def kind_of(shell, name):
    if name in shell.functions:
        return "function", ""
    kind, found = shell.find(name)
    if kind in ("command", "python", "shell"):
        folder, _, base = name.rpartition("/")
        return "program", name if folder else ("/usr/bin/" if kind == "python" else "/bin/") + base
    return {"builtin": "builtin", "file": "program"}.get(kind, ""), found if kind == "file" else ""


KEYWORDS = frozenset("if then elif else fi for do done while until case esac in { } !".split())


def describe(shell, args):
    status = 0
    for name in args:
        kind, path = kind_of(shell, name)
        if name in KEYWORDS:
            write(shell, f"{name} is a shell keyword\n")
        elif kind == "function":
            write(shell, f"{name} is a shell function\n")
        elif kind == "builtin":
            write(shell, f"{name} is a {'special ' * (name in SPECIAL)}shell builtin\n")
        elif kind:
            write(shell, f"{name} is {path}\n")
        else:
            shell.tell(f"{name}: not found")
            status = 127
    return status


def command(shell, args):
    args = list(args)
    asked = ""
    while args and args[0][:1] == "-" and len(args[0]) > 1:
        option = args.pop(0)
        if option == "--":
            break
        asked += option[1:]
    if not args:
        return 0
    if "V" in asked:
        return describe(shell, args)
    if "v" in asked:
        kind, path = kind_of(shell, args[0])
        if not kind and args[0] not in KEYWORDS:
            return 127
        write(shell, f"{path or args[0]}\n")
        return 0
    functions, shell.functions = shell.functions, {}
    try:
        yield from shell.call(args)
    finally:
        shell.functions = functions | shell.functions
    return shell.status


def read(shell, args):
    args, is_raw = list(args), False
    while args and args[0][:1] == "-" and len(args[0]) > 1:
        option = args.pop(0)
        is_raw |= "r" in option
        if option[-1] in "pdntu" and args:
            args.pop(0)
    stream = shell.streams.get(0)
    line, is_whole = [], False
    while stream is not None:
        text = (yield from stream.line()).decode("utf-8", "surrogateescape")
        is_whole = text.endswith("\n")
        at, text = 0, text.removesuffix("\n")
        is_continued = False
        while at < len(text):
            if text[at] == "\\" and not is_raw:
                at += 1
                if at < len(text):
                    line.append((text[at], True))
                else:
                    is_continued = is_whole
            else:
                line.append((text[at], False))
            at += 1
        if not is_continued:
            break
    separators = shell.variables.get("IFS", " \t\n")
    white = [sign for sign in separators if sign in " \t\n"]
    names = args or ["REPLY"]
    at = 0
    is_white = lambda at: at < len(line) and not line[at][1] and line[at][0] in white
    while is_white(at):
        at += 1
    for name in names[:-1]:
        start = at
        while at < len(line) and (line[at][1] or line[at][0] not in separators):
            at += 1
        shell.set(name, "".join(sign for sign, _ in line[start:at]))
        while is_white(at):
            at += 1
        if at < len(line) and not line[at][1] and line[at][0] in separators and line[at][0] not in white:
            at += 1
            while is_white(at):
                at += 1
    rest = line[at:]
    while rest and not rest[-1][1] and rest[-1][0] in white:
        rest.pop()
    others = [sign for sign, is_quoted in rest if not is_quoted and sign in separators and sign not in white]
    if len(others) == 1 and rest[-1] == (others[0], False):
        rest.pop()
    shell.set(names[-1], "".join(sign for sign, _ in rest))
    return 0 if is_whole else 1


def getopts(shell, args):
    if len(args) < 2:
        return complain(shell, "getopts", "usage: getopts OPTIONS NAME [ARGUMENTS]", 2)
    allowed, name = args[:2]
    words = args[2:] or shell.arguments
    at, inner = int(shell.variables.get("OPTIND", "1")), int(shell.variables.get("_OPTAT", "1"))
    word = words[at - 1] if 0 < at <= len(words) else ""
    shell.variables.pop("OPTARG", None)
    if inner == 1 and (word[:1] != "-" or word in ("-", "--") or not word):
        shell.set("OPTIND", str(at + (word == "--")))
        shell.set(name, "?")
        return 1
    letter, found = word[inner], "?"
    inner += 1
    if letter in allowed.replace(":", ""):
        found = letter
        if allowed[allowed.index(letter) + 1 :][:1] == ":":
            value = word[inner:]
            inner = len(word)
            if not value:
                at += 1
                if at > len(words):
                    found = ":" if allowed[:1] == ":" else "?"
                    value = letter
                    if found == "?":
                        shell.tell(f"{shell.name}: No arg for -{letter} option")
                else:
                    value = words[at - 1]
            shell.set("OPTARG", value)
    elif allowed[:1] == ":":
        shell.set("OPTARG", letter)
    else:
        shell.tell(f"{shell.name}: Illegal option -{letter}")
    if inner >= len(word):
        at, inner = at + 1, 1
    shell.set("OPTIND", str(at))
    shell.variables["_OPTAT"] = str(inner)
    shell.set(name, found)
    return 0


def let(shell, args):
    value = 0
    for arg in args:
        value = shell.sum(arg)
    return int(not value)


def umask(shell, args):
    if not args:
        write(shell, "0022\n")
    return 0


BUILTINS = {
    ":": lambda shell, args: 0, "cd": cd, "pwd": pwd, "export": export, "readonly": readonly, "local": local,
    "declare": declare, "typeset": declare, "unset": unset, "set": set_options, "shift": shift,
    "exit": leave("shell", "exit"), "return": leave("function", "return"), "break": leave("break", "break"),
    "continue": leave("continue", "continue"), "eval": evaluate, "exec": execute, ".": source, "source": source,
    "trap": trap, "type": describe, "command": command, "read": read, "getopts": getopts, "let": let, "umask": umask,
    **dict.fromkeys(("wait", "times", "hash", "shopt", "alias", "unalias", "jobs", "disown", "ulimit"), lambda shell, args: 0),
}
