"""NumPy's `fromfile` and `tofile`, through Python's files.

NumPy duplicates descriptors for them, which WASI preview 1 can't.
"""

import io
import os

from hatchery._waits import replace


def adapt(module):
    array, given = getattr(module, "ndarray", None), getattr(module, "fromfile", None)
    if array is None or given is None:
        return  # the program's own module
    try:
        return os.close(os.dup(1))  # a build for WASIX
    except OSError:
        pass
    module.fromfile = reader(module, given)
    replace(array, [(tofile, ("tofile",))])


def opened(file, mode):
    """Returns a binary file, and whether it was opened here."""
    if isinstance(file, (str, bytes)) or hasattr(file, "__fspath__"):
        return open(file, mode), True
    file.fileno()  # as NumPy does: it takes files of the system only
    if isinstance(file, io.TextIOBase):
        file.flush()
        file = file.buffer
    return file, False


def reader(numpy, given):
    def fromfile(file, dtype=float, count=-1, sep="", offset=0, *, like=None):
        if offset and sep:
            raise TypeError("'offset' argument only permitted for binary files")
        dtype = numpy.dtype(dtype)
        file, is_ours = opened(file, "rb")
        try:
            if sep:
                return numpy.fromstring(file.read().decode("latin-1"), dtype, count, sep=sep)
            if offset:
                file.seek(offset, os.SEEK_CUR)
            data = bytearray(file.read(count * dtype.itemsize if count >= 0 else -1))
            # An array of its own, which can be written to.
            return numpy.frombuffer(data, dtype, len(data) // dtype.itemsize)
        finally:
            if is_ours:
                file.close()

    fromfile.__doc__, fromfile.__module__ = given.__doc__, "numpy"
    return fromfile


def tofile(self, fid, sep="", format="%s"):
    if self.dtype.hasobject and not sep:
        raise OSError("cannot write object arrays to a file in binary mode")
    file, is_ours = opened(fid, "wb")
    try:
        if sep:
            items = (one.item() if hasattr(one, "item") else one for one in self.flat)
            texts = (str(item) if format in ("", "%s") else format % (item,) for item in items)
            file.write(sep.join(texts).encode())
        else:
            file.write(self.tobytes())
    finally:
        if is_ours:
            file.close()


ADAPT = {"numpy": adapt}
