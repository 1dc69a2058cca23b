"""`awk`: runs programs that `_shell_awk_grammar.py` has translated to Python.

A value of awk is a float, a text, a `Field` (a text of the input, which is a number if it looks like one), or `UNSET`.
"""

import math
import operator
import os
import random
import re
import time

from hatchery._shell_awk_grammar import AwkSyntaxError, Translation, unescaped
from hatchery._shell_commands import Usage
from hatchery._shell_grep import compiled
from hatchery._shell_streams import CHUNK, Nothing, Pipe

NUMBER = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
LOOKS_NUMERIC = re.compile(NUMBER.pattern + r"\s*")
FORMAT = re.compile(r"%([-+ 0#]*)(\*|\d{1,6})?(?:(\.)(\*|\d{1,6})?)?[hlL]*([diouxXeEfFgGcs%])")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.A | re.S)
WIDEST, MOST_FIELDS = 1 << 16, 1 << 20
# In brackets of awk, unlike in those of other commands, a backslash quotes.
BRACKET = re.compile(r"\\(.)|\[(\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*)\]", re.S)


class Next(Exception):
    """Goes on with the next record, or the next file."""


class Exit(Exception):
    pass


class Field(str):
    pass


class Unset(Field):
    pass


UNSET = Unset("")


class Array(dict):
    def __missing__(self, key):
        self[key] = UNSET
        return UNSET


def number(value):
    if type(value) is float:
        return value
    found = NUMBER.match(value)
    return float(found[0]) if found else 0.0


def is_number(value):
    kind = type(value)
    return kind is float or kind is Unset or kind is Field and LOOKS_NUMERIC.fullmatch(value) is not None


def truth(value):
    if type(value) is Field and is_number(value):
        return number(value) != 0
    return value != 0 if type(value) is float else value != ""


def put(container, key, value):
    container[key] = value
    return value


def change(container, key, sign, value):
    return put(container, key, OPERATIONS[sign](number(container[key]), value))


def divided(one, other):
    if not other:
        raise Usage("Division by zero")
    return one / other


def remainder(one, other):
    if not other:
        raise Usage("Division by zero")
    return math.fmod(one, other)


def power(one, other):
    try:
        found = one**other
        return found if type(found) is float else math.nan
    except OverflowError:
        return math.inf
    except ZeroDivisionError:
        return math.inf


OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": divided, "%": remainder, "^": power, "**": power}


def driven(running):
    """Runs a generator of a stream, all of whose input is there."""
    while True:
        try:
            next(running)
        except StopIteration as end:
            return end.value


def regex_text(text):
    """Returns a regular expression of awk as one of POSIX, whose brackets have no escapes."""

    def meant(found):
        if found[1] is not None:
            return {"y": "\\b", "f": "\f", "r": "\r", "v": "\v", "a": "\a"}.get(found[1], found[0])
        inner = re.sub(r"\\(.)", lambda one: {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}.get(one[1], one[1]) if one[1] != "]" else "", found[2])
        negated = inner[:1] == "^" and found[2][:1] == "^"
        if "\\]" in found[2]:
            inner = "^]" + inner[1:] if negated else "]" + inner
        return f"[{inner}]"

    return BRACKET.sub(meant, text)


class Own(dict):
    """Variables such as `FS`, of which `NF` is that of the record."""

    def __init__(self, run):
        self.run = run
        super().__init__(FS=" ", OFS=" ", ORS="\n", RS="\n", SUBSEP="\x1c", CONVFMT="%.6g", OFMT="%.6g", FILENAME=UNSET)
        self.update(NR=0.0, FNR=0.0, RSTART=0.0, RLENGTH=-1.0)

    def __getitem__(self, name):
        return float(len(self.run.split_record())) if name == "NF" else super().__getitem__(name)

    def __setitem__(self, name, value):
        if name == "NF":
            self.run.resize(int(number(value)))
        elif name in ("OFS", "ORS", "SUBSEP"):
            super().__setitem__(name, self.run.text(value))
        else:
            super().__setitem__(name, value)


class Record:
    """`$`, by numbers."""

    def __init__(self, run):
        self.run = run

    def __getitem__(self, at):
        if not at:
            return Field(self.run.record_text())
        fields = self.run.split_record()
        return fields[at - 1] if at <= len(fields) else UNSET

    def __setitem__(self, at, value):
        run = self.run
        if not at:
            return run.begin_record(run.text(value))
        if at > len(run.split_record()):
            run.resize(at)
        run.split_record()[at - 1] = value if isinstance(value, str) else Field(run.text(value))
        run.record = None


