"""The machine code of orjson, in Python: the same results and errors, without its speed."""

import dataclasses
import datetime
import enum
import itertools
import json
import math
import re
import sys
import uuid

__version__ = "3.13.0"
OPT_INDENT_2, OPT_NAIVE_UTC, OPT_NON_STR_KEYS, OPT_OMIT_MICROSECONDS = 1, 2, 4, 8
OPT_SERIALIZE_NUMPY, OPT_SORT_KEYS, OPT_STRICT_INTEGER, OPT_UTC_Z = 16, 32, 64, 128
OPT_PASSTHROUGH_SUBCLASS, OPT_PASSTHROUGH_DATETIME, OPT_APPEND_NEWLINE, OPT_PASSTHROUGH_DATACLASS = 256, 512, 1024, 2048
OPT_SERIALIZE_DATACLASS = OPT_SERIALIZE_UUID = 0
_MOST_LEVELS, _MOST_LEVELS_READ = 254, 1024
# The flag of types that aren't Python's own.
_IMMUTABLE = 1 << 8


class JSONDecodeError(json.JSONDecodeError):
    __module__ = "orjson"


JSONEncodeError = TypeError


class Fragment:
    __module__ = "orjson"
    __slots__ = ("_contents",)

    def __init__(self, *contents, **named):
        if len(contents) != 1 or named:
            raise TypeError("orjson.Fragment() takes exactly 1 positional argument")
        self._contents = contents[0]


def dumps(*given, **named):
    """Serialize Python objects to JSON."""
    if not given:
        raise TypeError("dumps() missing 1 required positional argument: 'obj'")
    if named.keys() - {"default", "option"}:
        raise TypeError("dumps() got an unexpected keyword argument")
    value, default, option = (*given, None, None)[:3]
    default, option = named.get("default", default), named.get("option", option)
    if option is not None and (type(option) is not int or not 0 <= option < 4096):
        raise TypeError("Invalid opts")
    writer = _Writer(default, option or 0)
    writer.write(value, 0, 0)
    if writer.option & OPT_APPEND_NEWLINE:
        writer.parts.append("\n")
    return "".join(writer.parts).encode(errors="surrogateescape")


