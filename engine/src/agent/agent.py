"""The guest's side of a run: takes a request from the host, runs it, answers how it ended.

The host starts one agent in each interpreter. A turn fetches a request and posts a reply, both
JSON, through `call`, the only door to the host. Output does not pass here: it goes through the
standard streams. Nothing here is a barrier: the program can reach and change all of it, and the
host trusts a reply only as a statement of the program about itself.

The file runs on any CPython from 3.11, so that it is tested without a guest (`test_agent.py`).
"""

import __future__
import ast
import atexit
import builtins
import gc
import importlib
import io
import json
import linecache
import os
import sys
import traceback
import types
import weakref

from hatchery._packages import import_advice

# The first byte of what is sent through the door; `engine/src/agent.rs` has the same table.
FETCH = b"\x01"
REPLY = b"\x02"
HELLO = b"\x03"
PROGRAM_BEGINS = b"\x04"
PROGRAM_OVER = b"\x05"
SEEDED = b"\x06"
IMMORTAL = b"\x07"

# What the host sends as the source of a turn.
PREPARE_WORD = b"prepare"

# Integers that JSON readers take without loss: what fits 64 bits, signed or not.
SMALLEST_INTEGER = -(1 << 63)
LARGEST_INTEGER = (1 << 64) - 1
# Deeper values are no use as JSON, and readers refuse them (serde_json stops at 128).
DEEPEST_VALUE = 100
# The reply when there is no memory left to take a request with, or to make another reply.
NO_ROOM = REPLY + json.dumps(
    {
        "kind": "raised",
        "type": "MemoryError",
        "message": "no memory is left, not even to say more",
        "traceback": "MemoryError: no memory is left, not even to say more\n",
    }
).encode()
# Enough to describe an exception in.
RESERVE_BYTES = 1 << 20
# What a turn needs to begin with, apart from its request.
BEGINNING_BYTES = 4 << 10
# Objects that are made immortal in one go.
OBJECTS_AT_ONCE = 256
# Words of a generator's state by which the host finds it in the generator's memory.
SEED_NEEDLE = 16
# What programs do first of all, each in its own way of ending.
REHEARSALS = (
    "import sys; x = 1; print(end=''); x",
    "def f(): 1 / 0\nf()",
    "def f(:",
    "raise SystemExit(1)",
    "[1, {'a': (2.5, None)}]",
)
# After this often CPython has specialised what is to be specialised, and no longer counts there.
REHEARSED_TIMES = 40
# Frames of a traceback that are described.
MOST_FRAMES = 200
# In the last line of a cut text.
CUT = "… ({} more characters)"

# Compiler flags of every `from __future__ import …`.
FUTURE_FLAGS = 0
for _name in __future__.all_feature_names:
    FUTURE_FLAGS |= getattr(__future__, _name).compiler_flag

_THIS_FILE = (lambda: None).__code__.co_filename


