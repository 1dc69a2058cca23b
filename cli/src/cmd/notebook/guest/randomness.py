"""Random numbers, which go on in a session from a file where the last cell left them."""

import sys

# Where each generator was when the last cell ended.
left = {}


def generators():
    """The modules whose random numbers programs share, as far as they are imported."""
    names = (("random", "getstate", "setstate"), ("numpy.random", "get_state", "set_state"))
    for name, get, put in names:
        module = sys.modules.get(name)
        if module is not None:
            yield name, getattr(module, get), getattr(module, put)


def remember():
    """Keeps where the generators of random numbers are, since a session from a file begins others."""
    for name, get, _ in generators():
        try:
            left[name] = get()
        except Exception:
            left.pop(name, None)


def go_on():
    """Has random numbers go on where they were when the last cell ended."""
    for name, _, put in generators():
        if name in left:
            put(left[name])
