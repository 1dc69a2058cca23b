"""Describes how a run ended: values, exceptions and texts, cut to a limit.

There is a description whatever the classes of the program do.
"""

import linecache
import sys
import traceback

from hatchery._packages import advice_on

# Integers that every JSON reader of the host takes without loss: what fits 64 bits, signed or not.
SMALLEST_INTEGER = -(1 << 63)
LARGEST_INTEGER = (1 << 64) - 1
# Keys that begin with this are special to the host's JSON reader.
NO_KEYS = "$serde_json::private::"
# Deeper values are not sent as JSON, since readers refuse them (serde_json stops at 128).
DEEPEST_VALUE = 100
SCALARS = (str, int, float, bool)
# The most frames of a traceback that are described.
MOST_FRAMES = 200
# The most exceptions in a chain or in groups, and frames and notes of them, that are described
# individually. `engine/src/run/outcome/exception.rs` has the same numbers.
MOST_EXCEPTIONS = 50
MOST_FRAMES_IN_ALL = 500
MOST_NOTES = 100
# What a text takes of the room for all texts, besides its bytes: field names, numbers, quotes.
ROOM_OF_A_PART = 32
# The characters of a name that fit into a reply under any limit.
LEAST_NAME = 32
# Ends a text that was cut.
CUT = "… ({} more characters)"
# The start of CPython's advice that doesn't apply here: there is no site or environment to enable.
NO_SITE = ". Site initialization is disabled"
# The prefix of the file names of this package: `<hatchery/` in the guest.
OUR_FILES = (lambda: None).__code__.co_filename.rpartition("_describe.py")[0]


def describe_value(has_value, value, cap, is_wide, encode):
    """Returns the last expression as JSON, if possible, and its `repr`.

    Integers may have any size if `is_wide`; otherwise those beyond 64 bits are not JSON. `is_exact`
    says whether JSON holds all of it.
    """
    if not has_value or value is None:
        return {"has_value": has_value, "is_exact": True, "value": None, "repr": None}
    is_json, is_exact, told, size = False, False, None, 0
    try:
        is_exact = is_exact_json(value, DEEPEST_VALUE, is_wide)
        told = value if is_exact else plain(value, DEEPEST_VALUE, is_wide)
        text = encode(told)
        size = len(text) if text.isascii() else len(text.encode())
        is_json = size <= cap
    except KeyboardInterrupt:
        raise
    except MemoryError:
        # The guest has no room for it, so its size is unknown.
        size = cap + 1
    except BaseException:
        # Not JSON, a lone surrogate, too many digits, or the program has changed numpy.
        is_exact = False
    described = {
        "has_value": is_json,
        "is_exact": is_exact,
        "value": told if is_json else None,
        "repr": repr_of_bytes(value, cap) if is_long(value, cap) else cut(repr_of(value), cap),
    }
    if size > cap:
        described["result_left_out"] = size
    return described


def is_long(value, cap):
    """Whether the value is bytes whose whole `repr`, most of which is cut, might not fit."""
    return (type(value) is bytes or type(value) is bytearray) and len(value) > cap


def repr_of_bytes(value, cap):
    return f"{repr(value[:cap])[:cap]}… ({len(value)} bytes in all)"


def is_exact_json(value, depth, is_wide):
    """Whether JSON can hold the value unchanged."""
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return True
    if kind is int:
        return is_wide or SMALLEST_INTEGER <= value <= LARGEST_INTEGER
    if kind is float:
        return value - value == 0.0  # neither infinite nor NaN
    if depth == 0:
        return False
    if kind is list:
        return all(is_exact_json(item, depth - 1, is_wide) for item in value)
    if kind is dict:
        return all(
            type(key) is str and not key.startswith(NO_KEYS) and is_exact_json(item, depth - 1, is_wide)
            for key, item in value.items()
        )
    return False


class NoJson(Exception):
    """JSON can't hold the value."""


def plain(value, depth, is_wide):
    """Converts the value to plain types, if they can hold all of it.

    NumPy scalars become numbers, subclasses become their base types, and keys become strings as in
    `json.dumps`, unless two keys would become equal.
    """
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return value
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.generic):
        value = numpy.generic.item(value)
        kind = type(value)
        if kind not in SCALARS:
            raise NoJson
    if issubclass(kind, (str, int, float)):
        value = plain_scalar(value, kind)
        if is_exact_json(value, 0, is_wide):
            return value
    elif depth > 0 and issubclass(kind, list):
        return [plain(item, depth - 1, is_wide) for item in list.__iter__(value)]
    elif depth > 0 and issubclass(kind, tuple):
        return [plain(item, depth - 1, is_wide) for item in tuple.__iter__(value)]
    elif depth > 0 and issubclass(kind, dict):
        told = {plain_key(key, is_wide): plain(item, depth - 1, is_wide) for key, item in dict.items(value)}
        if len(told) == dict.__len__(value) and not any(key.startswith(NO_KEYS) for key in told):
            return told
    raise NoJson


