"""The guest's side of a run: fetches a request, runs the program, replies how it ended.

The host starts one agent in each interpreter. A turn fetches a request and posts a reply through
`call`, the only door to the host. Output goes through the standard streams instead. Nothing here is
a barrier: the program can reach and change all of it, and the host trusts a reply only as the
program's statement about itself. The agent's functions hold references to all that they need, so
the agent works even without its modules in `sys.modules`.

The package runs on any CPython from 3.11, so that it can be tested without a guest
(`test_agent.py`).
"""

import builtins
import gc
import io
import linecache
import sys
import weakref

from hatchery._compile import RESULT, awaits, code_of, compile_program, leaves_nothing, read_code
from hatchery import _waits
from hatchery._describe import attempt_to_write, cut, describe_barely, describe_exception, describe_interrupt
from hatchery._describe import describe_value, report_by, text_of
from hatchery._frames import back_of, get_frame
from hatchery._host import bridge
from hatchery._display import Displays
from hatchery._image import fill_holes, prepare, reseed
from hatchery._streams import clear, flush_files, flush_streams, new_main, put_back, reopen_streams
from hatchery._streams import run_exit_functions
from hatchery._surroundings import Surroundings
from hatchery._values import data_fields, missing, to_object
from hatchery._wire import BYTE_ORDER_MARK, COMPILE_WORD, FETCH, HAS_STDIN, HELLO, LAST, NO_ROOM
from hatchery._wire import NO_VALUE, PREPARE_WORD, PROGRAM_BEGINS, PROGRAM_OVER, REHEARSE, REPLY, RESEED, TAKES_ALL_INTEGERS
from hatchery._wire import TURN_WORD, VALUE_IS_NONE, decode_request, encode_json, put_forms
from hatchery._wire import reply_frame

# Memory in which to describe an exception.
RESERVE_BYTES = 1 << 20
# Memory that a turn needs to begin, apart from its request.
BEGINNING_BYTES = 4 << 10

# The longest text that says why a value has no JSON, in bytes.
LONGEST_REASON = 400

# Whether `create_frames` has something to do.
LOSES_EXCEPTIONS = sys.version_info < (3, 14)


