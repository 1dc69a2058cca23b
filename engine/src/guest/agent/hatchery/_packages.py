"""What to say about an import or a file that isn't here, about attempts at what no sandbox has, and
about files and formats that the build leaves out.

Nothing is hooked into imports: `try: import …` and `importlib.util.find_spec` work as ever. The
advice is made when an exception that the program didn't catch is described.
"""

import sys

# Why modules can't be here that programs ask for, by their first names without underscores.
_NO_NETWORK = (
    "the sandbox has no network: give the program its data with --input, --mount or --stdin, or have a"
    " host function fetch it"
)
_NO_NATIVE = "the sandbox loads no native libraries"
_NO_PROCESSES = (
    "the sandbox has no processes and no threads: everything runs in one thread; use asyncio for what"
    " waits, and more jobs for what computes"
)
_NO_SCREEN = "the sandbox has no screen and no terminal"
_NO_SYSTEM = "the sandbox has no operating system to ask"
_NO_INSTALLER = "packages are added to the image from outside, with --package or --requirements"
_REASONS = {
    **dict.fromkeys(("socket", "ssl", "select"), _NO_NETWORK),
    **dict.fromkeys(("ctypes", "cffi", "cffi_backend"), _NO_NATIVE),
    **dict.fromkeys(("multiprocessing", "posixsubprocess", "posixshmem", "thread"), _NO_PROCESSES),
    **dict.fromkeys(("tkinter", "curses", "curses_panel", "readline", "termios", "idlelib"), _NO_SCREEN),
    **dict.fromkeys(("pip", "ensurepip", "venv"), _NO_INSTALLER),
    **dict.fromkeys(("fcntl", "grp", "pwd", "resource", "syslog", "winreg", "msvcrt"), _NO_SYSTEM),
}
# Packages by the names that they are imported by: those with parts in machine code, or that need
# others with such parts; and those that are of no use without a network, even where they load.
_NATIVE = frozenset(
    "Cython catboost cupy cv2 cryptography duckdb faiss fiona fitz gensim gevent greenlet grpc h5py"
    " igraph jax jaxlib keras lightgbm llvmlite netCDF4 numba numexpr onnx onnxruntime orjson osgeo"
    " polars psutil psycopg2 pyarrow pycuda pydantic_core pygame pymupdf pyproj rasterio ray"
    " safetensors sentencepiece shapely spacy tables tensorflow tiktoken tokenizers torch torchaudio"
    " torchvision transformers ujson uvloop xgboost zmq PyQt5 PyQt6 PySide2 PySide6 wx".split()
)
_OF_THE_NETWORK = frozenset(
    "aiohttp anthropic boto3 botocore elasticsearch fastapi flask gradio httpx kafka openai paramiko"
    " playwright psycopg pymongo pymysql redis requests selenium streamlit tweepy urllib3 uvicorn"
    " websocket websockets yfinance".split()
)
# Parts of CPython's source that are no part of its library's documentation.
_OF_CPYTHON = ("test", "_testcapi", "_testinternalcapi", "_testlimitedcapi", "_testbuffer", "_xxtestfuzz")
# What `os` would start and join processes with.
_OF_PROCESSES = frozenset(
    "WNOHANG execl execle execlp execv execve execvp fork forkpty kill killpg pidfd_open pipe posix_spawn"
    " spawnl spawnv spawnve system wait waitpid".split()
)
# Where the build keeps the files of its packages; which of them it has is said elsewhere.
_LIBRARY = "/usr/local/lib/python315.zip/"
_MOST_PATH = 400
_PAGE = "docs/python-build.md lists what the build has"
# How Pillow and matplotlib say that a codec or FreeType is missing.
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
    "The build's Pillow knows no AVIF, JPEG 2000 and WebP, writes JPEG without reading it, and draws no"
    " text in fonts from files"
)
# Where programs make their files, or where there are none of their users; and the working directory.
_OF_THE_GUEST = ("/usr/", "/tmp/", "/dev/", "/proc/", "/sys/", "/etc/", "/script/", "/beside/")
_WORKSPACE = "/workspace/"
# A name that is longer is nobody's typing.
_MOST_CHARACTERS = 100
# Exceptions that one was raised from, to look at.
_MOST_CAUSES = 8


def advice_on(error):
    """What to do about an exception for want of a module, a file, a network or processes; "" if there
    is nothing to say."""
    try:
        return (
            _advice_on_import(error)
            or _advice_on_build(error)
            or _advice_on_file(error)
            or _advice_on_attempt(error)
        )
    except Exception:
        # The program has changed what is looked at here.
        return ""


