"""The reward of verl: right, wrong, endless and raising solutions, from many threads."""

import importlib.util
import pathlib
import sys
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor

# Its packages import torch and ray; the reward itself needs neither.
root = pathlib.Path(importlib.util.find_spec("verl").submodule_search_locations[0])
for name in ["verl", "verl.utils", "verl.utils.reward_score"]:
    package = types.ModuleType(name)
    package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = package

from verl.utils.reward_score.sandbox_fusion import compute_score

url = sys.argv[1] + "/run_code"
slots = threading.Semaphore(64)
cases = {"inputs": ["1\n", "2\n", "3\n"], "outputs": ["2\n", "4\n", "6\n"]}
PARTLY = "n = int(input())\nprint(2 if n == 1 else 0)"


def score(solution, cases=cases, timeout=5):
    return compute_score(url, slots, 1024, f"```python\n{solution}\n```", dict(cases), timeout=timeout)


def check(solution, expected, statuses, **options):
    points, details = score(solution, **options)
    found = [detail["status"] for detail in details]
    assert abs(points - expected) < 0.01 and found == statuses, (solution, points, details)


RIGHT = "print(int(input()) * 2)"
check(RIGHT, 1.0, ["success"] * 3)
check(PARTLY, 1 / 3, ["success", "wrong_answer", "wrong_answer"])
check("while True: pass", 0.0, ["timeout"] * 3, timeout=1)
check("raise ValueError('x')", 0.0, ["runtime_error"] * 3)
check("def f(:", 0.0, ["runtime_error"] * 3)
functions = {"fn_name": "add", "inputs": ["1\n2", "3\n4"], "outputs": ["3", "7"]}
check("def add(a, b): return a + b", 1.0, ["success"] * 2, cases=functions)
asserts = {"assert_case": ["assert add(1, 2) == 3", "assert add(1, 2) == 4"]}
check("def add(a, b): return a + b", 0.5, ["success", "runtime_error"], cases=asserts)

# Some solutions take the interpreter with them.
kinds = [
    (RIGHT, 1.0),
    (PARTLY, 1 / 3),
    ("import os; os._exit(1)", 0.0),
    ("import os; os.abort()", 0.0),
]
# By hand, with more of them: `verl_reward.py http://127.0.0.1:8000 21334` runs 64,002 programs.
tasks = [kinds[number % len(kinds)] for number in range(int((*sys.argv, 100)[2]))]
begun = time.monotonic()
with ThreadPoolExecutor(64) as threads:
    numbered = enumerate(tasks)
    scores = threads.map(lambda task: score(f"{task[1][0]}\n# {task[0]}")[0], numbered)
    for (solution, expected), found in zip(tasks, scores, strict=True):
        assert abs(found - expected) < 0.01, (solution, found)
print(f"{len(tasks)} rewards in {time.monotonic() - begun:.1f} s")

print("all as expected")
