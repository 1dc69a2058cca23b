"""`sed` of the shell, with most of what GNU's has."""

import os
import re

from hatchery._shell_commands import Usage, decoded, options
from hatchery._shell_grep import compiled


class Script:
    """The commands of `sed`."""

    def __init__(self, text, is_extended):
        self.text, self.at, self.is_extended, self.last_regex = text, 0, is_extended, None
        self.commands, self.labels, self.files = [], {}, set()
        opened = []
        while (one := self.command()) is not None:
            if one["name"] == "{":
                opened.append(one)
            elif one["name"] == "}":
                if not opened:
                    raise Usage("unexpected '}'")
                opened.pop()["end"] = len(self.commands)
            elif one["name"] == ":":
                self.labels[one["text"]] = len(self.commands)
            self.commands.append(one)
        if opened:
            raise Usage("unmatched '{'")
        for one in self.commands:
            if one["name"] in "btT" and one["text"] and one["text"] not in self.labels:
                raise Usage(f"undefined label '{one['text']}'")

    def skip(self, signs):
        while self.at < len(self.text) and self.text[self.at] in signs:
            self.at += 1

    def address(self):
        found = re.compile(r"(\d{1,9})~(\d{1,9})|\d{1,9}|\$").match(self.text, self.at)
        if found:
            self.at = found.end()
            if found[1]:
                return "step", int(found[1]), int(found[2])
            return ("last",) if found[0] == "$" else ("line", int(found[0]))
        sign = self.text[self.at : self.at + 1]
        if sign == "/" or sign == "\\" and self.at + 1 < len(self.text):
            self.at += 1 + (sign == "\\")
            source = self.until(self.text[self.at - 1], True)
            flags = re.compile("[IM]*").match(self.text, self.at)[0]
            self.at += len(flags)
            return "regex", self.regex(source, flags)
        return None

    def regex(self, source, flags=""):
        if not source:
            return None
        return compiled(source, self.is_extended, (re.I if "I" in flags or "i" in flags else 0) | (re.M if "M" in flags or "m" in flags else 0))

    def until(self, end, is_regex):
        """Returns the text up to a delimiter."""
        found = []
        in_class = False
        while self.at < len(self.text):
            sign = self.text[self.at]
            self.at += 1
            if sign == "\\" and self.at < len(self.text):
                behind = self.text[self.at]
                self.at += 1
                found.append(behind if behind == end and not (is_regex and behind in ".*[]^$+?(){}|") else "\\" + behind)
            elif sign == end and not in_class:
                return "".join(found)
            else:
                if is_regex and sign == "[" and not in_class and "]" in self.text[self.at + 1 :]:
                    in_class = True
                    start = self.at + (self.text[self.at : self.at + 1] == "^")
                    in_class_from = start + 1
                elif sign == "]" and in_class and self.at > in_class_from:
                    in_class = self.text[self.at - 2] == ":" and re.search(r"\[:\w+:\]$", self.text[: self.at]) is not None
                found.append(sign)
        raise Usage("unterminated command")

    def command(self):
        self.skip(" \t\n;")
        if self.at < len(self.text) and self.text[self.at] == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
            return self.command() if self.at < len(self.text) else None
        if self.at >= len(self.text):
            return None
        one = {"from": self.address(), "to": None, "is_negated": False, "is_active": False, "text": ""}
        self.skip(" \t")
        if one["from"] and self.text[self.at : self.at + 1] == ",":
            self.at += 1
            self.skip(" \t")
            plus = re.compile(r"([+~])(\d{1,9})").match(self.text, self.at)
            if plus:
                self.at = plus.end()
                one["to"] = plus[1], int(plus[2])
            else:
                one["to"] = self.address()
            if one["to"] is None:
                raise Usage("unexpected ','")
        self.skip(" \t")
        while self.text[self.at : self.at + 1] == "!":
            one["is_negated"] = True
            self.at += 1
            self.skip(" \t")
        name = one["name"] = self.text[self.at : self.at + 1]
        self.at += 1
        if not name:
            raise Usage("missing command")
        if name == "s":
            self.substitution(one)
        elif name == "y":
            end = self.text[self.at : self.at + 1]
            self.at += 1
            pair = [list(re.sub(r"\\(n|t|\\)", lambda match: {"n": "\n", "t": "\t", "\\": "\\"}[match[1]], self.until(end, False))) for _ in range(2)]
            if len(pair[0]) != len(pair[1]):
                raise Usage("strings for 'y' command are different lengths")
            one["table"] = str.maketrans(dict(zip(*pair)))
        elif name in "aic":
            self.skip(" \t")
            if self.text.startswith("\\", self.at):
                self.at += 1
                self.skip(" \t")
                self.at += self.text.startswith("\n", self.at)
            found = re.compile(r"(?:\\[\s\S]|[^\\\n])*").match(self.text, self.at)
            self.at = found.end()
            one["text"] = re.sub(r"\\([\s\S])", r"\1", found[0]) + "\n"
        elif name in ":btTrwRW":
            self.skip(" \t")
            found = re.compile("[^\n]*" if name in "rwRW" else r"[^\s;}]*").match(self.text, self.at)
            self.at, one["text"] = found.end(), found[0]
            if name == "w":
                self.files.add(found[0])
        elif name in "qQl":
            self.skip(" \t")
            found = re.compile(r"\d{0,3}").match(self.text, self.at)
            self.at, one["code"] = found.end(), int(found[0] or 0)
        elif name not in "{}=dDgGhHnNpPxzF":
            raise Usage(f"unsupported command {name}")
        if name not in "{aic":
            self.skip(" \t")
            if self.text[self.at : self.at + 1] not in ("", ";", "\n", "}", "#"):
                raise Usage(f"extra characters after command {name}")
        return one

    def substitution(self, one):
        end = self.text[self.at : self.at + 1]
        if not end or end in "\\\n":
            raise Usage("bad delimiter of s")
        self.at += 1
        source, new = self.until(end, True), self.until(end, False)
        flags = re.compile(r"(?:[gpIiMme]|\d{1,6})*").match(self.text, self.at)[0]
        self.at += len(flags)
        if "e" in flags:
            raise Usage("the flag e of s isn't available")
        one["regex"], one["flags"] = self.regex(source, flags), flags
        number = re.search(r"\d+", flags)
        one["number"] = int(number[0]) if number else 1
        if self.text[self.at : self.at + 1] == "w":
            found = re.compile("w[ \t]*([^\n]*)").match(self.text, self.at)
            self.at, one["file"] = found.end(), found[1]
            self.files.add(found[1])
        one["new"] = self.replacement(new, one["regex"].groups if one["regex"] else 9)

    def replacement(self, text, groups):
        parts, at = [], 0
        while at < len(text):
            sign = text[at]
            at += 1
            if sign == "&":
                parts.append(0)
            elif sign == "\\" and at < len(text):
                sign = text[at]
                at += 1
                if sign.isdigit() and sign < ":":
                    if int(sign) > groups:
                        raise Usage(f"invalid reference \\{sign} on s command's RHS")
                    parts.append(int(sign))
                elif sign in "ULEul":
                    parts.append((sign,))
                else:
                    parts.append({"n": "\n", "t": "\t", "r": "\r"}.get(sign, sign))
            else:
                parts.append(sign)
        return parts