def _advice_on_import(error):
    for _ in range(_MOST_CAUSES):
        kind = type(error)
        if kind is ModuleNotFoundError:
            return _advice_on_module(error.name)
        if not issubclass(kind, ImportError):
            break
        # Libraries say it in their own words: `raise ImportError("Missing optional …") from error`.
        error = BaseException.__dict__["__cause__"].__get__(error)
    return ""


def _advice_on_file(error):
    """How a program is given a file that it looks for as if it ran on its user's machine."""
    if not issubclass(type(error), FileNotFoundError):
        return ""
    path = error.filename
    if path is None:
        # NumPy says which file only in its message.
        path = "FILE"
    if type(path) is not str or not path or len(path) > _MOST_CHARACTERS or not path.isprintable():
        return ""
    path = path.removeprefix(_WORKSPACE).removeprefix("./")
    if path.startswith(_OF_THE_GUEST):
        return ""
    folder, slash, name = path.rpartition("/")
    if path.startswith("/"):
        way = f"--mount {_quoted(f'{folder}={folder}')} (Job::mount) shows it that folder"
    else:
        # Its name alone is the name of the copy, unless another one is given.
        is_below = slash and ".." not in path.split("/")
        option = _quoted(f"{path}={path}" if is_below else path)
        opened = f" as {_quoted(name)}" if slash and not is_below else ""
        way = f"--input {option} (Job::input) gives it a copy{opened}, --beside (Job::beside) the folder of"
        way = f"{way} its script or notebook to read"
    return f"A program sees only the files that it is given. If {_quoted(path)} is one of yours: {way}."


def _quoted(text):
    """The text as a word of a shell."""
    return text if all(c.isalnum() or c in "_./=-+,:@%" for c in text) else f"'{text}'"


def _advice_on_attempt(error):
    """What CPython says of what this build lacks, as far as it doesn't say why."""
    kind, reason = type(error), ""
    if kind is AttributeError and error.obj is not None:
        modules, module = sys.modules, error.obj
        if module is modules.get("os") or module is modules.get("posix"):
            reason = _NO_PROCESSES if error.name in _OF_PROCESSES else ""
        elif module is modules.get("http.client") and error.name == "HTTPSConnection":
            reason = _NO_NETWORK
    elif kind is OSError and error.strerror == "wasi does not support processes.":
        reason = _NO_PROCESSES
    elif kind is NotImplementedError and "build lacks multiprocessing" in str(error):
        reason = _NO_PROCESSES
    return reason and f"{reason[0].upper()}{reason[1:]}."


def _advice_on_build(error):
    """What to do for want of a file, a codec or a second thread."""
    kind, text = type(error).__name__, str(error.args[0]) if error.args else ""
    if kind == "FileNotFoundError":
        path = text if error.filename is None else str(error.filename)
        if path.startswith(_LIBRARY) and len(path) < _MOST_PATH:
            name = path.removeprefix(_LIBRARY)
            return f"The build leaves `{name}` out: give the program its data with --input. {_PAGE}."
    elif any(kind == of and text.startswith(beginning) for of, beginning in _OF_PICTURES):
        return f"{_NO_CODECS}. {_PAGE}."
    elif kind == "OperationalError" and text == "database is locked":
        return (
            "The lock is that of another connection of this program: end its transaction or its query"
            " first. The sandbox has one thread, so nobody else would."
        )
    return ""


def _advice_on_module(name):
    if type(name) is not str or not name or len(name) > _MOST_CHARACTERS:
        return ""
    top = name.partition(".")[0]
    if top != name and top in sys.modules:
        # The package is here, and has no such module.
        return ""
    reason = _REASONS.get(top.lstrip("_"))
    if reason is not None:
        return f"`{name}` can't be imported here: {reason}."
    if top in sys.stdlib_module_names or top in _OF_CPYTHON:
        own = "; a file of your own goes along with --input" if top == "test" else ""
        return f"`{name}` is a part of Python that this build leaves out{own}."
    if top in _NATIVE:
        return f"`{name}` is or needs machine code that this build lacks, and {_NO_NATIVE}."
    if top in _OF_THE_NETWORK:
        return f"`{name}` is not in this image and would be of little use: {_NO_NETWORK}."
    return (
        f"`{top}` is not in this image. Add a pure-Python wheel or a folder with --package"
        " (Builder::package), or name it in --requirements (Builder::requirements); a file of your"
        " own goes along with --input. `hatchery packages` lists what there is."
    )
