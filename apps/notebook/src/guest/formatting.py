"""The forms of displayed objects: from their own methods, and from functions for their types."""

import inspect
import io
import sys

from hatchery_notebook import pretty, showing

# The forms in order of evaluation, and the methods that return them.
METHODS = {
    "text/plain": None,
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "application/pdf": "_repr_pdf_",
    "image/jpeg": "_repr_jpeg_",
    "text/latex": "_repr_latex_",
    "application/json": "_repr_json_",
    "application/javascript": "_repr_javascript_",
}


class Formatter:
    """Makes one form of objects."""

    def __init__(self, format_type, print_method=None):
        self.format_type, self.print_method = format_type, print_method
        self.enabled = True
        self.type_printers = {}
        # By module and name, for classes whose module may not be imported yet.
        self.deferred_printers = {}

    def get(self, kind, default=None):
        """Returns the function registered for exactly this class."""
        name = getattr(kind, "__module__", None), getattr(kind, "__name__", None)
        if name in self.deferred_printers:
            self.type_printers[kind] = self.deferred_printers.pop(name)
        return self.type_printers.get(kind, default)

    def find(self, kind):
        """Returns the function registered for this class or its nearest base."""
        found = (self.get(one) for one in inspect.getmro(kind))
        return next((function for function in found if function is not None), None)

    def lookup_by_type(self, kind):
        function = self.find(kind)
        if function is None:
            raise KeyError(f"nothing is registered for {kind}")
        return function

    def lookup(self, value):
        return self.lookup_by_type(type(value))

    def for_type(self, kind, func=None):
        """Registers a function for a class or its name; returns the previous one."""
        if isinstance(kind, str):
            return self.for_type_by_name(*kind.rsplit(".", 1), func)
        before = self.get(kind)
        if func is not None:
            self.type_printers[kind] = func
        return before

    def for_type_by_name(self, type_module, type_name, func=None):
        kind = getattr(sys.modules.get(type_module), type_name, None)
        if isinstance(kind, type):
            return self.for_type(kind, func)
        before = self.deferred_printers.get((type_module, type_name))
        if func is not None:
            self.deferred_printers[type_module, type_name] = func
        return before

    def pop(self, kind, default=KeyError):
        """Removes the function of a class, and returns it."""
        if isinstance(kind, str):
            module, name = kind.rsplit(".", 1)
            found = getattr(sys.modules.get(module), name, None)
            if not isinstance(found, type):
                return self.deferred_printers.pop((module, name), None)
            kind = found
        found = self.get(kind)
        if found is None and default is KeyError:
            raise KeyError(f"nothing is registered for {kind}")
        self.type_printers.pop(kind, None)
        return default if found is None else found

    def __call__(self, value):
        """Returns the form of an object; `None` if it has none."""
        if not self.enabled:
            return None
        return ask(self, value)


class PlainFormatter(Formatter):
    """Makes the text of an object, which always exists."""

    def __init__(self):
        super().__init__("text/plain")
        self.pprint = True
        self.max_width, self.max_seq_length = pretty.WIDTH, pretty.MOST_ITEMS
        self.float_format = ""

    def __call__(self, value):
        if not self.pprint:
            return repr(value)
        printer = pretty.Printer(self, self.max_width, self.max_seq_length)
        printer.pretty(value)
        return printer.getvalue()


class DisplayFormatter:
    """Makes all forms of objects."""

    def __init__(self):
        self.formatters = {mime: Formatter(mime, method) for mime, method in METHODS.items()}
        self.formatters["text/plain"] = PlainFormatter()
        self.mimebundle_formatter = Formatter("mimebundle", "_repr_mimebundle_")
        self.ipython_display_formatter = Formatter("display", "_ipython_display_")

    @property
    def format_types(self):
        return list(self.formatters)

    def format(self, value, include=None, exclude=None):
        """Returns the forms of an object and their metadata, both by MIME type. Both are empty if
        the object displays itself."""
        own = attempt(shows_itself, self.ipython_display_formatter, value)
        if own:
            return {}, {}
        forms, notes = {}, {}
        given = attempt(bundle_of, self.mimebundle_formatter, value, include, exclude)
        if given is not None:
            forms, notes = (dict(part) for part in given)
        for mime, formatter in self.formatters.items():
            is_wanted = (not include or mime in include) and mime not in (exclude or ())
            if mime in forms or not is_wanted:
                continue
            form = attempt(formatter, value)
            if isinstance(form, tuple):
                form, note = form
                if note:
                    notes[mime] = note
            if form is not None:
                forms[mime] = form
        return forms, notes


