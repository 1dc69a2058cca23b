"""Compares the outputs of two runs of a notebook, cell by cell, and names what a difference is.

A cell is in the first class of `CLASSES` that makes its outputs equal; each class allows what those
before it allow, too. Otherwise, if papermill's own runs differ in this cell, it varies in Jupyter as
well: times, random numbers without a seed. If they differ only where the processor may use fewer
instructions, numbers that are rounded otherwise lead elsewhere, as in a random walk. If papermill has
our outputs where `sys.maxsize` is that of 32 bits, that is the cause. `sys.exit` is a class of its own:
IPython adds advice. What remains is different. Tracebacks aren't compared, only the type and the text
of an exception. Cells that papermill didn't reach, after `sys.exit`, aren't counted.

Runs in the environment of papermill, which has Pillow: `compare.py THEIRS AGAIN OURS [VARIANTS]`,
folders, prints an object for each notebook that is in the first three of them. VARIANTS has folders
`again-*`, `rounded` and `narrow` with runs by papermill.
"""

import base64
import io
import json
import math
import pathlib
import re
import sys

import numpy
from PIL import Image

CLASSES = [
    "equal",
    "addresses, identifiers and paths",
    "repeated or reworded warnings",
    "order of the two streams",
    "pixels of figures",
    "32-bit integers",
    "last digits",
    "progress bars",
]
LEAVES = "`sys.exit`"
VARIES, FAILS, DIFFERENT = "varies in Jupyter, too", "fails here", "different"
ROUNDED = "varies in Jupyter with the processor's instructions"
NARROW = "a `sys.maxsize` of 32 bits"
# Why cells fail that don't in Jupyter, by what the exception says.
REASONS = {
    "fails here: no other programs": r"no shell|attribute 'system'|process|fork",
    "fails here: a package with machine code": r"No module named 'h5py'",
    "fails here: no kernel to talk to": r"iopub_socket|No module named 'comm'",
}
AFTER = "fails here: after a cell that failed"

PATHS = [
    # Where an object is, how a part of a page is numbered, what a cell or a file is called.
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uuid>"),
    (r"\b(at|id=|object) ?0x[0-9a-fA-F]+", r"\1 0x"),
    (r"(/[^\s\"':<>]*)?/(site-packages|hatchery-packages|python3\.\d+|python\d+\.zip)/", "/lib/"),
    (r"(/[^\s\"':<>]*)?/ipykernel_\d+/\d+\.py:\d+", "<cell>"),
    (r"<?In ?\[\d+\]>?:\d+", "<cell>"),
    (r"/lib/([\w/]+\.py):\d+", r"/lib/\1"),
    # A warning shows the line of its source where the file is there.
    (r"(?m)^(.*: \w*Warning: .*)\n  \S.*$", r"\1"),
]
INTEGERS = [(r",\s*dtype=u?int(32|64)\b", ""), (r"\b(u?int)(32|64|p)\b", r"\1")]
# NumPy gives the type a line of its own, and xarray leaves out another one of a long array for it.
TYPE_LINE = re.compile(r",\n\s*dtype=u?int(32|64)\)")
AFTER_DOTS = re.compile(r"(?m)^(\.\.\.\n).*\n")
WARNING = re.compile(r"(?m)^.*: \w*Warning: .*\n(  \S.*\n)*")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
IMAGES = ("image/png", "image/jpeg")
# Pictures are alike if they are this near in size, and their pixels on average, of 255.
PIXELS, SHADES = 3, 4.0
# Numbers are alike up to this part of them, or of the largest of their output.
PART, OF_LARGEST = 1e-4, 1e-9


def outputs(cell):
    """Return a cell's outputs: joined texts, streams of one name in one piece, no tracebacks."""
    shown = []
    for output in cell.get("outputs", []):
        kind = output["output_type"]
        if kind == "stream":
            text = joined(output["text"])
            if shown and shown[-1][:2] == ["stream", output["name"]]:
                shown[-1][2] += text
            else:
                shown.append(["stream", output["name"], text])
        elif kind == "error":
            shown.append(["error", output["ename"], output["evalue"]])
        else:
            data = {mime: joined(content) for mime, content in output["data"].items()}
            shown.append([kind, data])
    return shown


