"""Reads programs of awk, and translates them to Python.

A scalar is a global variable of the translation or a local one of its functions, and an array is a dictionary.
What a program does to its input, its output and its own variables, such as `NF`, is in `_shell_awk.py`.
"""

import re

# How deep a program may nest.
MOST_NESTED = 60
KEYWORDS = frozenset(
    "BEGIN END function func if else while for do break continue next nextfile exit return delete in getline print printf".split()
)
# Functions, by how many arguments they have.
FUNCTIONS = {
    "length": (0, 1), "substr": (2, 3), "index": (2, 2), "split": (2, 3), "sub": (2, 3), "gsub": (2, 3), "gensub": (3, 4), "match": (2, 3),
    "sprintf": (1, 99), "tolower": (1, 1), "toupper": (1, 1), "int": (1, 1), "sqrt": (1, 1), "exp": (1, 1), "log": (1, 1), "sin": (1, 1),
    "cos": (1, 1), "atan2": (2, 2), "rand": (0, 0), "srand": (0, 1), "system": (1, 1), "close": (1, 1), "fflush": (0, 1), "systime": (0, 0),
    "strftime": (0, 3), "and": (2, 2), "or": (2, 2), "xor": (2, 2), "compl": (1, 1), "lshift": (2, 2), "rshift": (2, 2), "strtonum": (1, 1),
}
# Those that take only texts.
OF_TEXTS = frozenset(("index", "system", "close", "fflush", "strtonum"))
# What the runtime reads or sets itself.
SPECIAL = frozenset("NF NR FNR FS OFS ORS RS SUBSEP RSTART RLENGTH FILENAME CONVFMT OFMT".split())
ARRAYS = frozenset(("ENVIRON", "ARGV"))
LEXEME = re.compile(
    r"(?P<space>(?:[ \t\r]|\\\r?\n|\#[^\n]*)+)|(?P<newline>\n)|(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r'|(?P<string>"(?:[^"\\\n]|\\.|\\\n)*")|(?P<name>[A-Za-z_]\w*)'
    r"|(?P<sign>\*\*=|\*\*|\+\+|--|&&|\|\||[-+*/%^!=<>]=|!~|[-+*/%^!<>=~?:,;(){}\[\]$|])",
    re.A,
)
REGEX = re.compile(r"/((?:[^/\\\n\[]|\\.|\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\\n])*\])*)/")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "/": "/", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\n": ""}
# The tokens after which `/` divides.
ENDS = frozenset((")", "]", "$", "++", "--"))
COMPARED = ("<", "<=", "==", "!=", ">", ">=")
ASSIGNED = ("=", "+=", "-=", "*=", "/=", "%=", "^=", "**=")


class AwkSyntaxError(Exception):
    pass


def unescaped(text):
    """Returns a text with the escapes of awk's strings; unknown ones stay as they are."""

    def meant(found):
        code = found[1]
        if code[0] == "x":
            return chr(int(code[1:], 16))
        return chr(int(code, 8) & 0xFF) if code[0].isdecimal() else ESCAPES.get(code, found[0])

    return re.sub(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.|\n)", meant, text)


def lexed(text):
    """Returns the tokens of a program, each with its kind and its line."""
    tokens, at, line = [], 0, 1
    while at < len(text):
        last = tokens[-1] if tokens else ("newline", "\n", 1)
        if text[at] == "/" and not (last[0] in ("number", "string", "regex", "name", "call") or last[1] in ENDS or last[1] == "length"):
            found = REGEX.match(text, at)
            if found is None:
                raise AwkSyntaxError(f"line {line}: a regex has no end")
            tokens.append(("regex", found[1], line))
            at = found.end()
            continue
        found = LEXEME.match(text, at)
        if found is None:
            raise AwkSyntaxError(f"line {line}: unexpected {text[at:at + 20]!r}")
        kind, lexeme = found.lastgroup, found[0]
        at = found.end()
        if kind == "name":
            if lexeme in KEYWORDS:
                kind = "keyword"
            elif lexeme in FUNCTIONS:
                kind = "builtin"
            elif text[at : at + 1] == "(":
                kind = "call"
        elif kind == "string":
            lexeme = unescaped(lexeme[1:-1])
        if kind != "space":
            tokens.append((kind, lexeme, line))
        line += found[0].count("\n")
    return [*tokens, ("newline", "\n", line), ("end", "", line)]


class Parser:
    """A program as a tree of tuples, whose first item is the name of a method of `Translation`."""

    def __init__(self, text):
        self.tokens, self.at, self.depth = lexed(text), 0, 0
        self.rules, self.functions = [], {}
        self.reads_input = False
        while self.skip() and self.kind != "end":
            self.item()

    kind = property(lambda self: self.tokens[self.at][0])
    text = property(lambda self: self.tokens[self.at][1])

    def is_at(self, *signs):
        return self.kind in ("sign", "keyword", "newline") and self.text in signs

    def take(self, *signs):
        """Takes one of these tokens, if it is next."""
        if self.is_at(*signs):
            self.at += 1
            return self.tokens[self.at - 1][1]

    def need(self, *signs):
        return self.take(*signs) or self.fail()

    def fail(self):
        kind, text, line = self.tokens[self.at]
        raise AwkSyntaxError(f"line {line}: unexpected {'end' if kind == 'end' else repr(text)}")

    def skip(self, *signs):
        while self.is_at("\n", ";", *signs):
            self.at += 1
        return True

    def lines(self):
        while self.take("\n"):
            pass

    def name(self):
        if self.kind not in ("name", "call"):
            self.fail()
        self.at += 1
        return self.tokens[self.at - 1][1]

    def item(self):
        if self.take("function", "func"):
            name, names = self.name(), []
            self.need("(")
            while not self.take(")"):
                names.append(self.name())
                self.lines()
                self.take(",")
                self.lines()
            self.lines()
            if name in self.functions or len(set(names)) < len(names):
                self.fail()
            self.functions[name] = names, self.block()
            return
        pattern = None
        if self.is_at("BEGIN", "END"):
            pattern = (self.take("BEGIN", "END"),)
        elif not self.is_at("{"):
            pattern = self.expression()
            if self.take(","):
                self.lines()
                pattern = "range", pattern, self.expression()
        if self.is_at("{"):
            body = self.block()
        elif pattern and pattern[0] in ("BEGIN", "END"):
            self.fail()
        else:
            body = ("print", [], None)
        self.rules.append((pattern, body))

    # Statements.

    def block(self):
        self.need("{")
        found = []
        while self.skip() and not self.take("}"):
            found.append(self.statement())
        return "block", found

    def statement(self):
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise AwkSyntaxError("it is nested too deep")
        try:
            return self.statement_within()
        finally:
            self.depth -= 1

    def statement_within(self):
        if self.is_at("{"):
            return self.block()
        if self.take(";"):
            return "block", []
        if self.take("if"):
            condition = self.condition()
            body, before = self.body(), self.at
            self.skip()
            if self.take("else"):
                return "if", condition, body, self.body()
            self.at = before
            return "if", condition, body, None
        if self.take("while"):
            condition = self.condition()
            return "while", condition, ("block", []) if self.take(";") else self.body()
        if self.take("do"):
            body = self.body()
            self.skip()
            self.need("while")
            found = "do", body, self.condition()
        elif self.take("for"):
            return self.loop()
        else:
            found = self.simple()
        if not self.take(";", "\n") and not self.is_at("}") and self.kind != "end":
            self.fail()
        return found

    def condition(self):
        self.need("(")
        condition = self.expression()
        self.need(")")
        return condition

    def body(self):
        self.lines()
        return self.statement()

    def loop(self):
        self.need("(")
        if self.kind == "name" and self.tokens[self.at + 1][1] == "in" and self.tokens[self.at + 3][1] == ")":
            variable, self.at = ("variable", self.name()), self.at + 1
            array = self.name()
            self.need(")")
            return "each", variable, array, self.body()
        begin = None if self.is_at(";") else self.simple()
        self.need(";")
        self.lines()
        condition = None if self.is_at(";") else self.expression()
        self.need(";")
        self.lines()
        step = None if self.is_at(")") else self.simple()
        self.need(")")
        return "for", begin, condition, step, ("block", []) if self.take(";") else self.body()

    def simple(self):
        if word := self.take("break", "continue", "next", "nextfile"):
            return (word,)
        if word := self.take("exit", "return"):
            return word, None if self.is_at(";", "\n", "}") or self.kind == "end" else self.expression()
        if self.take("delete"):
            name = self.name()
            return "delete", name, self.subscripts() if self.take("[") else None
        if word := self.take("print", "printf"):
            found = [] if self.is_at(";", "\n", "}", ">", "|") or self.kind == "end" else self.list(is_printed=True)
            if len(found) == 1 and found[0][0] == "group":
                found = found[0][1]
            target = None
            if self.take(">"):
                is_added = self.take(">")
                target = ">>" if is_added else ">", self.joined()
            elif self.take("|"):
                target = "|", self.joined()
            if word == "printf" and not found:
                self.fail()
            return word, found, target
        return "evaluate", self.expression()

    # Expressions, from the loosest operator to the tightest.

    def list(self, is_printed=False):
        found = [self.expression(is_printed)]
        while self.take(","):
            self.lines()
            found.append(self.expression(is_printed))
        return found

    def subscripts(self):
        found = self.list()
        self.need("]")
        return found

    def expression(self, is_printed=False):
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise AwkSyntaxError("it is nested too deep")
        try:
            return self.assignment(is_printed)
        finally:
            self.depth -= 1

    def assignment(self, is_printed):
        found = self.either(is_printed)
        if self.take("?"):
            self.lines()
            one = self.expression(is_printed)
            self.lines()
            self.need(":")
            self.lines()
            return "choice", found, one, self.expression(is_printed)
        if found[0] in ("variable", "element", "field") and (sign := self.take(*ASSIGNED)):
            self.lines()
            return "assign", sign[:-1], found, self.expression(is_printed)
        return found

    def either(self, is_printed):
        found = self.both(is_printed)
        while self.take("||"):
            self.lines()
            found = "either", found, self.both(is_printed)
        return found

    def both(self, is_printed):
        found = self.member(is_printed)
        while self.take("&&"):
            self.lines()
            found = "both", found, self.member(is_printed)
        return found

    def member(self, is_printed):
        found = self.matched(is_printed)
        while self.take("in"):
            found = "member", found[1] if found[0] == "group" else [found], self.name()
        return found

    def matched(self, is_printed):
        found = self.compared(is_printed)
        while sign := self.take("~", "!~"):
            found = "matches", found, self.compared(is_printed), sign == "~"
        return found

    def compared(self, is_printed):
        found = self.joined()
        while self.is_at("|") and self.tokens[self.at + 1][1] == "getline":
            self.at += 2
            found = "getline", "|", self.target(), found
        if self.is_at(*COMPARED) and not (is_printed and self.is_at(">")):
            found = "compared", self.take(*COMPARED), found, self.joined()
        return found

    def joined(self):
        found = [self.added()]
        while self.kind in ("number", "string", "name", "call", "builtin") or self.is_at("$", "(", "++", "--"):
            found.append(self.added())
        return found[0] if len(found) == 1 else ("joined", found)

    def added(self):
        found = self.multiplied()
        while sign := self.take("+", "-"):
            found = "calculated", sign, found, self.multiplied()
        return found

    def multiplied(self):
        found = self.signed()
        while sign := self.take("*", "/", "%"):
            found = "calculated", sign, found, self.signed()
        return found

    def signed(self):
        signs = []
        while sign := self.take("!", "-", "+"):
            signs.append(sign)
        found = self.power()
        for sign in reversed(signs):
            found = {"!": "opposite", "-": "negative", "+": "positive"}[sign], found
        return found

    def power(self):
        found = self.changed()
        if self.take("^", "**"):
            sign = self.take("-", "+", "!")
            other = self.power()
            found = "calculated", "^", found, ("negative", other) if sign == "-" else ("opposite", other) if sign == "!" else other
        return found

    def changed(self):
        if sign := self.take("++", "--"):
            return "step", sign[0], False, self.place(self.operand())
        found = self.operand()
        if found[0] in ("variable", "element", "field") and (sign := self.take("++", "--")):
            return "step", sign[0], True, found
        return found

    def place(self, found):
        return found if found[0] in ("variable", "element", "field") else self.fail()

    def operand(self):
        kind, text, _ = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return "number", float(int(text, 16)) if text[:2] in ("0x", "0X") else float(text)
        if kind in ("string", "regex"):
            return kind, text
        if kind == "name":
            return ("element", text, self.subscripts()) if self.take("[") else ("variable", text)
        if kind == "call":
            return "call", text, self.arguments()
        if kind == "builtin":
            given = self.arguments() if self.is_at("(") else []
            least, most = FUNCTIONS[text]
            if not least <= len(given) <= most:
                raise AwkSyntaxError(f"`{text}` takes {least} to {most} arguments, not {len(given)}")
            return "builtin", text, given
        if kind == "sign" and text == "$":
            if sign := self.take("++", "--"):
                return "field", ("step", sign[0], False, self.place(self.operand()))
            return "field", ("negative", self.operand()) if self.take("-") else self.operand()
        if kind == "sign" and text == "(":
            found = self.list()
            self.need(")")
            return "group", found
        if kind == "keyword" and text == "getline":
            target = self.target()
            source = self.operand() if self.take("<") else None
            self.reads_input |= source is None or source == ("string", "-")
            return "getline", "<" if source else "", target, source
        self.at -= 1
        self.fail()

    def arguments(self):
        self.need("(")
        self.lines()
        found = [] if self.is_at(")") else self.list()
        self.lines()
        self.need(")")
        return found

    def target(self):
        return self.operand() if self.kind == "name" or self.is_at("$") else None


class Translation:
    """A program as the source of Python functions: `begin`, `each_record`, `finish` and those of the program."""

    def __init__(self, text):
        self.program = program = Parser(text)
        self.arrays = {name: set() for name in program.functions} | {None: set(ARRAYS)}
        self.scalars, self.function, self.steps, self.ranges = set(), None, [], 0
        self.find_arrays()
        parts = []
        for name, (names, body) in program.functions.items():
            self.function = name
            fresh = [f"    l_{one} = Array() if l_{one} is UNSET else l_{one}" for one in names if one in self.arrays[name]]
            lines = [*fresh, *self.indented(body), "    return UNSET"]
            parts.append((f"f_{name}", "".join(f"l_{one}=UNSET, " for one in names), lines))
        self.function = None
        bodies = {"BEGIN": [], "END": [], "": []}
        for pattern, body in program.rules:
            self.function = "" if pattern is None or pattern[0] not in ("BEGIN", "END") else None
            lines = self.statement(body)
            if pattern is None:
                bodies[""] += lines
            elif self.function is None:
                bodies[pattern[0]] += lines
            else:
                if pattern[0] == "range":
                    begin, lines = self.ranged(*pattern[1:], lines)
                else:
                    begin = [f"is_in = {self.truth(pattern)}"]
                bodies[""] += [*begin, "if is_in:", *("    " + line for line in lines or ["pass"])]
        for name, key in (("begin", "BEGIN"), ("each_record", ""), ("finish", "END")):
            parts.append((name, "", ["    " + line for line in bodies[key]] or ["    pass"]))
        self.has = {key for key, lines in bodies.items() if lines}
        shared = [f"    global {', '.join(f'g_{name}' for name in sorted(self.scalars))}"] if self.scalars else []
        source = [f"g_{name} = UNSET" for name in sorted(self.scalars)]
        source += [f"a_{name} = Array()" for name in sorted(self.arrays[None] - ARRAYS)]
        for name, names, lines in parts:
            source += [f"def {name}({names}):", *shared, *lines]
        self.source = "\n".join(source) + "\n"

    # Which names are arrays.

    def find_arrays(self):
        size = -1
        while size != (size := sum(map(len, self.arrays.values()))):
            for name, (_, body) in self.program.functions.items():
                self.look(body, name)
            self.look(self.program.rules, None)

    def owner(self, name, function):
        return function if function and name in self.program.functions[function][0] else None

    def look(self, tree, function):
        if isinstance(tree, (list, tuple)):
            kind = tree[0] if tree else None
            mark = lambda name: self.arrays[self.owner(name, function)].add(name)
            if isinstance(tree, tuple) and kind in ("element", "delete"):
                mark(tree[1])
            elif kind in ("member", "each") and isinstance(tree, tuple):
                mark(tree[2])
            elif kind == "builtin" and tree[1] == "split" and tree[2][1][0] == "variable":
                mark(tree[2][1][1])
            elif kind == "builtin" and tree[1] == "match" and len(tree[2]) > 2 and tree[2][2][0] == "variable":
                mark(tree[2][2][1])
            elif kind == "call" and isinstance(tree, tuple) and tree[1] in self.program.functions:
                names = self.program.functions[tree[1]][0]
                for name, given in zip(names, tree[2]):
                    if name in self.arrays[tree[1]] and given[0] == "variable":
                        mark(given[1])
                    elif given[0] == "variable" and given[1] in self.arrays[self.owner(given[1], function)]:
                        self.arrays[tree[1]].add(name)
            for one in tree:
                self.look(one, function)

    def is_array(self, name):
        return name in self.arrays[self.owner(name, self.function)]

    def array(self, name):
        if not self.is_array(name) or name in SPECIAL:
            raise AwkSyntaxError(f"`{name}` is no array")
        return f"{'l' if self.owner(name, self.function) else 'a'}_{name}"

    def scalar(self, name):
        if self.is_array(name):
            raise AwkSyntaxError(f"`{name}` is an array")
        if self.owner(name, self.function):
            return f"l_{name}"
        self.scalars.add(name)
        return f"g_{name}"

    # Statements, as lines of Python.

    def statement(self, tree):
        return getattr(self, "do_" + tree[0])(*tree[1:])

    def indented(self, tree):
        return ["    " + line for line in self.statement(tree)] or ["    pass"]

    def do_block(self, statements):
        return [line for one in statements for line in self.statement(one)]

    def do_if(self, condition, body, otherwise):
        lines = [f"if {self.truth(condition)}:", *self.indented(body)]
        if otherwise and otherwise[0] == "if":
            first, *rest = self.statement(otherwise)
            return [*lines, "el" + first, *rest]
        return lines if otherwise is None else [*lines, "else:", *self.indented(otherwise)]

    def looped(self, head, body, step):
        self.steps.append(step)
        lines = [head, *self.indented(body), *("    " + line for line in step)]
        self.steps.pop()
        return lines

    def do_while(self, condition, body):
        return self.looped(f"while {self.truth(condition)}:", body, [])

    def do_do(self, body, condition):
        return self.looped("while True:", body, [f"if not {self.truth(condition)}:", "    break"])

    def do_for(self, begin, condition, step, body):
        lines = self.statement(begin) if begin else []
        return lines + self.looped(f"while {self.truth(condition) if condition else True}:", body, self.statement(step) if step else [])

    def do_each(self, variable, array, body):
        lines = self.looped(f"for key in list({self.array(array)}):", body, [])
        return [lines[0], "    " + self.stored(variable, "Field(key)"), *lines[1:]]

    def do_break(self):
        return ["break"] if self.steps else self.misplaced("break")

    def do_continue(self):
        return [*self.steps[-1], "continue"] if self.steps else self.misplaced("continue")

    def misplaced(self, what):
        raise AwkSyntaxError(f"`{what}` can't be there")

    def do_next(self, is_file=False):
        if self.function is None:
            self.misplaced("next")
        return [f"raise Next({is_file})"] if self.function or is_file else ["return"]

    def do_nextfile(self):
        return self.do_next(True)

    def do_exit(self, value):
        return [f"raise Exit({self.number(value) if value else None})"]

    def do_return(self, value):
        return [f"return {self.value(value)[0] if value else 'UNSET'}"] if self.function else self.misplaced("return")

    def do_delete(self, name, keys):
        return [f"{self.array(name)}.pop({self.key(keys)}, None)" if keys else f"{self.array(name)}.clear()"]

    def do_evaluate(self, tree):
        return [self.value(tree)[0]]

    def do_print(self, parts, target):
        texts = [f"run.printed({source})" if kind != "s" else source for source, kind in map(self.value, parts)]
        text = f"run.line({', '.join(texts)})" if texts else "run.line(run.record_text())"
        return [self.written(text, target)]

    def do_printf(self, parts, target):
        return [self.written(f"run.formatted({', '.join([self.string(parts[0]), *(self.value(one)[0] for one in parts[1:])])})", target)]

    def written(self, text, target):
        return f"run.write({text}{f', {target[0]!r}, {self.string(target[1])}' if target else ''})"

    def ranged(self, first, last, lines):
        """Returns what finds out whether a record is in a range, and what to do if it is."""
        state = f"run.ranges[{self.ranges}]"
        self.ranges += 1
        begin = [f"is_in = {state}", "if not is_in:", f"    is_in = {self.truth(first)}"]
        return begin, [f"{state} = not {self.truth(last)}", *lines]

    # Expressions, as Python and its kind: "n" is a number, "s" a text, and "v" has one of awk's values.

    def value(self, tree):
        found = getattr(self, "of_" + tree[0])(*tree[1:])
        return found if isinstance(found, tuple) else (f"float({found[0]})", "n")

    def number(self, tree):
        source, kind = self.value(tree)
        return source if kind == "n" else f"number({source})"

    def string(self, tree):
        source, kind = self.value(tree)
        return source if kind == "s" else f"text({source})"

    def truth(self, tree):
        """Returns a condition. Such trees have one in a list, which as a value is 0 or 1."""
        found = getattr(self, "of_" + tree[0])(*tree[1:])
        if isinstance(found, list):
            return found[0]
        return f"({found[0]} != 0)" if found[1] == "n" else f"({found[0]} != '')" if found[1] == "s" else f"truth({found[0]})"

    def key(self, keys):
        texts = [self.string(one) for one in keys]
        return texts[0] if len(texts) == 1 else f"run.key({', '.join(texts)})"

    def regex(self, tree):
        return f"run.regex({tree[1]!r}, True)" if tree[0] == "regex" else f"run.regex({self.string(tree)})"

    def place(self, tree):
        """Returns the container and the key of what isn't a plain variable."""
        if tree[0] == "field":
            return "run.fields", f"run.at({self.number(tree[1])})"
        if tree[0] == "element":
            return self.array(tree[1]), self.key(tree[2])
        return ("run.own", repr(tree[1])) if tree[1] in SPECIAL and not self.owner(tree[1], self.function) else None

    def stored(self, tree, source):
        place = self.place(tree)
        return f"put({place[0]}, {place[1]}, {source})" if place else f"({self.scalar(tree[1])} := {source})"

    def of_number(self, value):
        return ("inf" if value == float("inf") else repr(value)), "n"

    def of_string(self, text):
        return repr(text), "s"

    def of_regex(self, text):
        return [f"(run.regex({text!r}, True).search(run.record_text()) is not None)"]

    def of_variable(self, name):
        place = self.place(("variable", name))
        return (f"{place[0]}[{place[1]}]" if place else self.scalar(name)), "v"

    def of_element(self, name, keys):
        return f"{self.array(name)}[{self.key(keys)}]", "v"

    def of_field(self, tree):
        return f"run.fields[run.at({self.number(tree)})]", "v"

    def of_group(self, trees):
        if len(trees) > 1:
            raise AwkSyntaxError("a list of values can't be there")
        found = getattr(self, "of_" + trees[0][0])(*trees[0][1:])
        return found if isinstance(found, list) else (f"({found[0]})", found[1])

    def of_choice(self, condition, one, other):
        (one, kind), (other, kind_of_other) = self.value(one), self.value(other)
        return f"({one} if {self.truth(condition)} else {other})", kind if kind == kind_of_other else "v"

    def of_assign(self, sign, place, tree):
        source, kind = self.value(tree)
        if sign:
            source, kind = self.of_calculated(sign, place, tree)[0], "n"
            if found := self.place(place):
                return f"change({found[0]}, {found[1]}, {sign!r}, {self.number(tree)})", "n"
        return self.stored(place, source), kind

    def of_either(self, one, other):
        return [f"({self.truth(one)} or {self.truth(other)})"]

    def of_both(self, one, other):
        return [f"({self.truth(one)} and {self.truth(other)})"]

    def of_opposite(self, tree):
        return [f"(not {self.truth(tree)})"]

    def of_member(self, keys, name):
        return [f"({self.key(keys)} in {self.array(name)})"]

    def of_matches(self, one, other, is_so):
        return [f"({self.regex(other)}.search({self.string(one)}) is {'not ' * is_so}None)"]

    def of_compared(self, sign, one, other):
        (one, kind), (other, kind_of_other) = self.value(one), self.value(other)
        if kind == kind_of_other != "v":
            return [f"({one} {sign} {other})"]
        return [f"(order({one}, {other}) {sign} 0)"]

    def of_joined(self, trees):
        return f"({' + '.join(map(self.string, trees))})", "s"

    def of_calculated(self, sign, one, other):
        return self.calculated(sign, self.number(one), self.number(other)), "n"

    def calculated(self, sign, one, other):
        named = {"/": "divided", "%": "remainder", "^": "power", "**": "power"}.get(sign)
        return f"{named}({one}, {other})" if named else f"({one} {sign} {other})"

    def of_negative(self, tree):
        return f"(-{self.number(tree)})", "n"

    def of_positive(self, tree):
        return f"(+{self.number(tree)})", "n"

    def of_step(self, sign, is_after, tree):
        back = f" {'-' if sign == '+' else '+'} 1" * is_after
        place = self.place(tree)
        if place:
            return f"(change({place[0]}, {place[1]}, {sign!r}, 1.0){back})", "n"
        name = self.scalar(tree[1])
        return f"(({name} := number({name}) {sign} 1){back})", "n"

    def of_call(self, name, given):
        if name not in self.program.functions:
            raise AwkSyntaxError(f"there is no function `{name}`")
        names = self.program.functions[name][0]
        if len(given) > len(names):
            raise AwkSyntaxError(f"`{name}` takes {len(names)} arguments")
        sources = []
        for one, tree in zip(names, given):
            if one in self.arrays[name]:
                sources.append(self.array(tree[1]) if tree[0] == "variable" else self.misplaced(one))
            else:
                sources.append(self.value(tree)[0])
        return f"f_{name}({', '.join(sources)})", "v"

    def of_getline(self, sign, target, source):
        call = f"run.getline({sign!r}, {self.string(source) if source else None}, {target is None})"
        if target is None:
            return call, "n"
        return f"(({self.stored(target, 'run.got')}, 1.0)[1] if {call} > 0 else run.status)", "n"

    def of_builtin(self, name, given):
        if name in ("sub", "gsub"):
            target = given[2] if len(given) > 2 else ("field", ("number", 0.0))
            is_stored = target[0] in ("variable", "element", "field")
            call = f"run.replace({self.regex(given[0])}, {self.string(given[1])}, {self.string(target)}, {name == 'gsub'})"
            return (f"(({self.stored(target, 'run.got')}, run.count)[1] if {call} else 0.0)" if is_stored else call), "n"
        if name == "length":
            if given and given[0][0] == "variable" and self.is_array(given[0][1]):
                return f"float(len({self.array(given[0][1])}))", "n"
            return f"float(len({self.string(given[0]) if given else 'run.record_text()'}))", "n"
        if name == "split" and given[1][0] != "variable" or name == "match" and len(given) > 2 and given[2][0] != "variable":
            self.misplaced(name)
        if name == "split":
            separator = "None" if len(given) < 3 else self.regex(given[2]) if given[2][0] == "regex" else self.string(given[2])
            return f"run.split({self.string(given[0])}, {self.array(given[1][1])}, {separator})", "n"
        if name == "match":
            array = f", {self.array(given[2][1])}" if len(given) > 2 else ""
            return f"run.match({self.string(given[0])}, {self.regex(given[1])}{array})", "n"
        if name == "gensub":
            source = self.string(given[3]) if len(given) > 3 else "run.record_text()"
            return f"run.gensub({self.regex(given[0])}, {self.string(given[1])}, {self.string(given[2])}, {source})", "s"
        if name == "sprintf":
            return f"run.formatted({', '.join([self.string(given[0]), *(self.value(one)[0] for one in given[1:])])})", "s"
        if name in ("tolower", "toupper"):
            return f"{self.string(given[0])}.{name[2:]}()", "s"
        is_text = lambda at: name in OF_TEXTS or name in ("substr", "strftime") and not at
        sources = [self.string(one) if is_text(at) else self.number(one) for at, one in enumerate(given)]
        return f"run.do_{name}({', '.join(sources)})", "s" if name in ("substr", "strftime") else "n"
