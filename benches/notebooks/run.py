#!/usr/bin/env python3
"""Do notebooks that packages ship show in Hatchery what they show in Jupyter, and how fast?

Takes the notebooks of the packages of `PACKAGES` out of their source distributions, which pip
fetches by version and hash, and runs each by papermill with ipykernel. Those that run there without
an error within a minute, alone in a folder and without a network, are then run again by papermill,
two at a time, and by `hatchery notebook run` with two workers, twice: the second time its states of
the first are there. Outputs are compared cell by cell; `compare.py` has the classes of differences.

How they are chosen: `PACKAGES` has those packages of some forty, which we thought might ship
notebooks, that do. Of each, all notebooks in Python with three code cells or more, without
duplicates, in the order of their paths; where there are more than `--each`, as many at equal
distances. None is left out because of what it shows here.

Doesn't measure: installing, building the image, the first start ever. Writes a Markdown report and
the same as JSON with the differences.
"""

import argparse
import collections
import concurrent.futures
import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "support"))
import environment as env  # noqa: E402

PACKAGES = {
    "colorcet==3.2.1": "48d9a67e6e59dc5c0a965aa1b46fe5d59cdc95cc36a95949f29313f950ac59f7",
    "control==0.10.2": "d0cf63f6cfb68a4c8e827c26c3744d129e9777fedc9a5d86ca4740548f23a98b",
    "corner==2.3.0": "685ecb1e778809b78c6783f4a4691d023bbd9f781c9efda683c2b793878b561c",
    "dynesty==3.1.0": "851717431f04f749bca45e86704c28fecf9f3b10f85a2a69820b26e42cefab68",
    "emcee==3.1.6": "11af4daf6ab8f9ca69681e3c29054665db7bbd87fd4eb8e437d2c3a1248c637d",
    "jupytext==1.19.6": "ba1d143bb3751e054d3164376b148ee8fa74e1a860fc9411e1da93ff588b8a17",
    "mesa==3.5.1": "3f2dce3b8cbe2d89e0ec29e843176788b8cb170413c2cc7def9dbc6339752d78",
    "nashpy==0.0.43": "3a5a8492daa2d8d8dd7a41ca9745887502970b5bc2c2018763950cbbb8c12845",
    "nbclient==0.11.0": "04a134a5b087f2c5887f228aca155db50169b8cd9334dee6942c8e927e56081a",
    "nbconvert==7.17.2": "344a218e8595117ce37396ed025d994f146d076226ebac59255a2fa085ab24d8",
    "nbdime==4.0.4": "8cd25ecfeeb5105d563237d7f64eb4748058fba9bba9ab3892a1ff61e177ce16",
    "nbsphinx==0.9.8": "d0765908399a8ee2b57be7ae881cf2ea58d66db3af7bbf33e6eb48f83bea5495",
    "nbval==0.11.0": "77c95797607b0a968babd2597ee3494102d25c3ad37435debbdac0e46e379094",
    "papermill==2.7.0": "ec10b37594a060662f57269e1ebd108c209d204450f00fdfeb70a1c7cfb7fbc8",
    "particle==1.1.0": "bd55165de5754e08d7c9137d96badcda5540f8f6014dec9680c96b7782e6cd26",
    "pvlib==0.16.1": "58c435f93be516bcedf53dc3a49b2079e9e00af373f5c052cb7cf8d2b973ce62",
    "seaborn==0.13.2": "93e60a40988f4d65e9f4885df477e2fdaff6b73a9ded434c1ab356dd57eefff7",
    "tqdm==4.70.1": "cefd0eca11b2a37a3aee776544d4f4ae913f02688135b5556b8788dfa474afc4",
    "vector==1.9.0": "72128b48b6a72af965babd63dccc5a110f0729e6404dcd8c5c75eaac31b80d84",
    "xarray==2026.9.0": "6abc69694c22fa1f0fb2f357ff4e41d88beb4477ed71091f944b7dbf67ed54fe",
}
# What notebooks import most, as a user would have it in an image.
PRELOAD = "numpy,pandas,matplotlib.pyplot,scipy.stats"
AT_ONCE = 2
# Seconds for a cell and for a notebook in the selection: what takes longer would rule all times.
CELL, NOTEBOOK = 20, 60
# How much longer they may take in the measured run.
SLACK = 10
# Nothing is listening there, so what asks a network fails at once.
NOWHERE = "http://127.0.0.1:9"
# Runs of notebooks with cells that differ, to find out why: papermill again, with as few instructions
# of the processor as NumPy and its BLAS can do with, and with a module `sys` as on 32 bits.
AGAIN = 3
FEWER_INSTRUCTIONS = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3 AVX512_ICL AVX512_SPR AVX512F AVX2 FMA3",
    "OPENBLAS_CORETYPE": "Prescott",
}
NARROW = "import sys\nsys.maxsize = 2**31 - 1\n"