def plain_scalar(value, kind):
    """Converts a string or a number to its plain type, whatever its class does."""
    if kind in SCALARS:
        return value
    if issubclass(kind, str):
        return str.__str__(value)
    return int.__pos__(value) if issubclass(kind, int) else float.__pos__(value)


def plain_key(key, is_wide):
    """Converts a key as `json.dumps` does."""
    key = plain(key, 0, is_wide)
    if type(key) is str:
        return key
    return "null" if key is None else repr(key).lower() if type(key) is bool else repr(key)


def describe_exception(error, cap):
    """Describes type, message and traceback of an exception, whatever its class does."""
    try:
        return describe_as_it_says(error, cap)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return describe_barely(error, cap)


def describe_barely(error, cap=0):
    """Describes an exception without code of its class or builtins that the program can replace."""
    name = type.__dict__["__name__"].__get__(type(error))
    # A character takes at most six bytes.
    name = name[: cap // 6 if cap > 6 * LEAST_NAME else LEAST_NAME]
    return {"type": name, "message": "", "traceback": f"{name}: (it can't be described)\n"}


def describe_as_it_says(error, cap):
    """Describes an exception completely, without the agent's own frames."""
    name = name_of(type(error))
    trace = programs_trace(error)
    details = {}
    try:
        left_out = shorten(trace)
        chain = CutChain(error)
        try:
            told = traceback.TracebackException(type(error), error, trace, compact=True)
        finally:
            chain.mend()
        make_ours(told)
        lines = list(told.format())
        if left_out:
            lines.insert(-1, f"  ({left_out} frames in the middle are left out)\n")
        text = "".join(lines)
        details = details_of(told, cap)
        advice = advice_on(error)
        if advice is not None:
            details["advice"] = advice
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        text = f"{name}: {text_of(error)}\n(no traceback: {type(failure).__name__})\n"
    return {
        "type": cut(name, cap),
        "message": cut(text_of(error), cap),
        "traceback": cut(text, cap),
        **details,
    }


def programs_trace(error):
    """Returns an exception's traceback without the agent's frames at its beginning."""
    trace = trace_of(error)
    while trace is not None and is_ours(trace.tb_frame.f_code):
        trace = trace.tb_next
    return trace


def report_by(hook, error):
    """Reports an exception that nothing has caught by the program's `sys.excepthook`.

    Returns what that raises, or `None`.
    """
    trace = programs_trace(error)
    BaseException.with_traceback(error, trace)
    try:
        hook(type(error), error, trace)
        return None
    except BaseException as failure:
        if not issubclass(type(failure), SystemExit):
            lines = traceback.format_exception(type(failure), failure, programs_trace(failure))
            text = "".join(lines)
            # The caller shows the other one.
            attempt_to_write(f"Error in sys.excepthook:\n{text}\nOriginal exception was:\n")
        return failure


def attempt_to_write(text):
    try:
        sys.stderr.write(text)
    except BaseException:
        pass


def name_of(kind):
    """Returns the name of a type, with its module unless that is well known."""
    module = getattr(kind, "__module__", None)
    name = str(getattr(kind, "__qualname__", "?"))
    if isinstance(module, str) and module not in ("builtins", "__main__"):
        name = f"{module}.{name}"
    return name


# These read and set links whatever the classes of exceptions do.
trace_of = BaseException.__dict__["__traceback__"].__get__
LINKS = tuple(
    (BaseException.__dict__[name].__get__, BaseException.__dict__[name].__set__)
    for name in ("__cause__", "__context__", "__suppress_context__")
)


class CutChain:
    """Cuts a long chain of an exception's causes and contexts, until `mend`."""

    def __init__(self, error):
        self._last = self._links = None
        seen = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            cause, context, is_suppressed = (get(error) for get, _ in LINKS)
            if len(seen) > 1:
                shorten(trace_of(error))
            if len(seen) == MOST_EXCEPTIONS:
                self._last, self._links = error, (cause, context, is_suppressed)
                for _, put in LINKS[:2]:
                    put(error, None)
                return
            error = cause if cause is not None or is_suppressed else context

    def mend(self):
        if self._last is not None:
            for (_, put), link in zip(LINKS, self._links):
                put(self._last, link)


def parts_of(told):
    """Returns the cause, the context and the members of a group, as far as they are described."""
    return [one for one in (told.__cause__, told.__context__, *(told.exceptions or ())) if one]


def make_ours(told):
    """Removes the agent's frames and CPython's advice on the site, and adds source lines."""
    pending = [told]
    while pending:
        told = pending.pop()
        told.stack[:] = [f for f in told.stack if not str.startswith(f.filename, OUR_FILES)]
        if getattr(told, "exc_type_str", None) == "ModuleNotFoundError":
            told._str = told._str.partition(NO_SITE)[0]
        if getattr(told, "msg", None) is not None and told.text is None:
            told.text = line_of(told.filename, told.lineno)
        pending += parts_of(told)


def line_of(filename, number):
    """Returns a line that the compiler didn't provide, as CPython would read it from a file."""
    if type(filename) is not str or filename not in linecache.cache or not str(number).isdecimal():
        return None
    return linecache.getline(filename, int(number)) or None


def details_of(told, cap):
    """Describes an exception apart from type, message and traceback, as far as possible."""
    try:
        return Details(cap).of(told)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return {}


class Details:
    """Describes a `TracebackException`, with as many texts as fit into `cap` bytes."""

    def __init__(self, cap):
        self._room = cap
        self._exceptions = MOST_EXCEPTIONS
        self._frames = MOST_FRAMES_IN_ALL

    def of(self, told):
        """Describes an exception apart from its type, message and traceback."""
        self._exceptions -= 1
        details = {
            "notes": self._notes(getattr(told, "__notes__", None)),
            "frames": self._frames_of(told.stack),
            "syntax": self._syntax(told),
            "cause": self._linked(told.__cause__),
            "context": None,
            "group": [],
        }
        if told.__cause__ is None and not told.__suppress_context__:
            details["context"] = self._linked(told.__context__)
        for member in told.exceptions or ():
            described = self._linked(member)
            if described is not None:
                details["group"].append(described)
        return {name: detail for name, detail in details.items() if detail}

    def _linked(self, told):
        if told is None or self._exceptions <= 0 or self._room <= 0:
            return None
        # CPython has this since 3.13; a later version drops the type itself.
        name = getattr(told, "exc_type_str", None) or name_of(told.exc_type)
        return {"type": self._text(name), "message": self._text(str(told)), **self.of(told)}

    def _notes(self, notes):
        if notes is None:
            return []
        if type(notes) not in (list, tuple):
            return [self._text(repr_of(notes))]
        return [self._text(text_of(note)) for note in notes[:MOST_NOTES] if self._room > 0]

    def _frames_of(self, stack):
        frames = []
        for one in stack:
            if self._frames <= 0 or self._room <= 0:
                break
            self._frames -= 1
            frame = {
                "file": self._text(one.filename),
                "line": small(one.lineno),
                "end_line": small(one.end_lineno),
                "column": small(one.colno),
                "end_column": small(one.end_colno),
                "function": self._text(one.name),
                "source_line": self._text(one.line) if one.line else None,
            }
            frames.append({name: part for name, part in frame.items() if part is not None})
        return frames

    def _syntax(self, told):
        if not hasattr(told, "msg"):
            return None
        # The line number is a string, or a number where CPython found a misspelt keyword.
        line = str(told.lineno or "")
        texts = {"file": told.filename, "text": told.text}
        syntax = {name: self._text(text) for name, text in texts.items() if isinstance(text, str)}
        numbers = {"line": int(line) if line.isdecimal() else None, "column": told.offset}
        return syntax | {name: n for name, n in numbers.items() if small(n) is not None}

    def _text(self, text):
        # The note about a cut counts too, so at most one text says how much is missing.
        text = cut(text, self._room) if self._room > 0 else "…"
        self._room -= len(text.encode()) + ROOM_OF_A_PART
        return text


def small(number):
    """Returns the number if it can count lines or columns, else `None`."""
    return number if type(number) is int and 0 <= number < 1 << 32 else None


def is_ours(code):
    """Whether the code is the agent's own, and not the program's."""
    return str.startswith(code.co_filename, OUR_FILES)


def shorten(trace):
    """Removes the middle of a very deep traceback, which would take seconds to describe."""
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    left_out = len(frames) - MOST_FRAMES
    if left_out <= 0:
        return 0
    half = MOST_FRAMES // 2
    frames[half - 1].tb_next = frames[-half]
    return left_out


def describe_interrupt(error, cap):
    """Like `describe_exception`, even if describing raises the interrupt again."""
    try:
        return describe_exception(error, cap)
    except BaseException:
        return describe_barely(error, cap)


def text_of(value):
    """`str(value)`, whatever the value does."""
    try:
        return clean(str(value))
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        return f"<unprintable {type(value).__name__}: {type(failure).__name__}>"


def repr_of(value):
    """`repr(value)`, whatever the value does."""
    try:
        return clean(repr(value))
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        return f"<unprintable {type(value).__name__}: {type(failure).__name__}>"


def clean(text):
    """Returns the text as UTF-8 can hold it: lone surrogates become escapes."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


def cut(text, cap):
    """Returns at most about `cap` bytes of the text, with a note on how much is missing."""
    text = clean(text)
    if len(text.encode()) <= cap:
        return text
    kept = text.encode()[:cap].decode("utf-8", "ignore")
    return kept + CUT.format(len(text) - len(kept))
