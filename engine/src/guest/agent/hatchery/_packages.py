"""Advice on missing modules and files, and on what the sandbox or the build lacks.

Advice is a dictionary of a `text`, a `remedy`, whose words depend on how the user came and so are
the host's (`engine/src/limits/advice.rs`), and the `path` of a file or the name of a module.
Nothing is hooked into imports: `try: import …` and `importlib.util.find_spec` work as usual. The
advice is given when an exception that the program didn't catch is described.
"""

import sys

# Why some modules can't be imported, by their first names without underscores.
_NO_NETWORK = "the sandbox has no network"
_NO_NATIVE = "the sandbox loads no native libraries"
_NO_PROCESSES = (
    "the sandbox has no processes: use threads or asyncio for concurrent waits, several jobs for parallel"
    " computation, and subprocess for Python and the commands of its shell"
)
_NO_SCREEN = "the sandbox has no screen and no terminal"
_NO_SYSTEM = "the sandbox has no operating system to ask"
_NO_JAVASCRIPT = "the sandbox has no JavaScript"
_NO_INSTALLER = "packages are added to the image from outside"
# What helps, by the reason.
_REMEDIES = {_NO_NETWORK: "data", _NO_INSTALLER: "package"}
_REASONS = {
    **dict.fromkeys(("socket", "select"), _NO_NETWORK),
    **dict.fromkeys(("ctypes", "cffi", "cffi_backend"), _NO_NATIVE),
    **dict.fromkeys(("multiprocessing", "posixsubprocess", "thread"), _NO_PROCESSES),
    **dict.fromkeys(("tkinter", "curses", "curses_panel", "idlelib"), _NO_SCREEN),
    **dict.fromkeys(("pip", "ensurepip", "venv"), _NO_INSTALLER),
    **dict.fromkeys(("winreg", "msvcrt"), _NO_SYSTEM),
    **dict.fromkeys(("js", "pyodide_core", "pyodide_js"), _NO_JAVASCRIPT),
}
# Packages by the names of their imports: those that contain or need machine code; and those that
# are useless without a network, even where they load.
_NATIVE = frozenset(
    "Cython catboost cupy cv2 duckdb faiss fiona fitz gensim gevent greenlet grpc h5py"
    " igraph jax jaxlib keras lightgbm llvmlite netCDF4 numba numexpr onnx onnxruntime osgeo"
    " polars psycopg2 pyarrow pycuda pydantic_core pygame pymupdf pyproj rasterio ray"
    " safetensors sentencepiece shapely spacy tables tensorflow tiktoken tokenizers torch torchaudio"
    " torchvision transformers uvloop xgboost zmq PyQt5 PyQt6 PySide2 PySide6 wx".split()
)
_OF_THE_NETWORK = frozenset(
    "aiohttp anthropic boto3 botocore elasticsearch fastapi flask gradio httpx kafka openai paramiko"
    " playwright psycopg pymongo pymysql redis requests selenium streamlit tweepy urllib3 uvicorn"
    " websocket websockets yfinance".split()
)
# Parts of CPython's source that the documentation of its library doesn't cover.
_OF_CPYTHON = ("test", "_testcapi", "_testinternalcapi", "_testlimitedcapi", "_testbuffer", "_xxtestfuzz")
# Where the packages of the image are, and where the build keeps its own.
_SITE = "/hatchery-packages"
_LIBRARY = "/usr/local/lib/python315.zip/"
_MOST_PATH = 400
_PAGE = "The page docs/python-build.md lists what the build has"
# How Pillow and matplotlib report a missing codec or FreeType.
_OF_PICTURES = (
    ("ImportError", "cannot import name '_imagingft'"),
    ("KeyError", "AVIF"),
    ("KeyError", "WEBP"),
    ("OSError", "decoder "),
    ("OSError", "encoder "),
    ("RuntimeError", "The installed pillow version does not support avif"),
    ("UnidentifiedImageError", "cannot identify image file"),
    ("ValueError", "unknown file extension: .avif"),
    ("ValueError", "unknown file extension: .webp"),
)
_NO_CODECS = (
    "The build's Pillow doesn't support AVIF, JPEG 2000 or WebP, can write but not read JPEG, and"
    " draws no text in fonts from files"
)
# Folders of the guest, which hold no files of its user; and the working directory.
_OF_THE_GUEST = ("/usr/", "/tmp/", "/dev/", "/proc/", "/sys/", "/etc/", "/script/", "/beside/")
_WORKSPACE = "/workspace/"
# Longer names weren't typed by anybody.
_MOST_CHARACTERS = 100
# The most causes of an exception that are examined.
_MOST_CAUSES = 8


def advice_on(error):
    """Returns advice on a missing module, file, input or network; `None` if there is none."""
    try:
        return (
            _advice_on_import(error)
            or _advice_on_build(error)
            or _advice_on_file(error)
            or _advice_on_attempt(error)
        )
    except Exception:
        # The program has changed something that is used here.
        return None


def _because(text, reason):
    """Returns advice that gives a reason, with the remedy that there is."""
    sentence = f"{text}{reason}."
    return {"text": sentence[0].upper() + sentence[1:], "remedy": _REMEDIES.get(reason)}