class Run:
    """A run of a program."""

    def __init__(self, call, translation, operands, separator):
        self.call, self.operands = call, operands
        self.record, self.parts, self.separator = "", None, " "
        self.own, self.fields = Own(self), Record(self)
        self.ranges = [False] * translation.ranges
        self.buffer, self.size, self.files, self.commands = [], 0, {}, {}
        self.source, self.records, self.has_read, self.position = None, None, False, 0
        self.got, self.count, self.status, self.regexes = "", 0.0, 0.0, {}
        self.random, self.seed = random.Random(0), 0.0
        if separator is not None:
            self.own["FS"] = separator
        environ = call.shell.variables
        self.names = {
            "__name__": "hatchery.awk", "run": self, "text": self.text, "number": number, "truth": truth, "order": self.order, "put": put, "change": change,
            "Field": Field, "UNSET": UNSET, "Array": Array, "Next": Next, "Exit": Exit, "divided": divided, "remainder": remainder,
            "power": power, "inf": math.inf, "__builtins__": {"float": float, "len": len, "list": list},
            "a_ENVIRON": Array({name: Field(environ[name]) for name in sorted(call.shell.exported & environ.keys())}),
            "a_ARGV": Array({str(at): Field(name) for at, name in enumerate(["awk", *operands])}),
        }
        try:
            exec(compile(translation.source, "<awk>", "exec"), self.names)
        except (SyntaxError, MemoryError, RecursionError):
            raise Usage("the program is nested too deep") from None
        self.names["g_ARGC"] = float(len(operands) + 1)

    def assign(self, name, value):
        value = Field(unescaped(value))
        if name in self.own or name == "NF":
            self.own[name] = value
        elif f"a_{name}" not in self.names:
            self.names[f"g_{name}"] = value

    # Values.

    def text(self, value, form="CONVFMT"):
        if type(value) is not float:
            return value
        if value.is_integer() and abs(value) < 1 << 63:
            return str(int(value))
        return self.formatted(self.text(self.own[form]), value) if math.isfinite(value) else special(value)

    def printed(self, value):
        return self.text(value, "OFMT")

    def order(self, one, other):
        """Returns a number below, above or equal to 0."""
        if is_number(one) and is_number(other):
            one, other = number(one), number(other)
            return math.nan if one != one or other != other else (one > other) - (one < other)
        one, other = self.text(one), self.text(other)
        return (one > other) - (one < other)

    def key(self, *texts):
        return self.own["SUBSEP"].join(texts)

    def at(self, value):
        if not 0 <= value <= MOST_FIELDS:
            raise Usage(f"there is no field {self.text(value)}")
        return int(value)

    def regex(self, text, is_literal=False):
        found = self.regexes.get(text)
        if found is None:
            if len(self.regexes) > 500:
                self.regexes.clear()
            found = self.regexes[text] = compiled(regex_text(text), True)
        return found

    # The record.

    def begin_record(self, text):
        self.record, self.parts, self.separator = text, None, self.own["FS"]

    def split_record(self):
        if self.parts is None:
            self.parts = [Field(part) for part in self.pieces(self.record, self.separator)]
        return self.parts

    def record_text(self):
        if self.record is None:
            self.record = self.own["OFS"].join(map(self.text, self.parts))
        return self.record

    def resize(self, count):
        count = self.at(float(count))
        parts = self.split_record()
        parts[count:] = [Field("")] * (count - len(parts))
        self.record = None

    def pieces(self, text, separator):
        """Splits a text as fields are; the separator is a text or a regular expression."""
        is_paragraph = self.own["RS"] == ""
        if isinstance(separator, str):
            if separator == " ":
                return re.findall(r"[^ \t\n]+", text)
            if not text:
                return []
            if separator == "":
                return list(text)
            if len(separator) == 1 and separator != "\\" and not is_paragraph:
                return text.split(separator)
            separator = re.compile(re.escape(separator)) if len(separator) == 1 else self.regex(separator)
        if not text:
            return []
        if is_paragraph:
            separator = re.compile(f"(?:{separator.pattern})|\n")
        found, at = [], 0
        for match in separator.finditer(text):
            if match.end() > match.start():
                found.append(text[at : match.start()])
                at = match.end()
        return [*found, text[at:]]

    # Input.

    def next_record(self):
        """Reads the next record of the operands. Returns whether there is one."""
        while True:
            if self.source is None and not (yield from self.open_next()):
                return False
            text = yield from self.read(self.source)
            if text is not None:
                self.own["NR"], self.own["FNR"] = number(self.own["NR"]) + 1, number(self.own["FNR"]) + 1
                self.got = text
                return True
            self.close_source()

    def close_source(self):
        if self.source is not None and self.source[0] not in self.call.shell.streams.values():
            self.source[0].close()
        self.source = None

    def open_next(self):
        argv = self.names["a_ARGV"]
        while self.position < int(number(self.names["g_ARGC"])) - 1:
            self.position += 1
            name = self.text(argv.get(str(self.position), ""))
            if found := ASSIGNMENT.fullmatch(name):
                self.assign(found[1], found[2])
            elif name:
                self.has_read = True
                try:
                    stream = self.call.stdin if name == "-" else self.call.shell.open(name)
                except OSError as error:
                    self.call.fail(f"{name}: {os.strerror(error.errno)}")
                    continue
                self.begin_source(stream, name)
                return True
        if self.has_read:
            return False
        self.has_read = True
        self.begin_source(self.call.stdin, "")
        return True
        yield

    def begin_source(self, stream, name):
        self.source = [stream, None]
        self.own["FILENAME"], self.own["FNR"] = Field(name), 0.0

    def read(self, source):
        """Reads a record of a stream, whose other records are kept beside it if they aren't lines."""
        separator = self.text(self.own["RS"])
        if separator == "\n" and source[1] is None:
            line = yield from source[0].line()
            return line.decode("utf-8", "surrogateescape").removesuffix("\n") if line else None
        if source[1] is None:
            text = (yield from source[0].all()).decode("utf-8", "surrogateescape")
            if separator == "":
                text = text.strip("\n")
                parts = re.split("\n\n+", text) if text else []
            elif not text:
                parts = []
            else:
                parts = text.split(separator) if len(separator) == 1 else self.regex(separator).split(text)
                if parts[-1] in ("", "\n") and separator != "\n":
                    parts[-1:] = [] if parts[-1] == "" else parts[-1:]
                elif parts[-1] == "":
                    parts.pop()
            source[1] = iter(parts)
        return next(source[1], None)

    def getline(self, sign, name, is_record):
        """Reads a record into `got`, or as the record. Returns 1, 0 at the end, and -1 if there is no such file."""
        self.status = 1.0
        if not sign:
            if not driven(self.next_record()):
                self.status = 0.0
        else:
            try:
                source = self.files.get((sign, name)) or self.opened(sign, name)
            except OSError:
                self.status = -1.0
                return self.status
            text = driven(self.read(source))
            if text is None:
                self.status = 0.0
            else:
                self.got = text
                if sign == "|":
                    self.own["NR"] = number(self.own["NR"]) + 1
        if self.status > 0:
            self.got = Field(self.got)
            if is_record:
                self.begin_record(self.got)
        return self.status

    def opened(self, sign, name):
        if sign == "|":
            self.flush()
            pipe = Pipe()
            self.command(name, {1: pipe})
            pipe.is_written = True
            stream = pipe
        else:
            stream = self.call.stdin if name == "-" else self.call.shell.open(name)
        self.files[sign, name] = [stream, None]
        return self.files[sign, name]

    # Output.

    def line(self, *texts):
        return self.own["OFS"].join(texts) + self.own["ORS"]

    def write(self, text, sign=None, name=None):
        data = text.encode("utf-8", "surrogateescape")
        if sign is None or name == "/dev/stdout":
            self.buffer.append(data)
            self.size += len(data)
            if self.size > CHUNK:
                self.flush()
            return
        target = self.files.get((sign[0], name))
        if target is None:
            self.flush()
            target = self.files[sign[0], name] = [Pipe() if sign == "|" else self.call.shell.open(name, sign), None]
        target[0].write(data)

    def flush(self):
        if self.buffer:
            data, self.buffer, self.size = b"".join(self.buffer), [], 0
            self.call.write(data)

    def command(self, line, streams):
        """Runs a line of the shell. Returns its status."""
        shell = self.call.shell.fork()
        if isinstance(shell.streams.get(0), Pipe):
            # Nobody fills it while this runs.
            shell.streams[0] = Nothing()
        shell.streams |= streams
        driven(shell.guarded(shell.script(line)))
        return float(shell.status)

    def do_close(self, name):
        status = -1.0
        for sign in (">", "<", "|"):
            if (sign, name) in self.files:
                stream = self.files.pop((sign, name))[0]
                status = 0.0
                if sign == "|" and not stream.is_written:
                    stream.is_written = True
                    self.flush()
                    status = self.command(name, {0: stream})
                elif stream not in self.call.shell.streams.values():
                    stream.close()
        return status

    def finish(self):
        self.flush()
        for _, name in list(self.files):
            self.do_close(name)
        self.close_source()

    # Functions.

    def do_system(self, line):
        self.flush()
        return self.command(line, {})

    def do_fflush(self, name=""):
        self.flush()
        return 0.0

    def do_index(self, text, part):
        return float(text.find(part) + 1)

    def do_substr(self, text, start, length=math.inf):
        if start != start or length != length:
            return ""
        start = round_half_even(start)
        end = start + (round_half_even(length) if math.isfinite(length) else length)
        start = max(start, 1)
        return text[start - 1 : None if end == math.inf else max(int(end) - 1, 0)] if start <= len(text) and end > start else ""

    def do_int(self, value):
        return float(math.trunc(value)) if math.isfinite(value) else value

    def do_sqrt(self, value):
        return math.sqrt(value) if value >= 0 else math.nan

    def do_exp(self, value):
        try:
            return math.exp(value)
        except OverflowError:
            return math.inf

    def do_log(self, value):
        return math.log(value) if value > 0 else -math.inf if value == 0 else math.nan

    do_sin, do_cos, do_atan2 = (staticmethod(getattr(math, name)) for name in ("sin", "cos", "atan2"))

    def do_rand(self):
        return self.random.random()

    def do_srand(self, seed=None):
        before, self.seed = self.seed, float(int(time.time())) if seed is None else seed
        self.random.seed(self.seed)
        return before

    def do_systime(self):
        return float(int(time.time()))

    def do_strftime(self, form="%c", moment=None, is_utc=0.0):
        return time.strftime(form, time.gmtime(time.time() if moment is None else moment))

    def do_and(self, one, other):
        return float(int(one) & int(other))

    def do_or(self, one, other):
        return float(int(one) | int(other))

    def do_xor(self, one, other):
        return float(int(one) ^ int(other))

    def do_compl(self, one):
        return float(~int(one) & 0xFFFFFFFF)

    def do_lshift(self, one, by):
        return float(int(one) << min(int(by), 64) & 0xFFFFFFFFFFFFFFFF)

    def do_rshift(self, one, by):
        return float(int(one) >> min(int(by), 64))

    def do_strtonum(self, text):
        found = re.match(r"\s*0[xX]([0-9a-fA-F]{1,30})", text)
        return float(int(found[1], 16)) if found else number(text)

    def match(self, text, regex, array=None):
        found = regex.search(text)
        self.own["RSTART"] = float(found.start() + 1) if found else 0.0
        self.own["RLENGTH"] = float(found.end() - found.start()) if found else -1.0
        if array is not None:
            array.clear()
            if found:
                array |= {str(at): Field(part) for at, part in enumerate((found[0], *found.groups())) if part is not None}
        return self.own["RSTART"]

    def split(self, text, array, separator=None):
        parts = self.pieces(text, self.own["FS"] if separator is None else separator)
        array.clear()
        array |= {str(at): Field(part) for at, part in enumerate(parts, 1)}
        return float(len(parts))

    def replace(self, regex, form, text, is_global):
        """Leaves the new text in `got`. Returns how often the regular expression was found, also in `count`."""

        def new(found):
            return re.sub(r"\\(\\&|&|\\)|&", lambda sign: {None: found[0], "\\&": "\\" + found[0], "&": "&", "\\": "\\"}[sign[1]], form)

        self.got, count = regex.subn(new, text, 0 if is_global else 1)
        self.count = float(count)
        return self.count

    def gensub(self, regex, form, how, text):
        def new(found):
            part = lambda sign: found[int(sign[1])] or "" if sign[1] and sign[1].isdecimal() else "&" if sign[1] == "&" else found[0] if sign[0] == "&" else sign[1]
            return re.sub(r"\\(.)|&", part, form)

        if how[:1] in ("g", "G"):
            return regex.sub(new, text)
        wanted, seen = max(int(number(how)), 1), 0

        def only(found):
            nonlocal seen
            seen += 1
            return new(found) if seen == wanted else found[0]

        return regex.sub(only, text, wanted)

    def formatted(self, form, *values):
        values = list(values)

        def take(default):
            return values.pop(0) if values else default

        def shown(found):
            flags, width, has_precision, precision, kind = found.groups()
            if kind == "%":
                return "%"
            width = int(number(take(0.0))) if width == "*" else int(width or 0)
            precision = int(number(take(0.0))) if precision == "*" else int(precision or 0)
            if width < 0:
                flags, width = flags + "-", -width
            if max(width, precision) > WIDEST:
                raise Usage("the field is too wide")
            value = take(UNSET)
            if kind in "cs":
                if kind == "c":
                    text = chr(int(value) & 0x10FFFF) if type(value) is float else value[:1]
                else:
                    text = self.text(value)[: precision if has_precision else None]
                return text.ljust(width) if "-" in flags else text.rjust(width)
            value = number(value)
            if not math.isfinite(value):
                return special(value, "+" in flags).rjust(width)
            shape = f"%{flags}{width or ''}{f'.{precision}' if has_precision else ''}"
            if kind in "diouxX":
                value = math.trunc(value)
                return (shape + ("d" if kind in "diu" else kind)) % (value if kind in "di" or value >= 0 else value & 0xFFFFFFFFFFFFFFFF)
            return (shape + kind) % value

        return FORMAT.sub(shown, form)