class _Writer:
    def __init__(self, default, option):
        self.default, self.option, self.parts = default, option, []

    def write(self, value, level, defaults):
        """Adds the text of a value, which is on this level and came from so many calls of `default`."""
        text = self.scalar(value)
        if text is not None:
            self.parts.append(text)
            return
        kind, passes = type(value), self.option & OPT_PASSTHROUGH_SUBCLASS
        if kind is dict or isinstance(value, dict) and not passes:
            self.write_items(self.members(value), "{}", level, defaults)
        elif kind is list or kind is tuple or isinstance(value, list) and not passes:
            self.write_items(((None, one) for one in value), "[]", level, defaults)
        elif isinstance(value, enum.Enum):
            self.write(value.value, level, defaults)
        elif dataclasses.is_dataclass(value) and kind is not type and not self.option & OPT_PASSTHROUGH_DATACLASS:
            names = vars(value) if hasattr(value, "__dict__") else [field.name for field in dataclasses.fields(value)]
            shown = ((_quoted(name), getattr(value, name)) for name in names if name[:1] != "_")
            self.write_items(shown, "{}", level, defaults)
        elif self.option & OPT_SERIALIZE_NUMPY and _is_numpy(value, "ndarray"):
            reason = self.write_array(value, level)
            if reason is not None:
                self.write_default(value, level, defaults, reason)
        else:
            name = kind.__name__
            if kind.__flags__ & _IMMUTABLE and kind.__module__ != "builtins":
                name = f"{kind.__module__}.{name}"
            self.write_default(value, level, defaults, f"Type is not JSON serializable: {name}")

    def write_default(self, value, level, defaults, reason):
        if self.default is None:
            raise TypeError(reason)
        if defaults == _MOST_LEVELS:
            raise TypeError("default serializer exceeds recursion limit")
        try:
            value = self.default(value)
        except Exception as error:
            raise TypeError(reason) from error
        self.write(value, level, defaults + 1)

    def write_items(self, items, brackets, level, defaults):
        if level == _MOST_LEVELS:
            raise TypeError("Recursion limit reached")
        self.parts.append(brackets[0])
        indent = self.option & OPT_INDENT_2
        before = first = "\n" + "  " * (level + 1) if indent else ""
        for key, value in items:
            self.parts.append(before if key is None else f"{before}{key}: " if indent else f"{before}{key}:")
            self.write(value, level + 1, defaults)
            before = "," + first
        if indent and before is not first:
            self.parts.append("\n" + "  " * level)
        self.parts.append(brackets[1])

    def members(self, value):
        members = ((self.key(key), one) for key, one in value.items())
        if self.option & OPT_SORT_KEYS:
            members = sorted(members, key=lambda member: member[0])
        elif self.option & OPT_NON_STR_KEYS:
            members = list(members)
        return ((_quoted(key), one) for key, one in members)

    def key(self, key):
        if type(key) is str:
            return key
        if not self.option & OPT_NON_STR_KEYS:
            raise TypeError("Dict key must be str")
        if isinstance(key, enum.Enum):
            return self.key(key.value)
        if isinstance(key, str):
            return str(key)
        if isinstance(key, int) and not -2**63 <= key < 2**64:
            raise TypeError("Dict integer key must be within 64-bit range")
        writer = _Writer(None, self.option & ~OPT_PASSTHROUGH_DATETIME)
        text = None if isinstance(key, Fragment) or type(key).__module__ == "numpy" else writer.scalar(key)
        if text is None:
            raise TypeError("Dict key must a type serializable with OPT_NON_STR_KEYS")
        return text.strip('"')

    def scalar(self, value):
        """Returns the text of a value without parts; `None` if it has some or none is known."""
        kind, option = type(value), self.option
        if kind is str:
            return _quoted(value)
        if value is None or value is True or value is False:
            return {None: "null", True: "true", False: "false"}[value]
        if kind is int:
            return self.integer(value)
        if kind is float:
            return _number(value)
        if kind is Fragment:
            contents = value._contents
            if type(contents) not in (bytes, str):
                raise TypeError("orjson.Fragment's content is not of type bytes or str")
            return contents if type(contents) is str else contents.decode(errors="surrogateescape")
        if kind is uuid.UUID:
            return f'"{value}"'
        if not option & OPT_PASSTHROUGH_DATETIME:
            if kind is datetime.datetime:
                return f'"{self.time(value)}"'
            if kind is datetime.date:
                return f'"{value.isoformat()}"'
            if kind is datetime.time:
                if value.tzinfo is not None:
                    raise TypeError("datetime.time must not have tzinfo set")
                return f'"{self.time(value)}"'
        if not option & OPT_PASSTHROUGH_SUBCLASS and not isinstance(value, enum.Enum):
            if isinstance(value, str):
                return _quoted(str.__str__(value))
            if isinstance(value, int):
                return self.integer(int(value))
        if option & OPT_SERIALIZE_NUMPY and _is_numpy(value, "generic"):
            return self.of_numpy(value)
        return None

    def integer(self, value):
        if not -2**63 <= value < 2**64:
            raise TypeError("Integer exceeds 64-bit range")
        if self.option & OPT_STRICT_INTEGER and abs(value) > 2**53 - 1:
            raise TypeError("Integer exceeds 53-bit range")
        return int.__repr__(value)

    def time(self, value):
        if self.option & OPT_OMIT_MICROSECONDS:
            value = value.replace(microsecond=0)
        if isinstance(value, datetime.time):
            return value.isoformat()
        text, zone = value.replace(tzinfo=None).isoformat(), value.utcoffset()
        if zone is None and not self.option & OPT_NAIVE_UTC:
            return text
        minutes = 0 if zone is None else (zone + datetime.timedelta(seconds=30)) // datetime.timedelta(minutes=1)
        if not minutes and self.option & OPT_UTC_Z:
            return text + "Z"
        return f"{text}{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"

    def of_numpy(self, value):
        kind = value.dtype.kind
        if kind == "b":
            return "true" if value else "false"
        if kind in "iu":
            return str(int(value))
        if kind == "f" and value.dtype.itemsize <= 8:
            # The shortest text that is this number with so few bits; half precision is taken as single.
            return _number(float(str(value if value.dtype.itemsize > 2 else value.astype("f4"))))
        if kind == "M":
            if value != value:
                raise TypeError("unsupported numpy.datetime64 unit: NaT")
            return f'"{self.time(value.astype("M8[us]").item())}"'
        return None

    def write_array(self, array, level):
        """Writes an array, or returns why that can't be done."""
        if not array.flags.c_contiguous:
            return "numpy array is not C contiguous; use ndarray.tolist() in default"
        if not array.dtype.isnative:
            return "numpy array is not native-endianness"
        if not array.ndim or array.dtype.kind not in "biufM" or array.dtype.itemsize > 8:
            return "unsupported datatype in numpy array"
        self.write_items(((None, one) for one in array), "[]", level, 0)
        return None


