"""Loops over a list of flags: the primes below a limit, without slices."""

from measure import measure


def work(scale):
    limit = max(10, round(800_000 * scale))
    composite = [False] * limit
    count = total = 0
    for number in range(2, limit):
        if composite[number]:
            continue
        count += 1
        total += number
        multiple = number * number
        while multiple < limit:
            composite[multiple] = True
            multiple += number
    return f"{count} {total}"


measure(work)
