"""The IPython magics that make sense in a sandbox: `%` for lines, `%%` for cells."""

import os
import runpy
import shlex
import sys
import warnings

from hatchery_notebook import commands, inspection, objects, showing, timing
from hatchery_notebook.capture import capture_output
from hatchery_notebook.errors import UsageError
from hatchery_notebook.execution import INTERACTIVITIES, namespace, run_value
from hatchery_notebook.formatting import FORMATS
from hatchery_notebook.packages import pip

# Magics that configure what doesn't exist here, or is so anyway.
SKIPPED = ("autosave", "colors", "gui", "matplotlib", "pdb")
EXTENSIONS = ("autoreload", "storemagic")
# The class that a cell magic displays its body with.
FORMS = {
    "html": objects.HTML,
    "HTML": objects.HTML,
    "javascript": objects.Javascript,
    "js": objects.Javascript,
    "latex": objects.Latex,
    "markdown": objects.Markdown,
    "svg": objects.SVG,
    "SVG": objects.SVG,
}
# What `%pylab` imports, and what it imports unless it has `--no-import-all`.
PYLAB = """import numpy, matplotlib
from matplotlib import mlab, pylab, pyplot
np, plt = numpy, pyplot
"""
PYLAB_NAMES = "from matplotlib.pylab import *\nfrom numpy import *\n"
LANGUAGES = ("cmd", "js", "perl", "ruby")


def unknown(shell, name, is_cell):
    """Returns the error for a magic that isn't available."""
    mark = "%%" if is_cell else "%"
    if name in LANGUAGES:
        return UsageError(f"`{mark}{name}` isn't available here: the sandbox has only Python and a shell (`%%bash`)")
    table = shell.cell_magics if is_cell else shell.line_magics
    there = ", ".join(sorted(name for name in table if name not in SKIPPED))
    return UsageError(f"`{mark}{name}` isn't available here. Available are: {there}")


def environment(line):
    """Sets an environment variable, or returns one or all."""
    name, equals, value = line.strip().partition("=")
    if not equals:
        name, equals, value = name.partition(" ")
    name, value = name.strip(), value.strip()
    if not name:
        return dict(os.environ)
    if not equals:
        return os.environ.get(name)
    os.environ[name] = value
    print(f"env: {name}={value}")


def change_folder(line):
    os.chdir(os.path.expanduser(line.strip() or "~"))
    print(os.getcwd())


def write_file(line, cell):
    words = line.split(None, 1)
    appends = words[:1] in (["-a"], ["--append"])
    name = words[-1].strip().strip("'\"") if len(words) > appends else ""
    if not name:
        raise UsageError("`%%writefile` needs the name of a file")
    name = os.path.expanduser(name)
    doing = "Appending to" if appends else "Overwriting" if os.path.exists(name) else "Writing"
    print(doing, name)
    with open(name, "a" if appends else "w", encoding="utf-8") as file:
        file.write(cell)


def shown_as(kind):
    return lambda line, cell: showing.display(kind(cell))


def capture(shell):
    def magic(line, cell):
        words = line.split()
        name = next((word for word in words if not word.startswith("-")), None)
        wanted = {kind: f"--no-{kind}" not in words for kind in ("stdout", "stderr", "display")}
        with capture_output(**wanted) as captured:
            shell.run_source(cell)
        if name is not None:
            namespace()[name] = captured

    return magic


def run_file(line):
    """Runs a file with arguments, and copies its names into the notebook."""
    words = shlex.split(line)
    options = set()
    while words and words[0].startswith("-") and len(words[0]) > 1:
        options.add(words.pop(0))
    if not words or options - {"-i", "-n", "-e", "-m"}:
        raise UsageError("write `%run [-i] [-n] [-e] FILE [ARGUMENTS]` or `%run -m MODULE [ARGUMENTS]`")
    name = "__run__" if "-n" in options else "__main__"
    target = words[0]
    if "-m" not in options and not os.path.exists(target) and os.path.exists(f"{target}.py"):
        target += ".py"
    if target.endswith(".ipynb"):
        raise UsageError(f"`%run {target}` isn't available here: only Python files can be run")
    before, argv = dict(namespace()), sys.argv
    sys.argv = [target, *words[1:]]
    try:
        if "-m" in options:
            left = runpy.run_module(target, before if "-i" in options else None, name)
        else:
            left = runpy.run_path(target, before if "-i" in options else None, name)
    except SystemExit as error:
        if error.code and "-e" not in options:
            raise
        left = {}
    finally:
        sys.argv = argv
    namespace().update((key, value) for key, value in left.items() if not key.startswith("__"))


def precision(shell):
    """Sets how many digits of floats are displayed."""

    def magic(line):
        formatter = shell.display_formatter.formatters["text/plain"]
        text = line.strip()
        if text.isdecimal():
            text = f"%.{text}f"
        formatter.type_printers.pop(float, None)
        formatter.float_format = text or "%r"
        if text:
            formatter.for_type(float, lambda value, printer, cycle: printer.text(text % value))
        if "numpy" in sys.modules:
            digits = line.strip()
            sys.modules["numpy"].set_printoptions(precision=int(digits) if digits.isdecimal() else 8)
        return formatter.float_format

    return magic