def fetched(folder, python):
    """Return the source distributions, fetched by hash where they aren't there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    archives = {}
    for requirement, digest in PACKAGES.items():
        name = requirement.partition("==")[0]
        place = folder / name
        if not (place / "complete").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            given = place / "requirements.txt"
            given.write_text(f"{requirement} --hash=sha256:{digest}\n")
            pip = [python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
            pip += ["--no-deps", "--no-binary", name, "--require-hashes", "-r", given, "-d", place]
            env.run(pip, 600, label=f"fetching {requirement}")
            (place / "complete").touch()
        (archives[requirement],) = place.glob("*.tar.gz")
    return archives


def taken(archives, each, folder):
    """Write the notebooks that are looked at, each alone in a folder, and return them by title."""
    shutil.rmtree(folder, ignore_errors=True)
    notebooks = {}
    for requirement, archive in archives.items():
        name, found, seen = requirement.partition("==")[0], [], set()
        with tarfile.open(archive) as files:
            for member in sorted(files.getmembers(), key=lambda member: member.name):
                path = pathlib.PurePosixPath(*member.name.split("/")[1:])
                if path.suffix != ".ipynb" or ".ipynb_checkpoints" in path.parts:
                    continue
                content = files.extractfile(member).read()
                sources = sources_of(content)
                if len(sources) >= 3 and tuple(sources) not in seen:
                    seen.add(tuple(sources))
                    found.append((path, content))
        if len(found) > each:
            found = [found[place * len(found) // each] for place in range(each)]
        for path, content in found:
            title = f"{name}-{'-'.join(path.with_suffix('').parts)}".replace(" ", "_")
            place = folder / title / f"{title}.ipynb"
            place.parent.mkdir(parents=True)
            place.write_bytes(content)
            notebooks[title] = {"package": requirement, "path": str(path), "file": place}
    return notebooks


def sources_of(content):
    """Return the code cells of a notebook in Python, in the format's version 4; of others none."""
    try:
        notebook = json.loads(content)
        metadata = notebook["metadata"]
        language = metadata.get("kernelspec", {}).get("language") or metadata.get(
            "language_info", {}
        ).get("name", "python")
        if notebook["nbformat"] != 4 or not language.lower().startswith("python"):
            return []
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
    except (ValueError, KeyError, AttributeError, TypeError):
        return []
    return [source for source in sources if source.strip()]


class Jupyter:
    """Papermill in its environment, with ipykernel and settings of its own."""

    def __init__(self, folder, native):
        pins = (HERE / "jupyter.txt").read_text().splitlines()
        pins = [line for line in pins if line and not line.startswith("#")]
        self.python = env.environment(folder, native, pins)
        own = folder / "settings"
        own.mkdir(exist_ok=True)
        proxies = {name: NOWHERE for name in ("http_proxy", "https_proxy", "all_proxy")}
        self.environ = {
            **{key: value for key, value in os.environ.items() if "proxy" not in key.lower()},
            **env.ONE_THREAD,
            **proxies,
            **{key: str(own) for key in ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR")},
            **{key: str(own) for key in ("JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR")},
            "PYTHONWARNINGS": "ignore:Proactor",
        }
        # Makes the cache of fonts.
        fonts = [self.python, "-c", "import matplotlib.font_manager"]
        subprocess.run(fonts, env=self.environ, check=True, capture_output=True, timeout=300)

    def varied(self, files, folder):
        """Run notebooks in variants of this environment, each into a folder of its own there."""
        startup = folder.with_name("narrow-settings") / "profile_default" / "startup"
        startup.mkdir(parents=True, exist_ok=True)
        (startup / "00.py").write_text(NARROW)
        variants = {f"again-{number}": {} for number in range(1, AGAIN + 1)}
        variants["rounded"] = FEWER_INSTRUCTIONS
        variants["narrow"] = {"IPYTHONDIR": str(startup.parents[1])}
        for name, changes in variants.items():
            variant = copy.copy(self)
            variant.environ = self.environ | changes
            variant.run_all(files, folder / name, SLACK)

    def run(self, file, out, slack):
        """Run a notebook, and return why it failed, or nothing."""
        command = [self.python, "-m", "papermill", file, out, "--cwd", file.parent]
        command += ["--kernel", "python3", "--no-progress-bar", "--log-level", "ERROR"]
        command += ["--execution-timeout", CELL * slack]
        command = list(map(str, command))
        try:
            done = subprocess.run(
                command,
                env=self.environ,
                capture_output=True,
                text=True,
                timeout=NOTEBOOK * slack,
            )
        except subprocess.TimeoutExpired:
            return f"took longer than {NOTEBOOK * slack} s"
        if done.returncode == 0:
            return None
        lines = [line.strip() for line in done.stderr.splitlines()]
        named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit|Died)\b", line)]
        return (named or [line for line in lines if line] or ["no message"])[-1][:200]

    def run_all(self, files, out, slack=1):
        """Run notebooks, two at a time, and return why each failed, and how long all took."""
        out.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
            runs = {
                title: threads.submit(self.run, file, out / f"{title}.ipynb", slack)
                for title, file in files.items()
            }
            reasons = {title: run.result() for title, run in runs.items()}
        return reasons, time.perf_counter() - began


