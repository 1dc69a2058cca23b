"""`%time` and `%timeit`, in notebooks and at the prompt.

Installed in sessions as the module `hatchery_timing`.
"""

import ast
import linecache
import sys

FILENAME = "<magic>"


class UsageError(Exception):
    """A magic or part of IPython that isn't available here, or was used wrongly.

    The host adds advice on the remedy, as in `engine/src/limits/advice.rs`.
    """

    def __init__(self, message, remedy=None):
        super().__init__(message)
        self._hatchery_remedy = remedy


def compiled(source):
    """Returns code that runs the source, and code of its last expression, or `None`."""
    linecache.cache[FILENAME] = len(source), None, source.splitlines(True), FILENAME
    tree = ast.parse(source, FILENAME)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = compile(ast.Expression(tree.body.pop().value), FILENAME, "eval")
    return compile(tree, FILENAME, "exec"), last


def timed(source):
    """Runs a program, prints how long it took, and returns the value of its last expression."""
    body, last = compiled(source)
    names = sys.modules["__main__"].__dict__

    def run():
        exec(body, names)
        return None if last is None else eval(last, names)

    return measured(run)


def measured(run):
    """Returns the result of `run`, and prints how long it took, however it ends."""
    import time

    wall, cpu = time.perf_counter(), time.process_time()
    try:
        return run()
    finally:
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        print(f"CPU times: total: {time_text(cpu)}\nWall time: {time_text(wall)}")


def timeit(line, cell=None):
    import time
    import timeit as library

    number, repeat, is_quiet, gives = 0, 7, False, False
    rest = line.strip()
    while rest.startswith("-"):
        option, _, rest = rest.partition(" ")
        rest = rest.strip()
        if option[:2] in ("-n", "-r"):
            count = option[2:]
            if not count:
                count, _, rest = rest.partition(" ")
                rest = rest.strip()
            if not count.isdecimal() or count == "0":
                raise UsageError(f"`timeit {option[:2]}` needs a number of at least 1")
            if option[:2] == "-n":
                number = int(count)
            else:
                repeat = int(count)
        elif option == "-q":
            is_quiet = True
        elif option == "-o":
            gives = True
        else:
            raise UsageError(f"`timeit` has no option `{option}` here, only -n, -r, -q and -o")
    names = sys.modules["__main__"].__dict__
    statement, setup = (rest, "pass") if cell is None else (cell, rest or "pass")
    timer = library.Timer(statement, setup, time.perf_counter, names)
    if not number:
        # Enough loops for a fifth of a second per run.
        number = next((n for n in (10**e for e in range(9)) if timer.timeit(n) >= 0.2), 10**9)
    result = TimeitResult([one / number for one in timer.repeat(repeat, number)], number)
    if not is_quiet:
        print(result)
    return result if gives else None


class TimeitResult:
    """The seconds that each run took per loop."""

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
    """Formats a time as IPython does."""
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
