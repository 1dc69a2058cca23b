"""Stand-ins for the IPython modules that programs import, unless the image has the real ones."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec

from hatchery_notebook import capture, errors, magics, objects, pretty, showing
from hatchery_notebook import shell as shells

# Libraries ask for it: the version whose interface this follows.
VERSION = (9, 0, 0, "")
# The module of a real IPython that has its shell.
REAL = "IPython.core.interactiveshell"
SHOWING = (
    showing.display, showing.update_display, showing.clear_output, showing.DisplayHandle,
    showing.publish_display_data,
)


def fill(module, things):
    for one in things:
        setattr(module, one.__name__, one)


def fill_display(module):
    fill(module, (*objects.CORE, *objects.LIBRARY, *SHOWING, *objects.SHOWERS.values()))
    module.set_matplotlib_formats = set_matplotlib_formats
    module.set_matplotlib_close = lambda close=True: None


def set_matplotlib_formats(*formats, **options):
    """Sets the formats of displayed figures: png, retina, svg, pdf, jpeg."""
    magics.set_figure_formats(shells.get_ipython(), *formats, **options)


def fill_package(module):
    module.__version__, module.version_info = ".".join(map(str, VERSION[:3])), VERSION
    module.get_ipython = shells.get_ipython
    module.InteractiveShell = shells.InteractiveShell
    import IPython.core.getipython  # noqa: F401, so that `IPython.core` is there as it is elsewhere
    import IPython.display

    module.display = IPython.display


def fill_shells(module):
    module.InteractiveShell = shells.InteractiveShell


def fill_terminal(module):
    class TerminalInteractiveShell(shells.InteractiveShell):
        """A terminal shell, for `isinstance`; there is no terminal."""

    module.TerminalInteractiveShell = TerminalInteractiveShell


def marked(kind):
    """Returns the decorators of a kind of magics, for functions and for methods."""

    def method(name):
        if callable(name):
            return mark(name, kind, name.__name__)
        return lambda function: mark(function, kind, name)

    def register(name):
        if callable(name):
            return mark_and_take(name, kind, name.__name__)
        return lambda function: mark_and_take(function, kind, name)

    return method, register


def mark(function, kind, name):
    function._hatchery_magics = (*getattr(function, "_hatchery_magics", ()), (kind, name))
    return function


def mark_and_take(function, kind, name):
    shells.get_ipython().register_magic_function(function, kind, name)
    return function


class Magics:
    """A group of magics, as methods."""

    def __init__(self, shell=None, **options):
        self.shell = shell


def fill_magics(module):
    module.Magics = Magics
    module.magics_class = lambda kind: kind
    for kind in ("line", "cell", "line_cell"):
        method, register = marked(kind)
        setattr(module, f"{kind}_magic", method)
        setattr(module, f"register_{kind}_magic", register)


def fill_pretty(module):
    module.pretty = pretty.pretty
    module.pprint = lambda value: print(pretty.pretty(value))
    module.RepresentationPrinter = module.PrettyPrinter = pretty.Printer
    module.for_type = lambda kind, function: pretty.WAYS.setdefault(kind, function)


def latex_to_png(s, encode=False, backend=None, wrap=False, color="Black", scale=1.0):
    """Renders a formula as an image; `None` if matplotlib can't."""
    import base64
    import io

    from matplotlib import font_manager, mathtext

    target, formula = io.BytesIO(), s.replace("$$", "$")
    formula = f"${formula}$" if wrap else formula
    size = font_manager.FontProperties(size=12)
    try:
        mathtext.math_to_image(
            formula, target, prop=size, dpi=120 * scale, format="png", color=color.lower()
        )
    except Exception:  # of the parser, one of several kinds
        return None
    return base64.b64encode(target.getvalue()).decode() if encode else target.getvalue()


PACKAGES = ("IPython", "IPython.core", "IPython.lib", "IPython.terminal", "IPython.utils")
FILLERS = {
    "IPython": fill_package,
    "IPython.core.display": fill_display,
    "IPython.core.display_functions": lambda module: fill(module, SHOWING),
    "IPython.core.error": lambda module: fill(module, (errors.UsageError,)),
    "IPython.core.getipython": lambda module: fill(module, (shells.get_ipython,)),
    "IPython.core.interactiveshell": fill_shells,
    "IPython.core.magic": fill_magics,
    "IPython.core.pylabtools": lambda module: None,
    "IPython.display": fill_display,
    "IPython.lib.display": lambda module: fill(module, objects.LIBRARY),
    "IPython.lib.latextools": lambda module: fill(module, (latex_to_png,)),
    "IPython.lib.pretty": fill_pretty,
    "IPython.terminal.interactiveshell": fill_terminal,
    "IPython.utils.capture": lambda module: fill(
        module, (capture.capture_output, capture.CapturedIO, capture.RichOutput)
    ),
    "IPython.utils.io": lambda module: fill(module, (capture.capture_output,)),
}


class Finder:
    """Finds the stand-ins for IPython. Registered last, so that a real IPython takes precedence."""

    def find_spec(self, name, path=None, target=None):
        if name not in FILLERS and name not in PACKAGES:
            return None
        if name != "IPython" and not is_ours("IPython"):
            return None
        return ModuleSpec(name, self, is_package=name in PACKAGES)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        FILLERS.get(module.__name__, lambda module: None)(module)


class Missing:
    """Says why `ipywidgets` isn't there. Registered last, as the finder above."""

    def find_spec(self, name, path=None, target=None):
        if name == "ipywidgets":
            raise ModuleNotFoundError(
                "No module named 'ipywidgets': a widget needs a browser that talks to the notebook "
                "while it runs; call what the widget would call, or make its value a parameter",
                name=name,
            )


class Adopting:
    """Makes a real IPython in the image use the notebook's shell: what its `display` shows, and what
    its `get_ipython` returns. Registered first, to see the module when it is imported."""

    is_looking = False

    def find_spec(self, name, path=None, target=None):
        if name != REAL or self.is_looking:
            return None
        self.is_looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.is_looking = False
        if spec is not None and spec.loader is not None and not isinstance(spec.loader, Finder):
            run = spec.loader.exec_module

            def run_and_adopt(module):
                run(module)
                # Some loaders are shared by many modules.
                if module.__name__ == REAL:
                    adopt(module)

            spec.loader.exec_module = run_and_adopt
        return spec


def adopt(module):
    real = module.InteractiveShell
    real.initialized = classmethod(lambda kind: True)
    real.instance = classmethod(lambda kind, *arguments, **options: shells.get_ipython())
    shells.real_class = real


def is_ours(name):
    return isinstance(getattr(sys.modules.get(name), "__loader__", None), Finder)


def install():
    sys.meta_path.insert(0, Adopting())
    sys.meta_path += [Finder(), Missing()]
    # It may be in the image already.
    if REAL in sys.modules:
        adopt(sys.modules[REAL])
