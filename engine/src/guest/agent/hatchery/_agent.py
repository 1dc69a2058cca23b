"""The guest's side of a run: takes a request from the host, runs it, answers how it ended.

The host starts one agent in each interpreter. A turn fetches a request and posts a reply through
`call`, the only door to the host. Output does not pass here: it goes through the standard streams.
Nothing here is a barrier: the program can reach and change all of it, and the host trusts a reply
only as a statement of the program about itself. What the agent needs is held by the functions that
use it, so that it does without its modules in `sys.modules`.

The package runs on any CPython from 3.11, so that it is tested without a guest (`test_agent.py`).
"""

import builtins
import gc
import io
import linecache
import os
import sys
import weakref

from hatchery._compile import RESULT, awaits, compile_program
from hatchery._describe import cut, describe_barely, describe_exception, describe_interrupt
from hatchery._describe import describe_value, text_of
from hatchery._host import bridge
from hatchery._display import PLAIN, Displays
from hatchery._image import prepare, reseed
from hatchery._streams import clear, flush_files, flush_streams, new_main, open_stdin, put_back
from hatchery._streams import reopen_streams, run_exit_functions
from hatchery._values import data_fields, to_object
from hatchery._wire import FETCH, HELLO, LAST, NO_ROOM, NO_VALUE, PREPARE_WORD, PROGRAM_BEGINS
from hatchery._wire import PROGRAM_OVER, REHEARSE, RESEED, TAKES_ALL_INTEGERS, VALUE_IS_NONE
from hatchery._wire import decode_request, encode_json, put_forms, reply_frame

# Enough to describe an exception in.
RESERVE_BYTES = 1 << 20
# What a turn needs to begin with, apart from its request.
BEGINNING_BYTES = 4 << 10

