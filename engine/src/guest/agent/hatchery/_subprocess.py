"""Children of `subprocess` that are Python: each runs to its end in this interpreter, while its parent waits.

A child has a `__main__`, arguments, descriptors, variables, a folder, and modules of the program of its own.
Modules of Python and of packages are common. It begins when its parent calls `Popen`; `run`, `call` and a child
that is given input through a pipe begin at the parent's wait, whose timeout then ends them. Other programs can't
run.
"""

import atexit
import contextlib
import errno
import io
import itertools
import os
import runpy
import shlex
import sys
import threading

from hatchery import _streams
from hatchery._describe import report_by
from hatchery._frames import back_of, get_frame
from hatchery._system import WRITABLE
from hatchery._surroundings import SCRIPT_FOLDER

# What `Popen` raises where there are no processes.
NO_PROCESSES = "wasi does not support processes."
NAMES = "python", "python3", f"python3.{sys.version_info.minor}"
FOLDERS = "", "/bin", "/usr/bin", "/usr/local/bin"
# Options that change nothing here, and those with an argument.
FLAGS, WITH_ARGUMENT = frozenset("bBdEiIOPqsSuvx"), ("-W", "-X")
# What a shell would do more than split words.
OF_A_SHELL = frozenset("();<>|&")
# Modules of Python that programs configure.
FRESH = "logging", "random"
KILLED, NO_FILE = -9, 2
numbers = itertools.count(1)
# One child has the streams.
running = threading.RLock()


class Ended(BaseException):
    """A child calls `os._exit`, or its time is over: `code` is `None`."""

    def __init__(self, code=None):
        self.code = code


def is_python(name):
    folder, _, base = name.rpartition("/")
    return name == sys.executable or folder in FOLDERS and base in NAMES


