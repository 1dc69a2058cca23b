"""What a program shows besides text: rich forms of objects, displays, figures of matplotlib.

A form is a MIME type and its data, a string or bytes. Objects provide forms as they do to
notebooks. Methods of programs run here, so each may raise, lie or loop; only an interrupt gets out.
"""

import binascii
import builtins
import io
import sys
import types
import weakref

import hatchery
from hatchery._describe import attempt_to_write, cut, repr_of, text_of
from hatchery._wire import display_frame

# Exact types that have no rich form, so that none is looked up.
PLAIN = frozenset(
    (type(None), bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset)
    + (range, slice, type, type(...), types.FunctionType, types.BuiltinFunctionType)
    + (types.ModuleType,)
)
# The methods that provide forms, and the MIME types of their results.
METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_json_", "application/json"),
)
# A string of these types is base64, as in notebooks.
BINARY = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
# `engine/src/run/outcome/mime.rs` has the same two limits.
MOST_FORMS = 32
LONGEST_TYPE = 255
# The module with which matplotlib shows all its windows.
PATCHED = "matplotlib.backend_bases"
# Functions that show figures instead of the agent; the last one is used. Notebooks have one.
figure_showers = []


class Displays:
    """Sends what the program shows, as it shows it."""

    def __init__(self, call, encode):
        self._call = call
        self._encode = encode
        self._cap = 0
        # The figures that were shown, with hashes of their pictures. Those that are `stale` have
        # changed since, or were written to a file.
        self._shown = weakref.WeakKeyDictionary()

    def install(self):
        """Provides `display` to programs, and makes matplotlib show its figures here."""
        builtins.display = hatchery.display = self._function()
        sys.meta_path[:] = [one for one in sys.meta_path if type(one) is not FigureFinder]
        sys.meta_path.insert(0, FigureFinder(self._show_window))

    def begin(self, cap):
        """Begins a run whose texts are cut at `cap` bytes."""
        if cap != self._cap:  # a write would dirty a page
            self._cap = cap

    def _function(self):
        def display(*objects, raw=False):
            """Shows each object in the richest forms that it has, in order with the output.

            With `raw`, each object is a dictionary from MIME types to data.
            """
            for one in objects:
                self._send(forms_in(one, self._encode) if raw else self._all_forms(one))

        display.__module__ = "hatchery"
        display.__qualname__ = "display"
        return display

    def rich_forms(self, value):
        """Returns the rich forms of a value, up to about the cap, and the bytes that all would
        take.

        The latter is 0 if no form was left out.
        """
        return attempt(self._rich_forms, value) or ([], 0)

    def _rich_forms(self, value):
        if type(value) in PLAIN:
            return [], 0
        room, kept, size_of_all, is_whole = self._cap, [], 0, True
        for mime, data in self._forms(value):
            if mime == "text/plain":
                continue
            size = len(mime) + len(data if type(data) is bytes else data.encode())
            size_of_all += size
            if size <= room:
                room -= size
                kept.append((mime, data))
            else:
                is_whole = False
        return kept, 0 if is_whole else size_of_all

    def _all_forms(self, value):
        forms = [] if type(value) in PLAIN else self._forms(value)
        if not any(mime == "text/plain" for mime, _ in forms):
            forms.insert(0, ("text/plain", cut(repr_of(value), self._cap)))
        return forms

    def _forms(self, value):
        forms = forms_of(value, self._encode)
        figure = is_figure(value) and attempt(png_of, value)
        if figure:
            attempt(self._shown.__setitem__, value, hash(figure))
            # A subclass may provide its own picture.
            if not has_form(forms, "image/png"):
                forms.append(("image/png", figure))
        return forms

    def _send(self, forms):
        if not forms:
            return
        frame = display_frame(forms, self._encode)
        try:
            self._call(frame)
        except OSError:
            pass  # the host has no room for it, and reports that in the outcome

    def _show_window(self, manager):
        """Replaces `show` of a matplotlib window: shows its figure, unless it was shown as it is.

        It stays open, as with the backend Agg elsewhere, so that the program can go on with it. In
        a notebook it is closed.
        """
        self._show_figure(manager.canvas.figure)
        if figure_showers:
            sys.modules["matplotlib._pylab_helpers"].Gcf.destroy(manager)

    def _show_figure(self, figure):
        if figure in self._shown and not figure.stale:
            return
        if figure_showers:
            return figure_showers[-1](figure)
        picture = png_of(figure)
        if self._shown.get(figure) != hash(picture):
            self._shown[figure] = hash(picture)
            self._send([("text/plain", cut(repr_of(figure), self._cap)), ("image/png", picture)])

    def finish(self, is_interrupted):
        """Shows the figures that are still open at the program's end, and closes them.

        After an interrupt there is no time to show them.
        """
        if "matplotlib._pylab_helpers" not in sys.modules:
            return
        managers = attempt(open_windows) or []
        for manager in managers:
            try:
                figure = manager.canvas.figure
                if not is_interrupted:
                    self._show_figure(figure)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                complain(error)
            attempt(sys.modules["matplotlib._pylab_helpers"].Gcf.destroy, manager)
        attempt(self._shown.clear)


