"""Regular expressions of the shell's commands, and `grep`.

They are POSIX's, translated to Python's: of alternatives the first that matches counts, not the longest.
"""

import fnmatch
import os
import re

from hatchery._shell_commands import Usage, decoded, number_in, options
from hatchery._shell_words import class_of


def regex_of(text, is_extended):
    """Returns Python's regular expression for POSIX's basic or extended one."""
    found, at, opened = [], 0, 0
    special = "(){}|+?"
    while at < len(text):
        sign = text[at]
        at += 1
        if sign == "\\" and at < len(text):
            sign = text[at]
            at += 1
            if sign in special and not is_extended:
                if sign == "{" and (interval := re.compile(r"(\d{0,4}(?:,\d{0,4})?)\\}").match(text, at)):
                    found.append("{" + (interval[1] if interval[1][:1] != "," else "0" + interval[1]) + "}")
                    at = interval.end()
                elif sign == ")" and not opened:
                    raise Usage("Unmatched ) or \\)")
                else:
                    opened += {"(": 1, ")": -1}.get(sign, 0)
                    found.append(sign)
            elif sign in "wWsSbB123456789":
                found.append("\\" + sign)
            elif sign in "<>":
                found.append(r"\b(?=\w)" if sign == "<" else r"\b(?<=\w)")
            elif sign == "n":
                found.append("\n")
            elif sign == "t":
                found.append("\t")
            else:
                found.append(re.escape(sign))
        elif sign == "[":
            end = at + (text[at : at + 1] == "^")
            end += text[end : end + 1] == "]"
            while end < len(text) and text[end] != "]":
                inner = re.compile(r"\[:\w+:\]|\[[.=].[.=]\]").match(text, end)
                end = inner.end() if inner else end + 1
            if end >= len(text):
                raise Usage("Unmatched [, [^, [:, [., or [=")
            inner = text[at:end].replace("\\", "\\\\")
            if inner[:1] == "!":
                inner = "\\" + inner
            found.append(class_of(inner))
            at = end + 1
        elif sign == "*" and (not found or found[-1] in ("(", "|", "^") and not is_extended):
            found.append(r"\*")
        elif sign == "^" and not is_extended and found and found[-1] not in ("(", "|"):
            found.append(r"\^")
        elif sign == "$":
            is_end = at == len(text) or is_extended or text.startswith((r"\)", r"\|"), at)
            found.append(r"(?!\n)\Z" if is_end else r"\$")
        elif sign == "{" and is_extended:
            interval = re.compile(r"(\d{1,4}(?:,\d{0,4})?|,\d{1,4})}").match(text, at)
            found.append("{" + interval[1].replace(",", "0,", interval[1][0] == ",") + "}" if interval else r"\{")
            at = interval.end() if interval else at
        elif sign in special and not is_extended or sign == "}":
            found.append("\\" + sign)
        else:
            found.append(sign)
    # One repetition of a repetition is the same.
    text = re.sub(r"(?<!\\)([*+?])[*+]+", lambda match: "*" if match[1] != "+" else "+", "".join(found))
    return text


def compiled(text, is_extended, flags=0):
    try:
        return re.compile(regex_of(text, is_extended), flags)
    except (re.error, OverflowError) as error:
        raise Usage(f"bad regex '{text:.60}': {error}") from None
    except RecursionError:
        raise Usage("the regex is nested too deep") from None