def _is_numpy(value, name):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, name))


def _quoted(text):
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise TypeError("str is not valid UTF-8: surrogates not allowed") from None
    return json.encoder.encode_basestring(text)


def _number(value):
    if not math.isfinite(value):
        return "null"
    text = float.__repr__(value)
    if text.endswith("e-05"):
        return f"{value:.{len(text.strip('-').replace('.', '')) }f}"
    return text.replace("e-0", "e-")


def loads(*given, **named):
    """Deserialize JSON to Python objects."""
    if named:
        raise TypeError("orjson.loads() takes no keyword arguments")
    if len(given) != 1:
        raise TypeError(f"orjson.loads() takes exactly one argument ({len(given)} given)")
    text = given[0]
    if not isinstance(text, (str, bytes, bytearray, memoryview)):
        raise JSONDecodeError("Input must be bytes, bytearray, memoryview, or str", "", 0)
    try:
        text = text if isinstance(text, str) else bytes(text).decode()
        text.encode()
    except UnicodeError:
        raise JSONDecodeError("str is not valid UTF-8: surrogates not allowed", "", 0) from None
    if not text:
        raise JSONDecodeError("Input is a zero-length, empty document", "", 0)
    if _DOUBTFUL.search(text) is None and _levels(text) <= _MOST_LEVELS_READ:
        try:
            return _DECODER.decode(text)
        except ValueError:
            pass
    _check(text)
    return _DECODER.decode(text)


def _levels(text):
    """Returns how deep a document is, or less if it has few brackets."""
    if text.count("[") + text.count("{") < 1024:
        return 0
    steps = (1 if bracket in "[{" else -1 for bracket in _NO_BRACKETS.sub("", text))
    return max(itertools.accumulate(steps), default=0)


def _whole(text):
    value = int(text)
    return value if -2**63 <= value < 2**64 else float(text)


def _real(text):
    value = float(text)
    if math.isinf(value):
        raise ValueError(text)
    return value


def _refused(text):
    raise ValueError(text)


_DECODER = json.JSONDecoder(parse_int=_whole, parse_float=_real, parse_constant=_refused)
# Halves of surrogate pairs, which json takes alone.
_DOUBTFUL = re.compile(r"\\u[dD][89a-fA-F]")
_NO_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[^\[\]{}"]+', re.DOTALL)
_BLANKS = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u([0-9a-fA-F]{4}))')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_PARTS = (
    (r"[-+.]", "no digit after sign"),
    (r"(?:-?[0-9]+)\.", "no digit after decimal point"),
    (r"(?:-?[0-9]+)(?:\.[0-9]+)?[eE][+-]?", "no digit after exponent sign"),
)
_LITERALS = {"t": "true", "f": "false", "n": "null"}