def filled(parts, match):
    found, case, once = [], "", ""
    for part in parts:
        if isinstance(part, tuple):
            case, once = (part[0], once) if part[0] in "ULE" else (case, part[0])
            continue
        text = (match[part] or "") if isinstance(part, int) else part
        text = text.upper() if case == "U" else text.lower() if case == "L" else text
        if once and text:
            text = (text[0].upper() if once == "u" else text[0].lower()) + text[1:]
            once = ""
        found.append(text)
    return "".join(found)


class Editor:
    """Runs a script of `sed` over lines."""

    def __init__(self, call, script, is_quiet):
        self.call, self.script, self.is_quiet = call, script, is_quiet
        self.number, self.hold, self.code, self.out = 0, "", None, call.out
        self.files = {name: call.shell.open(name, ">") for name in script.files}

    def run(self, lines):
        """Runs it over the lines that a generator reads."""
        self.lines, self.ahead = lines, None
        for one in self.script.commands:
            one["is_active"] = False
        self.ahead = yield from self.lines()
        restart = None
        while restart is not None or self.ahead is not None:
            if restart is None:
                self.space, self.end = yield from self.read()
            else:
                self.space = restart
            self.later, restart = [], None
            kind = yield from self.cycle()
            if kind == "D":
                restart = self.space.partition("\n")[2]
            elif not self.is_quiet and kind not in ("d", "Q"):
                self.out(self.space + self.end)
            self.flush()
            if self.code is not None:
                return

    def flush(self):
        for text in self.later:
            if callable(text):
                text()
            else:
                self.out(text)
        self.later = []

    def read(self):
        line, self.number = self.ahead, self.number + 1
        self.ahead = yield from self.lines()
        return line.removesuffix("\n"), "\n" if line.endswith("\n") or self.ahead is not None else ""

    def fits(self, address):
        kind = address[0]
        if kind == "line":
            return self.number == address[1]
        if kind == "step":
            first, step = address[1:]
            return self.number == first if not step else self.number >= first and (self.number - first) % step == 0
        if kind == "last":
            return self.ahead is None
        return self.search(address[1], self.space) is not None

    def search(self, regex, text):
        if regex is None:
            regex = self.script.last_regex
            if regex is None:
                raise Usage("no previous regexp")
        self.script.last_regex = regex
        return regex.search(text)

    def applies(self, one):
        start, end = one["from"], one["to"]
        if start is None:
            return True
        if end is None:
            return self.fits(start) != one["is_negated"]
        if one["is_active"]:
            found, kind = True, end[0]
            if kind == "line" and self.number >= end[1]:
                one["is_active"] = False
                found = self.number == end[1]
                if not found:
                    found = self.begins(one)
            elif kind in "+~":
                one["is_active"] = self.number < one["last"]
            elif kind != "line" and self.fits(end):
                one["is_active"] = False
        else:
            found = self.begins(one)
        return found != one["is_negated"]

    def begins(self, one):
        start, end = one["from"], one["to"]
        if start == ("line", 0):
            # `0,/re/`
            if one.get("is_over") or self.number > 1:
                return False
            one["is_over"] = True
            one["is_active"] = not self.fits(end)
            return True
        if not self.fits(start):
            return False
        if end[0] == "+":
            one["last"] = self.number + end[1]
        elif end[0] == "~":
            one["last"] = -(-self.number // end[1]) * end[1] if end[1] else self.number
        one["is_active"] = self.number < (end[1] if end[0] == "line" else one["last"] if end[0] in "+~" else 1 << 60)
        if end[0] == "last" and self.ahead is None:
            one["is_active"] = False
        return True

    def cycle(self):
        commands, at, is_changed, steps = self.script.commands, 0, False, 0
        while at < len(commands):
            one = commands[at]
            at += 1
            steps += 1
            if not steps % 1000:
                yield
            if not self.applies(one):
                if one["name"] == "{":
                    at = one["end"]
                continue
            name = one["name"]
            if name == "s":
                is_changed |= self.substitute(one)
            elif name == "d":
                return "d"
            elif name == "D":
                return "D" if "\n" in self.space else "d"
            elif name == "p":
                self.out(self.space + "\n")
            elif name == "P":
                self.out(self.space.partition("\n")[0] + "\n")
            elif name in "nN":
                if self.ahead is None:
                    return "d" if name == "n" and self.is_quiet else "last"
                if name == "n":
                    if not self.is_quiet:
                        self.out(self.space + "\n")
                    self.flush()
                before = self.space
                self.space, self.end = yield from self.read()
                if name == "N":
                    self.space = f"{before}\n{self.space}"
            elif name in "bt" or name == "T":
                if name == "b" or is_changed == (name == "t"):
                    at = self.script.labels[one["text"]] if one["text"] else len(commands)
                if name != "b":
                    is_changed = False
            elif name == "a":
                self.later.append(one["text"])
            elif name == "i":
                self.out(one["text"])
            elif name == "c":
                if one["to"] is None or not one["is_active"] or one["is_negated"]:
                    self.out(one["text"])
                return "d"
            elif name == "=":
                self.out(f"{self.number}\n")
            elif name in "qQ":
                self.code = one["code"]
                return "Q" if name == "Q" else "q"
            elif name == "r":
                self.later.append(lambda name=one["text"]: self.insert(name))
            elif name == "w":
                self.files[one["text"]].write(f"{self.space}\n".encode("utf-8", "surrogateescape"))
            elif name == "l":
                self.out(re.sub(r"[\\\x00-\x1f]", lambda found: {"\n": "\\n", "\t": "\\t", "\\": "\\\\"}.get(found[0], f"\\{ord(found[0]):03o}"), self.space) + "$\n")
            else:
                self.hold_or_take(name, one)
        return ""

    def hold_or_take(self, name, one):
        if name == "h":
            self.hold = self.space
        elif name == "H":
            self.hold += "\n" + self.space
        elif name == "g":
            self.space = self.hold
        elif name == "G":
            self.space += "\n" + self.hold
        elif name == "x":
            self.space, self.hold = self.hold, self.space
        elif name == "y":
            self.space = self.space.translate(one["table"])
        elif name == "z":
            self.space = ""

    def insert(self, name):
        try:
            with open(self.call.path(name), "rb") as file:
                self.out(decoded(file.read()))
        except OSError:
            pass

    def substitute(self, one):
        if self.search(one["regex"], self.space) is None:
            return False
        regex, count, space = self.script.last_regex, 0, self.space
        found, at, last, is_changed = [], 0, None, False
        for match in regex.finditer(space):
            if not match[0] and match.start() == last:
                continue
            last = match.end()
            count += 1
            if count < one["number"]:
                continue
            found.append(space[at : match.start()] + filled(one["new"], match))
            at, is_changed = match.end(), True
            if "g" not in one["flags"]:
                break
        if not is_changed:
            return False
        self.space = "".join(found) + space[at:]
        if "p" in one["flags"]:
            self.out(self.space + "\n")
        if "file" in one:
            self.files[one["file"]].write(f"{self.space}\n".encode("utf-8", "surrogateescape"))
        return True


def sed(call, args):
    args = list(args)
    for at, arg in enumerate(args):
        if re.fullmatch(r"-i.+|--in-place(=.*)?", arg) and not re.fullmatch(r"-i[nErs]+", arg) or arg == "-i":
            args[at] = "-I" + (arg[2:] if arg[:2] == "-i" else arg.partition("=")[2])
            if args[at] == "-I":
                args[at] = "-i"
    given, rest = options(args, "nErsiuz", "efI", {"expression": "e", "file": "f", "quiet": "n", "silent": "n", "regexp-extended": "E"})
    pieces = list(given.get("e", []))
    for name in given.get("f", []):
        for _, text in (yield from call.texts([name])):
            pieces.append(text.removesuffix("\n"))
    if not pieces:
        if not rest:
            raise Usage("a script is missing")
        pieces = [rest.pop(0)]
    text = "\n".join(pieces)
    is_quiet = "n" in given or text.startswith("#n\n")
    is_extended = bool({"E", "r"} & given.keys())
    if "i" not in given and "I" not in given and "s" not in given:
        editor = Editor(call, Script(text, is_extended), is_quiet)
        sources = call.sources(rest)
        current = []

        def lines():
            while True:
                if not current:
                    one = next(sources, None)
                    if one is None:
                        return None
                    current.append(one[1])
                line = yield from current[0].line()
                if line:
                    return decoded(line)
                current.clear()

        yield from editor.run(lines)
        sources.close()
        finish(call, editor)
        return call.status if editor.code is None else editor.code
    for name, stream in call.sources(rest):
        editor = Editor(call, Script(text, is_extended), is_quiet)
        written = []
        if "s" not in given:
            editor.out = written.append

        def lines():
            line = yield from stream.line()
            return decoded(line) if line else None

        yield from editor.run(lines)
        if "s" not in given:
            if editor.code is not None:
                written.append(decoded((yield from stream.all())))
                if editor.ahead is not None:
                    written.insert(-1, editor.ahead)
            path = call.path(name)
            if given.get("I"):
                os.replace(path, path + given["I"][0])
            with open(path, "wb") as file:
                file.write("".join(written).encode("utf-8", "surrogateescape"))
        finish(call, editor)
    return call.status


def finish(call, editor):
    for stream in editor.files.values():
        if stream not in call.shell.streams.values():
            stream.close()


COMMANDS = {"sed": sed}
