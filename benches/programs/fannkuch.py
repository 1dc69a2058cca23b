"""Slices and swaps of short lists: the most flips over permutations of 9."""

from itertools import islice, permutations

from measure import measure


def flips(order):
    count = 0
    while first := order[0]:
        order[: first + 1] = order[first::-1]
        count += 1
    return count


def work(scale):
    most = checksum = 0
    taken = islice(permutations(range(9)), max(1, round(130_000 * scale)))
    for number, order in enumerate(taken):
        count = flips(list(order))
        most = max(most, count)
        checksum += -count if number % 2 else count
    return f"{most} {checksum}"


measure(work)
