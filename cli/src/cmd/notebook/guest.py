"""What notebooks expect of IPython, as far as a sandbox can give it.

A session of a notebook runs this once, as the module `hatchery_notebook`. It gives programs
`get_ipython()`, and `IPython.display` unless the image has a real IPython.
"""

import builtins
import os
import re
import sys
import types

import hatchery
from hatchery_timing import UsageError, timed, timeit

# Magics that configure what isn't here, or is so anyway.
SKIPPED = ("autoreload", "autosave", "config", "matplotlib", "pdb", "precision", "xmode")
EXTENSIONS = ("autoreload", "storemagic")
# What a magic of the cell shows its body as.
FORMS = {
    "html": "text/html",
    "HTML": "text/html",
    "javascript": "application/javascript",
    "js": "application/javascript",
    "latex": "text/latex",
    "markdown": "text/markdown",
    "svg": "image/svg+xml",
    "SVG": "image/svg+xml",
}
INSTALLERS = ("pip", "conda", "mamba", "uv")
PACKAGES = (
    "packages are added from outside of the sandbox: `hatchery notebook run --package WHEEL|DIR`,"
    " or `--requirements FILE`; `hatchery packages` lists what there is"
)
COMMANDS = "the sandbox has no shell and no other programs: write it in Python"


class Events:
    """Takes callbacks, and never calls them."""

    def register(self, event, function):
        pass

    def unregister(self, event, function):
        pass


class Formatter:
    """Takes ways to show objects of some type, which are shown in the forms of their own."""

    def __init__(self):
        self.type_printers = {}

    def for_type(self, kind, function=None):
        pass

    def for_type_by_name(self, module, name, function=None):
        pass


class DisplayFormatter:
    """Has a formatter for every MIME type."""

    def __init__(self):
        import collections

        self.formatters = collections.defaultdict(Formatter)


class Shell:
    """What `get_ipython()` gives: the magics that make sense in a sandbox."""

    colors = "nocolor"

    def __init__(self):
        self.config = {}
        self.events = Events()
        self.display_formatter = DisplayFormatter()

    @property
    def user_ns(self):
        return sys.modules["__main__"].__dict__

    def enable_gui(self, gui=None):
        pass

    def magic(self, line):
        name, _, rest = line.partition(" ")
        return self.run_line_magic(name.lstrip("%"), rest.strip())

    def run_line_magic(self, name, line, _stack_depth=1):
        if name in SKIPPED or name in ("load_ext", "reload_ext") and line.strip() in EXTENSIONS:
            return None
        if name in ("load_ext", "reload_ext"):
            raise UsageError(f"the extension `{line}` of IPython isn't here")
        if name in INSTALLERS:
            return install(f"%{name}", line)
        if name == "time":
            return timed(line)
        if name == "timeit":
            return timeit(line)
        if name in ("pinfo", "pinfo2"):
            return describe(line)
        if name in ("env", "set_env"):
            return environment(line)
        if name == "cd":
            os.chdir(os.path.expanduser(line.strip() or "~"))
            return print(os.getcwd())
        if name == "pwd":
            return os.getcwd()
        if name.startswith("%"):
            raise UsageError(f"`%{name}` has to be the first line of its cell")
        raise UsageError(f"`%{name}` can't be had here. {reason_of(name)}")

    def run_cell_magic(self, name, line, cell):
        if name == "time":
            return timed(cell)
        if name == "timeit":
            return timeit(line, cell)
        if name in FORMS:
            return show({FORMS[name]: cell})
        if name in ("writefile", "file"):
            return write_file(line, cell)
        raise UsageError(f"`%%{name}` can't be had here. {reason_of(name)}")

    def system(self, command):
        words = command.split()
        if words[:1] == ["python"] or words[:1] == ["python3"]:
            words = words[1:]
        if words[:1] == ["-m"]:
            words = words[1:]
        if words[:1] and words[0].rstrip("3") in INSTALLERS:
            return install("!" + words[0], " ".join(words[1:]))
        raise UsageError(f"`!{command.strip()}` can't be run. {sentence(COMMANDS)}")

    getoutput = system


def reason_of(name):
    if name in ("bash", "sh", "script", "system", "sx", "cmd", "perl", "ruby"):
        return sentence(COMMANDS)
    if name == "run":
        return "Give the file to the notebook with --input, and import it."
    return (
        "Of IPython's magics there are time, timeit, writefile, html, markdown, latex, svg, env, cd"
        " and pwd."
    )


def sentence(text):
    return text[:1].upper() + text[1:] + "."


