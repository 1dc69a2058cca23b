"""Random number generators, which continue in a resumed session where the last cell left them."""

import sys

# The state of each generator when the last cell ended.
left = {}


def generators():
    """Yields the imported modules with global random number generators."""
    names = (("random", "getstate", "setstate"), ("numpy.random", "get_state", "set_state"))
    for name, get, put in names:
        module = sys.modules.get(name)
        if module is not None:
            yield name, getattr(module, get), getattr(module, put)


def remember():
    """Saves the states of the generators, since reviving a session reseeds them."""
    for name, get, _ in generators():
        try:
            left[name] = get()
        except Exception:
            left.pop(name, None)


def go_on():
    """Restores the states that the generators had when the last cell ended."""
    for name, _, put in generators():
        if name in left:
            put(left[name])