def chosen(jupyter, notebooks, folder):
    """Return which notebooks run in Jupyter, and why the others don't; what is known isn't run."""
    known_file = folder / "selection.json"
    known = json.loads(known_file.read_text()) if known_file.exists() else {}
    missing = {title: one["file"] for title, one in notebooks.items() if title not in known}
    titles = list(missing)
    for start in range(0, len(titles), 8):
        part = {title: missing[title] for title in titles[start : start + 8]}
        known |= jupyter.run_all(part, folder / "again")[0]
        known_file.write_text(json.dumps(known, indent=1))
        say(f"{min(start + 8, len(titles))} of {len(titles)} tried in Jupyter")
    reasons = {title: known[title] for title in notebooks}
    return [title for title, reason in reasons.items() if reason is None], {
        title: reason for title, reason in reasons.items() if reason is not None
    }


def run_ours(program, files, out, states):
    """Run notebooks by Hatchery; return how long all took, and the cells of each."""
    command = [program, "notebook", "run", *files, *image_options(), "--output-dir", out]
    command += ["--workers", AT_ONCE, "--allow-errors", "--timeout", "5m"]
    command += ["--keep-states", "8GiB", "--progress", "json"]
    environ = {**os.environ, "HATCHERY_NOTEBOOK_STATES": str(states)}
    began = time.perf_counter()
    done = subprocess.run(
        list(map(str, command)), env=environ, capture_output=True, text=True, timeout=1800
    )
    seconds = time.perf_counter() - began
    (out / "log.txt").write_text(done.stderr)
    if done.returncode != 0:
        say(f"hatchery ended with {done.returncode}: {out}/log.txt says why")
    cells = collections.Counter()
    for event in map(json.loads, done.stdout.splitlines()):
        if event["event"] == "cell_ended":
            cells[pathlib.Path(event["notebook"]).stem] += event["seconds"]
    return seconds, cells


def cell_seconds(copy):
    """Return how long the cells of a copy by papermill took, without starting a kernel."""
    cells = json.loads(copy.read_text(encoding="utf-8"))["cells"]
    return sum(cell["metadata"].get("papermill", {}).get("duration") or 0 for cell in cells)


def image_options():
    return ["--requirements", HERE / "sandbox.txt", "--preload", PRELOAD]


def report(machine, notebooks, left_out, compared, times, seconds):
    """Return the Markdown."""
    classes = collections.Counter(
        cell["class"] for one in compared.values() for cell in one["cells"]
    )
    cells = sum(classes.values())
    full = "papermill" in times
    packages = {notebooks[title]["package"] for title in compared}
    lines = [
        f"{machine['date']}, {machine['cores']} × {machine['cpu']}, {machine['system']}, load "
        f"{machine['load']} at the start. Jupyter: {machine['python']}.",
        "",
        f"{len(compared)} notebooks of {len(packages)} packages, {cells} code cells, two at once.",
        "",
        env.table(
            ["all of them", "s", "times as fast"],
            [
                [name, f"{taken:.1f}", f"{times['papermill'] / taken:.1f}" if full else "–"]
                for name, taken in times.items()
            ],
        ),
        "",
        env.table(["cells", "number"], [[name, count] for name, count in classes.most_common()]),
        "",
    ]
    rows = []
    for title, one in compared.items():
        counts = collections.Counter(cell["class"] for cell in one["cells"])
        equal = counts.pop("equal", 0)
        other = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        origin = notebooks[title]
        label = f"{origin['package'].replace('==', ' ')}: {origin['path']}"
        taken = [f"{seconds[name].get(title, 0):.1f}" for name in ("papermill", "first")]
        rows.append([label, len(one["cells"]), *taken, equal, other])
    header = ["notebook", "cells", "Jupyter, s", "here, s", "equal", "others"]
    lines += [env.table(header, rows), "", "Times are those of the cells, without starts."]
    told = [
        f"- {title}, cell {cell['cell']}: {cell['detail']}"
        for title, one in compared.items()
        for cell in one["cells"]
        if cell["class"].startswith("fails here") and "after" not in cell["class"]
    ]
    if told:
        lines += ["", "Cells that fail here:", "", *told]
    lines += ["", "Left out, since papermill reports:", ""]
    lines += [f"- {title}: {reason}" for title, reason in left_out.items()]
    return "\n".join(lines) + "\n"


