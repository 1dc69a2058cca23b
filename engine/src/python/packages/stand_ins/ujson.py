"""The machine code of ujson, in Python: the same results and errors, without its speed."""

import decimal
import itertools
import json
import math
import re

__version__ = "6.1.0"
_MOST_LEVELS = 1024


class JSONDecodeError(ValueError):
    __module__ = "ujson"


def dumps(
    obj, ensure_ascii=True, encode_html_chars=False, escape_forward_slashes=True, sort_keys=False, indent=0,
    allow_nan=True, reject_bytes=True, default=None, separators=None,
):
    """Converts arbitrary object recursively into JSON."""
    between, after_key = (",", ": " if indent else ":") if separators is None else _separators(separators)

    def quoted(text):
        text = json.encoder.encode_basestring(text)
        if ensure_ascii:
            text = _BEYOND_ASCII.sub(lambda found: json.encoder.encode_basestring_ascii(found[0])[1:-1], text)
        if escape_forward_slashes:
            text = text.replace("/", "\\/")
        if encode_html_chars:
            text = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
        return text

    def key(value):
        if isinstance(value, bytes):
            return value.decode()
        if value is None or value is True or value is False:
            return {None: "null", True: "true", False: "false"}[value]
        return value if isinstance(value, str) else str(value)

    def written(parts, brackets, level):
        if indent <= 0 or not parts:
            return brackets[0] + between.join(parts) + brackets[1]
        margin = "\n" + " " * indent * level
        inner = margin + " " * indent
        return f"{brackets[0]}{inner}{(between + inner).join(parts)}{margin}{brackets[1]}"

    def text_of(value, level, defaults=0):
        if level > _MOST_LEVELS:
            raise OverflowError("Maximum recursion level reached")
        if value is None or value is True or value is False:
            return {None: "null", True: "true", False: "false"}[value]
        if isinstance(value, int):
            return int.__repr__(value)
        if isinstance(value, str) or isinstance(value, bytes) and not reject_bytes:
            return quoted(value.decode(errors="surrogatepass") if isinstance(value, bytes) else value)
        if isinstance(value, (float, decimal.Decimal)):
            value = float(value)
            if not math.isfinite(value):
                if not allow_nan:
                    raise OverflowError("Invalid value when encoding double")
                return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
            return float.__repr__(value).replace("e-0", "e-")
        if isinstance(value, dict):
            members = sorted(value.items(), key=lambda item: item[0]) if sort_keys else value.items()
            parts = [f"{quoted(key(name))}{after_key}{text_of(one, level + 1)}" for name, one in members]
            return written(parts, "{}", level)
        if isinstance(value, (list, tuple)):
            return written([text_of(one, level + 1) for one in value], "[]", level)
        if hasattr(value, "toDict"):
            value = value.toDict()
            if not isinstance(value, dict):
                raise TypeError(f"toDict() should return a dict, got {value!r}")
            return text_of(value, level)
        if hasattr(value, "__json__"):
            return value.__json__()
        if default is None:
            raise TypeError(f"{value!r} is not JSON serializable")
        if defaults == _MOST_LEVELS:
            raise TypeError("maximum recursion depth exceeded")
        return text_of(default(value), level, defaults + 1)

    try:
        return text_of(obj, 0)
    except RecursionError:
        raise OverflowError("Maximum recursion level reached") from None


def _separators(pair):
    if not isinstance(pair, tuple):
        raise TypeError("expected tuple or None as separator")
    if len(pair) != 2:
        raise ValueError("expected tuple of size 2 as separator")
    for name, one in zip(("item", "key"), pair):
        if not isinstance(one, str):
            raise TypeError(f"expected str as {name} separator")
    return pair


def dump(obj, fp, *given, **named):
    """Converts arbitrary object recursively into JSON file."""
    if not hasattr(fp, "write"):
        raise TypeError("expected file")
    fp.write(dumps(obj, *given, **named))


def loads(obj):
    """Converts JSON as string to dict object structure."""
    if isinstance(obj, memoryview):
        raise TypeError("Arbitrary bytes-like objects are no longer supported. Use either string, bytes, or bytearray.")
    if not isinstance(obj, (str, bytes, bytearray)):
        raise TypeError("Expected string, bytes, or bytearray")
    try:
        text = obj if isinstance(obj, str) else obj.decode(errors="surrogatepass")
    except UnicodeDecodeError:
        raise JSONDecodeError("Invalid UTF-8 sequence length when decoding 'string'") from None
    if "\0" not in text and _levels(text) <= _MOST_LEVELS:
        try:
            return _DECODER.decode(text)
        except ValueError:
            pass
    try:
        value, at = _value(text, 0, 0)
    except RecursionError:
        raise JSONDecodeError("Reached object decoding depth limit") from None
    if _BLANKS.match(text, at).end() < len(text):
        raise JSONDecodeError("Trailing data")
    return value