def attempt(function, *arguments):
    """Returns the function's result, or `None` if it raises anything but an interrupt."""
    try:
        return function(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def forms_of(value, encode):
    """Returns every form for which the value's class has a method."""
    kind = type(value)
    if issubclass(kind, type):
        return []
    forms = []
    if attempt(getattr, kind, "_repr_mimebundle_", None) is not None:
        given = attempt(lambda: value._repr_mimebundle_(include=None, exclude=None))
        if given is None:
            given = attempt(lambda: value._repr_mimebundle_())
        # Its second part would be metadata.
        forms += forms_in(given[0] if type(given) is tuple and given else given, encode)
    for method, mime in METHODS:
        if attempt(getattr, kind, method, None) is None or has_form(forms, mime):
            continue
        given = attempt(lambda: getattr(value, method)())
        data = data_of(mime, given[0] if type(given) is tuple and given else given, encode)
        if data is not None:
            forms.append((mime, data))
    if not forms and is_series(value):
        data = data_of("text/html", attempt(lambda: value.to_frame()._repr_html_()), encode)
        forms += [("text/html", data)] if data is not None else []
    return forms[: MOST_FORMS - 2]  # leaves room for a text and a figure


def forms_in(given, encode):
    """Returns the forms in a dictionary from MIME types to data."""
    forms = []
    for mime, data in attempt(lambda: list(dict.items(given))) or ():
        if len(forms) == MOST_FORMS:
            break
        if is_mime(mime) and not has_form(forms, mime):
            data = data_of(mime, data, encode)
            if data is not None:
                forms.append((mime, data))
    return forms


def has_form(forms, mime):
    return any(one == mime for one, _ in forms)


def is_mime(name):
    """Whether it is a string that the host accepts as a MIME type."""
    is_plain = type(name) is str and name.isascii() and name.isprintable() and " " not in name
    return is_plain and "/" in name and len(name) <= LONGEST_TYPE


def data_of(mime, given, encode):
    """Returns an object's data for a MIME type as a string or bytes; `None` if it is neither."""
    if given is None:
        return None
    kind = type(given)
    if issubclass(kind, (bytes, bytearray, memoryview)):
        return attempt(lambda: bytes(memoryview(given)))
    if issubclass(kind, str):
        text = str.encode(given, "utf-8", "backslashreplace").decode()
        return attempt(bytes_of_base64, text) if mime in BINARY else text
    if mime == "application/json" or mime.endswith("+json"):
        return attempt(lambda: encode(given).encode("utf-8", "backslashreplace").decode())
    return None


def bytes_of_base64(text):
    return binascii.a2b_base64("".join(text.split()), strict_mode=True)


def is_series(value):
    return is_one_of(value, "pandas", "Series")


def is_figure(value):
    return is_one_of(value, "matplotlib.figure", "Figure")


def is_one_of(value, module, name):
    """Whether the value is of that class; the program must have imported the module."""
    if module not in sys.modules:
        return False
    return attempt(lambda: issubclass(type(value), getattr(sys.modules[module], name))) is True


def png_of(figure):
    """Returns what `savefig` writes; matplotlib draws that with Agg, whatever the backend."""
    target = io.BytesIO()
    figure.savefig(target, format="png")
    # Drawing to a file marks the figure as changed, although nothing has changed.
    figure.stale = False
    return target.getvalue()


def open_windows():
    return list(sys.modules["matplotlib._pylab_helpers"].Gcf.get_all_fig_managers())


def complain(error):
    attempt_to_write(f"a figure can't be shown: {type(error).__name__}: {text_of(error)}\n")


def find_after(finder, name, path, target):
    """Finds a module by the finders after this one: those before it have been asked."""
    finders = sys.meta_path
    begin = next((place for place, one in enumerate(finders) if one is finder), -1)
    for other in finders[begin + 1 :]:
        # As imports do: a program's finder may lack the method.
        find = getattr(other, "find_spec", None) if other is not finder else None
        spec = find(name, path, target) if find is not None else None
        if spec is not None:
            return spec
    return None


class FigureFinder:
    """Finds matplotlib's windows through the other finders, and replaces how they are shown."""

    def __init__(self, show):
        self._show = show

    def find_spec(self, name, path=None, target=None):
        spec = find_after(self, name, path, target) if name == PATCHED else None
        if spec is not None and spec.loader is not None:
            spec.loader = FigureLoader(spec.loader, self._show)
        return spec


class FigureLoader:
    """Loads a module with another loader, then makes the agent's function show its windows."""

    def __init__(self, loader, show):
        self._loader = loader
        self._show = show

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        show = self._show
        module.FigureManagerBase.show = lambda self: show(self)