def joined(content):
    if isinstance(content, list) and all(isinstance(line, str) for line in content):
        return "".join(content)
    return content


def by_stream(shown):
    """Return outputs with the whole text of each stream first."""
    texts = {}
    for output in shown:
        if output[0] == "stream":
            texts[output[1]] = texts.get(output[1], "") + output[2]
    streams = [["stream", *pair] for pair in sorted(texts.items())]
    return streams + [output for output in shown if output[0] != "stream"]


def without_warnings(shown):
    """Return outputs without warnings: CPython 3.15 words some otherwise, and repeats fewer."""
    kept = []
    for output in shown:
        if output[:2] == ["stream", "stderr"]:
            output = [*output[:2], WARNING.sub("", output[2])]
        if output[0] != "stream" or output[2]:
            kept.append(output)
    return kept


def is_bar(output):
    """Tell whether an output is a widget, or lines that a progress bar writes over and over."""
    if output[0] == "stream":
        return re.search(r"\r|\d+%\||TqdmWarning: IProgress", output[2])
    return output[0] != "error" and any("jupyter.widget" in mime for mime in output[1])


def are_alike(theirs, ours, level):
    """Tell whether outputs are equal but for what the classes up to `level` allow."""
    if level >= CLASSES.index("repeated or reworded warnings"):
        theirs, ours = without_warnings(theirs), without_warnings(ours)
    if level >= CLASSES.index("order of the two streams"):
        theirs, ours = by_stream(theirs), by_stream(ours)
    if level >= CLASSES.index("progress bars"):
        theirs, ours = ([one for one in shown if not is_bar(one)] for shown in (theirs, ours))
    return len(theirs) == len(ours) and all(
        output_is_alike(*pair, level) for pair in zip(theirs, ours)
    )


def output_is_alike(theirs, ours, level):
    if len(theirs) != len(ours) or theirs[0] != ours[0]:
        return False
    for wanted, found in zip(theirs[1:], ours[1:]):
        if isinstance(wanted, dict):
            if wanted.keys() != found.keys() or not all(
                content_is_alike(mime, wanted[mime], found[mime], level) for mime in wanted
            ):
                return False
        elif not text_is_alike(wanted, found, level):
            return False
    return True


def content_is_alike(mime, wanted, found, level):
    if wanted == found:
        return True
    if mime in IMAGES and level >= CLASSES.index("pixels of figures"):
        return picture_is_alike(wanted, found)
    if not isinstance(wanted, str) or not isinstance(found, str):
        wanted, found = json.dumps(wanted, sort_keys=True), json.dumps(found, sort_keys=True)
    if mime == "image/svg+xml" and level >= CLASSES.index("pixels of figures"):
        return wanted.count("<path") == found.count("<path")
    return mime not in IMAGES and text_is_alike(wanted, found, level)


def picture_is_alike(wanted, found):
    pictures = []
    for content in (wanted, found):
        picture = Image.open(io.BytesIO(base64.b64decode(content))).convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        pictures.append(Image.alpha_composite(white, picture).convert("RGB"))
    sizes = [picture.size for picture in pictures]
    if any(abs(one - other) > PIXELS for one, other in zip(*sizes)):
        return False
    common = tuple(map(min, *sizes))
    arrays = [
        numpy.asarray(picture.resize(common, Image.Resampling.BILINEAR), dtype=float)
        for picture in pictures
    ]
    return float(numpy.abs(arrays[0] - arrays[1]).mean()) <= SHADES


