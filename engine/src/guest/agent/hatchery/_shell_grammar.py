"""Reads commands of the shell into trees, by the grammar of POSIX.1-2024 (Shell & Utilities, 2.2 to 2.10).

Of bash it has `&>`, `|&`, `<<<`, `$'…'`, `[[ … ]]`, `((…))`, `function` and some more forms of `${…}`. A tree
is made of tuples whose first item names them. A word is a list of parts, each of which ends in whether it
is quoted:

    ("text", text, quoted)
    ("value", name, operator, words, quoted)    a parameter; `words` are those behind its operator
    ("output", commands, quoted)                of commands
    ("sum", word, quoted)                       of arithmetic
"""

import re

# Levels of nested commands and expansions. Each takes up to ten frames of the interpreter.
MOST_DEPTH = 50
OPERATORS = re.compile(r"&>>|<<-|<<<|&&|\|\||;;|<<|>>|<&|>&|<>|>\||&>|\|&|[&;|<>()\n]|$")
REDIRECTION = re.compile(r"(\d*)(<<<|<<-|<<|>>|<&|>&|<>|>\||<|>)|(&>>|&>)")
NAME = re.compile(r"[A-Za-z_]\w*", re.A)
PARAMETER = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.A)
BRACED = re.compile(r"[A-Za-z_]\w*|\d+|[@*#?$!-]", re.A)
AFTER_NAME = re.compile(r":?[-=?+]|%%|%|##|#|//|/|\^\^|\^|,,|,|:")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=", re.A)
RESERVED = re.compile(r"(if|then|elif|else|fi|for|do|done|while|until|case|esac|in|function|\[\[|[{}!])(?=[\s;&|<>()]|$)")
PLAIN = re.compile(r"[^ \t\n;&|<>()'\"\\$`]+")
PLAIN_QUOTED = re.compile(r'[^"\\$`]+')
PLAIN_BRACED = re.compile(r"[^}'\"\\$`/]+")
ENDS_WORD = " \t\n;&|<>()"
# Words that end a list of commands.
CLOSING = frozenset("then elif else fi do done esac }".split())
ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "\\": "\\",
    "'": "'", '"': '"', "?": "?",
}
NUMBER_ESCAPES = re.compile(r"x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|u([0-9A-Fa-f]{1,4})")


class CommandSyntaxError(Exception):
    """What a shell says about a command that it can't read."""


class Here:
    """A here-document; its text comes after the line."""

    def __init__(self, end, is_quoted, strips):
        self.end, self.is_quoted, self.strips, self.word = end, is_quoted, strips, []


def parse(text):
    """Returns the commands of a text.

    Raises:
        CommandSyntaxError: They can't be read.
    """
    parser = Parser(text.replace("\0", ""))
    commands = parser.commands()
    if parser.at < len(parser.text):
        parser.fail_here()
    return commands


