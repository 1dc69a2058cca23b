"""What a run shares with the process around it: standard streams, open files, namespaces."""

import _io
import atexit
import builtins
import io
import sys
import types


# The streams that were opened here, by name.
OPENED = {}


def reopen_streams():
    """Opens the standard streams again if an earlier program closed them."""
    for stream in (sys.__dict__.get("__stdout__"), sys.__dict__.get("__stderr__")):
        try:
            is_closed = stream.closed
        except BaseException:
            is_closed = True
        if is_closed:
            open_streams()
            return


def open_streams():
    """Opens the standard streams anew, as `python -u` has them: what is written is out at once.

    Nothing is lost when a run is ended, and the order across both streams is the program's.
    """
    for descriptor, name, errors in ((1, "stdout", "surrogateescape"), (2, "stderr", "backslashreplace")):
        raw = io.FileIO(descriptor, "w", closefd=False)
        stream = io.TextIOWrapper(raw, "utf-8", errors, newline="\n", write_through=True)
        stream.mode = "w"
        OPENED[name] = stream
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def open_stdin():
    """Standard input, from its beginning."""
    try:
        return io.TextIOWrapper(
            io.BufferedReader(io.FileIO(0, "r", closefd=False)),
            encoding="utf-8",
            errors="surrogateescape",
        )
    except OSError:
        # An earlier run closed it; CPython has no standard input either then.
        return None


def flush_streams():
    for name in ("stdout", "stderr"):
        stream = sys.__dict__.get(name)
        if stream is not OPENED.get(name) or not writes_through(stream):
            flush(stream)
        original = sys.__dict__.get(f"__{name}__")
        if original is not stream:
            flush(original)


def flush_files(objects):
    """Writes what open files hold: texts first, which hold it in other files."""
    # The classes that all files derive from; those of `io` ask every class registered with them.
    files = [file for file in objects if issubclass(type(file), _io._IOBase)]
    if files:
        files.sort(key=lambda file: not issubclass(type(file), _io._TextIOBase))
        for file in files:
            flush(file)


def writes_through(stream):
    """Whether a stream of `open_streams` still holds nothing back."""
    try:
        return stream.write_through
    except BaseException:
        return False


def flush(stream):
    try:
        stream.flush()
    except BaseException:
        pass


def run_exit_functions():
    run_functions(atexit._run_exitfuncs)


def run_functions(run):
    try:
        run()
    except BaseException:
        pass  # CPython has printed it


class LoggingEnd:
    """Stands in for `logging.shutdown` as the exit function of a process.

    In a fresh copy of an image that one costs much, to flush and close handlers that there are none
    of. It is called if there are others than as this was made, or if what the only one flushes is
    the program's.
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
        # `atexit.unregister` compares.
        return other is self or other is self._shutdown

    __hash__ = None


class Seen:
    """Is equal to nothing, and keeps what it was compared with."""

    def __init__(self):
        self.others = []

    def __eq__(self, other):
        self.others.append(other)
        return False

    __hash__ = None


def ease_logging(times):
    """Has the exit function of `logging` look first whether there is anything to do, if it is the
    only one and there are no handlers but that of last resort; and runs it so many times."""
    logging = sys.modules.get("logging")
    shutdown = getattr(logging, "shutdown", None)
    handlers = getattr(logging, "_handlerList", ())
    last = getattr(logging, "_defaultLastResort", None)
    if atexit._ncallbacks() != 1 or [handler() for handler in handlers] != [last]:
        return
    seen = Seen()
    atexit.unregister(seen)
    if seen.others != [shutdown]:
        return
    end = LoggingEnd(shutdown, handlers)
    atexit.unregister(shutdown)
    atexit.register(end)
    for _ in range(times):
        run_functions(end)


def new_main():
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    return main


def put_back(namespace, names):
    """Makes a namespace what it was, as far as it has more or other names now."""
    for name in list(namespace):
        if name not in names:
            del namespace[name]
        elif namespace[name] is not names[name]:
            namespace[name] = names[name]


def clear(namespace):
    """Takes everything from a namespace, in the order in which CPython does as it ends."""
    is_private = lambda name: isinstance(name, str) and name[:1] == "_" and name[:2] != "__"
    for name in sorted(list(namespace), key=lambda name: not is_private(name)):
        if name != "__builtins__":
            namespace[name] = None