class Agent:
    """Runs programs one after another in one `__main__` module."""

    def __init__(self, call, environment):
        self._call = call
        self._surroundings = Surroundings(environment)
        self._excepthook = sys.excepthook
        self._recursion_limit = sys.getrecursionlimit()
        # `sys.stdout` and `sys.stderr` as the last program left them, if it replaced them.
        self._replaced = {}
        # Released when a program has used up all memory, so that some is left to report it.
        self._reserve = bytearray(RESERVE_BYTES)
        # An object created when the run began; and what remains after a run that leaves nothing
        # behind, as a rehearsal found: the number of objects, and of references to the namespace.
        self._begun = None
        self._nothing_left = None
        # What the image's setup left in the program's namespace, if there was a setup.
        self._image_names = None
        # Random number generators that modules created when they were imported.
        self._generators = []
        # Objects in place of holes in the image's memory; `None` before the image is prepared.
        self._filled = None
        self._encode = encode_json
        self._decode = decode_request
        bridge.connect(call)
        self._bridge = bridge
        self._displays = Displays(call, encode_json)
        self._displays.install()
        self.main = new_main()
        # The module for after the last run, if it was created in advance.
        self._next_main = None
        # The host's turns run in the `__main__` that is there when they begin. Between runs that is
        # the original module, so that no name of a program comes between host and agent.
        self._between = sys.modules["__main__"]
        # The address of a static type, with which the host raises it from outside.
        call(HELLO + (id(KeyboardInterrupt) & 0xFFFFFFFF).to_bytes(4, "little"))

    def reactor_turn(self, word, environment):
        """Replaces the build's own turn function, which compiles the source that it is sent.

        Returns what that function does: a status, and whether to shut down the interpreter.
        """
        try:
            if word == TURN_WORD:
                self.turn()
            elif word == COMPILE_WORD:
                self._call(REPLY + code_of(*self._decode(self._call(FETCH))))
            elif word == PREPARE_WORD:
                prepare(self)
        except BaseException:
            return 1, False
        return 0, False

    def turn(self):
        """Serves one request."""
        try:
            call = self._call
            reply = self._serve()
            if not has_room(BEGINNING_BYTES):
                # Make room for the next turn to begin in.
                self._reserve = None
            # Call nothing after this: a trace function could post another reply.
            call(reply)
        except MemoryError:
            # Even the reserve was too small to describe the end in, or to begin.
            self._reserve = None
            self._call(PROGRAM_OVER)
            self._call(NO_ROOM)

    def _serve(self):
        """Fetches a request, runs it and returns the frame of the reply."""
        self._begun = []
        if self._reserve is None:
            self._reserve = bytearray(RESERVE_BYTES)
        try:
            request = self._decode(self._fetch())
        except MemoryError:
            raise
        except BaseException as error:
            # From an audit hook that an earlier program left, since `marshal` raises audit events.
            return reply_frame({"kind": "raised", **describe_barely(error)}, self._encode)
        source, moment, cap, data_bytes, around, code, stdin = request
        del request
        # As CPython reads a file.
        source = source.removeprefix(BYTE_ORDER_MARK)
        if moment & REHEARSE and self._filled:
            # What was freed since, also by a collection.
            gc.collect()
            self._filled += fill_holes()
        if moment & RESEED:
            reseed(self._generators)
        self._bridge.begin_turn(not moment & LAST)
        if self._surroundings.turns:
            reopen_streams()
        sys.modules["__main__"] = self.main
        # The program's replacements are for its runs; the host's flush must not use them in
        # between.
        streams = sys.__dict__
        out, err = streams.get("stdout"), streams.get("stderr")
        if self._replaced:
            streams.update(self._replaced)
        try:
            self._call(PROGRAM_BEGINS)
            reply, buffers = self._run(source, code, moment, cap, data_bytes, around, stdin)
            self._call(PROGRAM_OVER)
        except KeyboardInterrupt as error:
            # It arrived after the program's end, while that was being described. The host raises it
            # once, and withdraws it if it comes later.
            reply = {"kind": "raised", **describe_interrupt(error, cap)}
            buffers = ()
            self._call(PROGRAM_OVER)
        finally:
            sys.modules["__main__"] = self._between
            if self._replaced or streams.get("stdout") is not out or streams.get("stderr") is not err:
                self._take_back(streams, {"stdout": out, "stderr": err})
        if moment & REHEARSE:
            self._surroundings.restart()
            self._next_main = new_main()
            linecache.cache.pop("<job>", None)
        return reply if type(reply) is bytes else reply_frame(reply, self._encode, buffers)

    def _take_back(self, streams, ours):
        """Restores the agent's streams, and keeps the program's for its next run."""
        left = {name: streams.get(name) for name in ours}
        self._replaced = {name: left[name] for name in left if left[name] is not ours[name]}
        streams.update(ours)

    def _fetch(self):
        try:
            return self._call(FETCH)
        except Exception:
            # The host found no room for the request.
            self._reserve = None
        try:
            return self._call(FETCH)
        except Exception as error:
            raise MemoryError from error

    def _run(self, source, code, moment, cap, data_bytes, around, stdin):
        bridge, buffers, is_interrupted, hooked = self._bridge, [], False, None
        is_process = moment & LAST
        self._displays.begin(cap)
        try:
            name, args, env, given = around or (None, (), None, None)
            if around:
                around.clear()
            if given is not None:
                # At a prompt, exceptions are reported as at the end of a process.
                is_process = is_process or given.get("prompt")
            filename = self._surroundings.begin(self.main, name, args, env, given)
            self._surroundings.put_stdin(stdin, moment & HAS_STDIN, given)
            del args, env
            try:
                if bridge.loop is not None:
                    bridge.catch_up()
                if given is None:
                    has_value, value = self._execute(source, code, filename)
                else:
                    has_value, value = self._execute_with(given, source, code, filename)
                if bridge.loop is not None:
                    bridge.catch_up()
            except BaseException:
                # CPython before 3.14 loops endlessly where it finds no memory to handle this in.
                self._reserve = None
                raise
            finally:
                # Keep nothing beyond the program's own end.
                given = None
                if _waits.timer is not None:
                    _waits.timer.end()
                # The program's recursion limit must not keep the agent from answering.
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
            if is_process and sys.__dict__.get("excepthook") is not self._excepthook:
                hooked = error
        if hooked is not None:
            # Out here, since nothing is being handled any more, as at the end of a process.
            reply, hooked = self._hooked(hooked, reply, cap), None
        self._displays.finish(is_interrupted)
        if moment & LAST:
            if not moment & REHEARSE:
                run_exit_functions(not is_interrupted)
            try:
                self._drop_main(moment & REHEARSE)
            except KeyboardInterrupt:
                raise
            except BaseException:
                pass  # for instance an audit hook of the program
        flush_streams()
        return reply, buffers

    def _described(self, value, cap, data_bytes, is_wide, buffers):
        """Returns the reply for the value that the program ends in."""
        reply = {"kind": "completed", **describe_value(True, value, cap, is_wide, self._encode)}
        data = ()
        if not reply.pop("is_exact"):
            told, data = data_fields(value, reply["value"], data_bytes, self._encode)
            reply |= told
        reason = reply.pop("missing", None)
        if not reply["has_value"]:
            reply["missing"] = cut(reason or missing(value, reply), min(cap, LONGEST_REASON))
        forms, left_out = self._displays.rich_forms(value)
        if left_out:
            reply["result_left_out"] = max(left_out, reply.get("result_left_out", 0))
        if forms:
            reply["bundle"] = put_forms(forms, buffers)
        buffers += data
        return reply

    def _drop_main(self, is_rehearsal=False):
        """Closes what is still open, and so writes it, as a process does at its end."""
        namespace = self.main.__dict__
        flush_files(namespace.values())
        references, alive = 0, None
        if self._image_names is not None:
            # The setup's functions need the namespace, so remove only what the program added.
            put_back(namespace, self._image_names)
        else:
            # Finalisers need the names that they use: the program's namespace is cleared only if
            # something outside it keeps it alive.
            self.main = sys.modules["__main__"] = self._next_main or new_main()
            self._next_main = None
            references = sys.getrefcount(namespace)
            if self._nothing_left is None or references != self._nothing_left[1]:
                witness = namespace["__witness__"] = Witness()
                alive = weakref.ref(witness)
                del witness
        del namespace
        objects = gc.get_objects()
        # The program didn't leave the weak reference to the witness.
        left = len(objects) - (alive is not None), references
        if is_rehearsal:
            self._nothing_left = left
        elif left == self._nothing_left:
            return
        if not any(one is self._begun for one in objects):
            # The program has hidden objects from collections.
            gc.unfreeze()
            objects = gc.get_objects()
        # A file in a cycle can lose its unwritten data when the cycle is collected.
        flush_files(objects)
        del objects
        gc.collect()
        if alive is not None and alive() is not None:
            for holder in gc.get_referrers(alive()):
                if type(holder) is dict:
                    clear(holder)
            gc.collect()

    def _hooked(self, error, reply, cap):
        """Reports an exception by `sys.excepthook` of the program, as CPython does at its end."""
        ended = report_by(sys.__dict__.get("excepthook"), error)
        if ended is None:
            # The hook has reported it.
            return reply | {"traceback": ""}
        return self._exited(ended, cap) if issubclass(type(ended), SystemExit) else reply

    def _execute_with(self, given, source, code, filename):
        """Like `_execute`, with the optional fields of the request."""
        for name, value in given.get("variables", {}).items():
            self.main.__dict__[name] = to_object(value)
        if "call" in given:
            return True, self._called(**given["call"])
        if "shell" in given:
            from hatchery._shell import run_command

            return False, run_command(source)
        has_value, value = self._execute(source, code, filename, given.get("expression", False))
        if value is not None and given.get("prompt"):
            # As `sys.displayhook` does; a `_` of the program hides it.
            builtins._ = value
        return has_value, value

    def _execute(self, source, code, filename, is_expression=False):
        """Runs the program; returns whether it ends in an expression, and its value.

        `code` is what the host has compiled it to, if it has.
        """
        if "\n" in source or "\r" in source or not source:
            lines = io.StringIO(source, newline=None).readlines()
        else:
            lines = [source]
        linecache.cache[filename] = len(source), None, lines, filename
        namespace = self.main.__dict__
        if code is None:
            body, last = compile_program(source, filename, is_expression)
            is_gone = None
        else:
            body, last, is_gone = read_code(code, source, filename)
        create_frames()
        value = None
        if body is not None and awaits(body):
            run_coroutine(eval(body, namespace))
            if last is RESULT:
                value = namespace.pop(RESULT)
        else:
            if body is not None:
                exec(body, namespace)
            if last is not None:
                value = eval(last, namespace)
                if awaits(last):
                    value = run_coroutine(value)
        if self._bridge.is_session:
            if is_gone is None:
                is_gone = leaves_nothing(body) and leaves_nothing(last)
            if is_gone:
                # Otherwise a session would grow with every turn, and each new page costs a fault.
                linecache.cache.pop(filename, None)
        return last is not None, value

    def _called(self, module, function, args, keywords):
        """Calls a function of a module, and awaits its result if that is awaitable."""
        __import__(module)
        called = sys.modules[module]
        for name in function.split("."):
            called = getattr(called, name)
        args = [to_object(value) for value in args]
        keywords = {name: to_object(value) for name, value in keywords.items()}
        create_frames()
        value = called(*args, **keywords)
        return run_coroutine(awaited(value)) if hasattr(type(value), "__await__") else value

    def _exited(self, error, cap):
        """Returns what a process makes of a `SystemExit`: its code, or the message and 1."""
        try:
            code = error.code
        except BaseException:
            return {"kind": "exited", "code": 1, "message": None}
        if code is None:
            return {"kind": "exited", "code": 0, "message": None}
        if issubclass(type(code), int):
            code = int.__pos__(code)
            # CPython treats an integer that its C integers can't hold as -1.
            code = code & 0xFF if -(1 << 63) <= code < 1 << 63 else 0xFF
            return {"kind": "exited", "code": code, "message": None}
        message = cut(text_of(code), cap)
        attempt_to_write(message + "\n")
        return {"kind": "exited", "code": 1, "message": message}


class Witness:
    """Lives as long as the namespace that it is put into."""


async def awaited(value):
    return await value


def run_coroutine(coroutine):
    """Runs a coroutine to its end, on the loop of `hatchery._loop`."""
    from hatchery._loop import run

    code = coroutine.cr_code
    try:
        return run(coroutine)
    except BaseException as error:
        # Leave out the frames of the loop, which aren't the program's.
        whole = trace = BaseException.__dict__["__traceback__"].__get__(error)
        while trace is not None and trace.tb_frame.f_code is not code:
            trace = trace.tb_next
        raise BaseException.with_traceback(error, trace or whole)


def create_frames():
    """Creates the frame objects of the callers, so that an exception of the program reaches them.

    Until CPython 3.14 an exception is lost, and a `SystemError` takes its place, when the caller's frame
    object can't be created for want of memory (python/cpython#131173).
    """
    if LOSES_EXCEPTIONS:
        frame = get_frame(1)
        while frame:
            frame = back_of(frame)


def has_room(size):
    try:
        bytearray(size)
    except MemoryError:
        return False
    return True
