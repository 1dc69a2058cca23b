"""nbclient runs notebooks through the kernel `hatchery`: the examples, and those whose outputs are
known from ipykernel. Ends with `all as expected`.

Usage: notebooks.py EXAMPLES KNOWN...
"""

import base64
import pathlib
import re
import struct
import sys

import nbformat
from nbclient import NotebookClient

# Fonts may make images this much wider or higher.
PIXELS = 3


def executed(path, **options):
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, kernel_name="hatchery", resources=place, timeout=300,
                   coalesce_streams=True, **options).execute()
    return notebook


def plain(output):
    """Returns an output without what varies from run to run, and the layout of tracebacks."""
    output = {name: value for name, value in output.items() if name not in ("traceback", "transient")}
    if "text" in output:
        output["text"] = without_addresses(output["text"])
    if "evalue" in output:
        output["evalue"] = without_addresses(output["evalue"])
    if "data" in output:
        output["data"] = {name: form(name, value) for name, value in output["data"].items()}
    return output


def form(name, value):
    if isinstance(value, list):
        value = "".join(value)
    if not isinstance(value, str):
        return value
    if name == "image/png":
        return pixels(value)
    if name == "image/svg+xml" and "matplotlib" in value:
        return "a drawing"
    return without_addresses(value)


def without_addresses(text):
    return re.sub(" at 0x[0-9a-fA-F]+", " at 0x…", text)


def pixels(image):
    """Returns the size of an image if it has one, otherwise the image. The known outputs have sizes in
    place of images."""
    found = re.fullmatch(r"(\d+) x (\d+) pixels", image)
    if found:
        return tuple(map(int, found.groups()))
    size = base64.b64decode(image)[16:24]
    return struct.unpack(">II", size) if len(size) == 8 else image


def are_alike(wanted, found):
    if not isinstance(wanted, type(found)):
        return False
    if isinstance(wanted, dict):
        return wanted.keys() == found.keys() and all(are_alike(wanted[k], found[k]) for k in wanted)
    if isinstance(wanted, tuple):
        return all(abs(one - other) <= PIXELS for one, other in zip(wanted, found))
    return wanted == found


def main():
    examples, *known = map(pathlib.Path, sys.argv[1:])
    for path in sorted(examples.glob("*.ipynb")):
        cells = [cell for cell in executed(path).cells if cell.cell_type == "code"]
        assert cells and any(cell.outputs for cell in cells), path
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), path
    for path in known:
        expected = nbformat.read(path, as_version=4)
        for wanted, found in zip(expected.cells, executed(path, allow_errors=True).cells, strict=True):
            outputs = [list(map(plain, cell.get("outputs", []))) for cell in (wanted, found)]
            same = len(outputs[0]) == len(outputs[1]) and all(map(are_alike, *outputs))
            assert same, f"{path.name}: {wanted.source}\nJupyter: {outputs[0]}\nours: {outputs[1]}"
    print("all as expected")


main()
