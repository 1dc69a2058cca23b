"""Words of the shell: their fields, patterns, braces and arithmetic, and the conditions of `test` and `[[ … ]]`."""

import os
import re
import stat

# The most words that braces stand for.
MOST_WORDS = 10_000
NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|\d+")
SIGNS = re.compile(r"<<=|>>=|\*\*|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%<>=!~&^|?:(),]")
LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))
VARIABLE = re.compile(r"[A-Za-z_]\w*", re.A)
CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s",
    "blank": " \t", "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9A-Fa-f", "print": " -~", "graph": "!-~", "cntrl": r"\x00-\x1f\x7f",
}
UNARY = frozenset("-e -f -d -r -w -x -s -L -h -n -z -t -p -S -b -c -u -g -k -v".split())
BINARY = frozenset("= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef".split())


class ShellError(Exception):
    """An error that ends a shell, or a subshell, with this status."""

    def __init__(self, text, status=2):
        super().__init__(text)
        self.status = status


def names_in(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def pattern_of(segments):
    """Returns the regular expression of a pattern; what is quoted in it has no meaning."""
    signs = [(sign, is_quoted) for text, is_quoted in segments for sign in text]
    found, at = [], 0
    while at < len(signs):
        sign, is_quoted = signs[at]
        at += 1
        if is_quoted:
            found.append(re.escape(sign))
        elif sign == "*":
            if found[-1:] != [".*"]:
                found.append(".*")
        elif sign == "?":
            found.append(".")
        elif sign == "[":
            end = at + 1 + (signs[at : at + 1] in ([("!", False)], [("^", False)]))
            while end < len(signs) and (signs[end] != ("]", False) or is_in_class(signs, at, end)):
                end += 1
            if end >= len(signs):
                found.append(r"\[")
                continue
            found.append(class_of("".join(("\\" if is_quoted and sign in "-]^\\" else "") + sign for sign, is_quoted in signs[at:end])))
            at = end + 1
        else:
            found.append(re.escape(sign))
    return "".join(found)


def is_in_class(signs, start, end):
    """Whether this `]` ends a `[:name:]` in a bracket expression."""
    text = "".join(sign for sign, _ in signs[start : end + 1])
    return bool(re.search(r"\[:\w+:\]$", text))


def class_of(text):
    """Returns the regular expression of a bracket expression, which is given without its brackets."""
    is_negated = text[:1] in ("!", "^")
    text = text[is_negated:]
    classes = re.split(r"\[:(\w+):\]", text)
    inner = "".join(CLASSES.get(part, "") if at % 2 else part.replace("[", r"\[").replace("]", r"\]").replace("&&", r"&\&") for at, part in enumerate(classes))
    try:
        re.compile(found := f"[{'^' * is_negated}{inner}]")
    except re.error:
        return "(?!)"
    return found




def braces(word):
    """Returns the words that a word with `{a,b}` or `{1..3}` stands for."""
    signs = []
    for part in word:
        signs += part[1] if part[0] == "text" and not part[2] else [part]
    if "{" not in [sign for sign in signs if isinstance(sign, str)]:
        return [word]
    return [joined(one) for one in alternatives(signs, [])]


def joined(signs):
    word, run = [], []
    for sign in [*signs, None]:
        if isinstance(sign, str):
            run.append(sign)
            continue
        if run:
            word.append(("text", "".join(run), False))
            run = []
        if sign is not None:
            word.append(sign)
    return word or [("text", "", True)]


def alternatives(signs, found):
    for start, sign in enumerate(signs):
        if sign != "{":
            continue
        depth, cuts = 0, [start]
        for at in range(start, len(signs)):
            depth += {"{": 1, "}": -1}.get(signs[at], 0) if isinstance(signs[at], str) else 0
            if signs[at] == "," and depth == 1:
                cuts.append(at)
            if not depth:
                break
        if depth:
            continue
        inner = signs[start + 1 : at]
        if len(cuts) > 1:
            cuts.append(at)
            choices = [signs[one + 1 : other] for one, other in zip(cuts, cuts[1:])]
            choices = [choice for one in choices for choice in alternatives(one, [])]
        else:
            text = "".join(sign if isinstance(sign, str) else "$" for sign in inner)
            steps = re.fullmatch(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(-?\d{1,9}))?", text)
            letters = re.fullmatch(r"([a-zA-Z])\.\.([a-zA-Z])", text)
            if steps:
                first, last, step = int(steps[1]), int(steps[2]), abs(int(steps[3] or 1)) or 1
                width = max(len(steps[1]), len(steps[2])) if re.match(r"-?0\d", steps[1]) or re.match(r"-?0\d", steps[2]) else 0
                if abs(last - first) // step >= MOST_WORDS:
                    raise ShellError(f"{{{text}}}: braces stand for more than {MOST_WORDS} words")
                numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
                choices = [list(f"{number:0{width}d}") for number in numbers]
            elif letters:
                first, last = ord(letters[1]), ord(letters[2])
                codes = range(first, last + 1) if first <= last else range(first, last - 1, -1)
                choices = [[chr(code)] for code in codes]
            else:
                continue
        rests = alternatives(signs[at + 1 :], [])
        if len(choices) * len(rests) > MOST_WORDS:
            raise ShellError(f"braces stand for more than {MOST_WORDS} words")
        return [[*signs[:start], *choice, *rest] for choice in choices for rest in rests]
    return [signs]


class Fields:
    """The fields of a word, as they grow: each is a list of texts and whether they are quoted."""

    def __init__(self, separators):
        self.separators, self.done, self.now = separators, [], None

    def add(self, text, is_quoted):
        if text or is_quoted:
            self.now = self.now or []
            self.now.append((text, is_quoted))

    def end(self):
        if self.now is not None:
            self.done.append(self.now)
        self.now = None

    def value(self, text, is_quoted):
        """Adds an expanded value, which is split unless it is quoted."""
        if is_quoted or not self.separators:
            return self.add(text, is_quoted)
        white = re.escape("".join(sign for sign in self.separators if sign in " \t\n"))
        other = re.escape("".join(sign for sign in self.separators if sign not in " \t\n"))
        blanks = f"[{white}]" if white else "(?!)"
        rest = re.sub(f"^{blanks}+", "", text)
        if rest != text:
            self.end()
        cut = f"{blanks}*[{other}]{blanks}*|{blanks}+" if other else f"{blanks}+"
        pieces = re.split(cut, rest) if rest else []
        for at, piece in enumerate(pieces):
            if at:
                if self.now is None and at < len(pieces):
                    self.now = []
                self.end()
            if piece:
                self.add(piece, False)

    def values(self, values, is_quoted):
        """Adds the fields of `$@`."""
        for at, value in enumerate(values):
            if at:
                self.end()
            self.value(value, is_quoted)

    def all(self):
        self.end()
        return self.done


def test_of(shell, args):
    """Whether the words of `test` are true."""
    if not args:
        return False
    if len(args) == 1:
        return bool(args[0])
    if len(args) == 2:
        return not args[1] if args[0] == "!" else unary(shell, *args)
    if len(args) == 3 and args[1] in BINARY:
        return binary(shell, *args)
    if len(args) in (3, 4) and args[0] == "!":
        return not test_of(shell, args[1:])
    if len(args) == 3 and args[0] == "(" and args[2] == ")":
        return bool(args[1])
    words = list(args)
    found = either(shell, words)
    if words:
        raise ValueError(f"{words[0]}: unexpected operator")
    return found


def either(shell, words):
    found = both(shell, words)
    while words[:1] == ["-o"]:
        del words[0]
        found = both(shell, words) or found
    return found


def both(shell, words):
    found = one(shell, words)
    while words[:1] == ["-a"]:
        del words[0]
        found = one(shell, words) and found
    return found


def one(shell, words):
    is_negated = False
    while len(words) > 1 and words[0] == "!":
        del words[0]
        is_negated = not is_negated
    if len(words) > 2 and words[1] in BINARY:
        found = binary(shell, *words[:3])
        del words[:3]
    elif words[0] == "(":
        del words[0]
        found = either(shell, words)
        if words[:1] != [")"]:
            raise ValueError("closing paren expected")
        del words[0]
    elif len(words) > 1 and words[0] in UNARY:
        found = unary(shell, *words[:2])
        del words[:2]
    else:
        found = bool(words.pop(0))
    return found != is_negated


def unary(shell, sign, text):
    if sign in ("-n", "-z"):
        return bool(text) == (sign == "-n")
    if sign == "-t":
        return False
    if sign == "-v":
        return text in shell.variables
    path = shell.path(text)
    if sign in ("-L", "-h"):
        return os.path.islink(path)
    if sign not in UNARY:
        raise ValueError(f"{sign}: unexpected operator")
    if not text or not os.path.exists(path):
        return text in ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr") and sign in ("-e", "-r", "-w", "-c")
    mode = os.stat(path).st_mode
    return {
        "-f": lambda: stat.S_ISREG(mode), "-d": lambda: stat.S_ISDIR(mode), "-s": lambda: os.stat(path).st_size > 0,
        "-p": lambda: stat.S_ISFIFO(mode), "-S": lambda: stat.S_ISSOCK(mode), "-b": lambda: stat.S_ISBLK(mode),
        "-c": lambda: stat.S_ISCHR(mode), "-x": lambda: stat.S_ISDIR(mode) or is_executable(path),
        "-u": lambda: False, "-g": lambda: False, "-k": lambda: False,
    }.get(sign, lambda: True)()


def is_executable(path):
    """Whether a file has the mode of a program or, where there are no modes, begins as one."""
    if os.stat(path).st_mode & 0o111:
        return True
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def binary(shell, one, sign, other):
    if sign in ("=", "=="):
        return one == other
    if sign == "!=":
        return one != other
    if sign in ("<", ">"):
        return one < other if sign == "<" else one > other
    if sign in ("-nt", "-ot", "-ef"):
        times = []
        for name in (one, other):
            try:
                found = os.stat(shell.path(name))
                times.append((found.st_dev, found.st_ino) if sign == "-ef" else found.st_mtime_ns)
            except OSError:
                times.append(None)
        if sign == "-ef":
            return times[0] is not None and times[0] == times[1]
        if None in times:
            return times[0 if sign == "-nt" else 1] is not None
        return times[0] > times[1] if sign == "-nt" else times[0] < times[1]
    for text in (one, other):
        if not re.fullmatch(r"\s*[-+]?\d{1,40}\s*", text):
            raise ValueError(f"Illegal number: {text:.40}")
    one, other = int(one), int(other)
    return {
        "-eq": one == other, "-ne": one != other, "-lt": one < other, "-le": one <= other, "-gt": one > other,
        "-ge": one >= other,
    }[sign]


class DoubleTest:
    """The value of `[[ … ]]`, whose words come with whether they are signs."""

    def __init__(self, shell, words):
        self.shell, self.words, self.at = shell, words, 0

    def is_next(self, sign):
        found = self.words[self.at : self.at + 1] == [(sign, True)]
        self.at += found
        return found

    def value(self):
        found = self.either()
        if self.at < len(self.words):
            raise ValueError
        return found

    def either(self):
        found = self.both()
        while self.is_next("||"):
            found = self.both() or found
        return found

    def both(self):
        found = self.one()
        while self.is_next("&&"):
            found = self.one() and found
        return found

    def one(self):
        if self.is_next("!"):
            return not self.one()
        if self.is_next("("):
            found = self.either()
            if not self.is_next(")"):
                raise ValueError
            return found
        text, is_sign = self.words[self.at]
        self.at += 1
        behind = self.words[self.at][0] if self.at < len(self.words) else ""
        if is_sign and text in UNARY:
            self.at += 1
            return test_of(self.shell, [text, self.words[self.at - 1][0]])
        if behind in ("=", "==", "!=", "=~", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"):
            other = self.words[self.at + 1][0]
            self.at += 2
            if behind == "=~":
                return bool(re.search(other, text))
            if behind in ("=", "==", "!="):
                return bool(re.fullmatch(other, text, re.S)) == (behind != "!=")
            return text < other if behind == "<" else text > other if behind == ">" else test_of(self.shell, [text, behind, other])
        return bool(text)


class Sum:
    """The value of arithmetic: integers of 64 bits, as in C."""

    def __init__(self, shell, text, depth=0):
        self.shell, self.text, self.at, self.sign, self.depth = shell, text, 0, "", depth
        self.is_dead = 0
        self.next()

    def fail(self):
        raise ShellError(f"arithmetic expression: syntax error: \"{self.text.strip():.100}\"")

    def next(self):
        """Goes to the next number, name or sign."""
        text = self.text
        while text[self.at : self.at + 1].isspace():
            self.at += 1
        found = NUMBER.match(text, self.at) or VARIABLE.match(text, self.at) or SIGNS.match(text, self.at)
        if not found and self.at < len(text):
            self.fail()
        self.sign = found[0] if found else ""
        self.at += len(self.sign)

    def take(self, *signs):
        found = self.sign
        if not found or found not in signs:
            return ""
        self.next()
        return found

    def value(self):
        if not self.sign:
            return 0
        found = self.assigned()
        while self.take(","):
            found = self.assigned()
        if self.sign:
            self.fail()
        return found

    def assigned(self):
        name = self.sign
        if VARIABLE.fullmatch(name):
            found = re.compile(r"\s*(<<|>>|[-+*/%&|^]?)=(?!=)").match(self.text, self.at)
            if found:
                self.at = found.end()
                self.next()
                value = self.assigned()
                if found[1]:
                    value = self.computed(found[1], self.of(name), value)
                return self.put(name, value)
        found = self.level(0)
        if self.take("?"):
            self.is_dead += not found
            one = self.assigned()
            self.is_dead += -1 if not found else 1
            if not self.take(":"):
                self.fail()
            other = self.assigned()
            self.is_dead -= bool(found)
            return one if found else other
        return found

    def put(self, name, value):
        if not self.is_dead:
            self.shell.set(name, str(value))
        return value

    def level(self, at):
        if at == len(LEVELS):
            return self.unary()
        found = self.level(at + 1)
        while sign := self.take(*LEVELS[at]):
            is_decided = sign == "&&" and not found or sign == "||" and bool(found)
            self.is_dead += is_decided
            other = self.level(at + 1)
            self.is_dead -= is_decided
            found = self.computed(sign, found, other)
        return found

    def computed(self, sign, one, other):
        if sign in ("/", "%"):
            if not other:
                if self.is_dead:
                    return 0
                raise ShellError("arithmetic expression: division by zero")
            whole = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
            value = whole if sign == "/" else one - whole * other
        elif sign in ("<<", ">>"):
            value = one << (other & 63) if sign == "<<" else one >> (other & 63)
        else:
            value = OPERATIONS[sign](one, other)
        return wrapped(value)

    def unary(self):
        self.depth += 1
        if self.depth > 30:
            raise ShellError("arithmetic is nested too deep")
        try:
            sign = self.take("-", "+", "!", "~", "++", "--")
            if sign in ("++", "--"):
                name = self.take(self.sign)
                if not VARIABLE.fullmatch(name):
                    self.fail()
                return self.put(name, wrapped(self.of(name) + (1 if sign == "++" else -1)))
            if sign:
                value = self.unary()
                return {"-": -value, "+": value, "!": int(not value), "~": ~value}[sign]
            return self.power()
        finally:
            self.depth -= 1

    def power(self):
        found = self.primary()
        if self.take("**"):
            other = self.unary()
            if other < 0:
                raise ShellError("arithmetic expression: exponent less than 0")
            return wrapped(pow(found, other, 1 << 64))
        return found

    def primary(self):
        sign = self.sign
        if self.take("("):
            found = self.assigned()
            if not self.take(")"):
                self.fail()
            return found
        if NUMBER.fullmatch(sign):
            self.next()
            return number_of(sign)
        if not VARIABLE.fullmatch(sign):
            self.fail()
        self.next()
        value = self.of(sign)
        if step := self.take("++", "--"):
            self.put(sign, wrapped(value + (1 if step == "++" else -1)))
        return value

    def of(self, name):
        text = (self.shell.variables.get(name) or "").strip()
        if not text:
            if "u" in self.shell.options and name not in self.shell.variables:
                raise ShellError(f"{name}: parameter not set")
            return 0
        if NUMBER.fullmatch(text.lstrip("-")) and text.count("-") < 2:
            return number_of(text.lstrip("-")) * (-1 if text[0] == "-" else 1)
        if self.depth > 20:
            self.fail()
        return Sum(self.shell, text, self.depth + 8).value()


def number_of(text):
    if len(text) > 40:
        raise ShellError(f"{text:.20}…: the number is too large")
    try:
        return wrapped(int(text, 16 if text[:2] in ("0x", "0X") else 8 if text[:1] == "0" else 10))
    except ValueError:
        raise ShellError(f"arithmetic expression: bad number {text}") from None


def wrapped(value):
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


OPERATIONS = {
    "+": lambda one, other: one + other, "-": lambda one, other: one - other, "*": lambda one, other: one * other,
    "&": lambda one, other: one & other, "|": lambda one, other: one | other, "^": lambda one, other: one ^ other,
    "&&": lambda one, other: int(bool(one and other)), "||": lambda one, other: int(bool(one or other)),
    "==": lambda one, other: int(one == other), "!=": lambda one, other: int(one != other),
    "<": lambda one, other: int(one < other), ">": lambda one, other: int(one > other),
    "<=": lambda one, other: int(one <= other), ">=": lambda one, other: int(one >= other),
}
