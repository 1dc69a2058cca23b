"""Display objects: the classes of `IPython.display`, in the forms that Jupyter saves."""

import base64
import html
import json
import mimetypes
import os
import struct
import warnings

from hatchery_notebook import showing
from hatchery_notebook.errors import UsageError


class DisplayObject:
    """Something to display, from data, a file or a URL."""

    mime = None
    # Whether its files are read as bytes.
    is_binary = False

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        if isinstance(data, os.PathLike):
            data = os.fspath(data)
        if isinstance(data, str) and url is None and filename is None:
            if data.startswith(("http://", "https://")):
                data, url = None, data
            elif self.is_name(data):
                data, filename = None, data
        self.data, self.url, self.filename = data, url, filename
        self.metadata = metadata if metadata is not None else {}
        self.reload()

    def is_name(self, data):
        return len(data) < 256 and "\n" not in data and os.path.isfile(data)

    def reload(self):
        """Reads the data again, if they come from a file."""
        if self.filename is not None:
            with open(self.filename, "rb" if self.is_binary else "r") as file:
                self.data = file.read()
        elif self.data is None and self.url is not None:
            raise UsageError(f"`{self.url}` can't be fetched: the sandbox has no network", "data")

    def form(self):
        """Returns the form to display; `None` for none."""
        return self.data

    def _repr_mimebundle_(self, include=None, exclude=None):
        form = self.form() if self.mime is not None else None
        if form is None:
            return {}, {}
        return {self.mime: form}, {self.mime: self.metadata} if self.metadata else {}

    def __repr__(self):
        kind = type(self)
        return f"<{kind.__module__}.{kind.__name__} object>"


class TextDisplayObject(DisplayObject):
    """Text to display."""


class Pretty(TextDisplayObject):
    """A text, displayed as it is."""

    def _repr_pretty_(self, printer, cycle):
        printer.text(self.data)

    def __repr__(self):
        return self.data


class HTML(TextDisplayObject):
    mime = "text/html"

    def __html__(self):
        return self.data


class Markdown(TextDisplayObject):
    mime = "text/markdown"


class Latex(TextDisplayObject):
    mime = "text/latex"


class Math(TextDisplayObject):
    """A LaTeX formula, with or without `$` around it."""

    mime = "text/latex"

    def form(self):
        return "$\\displaystyle " + self.data.strip("$") + "$"


class SVG(DisplayObject):
    """A drawing. Anything around its `svg` element is dropped."""

    mime = "image/svg+xml"

    @property
    def data(self):
        return self._data

    @data.setter
    def data(self, svg):
        self._data = svg
        if svg is None:
            return
        from xml.dom import minidom

        found = minidom.parseString(svg).getElementsByTagName("svg")
        text = found[0].toxml() if found else svg
        self._data = text if isinstance(text, str) else text.decode("utf-8")


class JSON(DisplayObject):
    """Lists and dictionaries, displayed as a tree."""

    mime = "application/json"

    def __init__(self, data=None, url=None, filename=None, expanded=False, metadata=None, root="root",
                 **options):
        notes = {"expanded": expanded, "root": root, **(metadata or {}), **options}
        super().__init__(data, url, filename, notes)

    def is_name(self, data):
        return False

    @property
    def data(self):
        return self._data

    @data.setter
    def data(self, data):
        if isinstance(data, os.PathLike):
            data = os.fspath(data)
        if isinstance(data, str):
            if self.__dict__.get("filename") is None and self.__dict__.get("url") is None:
                warnings.warn("JSON expects JSONable dict or list, not JSON strings", stacklevel=4)
            data = json.loads(data)
        self._data = data


class GeoJSON(JSON):
    """A map, for viewers that support it."""

    def __init__(self, *arguments, url_template=None, layer_options=None, **options):
        if url_template is not None:
            options["url_template"] = url_template
        if layer_options is not None:
            options["layer_options"] = layer_options
        super().__init__(*arguments, **options)

    def _ipython_display_(self):
        mime = "application/geo+json"
        forms = {mime: self.data, "text/plain": "<IPython.display.GeoJSON object>"}
        showing.display(forms, metadata={mime: self.metadata}, raw=True)