def _levels(text):
    """Returns how deep a document is, or less if it has few brackets."""
    if text.count("[") + text.count("{") < 1024:
        return 0
    steps = (1 if bracket in "[{" else -1 for bracket in _NO_BRACKETS.sub("", text))
    return max(itertools.accumulate(steps), default=0)


def load(fp):
    """Converts JSON as file to dict object structure."""
    if not hasattr(fp, "read"):
        raise TypeError("expected file")
    return loads(fp.read())


encode, decode = dumps, loads
_DECODER = json.JSONDecoder(strict=False)
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_NO_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[^\[\]{}"]+', re.DOTALL)
_BLANKS = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?[0-9]*(?:(?<=[0-9])\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_STRING = re.compile(r'"([^"\\\0]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\0]*)*)')
_WORDS = {"null": None, "true": True, "false": False, "NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _value(text, at, level):
    """Reads what json doesn't: numbers in odd forms; or finds what is wrong."""
    at = _BLANKS.match(text, at).end()
    here = text[at : at + 1]
    if here == '"':
        return _string(text, at)
    for word, value in _WORDS.items():
        if here == word[0] and (here != "-" or text.startswith("-I", at)):
            if not text.startswith(word, at):
                raise JSONDecodeError(f"Unexpected character found when decoding '{word}'")
            return value, at + len(word)
    if here and here in "-0123456789":
        number = _NUMBER.match(text, at)
        whole = number[0].lstrip("-").isdigit() or number[0] == "-"
        return (int(number[0] if number[0] != "-" else "0") if whole else float(number[0])), number.end()
    if not here or here not in "[{":
        raise JSONDecodeError("Expected object or value")
    if level == _MOST_LEVELS:
        raise JSONDecodeError("Reached object decoding depth limit")
    return (_array if here == "[" else _object)(text, at + 1, level + 1)


def _array(text, at, level):
    values, at = [], _BLANKS.match(text, at).end()
    if text.startswith("]", at):
        return values, at + 1
    while True:
        if values and text.startswith("]", _BLANKS.match(text, at).end()):
            raise JSONDecodeError(f"Unexpected character found when decoding array value ({len(values)})")
        value, at = _value(text, at, level)
        values.append(value)
        at = _BLANKS.match(text, at).end()
        if text.startswith("]", at):
            return values, at + 1
        if not text.startswith(",", at):
            raise JSONDecodeError("Unexpected character found when decoding array value (2)")
        at += 1


def _object(text, at, level):
    members = {}
    while True:
        at = _BLANKS.match(text, at).end()
        if text.startswith("}", at):
            if not members:
                return members, at + 1
            raise JSONDecodeError("Unexpected character in found when decoding object value")
        key, at = _value(text, at, level)
        if not isinstance(key, str):
            raise JSONDecodeError("Key name of object must be 'string' when decoding 'object'")
        at = _BLANKS.match(text, at).end()
        if not text.startswith(":", at):
            raise JSONDecodeError("No ':' found when decoding object value")
        members[key], at = _value(text, at + 1, level)
        at = _BLANKS.match(text, at).end()
        if text.startswith("}", at):
            return members, at + 1
        if not text.startswith(",", at):
            raise JSONDecodeError("Unexpected character in found when decoding object value")
        at += 1


def _string(text, at):
    string = _STRING.match(text, at)
    end = string.end()
    if text.startswith('"', end):
        return json.loads(f'"{string[1]}"', strict=False), end + 1
    if not text.startswith("\\", end):
        raise JSONDecodeError("Unmatched '\"' when decoding 'string'")
    if end + 1 == len(text):
        raise JSONDecodeError("Unterminated escape sequence when decoding 'string'")
    if text[end + 1] != "u":
        raise JSONDecodeError("Unrecognized escape sequence when decoding 'string'")
    if re.fullmatch("[0-9a-fA-F]{0,3}", text[end + 2 :]):
        raise JSONDecodeError("Unterminated unicode escape sequence when decoding 'string'")
    raise JSONDecodeError("Unexpected character in unicode escape sequence when decoding 'string'")
