"""How long programs take: `%time` and `%timeit`."""

import time

from hatchery_notebook.errors import UsageError
from hatchery_notebook.execution import namespace, parse, run_value

FILENAME = "<timed>"
# A number of loops is enough that takes so many seconds.
ENOUGH = 0.2


def timed(source):
    """Runs a program, says how long that took, and gives the value that it ends in."""
    parse(source, FILENAME)
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        return run_value(source, FILENAME)
    finally:
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        print(f"CPU times: total: {time_text(cpu)}\nWall time: {time_text(wall)}")


def timeit(line, cell=None):
    """Runs a statement many times, and says how long it takes."""
    import timeit as library

    options, rest = options_of(line)
    statement, setup = (rest, "pass") if cell is None else (cell, rest or "pass")
    timer = library.Timer(statement, setup, time.perf_counter, namespace())
    number = options["n"]
    if not number:
        counts = (10**exponent for exponent in range(9))
        number = next((count for count in counts if timer.timeit(count) >= ENOUGH), 10**9)
    result = TimeitResult([one / number for one in timer.repeat(options["r"], number)], number)
    if not options["q"]:
        print(result)
    return result if options["o"] else None


def options_of(line):
    """The options that a line begins with, and what follows them."""
    options, rest = {"n": 0, "r": 7, "q": False, "o": False}, line.strip()
    while rest.startswith("-"):
        option, _, rest = rest.partition(" ")
        rest = rest.strip()
        if option[:2] in ("-n", "-r"):
            count = option[2:]
            if not count:
                count, _, rest = rest.partition(" ")
                rest = rest.strip()
            if not count.isdecimal() or int(count) == 0:
                raise UsageError(f"`timeit {option[:2]}` wants a number of at least 1")
            options[option[1]] = int(count)
        elif option in ("-q", "-o"):
            options[option[1]] = True
        else:
            raise UsageError(f"`timeit` has no option `{option}` here: there are -n, -r, -q and -o")
    return options, rest


class TimeitResult:
    """How long each of some runs took for one loop, in seconds."""

    def __init__(self, timings, loops):
        self.timings = timings
        self.loops = loops
        self.repeat = len(timings)
        self.best, self.worst = min(timings), max(timings)
        self.average = sum(timings) / len(timings)
        self.stdev = (sum((one - self.average) ** 2 for one in timings) / len(timings)) ** 0.5

    def __str__(self):
        runs = "run" if self.repeat == 1 else "runs"
        loops = "loop" if self.loops == 1 else "loops"
        return (
            f"{time_text(self.average)} ± {time_text(self.stdev)} per loop"
            f" (mean ± std. dev. of {self.repeat} {runs}, {self.loops:,} {loops} each)"
        )

    def __repr__(self):
        return f"<TimeitResult : {self}>"


def time_text(seconds):
    """A time as IPython writes it."""
    if seconds >= 60:
        parts, left = [], seconds
        for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
            count, left = divmod(left, length)
            if count:
                parts.append(f"{int(count)}{unit}")
        return " ".join(parts)
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