class Javascript(TextDisplayObject):
    """A script, and the scripts and styles to load before it."""

    mime = "application/javascript"

    def __init__(self, data=None, url=None, filename=None, lib=None, css=None):
        self.lib = [lib] if isinstance(lib, str) else lib or []
        self.css = [css] if isinstance(css, str) else css or []
        super().__init__(data, url, filename)

    def form(self):
        styles = "".join(
            'var link = document.createElement("link");\n\tlink.rel = "stylesheet";\n'
            f'\tlink.type = "text/css";\n\tlink.href = "{css}";\n\tdocument.head.appendChild(link);\n'
            for css in self.css
        )
        scripts = "".join(
            'new Promise(function(resolve, reject) {\n\tvar script = document.createElement("script");\n'
            f'\tscript.onload = resolve;\n\tscript.onerror = reject;\n\tscript.src = "{lib}";\n'
            "\tdocument.head.appendChild(script);\n}).then(() => {\n"
            for lib in self.lib
        )
        return styles + scripts + self.data + "\n});" * len(self.lib)


class ProgressBar(DisplayObject):
    """A bar that advances during iteration, or when its `progress` is set."""

    WIDTH = 60

    def __init__(self, total):
        self.total = total
        self._progress = 0
        self.html_width = f"{self.WIDTH}ex"
        self.text_width = self.WIDTH
        self._display_id = showing.new_id()

    def __repr__(self):
        filled = int(self._progress / self.total * self.text_width)
        bar = "=" * filled + " " * (self.text_width - filled)
        return f"[{bar}] {self._progress}/{self.total}"

    def _repr_html_(self):
        return (
            f"<progress style='width:{self.html_width}' max='{self.total}'"
            f" value='{self._progress}'></progress>"
        )

    def _repr_mimebundle_(self, include=None, exclude=None):
        return None

    def display(self):
        showing.display(self, display_id=self._display_id)

    def update(self):
        showing.display(self, display_id=self._display_id, update=True)

    @property
    def progress(self):
        return self._progress

    @progress.setter
    def progress(self, value):
        self._progress = value
        self.update()

    def __iter__(self):
        self.display()
        self._progress = -1
        return self

    def __next__(self):
        self.progress += 1
        if self.progress < self.total:
            return self.progress
        raise StopIteration