def _advice_on_import(error):
    for _ in range(_MOST_CAUSES):
        kind = type(error)
        if kind is ModuleNotFoundError:
            return _advice_on_wheel(error.name) or _advice_on_module(error.name)
        if not issubclass(kind, ImportError):
            break
        # `from . import _speedups` names both.
        advice = _advice_on_wheel(f"{error.name}.{getattr(error, 'name_from', '')}") if kind is ImportError else None
        if advice is not None:
            return advice
        # Libraries use their own words: `raise ImportError("Missing optional …") from error`.
        error = BaseException.__dict__["__cause__"].__get__(error)
    return None


def _advice_on_file(error):
    """Names the file that a program expects, as if it ran on its user's machine.

    The host gives the advice only if the program looked for that file to read it.
    """
    if not issubclass(type(error), FileNotFoundError):
        return None
    path = error.filename
    if path is None and len(error.args) == 1 and type(error.args[0]) is str:
        # NumPy names the file only in its message.
        path = error.args[0].removesuffix(" not found.")
    if type(path) is not str or len(path) > _MOST_CHARACTERS or not path.isprintable():
        return None
    path = path.removeprefix(_WORKSPACE).removeprefix("./")
    return {"remedy": "file", "path": path} if path and not path.startswith(_OF_THE_GUEST) else None


def _advice_on_attempt(error):
    """Says what helps where an error lacks input, data, a connection or a package."""
    # `urllib` has what happened as the reason of its own exception.
    cause = vars(error).get("reason")
    remedy = vars(cause if isinstance(cause, OSError) else error).get("_hatchery_remedy")
    if remedy in ("connection", "data", "input", "package"):
        # Of one of our packages.
        return {"remedy": remedy}
    if type(error) is EOFError and _is_of_input(error):
        return {"remedy": "input"}
    return None


def _is_of_input(error):
    """Whether `input()` or `getpass()` found the end of standard input."""
    if error.args:
        return error.args == ("EOF when reading a line",)
    return _package_of(error) == "getpass"


def _package_of(error):
    """Returns the package or module whose code raised an exception."""
    trace = BaseException.__dict__["__traceback__"].__get__(error)
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    return name.partition(".")[0]


def _advice_on_build(error):
    """Explains errors about a missing file, codec or connection's end."""
    kind, text = type(error).__name__, str(error.args[0]) if error.args else ""
    if kind == "FileNotFoundError":
        path = text if error.filename is None else str(error.filename)
        if path.startswith(_LIBRARY) and len(path) < _MOST_PATH:
            name = path.removeprefix(_LIBRARY)
            return {"text": f"The build leaves `{name}` out. {_PAGE}.", "remedy": "data"}
    elif _package_of(error) in ("PIL", "matplotlib") and any(
        kind == of and text.startswith(beginning) for of, beginning in _OF_PICTURES
    ):
        return {"text": f"{_NO_CODECS}. {_PAGE}."}
    elif type(error).__module__ == "sqlite3" and text == "database is locked":
        text = "Another connection of this program holds the lock: end its transaction or its query first."
        return {"text": f"{text} No other thread runs while it waits."}
    return None


def _advice_on_wheel(name):
    """Explains a module that is machine code of a wheel whose Python alone is in the image."""
    import os

    if type(name) is not str or len(name) > _MOST_CHARACTERS or not os.path.isdir(_SITE):
        return None
    # The wheel's list of its files still has it.
    beginning = f"\n{name.replace('.', '/')}."
    for wheel in os.listdir(_SITE):
        record = f"{_SITE}/{wheel}/RECORD"
        if not wheel.endswith(".dist-info") or not os.path.isfile(record):
            continue
        with open(record, encoding="utf-8") as file:
            _, found, rest = f"\n{file.read()}".partition(beginning)
        ending = rest.partition(",")[0]
        if found and ending.endswith("so") and not os.path.exists(f"{_SITE}/{found[1:]}{ending}"):
            package = wheel.removesuffix(".dist-info").replace("-", " ")
            return {"text": f"`{name}` is machine code of {package}, which has no wheel for this build."}
    return None


def _advice_on_module(name):
    if type(name) is not str or not name or len(name) > _MOST_CHARACTERS:
        return None
    top = name.partition(".")[0]
    if top != name and top in sys.modules:
        # The package is here, but has no such module.
        return None
    reason = _REASONS.get(top.lstrip("_"))
    if reason is not None:
        return _because(f"`{name}` can't be imported here: ", reason)
    if top in sys.stdlib_module_names or top in _OF_CPYTHON:
        return {"text": f"`{name}` is a part of Python that this build leaves out."}
    if top in _NATIVE:
        return _because(f"`{name}` is or needs machine code that this build lacks, and ", _NO_NATIVE)
    if top in _OF_THE_NETWORK:
        return {"text": f"`{top}` is not in this image, and {_NO_NETWORK}.", "remedy": "data", "path": top}
    return {"text": f"`{top}` is not in this image.", "remedy": "package", "path": top}
