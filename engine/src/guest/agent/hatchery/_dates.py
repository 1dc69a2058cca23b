"""`strftime` with every directive of glibc.

The build's C library knows fewer, and drops the whole text for one that it doesn't know.
"""

import re
import time

# A directive: flags, width, modifier and character.
DIRECTIVE = re.compile(r"%([-_0^#]*)(\d*)([EO]?)(.?)", re.DOTALL)
# What the C library writes as glibc does. `datetime` and pandas come through here as well.
is_plain = re.compile(r"(?:[^%]|%[aAbBcCdDeFgGhHIjmMnprRStTuUVwWxXyYz%])*", re.DOTALL).fullmatch
# The digits of numbers; those of `BLANKS` are padded with blanks.
DIGITS = dict.fromkeys("CdegHIklmMSUVWy", 2) | dict.fromkeys("uwGY", 1) | {"j": 3}
BLANKS = "ekl"
TEXTS = frozenset("aAbBcDFhnpPrRstTxXzZ%")
# The directives that take no such modifier.
UNMODIFIED = {"": "", "E": "aAbBdDeFgGhHIjklmMSUVwW", "O": "aAcDFxXY"}
# Directives that stand for others.
SAME = {"k": "H", "l": "I", "P": "p", "h": "b"}
# What `#` writes in lower case; it makes the other names upper case.
LOWERED = "pZ"


def formatter(write, now=time.localtime):
    """Returns `time.strftime`, which writes single directives with `write`."""

    def strftime(format, t=None, /):
        if type(format) is not str or is_plain(format):
            return write(format) if t is None else write(format, t)
        t = now() if t is None else t
        return DIRECTIVE.sub(lambda directive: piece(write, directive, t), format)

    return strftime


def piece(write, directive, t):
    """Returns what a directive stands for; an unknown one stands for itself."""
    flags, width, modifier, kind = directive.groups()
    pad = next((flag for flag in reversed(flags) if flag in "-_0"), "")
    is_known = (kind in DIGITS or kind in TEXTS) and kind not in UNMODIFIED[modifier]
    text = write(f"%{SAME.get(kind, kind)}", t) if is_known else directive[0]
    if kind == "Z" and is_known and not text:
        text = time.tzname[t[8] > 0]  # a tuple without a zone is of local time
    if is_known and kind in DIGITS:
        sign, text = ("-", text[1:]) if text[:1] == "-" else ("", text)
        text = text.lstrip("0 ") or "0"
        width = int(width or 0) if pad == "-" else max(int(width or 0), DIGITS[kind])
        is_blank = pad in ("_", "-") or not pad and kind in BLANKS
        return (sign + text).rjust(width) if is_blank else sign + text.rjust(width - len(sign), "0")
    if is_known and (kind == "P" or "#" in flags and kind in LOWERED):
        text = text.lower()
    elif "^" in flags or is_known and "#" in flags and kind in "aAbBh":
        text = text.upper()
    return text.rjust(int(width or 0), "0" if pad == "0" else " ")


def install():
    strftime = formatter(time.strftime)
    strftime.__doc__, strftime.__module__ = time.strftime.__doc__, "time"
    time.strftime = strftime
