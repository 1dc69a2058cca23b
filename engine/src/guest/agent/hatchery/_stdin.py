"""Standard input from a function of the host, line by line, as from a terminal."""

import builtins
import io

from hatchery._paths import like
from hatchery._streams import text_stream


class Lines(io.RawIOBase):
    """Asks the host for a line when nothing is left to read.

    An empty line means end of file, after which more can follow. `None` means Ctrl-C.
    """

    mode = "rb"

    def __init__(self, call, function):
        self._call = call
        self._function = function
        self._left = b""

    def readable(self):
        return True

    def readinto(self, buffer):
        if not self._left:
            line = self._call(self._function, {})
            if line is None:
                raise KeyboardInterrupt
            self._left = line.encode("utf-8", "surrogateescape")
        part, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


# What opens standard input by a name.
NAMES = ("/dev/stdin", "/dev/fd/0")
plain_open = io.open


def open_lines(call, function):
    """Opens a text stream that reads from a function of the host, and makes `open` do the same where
    it would open standard input."""

    def open(file, mode="r", *args, **options):
        if not (file == 0 or str(file) in NAMES) or not mode.startswith("r"):
            return plain_open(file, mode, *args, **options)
        buffer = io.BufferedReader(Lines(call, function))
        return buffer if "b" in mode else text_stream(buffer, "stdin")

    if builtins.open in (plain_open, io.open):
        builtins.open = io.open = like(plain_open, open)
    return text_stream(io.BufferedReader(Lines(call, function)), "stdin")
