"""Limits of the sandbox that a candidate or its tests meet: a module, a process or a network that isn't
there. What comes of such an exception decides nothing, also if it is caught.
"""

import sys

import hatchery

NARROW = "NumPy's indices have 32 bits in the sandbox"
_NO_SOURCES = "no source of a program is a file"
SOURCE_APART = "the source of a candidate is only in its own interpreter"
NO_FLOAT_ERRORS = "NumPy raises no errors of floats in the sandbox"
# The texts of exceptions that the sandbox raises, and what is reported of them.
_LIMITS = (
    ("the sandbox has ", ""),
    ("the sandbox accepts no ", ""),
    ("the build has no ", ""),
    ("deadlock: the program has one thread", ""),
    ("can't start new thread", "the sandbox has no more threads"),
    ("wasm32-wasi", ""),
    ("Stack overflow (used ", "the sandbox's stack of C is small"),
    ("which the sandbox can't run", ""),
    ("could not get source code", SOURCE_APART),
    ("source code not available", SOURCE_APART),
    ("too large to convert to C s", "the sandbox's pointers have 32 bits"),
    ("too large to convert to C long", "the sandbox's integers of C have 32 bits"),
    ("fit 'int' into an index-sized integer", "the sandbox's pointers have 32 bits"),
    ("<= sys.maxsize", "the sandbox's pointers have 32 bits"),
    ("out of bounds for int32", NARROW),
    ("coder jpeg", "the sandbox's Pillow has no JPEG decoder"),
    ("array is too big", "the sandbox's pointers have 32 bits"),
    ("Maximum allowed dimension exceeded", "the sandbox's pointers have 32 bits"),
)
# Well-known packages that are pure Python, by the names of their imports.
_PURE_PACKAGES = frozenset(
    "Bio Crypto IPython Levenshtein OpenSSL PyPDF2 absl altair anyio arrow astropy autograd babel black bokeh "
    "cachetools celery certifi chardet click colorama coverage dash dask deap deepdiff django docutils docx "
    "docxtpl dotenv email_validator emoji faker feedparser folium fpdf freezegun fsspec fuzzywuzzy geopandas "
    "geopy graphviz gym gymnasium h11 holidays html5lib humanize hypothesis idna imageio imblearn jinja2 "
    "jmespath jsonschema jwt langdetect lark librosa lmfit loguru markdown marshmallow mechanize mesa mistune "
    "mlxtend mock more_itertools moviepy natsort networkx nltk numpy_financial oauthlib optuna passlib "
    "pdfplumber peewee pendulum pgmpy pingouin pint plotly ply pptx prettytable prophet pycountry pydantic "
    "pydub pyfakefs pyfiglet pygments pymc pypdf pyperclip pyquery pytesseract python_http_client pytz pywt "
    "rapidfuzz reportlab requests_mock responses rich rsa ruamel schedule scrapy sendgrid setuptools shap "
    "simplejson simpy skimage sklearn_pandas slugify sortedcontainers spacy sqlalchemy sqlparse stopit surprise "
    "tabulate tenacity termcolor textblob texttable tinydb toml tomlkit toolz tornado tqdm transitions trio "
    "typer tzlocal uncertainties unidecode validators wcwidth werkzeug wikipedia wordcloud wordninja wtforms "
    "xarray xlrd xlsxwriter xlwt yarl zope".split()
)
# Names of the system's modules that Linux has and the build doesn't, beside constants.
_ABSENT_NAMES = {
    "os": "copy_file_range eventfd eventfd_read eventfd_write fchdir fchmod fwalk getgrouplist getxattr grantpt"
    " listxattr login_tty major makedev minor mkfifo mknod posix_openpt preadv ptsname pwritev removexattr"
    " sched_getparam sched_param sched_rr_get_interval sched_setparam sched_setscheduler setns setpgrp"
    " setresgid setresuid setxattr splice timerfd_create unlockpt unshare",
    "signal": "Sigmasks pidfd_send_signal sigtimedwait sigwaitinfo struct_siginfo",
    "socket": "if_indextoname if_nametoindex recv_fds send_fds sethostname",
    "select": "epoll",
    "time": "clock_settime clock_settime_ns",
    "mmap": "",
    "errno": "",
}
_SYSTEM_FOLDERS = ("/bin/", "/dev/", "/etc/", "/proc/", "/sys/", "/usr/")
# Files that a program and its tests would be.
_SOURCES = ("solution.py", "tests.py")
_LONGEST_LIMIT = 150
_LIMIT_TOOL = 4
_MOST_CAUSES = 8


