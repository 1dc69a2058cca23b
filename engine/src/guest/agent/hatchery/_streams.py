"""What a run shares with its process: standard streams, open files, namespaces."""

import _io
import atexit
import builtins
import io
import sys
import types

import hatchery


# The streams opened here, by name.
OPENED = {}


def reopen_streams():
    """Reopens the standard streams if an earlier program closed them."""
    streams = sys.__dict__
    try:
        if not (streams["__stdout__"].closed or streams["__stderr__"].closed):
            return
    except BaseException:
        pass  # for instance because one is detached
    open_streams()


def open_streams():
    """Opens new standard streams that are unbuffered, like those of `python -u`.

    Nothing is lost when a run is stopped, and the order across both streams is the program's.
    """
    for descriptor, name, errors in ((1, "stdout", "surrogateescape"), (2, "stderr", "backslashreplace")):
        raw = io.FileIO(descriptor, "w", closefd=False)
        stream = text_stream(raw, name, errors, write_through=True)
        OPENED[name] = stream
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def open_stdin():
    """Opens standard input at its beginning."""
    try:
        return text_stream(io.BufferedReader(io.FileIO(0, "r", closefd=False)), "stdin")
    except OSError:
        # An earlier run closed the descriptor; CPython has no standard input then either.
        return None


def text_stream(file, name, errors="surrogateescape", write_through=False):
    """Returns a standard stream as CPython opens it on Linux: it leaves line ends as they are."""
    getattr(file, "raw", file).name = f"<{name}>"
    stream = io.TextIOWrapper(file, "utf-8", errors, newline="\n", write_through=write_through)
    stream.mode = "r" if name == "stdin" else "w"
    return stream


def is_as_opened(stdin):
    """Whether an unread stream of `open_stdin` is as it was.

    A stream doesn't tell its `newline`, so that of `reconfigure` stays until something is read.
    """
    try:
        is_open = not stdin.closed and not stdin.line_buffering
        return is_open and stdin.encoding == "utf-8" and stdin.errors == "surrogateescape"
    except Exception:  # for instance because it is detached
        return False


def flush_streams():
    streams, ours = sys.__dict__, OPENED
    out, err = streams.get("stdout"), streams.get("stderr")
    try:
        # As almost always: they are those opened here, and buffer nothing.
        if (
            out is ours["stdout"] is streams["__stdout__"]
            and err is ours["stderr"] is streams["__stderr__"]
            and out.write_through
            and err.write_through
        ):
            return
    except BaseException:
        pass
    for name in ("stdout", "stderr"):
        stream = sys.__dict__.get(name)
        if stream is not OPENED.get(name) or not writes_through(stream):
            flush(stream)
        original = sys.__dict__.get(f"__{name}__")
        if original is not stream:
            flush(original)


def flush_files(objects):
    """Flushes open files: text files first, since they write to other files."""
    # The base classes of all files; those in `io` would ask every class registered with them.
    files = [file for file in objects if issubclass(type(file), _io._IOBase)]
    if files:
        files.sort(key=lambda file: not issubclass(type(file), _io._TextIOBase))
        for file in files:
            flush(file)


def writes_through(stream):
    """Whether a stream of `open_streams` still buffers nothing."""
    try:
        return stream.write_through
    except BaseException:
        return False


def flush(stream):
    try:
        stream.flush()
    except BaseException:
        pass


def run_exit_functions(waits=True):
    # As a process does at its end: it waits for its threads, except for daemons. An interrupted one doesn't.
    threading = sys.modules.get("threading") if hatchery._has_threads and waits else None
    if threading is not None:
        run_functions(threading._shutdown)
    run_functions(atexit._run_exitfuncs)


def run_functions(run):
    try:
        run()
    except BaseException:
        pass  # CPython has printed it


class LoggingEnd:
    """Replaces `logging.shutdown` as the exit function of a process.

    In a fresh copy of an image the original is costly, though there are no handlers to flush and
    close. It is called only if the handlers have changed since this was created, or if the only one
    flushes a stream of the program.
    """

    def __init__(self, shutdown, handlers):
        self._shutdown = shutdown
        self._handlers = handlers
        self._idle = handlers[:]

    def __call__(self):
        streams = sys.__dict__
        if self._handlers != self._idle or streams.get("stderr") is not streams.get("__stderr__"):
            self._shutdown()

    def __eq__(self, other):
        # For `atexit.unregister`.
        return other is self or other is self._shutdown

    __hash__ = None


class Seen:
    """Equals nothing, and records what it was compared with."""

    def __init__(self):
        self.others = []

    def __eq__(self, other):
        self.others.append(other)
        return False

    __hash__ = None


def ease_logging():
    """Makes the exit function of `logging` check first whether there is anything to do.

    Does so only if it is the one exit function and the only handler is that of last resort. Then
    returns it.
    """
    logging = sys.modules.get("logging")
    shutdown = getattr(logging, "shutdown", None)
    handlers = getattr(logging, "_handlerList", ())
    last = getattr(logging, "_defaultLastResort", None)
    if atexit._ncallbacks() != 1 or [handler() for handler in handlers] != [last]:
        return None
    seen = Seen()
    atexit.unregister(seen)
    if seen.others != [shutdown]:
        return None
    end = LoggingEnd(shutdown, handlers)
    atexit.unregister(shutdown)
    atexit.register(end)
    return end


def new_main():
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    return main


def put_back(namespace, names):
    """Removes the names that a namespace has gained, and restores those that have changed."""
    for name in list(namespace):
        if name not in names:
            del namespace[name]
        elif namespace[name] is not names[name]:
            namespace[name] = names[name]


def clear(namespace):
    """Clears a namespace in the order in which CPython does at its end."""
    is_private = lambda name: isinstance(name, str) and name[:1] == "_" and name[:2] != "__"
    for name in sorted(list(namespace), key=lambda name: not is_private(name)):
        if name != "__builtins__":
            namespace[name] = None
