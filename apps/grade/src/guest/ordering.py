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
    size = 8
    while size <= 16 * len(items) + 16 and len(items) <= _MOST_ORDERED:
        if len(items) * 5 < size * 3:
            order = _insertions(hashes, size)
            if order is not None:
                made = _inserted([items[place] for place in order], size)
                if _are_same(list(made), items):
                    return made
        size *= 2
    return made


_MOST_ORDERED = 2_000
_LINEAR_PROBES = 9
_UNSIGNED = (1 << _sys.hash_info.width) - 1


def _insertions(hashes, size):
    """Returns an order in which insertions into CPython's table of this size leave items in the order
    of their hashes; `None` if none is found."""
    naturals = [number & size - 1 for number in hashes]
    slots, order, taken = [None] * len(hashes), [], set()
    # Items that were displaced far came after most others.
    steps = [_rising(naturals), range(len(hashes))]
    while len(order) < len(hashes):
        limits, limit = [], size
        for slot in reversed(slots):
            limits.append(limit)
            limit = limit if slot is None else slot
        limits.reverse()
        below, before, step = -1, len(order), set(steps[0])
        for place, number in enumerate(hashes):
            if slots[place] is None and place in step:
                slot = _slot(number, size - 1, taken)
                if below < slot < limits[place]:
                    slots[place] = slot
                    taken.add(slot)
                    order.append(place)
            if slots[place] is not None:
                below = slots[place]
        if len(order) == before:
            if len(steps) == 1:
                return None
            steps.pop(0)
    return order


def _rising(numbers):
    """Returns places of a longest subsequence that never falls."""
    ends, places, before = [], [], [None] * len(numbers)
    for place, number in enumerate(numbers):
        length = _bisect_right(ends, number)
        ends[length : length + 1] = [number]
        places[length : length + 1] = [place]
        before[place] = places[length - 1] if length else None
    found, place = [], places[-1]
    while place is not None:
        found.append(place)
        place = before[place]
    return found


def _slot(number, mask, taken):
    """Returns where CPython puts an item with this hash."""
    slot, rest = number & mask, number & _UNSIGNED
    while True:
        probes = _LINEAR_PROBES if slot + _LINEAR_PROBES <= mask else 0
        for place in range(slot, slot + probes + 1):
            if place not in taken:
                return place
        rest >>= 5
        slot = slot * 5 + 1 + rest & mask


def _inserted(items, size):
    """Returns a set whose table has this size, with items inserted in this order."""
    first = items[: size // 2 - 1]
    # A dictionary makes the table large enough for twice its length at once.
    fillers = [(_MISSING, number) for number in range(max(0, size // 4 + 1 - len(first)))]
    made = set(dict.fromkeys(first + fillers)) if size > 8 else set(first)
    for filler in fillers:
        made.discard(filler)
    for item in items[len(first) :]:
        made.add(item)
    return made
