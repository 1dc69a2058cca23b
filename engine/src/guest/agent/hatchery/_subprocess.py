"""Children of `subprocess`: Python, and commands of the shell (`_shell.py`). Each runs to its end in this
interpreter, while its parent waits.

A child has a `__main__`, arguments, descriptors, variables, a folder, and modules of the program of its own.
Modules of Python and of packages are common. It begins when its parent calls `Popen`; `run`, `call` and a child
that is given input through a pipe begin at the parent's wait, whose timeout then ends them. It is an error to
read what such a child writes before that.
"""

import atexit
import contextlib
import errno
import functools
import io
import itertools
import os
import runpy
import sys
import threading
import weakref

from hatchery import _streams
from hatchery._describe import report_by
from hatchery._frames import back_of, get_frame
from hatchery._system import WRITABLE
from hatchery._surroundings import SCRIPT_FOLDER

NOT_AT_ONCE = (
    "the sandbox runs a child to its end once all of its input is there: close its `stdin`, or call `communicate`,"
    " before you read what it writes"
)
NAMES = "python", "python3", f"python3.{sys.version_info.minor}"
FOLDERS = "", "/bin", "/usr/bin", "/usr/local/bin"
# Options that change nothing here, and those with an argument.
FLAGS, WITH_ARGUMENT = frozenset("bBdEiIOPqsSuvx"), ("-W", "-X")
# Modules of Python that programs configure.
FRESH = "logging", "random"
KILLED, NO_FILE = -9, 2
numbers = itertools.count(1)
# One child has the streams.
running = threading.RLock()
# Children that wait for their input, by the descriptors of what they will write.
waiting = weakref.WeakValueDictionary()


class Ended(BaseException):
    """A child calls `os._exit`, or its time is over: `code` is `None`."""

    def __init__(self, code=None):
        self.code = code


def is_python(name):
    folder, _, base = name.rpartition("/")
    return name == sys.executable or folder in FOLDERS and base in NAMES


def main_of(args, executable, shell, folder, variables):
    """Returns what a child does, as a function of the names of its `__main__`."""
    words = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args)
    words = [os.fsdecode(word) for word in words]
    if shell:
        # The name of the shell is its `$0`, if no other is given.
        own = [] if len(words) > 1 else [os.fsdecode(executable or "/bin/sh")]
        return functools.partial(run_shell, ["sh", "-c", *words, *own])
    name = words[0] if executable is None else os.fsdecode(executable)
    if is_python(name):
        return functools.partial(begin, words[1:])
    from hatchery._shell import Shell, lack_of

    folder = os.path.join(os.getcwd(), os.fsdecode(folder or ""))
    kind, found = Shell(dict(os.environ if variables is None else variables), folder, []).find(name)
    if kind in ("", "unfit") or kind == "builtin" and name != "pwd":
        reason, code = lack_of(name, found), errno.EACCES if kind == "unfit" else errno.ENOENT
        raise OSError(code, os.strerror(code), name) from (OSError(errno.ENOSYS, reason) if reason else None)
    return functools.partial(run_shell, [name, *words[1:]])


def run_shell(words, names):
    from hatchery._shell import run_words

    run_words(words)


def system(command):
    """`os.system`, which returns the status of a process as `os.waitpid` does."""
    sys.audit("os.system", command)
    with running:
        return run(main_of(command, None, True, None, None), (-1,) * 3, None, None, None) << 8


class Reader(io.RawIOBase):
    """What a child with a pipe for its input writes: it can be read once the child has run."""

    mode = "rb"

    def __init__(self, process, raw):
        self.process, self.raw, self.name = process, raw, raw.name
        waiting[raw.fileno()] = process

    def readable(self):
        return True

    def fileno(self):
        return self.raw.fileno()

    def readinto(self, buffer):
        if self.process.returncode is None:
            raise OSError(errno.ENOTSUP, NOT_AT_ONCE)
        return self.raw.readinto(buffer)

    def close(self):
        self.raw.close()
        super().close()