# Where a program finds the folder of its script, if it came from a file.
SCRIPT_FOLDER = "/script"


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
        # What is where an image would have holes in its memory.
        self._filled = None
        self._encode = encode_json
        self._decode = decode_request
        bridge.connect(call)
        self._bridge = bridge
        self._displays = Displays(call, encode_json)
        self._displays.install()
        self.main = new_main()
        # The module for after the last run, if it was made ahead of it.
        self._next_main = None
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
                prepare(self)
            else:
                self.turn()
        except BaseException:
            return 1, False
        return 0, False

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
        try:
            request = self._decode(self._fetch())
        except MemoryError:
            raise
        except BaseException as error:
            # A hook that an earlier program left, and that `marshal` tells of what it reads.
            return reply_frame({"kind": "raised", **describe_barely(error)}, self._encode)
        source, moment, cap, data_bytes, *around = request
        del request
        if moment & RESEED:
            reseed(self._generators)
        self._bridge.begin_turn(not moment & LAST)
        reopen_streams()
        sys.modules["__main__"] = self.main
        # What the program puts there is used between turns too otherwise, by the host's flush.
        streams = sys.__dict__
        out, err = streams.get("stdout"), streams.get("stderr")
        if self._replaced:
            streams.update(self._replaced)
        try:
            self._call(PROGRAM_BEGINS)
            reply, buffers = self._run(source, moment, cap, data_bytes, around)
            self._call(PROGRAM_OVER)
        except KeyboardInterrupt as error:
            # It came when the program was over and its end was being described. The host raises
            # it once, and takes it back if it comes later.
            reply = {"kind": "raised", **describe_interrupt(error, cap)}
            buffers = ()
            self._call(PROGRAM_OVER)
        finally:
            sys.modules["__main__"] = self._between
            if self._replaced or streams.get("stdout") is not out or streams.get("stderr") is not err:
                self._take_back(streams, {"stdout": out, "stderr": err})
        if moment & REHEARSE:
            self._turns = 0
            # That of the last run goes now, and not as the next one begins.
            sys.stdin = self._stdin = open_stdin()
            self._next_main = new_main()
            linecache.cache.pop("<job>", None)
        return reply if type(reply) is bytes else reply_frame(reply, self._encode, buffers)

    def _take_back(self, streams, ours):
        """Puts the agent's streams where the program's are, which are kept for its next run."""
        left = {name: streams.get(name) for name in ours}
        self._replaced = {name: left[name] for name in left if left[name] is not ours[name]}
        streams.update(ours)

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

    def _run(self, source, moment, cap, data_bytes, around):
        buffers, is_interrupted = [], False
        self._displays.begin(cap)
        try:
            given = None
            if around:
                name, args, env, given = around.pop()
                filename = self._prepare(name, args, env, given)
                del args, env
            else:
                filename = self._prepare()
            try:
                self._bridge.catch_up()
                if given is None:
                    has_value, value = self._execute(source, filename)
                else:
                    has_value, value = self._execute_with(given, source, filename)
                self._bridge.catch_up()
            finally:
                # Nothing is kept beyond the program's own end.
                given = None
                # What the program set must not keep the agent from answering.
                sys.setrecursionlimit(max(self._recursion_limit, sys.getrecursionlimit()))
            if value is None:
                reply = VALUE_IS_NONE if has_value else NO_VALUE
            else:
                is_wide = bool(moment & TAKES_ALL_INTEGERS)
                reply = self._described(value, cap, data_bytes, is_wide, buffers)
            del value
        except SystemExit as error:
            self._reserve, buffers = None, ()
            reply = self._exited(error, cap)
        except BaseException as error:
            self._reserve, buffers = None, ()
            is_interrupted = issubclass(type(error), KeyboardInterrupt)
            reply = {"kind": "raised", **describe_exception(error, cap)}
        self._displays.finish(is_interrupted)
        if moment & LAST:
            if not moment & REHEARSE:
                run_exit_functions()
            try:
                self._drop_main(moment & REHEARSE)
            except KeyboardInterrupt:
                raise
            except BaseException:
                pass  # an audit hook of the program, for instance
        flush_streams()
        return reply, buffers

    def _described(self, value, cap, data_bytes, is_wide, buffers):
        """What a reply says of the value that a program ends in."""
        reply = {"kind": "completed", **describe_value(True, value, cap, is_wide, self._encode)}
        forms, left_out = self._displays.rich_forms(value)
        if left_out:
            reply["result_left_out"] = max(left_out, reply.get("result_left_out", 0))
        if forms:
            reply["bundle"] = put_forms(forms, buffers)
        if not reply["has_value"] or type(value) not in PLAIN:  # a scalar of NumPy, for one
            told, data = data_fields(value, data_bytes, self._encode)
            reply |= told
            buffers += data
        return reply

    def _drop_main(self, is_rehearsal=False):
        """As a process that ends does: what is still open is closed, and so written."""
        namespace = self.main.__dict__
        flush_files(namespace.values())
        references, alive = 0, None
        if self._image_names is not None:
            # The setup's functions keep it; only what the program put there goes.
            put_back(namespace, self._image_names)
        else:
            # Finalisers find the names that they use: nothing is taken from the program's namespace
            # unless something outside of it keeps it alive.
            self.main = sys.modules["__main__"] = self._next_main or new_main()
            self._next_main = None
            references = sys.getrefcount(namespace)
            if self._nothing_left is None or references != self._nothing_left[1]:
                witness = namespace["__witness__"] = Witness()
                alive = weakref.ref(witness)
                del witness
        del namespace
        objects = gc.get_objects()
        # The reference to the witness is none that the program left.
        left = len(objects) - (alive is not None), references
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
        if alive is not None and alive() is not None:
            for holder in gc.get_referrers(alive()):
                if type(holder) is dict:
                    clear(holder)
            gc.collect()

    def _prepare(self, filename=None, args=(), env=None, given=None):
        """Sets up what a process would have been started with; returns the program's name."""
        self._turns += 1
        if filename is None:
            name = "<job>" if self._turns == 1 else f"<job {self._turns}>"
            self.main.__dict__.pop("__file__", None)
        else:
            name = self.main.__file__ = filename
        sys.argv = [filename or "", *args]
        os.environ = self._environment
        variables = getattr(self._environment, "_data", None)
        is_as_it_was = type(variables) is dict and variables == self._base_variables
        if env or not is_as_it_was:
            os.environ.clear()
            os.environ.update(self._base_environment)
            os.environ.update(env or {})
        # A reader that saw the end of the last run's input would stay at the end.
        sys.stdin, self._stdin = self._stdin or open_stdin(), None
        if given is not None:
            self._place(given)
        return name

    def _place(self, given):
        """Sets where the program's script, its working directory and its standard input are."""
        script = given.get("script")
        if script is not None:
            self.main.__file__ = f"{SCRIPT_FOLDER}/{script}"
            if sys.path[:1] != [SCRIPT_FOLDER]:
                sys.path.insert(0, SCRIPT_FOLDER)
            # In a session it may be another script's folder now.
            for path in list(sys.path_importer_cache):
                if f"{path}/".startswith(f"{SCRIPT_FOLDER}/"):
                    del sys.path_importer_cache[path]
        if "workdir" in given:
            os.chdir(given["workdir"])
        if "stdin" in given:
            from hatchery._stdin import open_lines

            sys.stdin = open_lines(self._bridge.call, given["stdin"])

    def _execute_with(self, given, source, filename):
        """Like `_execute`, with what the job is given besides its source."""
        for name, value in given.get("variables", {}).items():
            self.main.__dict__[name] = to_object(value)
        if "call" in given:
            return True, self._called(**given["call"])
        has_value, value = self._execute(source, filename, given.get("expression", False))
        if value is not None and given.get("prompt"):
            # As `sys.displayhook` does: a `_` of the program comes before it.
            builtins._ = value
        return has_value, value

    def _execute(self, source, filename, is_expression=False):
        """Runs the program; returns whether it ends in an expression, and that one's value."""
        if "\n" in source or "\r" in source or not source:
            lines = io.StringIO(source, newline=None).readlines()
        else:
            lines = [source]
        linecache.cache[filename] = len(source), None, lines, filename
        namespace = self.main.__dict__
        body, last = compile_program(source, filename, is_expression)
        if body is not None:
            if awaits(body):
                run_coroutine(eval(body, namespace))
                return (True, namespace.pop(RESULT)) if last is RESULT else (False, None)
            exec(body, namespace)
        if last is None:
            return False, None
        value = eval(last, namespace)
        return True, run_coroutine(value) if awaits(last) else value

    def _called(self, module, function, args, keywords):
        """Calls a function of a module, and waits for what it returns if that can be awaited."""
        __import__(module)
        called = sys.modules[module]
        for name in function.split("."):
            called = getattr(called, name)
        args = [to_object(value) for value in args]
        value = called(*args, **{name: to_object(value) for name, value in keywords.items()})
        return run_coroutine(awaited(value)) if hasattr(type(value), "__await__") else value

    def _exited(self, error, cap):
        """What a process would do with a `SystemExit`: its code, or the message and 1."""
        try:
            code = error.code
        except BaseException:
            return {"kind": "exited", "code": 1, "message": None}
        if code is None:
            return {"kind": "exited", "code": 0, "message": None}
        if issubclass(type(code), int):
            code = int.__pos__(code)
            # CPython takes what its C integers can't hold for -1.
            code = code & 0xFF if -(1 << 63) <= code < 1 << 63 else 0xFF
            return {"kind": "exited", "code": code, "message": None}
        message = cut(text_of(code), cap)
        try:
            sys.stderr.write(message + "\n")
        except BaseException:
            pass
        return {"kind": "exited", "code": 1, "message": message}


class Witness:
    """Lives as long as the namespace that it is put into."""


async def awaited(value):
    return await value


def run_coroutine(coroutine):
    """Runs it on the loop of `hatchery._loop`, to its end."""
    from hatchery._loop import run

    code = coroutine.cr_code
    try:
        return run(coroutine)
    except BaseException as error:
        # Without the frames of the loop, which are none of the program's.
        whole = trace = BaseException.__dict__["__traceback__"].__get__(error)
        while trace is not None and trace.tb_frame.f_code is not code:
            trace = trace.tb_next
        raise BaseException.with_traceback(error, trace or whole)


def variables_of(environment):
    """The variables in the form that the environment has them in, without decoding them."""
    return dict(getattr(environment, "_data", environment))


def has_room(size):
    try:
        bytearray(size)
    except MemoryError:
        return False
    return True
