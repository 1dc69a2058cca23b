"""Sets in the order of the other side: what a program makes of a set may depend on it."""


class Disorder:
    """Whether a set was made that has its items in another order than on the other side."""

    seen = False


def ordered_set(items):
    """Returns a set with the items in this order, if there can be one."""
    made = set(items)
    if _are_same(list(made), items):
        return made
    hashes = [hash(item) for item in items]
    # Most have the size that this one has.
    sizes = [8 << power for power in range(20) if len(items) * 5 < (8 << power) * 3 and len(items) <= _MOST_ORDERED]
    usual = max(8, (_sys.getsizeof(made) - _sys.getsizeof(set())) // _ENTRY_BYTES)
    for size in sorted(sizes[:3], key=lambda size: size != usual):
        insertions = _insertions(hashes, size)
        if insertions is not None:
            made = _inserted(items, insertions, size)
            if _are_same(list(made), items):
                return made
    return set(items)


_MOST_ORDERED = 5_000
# Slots that are tried for one item, and for all of them on the average.
_MOST_PROBES = 60
_MOST_TRIES = 5
_LINEAR_PROBES = 9
_ENTRY_BYTES = 16 if _sys.maxsize > 1 << 32 else 8
_UNSIGNED = (1 << _sys.hash_info.width) - 1


class _Filler:
    """Takes a slot of a set's table, so that items that come later take the next one, and is removed then."""

    def __init__(self, slot):
        self._slot = slot

    def __hash__(self):
        return self._slot


def _insertions(hashes, size):
    """Returns in which order items, by their place, and fillers are inserted into CPython's table of this
    size, so that items are in the order of their hashes; `None` if no such order is found."""
    slots, choices, tries = [], [iter(_probed(hashes[0], size))], _MOST_TRIES * (len(hashes) + size)
    while choices:
        last = slots[-1] if slots else -1
        slot = next((slot for slot in choices[-1] if slot > last), None)
        tries -= 1
        if slot is None or tries < 0:
            choices.pop()
            if slots:
                slots.pop()
            if tries < 0:
                return None
            continue
        slots.append(slot)
        if len(slots) < len(hashes):
            choices.append(iter(_probed(hashes[len(slots)], size)))
            continue
        found = _sorted(hashes, slots, size)
        if found is not None:
            return found
        slots.pop()
    return None


def _sorted(hashes, slots, size):
    """Returns the insertions that give items these slots: those first whose slots others have to find taken."""
    owners, order, entered = {slot: place for place, slot in enumerate(slots)}, [], {}
    for start in range(len(slots)):
        stack = [start]
        while stack:
            place = stack[-1]
            if place in entered:
                stack.pop()
                if entered[place] is False:
                    entered[place] = True
                    order.append(place)
                continue
            entered[place] = False
            for slot in _probed(hashes[place], size):
                if slot == slots[place]:
                    break
                owner = owners.get(slot, _MISSING)
                if owner is _MISSING:
                    owners[slot] = None
                    order.append(_Filler(slot))
                elif owner is None:
                    continue
                elif owner not in entered:
                    stack.append(owner)
                elif entered[owner] is False:
                    return None  # each has to be there before the other
    return order if len(order) * 5 < (size - 1) * 3 else None


def _probed(number, size):
    """Yields the slots in which CPython looks for an item with this hash, one after the other."""
    slot, rest, count = number & size - 1, number & _UNSIGNED, 0
    while count < _MOST_PROBES:
        probes = _LINEAR_PROBES if slot + _LINEAR_PROBES < size else 0
        yield from range(slot, slot + probes + 1)
        count += probes + 1
        rest >>= 5
        slot = slot * 5 + 1 + rest & size - 1


def _inserted(items, insertions, size):
    """Returns a set whose table has this size, into which this is inserted in this order."""
    taken = [items[one] if type(one) is int else one for one in insertions]
    free = sorted({*range(size)} - {hash(one) & size - 1 for one in taken})
    # A dictionary makes the table large enough for twice its length at once.
    taken += map(_Filler, free[: max(0, size // 4 + 1 - len(taken))] if size > 8 else ())
    first = taken[: size // 2 - 1]
    made = set(dict.fromkeys(first)) if size > 8 else set(first)
    made.update(taken[len(first) :])
    made.difference_update([one for one in taken if type(one) is _Filler])
    return made