def figsize(width, height):
    """Sets the size of figures, in inches."""
    sys.modules["matplotlib"].rcParams["figure.figsize"] = [width, height]


def pylab(shell):
    """Imports the names of NumPy and matplotlib into the notebook."""

    def magic(line):
        imported = {}
        exec(PYLAB if "--no-import-all" in line.split() else PYLAB + PYLAB_NAMES, imported)
        del imported["__builtins__"]
        imported |= {"display": showing.display, "figsize": figsize}
        names = namespace()
        lost = [name for name, value in imported.items() if names.get(name, value) is not value]
        names.update(imported)
        shell.hidden.update(imported)
        print("%pylab is deprecated, use %matplotlib inline and import the required libraries.")
        print("Populating the interactive namespace from numpy and matplotlib")
        if lost:
            told = f"pylab import has clobbered these variables: {lost}"
            warnings.warn(f"{told}\n`%matplotlib` prevents importing * from pylab and numpy", stacklevel=1)

    return magic


def pprint(shell):
    def magic(line):
        formatter = shell.display_formatter.formatters["text/plain"]
        formatter.pprint = not formatter.pprint
        print("Pretty printing has been turned", "ON" if formatter.pprint else "OFF")

    return magic


def configure(shell):
    """`%config CLASS.NAME = VALUE`, for the settings that exist."""

    def magic(line):
        target, equals, value = line.partition("=")
        owner, _, name = target.strip().rpartition(".")
        if not equals:
            return None
        try:
            value = run_value(value.strip(), "<config>")
        except NameError:
            value = value.strip()
        if owner == "InlineBackend" and name in ("figure_format", "figure_formats"):
            formats = [value] if isinstance(value, str) else list(value)
            set_figure_formats(shell, *formats)
        elif owner == "InlineBackend" and name == "print_figure_kwargs":
            shell.figures.options = dict(value)
        elif name == "ast_node_interactivity":
            check_interactivity(value)
            shell.ast_node_interactivity = value

    return magic


def check_interactivity(value):
    if value not in INTERACTIVITIES:
        raise UsageError(f"`ast_node_interactivity` is one of {', '.join(INTERACTIVITIES)}, not {value!r}")


def set_figure_formats(shell, *formats, **options):
    """Sets the formats of displayed figures: png, retina, svg, pdf, jpeg."""
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise ValueError(f"there is no figure format {unknown[0]!r}; use {', '.join(FORMATS)}")
    shell.figures.formats = list(dict.fromkeys(formats))
    shell.figures.options |= options
    shell.figures.register(shell.display_formatter.formatters)


def load_extension(shell):
    def magic(line):
        name = line.strip()
        if name in EXTENSIONS:
            return
        try:
            module = __import__(name, fromlist=["load_ipython_extension"])
        except ImportError:
            raise UsageError(f"the IPython extension `{name}` isn't available") from None
        load = getattr(module, "load_ipython_extension", None)
        if load is None:
            return print(f"The {name} module is not an IPython extension.")
        load(shell)

    return magic


def installer(name):
    return lambda line: pip(f"%{name}", line)


def list_magics(shell):
    def magic(line):
        for title, mark, table in (("line", "%", shell.line_magics), ("cell", "%%", shell.cell_magics)):
            print(f"Available {title} magics:\n" + "  ".join(mark + name for name in sorted(table)))

    return magic


def history(shell):
    def magic(line):
        for source in shell.history[1:]:
            print(source)

    return magic


def line_magics(shell):
    """Returns the line magics by name."""
    hidden = shell.hidden
    magics = {
        "aimport": shell.reloader.aimport,
        "autoreload": shell.reloader.autoreload,
        "cd": change_folder,
        "config": configure(shell),
        "env": environment,
        "history": history(shell),
        "load_ext": load_extension(shell),
        "lsmagic": list_magics(shell),
        "pinfo": inspection.describe,
        "pinfo2": lambda line: inspection.describe(line, with_source=True),
        "pprint": pprint(shell),
        "precision": precision(shell),
        "pwd": lambda line: os.getcwd(),
        "pylab": pylab(shell),
        "reload_ext": load_extension(shell),
        "reset": lambda line: shell.reset(),
        "reset_selective": lambda line: inspection.reset_selective(hidden, line.removeprefix("-f").strip()),
        "run": run_file,
        "set_env": environment,
        "time": timing.timed,
        "timeit": timing.timeit,
        "who": lambda line: inspection.who(hidden, line),
        "who_ls": lambda line: inspection.variables(hidden, line),
        "whos": lambda line: inspection.whos(hidden, line),
        "xmode": lambda line: print("Exception reporting mode:", line.strip().capitalize() or "Plain"),
    }
    magics |= commands.line_magics() | {name: installer(name) for name in commands.INSTALLERS}
    return magics | {name: lambda line: None for name in SKIPPED}


def cell_magics(shell):
    """Returns the cell magics by name."""
    magics = {
        "capture": capture(shell),
        "file": write_file,
        "time": lambda line, cell: timing.timed(cell),
        "timeit": timing.timeit,
        "writefile": write_file,
    }
    magics |= commands.cell_magics()
    return magics | {name: shown_as(kind) for name, kind in FORMS.items()}