def install(command, line):
    """Is satisfied if all that is asked for is here, as pip is; else says what to do."""
    words = line.split()
    names = [word.strip("'\"") for word in words[1:] if not word.startswith("-")]
    reads_files = any(word.startswith(("-r", "-c", "-e", "--req", "--con", "--edit")) for word in words)
    if words[:1] == ["install"] and not reads_files and all(map(is_installed, names or [""])):
        for name in names:
            print(f"Requirement already satisfied: {name}")
        return
    raise UsageError(f"`{command} {line.strip()}` can't be run: {PACKAGES}")


def is_installed(requirement):
    import importlib.metadata
    import importlib.util

    name, relation, version = re.fullmatch(r"([^<>=!~;[ ]*) *(==|>=)? *(.*)", requirement).groups("")
    if version and not relation:
        return False
    if not name.replace("-", "_").replace(".", "_").isidentifier():
        return False
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        try:
            return not version and importlib.util.find_spec(name.replace("-", "_")) is not None
        except (ImportError, ValueError):
            return False
    if relation == ">=":
        return numbers_of(found) >= numbers_of(version)
    return not version or found == version


def numbers_of(version):
    return [int(number) for number in re.findall(r"\d+", version)]


def environment(line):
    """Sets a variable of the environment, or tells one or all."""
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


def show(forms):
    hatchery.display({"text/plain": f"<{', '.join(forms)}>", **forms}, raw=True)


def write_file(line, cell):
    words = line.split(None, 1)
    appends = words[:1] in (["-a"], ["--append"])
    name = words[-1].strip().strip("'\"") if len(words) > appends else ""
    if not name:
        raise UsageError("`%%writefile` wants the name of a file")
    name = os.path.expanduser(name)
    doing = "Appending to" if appends else "Overwriting" if os.path.exists(name) else "Writing"
    print(doing, name)
    with open(name, "a" if appends else "w", encoding="utf-8") as file:
        file.write(cell)


def describe(name):
    """Prints what is known of an object, as `name?` does."""
    import inspect

    value = eval(name.strip(), sys.modules["__main__"].__dict__)
    try:
        print(f"Signature: {name.strip()}{inspect.signature(value)}")
    except (TypeError, ValueError):
        pass
    print(f"Type:      {type(value).__name__}")
    print(f"Docstring: {inspect.getdoc(value) or '<no docstring>'}")


def generators():
    """The modules whose random numbers programs share, as far as they are imported."""
    names = (("random", "getstate", "setstate"), ("numpy.random", "get_state", "set_state"))
    for name, get, put in names:
        module = sys.modules.get(name)
        if module is not None:
            yield name, getattr(module, get), getattr(module, put)


# Where each generator was when the last cell ended.
left = {}


def remember():
    """Keeps where the generators of random numbers are, since a session from a file begins others."""
    for name, get, _ in generators():
        try:
            left[name] = get()
        except Exception:
            left.pop(name, None)


def go_on():
    """Has random numbers go on where they were when the last cell ended."""
    for name, _, put in generators():
        if name in left:
            put(left[name])


class DisplayObject:
    """Something to show, in one form."""

    mime = "text/plain"

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        if isinstance(data, os.PathLike):
            data = os.fspath(data)
        if isinstance(data, str) and filename is None and url is None:
            if data.startswith(("http://", "https://")):
                data, url = None, data
            elif len(data) < 256 and "\n" not in data and os.path.isfile(data):
                data, filename = None, data
        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata
        self.reload()

    def reload(self):
        if self.filename is not None:
            with open(self.filename, "rb") as file:
                self.data = self.decoded(file.read())
        elif self.data is None and self.url is not None:
            raise UsageError(f"`{self.url}` can't be fetched: the sandbox has no network")

    def decoded(self, data):
        return data.decode("utf-8")

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime: self.data} if self.data is not None else {}

    def __repr__(self):
        return f"<IPython.core.display.{type(self).__name__} object>"


class TextDisplayObject(DisplayObject):
    """Something to show that is a text."""


class HTML(TextDisplayObject):
    mime = "text/html"

    def __html__(self):
        return self.data


class Markdown(TextDisplayObject):
    mime = "text/markdown"


class Latex(TextDisplayObject):
    mime = "text/latex"


class Math(TextDisplayObject):
    mime = "text/latex"

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime: "$\\displaystyle " + self.data.strip("$") + "$"}


class SVG(TextDisplayObject):
    mime = "image/svg+xml"


class Javascript(TextDisplayObject):
    mime = "application/javascript"


class Pretty(TextDisplayObject):
    mime = "text/plain"


class JSON(DisplayObject):
    mime = "application/json"

    def __init__(self, data=None, url=None, filename=None, expanded=False, metadata=None, root="root"):
        super().__init__(data, url, filename, metadata)
        if isinstance(self.data, str):
            import json

            self.data = json.loads(self.data)