def say(text):
    print(text, file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--each", type=int, default=8, help="most notebooks of a package; default: 8")
    add("--only", nargs="+", metavar="TEXT", help="only notebooks with one of these in their title")
    add("--select", action="store_true", help="only find out which notebooks run in Jupyter")
    add("--untimed", action="store_true", help="compare with the selecting run, and no other")
    add("--hatchery", metavar="FILE", help="the program `hatchery`; default: that of this checkout")
    add("--python", metavar="FILE", help="the native CPython; default: the newest, from 3.12 on")
    add(
        "--env",
        type=pathlib.Path,
        default=env.default_folder(),
        metavar="DIR",
        help="where all is installed and kept; default: %(default)s",
    )
    add("--out", type=pathlib.Path, metavar="NAME", help="writes NAME.md and NAME.json")
    options = parser.parse_args()
    folder = options.env.resolve() / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        program = env.built("hatchery", options.hatchery)
        native = options.python or env.native_python()
        jupyter = Jupyter(folder, native)
        archives = fetched(folder / "sdists", jupyter.python)
    except env.Missing as reason:
        raise SystemExit(f"run.py: {reason}") from None
    machine = env.machine() | {"python": env.description(native)}
    notebooks = taken(archives, options.each, folder / "given")
    if options.only:
        notebooks = {
            title: one
            for title, one in notebooks.items()
            if any(text in title for text in options.only)
        }
    titles, left_out = chosen(jupyter, notebooks, folder)
    say(f"{len(titles)} of {len(notebooks)} notebooks run in Jupyter")
    if options.select:
        return
    files = {title: notebooks[title]["file"] for title in titles}
    build = [program, "image", "build", *image_options()]
    subprocess.run(list(map(str, build)), check=True, stdout=subprocess.DEVNULL)
    runs = {name: folder / name for name in ("first", "second", "states")}
    for place in runs.values():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
    times = {}
    theirs = folder / "again"
    if not options.untimed:
        theirs = folder / "papermill"
        shutil.rmtree(theirs, ignore_errors=True)
        reasons, times["papermill"] = jupyter.run_all(files, theirs, SLACK)
        for title, reason in reasons.items():
            if reason is not None:
                left_out[title] = f"failed in its second run: {reason}"
                del files[title]
    cells = {"papermill": {title: cell_seconds(theirs / f"{title}.ipynb") for title in files}}
    for name in ("first", "second"):
        seconds, cells[name] = run_ours(program, files.values(), runs[name], runs["states"])
        times[f"hatchery, {name} run"] = seconds
        say(f"{name} run of hatchery: {seconds:.1f} s")
    # They are some gigabytes.
    shutil.rmtree(runs["states"])
    compare = [jupyter.python, HERE / "compare.py", theirs, folder / "again"]
    variants = folder / "variants"

    def compared_with(name):
        lines = env.run([*compare, runs[name], variants], 600).splitlines()
        return {one["notebook"]: one for one in map(json.loads, lines) if one["notebook"] in files}

    shutil.rmtree(variants, ignore_errors=True)
    variants.mkdir()
    differ = {
        title: files[title]
        for title, one in compared_with("first").items()
        if any(cell["class"] == "different" for cell in one["cells"])
    }
    if differ:
        say(f"{len(differ)} notebooks with cells that differ run in variants of Jupyter")
        jupyter.varied(differ, variants)
    compared, repeated = map(compared_with, ("first", "second"))
    others = [title for title, one in repeated.items() if one != compared[title]]
    text = report(machine, notebooks, left_out, compared, times, cells)
    if others:
        text += f"\nOther outputs in the second run: {', '.join(others)}.\n"
    print(text, end="")
    out = options.out or folder / "notebooks"
    out.with_suffix(".md").write_text(text)
    document = {
        "machine": machine,
        "seconds": times,
        "seconds_of_cells": cells,
        "left_out": left_out,
        "notebooks": compared,
    }
    out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    say(f"written to {out}.md and {out}.json")


if __name__ == "__main__":
    main()
