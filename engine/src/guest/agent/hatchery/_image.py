"""Prepares an interpreter for its image, and makes the copies of an image different."""

import gc
import importlib
import sys
import types

from hatchery._compile import leaves_nothing, parts_of
from hatchery._describe import describe_exception
from hatchery._frames import back_of, get_frame
from hatchery._host import Bridge
from hatchery._streams import LoggingEnd, ease_logging, flush_streams, is_as_opened, new_main
from hatchery._streams import reopen_streams, run_exit_functions, run_functions
from hatchery._wire import FETCH, IMMORTAL, LAST, REHEARSE, SEEDED, decode_request, encode_request
from hatchery._wire import reply_frame

# The number of objects that one message makes immortal.
OBJECTS_AT_ONCE = 256
# Folders of the guest into which modules write when they are imported.
WRITTEN = ("/home", "/tmp")
# The words of a generator's state by which the host finds the state in its memory.
SEED_NEEDLE = 16
# Holes in memory that are filled: the largest content in bytes, without what a `bytes` object and
# the allocator (wasi-libc's) add to it, and the most holes.
LARGEST_HOLE = 1016
MOST_HOLES = 50_000
# This many adjacent pieces in a row mean that no holes of that size are left.
PIECES_IN_A_ROW = 4
# What programs typically do, each ending in a different way.
REHEARSALS = (
    "import sys; x = 1; print(end=''); x",
    "def f(): 1 / 0\nf()",
    "def f(:",
    "raise SystemExit(1)",
    "[1, {'a': (2.5, None)}]",
    "x = 1",
)
# What runs execute and rehearsals don't: at the end of a job, or between the turns of a session.
UNREHEARSED = (
    run_exit_functions,
    run_functions,
    LoggingEnd.__call__,
    reopen_streams,
    is_as_opened,
    leaves_nothing,
    Bridge.catch_up,
)
# The places of CPython's table of functions by version (`FUNC_VERSION_CACHE_SIZE`).
FUNCTION_PLACES = 4096
# How many functions are created at once. The code that creates them has a version as well, and their
# number with it is no divisor of the places.
FUNCTIONS_AT_ONCE = 250
# After this many runs, CPython has specialised the code and no longer counts its executions.
REHEARSED_TIMES = 40


def prepare(agent):
    """Prepares the agent's interpreter for an image: imports, runs the setup, settles."""
    request = agent._decode(agent._call(FETCH))
    sys.modules["__main__"] = agent.main
    exits = None
    try:
        sys.path.extend(request["path"])
        for name in request["preload"]:
            importlib.import_module(name)
        if request["hidden"]:
            import_hidden(agent, request["hidden"])
        else:
            agent._generators = list(shared_generators())
        if request["setup"] is not None:
            agent._execute(request["setup"], None, request["setup_name"])
            agent._image_names = dict(agent.main.__dict__)
        exits = ease_logging()
        reply = {"kind": "completed", "has_value": False, "value": None, "repr": None}
    except BaseException as error:
        reply = {"kind": "raised", **describe_exception(error, request["result_bytes"])}
    finally:
        sys.modules["__main__"] = agent._between
    flush_streams()
    reopen_streams()
    filled = fill_holes()
    code = encode_request(parts_of(REHEARSALS[0]))
    gather_code(agent, code)
    # Frozen, so that the collection at the end of each rehearsal is quick.
    gc.freeze()
    for _ in range(REHEARSED_TIMES):
        for source in REHEARSALS:
            rehearse(agent, source, None)
        rehearse(agent, REHEARSALS[0], code)
        if exits is not None:
            run_functions(exits)
    gc.unfreeze()
    forget_functions()
    settle(agent, filled)
    agent._call(reply_frame(reply, agent._encode))


def import_hidden(agent, names):
    """Imports modules that no program sees before it imports them."""
    import hatchery
    from hatchery._hidden import hide
    from hatchery._late import LateFinder

    def settle_visible():
        agent._generators = list(shared_generators())
        reseed(agent._generators)

    # No program sees this module, either.
    del sys.modules["hatchery._hidden"], hatchery._hidden
    LateFinder.hidden = hide(names, settle_visible, WRITTEN)


def rehearse(agent, source, code):
    """Serves a made-up request, so that what a first run creates is part of the image."""
    answer = encode_request((source, LAST | REHEARSE, 1000, 0, None, code, 0))
    call, agent._call = agent._call, lambda frame: answer if frame == FETCH else b""
    main = agent.main
    agent.turn()
    agent._call, agent.main = call, main