class Image(DisplayObject):
    """An image, from bytes or a file; from an address as HTML that names it."""

    STARTS = (
        (b"\x89PNG", "png"),
        (b"\xff\xd8", "jpeg"),
        (b"GIF8", "gif"),
        (b"RIFF", "webp"),
    )

    def __init__(self, data=None, url=None, filename=None, format=None, embed=None, width=None,
                 height=None, **others):
        self.format, self.width, self.height = format, width, height
        super().__init__(data, url, filename, others.get("metadata"))

    def reload(self):
        if self.url is None or self.data is not None or self.filename is not None:
            super().reload()
            if self.data is None:
                raise ValueError("an Image wants data, a filename or a url")

    def decoded(self, data):
        return data

    def _repr_mimebundle_(self, include=None, exclude=None):
        import html

        if self.data is None:
            sizes = (("width", self.width), ("height", self.height))
            sizes = "".join(f' {name}="{size}"' for name, size in sizes if size)
            return {"text/html": f'<img src="{html.escape(self.url)}"{sizes}/>'}
        start = self.data[:8] if isinstance(self.data, (bytes, bytearray)) else b""
        found = next((name for mark, name in self.STARTS if start.startswith(mark)), "png")
        kind = (self.format or found).lower().replace("jpg", "jpeg")
        return {"image/" + kind.replace("svg", "svg+xml"): self.data}


class IFrame:
    """A page inside of the notebook, which whoever looks at it fetches."""

    def __init__(self, src, width, height, extras=None, **parameters):
        self.src, self.width, self.height = src, width, height

    def _repr_html_(self):
        import html

        return (
            f'<iframe width="{self.width}" height="{self.height}"'
            f' src="{html.escape(self.src)}" frameborder="0" allowfullscreen></iframe>'
        )


class DisplayHandle:
    """Shows further objects; what was shown stays."""

    def __init__(self, display_id=None):
        self.display_id = display_id or "0"

    def display(self, value, **options):
        display(value, **options)

    update = display


def display(*objects, raw=False, display_id=None, **options):
    """Shows each object in the richest forms that it has."""
    hatchery.display(*objects, raw=raw)
    return DisplayHandle(None if display_id is True else display_id) if display_id else None


def update_display(value, *, display_id, **options):
    display(value)


def clear_output(wait=False):
    """What was shown stays."""


def set_matplotlib_formats(*formats, **options):
    """Figures are shown as PNG."""


def shower(mime):
    def function(*objects, raw=False, metadata=None):
        for one in objects:
            display({mime: one} if raw else one, raw=raw)

    return function


shell = Shell()


def get_ipython():
    return shell


PUBLIC = (
    DisplayObject, TextDisplayObject, HTML, Markdown, Latex, Math, SVG, Javascript, Pretty, JSON,
    Image, IFrame, DisplayHandle, display, update_display, clear_output, set_matplotlib_formats,
)
SHOWERS = {
    "display_html": "text/html",
    "display_jpeg": "image/jpeg",
    "display_json": "application/json",
    "display_latex": "text/latex",
    "display_markdown": "text/markdown",
    "display_png": "image/png",
    "display_svg": "image/svg+xml",
}


def fill_display(module):
    for one in PUBLIC:
        setattr(module, one.__name__, one)
    for name, mime in SHOWERS.items():
        setattr(module, name, shower(mime))


def fill_package(module):
    # Libraries ask for these. It is the interface of that version, as far as it goes.
    module.__version__, module.version_info = "9.0.0", (9, 0, 0, "")
    module.get_ipython = get_ipython
    import IPython.display

    module.display = IPython.display


FILLERS = {
    "IPython": fill_package,
    "IPython.core": lambda module: None,
    "IPython.core.display": fill_display,
    "IPython.core.getipython": lambda module: setattr(module, "get_ipython", get_ipython),
    "IPython.display": fill_display,
}


class Finder:
    """Finds what stands in for IPython. It is asked last, so a real one is found before."""

    def find_spec(self, name, path=None, target=None):
        from importlib.machinery import ModuleSpec

        if name not in FILLERS or name != "IPython" and not is_ours("IPython"):
            return None
        return ModuleSpec(name, self, is_package=name in ("IPython", "IPython.core"))

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        FILLERS[module.__name__](module)


def is_ours(name):
    return isinstance(getattr(sys.modules.get(name), "__loader__", None), Finder)


def install_all():
    sys.meta_path.append(Finder())
    builtins.get_ipython = get_ipython
    builtins.display = display
    # Before each job the variables are cleared, and those that it is given set. A notebook's cells are
    # one program, whose variables stay.
    os.environ.clear = lambda: None


install_all()
