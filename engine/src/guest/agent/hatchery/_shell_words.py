"""Words of the shell: their fields, patterns, braces and arithmetic, and the conditions of `[[ … ]]`."""

import os
import re

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
CONDITIONS = frozenset("-e -f -d -r -w -x -s -L -h -n -z -t -p -S -b -c -v -o".split())


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


class DoubleTest:
    """The value of `[[ … ]]`, whose words come with whether they are signs."""

    def __init__(self, words, test):
        self.words, self.at, self.test = words, 0, test

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
        if is_sign and text in CONDITIONS:
            self.at += 1
            return self.test([text, self.words[self.at - 1][0]])
        if behind in ("=", "==", "!=", "=~", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"):
            other = self.words[self.at + 1][0]
            self.at += 2
            if behind == "=~":
                return bool(re.search(other, text))
            if behind in ("=", "==", "!="):
                return bool(re.fullmatch(other, text, re.S)) == (behind != "!=")
            return text < other if behind == "<" else text > other if behind == ">" else self.test([text, behind, other])
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
