"""Tests threads on one stack, with programs that run as in the guest, one after another."""

import json
import subprocess
import sys
import unittest

# Runs programs, given as JSON by name, and prints what each prints. Its own threads would be the machine's.
RUN = """
import contextlib, io, json, linecache, os, sys, types
from hatchery import _late, _locks
_locks.install()
_late.install({})
said = {}
for name, source in json.load(sys.stdin).items():
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        try:
            exec(compile(source, name, "exec"), main.__dict__)
            if _locks.has_threads():
                from hatchery import _switch
                _switch.settle()
        except Exception as error:
            print(repr(error))
    said[name] = out.getvalue()
print(json.dumps(said), flush=True)
os._exit(0)
"""


def programs():
    """Returns the programs of `test_threads.txt` and what they print, by name."""
    found = {}
    with open(f"{__file__.removesuffix('.py')}.txt") as file:
        for part in file.read().split("### ")[1:]:
            name, _, rest = part.partition("\n")
            found[name] = rest.split("\n---\n")
    return found


def run(sources):
    command = [sys.executable, "-B", "-S", "-c", RUN]
    report = subprocess.run(command, input=json.dumps(sources), capture_output=True, text=True)
    assert not report.returncode and not report.stderr, report
    return json.loads(report.stdout)


class ThreadsTest(unittest.TestCase):
    def test_programs_print_what_they_print_with_threads(self):
        # Without what needs the host, and a process that ends.
        table = {name: one for name, one in programs().items() if "asyncio" not in name}
        said = run({name: source for name, (source, _) in table.items()})
        for name, (_, expected) in table.items():
            self.assertEqual(said[name].strip(), expected.strip(), name)

    def test_waits_that_cannot_end_are_refused_by_name(self):
        queue = "import queue, threading\nq = queue.Queue()\n"
        lost = "def f():\n q.get()\nt = threading.Thread(target=f)\nt.start()\n"
        sort = "def f():\n try: sorted('ab', key=lambda c: q.get())\n except RuntimeError as e: print(e)\n"
        said = run({
            "alone": f"{queue}q.get()",
            "each waits": f"{queue}{lost}t.join()",
            "in C": f"{queue}{sort}t = threading.Thread(target=f)\nt.start()\nq.put(1)\nq.put(2)",
        })
        for name, words in {
            "alone": "no other thread that could release the lock",
            "each waits": ", Thread-1 (f) (to put something into the queue)",
            "in C": "waits on top of MainThread",
        }.items():
            self.assertIn(words, said[name])


if __name__ == "__main__":
    unittest.main()
