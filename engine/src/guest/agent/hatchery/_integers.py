"""NumPy's default integer, which has 64 bits here, while pointers have 32.

Its type is what the compiled module makes it (`integers.rs`). Here NumPy's names of it follow, and
compiled code of others that takes it for the integer of a pointer's width.
"""


def named(aliases):
    """The names of types: `numpy.int_` and others take them from here."""
    types = getattr(aliases, "allTypes", {})
    if "intp" in types and aliases.dtype(int).itemsize > types["intp"]().itemsize:
        wide = {"int_": types["int64"], "uint": types["uint64"]}
        types.update(wide)
        aliases.sctypeDict.update(wide, int=types["int64"])


def shown(arrayprint):
    """Indices are shown without their type, as where they are default integers."""
    if hasattr(arrayprint, "_typelessdata"):
        arrayprint._typelessdata.append(arrayprint._nt.intp)


def drawn(mtrand):
    """`numpy.random.randint` draws default integers, not those of C's `long`."""
    given = getattr(mtrand, "randint", None)
    if given is None:
        return

    def randint(low, high=None, size=None, dtype=int):
        if dtype is not int:
            return given(low, high, size, dtype)
        values = given(low, high, size, "int64")
        return int(values) if size is None and values.ndim == 0 else values

    randint.__doc__, randint.__module__ = given.__doc__, "numpy.random"
    randint.__qualname__ = given.__qualname__
    mtrand.randint = randint


class Pointers:
    """NumPy, whose `int` is the integer of a pointer's width."""

    def __init__(self, numpy):
        self._numpy = numpy

    def __getattr__(self, name):
        return getattr(self._numpy, name)

    def empty(self, shape, dtype=float):
        return self._numpy.empty(shape, self._numpy.intp if dtype is int else dtype)


def sampled(random):
    """Samples without replacement, which are stored as indices."""
    if hasattr(random, "np"):
        random.np = Pointers(random.np)


def located(lib):
    """Columns of frames are stored by indices, and found by default integers."""
    given = getattr(lib, "maybe_indices_to_slice", None)
    if given is not None:
        lib.maybe_indices_to_slice = lambda indices, most: given(indices.astype("p", copy=False), most)


def peaks(finding):
    """Peaks of signals are indices that a program may give as default integers."""
    given = getattr(finding, "_arg_peaks_as_expected", None)
    if given is None:
        return

    def expected(value):
        array = finding.np.asarray(value)
        return given(array.astype("p") if array.dtype.kind == "i" else array)

    finding._arg_peaks_as_expected = expected


ADAPT = {
    "numpy._core._type_aliases": named,
    "numpy._core.arrayprint": shown,
    "numpy.random.mtrand": drawn,
    "pandas._libs.lib": located,
    "scipy.signal._peak_finding": peaks,
    "sklearn.utils._random": sampled,
}