def watch_limits(files, note):
    """Calls `note` with the first limit that an exception tells of, in code of files whose names begin so.

    What libraries catch themselves never comes to such code, so it is no reason to doubt.
    """
    monitoring = sys.monitoring
    hatchery._limit_met = lambda limit: note(limit) if _is_met_by(files, sys._getframe(1)) else None

    def raised(code, _, error):
        if code.co_filename.startswith(files):
            reason = limit_of(error)
            if reason is not None:
                monitoring.set_events(_LIMIT_TOOL, 0)
                note(reason)

    monitoring.use_tool_id(_LIMIT_TOOL, "hatchery")
    monitoring.register_callback(_LIMIT_TOOL, monitoring.events.RAISE, raised)
    monitoring.set_events(_LIMIT_TOOL, monitoring.events.RAISE)


def _is_met_by(files, frame):
    """Whether code of such files has started the command in which this frame is, rather than a library."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(files):
            return True
        name = str(frame.f_globals.get("__name__"))
        if name not in ("os", "runpy", "subprocess", "__main__") and name.partition(".")[0] != "hatchery":
            return False
        frame = frame.f_back
    return False


def float_errors_lacking(sources):
    """Returns that tests expect errors of floats which NumPy doesn't raise here, if they do."""
    return NO_FLOAT_ERRORS if "FloatingPointError" in sources and "numpy" in sys.modules else None


def limit_of(error):
    """Returns the limit of the sandbox of which an exception or one of its causes tells; else `None`."""
    for _ in range(_MOST_CAUSES):
        if error is None:
            break
        reason = _limit_in(error)
        if reason is not None:
            return reason
        error = error.__cause__ or error.__context__
    return None


def _limit_in(error):
    kind, args = type(error), error.args
    if issubclass(kind, (ImportError, AttributeError)):
        is_module = issubclass(kind, ModuleNotFoundError)
        return _absent_module(error.name) if is_module else _absent_name(error)
    if issubclass(kind, FileNotFoundError):
        path = str(error.filename)
        if path.endswith(_SOURCES):
            return _NO_SOURCES
        return f"the sandbox has no `{path}`" if path.startswith(_SYSTEM_FOLDERS) else None
    if issubclass(kind, MemoryError):
        return "it needs more memory than the sandbox gives it (`--memory`)"
    for text in args:
        if type(text) is str:
            for words, told in _LIMITS:
                if words in text:
                    return told or text[:_LONGEST_LIMIT]
    return None



def _absent_module(name):
    if type(name) is not str:
        return None
    top = name.partition(".")[0]
    if top != name and top in sys.modules:
        return None  # no package has such a module
    from hatchery import _packages

    if top in sys.stdlib_module_names or top.lstrip("_") in _packages._REASONS:
        return f"the sandbox lacks `{name}`, a module of Python's library"
    if top in _PURE_PACKAGES or top in _packages._NATIVE or top in _packages._OF_THE_NETWORK:
        return f"the image lacks the package `{top}`, which `--packages common`, `--package` or `--requirements` may add"
    return None


def _absent_name(error):
    is_import = isinstance(error, ImportError)
    name = getattr(error, "name_from", None) if is_import else error.name
    module = error.name if is_import else getattr(error.obj, "__name__", None)
    if type(name) is str and type(module) is str and module in _ABSENT_NAMES:
        if name in _ABSENT_NAMES[module].split() or name.isupper():
            return f"the sandbox lacks `{module}.{name}`"
    return None