def special(value, is_signed=False):
    text = "nan" if value != value else "inf"
    return ("-" if math.copysign(1, value) < 0 else "+" * is_signed) + text


def round_half_even(value):
    return round(value) if math.isfinite(value) else (1 << 60 if value > 0 else -1 << 60)


def awk(call, args):
    args, separator, assigned, texts = list(args), None, [], []
    while args and args[0][:1] == "-" and len(args[0]) > 1:
        option = args.pop(0)
        if option == "--":
            break
        letter, value = option[1], option[2:]
        if letter not in "Fvf" or option[:2] == "--":
            raise Usage(f"unrecognized option '{option}'")
        if not value:
            if not args:
                raise Usage(f"option requires an argument -- '{letter}'")
            value = args.pop(0)
        if letter == "F":
            separator = "\t" if value == "t" else unescaped(value)
        elif letter == "v":
            found = ASSIGNMENT.fullmatch(value)
            if not found:
                raise Usage(f"-v takes NAME=VALUE, not '{value:.60}'")
            assigned.append(found.groups())
        else:
            for _, stream in call.sources([value]):
                texts.append((yield from stream.all()).decode("utf-8", "surrogateescape"))
            if call.status:
                return call.status
    if not texts:
        if not args:
            raise Usage("usage: awk [-F SEPARATOR] [-v NAME=VALUE] PROGRAM|-f FILE [FILE]…")
        texts.append(args.pop(0))
    try:
        translation = Translation("\n".join(texts))
    except AwkSyntaxError as error:
        raise Usage(str(error)) from None
    except RecursionError:
        raise Usage("the program is nested too deep") from None
    run = Run(call, translation, args, separator)
    for name, value in assigned:
        run.assign(name, value)
    if translation.program.reads_input and isinstance(call.stdin, Pipe) and not call.stdin.is_written:
        # What reads a line in the middle of an expression can't wait for it.
        pipe = Pipe((yield from call.stdin.all()))
        pipe.is_written = True
        call.shell = call.shell.fork()
        call.shell.streams[0] = pipe
    status = 0.0
    try:
        try:
            run.names["begin"]()
            if translation.has & {"", "END"}:
                yield from each_record(run)
        except Exit as left:
            status = left.args[0] or status
        try:
            run.names["finish"]()
        except Exit as left:
            status = status if left.args[0] is None else left.args[0]
    except BrokenPipeError:
        run.buffer = []
        raise
    finally:
        run.finish()
    return int(status) & 0xFF or call.status


def each_record(run):
    each = run.names["each_record"]
    while (yield from run.next_record()):
        run.begin_record(run.got)
        try:
            each()
        except Next as left:
            if left.args[0]:
                run.close_source()


COMMANDS = {"awk": awk, "gawk": awk, "mawk": awk}
