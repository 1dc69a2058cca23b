"""What commands of the shell read and write: files, and pipes between commands."""

import os
import sys

CHUNK = 1 << 16


class Stream:
    """An open file."""

    def __init__(self, descriptor):
        self.descriptor, self.buffer = descriptor, b""

    def write(self, data):
        view = memoryview(data)
        while view:
            view = view[os.write(self.descriptor, view) :]

    def fill(self):
        """Reads more into the buffer. Returns whether there was more."""
        data = os.read(self.descriptor, CHUNK)
        self.buffer += data
        # Who reads this may need no more.
        yield
        return bool(data)

    def line(self):
        """Returns a line; an empty one at the end."""
        at = 0
        while (end := self.buffer.find(b"\n", at) + 1) == 0:
            at = len(self.buffer)
            if not (yield from self.fill()):
                end = len(self.buffer)
                break
        line, self.buffer = self.buffer[:end], self.buffer[end:]
        return line

    def chunk(self):
        if not self.buffer:
            yield from self.fill()
        data, self.buffer = self.buffer, b""
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

    def fill(self):
        stdin = getattr(sys.stdin, "buffer", None)
        try:
            data = b"" if stdin is None else stdin.read1(CHUNK)
        except ValueError:  # it is closed
            data = b""
        self.buffer += data
        yield
        return bool(data)


class Pipe(Stream):
    """A pipe between two commands."""

    def __init__(self, data=b""):
        super().__init__(None)
        self.buffer, self.is_written, self.is_read = data, False, True
        self.pieces = []

    def write(self, data):
        if not self.is_read:
            raise BrokenPipeError
        self.pieces.append(bytes(data))

    def fill(self):
        while not self.pieces and not self.is_written:
            yield
        if not self.pieces:
            return False
        self.buffer += b"".join(self.pieces)
        self.pieces.clear()
        return True

    def close(self):
        pass


class Nothing(Stream):
    """`/dev/null`."""

    def __init__(self):
        super().__init__(None)

    def write(self, data):
        pass

    def fill(self):
        return False
        yield

    close = write


Nothing.close = lambda self: None


def close(streams):
    for stream in streams:
        try:
            stream.close()
        except OSError:
            pass