class Agent:
    """Runs programs one after another in one `__main__` module."""

    def __init__(self, call, environment):
        self._call = call
        self._environment = environment
        self._base_environment = dict(environment)
        self._base_variables = variables_of(environment)
        self._recursion_limit = sys.getrecursionlimit()
        self._turns = 0
        # `sys.stdout` and `sys.stderr` as the last program left them, if it replaced them.
        self._replaced = {}
        # Standard input for the next run, if it was opened ahead of it.
        self._stdin = None
        # Given up when a program has used all memory, so that there is some to say so.
        self._reserve = bytearray(RESERVE_BYTES)
        # Something that was made as the run began, and how much there is to collect after a run that
        # has left nothing, as a rehearsal found.
        self._begun = None
        self._nothing_left = None
        # What the image's setup left in the program's namespace, if there was one.
        self._image_names = None
        # Generators of random numbers that modules made as they were imported.
        self._generators = []
        self._encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
        self._decode = json.JSONDecoder().decode
        self.main = new_main()
        # Turns of the host run in whatever `__main__` is when they begin. Between runs that is the
        # module that was there first, so no name of a program comes between host and agent.
        self._between = sys.modules["__main__"]
        # The address of a static type, for raising it from outside.
        call(HELLO + (id(KeyboardInterrupt) & 0xFFFFFFFF).to_bytes(4, "little"))

    def reactor_turn(self, word, environment):
        """Stands in for the build's own way of serving a turn, which compiles what it is sent.

        Returns what that does: a status, and whether the interpreter is to be shut down.
        """
        try:
            if word == PREPARE_WORD:
                self.prepare()
            else:
                self.turn()
        except BaseException:
            return 1, False
        return 0, False

    def prepare(self):
        """Makes this interpreter what an image is taken of: imports, runs the setup, settles."""
        request = self._decode(self._call(FETCH).decode())
        sys.modules["__main__"] = self.main
        try:
            sys.path.extend(request["path"])
            for name in request["preload"]:
                importlib.import_module(name)
            self._generators = list(shared_generators())
            if request["setup"] is not None:
                self._execute(request["setup"], request["setup_name"])
                self._image_names = dict(self.main.__dict__)
            reply = {"kind": "completed", "has_value": False, "value": None, "repr": None}
        except BaseException as error:
            reply = {"kind": "raised", **describe_exception(error, request["result_bytes"])}
        finally:
            sys.modules["__main__"] = self._between
        flush_streams()
        # Frozen, so that the collections at the end of each don't take long.
        gc.freeze()
        for source in REHEARSALS * REHEARSED_TIMES:
            self._rehearse(source)
        gc.unfreeze()
        self._settle()
        self._call(REPLY + self._encode(reply).encode("utf-8", "backslashreplace"))

    def _rehearse(self, source):
        """Serves a request of its own, so that what is made at the first time is in the image."""
        request = {"source": source, "filename": None, "args": [], "env": {}, "last": True}
        request |= {"reseed": False, "rehearse": True, "result_bytes": 1000}
        answer = json.dumps(request).encode()
        call, self._call = self._call, lambda frame: answer if frame == FETCH else b""
        main = self.main
        self.turn()
        self._call, self.main = call, main

    def _settle(self):
        """Leaves nothing that copies of this interpreter must not have in common."""
        reseed(self._generators)
        # What is here now is never looked at again by a collection, and so never written to.
        gc.collect()
        make_immortal(self._call, {id(self.main), id(self.main.__dict__), id(self._reserve)})
        gc.freeze()
        if self._image_names is None:
            # One that a collection looks at.
            self.main = new_main()
        for generator in self._generators:
            words = twister_words(generator)
            if words is not None:
                address = (id(generator) & 0xFFFFFFFF).to_bytes(4, "little")
                size = type(generator).__basicsize__.to_bytes(4, "little")
                needle = b"".join(int(word).to_bytes(4, "little") for word in words[:SEED_NEEDLE])
                self._call(SEEDED + address + size + needle)

    def turn(self):
        """Serves one request."""
        try:
            call = self._call
            reply = self._serve()
            if not has_room(BEGINNING_BYTES):
                # It is room for the next turn to begin in.
                self._reserve = None
            # No function is called after this one: a trace function could post another reply.
            call(reply)
        except MemoryError:
            # Not even the reserve was enough to describe the end in, or to begin.
            self._reserve = None
            self._call(PROGRAM_OVER)
            self._call(NO_ROOM)

    def _serve(self):
        """Takes a request, runs it and makes the frame of the reply."""
        self._begun = []
        if self._reserve is None:
            self._reserve = bytearray(RESERVE_BYTES)
        request = self._decode(self._fetch().decode())
        if request["reseed"]:
            reseed(self._generators)
        reopen_streams()
        sys.modules["__main__"] = self.main
        # What the program puts there is used between turns too otherwise, by the host's flush.
        streams = {name: sys.__dict__.get(name) for name in ("stdout", "stderr")}
        sys.__dict__.update(self._replaced)
        try:
            self._call(PROGRAM_BEGINS)
            reply = self._run(request)
            self._call(PROGRAM_OVER)
        except KeyboardInterrupt as error:
            # It came when the program was over and its end was being described. The host raises
            # it once, and takes it back if it comes later.
            reply = {"kind": "raised", **describe_interrupt(error, request["result_bytes"])}
            self._call(PROGRAM_OVER)
        finally:
            sys.modules["__main__"] = self._between
            left = {name: sys.__dict__.get(name) for name in streams}
            self._replaced = {name: left[name] for name in left if left[name] is not streams[name]}
            sys.__dict__.update(streams)
        if request["rehearse"]:
            self._turns = 0
            self._stdin = open_stdin()
            linecache.cache.pop("<job>", None)
        return REPLY + self._encode(reply).encode("utf-8", "backslashreplace")

    def _fetch(self):
        try:
            return self._call(FETCH)
        except Exception:
            # The host found no room for it.
            self._reserve = None
        try:
            return self._call(FETCH)
        except Exception as error:
            raise MemoryError from error

    def _run(self, request):
        cap = request["result_bytes"]
        try:
            filename = self._prepare(request)
            try:
                has_value, value = self._execute(request["source"], filename)
            finally:
                # What the program set must not keep the agent from answering.
                sys.setrecursionlimit(max(self._recursion_limit, sys.getrecursionlimit()))
            reply = {"kind": "completed", **describe_value(has_value, value, cap, self._encode)}
            del value
        except SystemExit as error:
            self._reserve = None
            reply = self._exited(error, cap)
        except BaseException as error:
            self._reserve = None
            reply = {"kind": "raised", **describe_exception(error, cap)}
        if request["last"]:
            if not request["rehearse"]:
                run_exit_functions()
            try:
                self._drop_main(request["rehearse"])
            except KeyboardInterrupt:
                raise
            except BaseException:
                pass  # an audit hook of the program, for instance
        flush_streams()
        return reply

    def _drop_main(self, is_rehearsal=False):
        """As a process that ends does: what is still open is closed, and so written."""
        namespace = self.main.__dict__
        flush_files(namespace.values())
        references, alive = 0, lambda: None
        if self._image_names is not None:
            # The setup's functions keep it; only what the program put there goes.
            put_back(namespace, self._image_names)
        else:
            # Finalisers find the names that they use: nothing is taken from the program's namespace
            # unless something outside of it keeps it alive.
            self.main = sys.modules["__main__"] = new_main()
            references = sys.getrefcount(namespace)
            witness = namespace["__witness__"] = Witness()
            alive = weakref.ref(witness)
            del witness
        del namespace
        objects = gc.get_objects()
        left = len(objects), references
        if is_rehearsal:
            self._nothing_left = left
        elif left == self._nothing_left:
            return
        if not any(one is self._begun for one in objects):
            # The program has hidden what there was from collections.
            gc.unfreeze()
            objects = gc.get_objects()
        # A file that is part of a cycle can lose what it holds when the cycle is collected.
        flush_files(objects)
        del objects
        gc.collect()
        if alive() is not None:
            for holder in gc.get_referrers(alive()):
                if type(holder) is dict:
                    clear(holder)
            gc.collect()

    def _prepare(self, request):
        """Sets up what a process would have been started with; returns the program's name."""
        self._turns += 1
        filename = request["filename"]
        if filename is None:
            name = "<job>" if self._turns == 1 else f"<job {self._turns}>"
            self.main.__dict__.pop("__file__", None)
        else:
            name = self.main.__file__ = filename
        sys.argv = [filename or "", *request["args"]]
        os.environ = self._environment
        if request["env"] or variables_of(os.environ) != self._base_variables:
            os.environ.clear()
            os.environ.update(self._base_environment)
            os.environ.update(request["env"])
        # A reader that saw the end of the last run's input would stay at the end.
        sys.stdin, self._stdin = self._stdin or open_stdin(), None
        return name

    def _execute(self, source, filename):
        """Runs the program; returns whether it ends in an expression, and that one's value."""
        lines = io.StringIO(source, newline=None).readlines()
        linecache.cache[filename] = len(source), None, lines, filename
        namespace = self.main.__dict__
        tree = compile(source, filename, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        code = compile(tree, filename, "exec", dont_inherit=True)
        exec(code, namespace)
        if last is None:
            return False, None
        # `from __future__ import …` at the top holds for the last expression as well.
        future = code.co_flags & FUTURE_FLAGS
        return True, eval(compile(last, filename, "eval", future, dont_inherit=True), namespace)

    def _exited(self, error, cap):
        """What a process would do with a `SystemExit`: its code, or the message and 1."""
        try:
            code = error.code
        except BaseException:
            return {"kind": "exited", "code": 1, "message": None}
        if code is None:
            return {"kind": "exited", "code": 0, "message": None}
        if issubclass(type(code), int):
            return {"kind": "exited", "code": int.__and__(code, 0xFF), "message": None}
        message = cut(text_of(code), cap)
        try:
            sys.stderr.write(message + "\n")
        except BaseException:
            pass
        return {"kind": "exited", "code": 1, "message": message}


def new_main():
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    return main


class Witness:
    """Lives as long as the namespace that it is put into."""


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
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def variables_of(environment):
    """The variables in the form that the environment has them in, without decoding them."""
    return dict(getattr(environment, "_data", environment))


def has_room(size):
    try:
        bytearray(size)
    except MemoryError:
        return False
    return True


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


def forget_identities():
    """Takes away what modules drew by chance when they were imported, where they keep it."""
    for module, names in (("uuid", ("_node", "_last_timestamp")), ("tempfile", ("_name_sequence",))):
        module = sys.modules.get(module)
        for name in names if module is not None else ():
            if hasattr(module, name):
                setattr(module, name, None)


def make_immortal(call, spared):
    """Has the host make every object immortal that is here, but for those with the spared ids.

    Nothing counts references to an immortal object, so that using one writes nothing: copies of
    this interpreter go on sharing the page that it lies in.
    """
    pending = gc.get_objects()
    spared = spared | {id(pending), id(spared)}
    while pending:
        some = pending[-OBJECTS_AT_ONCE:]
        del pending[-OBJECTS_AT_ONCE:]
        fresh = [o for o in some if not sys._is_immortal(o) and id(o) not in spared]
        call(IMMORTAL + b"".join(id(o).to_bytes(4, "little") for o in fresh))
        pending += gc.get_referents(*fresh)
        for code in fresh:
            if type(code) is types.CodeType:
                # A collection never looks into these.
                pending += (code.co_consts, code.co_names, code.co_filename, code.co_name)
                pending += (code.co_qualname, code.co_linetable, code.co_exceptiontable)


def shared_generators():
    """The generators of random numbers that modules keep, but for those that ask the system."""
    numbers = sys.modules.get("numpy.random.bit_generator")
    for generator in gc.get_objects():
        kind = type(generator)
        if "random" in sys.modules and issubclass(kind, sys.modules["random"].Random):
            if not issubclass(kind, sys.modules["random"].SystemRandom):
                yield generator
        elif numbers is not None and issubclass(kind, numbers.BitGenerator):
            yield generator


def twister_words(generator):
    """The words of a Mersenne Twister's state, which the host can write; `None` for others."""
    if hasattr(generator, "getstate"):
        return generator.getstate()[1]
    state = generator.state
    return state["state"]["key"] if state["bit_generator"] == "MT19937" else None


def reseed(generators):
    """Leaves nothing random that a copy of this interpreter has as well: seeds from the system."""
    forget_identities()
    shared = [sys.modules["random"]._inst] if "random" in sys.modules else []
    for generator in (*generators, *shared):
        if hasattr(generator, "seed"):
            generator.seed()
        else:
            generator.state = type(generator)().state
    if "numpy.random" in sys.modules:
        # Draws what it has put by anew as well.
        sys.modules["numpy.random"].seed()


def describe_value(has_value, value, cap, encode):
    """The last expression as JSON, where it is exactly that, and its `repr`."""
    if not has_value or value is None:
        return {"has_value": has_value, "value": None, "repr": None}
    is_json = False
    try:
        if is_exact_json(value, DEEPEST_VALUE):
            text = encode(value)
            is_json = len(text) <= cap and len(text.encode()) <= cap
    except (ValueError, RecursionError, MemoryError):
        # A lone surrogate, an integer of too many digits, or no room for the text.
        pass
    return {
        "has_value": is_json,
        "value": value if is_json else None,
        "repr": cut(repr_of(value), cap),
    }


def is_exact_json(value, depth):
    """Whether JSON holds the value with nothing changed but a tuple's name."""
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return True
    if kind is int:
        return SMALLEST_INTEGER <= value <= LARGEST_INTEGER
    if kind is float:
        return value - value == 0.0  # neither infinite nor NaN
    if depth == 0:
        return False
    if kind is list or kind is tuple:
        return all(is_exact_json(item, depth - 1) for item in value)
    if kind is dict:
        return all(
            type(key) is str and is_exact_json(item, depth - 1) for key, item in value.items()
        )
    return False


def describe_exception(error, cap):
    """Type, message and traceback of an exception, whatever its class does."""
    try:
        return describe_as_it_says(error, cap)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return describe_barely(error)


def describe_barely(error):
    """What can be said of an exception without running any code of its class."""
    name = type.__dict__["__name__"].__get__(type(error))
    return {"type": name, "message": "", "traceback": f"{name}: (it can't be described)\n"}


def describe_as_it_says(error, cap):
    """Type, message and traceback of an exception, without the agent's own frames."""
    kind = type(error)
    module = getattr(kind, "__module__", None)
    name = getattr(kind, "__qualname__", "?")
    if isinstance(module, str) and module not in ("builtins", "__main__"):
        name = f"{module}.{name}"
    trace = BaseException.__dict__["__traceback__"].__get__(error)
    while trace is not None and trace.tb_frame.f_code.co_filename == _THIS_FILE:
        trace = trace.tb_next
    try:
        left_out = shorten(trace)
        lines = list(traceback.TracebackException(kind, error, trace, compact=True).format())
        if left_out:
            lines.insert(-1, f"  ({left_out} frames in the middle are left out)\n")
        advice = import_advice(error)
        if advice:
            # As a note of the exception would be, at the end.
            lines.append(f"{advice}\n")
        text = "".join(lines)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        text = f"{name}: {text_of(error)}\n(no traceback: {type(failure).__name__})\n"
    return {
        "type": cut(str(name), cap),
        "message": cut(text_of(error), cap),
        "traceback": cut(text, cap),
    }


def shorten(trace):
    """Leaves out the middle of a very deep traceback, which would take seconds to describe."""
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    left_out = len(frames) - MOST_FRAMES
    if left_out <= 0:
        return 0
    half = MOST_FRAMES // 2
    frames[half - 1].tb_next = frames[-half]
    return left_out


def describe_interrupt(error, cap):
    """Like `describe_exception`, also if describing it raises the same again."""
    try:
        return describe_exception(error, cap)
    except BaseException:
        return describe_barely(error)


def text_of(value):
    """`str(value)`, whatever the value does."""
    try:
        return clean(str(value))
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        return f"<unprintable {type(value).__name__}: {type(failure).__name__}>"


def repr_of(value):
    """`repr(value)`, whatever the value does."""
    try:
        return clean(repr(value))
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        return f"<unprintable {type(value).__name__}: {type(failure).__name__}>"


def clean(text):
    """The text as UTF-8 can hold it: lone surrogates become escapes."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


def cut(text, cap):
    """At most about `cap` bytes of the text, saying how much is missing."""
    text = clean(text)
    if len(text.encode()) <= cap:
        return text
    kept = text.encode()[:cap].decode("utf-8", "ignore")
    return kept + CUT.format(len(text) - len(kept))


def run_exit_functions():
    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass  # CPython has printed it


def flush_streams():
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        flush(sys.__dict__.get(name))


def flush_files(objects):
    """Writes what open files hold: texts first, which hold it in other files."""
    files = [file for file in objects if issubclass(type(file), io.IOBase)]
    files.sort(key=lambda file: not issubclass(type(file), io.TextIOBase))
    for file in files:
        flush(file)


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


def flush(stream):
    try:
        stream.flush()
    except BaseException:
        pass
