"""What commands of the shell read and write: files, and pipes between commands."""

import os
import sys

CHUNK = 1 << 16


class Stream:
    """An open file."""

    def __init__(self, descriptor):
        self.descriptor = descriptor
        # What was read and not yet taken: what is behind `at`.
        self.buffer, self.at = b"", 0

    def write(self, data):
        view = memoryview(data)
        while view:
            view = view[os.write(self.descriptor, view) :]

    def more(self):
        """Reads some bytes; none at the end."""
        data = os.read(self.descriptor, CHUNK)
        # The one that reads this may need no more.
        yield
        return data

    def has_read(self):
        """Whether something was read and not yet taken."""
        return self.at < len(self.buffer)

    def line(self):
        """Returns a line; an empty one at the end."""
        found = []
        while (end := self.buffer.find(b"\n", self.at) + 1) == 0:
            found.append(self.buffer[self.at :])
            self.buffer, self.at = (yield from self.more()), 0
            if not self.buffer:
                return b"".join(found)
        found.append(self.buffer[self.at : end])
        self.at = end
        return b"".join(found)

    def chunk(self):
        """Returns some bytes; none at the end."""
        if self.has_read():
            data = self.buffer[self.at :]
        else:
            data = yield from self.more()
        self.buffer, self.at = b"", 0
        return data

    def all(self):
        chunks = []
        while data := (yield from self.chunk()):
            chunks.append(data)
        return b"".join(chunks)

    def close(self):
        os.close(self.descriptor)


class Input(Stream):
    """The program's own standard input, of which its `sys.stdin` may have read a part."""

    def more(self):
        stdin = getattr(sys.stdin, "buffer", None)
        try:
            data = b"" if stdin is None else stdin.read1(CHUNK)
        except ValueError:  # it is closed
            data = b""
        yield
        return data


class Pipe(Stream):
    """A pipe between two commands."""

    def __init__(self, data=b""):
        super().__init__(None)
        self.is_written, self.is_read = False, True
        self.pieces = [data] if data else []

    def write(self, data):
        if not self.is_read:
            raise BrokenPipeError
        if data:
            self.pieces.append(bytes(data))

    def more(self):
        while not self.pieces and not self.is_written:
            yield
        data = b"".join(self.pieces)
        self.pieces.clear()
        return data

    def close(self):
        pass


class Nothing(Stream):
    """`/dev/null`."""

    def __init__(self):
        super().__init__(None)

    def write(self, data):
        pass

    def more(self):
        return b""
        yield

    close = write


Nothing.close = lambda self: None


def close(streams):
    for stream in streams:
        try:
            stream.close()
        except OSError:
            pass
