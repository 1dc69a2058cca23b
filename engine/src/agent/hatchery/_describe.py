"""How a run ended, in words that the host can take: values, exceptions and texts, cut to a limit.

Whatever the classes of the program do, something is said.
"""

import traceback

from hatchery._packages import import_advice

# Integers that JSON readers take without loss: what fits 64 bits, signed or not.
SMALLEST_INTEGER = -(1 << 63)
LARGEST_INTEGER = (1 << 64) - 1
# Deeper values are no use as JSON, and readers refuse them (serde_json stops at 128).
DEEPEST_VALUE = 100
# Frames of a traceback that are described.
MOST_FRAMES = 200
# In the last line of a cut text.
CUT = "… ({} more characters)"
# What the name of each file of this package begins with: `<hatchery/` in the guest.
OUR_FILES = (lambda: None).__code__.co_filename.rpartition("_describe.py")[0]


def describe_value(has_value, value, cap, encode):
    """The last expression as JSON, where it is exactly that, and its `repr`."""
    if not has_value or value is None:
        return {"has_value": has_value, "value": None, "repr": None}
    is_json = False
    try:
        if is_exact_json(value, DEEPEST_VALUE):
            text = encode(value)
            is_json = len(text) <= cap and len(text.encode()) <= cap
    except (ValueError, RecursionError, MemoryError):
        # A lone surrogate, an integer of too many digits, or no room for the text.
        pass
    return {
        "has_value": is_json,
        "value": value if is_json else None,
        "repr": repr_of_bytes(value, cap) if is_long(value, cap) else cut(repr_of(value), cap),
    }


def is_long(value, cap):
    """Whether the value is so many bytes that its whole `repr`, of which little is told, might not
    find room."""
    return (type(value) is bytes or type(value) is bytearray) and len(value) > cap


def repr_of_bytes(value, cap):
    return f"{repr(value[:cap])[:cap]}… ({len(value)} bytes in all)"


def is_exact_json(value, depth):
    """Whether JSON holds the value with nothing changed but a tuple's name."""
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return True
    if kind is int:
        return SMALLEST_INTEGER <= value <= LARGEST_INTEGER
    if kind is float:
        return value - value == 0.0  # neither infinite nor NaN
    if depth == 0:
        return False
    if kind is list or kind is tuple:
        return all(is_exact_json(item, depth - 1) for item in value)
    if kind is dict:
        return all(
            type(key) is str and is_exact_json(item, depth - 1) for key, item in value.items()
        )
    return False


def describe_exception(error, cap):
    """Type, message and traceback of an exception, whatever its class does."""
    try:
        return describe_as_it_says(error, cap)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return describe_barely(error)


def describe_barely(error):
    """What can be said of an exception without running any code of its class."""
    name = type.__dict__["__name__"].__get__(type(error))
    return {"type": name, "message": "", "traceback": f"{name}: (it can't be described)\n"}


def describe_as_it_says(error, cap):
    """Type, message and traceback of an exception, without the agent's own frames."""
    kind = type(error)
    module = getattr(kind, "__module__", None)
    name = getattr(kind, "__qualname__", "?")
    if isinstance(module, str) and module not in ("builtins", "__main__"):
        name = f"{module}.{name}"
    trace = BaseException.__dict__["__traceback__"].__get__(error)
    while trace is not None and is_ours(trace.tb_frame.f_code):
        trace = trace.tb_next
    try:
        left_out = shorten(trace)
        lines = list(traceback.TracebackException(kind, error, trace, compact=True).format())
        if left_out:
            lines.insert(-1, f"  ({left_out} frames in the middle are left out)\n")
        advice = import_advice(error)
        if advice:
            # As a note of the exception would be, at the end.
            lines.append(f"{advice}\n")
        text = "".join(lines)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        text = f"{name}: {text_of(error)}\n(no traceback: {type(failure).__name__})\n"
    return {
        "type": cut(str(name), cap),
        "message": cut(text_of(error), cap),
        "traceback": cut(text, cap),
    }


def is_ours(code):
    """Whether the code is the agent's own, and not the program's."""
    return str.startswith(code.co_filename, OUR_FILES)


def shorten(trace):
    """Leaves out the middle of a very deep traceback, which would take seconds to describe."""
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
    """Like `describe_exception`, also if describing it raises the same again."""
    try:
        return describe_exception(error, cap)
    except BaseException:
        return describe_barely(error)


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
    """The text as UTF-8 can hold it: lone surrogates become escapes."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


def cut(text, cap):
    """At most about `cap` bytes of the text, saying how much is missing."""
    text = clean(text)
    if len(text.encode()) <= cap:
        return text
    kept = text.encode()[:cap].decode("utf-8", "ignore")
    return kept + CUT.format(len(text) - len(kept))
