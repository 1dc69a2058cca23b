"""NumPy's default integer, which has 64 bits here, while pointers have 32.

Its type is what the compiled module makes it (`integers.rs`). Here NumPy's names of it follow, and
compiled code of others that takes it for the integer of a pointer's width, which indices have.
"""

import functools
import operator
import sys


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


# Modules of pandas whose functions want indices, some of them with names. What is called for each value,
# as most of `lib` is, gets no step in between.
OF_PANDAS = {
    "algos": None, "groupby": None, "hashtable": None, "index": None, "internals": None, "join": None,
    "lib": ("maybe_indices_to_slice", "get_reverse_indexer", "indices_fast", "generate_slices", "count_level_2d"),
    "reshape": None, "sparse": None, "window.aggregations": None, "window.indexers": None,
}


def compiled(module):
    """Compiled functions that want indices take default integers, too.

    Elsewhere both are one type, and sums of indices, for example, are again indices.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or numpy.dtype(int).itemsize == numpy.dtype("p").itemsize:
        return
    package, _, inner = module.__name__.partition("._libs.")
    if package == "pandas" and inner not in OF_PANDAS:
        return
    names = OF_PANDAS[inner] if package == "pandas" else None
    for name, given in list(vars(module).items()):
        if type(given).__name__ == "cython_function_or_method" and (names is None or name in names):
            setattr(module, name, narrowing(given))


def narrowing(given):
    """Returns a function that narrows arrays of default integers if `given` refuses them."""

    @functools.wraps(given)
    def narrowed(*args, **keywords):
        try:
            return given(*args, **keywords)
        except ValueError as error:
            if not (type(error) is ValueError and str(error).endswith("but got 'long long'")):
                raise
            refused = error
        narrow = [_as_indices(arg) for arg in args]
        places = [place for place in reversed(range(len(args))) if narrow[place] is not args[place]]
        # The refusal doesn't name the argument, and others may have to stay wide.
        for chosen in (*([place] for place in places), places):
            try:
                result = given(*(narrow[at] if at in chosen else arg for at, arg in enumerate(args)), **keywords)
            except ValueError:
                continue
            for place in chosen:
                if type(args[place]) is not list and args[place].flags.writeable:
                    args[place][...] = narrow[place]
            return result
        raise refused

    return narrowed


def _as_indices(value):
    """Returns an array of default integers, or a list with such arrays, as indices; other values as they are."""
    if type(value) is list:
        narrow = [_as_indices(item) for item in value]
        return value if all(map(operator.is_, narrow, value)) else narrow
    if not isinstance(value, sys.modules["numpy"].ndarray) or value.dtype.char != "q":
        return value
    narrow = value.astype("p")
    return narrow if (narrow == value).all() else value


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
    None: compiled,
    "numpy._core._type_aliases": named,
    "numpy._core.arrayprint": shown,
    "numpy.random.mtrand": drawn,
    "scipy.signal._peak_finding": peaks,
    "sklearn.utils._random": sampled,
}