class Image(DisplayObject):
    """An image: from bytes or a file, or from a URL as an HTML reference."""

    is_binary = True
    STARTS = ((b"\x89PNG", "png"), (b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp"))

    def __init__(self, data=None, url=None, filename=None, format=None, embed=None, width=None,
                 height=None, retina=False, unconfined=False, metadata=None, alt=None):
        if isinstance(data, os.PathLike):
            data = os.fspath(data)
        if isinstance(data, str) and url is None and filename is None:
            if data.startswith(("http://", "https://")):
                data, url = None, data
            else:
                data, filename = None, data
        if data is None and url is None and filename is None:
            raise ValueError("No image data found. Expecting filename, url, or data.")
        self.format = format
        # A URL is referenced, unless the image is to be embedded.
        self.embed = embed if embed is not None else url is None
        self.width, self.height, self.retina = width, height, retina
        self.unconfined, self.alt = unconfined, alt
        super().__init__(data, url, filename, metadata)
        if retina and isinstance(self.data, bytes) and self.data[:4] == b"\x89PNG":
            width, height = struct.unpack(">ii", self.data[16:24])
            self.width, self.height = width // 2, height // 2

    def is_name(self, data):
        return False

    def reload(self):
        if self.embed:
            super().reload()

    def _repr_mimebundle_(self, include=None, exclude=None):
        if not self.embed:
            alternative = f'alt="{html.escape(self.alt)}"' if self.alt else None
            given = [f'src="{self.url}"', self.width and f'width="{self.width}"',
                     self.height and f'height="{self.height}"',
                     self.unconfined and 'class="unconfined"', alternative]
            return {"text/html": f"<img {' '.join(one for one in given if one)}/>"}, {}
        start = self.data[:8] if isinstance(self.data, (bytes, bytearray)) else b""
        found = next((name for mark, name in self.STARTS if start.startswith(mark)), "png")
        form = (self.format or found).lower().replace("jpg", "jpeg").replace("svg", "svg+xml")
        notes = {"width": self.width, "height": self.height, "alt": self.alt}
        notes = {name: note for name, note in notes.items() if note}
        if self.unconfined:
            notes["unconfined"] = True
        notes |= self.metadata
        mime = f"image/{form}"
        return {mime: self.data}, {mime: notes} if notes else {}


class Video(DisplayObject):
    """A video: a URL, or data embedded in the notebook."""

    is_binary = True

    def __init__(self, data=None, url=None, filename=None, embed=False, mimetype=None, width=None,
                 height=None, html_attributes="controls"):
        if isinstance(data, os.PathLike):
            data = os.fspath(data)
        if url is None and isinstance(data, str) and data.startswith(("http:", "https:")):
            data, url = None, data
        elif isinstance(data, str) and os.path.exists(data):
            data, filename = None, data
        if data and not embed:
            raise ValueError(
                "To embed videos, you must pass embed=True (this may make your notebook files huge)\n"
                "Consider passing Video(url='...')"
            )
        self.mimetype, self.embed = mimetype, embed
        self.width, self.height, self.html_attributes = width, height, html_attributes
        super().__init__(data, url, filename)

    def reload(self):
        if self.embed:
            super().reload()

    def _repr_mimebundle_(self, include=None, exclude=None):
        return None

    def _repr_html_(self):
        width = f' width="{self.width}"' if self.width else ""
        height = f' height="{self.height}"' if self.height else ""
        if not self.embed:
            source = self.url if self.url is not None else self.filename
            return (
                f'<video src="{source}" {self.html_attributes} {width} {height}>\n'
                "      Your browser does not support the <code>video</code> element.\n    </video>"
            )
        kind = self.mimetype
        if kind is None:
            kind = mimetypes.guess_type(self.filename or "")[0] or "video/mp4"
        data = self.data if isinstance(self.data, str) else base64.b64encode(self.data).decode()
        return (
            f"<video {self.html_attributes} {width} {height}>\n"
            f' <source src="data:{kind};base64,{data}" type="{kind}">\n'
            " Your browser does not support the video tag.\n </video>"
        )


class Audio(DisplayObject):
    """A sound: a URL, a file, or samples of one or more channels with their `rate`."""

    is_binary = True

    def __init__(self, data=None, filename=None, url=None, embed=None, rate=None, autoplay=False,
                 normalize=True, *, element_id=None):
        if data is None and url is None and filename is None:
            raise ValueError("No audio data found. Expecting filename, url, or data.")
        if embed is False and url is None:
            raise ValueError("No url found. Expecting url when embed=False")
        self.embed = embed if embed is not None else url is None
        self.autoplay, self.element_id, self.mimetype = autoplay, element_id, None
        super().__init__(data, url, filename)
        if self.data is not None and not isinstance(self.data, bytes):
            if rate is None:
                raise ValueError("rate must be specified when data is a numpy array or list of audio samples.")
            self.data = wave_file(self.data, rate, normalize)

    def reload(self):
        if self.embed:
            super().reload()
        name = self.filename or self.url
        self.mimetype = mimetypes.guess_type(name)[0] if name else "audio/wav"

    def _repr_mimebundle_(self, include=None, exclude=None):
        return None

    def _repr_html_(self):
        element = f'id="{self.element_id}"' if self.element_id else ""
        plays = 'autoplay="autoplay"' if self.autoplay else ""
        return (
            f'\n                <audio {element} controls="controls" {plays}>\n'
            f'                    <source src="{self.src_attr()}" type="{self.mimetype}" />\n'
            "                    Your browser does not support the audio element.\n"
            "                </audio>\n              "
        )

    def src_attr(self):
        if self.embed and self.data is not None:
            return f"data:{self.mimetype};base64,{base64.b64encode(self.data).decode()}"
        return self.url if self.url is not None else ""


def wave_file(samples, rate, normalizes):
    """Returns a 16-bit WAV file, from samples of one channel or a row for each channel."""
    import array
    import io
    import sys
    import wave

    rows = samples.tolist() if hasattr(samples, "tolist") else list(samples)
    if not rows or not hasattr(rows[0], "__len__"):
        rows = [rows]
    frames = [value for moment in zip(*rows) for value in moment]
    most = max(map(abs, frames), default=0)
    if not normalizes:
        if most > 1:
            raise ValueError("Audio data must be between -1 and 1 when normalize=False.")
        most = 1
    numbers = array.array("h", [int(value / (most or 1) * 32767) for value in frames])
    if sys.byteorder == "big":
        numbers.byteswap()
    target = io.BytesIO()
    with wave.open(target, "wb") as file:
        file.setnchannels(len(rows))
        file.setframerate(rate)
        file.setsampwidth(2)
        file.setcomptype("NONE", "NONE")
        file.writeframes(numbers.tobytes())
    return target.getvalue()


class IFrame:
    """A page embedded in the notebook, fetched by the viewer."""

    def __init__(self, src, width, height, extras=None, **params):
        self.src, self.width, self.height = src, width, height
        self.extras, self.params = extras or [], params

    def _repr_html_(self):
        from urllib.parse import urlencode

        params = f"?{urlencode(self.params)}" if self.params else ""
        blank = "\n            "
        given = (
            f'width="{self.width}"', f'height="{self.height}"', f'src="{self.src}{params}"',
            'frameborder="0"', "allowfullscreen",
            'referrerpolicy="strict-origin-when-cross-origin"', " ".join(self.extras),
        )
        return f"\n        <iframe{blank}{blank.join(given)}\n        ></iframe>\n        "


class YouTubeVideo(IFrame):
    """A YouTube video, by its id."""

    def __init__(self, id, width=400, height=300, allow_autoplay=False, **params):
        self.id = id
        extras = []
        if allow_autoplay:
            params["autoplay"] = 1
            extras = ['allow="autoplay"']
        super().__init__(f"https://www.youtube.com/embed/{id}", width, height, extras, **params)


class VimeoVideo(IFrame):
    """A Vimeo video, by its id."""

    def __init__(self, id, width=400, height=300, **params):
        self.id = id
        super().__init__(f"https://player.vimeo.com/video/{id}", width, height, **params)


class ScribdDocument(IFrame):
    """A Scribd document, by its id."""

    def __init__(self, id, width=400, height=300, **params):
        self.id = id
        super().__init__(f"https://www.scribd.com/embeds/{id}/content", width, height, **params)


class FileLink:
    """A link to a file."""

    def __init__(self, path, url_prefix="", result_html_prefix="", result_html_suffix="<br>"):
        path = os.fspath(path)
        if os.path.isdir(path):
            raise ValueError(f"`{path}` is a folder; use FileLinks instead")
        self.path, self.url_prefix = path, url_prefix
        self.result_html_prefix, self.result_html_suffix = result_html_prefix, result_html_suffix

    def _repr_html_(self):
        if not os.path.exists(self.path):
            return (
                f"Path (<tt>{self.path}</tt>) doesn't exist. It may still be in the process of being"
                " generated, or you may have the incorrect path."
            )
        name = html.escape(self.path)
        link = f"<a href='{self.url_prefix}{name}' target='_blank'>{name}</a>"
        return f"{self.result_html_prefix}{link}{self.result_html_suffix}"

    def __repr__(self):
        return os.path.abspath(self.path)


class FileLinks:
    """Links to the files in a folder, by default with its subfolders."""

    def __init__(self, path, url_prefix="", included_suffixes=None, result_html_prefix="",
                 result_html_suffix="<br>", notebook_display_formatter=None,
                 terminal_display_formatter=None, recursive=True):
        path = os.fspath(path)
        if os.path.isfile(path):
            raise ValueError(f"`{path}` is a file; use FileLink instead")
        self.path, self.url_prefix = path.rstrip("/"), url_prefix
        self.included_suffixes, self.recursive = included_suffixes, recursive
        self.result_html_prefix, self.result_html_suffix = result_html_prefix, result_html_suffix

    def _lines(self, indentation, show):
        lines = []
        for folder, _, files in sorted(os.walk(self.path)):
            names = [name for name in sorted(files) if self._is_included(name)]
            if names:
                lines.append((f"{folder}/", names))
            if not self.recursive:
                break
        for folder, names in lines:
            yield folder, None
            for name in names:
                yield indentation, show(f"{folder}{name}", name)

    def _is_included(self, name):
        return self.included_suffixes is None or os.path.splitext(name)[1] in self.included_suffixes

    def _repr_html_(self):
        def link(path, name):
            return f"<a href='{self.url_prefix}{path}' target='_blank'>{name}</a>"

        lines = self._lines(f"{self.result_html_prefix}&nbsp;&nbsp;", link)
        return "\n".join(f"{start}{rest or ''}{self.result_html_suffix}" for start, rest in lines)

    def __repr__(self):
        return "\n".join(f"{start}{rest or ''}" for start, rest in self._lines("  ", lambda _, name: name))


class Code(TextDisplayObject):
    """Source, highlighted if the image has Pygments."""

    def __init__(self, data=None, url=None, filename=None, language=None):
        self.language = language
        super().__init__(data, url, filename)

    def _repr_mimebundle_(self, include=None, exclude=None):
        return None

    def _highlighted(self, kind, **options):
        try:
            from pygments import formatters, highlight, lexers
        except ImportError:
            return None, None
        if self.language is not None:
            lexer = lexers.get_lexer_by_name(self.language)
        else:
            lexer = lexers.get_lexer_for_filename(self.filename or "x.txt", self.data)
        formatter = getattr(formatters, kind)(**options)
        return highlight(self.data, lexer, formatter), formatter

    def _repr_html_(self):
        text, formatter = self._highlighted("HtmlFormatter")
        if formatter is None:
            return f"<pre>{html.escape(self.data)}</pre>"
        return f"<style>{formatter.get_style_defs('.output_html')}</style>{text}"

    def _repr_latex_(self):
        return self._highlighted("LatexFormatter")[0]

    def __repr__(self):
        return self.data


def shower(name, mime):
    """Returns a function that displays objects in this form only."""

    def function(*objs, **options):
        raw = options.pop("raw", False)
        metadata = options.pop("metadata", None)
        for one in objs:
            if raw:
                notes = {mime: metadata} if metadata else {}
                showing.publish_display_data({mime: one}, notes)
            else:
                showing.display(one, metadata=metadata, include=["text/plain", mime])

    function.__name__ = function.__qualname__ = name
    return function


SHOWERS = {
    name: shower(name, mime)
    for name, mime in {
        "display_pretty": "text/plain",
        "display_html": "text/html",
        "display_markdown": "text/markdown",
        "display_svg": "image/svg+xml",
        "display_png": "image/png",
        "display_jpeg": "image/jpeg",
        "display_latex": "text/latex",
        "display_json": "application/json",
        "display_javascript": "application/javascript",
        "display_pdf": "application/pdf",
    }.items()
}
CORE = (
    DisplayObject, TextDisplayObject, Pretty, HTML, Markdown, Latex, Math, SVG, JSON, GeoJSON,
    Javascript, ProgressBar, Image, Video,
)
LIBRARY = (Audio, IFrame, YouTubeVideo, VimeoVideo, ScribdDocument, FileLink, FileLinks, Code)
for _kind in CORE:
    _kind.__module__ = "IPython.core.display"
for _kind in LIBRARY:
    _kind.__module__ = "IPython.lib.display"
