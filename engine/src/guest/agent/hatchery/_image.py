"""What is done once, before an image is taken of an interpreter, and what sets its copies apart."""

import gc
import importlib
import sys
import types

from hatchery._describe import describe_exception
from hatchery._streams import ease_logging, flush_streams, new_main
from hatchery._wire import FETCH, IMMORTAL, LAST, REHEARSE, SEEDED, encode_request, reply_frame

# Objects that are made immortal in one go.
OBJECTS_AT_ONCE = 256
# Words of a generator's state by which the host finds it in the generator's memory.
SEED_NEEDLE = 16
# Free pieces of memory that are filled: of so many bytes at most each, apart from what a `bytes`
# object and the allocator (wasi-libc's) add to them, and so many in all.
LARGEST_HOLE = 1016
MOST_HOLES = 50_000
# So many pieces in a row that lie side by side are where no others are left.
PIECES_IN_A_ROW = 4
# What programs do first of all, each in its own way of ending.
REHEARSALS = (
    "import sys; x = 1; print(end=''); x",
    "def f(): 1 / 0\nf()",
    "def f(:",
    "raise SystemExit(1)",
    "[1, {'a': (2.5, None)}]",
    "x = 1",
)
# After this often CPython has specialised what is to be specialised, and no longer counts there.
REHEARSED_TIMES = 40


def prepare(agent):
    """Makes the agent's interpreter what an image is taken of: imports, runs the setup, settles."""
    request = agent._decode(agent._call(FETCH))
    sys.modules["__main__"] = agent.main
    try:
        sys.path.extend(request["path"])
        for name in request["preload"]:
            importlib.import_module(name)
        agent._generators = list(shared_generators())
        if request["setup"] is not None:
            agent._execute(request["setup"], request["setup_name"])
            agent._image_names = dict(agent.main.__dict__)
        ease_logging(REHEARSED_TIMES)
        reply = {"kind": "completed", "has_value": False, "value": None, "repr": None}
    except BaseException as error:
        reply = {"kind": "raised", **describe_exception(error, request["result_bytes"])}
    finally:
        sys.modules["__main__"] = agent._between
    flush_streams()
    # Frozen, so that the collections at the end of each don't take long.
    gc.freeze()
    for source in REHEARSALS * REHEARSED_TIMES:
        rehearse(agent, source)
    gc.unfreeze()
    settle(agent)
    agent._call(reply_frame(reply, agent._encode))


def rehearse(agent, source):
    """Serves a request of its own, so that what is made at the first time is in the image."""
    answer = encode_request((source, LAST | REHEARSE, 1000, 0))
    call, agent._call = agent._call, lambda frame: answer if frame == FETCH else b""
    main = agent.main
    agent.turn()
    agent._call, agent.main = call, main


def settle(agent):
    """Leaves nothing that copies of this interpreter must not have in common."""
    reseed(agent._generators)
    # What is here now is never looked at again by a collection, and so never written to.
    gc.collect()
    make_immortal(agent._call, {id(agent.main), id(agent.main.__dict__), id(agent._reserve)})
    agent._filled = fill_holes()
    gc.freeze()
    if agent._image_names is None:
        # One that a collection looks at.
        agent.main, agent._next_main = new_main(), None
    for generator in agent._generators:
        words = twister_words(generator)
        if words is not None:
            address = (id(generator) & 0xFFFFFFFF).to_bytes(4, "little")
            size = type(generator).__basicsize__.to_bytes(4, "little")
            needle = b"".join(int(word).to_bytes(4, "little") for word in words[:SEED_NEEDLE])
            agent._call(SEEDED + address + size + needle)


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


def fill_holes():
    """Fills the small pieces of memory that imports have left free between objects; returns what is
    in them, some 0.3 MB with pandas.

    What a run allocates then lies side by side, and not all over the memory. So it writes to fewer
    pages, each of which is put back before the next run.
    """
    filled, count = [None] * MOST_HOLES, 0
    for size in range(LARGEST_HOLE, -16, -16):
        piece = (size + 36) // 16 * 16 if size > 0 else 16
        last = row = 0
        while row < PIECES_IN_A_ROW and count < MOST_HOLES:
            # Nothing is smaller than the latter.
            one = filled[count] = bytes(size) if size > 0 else object()
            row = row + 1 if id(one) - last == piece else 0
            last = id(one)
            count += 1
    del filled[count:]
    return filled


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


def forget_identities():
    """Takes away what modules drew by chance when they were imported, where they keep it."""
    for module, names in (("uuid", ("_node", "_last_timestamp")), ("tempfile", ("_name_sequence",))):
        module = sys.modules.get(module)
        for name in names if module is not None else ():
            if hasattr(module, name):
                setattr(module, name, None)
