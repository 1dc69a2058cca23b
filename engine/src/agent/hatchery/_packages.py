"""What to say about an import of what isn't here.

Nothing is hooked into imports: `try: import …` and `importlib.util.find_spec` work as ever. The
advice is made when an exception that the program didn't catch is described.
"""

import sys

# Why modules can't be here that programs ask for, by their first names without underscores.
_NO_SOCKETS = "the sandbox has no network: give the program its data with --input, --mount or --stdin"
_NO_NATIVE = "the sandbox loads no native libraries"
_NO_PROCESSES = "the sandbox has no processes and no threads: everything runs in one thread"
_NO_SCREEN = "the sandbox has no screen and no terminal"
_NO_SYSTEM = "the sandbox has no operating system to ask"
_NO_INSTALLER = "packages are added to the image from outside, with --package or --requirements"
_REASONS = {
    **dict.fromkeys(("socket", "ssl", "select"), _NO_SOCKETS),
    **dict.fromkeys(("ctypes", "cffi", "cffi_backend"), _NO_NATIVE),
    **dict.fromkeys(("multiprocessing", "posixsubprocess", "posixshmem", "thread"), _NO_PROCESSES),
    **dict.fromkeys(("tkinter", "curses", "curses_panel", "readline", "termios", "idlelib"), _NO_SCREEN),
    **dict.fromkeys(("pip", "ensurepip", "venv"), _NO_INSTALLER),
    **dict.fromkeys(("fcntl", "grp", "pwd", "resource", "syslog", "winreg", "msvcrt"), _NO_SYSTEM),
}
# A name that is longer is nobody's typing.
_MOST_CHARACTERS = 100
# Exceptions that one was raised from, to look at.
_MOST_CAUSES = 8


def import_advice(error):
    """What to do about an import that failed for want of a module; "" if there is nothing to say."""
    try:
        return _advice_of(error)
    except Exception:
        # The program has changed what is looked at here.
        return ""


def _advice_of(error):
    for _ in range(_MOST_CAUSES):
        kind = type(error)
        if kind is ModuleNotFoundError:
            return _advice_on(error.name)
        if not issubclass(kind, ImportError):
            break
        # Libraries say it in their own words: `raise ImportError("Missing optional …") from error`.
        error = BaseException.__dict__["__cause__"].__get__(error)
    return ""


def _advice_on(name):
    if type(name) is not str or not name or len(name) > _MOST_CHARACTERS:
        return ""
    top = name.partition(".")[0]
    if top != name and top in sys.modules:
        # The package is here, and has no such module.
        return ""
    reason = _REASONS.get(top.lstrip("_"))
    if reason is not None:
        return f"`{name}` can't be imported here: {reason}."
    if top in sys.stdlib_module_names:
        return f"`{name}` is a part of Python that this build leaves out."
    return (
        f"`{top}` is not in this image. Add a pure-Python wheel or a folder with --package"
        " (Builder::package), or name it in --requirements (Builder::requirements); a file of your"
        " own goes along with --input. `hatchery packages` lists what there is."
    )
