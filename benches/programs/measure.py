"""Times the programs beside it: one warm-up, then a number of rounds, inside the program itself.

So what an engine takes to start, and a program's imports, don't count. What counts as one round is
up to the program; all of them are sized so that a round takes about a tenth of a second on a
current machine with its own CPython.
"""

import json
import sys
import time


def measure(work, rounds=5):
    """Call `work(scale)` once to warm up and `rounds` times on the clock.

    `work` returns a value that depends on everything it computed. Its text, the checksum, is
    printed on a line of its own and must be the same in every round and on every engine. The last
    line is a JSON object with the seconds of each round. `scale` is the program's first argument,
    1.0 without one; what a program does grows with it.
    """
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    checksum = str(work(scale))
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        again = work(scale)
        seconds.append(time.perf_counter() - started)
        if str(again) != checksum:
            raise SystemExit(f"a round returned {again}, the one before {checksum}")
    print(f"checksum {checksum}")
    print(json.dumps({"seconds": seconds}))
