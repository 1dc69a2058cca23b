"""`mmap` without shared pages: a map is a copy of its file, and changes are written back.

Maps of one file share the copy. `flush` and `close` write what a program has changed, as does the end of the program.
A map doesn't see what is written to its file by other ways.
"""

import atexit
import errno
import operator
import os
import weakref
from hashlib import blake2b

from hatchery import _system

NAMES = {
    "ACCESS_DEFAULT": 0, "ACCESS_READ": 1, "ACCESS_WRITE": 2, "ACCESS_COPY": 3, "PROT_READ": 1, "PROT_WRITE": 2,
    "PROT_EXEC": 4, "MAP_SHARED": 1, "MAP_PRIVATE": 2, "MAP_ANON": 32, "MAP_ANONYMOUS": 32, "MAP_POPULATE": 0x8000,
    "MADV_NORMAL": 0, "MADV_RANDOM": 1, "MADV_SEQUENTIAL": 2, "MADV_WILLNEED": 3, "MADV_DONTNEED": 4, "error": OSError,
}
DEFAULT, READ, WRITE, COPY = range(4)
MAP_SHARED, MAP_PRIVATE, PROT_READ, PROT_WRITE = 1, 2, 1, 2
# What is written at a time, if it has changed, and what offsets are multiples of.
BLOCK, PAGE = 1 << 16, 4096
UNNAMED = "the map's file has no name and its descriptor is closed, so changes can't be written to it"
# The copies of files, by device and inode.
files = weakref.WeakValueDictionary()


def path_of(identity):
    """Returns the path of a file that programs can change."""
    for root in _system.WRITABLE:
        for folder, _, names in os.walk(root):
            for path in (os.path.join(folder, name) for name in names):
                status = os.lstat(path)
                if (status.st_dev, status.st_ino) == identity:
                    return path
    return None


class Copy:
    """A copy of a file."""

    def __init__(self, fd, status):
        self.identity, self.fd, self.is_own = (status.st_dev, status.st_ino), fd, False
        self.data, at = bytearray(status.st_size), 0
        while at < len(self.data) and (read := os.pread(fd, BLOCK, at)):
            self.data[at : at + len(read)] = read
            at += len(read)
        self.digests = [self.digest(at) for at in range(0, len(self.data), BLOCK)]

    def digest(self, at):
        return blake2b(memoryview(self.data)[at : at + BLOCK], digest_size=8).digest()

    def keep(self, fd):
        """Keeps the file open for changes, of which the program may close its descriptor."""
        if not self.is_own:
            path = path_of(self.identity)
            self.is_own, self.fd = path is not None, fd if path is None else os.open(path, os.O_RDWR)

    def write(self):
        for number, at in enumerate(range(0, len(self.data), BLOCK)):
            digest = self.digest(at)
            if digest != self.digests[number]:
                self.check()
                os.pwrite(self.fd, memoryview(self.data)[at : at + BLOCK], at)
                self.digests[number] = digest

    def check(self):
        try:
            status = os.fstat(self.fd)
        except OSError:
            status = None
        if status is None or (status.st_dev, status.st_ino) != self.identity:
            raise OSError(errno.EBADF, UNNAMED)

    def __del__(self):
        if self.is_own:
            try:
                self.write()
            finally:
                os.close(self.fd)


def write_all():
    for copy in list(files.values()):
        copy.write()