def read_after(process, stream):
    """Returns a stream of a child's output as one that can't be read before the child has run."""
    is_text = isinstance(stream, io.TextIOWrapper)
    if is_text:
        encoding, errors = stream.encoding, stream.errors
        stream = stream.detach()
    is_buffered = isinstance(stream, io.BufferedReader)
    stream = Reader(process, stream.detach() if is_buffered else stream)
    if is_buffered:
        stream = io.BufferedReader(stream)
    return io.TextIOWrapper(stream, encoding, errors) if is_text else stream


def execute(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, *ends):
    """`Popen._execute_child`."""
    ends, own = ends[:6], (ends[0], ends[3], ends[5])
    source = waiting.get(ends[0])
    if source is not None and source.returncode is None:
        raise OSError(errno.ENOTSUP, NOT_AT_ONCE)
    main = main_of(args, executable, shell, cwd, env)
    sys.audit("subprocess.Popen", executable or sys.executable, args, cwd, env)
    self.pid, self._child_created, self._limit = os.getpid() + next(numbers), True, None
    self._child = main, [end if end == -1 else os.dup(end) for end in own], cwd, env
    self._close_pipe_fds(*ends)
    module = back_of(back_of(get_frame(0))).f_globals["__name__"]
    if self.stdin is not None:
        close = self.stdin.close

        def closing():
            close()
            self._wait(self._limit)

        self.stdin.close = closing
        self.stdout, self.stderr = (end and read_after(self, end) for end in (self.stdout, self.stderr))
    elif module != "subprocess":
        self._wait(None)


def wait(self, timeout):
    """`Popen._wait`."""
    if self.returncode is None:
        main, ends, cwd, env = self._child
        with running:
            self.returncode = run(main, ends, cwd, env, timeout)
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
    if hasattr(self, "_outputs"):
        return self._outputs
    self._limit = timeout
    try:
        if self.stdin is not None and not self.stdin.closed:
            self._stdin_write(input)
        self.wait(timeout)
    except Exception as error:
        if hasattr(error, "timeout"):
            # As there, the error has bytes also in text mode.
            ends = self.stdout, self.stderr
            found = [all_of(getattr(end, "buffer", end)) for end in ends]
            error.stdout, error.stderr = (data or None for data in found)
            self._outputs = tuple(
                self._translate_newlines(data, end.encoding, end.errors) if hasattr(end, "buffer") else data
                for data, end in zip(found, ends)
            )
        raise
    return all_of(self.stdout), all_of(self.stderr)


def all_of(end):
    if end is not None:
        with end:
            return end.read()


def send_signal(self, sig):
    if self.returncode is None:
        self.returncode = -sig


def run(begin, ends, folder, variables, timeout):
    """Runs a child, which calls `begin` with its names. Returns its exit code; `None` if it took more than
    `timeout` seconds.
    """
    threads, at_end, modules = set(threading.enumerate()), [], dict(sys.modules)
    _streams.flush_streams()
    with contextlib.ExitStack() as after:
        for names in vars(sys), os.environ, _streams.OPENED:
            after.callback(restore, names, dict(names))
        after.callback(restore_modules, modules)
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
            top, file = name.partition(".")[0], getattr(module, "__file__", None) or ""
            if top in FRESH or str(file).startswith((*WRITABLE, SCRIPT_FOLDER)) and top != "hatchery":
                del sys.modules[name]
        sys.modules["__main__"] = main = _streams.new_main()
        sys.argv, sys.path, sys.excepthook = [], sys.path[1:], sys.__excepthook__
        os._exit = end_child
        atexit.register = lambda function, *args, **kwargs: at_end.append((function, args, kwargs)) or function
        try:
            with limited(timeout):
                code = code_of(begin, main.__dict__)
                for thread in set(threading.enumerate()) - threads:
                    if not thread.daemon:
                        thread.join()
                for function, args, kwargs in reversed(at_end):
                    code_of(function, *args, **kwargs)
        except Ended as ended:
            if ended.code is None and timeout is None:
                raise  # its parent's time is over
            code = ended.code
        _streams.flush_streams()
        _streams.flush_files(main.__dict__.values())
    return code


def restore(namespace, names):
    _streams.put_back(namespace, names)
    namespace.update(names)


def restore_modules(modules):
    # Those of our package stay, since they hold each other.
    own = {name: module for name, module in sys.modules.items() if name.startswith("hatchery.")}
    restore(sys.modules, own | modules)


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