def grep(call, args):
    if args and re.fullmatch(r"-\d+", args[0]):
        args = ["-C", args[0][1:], *args[1:]]
    given, rest = options(args, "EFGHILPRachilnoqrsvwxz", "efmABC*!/", {
        "recursive": "r", "ignore-case": "i", "line-number": "n", "invert-match": "v", "count": "c", "quiet": "q",
        "silent": "q", "extended-regexp": "E", "fixed-strings": "F", "only-matching": "o", "word-regexp": "w", "no-filename": "h",
        "files-with-matches": "l", "files-without-match": "L", "line-regexp": "x", "regexp": "e", "max-count": "m", "include": "*",
        "exclude": "!", "exclude-dir": "/", "color": "", "context": "C", "after-context": "A", "before-context": "B",
        "perl-regexp": "P", "with-filename": "H", "text": "a", "no-messages": "s", "file": "f",
    })
    if "s" in given:
        call.tell = lambda text: None
    patterns = list(given.get("e", []))
    for name in given.get("f", []):
        texts = yield from call.texts([name], 2)
        patterns += texts[0][1].splitlines() if texts else []
    if "e" not in given and "f" not in given:
        if not rest:
            raise Usage("a pattern is missing")
        patterns = rest.pop(0).split("\n")
    patterns = [piece for pattern in patterns for piece in pattern.split("\n")]
    is_extended = "E" in given or call.name == "egrep"
    flags = re.I if "i" in given else 0
    if "F" in given or call.name == "fgrep":
        sources = [re.escape(pattern) for pattern in patterns]
    elif "P" in given:
        sources = patterns
    else:
        sources = [compiled(pattern, is_extended).pattern for pattern in patterns]
    if "w" in given:
        sources = [rf"(?<!\w)(?:{source})(?!\w)" for source in sources]
    try:
        regex = re.compile("|".join(sources) if len(sources) == 1 else "|".join(f"(?:{source})" for source in sources) or "(?!)", flags)
    except (re.error, RecursionError) as error:
        raise Usage(f"bad regex: {error}") from None
    search = regex.fullmatch if "x" in given else regex.search
    numbers = {letter: number_in(given[letter][-1]) for letter in "mABC" if letter in given}
    before, after = numbers.get("B", numbers.get("C", 0)), numbers.get("A", numbers.get("C", 0))
    is_recursive = bool({"r", "R"} & given.keys())
    if is_recursive:
        rest = list(below(call, rest or ["."], given, not rest))
        if not rest:
            return 1
    is_named = ("H" in given or len(rest) > 1 or is_recursive) and "h" not in given
    any_found, is_first_group = False, True
    for name, stream in call.sources(rest, 2):
        shown = "(standard input)" if name == "-" else name
        head = f"{shown}:" if is_named else ""
        count, number, last, waiting, left = 0, 0, 0, [], 0
        is_binary = False
        while line := (yield from stream.line()):
            number += 1
            is_binary = is_binary or b"\0" in line and "a" not in given
            text = decoded(line).removesuffix("\n")
            if bool(search(text)) == ("v" in given):
                if left:
                    left -= 1
                    call.out(f"{head[:-1] + '-' if head else ''}{f'{number}-' if 'n' in given else ''}{text}\n")
                    last = number
                elif before:
                    waiting = [*waiting, (number, text)][-before:]
                continue
            count += 1
            any_found = True
            if "q" in given:
                return 0
            if {"l", "L"} & given.keys():
                break
            if "c" not in given:
                if is_binary and "o" not in given:
                    call.out(f"Binary file {shown} matches\n")
                    break
                if (before or after) and not is_first_group and number - len(waiting) > last + 1 or (before or after) and last == 0 and not is_first_group:
                    call.out("--\n")
                is_first_group = False
                for at, one in waiting:
                    call.out(f"{head[:-1] + '-' if head else ''}{f'{at}-' if 'n' in given else ''}{one}\n")
                waiting, last, left = [], number, after
                mark = f"{head}{f'{number}:' if 'n' in given else ''}"
                if "o" not in given:
                    call.out(f"{mark}{text}\n")
                elif "v" not in given:
                    for match in [search(text)] if "x" in given else regex.finditer(text):
                        if match[0]:
                            call.out(f"{mark}{match[0]}\n")
            if count == numbers.get("m"):
                break
        if "c" in given:
            call.out(f"{head}{count}\n")
        if "l" in given and count or "L" in given and not count:
            call.out(f"{shown}\n")
    if call.status:
        return 0 if any_found and "q" in given else 2
    return int(not any_found)


def below(call, names, given, is_here):
    """Returns the files below folders, but for those that `--include` and its kin leave out."""
    fits = lambda name, letter: any(fnmatch.fnmatchcase(name, pattern) for pattern in given.get(letter, ()))
    for name in names:
        path = call.path(name)
        if not os.path.isdir(path):
            yield name
            continue
        for folder, folders, files in os.walk(path):
            folders[:] = sorted(inner for inner in folders if not fits(inner, "/"))
            inner = os.path.relpath(folder, path)
            prefix = name.rstrip("/") if inner == "." else f"{name.rstrip('/')}/{inner}"
            for file in sorted(files):
                if ("*" not in given or fits(file, "*")) and not fits(file, "!"):
                    yield file if is_here and prefix == "." else f"{prefix.removeprefix('./') if is_here else prefix}/{file}"


COMMANDS = {"grep": grep, "egrep": grep, "fgrep": grep}
