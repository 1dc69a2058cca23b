"""Standard input from a function of the host, line by line, as from a terminal."""

import io

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


def open_lines(call, function):
    """Opens a text stream that reads from a function of the host."""
    return text_stream(io.BufferedReader(Lines(call, function)), "stdin")