def method_of(value, name):
    """Returns an object's method, unless the object answers to any name."""
    if name is None or getattr(type(value), "_ipython_canary_method_should_not_exist_", None):
        return None
    try:
        if hasattr(value, "_ipython_canary_method_should_not_exist_"):
            return None
        method = getattr(value, name, None)
    except Exception:
        return None
    return method if callable(method) else None


def ask(formatter, value, **options):
    """Returns the result of the registered function, or else of the object's own method."""
    function = formatter.find(type(value))
    if function is not None:
        return function(value, **options)
    method = None if isinstance(value, type) else method_of(value, formatter.print_method)
    return None if method is None else method(**options)


def shows_itself(formatter, value):
    is_known = formatter.find(type(value)) is not None
    if isinstance(value, type) or not is_known and method_of(value, formatter.print_method) is None:
        return False
    ask(formatter, value)
    return True


def bundle_of(formatter, value, include, exclude):
    """Returns the forms that an object gives as a bundle, and their metadata."""
    given = ask(formatter, value, include=include, exclude=exclude)
    if given is None:
        return None
    forms, notes = given if isinstance(given, tuple) else (given, {})
    if include:
        forms = {mime: forms[mime] for mime in forms if mime in include}
    if exclude:
        forms = {mime: forms[mime] for mime in forms if mime not in exclude}
    return forms, notes


def attempt(function, *arguments):
    """Calls a function. What it raises fails the cell, but the other forms are still made."""
    try:
        return function(*arguments)
    except NotImplementedError:
        return None
    except Exception as error:
        showing.fail(error)
        return None


class Figures:
    """The settings for drawing matplotlib figures."""

    def __init__(self):
        self.formats = ["png"]
        self.options = {"bbox_inches": "tight"}

    def register(self, formatters):
        """Registers exactly the wanted forms of figures."""
        kind = "matplotlib.figure.Figure"
        for mime in ("image/png", "image/jpeg", "image/svg+xml", "application/pdf"):
            formatters[mime].pop(kind, None)
        for name in self.formats:
            mime, draw = FORMATS[name]
            formatters[mime].for_type(kind, lambda figure, draw=draw: draw(figure, self.options))


def draw(figure, options, form="png", scale=1):
    """Returns a figure as a file; `None` if it is empty."""
    if not figure.axes and not figure.lines:
        return None
    target = io.BytesIO()
    given = {
        "format": form, "facecolor": figure.get_facecolor(), "edgecolor": figure.get_edgecolor(),
        "dpi": figure.dpi * scale, **options,
    }
    figure.canvas.print_figure(target, **given)
    return target.getvalue()


def draw_double(figure, options):
    """Draws for high-resolution screens: twice the pixels, displayed in the same size."""
    data = draw(figure, options, scale=2)
    if data is None:
        return None
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    return data, {"width": width // 2, "height": height // 2}


def draw_svg(figure, options):
    data = draw(figure, options, "svg")
    return None if data is None else data.decode()


FORMATS = {
    "png": ("image/png", draw),
    "png2x": ("image/png", draw_double),
    "retina": ("image/png", draw_double),
    "svg": ("image/svg+xml", draw_svg),
    "pdf": ("application/pdf", lambda figure, options: draw(figure, options, "pdf")),
    "jpg": ("image/jpeg", lambda figure, options: draw(figure, options, "jpeg")),
    "jpeg": ("image/jpeg", lambda figure, options: draw(figure, options, "jpeg")),
}
