"""What passes through the door to the host; `engine/src/guest/agent/wire.rs` is its other side.

A request comes in the format of `marshal`. That for a run is a tuple: the source, the moment, the most
bytes of a result and of its data; and, unless all of it is nothing, a list of the file's name, the
arguments, the environment and what only some jobs are given. A reply is a header in JSON and buffers
of raw bytes.
"""

import json
import marshal

# The first byte of what is sent; `engine/src/guest/agent/wire.rs` has the same table.
FETCH = b"\x01"
REPLY = b"\x02"
HELLO = b"\x03"
PROGRAM_BEGINS = b"\x04"
PROGRAM_OVER = b"\x05"
SEEDED = b"\x06"
IMMORTAL = b"\x07"
CALL = b"\x10"
WAIT = b"\x11"
CANCEL = b"\x12"
FUNCTIONS = b"\x13"
DISPLAY = b"\x08"

# What the host sends as the source of a turn.
PREPARE_WORD = b"prepare"

# What a request says of the moment of its run, in one number; `engine/src/guest/agent.rs` has the same ones.
LAST = 1
RESEED = 2
REHEARSE = 4
# And of the host: that it takes integers of any size (`engine/src/run/value/number.rs`).
TAKES_ALL_INTEGERS = 8


def _refuse(value):
    raise TypeError(f"{type(value).__name__} is no JSON")


# What `json.JSONEncoder(ensure_ascii=False, allow_nan=False)` makes anew for each text.
_markers = {}
_encoder = json.encoder.c_make_encoder(
    _markers, _refuse, json.encoder.encode_basestring, None, ": ", ", ", False, False, False
)


def encode_json(value):
    """The value as JSON, with the characters as they are."""
    _markers.clear()
    return "".join(_encoder(value, 0))


# Held here, as programs can replace them where they come from.
encode_request = marshal.dumps
decode_request = marshal.loads


def reply_frame(reply, encode, buffers=(), kind=REPLY):
    """The frame of a reply: the length of its header, the header, and the buffers, if any."""
    if buffers:
        reply = {**reply, "buffers": [memoryview(buffer).nbytes for buffer in buffers]}
    header = encode(reply).encode("utf-8", "backslashreplace")
    # Not `len`, which a program may have replaced.
    length = header.__len__().to_bytes(4, "little")
    return b"".join((kind, length, header, *buffers))


def put_forms(forms, buffers):
    """Appends the data of forms to the buffers, and returns what a header says of them."""
    listed = []
    for mime, data in forms:
        listed.append([mime, "bytes" if type(data) is bytes else "text", buffers.__len__()])
        buffers.append(data if type(data) is bytes else data.encode())
    return listed


def display_frame(forms, encode):
    """The frame of a display, which is built as that of a reply."""
    buffers = []
    return reply_frame({"bundle": put_forms(forms, buffers)}, encode, buffers, DISPLAY)


# Replies that are the same for most programs: of one that ends in no expression, or in `None`.
NO_VALUE, VALUE_IS_NONE = (
    reply_frame({"kind": "completed", "has_value": has_value, "value": None, "repr": None}, encode_json)
    for has_value in (False, True)
)
# The reply when there is no memory left to take a request with, or to make another reply.
NO_ROOM = reply_frame(
    {
        "kind": "raised",
        "type": "MemoryError",
        "message": "no memory is left, not even to say more",
        "traceback": "MemoryError: no memory is left, not even to say more\n",
    },
    encode_json,
)