def text_is_alike(wanted, found, level):
    if wanted == found:
        return True
    if level >= CLASSES.index("addresses, identifiers and paths"):
        for pattern, put in PATHS:
            wanted, found = (re.sub(pattern, put, text) for text in (wanted, found))
    if level >= CLASSES.index("32-bit integers"):
        # NumPy names the type of integers that aren't the default.
        has_type_line = TYPE_LINE.search(found)
        for pattern, put in INTEGERS:
            wanted, found = (re.sub(pattern, put, text) for text in (wanted, found))
        shorter = AFTER_DOTS.sub(r"\1", wanted) if has_type_line else wanted
        if shorter != wanted and numbers_are_alike(shorter, found):
            return True
    if level >= CLASSES.index("last digits"):
        return numbers_are_alike(wanted, found)
    return wanted == found


def numbers_are_alike(wanted, found):
    words = [re.sub(r"\s+|-{3,}", "", NUMBER.sub("#", text)) for text in (wanted, found)]
    if words[0] != words[1]:
        return False
    pairs = [[float(number) for number in NUMBER.findall(text)] for text in (wanted, found)]
    largest = max((abs(number) for number in pairs[0] if math.isfinite(number)), default=0)
    return all(
        math.isclose(one, other, rel_tol=PART, abs_tol=OF_LARGEST * largest)
        for one, other in zip(*pairs)
    )


def verdict(theirs, again, ours, variants):
    """Return the class of a cell, and what to say about it."""
    loosest = len(CLASSES) - 1
    for level, name in enumerate(CLASSES):
        if are_alike(theirs, ours, level):
            return name, None
    if any(output[:2] == ["error", "SystemExit"] for output in theirs):
        return LEAVES, None
    failed = [output for output in ours if output[0] == "error"]
    if failed and not any(output[0] == "error" for output in theirs):
        told = f"{failed[0][1]}: {''.join(failed[0][2].strip().splitlines()[:1])}"
        named = (name for name, pattern in REASONS.items() if re.search(pattern, told))
        return next(named, FAILS), told
    repeated = [again] + [run for name, run in variants.items() if name.startswith("again-")]
    if not all(are_alike(theirs, run, loosest) for run in repeated):
        return VARIES, None
    if "rounded" in variants and not are_alike(theirs, variants["rounded"], loosest):
        return ROUNDED, None
    if "narrow" in variants and are_alike(variants["narrow"], ours, loosest):
        return NARROW, None
    return DIFFERENT, {"jupyter": short(theirs), "here": short(ours)}


def short(value, length=600):
    if isinstance(value, str):
        return value if len(value) <= length else f"{value[:length]}… ({len(value)})"
    if isinstance(value, dict):
        return {key: short(one, length) for key, one in value.items()}
    return [short(one, length) for one in value] if isinstance(value, list) else value


def code_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    return [cell for cell in code if joined(cell["source"]).strip()]


def main():
    folders = [pathlib.Path(argument) for argument in sys.argv[1:4]]
    variants = sorted(pathlib.Path(sys.argv[4]).iterdir()) if len(sys.argv) > 4 else []
    for path in sorted(folders[0].glob("*.ipynb")):
        runs = [folder / path.name for folder in folders]
        if not all(run.exists() for run in runs):
            continue
        varied = [folder for folder in variants if (folder / path.name).exists()]
        others = [folder / path.name for folder in varied]
        told = []
        for number, cells in enumerate(zip(*map(code_cells, runs + others), strict=True), 1):
            if cells[0].get("execution_count") is None:
                continue
            theirs, again, ours, *others = map(outputs, cells)
            names = (folder.name for folder in varied)
            name, detail = verdict(theirs, again, ours, dict(zip(names, others)))
            # What it should have defined isn't there.
            if name == FAILS and any(one["class"].startswith(FAILS) for one in told):
                name = AFTER
            told.append({"cell": number, "class": name, "detail": detail})
            if detail:
                told[-1]["source"] = short(joined(cells[0]["source"]))
        print(json.dumps({"notebook": path.stem, "cells": told}))


if __name__ == "__main__":
    main()
