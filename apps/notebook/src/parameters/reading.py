"""Reads parameters as papermill does, and describes those that a notebook has.

Runs in a fresh interpreter of the pool; `parameters.rs` calls `answer`.
"""

import csv
import io
import json
import keyword
import math
import re

# A definition in the cell of parameters: name, annotation or type comment, default, and help.
DEFINITION = re.compile(
    r"(?P<name>\w+)\s*(:\s*[\"']?(?P<annotation>\w[\w\[\],\s.|]*?)[\"']?\s*)?=\s*(?P<default>.*?)"
    r"(\s*#\s*(type:\s*(?P<comment>\S*)\s*)?(?P<help>.*))?"
)
# The field of a set of parameters that names it.
NAME = "@name"


class Unusable(Exception):
    """What can't be used as a parameter, and what to do."""


def answer(request):
    """Returns the answer to a request, as JSON."""
    kind, *arguments = json.loads(request)
    try:
        answered = {"ok": {"read": read, "inspect": inspect}[kind](*arguments)}
    except Unusable as problem:
        answered = {"unusable": str(problem)}
    return json.dumps(answered)


def read(base, sets, cells):
    """Reads the parameters of every set: for each its name, the source of the cell to inject, its
    names and values, and the names that each of the cells lacks."""
    shared = {}
    for origin, *source in base:
        shared |= given(origin, *source)
    known = [None if cell is None else {one["name"] for one in inspect(cell)} for cell in cells]
    answers = []
    for name, own in named_sets(*sets) if sets else [(None, {})]:
        parameters = {**shared, **own}
        for one in parameters:
            if not (isinstance(one, str) and one.isidentifier() and not keyword.iskeyword(one)):
                raise Unusable(f"the parameter `{one}` isn't a name in Python; rename it")
        unknown = [[] if names is None else [one for one in parameters if one not in names]
                   for names in known]
        values = [[one, plain(one, value)] for one, value in parameters.items()]
        answers.append([name, codified(parameters), values, unknown])
    return answers


def given(origin, *source):
    """Returns the parameters of one option."""
    if origin == "value":
        name, text = source
        return {name: resolved(text)}
    if origin == "raw":
        name, text = source
        return {name: text}
    return mapping(loaded(*source), source[0])


def mapping(value, place):
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Unusable(f"{place} must be a mapping of names to values")
    return value


def resolved(text):
    """Reads a value of the command line."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


CONSTANTS = {"True": True, "False": False, "None": None}


def loaded(place, text):
    """Reads YAML, without dates, of which JSON is a subset."""
    try:
        import yaml
    except ImportError:
        try:
            return json.loads(text)
        except ValueError as error:
            raise Unusable(
                f"{place} isn't valid JSON, and this Python build has no PyYAML to read it as YAML: "
                f"{error}; write it as JSON"
            ) from None

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {
            first: [one for one in resolvers if one[0] != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    try:
        return yaml.load(text, Loader=Loader)
    except yaml.YAMLError as error:
        raise Unusable(f"{place} isn't valid YAML: {' '.join(str(error).split())}") from None


def named_sets(place, ending, text):
    """Reads the sets of a file, each with its name."""
    if ending == "csv":
        rows = csv.DictReader(io.StringIO(text), strict=True)
        sets = [row_of(place, row) for row in rows]
    elif ending in ("jsonl", "ndjson"):
        lines = enumerate(text.splitlines(), 1)
        sets = [loaded(f"line {number} of {place}", line) for number, line in lines if line.strip()]
    else:
        sets = loaded(place, text)
    if isinstance(sets, dict):
        sets = [{NAME: name, **mapping(one, f"`{name}` in {place}")} for name, one in sets.items()]
    if not isinstance(sets, list) or not sets:
        raise Unusable(f"{place} has no sets of parameters")
    width, named = len(str(len(sets))), []
    for number, one in enumerate(sets, 1):
        one = dict(mapping(one, f"set {number} of {place}"))
        named.append((str(one.pop(NAME, f"{number:0{width}}")), one))
    return named


def row_of(place, row):
    """Returns the set of a row. An empty field is no parameter."""
    if None in row or None in row.values():
        raise Unusable(f"a row of {place} has more or fewer fields than its first one")
    return {name: text if name == NAME else resolved(text) for name, text in row.items() if text}


def plain(name, value):
    """Returns a value as JSON has it, for the notebook's metadata."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): plain(name, one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(name, one) for one in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise Unusable(
        f"the parameter `{name}` has a value of the type {type(value).__name__}; use numbers, texts, "
        "booleans, null, lists and mappings"
    )


def codified(parameters):
    """Returns the source of the injected cell."""
    lines = [f"{name} = {translated(value)}\n" for name, value in parameters.items()]
    return "".join(["# Parameters\n", *lines])


def translated(value):
    if isinstance(value, dict):
        items = (f"{quoted(key)}: {translated(one)}" for key, one in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(translated, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)
    return quoted(value)


def quoted(value):
    text = str(value).encode("unicode_escape").decode().replace('"', '\\"')
    return f'"{text}"'


def inspect(source):
    """Returns the parameters that a cell defines, each definition from a line with one `=` on."""
    definitions, lines = [], []
    for line in source.splitlines():
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        if "=" in line:
            definitions.append(joined(lines))
            lines = [] if line.count("=") > 1 else [content]
        else:
            lines.append(content)
    definitions.append(joined(lines))
    matches = (DEFINITION.fullmatch(one) for one in definitions)
    return [
        {
            "name": match["name"],
            "type": match["annotation"] or match["comment"] or None,
            "default": match["default"].strip(),
            "help": (match["help"] or "").strip(),
        }
        for match in matches
        if match
    ]


def joined(lines):
    """Joins the lines of a definition. Only the last one may have a comment, which is its help."""
    return "".join([line.partition("#")[0].strip() for line in lines[:-1]] + lines[-1:])
