"""Generators: a pipeline of them, recursion with `yield from`, and one that is sent values."""

from measure import measure


def numbers(limit):
    state = 1
    for _ in range(limit):
        state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
        yield state


def windows(values, size):
    window = []
    for value in values:
        window.append(value)
        if len(window) == size:
            yield tuple(window)
            del window[0]


def in_order(tree):
    if tree:
        left, value, right = tree
        yield from in_order(left)
        yield value
        yield from in_order(right)


def balanced(low, high):
    if low >= high:
        return None
    middle = (low + high) // 2
    return balanced(low, middle), middle, balanced(middle + 1, high)


def running_mean():
    total = count = 0
    mean = None
    while True:
        total += yield mean
        count += 1
        mean = total // count


TREE = balanced(0, 10_000)


def work(scale):
    limit = max(10, round(80_000 * scale))
    rising = sum(a < b < c for a, b, c in windows(numbers(limit), 3))
    mean = running_mean()
    next(mean)
    for value in numbers(limit):
        last = mean.send(value)
    walked = sum(place * value for place, value in enumerate(in_order(TREE)))
    return f"{rising} {last} {walked}"


measure(work)