def words_of(args, shell):
    """Returns the arguments of Python that a command is."""
    words = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args)
    words = [os.fsdecode(word) for word in words]
    if shell and words:
        lexer = shlex.shlex(words[0], posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        if any(OF_A_SHELL.issuperset(word) or "$" in word for word in words):
            words = []
    if not words or not is_python(words[0]):
        raise OSError(errno.ENOTSUP, NO_PROCESSES)
    return words[1:]


def execute(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, *ends):
    """`Popen._execute_child`."""
    words = words_of(args, shell)
    sys.audit("subprocess.Popen", executable or sys.executable, args, cwd, env)
    ends, own = ends[:6], (ends[0], ends[3], ends[5])
    self.pid, self._child_created, self._limit = os.getpid() + next(numbers), True, None
    self._child = words, [end if end == -1 else os.dup(end) for end in own], cwd, env
    self._close_pipe_fds(*ends)
    module = back_of(back_of(get_frame(0))).f_globals["__name__"]
    if self.stdin is not None:
        close = self.stdin.close

        def closing():
            close()
            self._wait(self._limit)

        self.stdin.close = closing
    elif module != "subprocess":
        self._wait(None)


def wait(self, timeout):
    """`Popen._wait`."""
    if self.returncode is None:
        words, ends, cwd, env = self._child
        with running:
            self.returncode = run(words, ends, cwd, env, timeout)
        if self.returncode is None:
            from subprocess import TimeoutExpired

            self.returncode = KILLED
            raise TimeoutExpired(self.args, timeout)
    return self.returncode


def poll(self, _deadstate=None):
    """`Popen._internal_poll`."""
    if _deadstate is None and (self.stdin is None or self.stdin.closed):
        self._wait(None)
    return self.returncode


def communicate(self, input=None, timeout=None):
    self._limit = timeout
    try:
        if self.stdin is not None and not self.stdin.closed:
            self._stdin_write(input)
        self.wait(timeout)
    except Exception as error:
        if hasattr(error, "timeout"):
            # As there, bytes also in text mode.
            ends = (getattr(end, "buffer", end) for end in (self.stdout, self.stderr))
            error.stdout, error.stderr = (all_of(end) or None for end in ends)
        raise
    return all_of(self.stdout), all_of(self.stderr)


def all_of(end):
    if end is not None:
        with end:
            return end.read()


def send_signal(self, sig):
    if self.returncode is None:
        self.returncode = -sig


def run(words, ends, folder, variables, timeout):
    """Runs a child. Returns its exit code; `None` if it took more than `timeout` seconds."""
    threads, at_end, modules = set(threading.enumerate()), [], dict(sys.modules)
    _streams.flush_streams()
    with contextlib.ExitStack() as after:
        for names in vars(sys), sys.modules, os.environ, _streams.OPENED:
            after.callback(restore, names, dict(names))
        for owner, name in (os, "_exit"), (atexit, "register"):
            after.callback(setattr, owner, name, getattr(owner, name))
        after.callback(sys.setrecursionlimit, sys.getrecursionlimit())
        after.callback(os.chdir, os.getcwd())
        for target, end in enumerate(ends):
            if end != -1:
                saved = os.dup(target)
                after.callback(os.close, saved)
                after.callback(os.dup2, saved, target)
                os.dup2(end, target)
                os.close(end)
        if folder is not None:
            os.chdir(folder)
        _streams.open_streams()
        if ends[0] != -1:
            sys.stdin = sys.__stdin__ = _streams.open_stdin()
        if variables is not None:
            os.environ.clear()
            os.environ.update((os.fsdecode(name), os.fsdecode(value)) for name, value in variables.items())
        for name, module in modules.items():
            file = getattr(module, "__file__", None) or ""
            if name.partition(".")[0] in FRESH or str(file).startswith((*WRITABLE, SCRIPT_FOLDER)):
                del sys.modules[name]
        sys.modules["__main__"] = main = _streams.new_main()
        sys.argv, sys.path, sys.excepthook = [], sys.path[1:], sys.__excepthook__
        os._exit = end_child
        atexit.register = lambda function, *args, **kwargs: at_end.append((function, args, kwargs)) or function
        try:
            with limited(timeout):
                code = code_of(begin, words, main.__dict__)
                for thread in set(threading.enumerate()) - threads:
                    if not thread.daemon:
                        thread.join()
                for function, args, kwargs in reversed(at_end):
                    code_of(function, *args, **kwargs)
        except Ended as ended:
            code = ended.code
        _streams.flush_streams()
        _streams.flush_files(main.__dict__.values())
    return code


def restore(namespace, names):
    _streams.put_back(namespace, names)
    namespace.update(names)


def code_of(function, *args, **kwargs):
    """Calls a function of a child. Returns the code with which its process would end."""
    try:
        function(*args, **kwargs)
    except SystemExit as error:
        code = error.code
        if code is None or isinstance(code, int):
            return (code or 0) & 0xFF
        print(code, file=sys.stderr)
        return 1
    except (Ended, KeyboardInterrupt):
        raise
    except BaseException as error:
        report_by(sys.excepthook, error)
        return 1
    return 0


def end_child(code):
    raise Ended(code)


@contextlib.contextmanager
def limited(seconds):
    """Ends what runs in it after so many seconds, if timers of the module `signal` can."""
    import signal

    def ring(*args):
        raise Ended

    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGALRM, ring)
    try:
        left = signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
    except OSError:
        left = 0, 0
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            signal.setitimer(signal.ITIMER_REAL, *left)
        signal.signal(signal.SIGALRM, handler)


def begin(words, names):
    """Does what `python` does with these arguments."""
    words = list(words)
    while words and words[0][:1] == "-" and words[0] != "-":
        option = words.pop(0)
        if option in ("-V", "--version"):
            return print("Python", sys.version.split()[0])
        if option in WITH_ARGUMENT:
            del words[:1]
        elif option[:2] in ("-c", "-m"):
            given = option[2:] or "".join(words[:1])
            rest = words if option[2:] else words[1:]
            sys.argv[:] = [option[:2], *rest]
            sys.path.insert(0, os.getcwd() if option[1] == "m" else "")
            if option[1] == "m":
                return runpy._run_module_as_main(given)
            return exec(compile(given, "<string>", "exec"), names)
        elif not FLAGS.issuperset(option[1:]):
            print(f"unknown option {option}", file=sys.stderr)
            sys.exit(NO_FILE)
    sys.argv[:] = words or [""]
    if not words or words[0] == "-":
        sys.path.insert(0, "")
        return exec(compile(sys.stdin.read(), "<stdin>", "exec"), names)
    path = os.path.join(os.getcwd(), words[0])
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        print(f"python: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        sys.exit(NO_FILE)
    names["__file__"] = path
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    exec(compile(source, path, "exec"), names)


def adapt(module):
    if not hasattr(module, "Popen"):
        return  # the program's own module
    module._can_fork_exec = True
    for name, function in {
        "_execute_child": execute, "_wait": wait, "_internal_poll": poll, "communicate": communicate, "send_signal": send_signal,
    }.items():
        setattr(module.Popen, name, function)


ADAPT = {"subprocess": adapt}