class Parser:
    def __init__(self, text, depth=0):
        self.text, self.at, self.depth, self.waiting = text, 0, depth, []

    def fail_here(self):
        sign = OPERATORS.match(self.text, self.at)
        found = sign[0] if sign else (PLAIN.match(self.text, self.at) or [self.text[self.at : self.at + 1]])[0]
        told = {"": "end of file", "\n": "newline"}.get(found, f'"{found:.40}"')
        raise CommandSyntaxError(f"Syntax error: {told} unexpected")

    def enter(self):
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise CommandSyntaxError(f"Syntax error: commands are nested more than {MOST_DEPTH} deep")

    def skip(self):
        """Skips blanks, continued lines and comments."""
        text = self.text
        while self.at < len(text):
            if text[self.at] in " \t":
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif text[self.at] == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                return

    def operator(self):
        """Returns the operator that is next; an empty text for none, and at the end."""
        self.skip()
        found = OPERATORS.match(self.text, self.at)
        return found[0] if found else ""

    def take(self, *signs):
        """Takes one of these operators, if it is next."""
        found = self.operator()
        if found not in signs:
            return ""
        self.at += len(found)
        return found

    def reserved(self):
        self.skip()
        found = RESERVED.match(self.text, self.at)
        return found[1] if found else ""

    def expect(self, *words):
        """Takes one of these reserved words or operators."""
        found = self.reserved()
        if found not in words:
            found = self.operator()
            if not found or found not in words:
                self.fail_here()
        self.at += len(found)
        return found

    def skip_lines(self):
        while self.operator() == "\n":
            self.end_line()

    def end_line(self):
        """Takes a newline, and the here-documents behind it."""
        self.at += 1
        waiting, self.waiting = self.waiting, []
        for here in waiting:
            lines = []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                if here.strips:
                    line = line.lstrip("\t")
                if line == here.end:
                    break
                lines.append(line + "\n")
            body = "".join(lines)
            here.word += [("text", body, True)] if here.is_quoted else Parser(body, self.depth).quoted("")

    def commands(self):
        """Returns `[(and_or, is_in_background), …]` up to what can't begin a command."""
        found = []
        while True:
            self.skip_lines()
            if self.at >= len(self.text) or self.operator() in (")", ";;") or self.reserved() in CLOSING:
                return found
            each = self.and_or()
            sign = self.take(";", "&")
            found.append((each, sign == "&"))
            if not sign and self.operator() != "\n":
                return found

    def body(self):
        """Returns commands of which there has to be one."""
        return self.commands() or self.fail_here()

    def and_or(self):
        found = [("", self.pipeline())]
        while sign := self.take("&&", "||"):
            self.skip_lines()
            found.append((sign, self.pipeline()))
        return found

    def pipeline(self):
        is_negated = False
        while self.reserved() == "!":
            self.at += 1
            is_negated = not is_negated
        found = [self.command()]
        while sign := self.take("|", "|&"):
            if sign == "|&":
                found[-1] = ("group", [([("", (False, [found[-1]]))], False)], [(2, ">&", [("text", "1", True)])])
            self.skip_lines()
            found.append(self.command())
        return is_negated, found

    def command(self):
        self.enter()
        word = self.reserved()
        if self.text.startswith("((", self.at) and (found := self.sum_between(self.at + 2)) is not None:
            tree = ("let", found)
        elif self.operator() == "(":
            self.at += 1
            tree = ("subshell", self.body())
            self.expect(")")
        elif word in COMPOUND:
            self.at += len(word)
            tree = COMPOUND[word](self)
        elif word in CLOSING:
            self.fail_here()
        else:
            tree = self.simple()
            self.depth -= 1
            return tree
        redirections = []
        while (one := self.redirection()) is not None:
            redirections.append(one)
        self.depth -= 1
        return tree if tree[0] == "function" else (*tree, redirections)

    def simple(self):
        assignments, words, redirections = [], [], []
        while True:
            one = self.redirection()
            if one is not None:
                redirections.append(one)
                continue
            found = None if words else ASSIGNMENT.match(self.text, self.at)
            if found:
                self.at = found.end()
                if self.text.startswith("(", self.at):
                    raise CommandSyntaxError("Syntax error: arrays are not available in this shell")
                assignments.append((found[1], found[2], self.word() or []))
                continue
            start = self.at
            word = self.word()
            if word is None:
                break
            words.append(word)
            if len(words) == 1 and not assignments and NAME.fullmatch(self.text, start, self.at):
                name = self.text[start : self.at]
                if self.take("("):
                    self.expect(")")
                    return self.function(name)
        if not assignments and not words and not redirections:
            self.fail_here()
        return "simple", assignments, words, redirections

    def function(self, name=None):
        if name is None:
            self.skip()
            found = NAME.match(self.text, self.at) or self.fail_here()
            name, self.at = found[0], found.end()
            if self.take("("):
                self.expect(")")
        self.skip_lines()
        return "function", name, self.command()

    def group(self):
        body = self.body()
        self.expect("}")
        return "group", body

    def conditional(self):
        branches, otherwise = [], []
        while True:
            condition = self.body()
            self.expect("then")
            branches.append((condition, self.body()))
            word = self.expect("elif", "else", "fi")
            if word == "else":
                otherwise = self.body()
                self.expect("fi")
            if word != "elif":
                return "if", branches, otherwise

    def loop(self, is_until=False):
        condition = self.body()
        self.expect("do")
        body = self.body()
        self.expect("done")
        return "while", condition, body, is_until

    def for_each(self):
        self.skip()
        if self.text.startswith("((", self.at):
            raise CommandSyntaxError("Syntax error: use `for NAME in …` or `while`: this shell has no `for ((…))`")
        found = NAME.match(self.text, self.at) or self.fail_here()
        self.at, words = found.end(), None
        self.skip_lines()
        if self.reserved() == "in":
            self.at += 2
            words = []
            self.skip()
            while (word := self.word()) is not None:
                words.append(word)
                self.skip()
        self.take(";")
        self.skip_lines()
        end = "done" if self.expect("do", "{") == "do" else "}"
        body = self.body()
        self.expect(end)
        return "for", found[0], words, body

    def case(self):
        self.skip()
        word = self.word() or self.fail_here()
        self.skip_lines()
        self.expect("in")
        branches = []
        while True:
            self.skip_lines()
            if self.reserved() == "esac":
                self.at += 4
                return "case", word, branches
            self.take("(")
            patterns = []
            while True:
                self.skip()
                patterns.append(self.word() or self.fail_here())
                if not self.take("|"):
                    break
            self.expect(")")
            branches.append((patterns, self.commands()))
            if not self.take(";;") and self.reserved() != "esac":
                self.fail_here()

    def condition(self):
        """`[[ … ]]`: its words, where `(`, `)`, `<`, `>`, `&&`, `||` are texts of their own."""
        words = []
        while True:
            self.skip_lines()
            if self.text.startswith("]]", self.at) and self.text[self.at + 2 : self.at + 3] in ("", *ENDS_WORD):
                self.at += 2
                return "test", words
            is_regex = bool(words) and words[-1] == "=~"
            word = self.word("" if not is_regex else "()|")
            if word is None:
                sign = self.take("(", ")", "<", ">", "&&", "||") or self.fail_here()
                words.append(sign)
            else:
                is_sign = len(word) == 1 and word[0][0] == "text" and not word[0][2]
                words.append(word[0][1] if is_sign and word[0][1] in ("!", "=", "==", "!=", "=~") else word)

    def redirection(self):
        """Returns `(descriptor, operator, word)`; `None` if none is next."""
        self.skip()
        found = REDIRECTION.match(self.text, self.at)
        if not found:
            return None
        if not found[3] and found[1] and int(found[1]) > 9:
            raise CommandSyntaxError(f"Syntax error: bad descriptor {found[1]:.20}")
        self.at, sign = found.end(), found[3] or found[2]
        descriptor = int(found[1]) if found[1] else 0 if sign[0] == "<" else 1
        self.skip()
        start = self.at
        word = self.word()
        if word is None:
            if sign in ("<", ">") and self.operator() == "(":
                raise CommandSyntaxError("Syntax error: this shell has no `<(…)`; write to a file first")
            self.fail_here()
        if sign not in ("<<", "<<-"):
            return descriptor, sign, word
        raw = self.text[start : self.at]
        end = "".join(part[1] if part[0] == "text" else raw for part in word)
        here = Here(end, any(sign in raw for sign in "'\"\\"), sign == "<<-")
        self.waiting.append(here)
        return descriptor, "<<", here.word

    def word(self, also=""):
        """Returns a word; `None` if none is next. `also` are characters that don't end it."""
        parts, text, ends = [], self.text, ENDS_WORD.translate({ord(sign): None for sign in also})
        while self.at < len(text):
            sign = text[self.at]
            if sign in ends:
                break
            if sign in also:
                parts.append(("text", sign, False))
                self.at += 1
            elif sign == "'":
                end = text.find("'", self.at + 1)
                if end < 0:
                    raise CommandSyntaxError("Syntax error: Unterminated quoted string")
                parts.append(("text", text[self.at + 1 : end], True))
                self.at = end + 1
            elif sign == '"':
                self.at += 1
                parts += self.quoted('"') or [("text", "", True)]
            elif sign == "\\":
                if not text.startswith("\\\n", self.at):
                    parts.append(("text", text[self.at + 1 : self.at + 2] or "\\", True))
                self.at += 2
            elif sign in "$`":
                parts.append(self.expansion(False))
            else:
                found = PLAIN.match(text, self.at)
                parts.append(("text", found[0], False))
                self.at = found.end()
        self.at = min(self.at, len(text))
        return parts or None

    def quoted(self, end):
        """Returns the parts up to a quote, or of a whole here-document."""
        parts, text = [], self.text
        while True:
            sign = text[self.at : self.at + 1]
            if sign == end:
                self.at += len(end)
                return parts
            if not sign:
                raise CommandSyntaxError("Syntax error: Unterminated quoted string")
            if sign == "\\":
                behind = text[self.at + 1 : self.at + 2]
                is_escape = behind in ("$", "`", "\\", "\n") or behind == '"' == end
                if behind != "\n":
                    parts.append(("text", behind if is_escape else "\\", True))
                self.at += 1 + is_escape
            elif sign in "$`":
                parts.append(self.expansion(True))
            else:
                found = PLAIN_QUOTED.match(text, self.at)
                found = found[0] if found else sign
                parts.append(("text", found, True))
                self.at += len(found)

    def expansion(self, is_quoted):
        """Returns the part that a `$` or a backquote begins."""
        text, at = self.text, self.at
        if text[at] == "`":
            return "output", self.backquoted(is_quoted), is_quoted
        behind = text[at + 1 : at + 2]
        if text.startswith("((", at + 1) and (found := self.sum_between(at + 3)) is not None:
            return "sum", found, is_quoted
        if behind == "(":
            self.enter()
            self.at += 2
            waiting, self.waiting = self.waiting, []
            commands = self.commands()
            self.expect(")")
            self.waiting = waiting
            self.depth -= 1
            return "output", commands, is_quoted
        if behind == "{":
            return self.braced(is_quoted)
        if behind in ("'", '"') and behind and not is_quoted:
            self.at += 1
            if behind == "'":
                return "text", self.escaped(), True
            return "text", "", True
        found = PARAMETER.match(text, at + 1)
        self.at = found.end() if found else at + 1
        return ("value", found[0], "", [], is_quoted) if found else ("text", "$", is_quoted)

    def sum_between(self, start):
        """Returns the word between `((` and `))`; `None` if these are parentheses of commands."""
        depth, at = 0, start
        while at < len(self.text):
            sign = self.text[at]
            if sign == ")" and not depth:
                break
            depth += {"(": 1, ")": -1}.get(sign, 0)
            at += 1
        if not self.text.startswith("))", at):
            return None
        self.enter()
        word = Parser(self.text[start:at], self.depth).quoted("")
        self.depth -= 1
        self.at = at + 2
        return word

    def backquoted(self, is_quoted):
        found, at = [], self.at + 1
        escapes = '$`\\"' if is_quoted else "$`\\"
        while (sign := self.text[at : at + 1]) != "`":
            if not sign:
                raise CommandSyntaxError('Syntax error: EOF in backquote substitution')
            if sign == "\\" and self.text[at + 1 : at + 2] in tuple(escapes):
                at += 1
                sign = self.text[at]
            found.append(sign)
            at += 1
        self.at = at + 1
        self.enter()
        parser = Parser("".join(found), self.depth)
        commands = parser.commands()
        if parser.at < len(parser.text):
            parser.fail_here()
        self.depth -= 1
        return commands

    def braced(self, is_quoted):
        """Returns the parameter of `${…}`."""
        self.at += 2
        self.enter()
        text, sign, words = self.text, "", []
        is_length = text.startswith("#", self.at) and BRACED.match(text, self.at + 1)
        if is_length and text[is_length.end() : is_length.end() + 1] == "}":
            name, sign, self.at = is_length[0], "length", is_length.end()
        else:
            found = BRACED.match(text, self.at)
            if not found:
                raise CommandSyntaxError("Syntax error: Bad substitution")
            name, self.at = found[0], found.end()
            if not text.startswith("}", self.at):
                found = AFTER_NAME.match(text, self.at)
                if not found:
                    raise CommandSyntaxError("Syntax error: Bad substitution")
                sign, self.at = found[0], found.end()
                is_text = is_quoted and sign.strip(":") in ("-", "=", "?", "+", "")
                words.append(self.in_braces(is_text, "/" if sign[0] == "/" else ""))
                if text.startswith("/", self.at):
                    self.at += 1
                    words.append(self.in_braces(False, ""))
        if not text.startswith("}", self.at):
            raise CommandSyntaxError("Syntax error: Missing '}'")
        self.at += 1
        self.depth -= 1
        return "value", name, sign, words, is_quoted

    def in_braces(self, is_text, end):
        """Returns the word up to `}` or `end`; with `is_text`, quotes have no meaning in it."""
        parts, text = [], self.text
        while self.at < len(text) and (sign := text[self.at]) != "}" and sign != end:
            if sign == "\\":
                parts.append(("text", text[self.at + 1 : self.at + 2], True))
                self.at += 2
            elif sign == "'" and not is_text:
                parts += self.word_of_quotes()
            elif sign == '"':
                self.at += 1
                parts += self.quoted('"') or [("text", "", True)]
            elif sign in "$`":
                parts.append(self.expansion(is_text))
            else:
                found = PLAIN_BRACED.match(text, self.at)
                found = found[0] if found else sign
                parts.append(("text", found, is_text))
                self.at += len(found)
        return parts

    def word_of_quotes(self):
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise CommandSyntaxError("Syntax error: Unterminated quoted string")
        found, self.at = self.text[self.at + 1 : end], end + 1
        return [("text", found, True)]

    def escaped(self):
        """Returns the text of `$'…'`."""
        found, self.at = [], self.at + 1
        while (sign := self.text[self.at : self.at + 1]) != "'":
            if not sign:
                raise CommandSyntaxError("Syntax error: Unterminated quoted string")
            self.at += 1
            if sign == "\\":
                text, used = unescaped(self.text, self.at)
                found.append(text)
                self.at += used
            else:
                found.append(sign)
        self.at += 1
        return "".join(found)


def unescaped(text, at):
    """Returns what an escape means whose backslash is before `at`, and its length."""
    number = NUMBER_ESCAPES.match(text, at)
    if number:
        if number[3]:
            return chr(int(number[3], 16)), len(number[0])
        code = int(number[1], 16) if number[1] else int(number[2], 8) & 0xFF
        return bytes([code]).decode("utf-8", "surrogateescape"), len(number[0])
    sign = text[at : at + 1]
    return ESCAPES.get(sign, "\\" + sign), len(sign)


COMPOUND = {
    "{": Parser.group, "if": Parser.conditional, "while": Parser.loop, "for": Parser.for_each,
    "until": lambda parser: parser.loop(True), "case": Parser.case, "[[": Parser.condition,
    "function": Parser.function,
}