def _check(text):
    """Raises the error for the first thing that is wrong with a document."""
    at, closings, expected = 0, [], "value"
    if text[0] == "\ufeff":
        raise JSONDecodeError("UTF-8 byte order mark (BOM) is not supported", text, 0)
    if _BLANKS.fullmatch(text):
        raise JSONDecodeError("input data is empty", text, 0)
    while True:
        at = _BLANKS.match(text, at).end()
        here, closing = text[at : at + 1], closings[-1] if closings else None
        wrong = None
        if expected == "end" and closing is None:
            if not here:
                return
            raise JSONDecodeError("unexpected content after document", text, at)
        if here == closing and expected != "a value":
            if expected in ("value", "key"):
                raise JSONDecodeError("trailing comma is not allowed", text, text.rindex(",", 0, at))
            closings.pop()
            at, expected = at + 1, "end"
        elif expected == "end":
            wrong = f"unexpected character, expected ',' or '{closing}'"
            expected = "value" if closing == "]" else "key"
            at, wrong = (at + 1, None) if here == "," else (at, wrong)
        elif expected.endswith("key"):
            if here == '"':
                at = _BLANKS.match(text, _after_string(text, at)).end()
                here, wrong = text[at : at + 1], "unexpected character, expected ':' after key"
                at, wrong, expected = (at + 1, None, "a value") if here == ":" else (at, wrong, "")
            else:
                wrong = "unexpected character, expected a string key"
        elif here in ("[", "{"):
            closings.append("]" if here == "[" else "}")
            at, expected = at + 1, "first value" if here == "[" else "first key"
            if len(closings) > _MOST_LEVELS_READ:
                raise JSONDecodeError("depth limit exceeded", text, at)
        elif here == '"':
            at, expected = _after_string(text, at), "end"
        elif here and here in "-+.0123456789":
            at, expected = _after_number(text, at), "end"
        elif here in _LITERALS:
            literal = _LITERALS[here]
            if not text.startswith(literal, at):
                wrong = f"invalid literal, expected '{literal}'"
                here = here if not literal.startswith(text[at:]) else ""
            else:
                at, expected = at + len(literal), "end"
        else:
            wrong = "unexpected character, expected a JSON value"
        if wrong is not None:
            raise JSONDecodeError(wrong, text, at) if here else _cut(text)


def _cut(text):
    return JSONDecodeError("unexpected end of data", text, len(text))


def _after_string(text, at):
    at, high = at + 1, None
    while True:
        at = _PLAIN.match(text, at).end() if high is None else at
        here = text[at : at + 1]
        escape = _ESCAPE.match(text, at)
        code = int(escape[1], 16) if escape and escape[1] else 0
        if high is not None:
            if code >> 10 != 0x37:
                if len(text) - at < 6 and re.fullmatch(r"(\\(u)?)?", text[at:]):
                    raise _cut(text)
                escapes = text.startswith("\\u", at)
                reason = "invalid low surrogate" if code else "invalid escape" if escapes else "no low surrogate"
                raise JSONDecodeError(f"{reason} in string", text, high)
            high = None
        elif here == '"':
            return at + 1
        elif not here:
            raise _cut(text)
        elif here != "\\":
            raise JSONDecodeError("unexpected control character in string", text, at)
        elif escape is None:
            if re.fullmatch(r"\\(u[0-9a-fA-F]{0,3})?", text[at:]):
                raise _cut(text)
            raise JSONDecodeError("invalid escaped sequence in string", text, at)
        elif code >> 10 == 0x37:
            raise JSONDecodeError("invalid high surrogate in string", text, at)
        elif code >> 10 == 0x36:
            high = at
        at = escape.end()


def _after_number(text, at):
    number = _NUMBER.match(text, at)
    after = at if number is None else number.end()
    digits = at + text.startswith("-", at)
    if re.match("0[0-9]", text[digits : digits + 2]):
        raise JSONDecodeError("number with leading zero is not allowed", text, digits)
    for part, reason in _PARTS:
        begun = re.compile(part).match(text, at)
        if begun and begun.end() > after:
            end = begun.end() if text[at] == "-" or begun[0][0].isdigit() else at
            raise JSONDecodeError(reason, text, end) if end < len(text) else _cut(text)
    if math.isinf(float(number[0])):
        raise JSONDecodeError("number is infinity when parsed as double", text, at)
    return after