class mmap:
    def __init__(
        self, fileno, length, flags=MAP_SHARED, prot=PROT_READ | PROT_WRITE, access=DEFAULT, offset=0, *, trackfd=True
    ):
        if length < 0 or offset < 0:
            raise OverflowError(f"memory mapped {'length' if length < 0 else 'offset'} must be positive")
        if access != DEFAULT and (flags != MAP_SHARED or prot != PROT_READ | PROT_WRITE):
            raise ValueError("mmap can't specify both access and flags, prot.")
        if not DEFAULT <= access <= COPY:
            raise ValueError("mmap invalid access parameter.")
        if offset % PAGE or fileno == -1 and not length:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._is_read_only = access == READ or access == DEFAULT and not prot & PROT_WRITE
        is_private = access == COPY or bool(flags & MAP_PRIVATE)
        self._copy, self._size, self._exports, self._at = None, None, 0, 0
        if fileno == -1:
            data = bytearray(length)
        else:
            status = os.fstat(fileno)
            if not length and not status.st_size:
                raise ValueError("cannot mmap an empty file")
            if offset >= status.st_size or offset + length > status.st_size:
                raise ValueError(f"mmap {'length' if length else 'offset'} is greater than file size")
            self._size, length = status.st_size, length or status.st_size - offset
            data = self._opened(fileno, status, is_private).data
        self._offset, self._view = offset, memoryview(data)[offset : offset + length]
        if is_private and fileno != -1:
            self._offset, self._view = 0, memoryview(bytearray(self._view))

    def _opened(self, fd, status, is_private):
        identity = status.st_dev, status.st_ino
        copy = files.get(identity)
        if copy is None or len(copy.data) != status.st_size:
            copy = Copy(fd, status)
        if not is_private:
            if not self._is_read_only:
                try:
                    os.pwrite(fd, b"", 0)
                except OSError:
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
                copy.keep(fd)
                # Not when the module is imported: the end of a run is quicker without exit functions.
                atexit.unregister(write_all)
                atexit.register(write_all)
            self._copy = files[identity] = copy
        return copy

    def _opened_view(self):
        if self._view is None:
            raise ValueError("mmap closed or invalid")
        return self._view

    def _writable(self):
        if self._is_read_only:
            raise TypeError("mmap can't modify a readonly memory map.")
        return self._opened_view()

    @property
    def closed(self):
        return self._view is None

    def close(self):
        if self._exports:
            raise BufferError("cannot close exported pointers exist")
        if self._view is not None:
            self.flush()
        self._view = self._copy = None

    def flush(self, offset=0, size=None, /, **flags):
        self._opened_view()
        if self._copy is not None and not self._is_read_only:
            self._copy.write()

    def size(self):
        self._opened_view()
        if self._size is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._size

    def resize(self, newsize, /):
        raise SystemError("mmap: resizing not available--no mremap()")

    def madvise(self, option, start=0, length=None, /):
        self._opened_view()

    def seekable(self):
        return True

    def tell(self):
        self._opened_view()
        return self._at

    def seek(self, pos, whence=0, /):
        view = self._opened_view()
        at = pos + (0, self._at, len(view))[whence]
        if not 0 <= at <= len(view):
            raise ValueError("seek out of range")
        self._at = at
        return at

    def read(self, n=None, /):
        view = self._opened_view()
        end = len(view) if n is None or n < 0 else min(self._at + n, len(view))
        at, self._at = self._at, end
        return bytes(view[at:end])

    def read_byte(self):
        if not (read := self.read(1)):
            raise ValueError("read byte out of range")
        return read[0]

    def readline(self):
        end = self.find(b"\n", self._at)
        return self.read(None if end < 0 else end + 1 - self._at)

    def write(self, bytes, /):
        data = memoryview(bytes).cast("B")
        view = self._writable()
        if self._at + len(data) > len(view):
            raise ValueError("data out of range")
        view[self._at : self._at + len(data)] = data
        self._at += len(data)
        return len(data)

    def write_byte(self, byte, /):
        if self._at == len(self._writable()):
            raise ValueError("write byte out of range")
        self.write(byte.to_bytes())

    def move(self, dest, src, count, /):
        view = self._writable()
        if min(dest, src, count) < 0 or max(dest, src) + count > len(view):
            raise ValueError("source, destination, or count out of range")
        view[dest : dest + count] = bytes(view[src : src + count])

    def find(self, view, start=None, end=None, /):
        return self._found(bytearray.find, view, start, end)

    def rfind(self, view, start=None, end=None, /):
        return self._found(bytearray.rfind, view, start, end)

    def _found(self, find, what, start, end):
        view = self._opened_view()
        start, end, _ = slice(self._at if start is None else start, end).indices(len(view))
        found = find(view.obj, what, self._offset + start, self._offset + end)
        return found if found < 0 else found - self._offset

    def __len__(self):
        return len(self._opened_view())

    def __getitem__(self, index):
        value = self._opened_view()[self._checked(index)]
        return value if isinstance(value, int) else bytes(value)

    def _checked(self, index):
        if not isinstance(index, slice) and not -len(self) <= operator.index(index) < len(self):
            raise IndexError("mmap index out of range")
        return index

    def __setitem__(self, index, value):
        view = self._writable()
        if isinstance(index, slice):
            value = bytes(value)
            if len(value) != len(view[index]):
                raise IndexError("mmap slice assignment is wrong size")
        elif not 0 <= operator.index(value) < 256:
            raise ValueError("mmap item value must be in range(0, 256)")
        view[self._checked(index)] = value

    def __iter__(self):
        return (byte.to_bytes() for byte in self._opened_view())

    def __buffer__(self, flags, /):
        view = self._opened_view()
        self._exports += 1
        return view.toreadonly() if self._is_read_only else view[:]

    def __release_buffer__(self, view, /):
        self._exports -= 1
        view.release()

    def __enter__(self):
        self._opened_view()
        return self

    def __exit__(self, *error):
        self.close()


def adapt(module):
    """Replaces a class that can't map anything."""
    if hasattr(module, "MAP_SHARED") or not hasattr(module, "ALLOCATIONGRANULARITY"):
        return  # one that works, or the program's own module
    for name, value in NAMES.items():
        if not hasattr(module, name):
            setattr(module, name, value)
    module.PAGESIZE = module.ALLOCATIONGRANULARITY = PAGE
    mmap.__module__ = "mmap"
    module.mmap = mmap


ADAPT = {"mmap": adapt}