def gather_code(agent, code):
    """Moves together the code that most runs execute.

    Executing code writes to it: counts, and which way branches went. So the less it is scattered, the
    fewer pages must be restored before the next run.
    """
    executed = dict.fromkeys(function.__code__ for function in UNREHEARSED)
    caller = get_frame(1)
    while caller is not None:
        executed[caller.f_code] = None
        caller = back_of(caller)
    if type(agent._call) is types.FunctionType:
        executed[agent._call.__code__] = None
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, value: executed.setdefault(frame.f_code))
    try:
        rehearse(agent, REHEARSALS[-1], None)
        rehearse(agent, REHEARSALS[0], code)
    finally:
        sys.setprofile(before)
    for function in gc.get_objects():
        if type(function) is types.FunctionType and function.__code__ in executed:
            executed[function.__code__] = function
    for code, function in executed.items():
        if function is not None:
            function.__code__ = code.replace()


def forget_functions():
    """Empties CPython's table of functions by version, which only its optimizer needs.

    Each program's code has a version. When the code is freed, CPython looks at the code of the function
    in the same place of the table. So each turn of a session would read another page of the image.
    """
    source = "lambda: 0\n" * FUNCTIONS_AT_ONCE
    code = encode_request(compile(source, "<image>", "exec", dont_inherit=True))
    # Twice, since the code that creates the functions has a version, too, but no place.
    for _ in range(2 * FUNCTION_PLACES // FUNCTIONS_AT_ONCE + 1):
        exec(decode_request(code), {})


def settle(agent, filled):
    """Removes what copies of this interpreter must not have in common."""
    reseed(agent._generators)
    # Collect, then freeze: later collections don't look at what is here now, or write to it.
    gc.collect()
    make_immortal(agent._call, {id(agent.main), id(agent.main.__dict__), id(agent._reserve)})
    agent._filled = filled + fill_holes()
    gc.freeze()
    if agent._image_names is None:
        # A module that collections look at.
        agent.main, agent._next_main = new_main(), None
    for generator in agent._generators:
        words = twister_words(generator)
        if words is not None:
            address = (id(generator) & 0xFFFFFFFF).to_bytes(4, "little")
            size = type(generator).__basicsize__.to_bytes(4, "little")
            needle = b"".join(int(word).to_bytes(4, "little") for word in words[:SEED_NEEDLE])
            agent._call(SEEDED + address + size + needle)


def make_immortal(call, spared):
    """Makes the host turn every object here immortal, except those with the spared ids.

    References to an immortal object aren't counted, so using it writes nothing: copies of this
    interpreter continue to share its page.
    """
    if not hasattr(sys, "_is_immortal"):
        return  # before 3.14, where another count means immortality
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
                # Collections don't traverse these.
                pending += (code.co_consts, code.co_names, code.co_filename, code.co_name)
                pending += (code.co_qualname, code.co_linetable, code.co_exceptiontable)


def fill_holes():
    """Fills the small holes that imports have left between objects; returns the objects in them.

    They take about 0.3 MB with pandas. The allocations of a run are then adjacent instead of
    scattered, so it writes to fewer pages that must be restored before the next run.
    """
    filled, count = [None] * MOST_HOLES, 0
    for size in range(LARGEST_HOLE, -16, -16):
        piece = (size + 36) // 16 * 16 if size > 0 else 16
        last = row = 0
        while row < PIECES_IN_A_ROW and count < MOST_HOLES:
            # No object is smaller than a plain one.
            one = filled[count] = bytes(size) if size > 0 else object()
            row = row + 1 if id(one) - last == piece else 0
            last = id(one)
            count += 1
    del filled[count:]
    return filled


def shared_generators():
    """Yields the random number generators that modules keep, except those that ask the system."""
    numbers = sys.modules.get("numpy.random.bit_generator")
    for generator in gc.get_objects():
        kind = type(generator)
        if "random" in sys.modules and issubclass(kind, sys.modules["random"].Random):
            if not issubclass(kind, sys.modules["random"].SystemRandom):
                yield generator
        elif numbers is not None and issubclass(kind, numbers.BitGenerator):
            yield generator


def twister_words(generator):
    """Returns the state of a Mersenne Twister, which the host can write; `None` for others."""
    if hasattr(generator, "getstate"):
        return generator.getstate()[1]
    state = generator.state
    return state["state"]["key"] if state["bit_generator"] == "MT19937" else None


def reseed(generators):
    """Reseeds from the system, so that copies of this interpreter share no random state."""
    forget_identities()
    shared = [sys.modules["random"]._inst] if "random" in sys.modules else []
    for generator in (*generators, *shared):
        if hasattr(generator, "seed"):
            generator.seed()
        else:
            generator.state = type(generator)().state
    if "numpy.random" in sys.modules:
        # Discards buffered random numbers, too.
        sys.modules["numpy.random"].seed()


def forget_identities():
    """Clears what modules drew at random when they were imported."""
    for module, names in (("uuid", ("_node", "_last_timestamp")), ("tempfile", ("_name_sequence",))):
        module = sys.modules.get(module)
        for name in names if module is not None else ():
            if hasattr(module, name):
                setattr(module, name, None)
